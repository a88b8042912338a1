//! `simnet replay`: runs one seed again and shows what happened.
//!
//! Without a file the world is drawn as `check` draws it; a file is either a scenario or options
//! that `check` has written.
//!
//! Invariant: what is shown is what a run with this seed did, and the trace hash at the end is that
//! run's. Deliberately not here: what is right and wrong (`check`, `simnet::scenario`).

use simnet::sayln;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use fairmesh_cluster::Seed;
use fairmesh_model::MonoTime;

use super::run::text;
use simnet::check::Run;
use simnet::event_log::{Entry, EventLog, clock_text};
use simnet::facts::watch::SharedFacts;
use simnet::length::Length;
use simnet::scenario::{
    Acknowledged, Condition, Invariants, Line, Plan, Scenario, run as run_scenario,
};
use simnet::swarm::Options;
use simnet::world::{StepInfo, World};

/// Options of `simnet replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario, or a file of options as `check` writes them; drawn from the seed unless given.
    file: Option<PathBuf>,
    /// The seed.
    #[arg(long)]
    seed: u64,
    /// Sites of the Grid, as `check --sites` had it.
    #[arg(long, conflicts_with = "file")]
    sites: Option<usize>,
    /// Days of the safety phase, as `check --days` had it.
    #[arg(long, conflicts_with = "file")]
    days: Option<u64>,
    /// Ends at this simulated time, such as `2h` or `1d 3h`.
    #[arg(long)]
    until: Option<Length>,
    /// Shows nothing before this simulated time.
    #[arg(long)]
    from: Option<Length>,
    /// Shows events at this site only; may be given several times.
    #[arg(long)]
    node: Vec<usize>,
    /// Shows events of this kind only, such as `pushed`, `report` or `started`; may be given several
    /// times.
    #[arg(long)]
    kind: Vec<String>,
    /// Shows only every so many events of those.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let until = args.until.and_then(Length::millis);
    let until = until.map(|until| MonoTime(until.0));
    let mut show = Show {
        args,
        seen: 0,
        written: 0,
    };
    let Some(file) = &args.file else {
        return Ok(replay_drawn(args, drawn(args), until, show));
    };
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| name.clone())?;
    if !text.lines().any(|line| line.starts_with("shows")) {
        let options = Options::from_toml(&text).context(name)?;
        return Ok(replay_drawn(args, options, until, show));
    }
    let scenario = Scenario::parse(&text, &name)?;
    let mut watched = Watched {
        invariants: Invariants::new(&scenario),
        show: &mut show,
    };
    let mut tell = |line: &Line| sayln!("{}", self::text(line));
    let plan = Plan { until };
    let outcome = run_scenario(&scenario, Seed(args.seed), plan, &mut watched, &mut tell);
    print_end(&outcome.world);
    Ok(match outcome.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The options that `check` draws with the same arguments.
fn drawn(args: &Args) -> Options {
    let minutes = args.days.map(|days| days * 24 * 60);
    let seed = Seed(args.seed);
    match (args.sites, minutes) {
        (Some(sites), _) => Options::draw_of(seed, sites.max(2), minutes),
        (None, Some(minutes)) => Options {
            minutes,
            ..Options::draw(seed)
        },
        (None, None) => Options::draw(seed),
    }
}

fn replay_drawn(
    args: &Args,
    options: Options,
    until: Option<MonoTime>,
    mut show: Show<'_>,
) -> ExitCode {
    let mut run = Run::new(Seed(args.seed), options);
    while until.is_none_or(|until| run.world().now() < until) {
        let goes_on = run.step();
        show.fresh(run.world().log());
        if !goes_on {
            break;
        }
    }
    print_end(run.world());
    let Some(failure) = run.failure() else {
        return ExitCode::SUCCESS;
    };
    let at = clock_text(failure.at_ms);
    let place = failure
        .node
        .map_or_else(String::new, |node| format!(" at site {node}"));
    sayln!(
        "{at}  {} is broken{place}: {}",
        failure.invariant,
        failure.message
    );
    ExitCode::FAILURE
}

fn print_end(world: &World) {
    let (steps, hash) = (world.steps(), world.trace_hash());
    sayln!("{steps} steps, trace {hash:032x}");
}

/// Prints events as they happen.
struct Show<'a> {
    args: &'a Args,
    seen: u64,
    written: u64,
}

impl Show<'_> {
    fn wants(&self, entry: &Entry) -> bool {
        let kind = entry.kind.word();
        let node = usize::try_from(entry.node).unwrap_or(usize::MAX);
        let from = self.args.from.and_then(Length::millis);
        from.is_none_or(|from| entry.at_ms >= from.0)
            && (self.args.node.is_empty() || self.args.node.contains(&node))
            && (self.args.kind.is_empty() || self.args.kind.iter().any(|word| word == kind))
    }

    /// Shows what was written since the last time: calls between two steps leave entries, too.
    fn fresh(&mut self, log: &EventLog) {
        let fresh = usize::try_from(log.written() - self.written).unwrap_or(usize::MAX);
        self.written = log.written();
        let kept = log.entries().count();
        for entry in log.entries().skip(kept.saturating_sub(fresh)) {
            if self.wants(entry) {
                self.seen += 1;
                if self.seen.is_multiple_of(self.args.every) {
                    sayln!("{}", entry.line());
                }
            }
        }
    }
}

/// A scenario's invariants, with its events shown.
struct Watched<'a, 'b> {
    invariants: Invariants,
    show: &'a mut Show<'b>,
}

impl Condition for Watched<'_, '_> {
    fn facts(&self) -> Option<SharedFacts> {
        self.invariants.facts()
    }

    fn forgot(&mut self, node: usize, keeps_side: bool) {
        self.invariants.forgot(node, keeps_side);
    }

    fn step(&mut self, world: &World, step: &StepInfo) -> Result<(), String> {
        self.show.fresh(world.log());
        self.invariants.step(world, step)
    }

    fn end(&mut self, world: &World, acknowledged: &Acknowledged) -> Result<(), String> {
        self.invariants.end(world, acknowledged)
    }
}
