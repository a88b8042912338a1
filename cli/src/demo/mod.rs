//! `fairmesh demo`: a real mesh on this machine, without set-up.
//!
//! Every node has its own keys, libp2p swarm, store and look-up socket; only the process is shared.
//! Pretended clusters run a load on a fast clock, ask their own node who is next, and report to it.
//!
//! Invariant: nothing is shown that a node did not say; at the end the nodes either hold the same
//! view or the command fails.
//! Deliberately not here: faults beyond a cut mesh and a node that is stopped. That is the simulator's work.

mod bank;
mod broker;
mod grid;
mod live;
mod load;
mod measure;
mod plan;
mod play;
mod quota;
mod report;
mod screen;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use fairmesh_model::Millis;
use fairmesh_node::log::say;
use tokio::sync::mpsc;

use crate::output::Exit;

use self::broker::Broker;
use self::grid::{Grid, SYNC};
use self::load::Clusters;
use self::measure::{Propagation, await_identical, share_lines, usage};
use self::plan::Plan;
use self::play::{Heal, Key, Signals};
use self::quota::Quota;
use self::report::{Quantiles, Report};
use self::screen::Screen;

/// How long the nodes may take to agree when the load has ended.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// Time left at the end of a trace for its last reports.
const TAIL: Duration = Duration::from_secs(3);

/// Watch sites share a Grid fairly: six real nodes on this machine, no set-up, no server.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many sites.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=64))]
    sites: u16,

    /// How long the load runs, such as 60s or 5m.
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    length: Duration,

    /// Cut the mesh in two between these moments, such as 20s..40s.
    #[arg(long, value_name = "FROM..TO")]
    partition: Option<Cut>,

    /// Replay a job log in the Standard Workload Format (.swf or .swf.gz) instead of the load of
    /// the FSGrid paper: its partitions are dealt to the sites, its groups are VOs, its users leaves.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// With --trace: let the sites queue the jobs and order them by priority, instead of running
    /// each when the log says that it ran.
    #[arg(long, requires = "trace")]
    reschedule: bool,

    /// With --trace: promised shares, in the form of all share trees; equal ones otherwise.
    #[arg(long, value_name = "TREE.toml", requires = "trace")]
    shares: Option<PathBuf>,

    /// How many times faster than the machine's the sites' clocks run; a trace is fitted into the
    /// time given by --for.
    #[arg(
        long,
        value_name = "TIMES",
        conflicts_with = "trace",
        default_value_t = 1_440
    )]
    speed: u32,

    /// Decides the load's random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Beside the load, give one project credit for all sites together, in three slices, and let its users submit
    /// mostly at one site: rights move, what is not spent in time perishes, and nobody spends more than was
    /// granted, cut off or not. Beside it a bank, which is away while the mesh is cut (or in the middle third of the
    /// time): what sites do then that cannot ask it.
    #[arg(long, conflicts_with = "trace")]
    quota: bool,

    /// Instead of the load, place the jobs of one VO by what one node knows of all sites: a site fails every job for a
    /// while, another one is cut off, and what fails goes elsewhere. No cap may be passed.
    #[arg(long, conflicts_with_all = ["trace", "quota", "partition"])]
    broker: bool,

    /// Where the share page of the first site is served while the load runs: by default at a free port of this machine,
    /// with 0.0.0.0:7680 for all who can reach it.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    page: SocketAddr,

    /// Print one line of JSON (schema fairmesh.demo/1) at the end, and nothing else on standard
    /// output.
    #[arg(long)]
    json: bool,
}

/// When the mesh is cut and healed.
#[derive(Debug, Clone, Copy)]
struct Cut {
    from: Duration,
    to: Duration,
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").ok_or("write it as 20s..40s")?;
        let (from, to) = (parse_time(from)?, parse_time(to)?);
        if from < to {
            Ok(Self { from, to })
        } else {
            Err("it heals before it is cut".to_owned())
        }
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time: jiff::SignedDuration = text
        .parse()
        .map_err(|error| format!("`{text}`: {error}; write it as 60s or 5m"))?;
    Duration::try_from(time).map_err(|_| format!("`{text}` lies in the past"))
}

/// Runs the demonstration; a failure if the nodes did not end with the same view.
pub async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    let began = Instant::now();
    if args.partition.is_some_and(|cut| cut.to > args.length) {
        bail!("the partition heals after the demonstration has ended: see --for");
    }
    let sites = usize::from(args.sites);
    let plan = match &args.trace {
        Some(file) => Plan::trace(file, sites, args.reschedule, args.shares.as_deref())?,
        None if args.quota => Plan::paper(sites).with_project(quota::PROJECT)?,
        None if args.broker => Plan::broker(sites),
        None => Plan::paper(sites),
    };
    let factor_permille = match plan.length() {
        Some(length) => fitted(length, args.length)?,
        None => u64::from(args.speed.max(1)) * 1_000,
    };
    let mut signals = Signals::new()?;
    let mut screen = Screen::new(args.json);
    for (why, count) in plan.left_out() {
        screen.say(&format!("Left out of the log: {count} records with {why}"));
    }
    screen.say(&format!("Starting {sites} nodes …"));
    let grid = tokio::select! {
        grid = Grid::start(&plan, factor_permille, args.page) => grid?,
        _ = signals.any() => bail!("ended by a signal before the nodes had started"),
    };
    let start_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    screen.say(&format!(
        "{sites} sites are one mesh and hold the signed policies of {} VOs ({start_ms} ms). Their clocks run {} times as fast as yours.",
        plan.vos.len(),
        factor_permille / 1_000
    ));
    screen.say(&format!(
        "The share page of {} is http://{}/, and it answers `fairmesh top --socket {}`, for as long as the load runs.",
        grid.nodes[0].name,
        grid.page,
        grid.socket(0, "control").display()
    ));
    let show = Show {
        args: &args,
        plan,
        grid,
        screen,
        start_ms,
        quota: None,
        broker: None,
        signals,
        keys: None,
        is_cut: false,
        heal: None,
    };
    Ok(match show.run().await? {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

/// A running demonstration.
struct Show<'a> {
    args: &'a DemoArgs,
    plan: Plan,
    grid: Grid,
    screen: Screen,
    start_ms: u64,
    quota: Option<Quota>,
    broker: Option<Broker>,
    signals: Signals,
    /// What is pressed, on a terminal.
    keys: Option<mpsc::Receiver<Key>>,
    is_cut: bool,
    /// What the last heal was like.
    heal: Option<Heal>,
}

impl Show<'_> {
    async fn run(mut self) -> anyhow::Result<bool> {
        let mut propagation = Propagation::default();
        let clusters = Clusters::start(&self.plan, &self.grid, self.args.seed)?;
        if self.args.quota {
            self.quota = Some(Quota::grant(&self.grid, self.args.length).await?);
        }
        if self.args.broker {
            self.broker = Some(Broker::new(&self.grid, &self.plan.cores, self.args.seed)?);
        }
        self.grid.clock.go();
        if self.play(&clusters, &mut propagation).await?.is_break() {
            // Reports of a site whose node is away have nowhere to go.
            let _ = tokio::task::block_in_place(|| clusters.finish());
            self.grid.stop().await?;
            bail!("ended by a signal; nothing is left of it");
        }
        if let Some(quota) = &mut self.quota {
            quota.finish(&self.grid).await?;
        }
        if let Some(broker) = &mut self.broker {
            broker.finish(&self.grid).await?;
        }
        let now = fairmesh_node::driver::Clock::now(&*self.grid.clock).wall;
        self.grid
            .clock
            .stop_at(self.plan.end.map_or(now, |end| end.max(now)));
        let jobs = tokio::task::block_in_place(|| clusters.finish())?;
        let report = self.report(jobs, propagation).await?;
        self.screen.finish(&report);
        if self.args.json {
            say(&report.json().to_string());
        }
        self.grid.stop().await?;
        let is_kept = report.quota.is_none_or(|quota| quota.overspent == 0)
            && report.broker.is_none_or(|broker| broker.passed_caps == 0);
        Ok(report.views_identical && is_kept)
    }

    /// What came of it, once all nodes have the identical view, or should have.
    async fn report(&mut self, jobs: u64, mut propagation: Propagation) -> anyhow::Result<Report> {
        let heal = self.heal;
        let digests = await_identical(&self.grid, SETTLE_MAX).await?;
        propagation.take(&mut self.grid.observations, self.grid.nodes.len(), false);
        let quota = match &mut self.quota {
            Some(quota) => Some(quota.outcome(&self.grid).await?),
            None => None,
        };
        let broker = self.broker.take().map(Broker::outcome);
        let jobs = broker.as_ref().map_or(jobs, |broker| broker.ended);
        let usage = usage(&self.grid, &self.plan).await?;
        Ok(Report {
            schema: "fairmesh.demo/1",
            views_identical: digests.iter().all(|digest| *digest == digests[0]),
            view_digests: digests.iter().map(ToString::to_string).collect(),
            shares: share_lines(&self.plan, &usage),
            usage_core_ms: usage
                .iter()
                .map(|(path, counters)| (path.to_string(), counters.cpu_ms))
                .collect(),
            jobs,
            propagation_ms: Quantiles {
                p50: propagation.quantile(500),
                p99: propagation.quantile(990),
                max: propagation.quantile(1_000),
            },
            heal_to_identical_ms: heal.map(|heal| heal.to_identical_ms),
            views_while_cut: heal.map(|heal| heal.views_while_cut),
            sync_interval_ms: u64::try_from(SYNC.as_millis()).expect("a second"),
            bytes_per_node: self.bytes_per_node(),
            heads: propagation.count(),
            start_ms: self.start_ms,
            left_out: self.plan.left_out(),
            quota,
            broker,
        })
    }

    fn bytes_per_node(&self) -> u64 {
        let received = self.grid.nodes.iter().map(|node| {
            let stats = node.handle.network_stats();
            stats.peers.values().map(|peer| peer.bytes_in).sum::<u64>()
        });
        received.sum::<u64>() / self.grid.nodes.len() as u64
    }
}

/// The pace at which `length` of the sites' time fits into `real` time, with a tail for the end.
fn fitted(length: Millis, real: Duration) -> anyhow::Result<u64> {
    let room = real.saturating_sub(TAIL).as_millis();
    anyhow::ensure!(
        room >= 1_000,
        "--for is too short to replay a trace: give it five seconds or more"
    );
    let factor = u128::from(length.0) * 1_000 / room;
    Ok(u64::try_from(factor).unwrap_or(u64::MAX).max(1))
}
