//! `fairmesh place`: where a job should go, from a file that says how sites stand, offline.
//!
//! It asks the broker that nodes ask, so that an SLA can be tried before anyone signs it.
//!
//! Invariant: the same file, request and seed give the same answer; every site of the file is in it, with a
//! reason. Deliberately not here: the mesh (a node does not know other sites' free CPUs yet), prices, and what
//! a broker has sent before: each answer is that of a broker that has sent nothing.
//! Source: GRUBER (Dumitrescu and Foster, Euro-Par 2005).

pub mod grid;

mod report;

use std::io::Write;
use std::path::PathBuf;

use fairmesh_broker::{Candidate, Chooser, Engine, Request, Selector, SiteView, Verdict, judge};
use fairmesh_cluster::Seed;
use fairmesh_model::Millis;

pub use grid::Grid;

use crate::emulate::read;
use crate::output::{Exit, OutputArgs};

/// Say which sites may have a job, the best first, without any mesh
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
GRID.json says how sites stand. Shares are percent, bursts are CPUs:
    {\"sites\": [{\"name\": \"s\", \"total\": 100, \"free\": 40, \"waiting\": 0,
      \"vos\": {\"physics\": {\"epoch_used\": 12.5, \"epoch_share\": 50,
        \"burst_used\": 10, \"burst_limit\": 50, \"extensible\": false}}}]}
Beside them a site may have `waiting` (CPUs that others wait for), `wait_s` (its estimate of a wait),
`spec` (its speed), `factor` (the submitter's fairshare factor, 0 to 1) and `age_s` (how old all this
is); a VO may have `sign` (limit, target or guarantee) and `waiting`.

It ends with 0 whenever it has an answer, though that may be that no site may have the job.")]
pub struct PlaceArgs {
    /// How the sites stand
    #[arg(long, value_name = "GRID.json")]
    pub grid: PathBuf,
    /// Whose job it is
    #[arg(long, value_name = "NAME")]
    pub vo: String,
    /// CPUs that it asks for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub cpus: u64,
    /// Seconds that it asks for, on the reference machine
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wall: u64,
    /// Who decides what is available: published (GRUBER as printed, with its faults), prose (as its text
    /// says) or sound
    #[arg(long, default_value = "sound")]
    pub engine: Engine,
    /// How sites are ordered: ra, rr, lru, lu, lu-own, obs, s-ra, fair or eta
    #[arg(long, default_value = "lu", value_parser = parse_selector)]
    pub selector: Selector,
    /// What chance goes by
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Leave out sites of which nothing was heard for so long (by `sound`)
    #[arg(long, value_name = "SECONDS")]
    pub silence: Option<u64>,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is said of each site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Those that may have the job, the best first.
    pub taken: Vec<(&'a SiteView, Verdict)>,
    /// Those that may not, by name.
    pub refused: Vec<(&'a SiteView, Verdict)>,
}

/// Runs the command.
pub fn run(args: &PlaceArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let grid = Grid::parse(&read(&args.grid)?, &args.grid.display().to_string())?;
    report::write(&place(&grid, args), args, out)?;
    Ok(Exit::Success)
}

/// Judges and orders the sites of a Grid.
pub fn place<'a>(grid: &'a Grid, args: &PlaceArgs) -> Placed<'a> {
    let mut request = Request::of_cpus(&args.vo, args.cpus);
    request.wall = Millis::from_secs(args.wall);
    let silence = args.silence.map(Millis::from_secs);
    let untested = args.selector == Selector::Naive;
    let judged = grid.sites.iter().map(|site| match untested {
        // The baseline asks nobody.
        true => (site, Verdict::Now { beyond: false }),
        false => (site, judge(args.engine, site, &request, silence)),
    });
    let (mut refused, taken): (Vec<_>, Vec<_>) =
        judged.partition(|(_, verdict)| matches!(verdict, Verdict::No(_)));
    refused.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let candidate = |(site, verdict): &(&'a SiteView, Verdict)| Candidate {
        now: verdict.is_now(),
        ..Candidate::of(site)
    };
    let candidates: Vec<_> = taken.iter().map(candidate).collect();
    let mut stream = Seed(args.seed).stream("place");
    let order = Chooser::new(args.selector)
        .rank(&candidates, request.wall, &mut |bound| stream.below(bound));
    let taken = order
        .into_iter()
        .map(|index| taken[index].clone())
        .collect();
    Placed { taken, refused }
}

/// All but utility: a file of sites says nothing of machines.
pub fn parse_selector(text: &str) -> Result<Selector, String> {
    match text.parse()? {
        Selector::Utility => {
            Err("a GRID.json names no machines, which utility looks at".to_owned())
        }
        selector => Ok(selector),
    }
}

#[cfg(test)]
mod tests;
