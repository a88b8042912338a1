//! Looking for one planted fault, seed after seed.
//!
//! Invariant: what a hunt finds depends on the fault and the seeds alone, not on the thread that runs
//! it nor on what ran there before. A panic of the code under test counts as found: asserts are checks
//! too. So does a run that does not end. A seed that fails without the fault has found nothing.
//!
//! Deliberately not here: many hunts at a time, and printing (`cli::mutants`).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use fairmesh_cluster::Seed;
use fairmesh_model::mutant;

use super::{ENDLESS, Found, Hunted, Mutant, PANIC};
use crate::check::Run;
use crate::invariants::{LIVENESS, TABLE};
use crate::liar::{self, Choice, LIES, Lie};
use crate::swarm::Options;

/// Steps of a run that count as endless. A sound one takes a tenth at most.
const STEPS_MAX: u64 = 2_000_000;

/// The fewest sites of a Grid, and how many numbers of sites there are.
const SITES: (usize, u64) = (3, 4);

/// Entries that are recomputed in one step in every second Grid: less than a tree has.
const SWEEP: usize = 3;

/// Minutes of a safety phase.
const MINUTES: u64 = 180;

/// The Grids of a hunt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Grids {
    /// The one invariant that is looked at, if it is one.
    own: Option<&'static str>,
    /// The lie that all liars tell, if it is one.
    lie: Option<&'static str>,
    /// Whether there are quotas in each.
    has_quotas: bool,
    /// Whether they are what `check` draws.
    are_of_check: bool,
}

/// Whether seeds pass without a fault, for those of which that was asked.
static SOUND: Mutex<BTreeMap<(Seed, Grids), bool>> = Mutex::new(BTreeMap::new());

/// Runs seeds from `first` on with the fault until one fails that passes without it.
pub fn hunt(of: &'static Mutant, first: Seed, seeds_max: u64) -> Hunted {
    hunt_with(of, first, seeds_max, (None, false))
}

/// The same in the Grids that `check` draws.
pub fn hunt_as_check(of: &'static Mutant, first: Seed, seeds_max: u64) -> Hunted {
    hunt_with(of, first, seeds_max, (None, true))
}

/// The same, where only the invariant that the fault is meant for is looked at: another may be quicker
/// to see it. Grids are small, and such as this invariant is about.
pub fn hunt_for_its_own(of: &'static Mutant, first: Seed, seeds_max: u64) -> Hunted {
    let mut names = TABLE.iter().map(|entry| entry.name);
    let name = names.find(|name| *name == of.meant).unwrap_or(LIVENESS);
    hunt_with(of, first, seeds_max, (Some(name), false))
}

fn run_of(seed: Seed, grids: Grids) -> Run {
    match grids.own {
        None if grids.are_of_check => {
            let options = Options::draw(seed);
            let lie = grids.lie.and_then(liar::named);
            Run::new(
                seed,
                match lie {
                    Some(lie) => options.with_lies(seed, Choice::One(lie)),
                    None => options,
                },
            )
        }
        None => {
            let options = options_of(seed, grids.lie);
            let options = match grids.has_quotas {
                true => options.with_quotas(seed),
                false => options,
            };
            Run::new(seed, options)
        }
        Some(name) => Run::new(seed, options_for(name, seed)).only(name),
    }
}

/// The Grid of a seed: few sites and hours, so that a hundred are run where a campaign runs ten. Of four
/// one is as drawn at some pace, one has more crashes, and two have members that tell `lie`, or each lie
/// in turn. In every second one a change of windows takes many steps. Of sixteen one each has histories that
/// are shorter than what jobs go back, counts little but what runs, has marks of jobs that cannot be read, and
/// has batch systems with the wrong clocks of their nodes.
fn options_of(seed: Seed, lie: Option<&str>) -> Options {
    let sites = SITES.0 + usize::try_from(seed.0 % SITES.1).unwrap_or(0);
    let mut options = Options::draw_of(seed, sites, Some(MINUTES));
    if seed.0.is_multiple_of(2) {
        options.sweep_entries = SWEEP;
    }
    options = options.with_load_of(lie.unwrap_or_default());
    let options = with_faults(options, seed, lie);
    match seed.0 % 16 {
        8 => options.with_what_runs(seed),
        9 => options.with_short_histories(seed),
        10 => options.with_bad_marks(),
        14 => options.with_one_clock(),
        _ => options,
    }
}

fn with_faults(options: Options, seed: Seed, lie: Option<&str>) -> Options {
    match (seed.0 % 4, lie_of(seed, lie)) {
        _ if seed.0 % 16 == 9 => options,
        (1, _) => options.with_pace(seed),
        (_, None) if seed.0 % 8 == 6 => options.with_crashes().with_wrong_clocks(),
        (_, None) => options.with_crashes(),
        (3, Some(lie)) => options.with_pace(seed).with_lies(seed, Choice::One(lie)),
        (_, Some(lie)) => options.with_lies(seed, Choice::One(lie)),
    }
}

/// The lie that is told in the Grid of a seed: half of them have one.
fn lie_of(seed: Seed, lie: Option<&str>) -> Option<&'static Lie> {
    let turn = usize::try_from(seed.0 / 2).unwrap_or(0);
    let in_turn = &LIES[turn % LIES.len()];
    matches!(seed.0 % 4, 0 | 3).then(|| lie.and_then(liar::named).unwrap_or(in_turn))
}

/// A Grid that an invariant is about.
fn options_for(name: &str, seed: Seed) -> Options {
    let mut options = Options::draw_of(seed, SITES.0, Some(MINUTES / 3));
    let faults = &mut options.faults;
    match name {
        "incarnations" | "policies" | "limits" => faults.crashes += 4,
        "audit" => {
            // Own heads must come back to a site that has taken jobs back.
            options.reports_per_hour = 20;
            options.load.correct_permille = 500;
            faults.crashes += 4;
            faults.wipes += 4;
        }
        "clocks" => faults.clock_jumps += 8,
        "owner" => faults.departures += 8,
        "prices" => faults.reconfigurations += 4,
        "descriptions" => faults.descriptions += 8,
        "adverts" => {
            // Longer than a list counts.
            options.running_s = 900;
            options.adverts = true;
        }
        "privacy" => faults.removals += 8,
        "quotas" | "verdicts" | "holds" => {
            faults.crashes_within += 8;
            options = options.with_quotas(seed);
        }
        "expired" => options.vos.iter_mut().for_each(|vo| vo.expires_hours = 1),
        "vouched" => {
            // Each change comes with a snapshot, and members that were away hear of one before the other.
            options.vos.iter_mut().for_each(|vo| vo.snapshots = true);
            options.faults.policies += 24;
            options.faults.partitions += 8;
            options.faults.crashes += 4;
        }
        "liars" => {
            let lie = liar::named("documents").expect("it is in the table");
            options = options.with_lies(seed, Choice::One(lie));
        }
        _ => {}
    }
    options
}

fn hunt_with(
    of: &'static Mutant,
    first: Seed,
    seeds_max: u64,
    (own, are_of_check): (Option<&'static str>, bool),
) -> Hunted {
    let mut hunted = Hunted {
        name: of.name.clone(),
        seeds: 0,
        reached: 0,
        found: None,
    };
    let lie = of.lie.as_deref();
    let has_quotas = ["quotas", "verdicts", "holds"].contains(&of.meant.as_str());
    let grids = Grids {
        own,
        lie,
        has_quotas,
        are_of_check,
    };
    for index in 0..seeds_max {
        let seed = Seed(first.0.wrapping_add(index));
        let planted = mutant::plant(&of.name);
        let found = failure_of(seed, grids);
        hunted.reached += u64::from(mutant::reached() > 0);
        drop(planted);
        hunted.seeds += 1;
        let found = found.filter(|_| is_sound(seed, grids));
        hunted.found = found.map(|(by, message)| Found {
            by,
            seed: seed.0,
            message,
        });
        if hunted.found.is_some() {
            break;
        }
    }
    hunted
}

/// Whether the seed passes where nothing is planted.
fn is_sound(seed: Seed, grids: Grids) -> bool {
    let known = |is_sound: Option<bool>| {
        let mut known = SOUND.lock().expect("nobody panics with it");
        if let Some(is_sound) = is_sound {
            known.insert((seed, grids), is_sound);
        }
        known.get(&(seed, grids)).copied()
    };
    known(None).unwrap_or_else(|| {
        let is_sound = failure_of(seed, grids).is_none();
        known(Some(is_sound)).unwrap_or(is_sound)
    })
}

/// What fails in a seed, and what is said of it.
fn failure_of(seed: Seed, grids: Grids) -> Option<(String, String)> {
    let found = catch_unwind(AssertUnwindSafe(|| {
        let mut run = run_of(seed, grids);
        while run.step() {
            if run.world().steps() > STEPS_MAX {
                let message = format!("{STEPS_MAX} steps and no end");
                return Some((ENDLESS.to_owned(), message));
            }
        }
        let failure = run.failure()?;
        Some((failure.invariant.clone(), failure.message.clone()))
    }));
    found.unwrap_or_else(|panic| Some((PANIC.to_owned(), words_of(&*panic))))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panics").to_owned()
}
