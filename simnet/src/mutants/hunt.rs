//! Looking for one planted fault, seed after seed.
//!
//! Invariant: what a hunt finds depends on the fault and the seeds alone, not on the thread that runs
//! it nor on what ran there before. A panic of the code under test counts as found: asserts are checks
//! too. So does a run that does not end.
//!
//! Deliberately not here: many hunts at a time, and printing (`cli::mutants`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use fairmesh_cluster::Seed;
use fairmesh_model::mutant;

use super::{ENDLESS, Found, Hunted, Mutant, PANIC};
use crate::check::Run;
use crate::invariants::{LIVENESS, TABLE};
use crate::liar::Choice;
use crate::swarm::Options;

/// Steps of a run that count as endless. A sound one takes a tenth at most.
const STEPS_MAX: u64 = 2_000_000;

/// Runs seeds from `first` on with the fault until one fails.
pub fn hunt(of: &'static Mutant, first: Seed, seeds_max: u64) -> Hunted {
    hunt_with(of, first, seeds_max, |seed| {
        Run::new(seed, Options::draw(seed))
    })
}

/// The same, where only the invariant that the fault is meant for is looked at: another may be quicker
/// to see it. Grids are such as this invariant is about.
pub fn hunt_for_its_own(of: &'static Mutant, first: Seed, seeds_max: u64) -> Hunted {
    let name = TABLE
        .iter()
        .map(|entry| entry.name)
        .find(|name| *name == of.meant);
    hunt_with(of, first, seeds_max, |seed| {
        let options = Options::draw(seed);
        let options = match of.meant.as_str() {
            "expired" => options.with_pace(seed),
            "liars" => options.with_lies(seed, over_report()),
            _ => options,
        };
        Run::new(seed, options).only(name.unwrap_or(LIVENESS))
    })
}

fn over_report() -> Choice {
    Choice::One(crate::liar::named("over-report").expect("it is in the table"))
}

fn hunt_with(
    of: &'static Mutant,
    first: Seed,
    seeds_max: u64,
    run: impl Fn(Seed) -> Run,
) -> Hunted {
    let mut hunted = Hunted {
        name: of.name.clone(),
        seeds: 0,
        reached: 0,
        found: None,
    };
    while hunted.found.is_none() && hunted.seeds < seeds_max {
        let seed = Seed(first.0.wrapping_add(hunted.seeds));
        let planted = mutant::plant(&of.name);
        let found = catch_unwind(AssertUnwindSafe(|| failure_of(run(seed))));
        hunted.reached += u64::from(mutant::reached() > 0);
        drop(planted);
        hunted.seeds += 1;
        let found = found.unwrap_or_else(|panic| Some((PANIC.to_owned(), words_of(&*panic))));
        hunted.found = found.map(|(by, message)| Found {
            by,
            seed: seed.0,
            message,
        });
    }
    hunted
}

fn failure_of(mut run: Run) -> Option<(String, String)> {
    while run.step() {
        if run.world().steps() > STEPS_MAX {
            let message = format!("{STEPS_MAX} steps and no end");
            return Some((ENDLESS.to_owned(), message));
        }
    }
    let failure = run.failure()?;
    Some((failure.invariant.clone(), failure.message.clone()))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panics").to_owned()
}
