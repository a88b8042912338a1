//! `fairmesh place`: where a job should go, by what a node knows of the sites of its VO, or offline, by a file that
//! says how sites stand.
//!
//! Both ask the same broker, so that an SLA can be tried before anyone signs it.
//!
//! Invariant: the same file, request and seed give the same answer; every site is in it, with a reason.
//! Deliberately not here: what a broker has sent before; each answer is that of a broker that has sent nothing.
//! Source: GRUBER (Dumitrescu and Foster, Euro-Par 2005).

mod job;
mod known;
mod node;
mod report;
mod submit;

use std::io::Write;
use std::path::PathBuf;

use fairmesh_api::Grid;
use fairmesh_broker::{
    Chooser, Engine, Known, Ranking, Request, Selector, SiteView, Verdict, rank,
};
use fairmesh_cluster::Seed;
use fairmesh_model::Millis;

pub(crate) use known::known_by_node;

use crate::ask::AskArgs;
use crate::emulate::read_as;
use crate::output::Exit;

/// Say which sites may have a job, the best first
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
JOB.toml says what the job asks for; but for `cpus` all of it may be left out:
    vo = \"physics\"
    user = \"ann\"
    account = \"cms\"
    cpus = 8
    nodes = 1
    gpus = 0
    memory = \"16GiB\"
    disk = \"100GiB\"
    input = \"2GiB\"
    output = \"10GiB\"
    time = \"2h\"
    queue = \"long\"
    properties = [\"ib\"]
    key = \"run-17\"
    run = \"#!/bin/sh ...\"
    [[require]]
    kind = \"os\"
    options = { macos = 1.0, linux = 0.5 }
    weight = 1.0
Kinds of wishes are os, arch, tag, cpus, memory, disk, speed and time; an option is worth from 0 to 1.
`key` and `run` are for --submit: your name for the job, and anything for the submit command of the site that it goes to.

GRID.json says how the sites stand, instead of a node. Shares are percent, bursts are CPUs:
    {\"sites\": [{\"name\": \"s\", \"total\": 100, \"free\": 40, \"waiting\": 0,
      \"vos\": {\"physics\": {\"epoch_used\": 12.5, \"epoch_share\": 50,
        \"burst_used\": 10, \"burst_limit\": 50, \"extensible\": false}}}]}
Beside them a site may have `waiting` (CPUs that others wait for), `wait_s` (its estimate of a wait),
`spec` (its speed), `factor` (the submitter's fairshare factor, 0 to 1) and `age_s` (how old all this
is); a VO may have `sign` (limit, target or guarantee), `waiting`, `over_s` (for how long it has had more than it may) and
`disk` ({\"quota_mib\": 100, \"share_mib\": 500, \"staged_mib\": 20}: what user and VO may have there, and what lies there).

It ends with 0 whenever it has an answer, though that may be that no site may have the job.")]
pub struct PlaceArgs {
    /// The job; without it --cpus says how large it is
    #[arg(value_name = "JOB.toml", conflicts_with_all = ["grid", "vo", "cpus", "wall", "disk_mib", "user", "account"])]
    pub job: Option<PathBuf>,
    /// How the sites stand, instead of asking a node
    #[arg(long, value_name = "GRID.json", requires = "vo")]
    pub grid: Option<PathBuf>,
    /// Whose job it is: the VO [default: that which the user and account belong to]
    #[arg(long, value_name = "NAME")]
    pub vo: Option<String>,
    /// The user [default: you]
    #[arg(short = 'u', long, value_name = "NAME", conflicts_with = "grid")]
    pub user: Option<String>,
    /// The batch account
    #[arg(short = 'A', long, value_name = "NAME", conflicts_with = "grid")]
    pub account: Option<String>,
    /// CPUs that it asks for
    #[arg(long, value_name = "N", required_unless_present = "job", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// Seconds that it asks for, on the reference machine
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wall: u64,
    /// MiB of its input, output and scratch
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub disk_mib: u64,
    /// Who decides what is available: published (GRUBER as printed, with its faults), prose (as its text
    /// says) or sound
    #[arg(long, default_value = "sound")]
    pub engine: Engine,
    /// How sites are ordered: ra, rr, lru, lu, lu-own, obs, s-ra, fair, eta or utility [default: utility for a
    /// job with wishes, lu for others]
    #[arg(long)]
    pub selector: Option<Selector>,
    /// What chance goes by
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// List at most so many sites that may have the job
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        conflicts_with = "grid"
    )]
    pub top: usize,
    /// Ask the best site itself how it is now, and the next one where that says no
    #[arg(long, conflicts_with = "grid")]
    pub confirm: bool,
    /// Hand the job in: it goes to the best site that takes jobs of its VO from others, and runs there once
    #[arg(long, conflicts_with_all = ["grid", "confirm"], requires = "job")]
    pub submit: bool,
    /// Your name for the job, which never means another one of yours [default: `key` of JOB.toml, or a new one]
    #[arg(long, value_name = "KEY", requires = "submit")]
    pub key: Option<String>,
    /// How often it may be passed on [default: 4]
    #[arg(long, value_name = "N", requires = "submit", value_parser = clap::value_parser!(u8).range(0..=16))]
    pub hops: Option<u8>,
    /// How long to wait until a batch system has it
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "submit",
        default_value_t = 30,
        hide_default_value = true
    )]
    pub wait: u64,
    /// Leave out sites from which nothing was received for so long (by `sound`); a node goes by its own `[timing]`
    #[arg(long, value_name = "SECONDS", requires = "grid")]
    pub silence: Option<u64>,
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// What is said of each site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Those that may have the job, the best first.
    pub taken: Vec<(&'a SiteView, Verdict)>,
    /// Those that may not, by name.
    pub refused: Vec<(&'a SiteView, Verdict)>,
}

/// Runs `fairmesh place`: ranks the sites for a job.
pub async fn run(args: &PlaceArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.grid {
        Some(_) => offline(args, out),
        None => node::run(args, out).await,
    }
}

/// Says it from a file, without any mesh.
fn offline(args: &PlaceArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let file = args.grid.as_deref().unwrap_or(std::path::Path::new(""));
    if let Some(name) = args.selector {
        parse_selector(&name.to_string()).map_err(anyhow::Error::msg)?;
    }
    let grid = read_as(file, Grid::parse)?;
    report::write(&place(&grid, args), args, out)?;
    Ok(Exit::Success)
}

impl PlaceArgs {
    /// How sites are ordered where no job wishes anything.
    fn selector(&self) -> Selector {
        self.selector.unwrap_or_default()
    }
}

/// Judges and orders the sites of a Grid.
fn place<'a>(grid: &'a Grid, args: &PlaceArgs) -> Placed<'a> {
    let vo = args.vo.as_deref().unwrap_or_default();
    let mut request = Request::of_cpus(vo, args.cpus.unwrap_or_default().into());
    request.wall = Millis::from_secs(args.wall);
    request.staged_mib = args.disk_mib;
    let known = grid.sites.iter().map(|view| Known {
        view: view.clone(),
        ..Known::default()
    });
    let known: Vec<Known> = known.collect();
    let by = Ranking {
        engine: args.engine,
        silence: args.silence.map(Millis::from_secs),
        chooser: &Chooser::new(args.selector()),
    };
    let mut stream = Seed(args.seed).stream("place");
    let listed: Vec<&Known> = known.iter().collect();
    let ranked = rank(&listed, &request, by, &mut |bound| stream.below(bound));
    let site = |(index, verdict): (usize, Verdict)| (&grid.sites[index], verdict);
    Placed {
        taken: ranked.taken.into_iter().map(site).collect(),
        refused: ranked.refused.into_iter().map(site).collect(),
    }
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
