//! The pretended clusters: one thread a site, which runs jobs, asks its own node's `lookup.sock` who
//! is next, and reports to its own node what was used.
//!
//! Invariant: every moment of a job that ran is reported by the end, whatever was queued behind it
//! is not. What a node that is away has not acknowledged waits for its return, as with a real feed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fairmesh_client::protocol::{Names, Who};
use fairmesh_client::{Client, ClientError};
use fairmesh_cluster::{
    AccountKey, Arrival, Backfill, Cluster, Job, JobId, Seed, Started, TraceJob, Workload,
    WorkloadSpec, paper,
};
use fairmesh_model::{Millis, Origin, RunningJob, UsageRecord, WallTime};
use fairmesh_node::driver::{Clock, FastClock, NodeHandle};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::grid::{DemoNode, Grid, ended, origin};
use super::plan::{Load, Plan};

/// How often a pretended scheduler looks at its queue.
const PASS: Duration = Duration::from_millis(25);

/// How often running jobs are reported.
const INSTALMENTS: Duration = Duration::from_millis(100);

/// Jobs of one core that a flood brings to each site, and how long each runs.
pub(super) const FLOOD: u64 = 200;
const FLOOD_RUN: Millis = Millis::from_secs(3_600);

/// The numbers of a flood's jobs begin beyond those of any load.
const FLOOD_FROM: u64 = 1 << 40;

/// The threads of all clusters.
pub(super) struct Clusters {
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
    shared: Shared,
}

/// What all of them and whoever started them tell each other.
#[derive(Debug, Clone, Default)]
struct Shared {
    stop: Arc<AtomicBool>,
    /// Jobs that have ended.
    jobs: Arc<AtomicU64>,
    /// How often a user has flooded the sites.
    floods: Arc<AtomicU64>,
}

/// What one cluster's thread knows.
struct Feed {
    site: String,
    /// The way to the node, while it is there.
    node: watch::Receiver<Option<NodeHandle>>,
    /// Records that no node has acknowledged yet.
    pending: Vec<UsageRecord>,
    /// Who floods the sites.
    flooder: Option<AccountKey>,
    runtime: Handle,
    clock: Arc<FastClock>,
    words: BTreeMap<AccountKey, Origin>,
    shared: Shared,
}

impl Clusters {
    /// Starts a thread for each node.
    pub(super) fn start(plan: &Plan, grid: &Grid, seed: u64) -> anyhow::Result<Self> {
        let shared = Shared::default();
        let mut threads = Vec::new();
        for (index, node) in grid.nodes.iter().enumerate() {
            let mut feed = Feed::new(plan, grid, node, shared.clone());
            let socket = node.lookup_socket.clone();
            let cores = plan.cores[index];
            let thread = std::thread::Builder::new().name(node.name.clone());
            threads.push(match &plan.load {
                Load::Trace { trace, reschedule } => {
                    let mine = trace.jobs.iter().filter(|job| job.node == index);
                    if *reschedule {
                        let submitted = mine.map(|job| (job.submit, job.to_job()));
                        let mut submitted: Vec<(WallTime, Job)> = submitted.collect();
                        submitted.sort_by_key(|(at, job)| (*at, job.id));
                        thread
                            .spawn(move || feed.schedule(cores, submitted.into_iter(), &socket))?
                    } else {
                        let mut ran: Vec<TraceJob> = mine.cloned().collect();
                        ran.sort_by_key(|job| (job.end, job.job));
                        thread.spawn(move || feed.replay(&ran))?
                    }
                }
                Load::Broker => continue,
                Load::Paper => {
                    let spec = WorkloadSpec::paper(plan.start, plan.cores.len());
                    let workload = Workload::new(Seed(seed), spec, paper::leaf_loads())?;
                    let mine = workload
                        .filter(move |arrival: &Arrival| arrival.site == index)
                        .map(|arrival| (arrival.at, arrival.job));
                    thread.spawn(move || feed.schedule(cores, mine, &socket))?
                }
            });
        }
        Ok(Self { threads, shared })
    }

    /// Whether all threads have come to the end of their load.
    pub(super) fn are_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// One user submits more jobs to every site than it has room for.
    pub(super) fn flood(&self) {
        self.shared.floods.fetch_add(1, Ordering::Relaxed);
    }

    /// Jobs that have ended.
    pub(super) fn jobs(&self) -> u64 {
        self.shared.jobs.load(Ordering::Relaxed)
    }

    /// Lets the threads report what runs, and waits for them.
    pub(super) fn finish(self) -> anyhow::Result<u64> {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a pretended cluster panicked"))??;
        }
        Ok(self.shared.jobs.load(Ordering::Relaxed))
    }
}

impl Feed {
    fn new(plan: &Plan, grid: &Grid, node: &DemoNode, shared: Shared) -> Self {
        let accounts = plan.vos.iter().enumerate().flat_map(|(vo, entries)| {
            entries.entries.keys().map(move |path| AccountKey {
                vo,
                path: path.clone(),
            })
        });
        Self {
            site: node.name.clone(),
            node: node.newest.subscribe(),
            pending: Vec::new(),
            flooder: plan.flooder(),
            runtime: Handle::current(),
            clock: grid.clock.clone(),
            words: accounts
                .map(|account| {
                    let origin = origin(&account.path, &plan.vos[account.vo].name);
                    (account, origin)
                })
                .collect(),
            shared,
        }
    }

    /// Reports each job when the trace says that it ended.
    fn replay(&mut self, jobs: &[TraceJob]) -> anyhow::Result<()> {
        let mut next = 0;
        while next < jobs.len() || !self.pending.is_empty() {
            let now = self.clock.now().wall;
            let due = jobs[next..].iter().take_while(|job| job.end <= now).count();
            let records = jobs[next..next + due]
                .iter()
                .map(|job| self.record(&job.to_job(), [job.start, job.end], false));
            let records = records.collect();
            self.report(records)?;
            next += due;
            std::thread::sleep(PASS);
        }
        Ok(())
    }

    /// Queues jobs and starts them in the order that the node's priorities give.
    fn schedule(
        &mut self,
        cores: u32,
        submitted: impl Iterator<Item = (WallTime, Job)>,
        socket: &Path,
    ) -> anyhow::Result<()> {
        let mut cluster = Cluster::new(cores, Backfill::Off);
        let mut client = Client::connect(socket, Duration::from_secs(10))?;
        let mut submitted = submitted.peekable();
        let mut instalments = Instant::now();
        let mut floods = 0;
        let mut factors = BTreeMap::new();
        loop {
            let stop = self.shared.stop.load(Ordering::Acquire);
            let now = self.clock.now().wall;
            while let Some((_, job)) = submitted.next_if(|(at, _)| *at <= now) {
                cluster
                    .submit(job)
                    .with_context(|| format!("{}: a job was refused", self.site))?;
            }
            if floods < self.shared.floods.load(Ordering::Relaxed) {
                self.flood(&mut cluster, floods)?;
                floods += 1;
            }
            let ended = cluster.finish(now);
            let records = ended
                .iter()
                .map(|job| self.record(&job.job, [job.start, job.end], false));
            let records = records.collect();
            self.report(records)?;
            if stop || instalments.elapsed() >= INSTALMENTS {
                instalments = Instant::now();
                self.report_running(&cluster, now);
            }
            anyhow::ensure!(
                !stop || self.pending.is_empty(),
                "{}: its node is away, and {} jobs could not be reported",
                self.site,
                self.pending.len()
            );
            if stop
                || (submitted.peek().is_none()
                    && cluster.queued() == 0
                    && cluster.running_count() == 0)
            {
                return Ok(());
            }
            if cluster.queued() > 0 && cluster.cores_used() < cluster.cores() {
                // A scheduler whose node is away goes on by the factors that it has.
                if let Some(new) = self.look_up(&mut client, cluster.pending_accounts())? {
                    factors.extend(new);
                }
                cluster.schedule(now, &factors);
            }
            std::thread::sleep(PASS);
        }
    }

    /// Asks the node for the factors of all accounts that wait, in one batch; `None` while it is away.
    fn look_up<'a>(
        &self,
        client: &mut Client,
        accounts: impl Iterator<Item = &'a AccountKey>,
    ) -> anyhow::Result<Option<BTreeMap<AccountKey, u64>>> {
        let accounts: Vec<&AccountKey> = accounts.collect();
        let who: Vec<Who<'_>> = accounts
            .iter()
            .map(|account| {
                let words = &self.words[account];
                Who::Names(Names {
                    user: words.user.as_deref(),
                    account: words.account.as_deref(),
                    ..Names::default()
                })
            })
            .collect();
        let is_away = || self.node.borrow().is_none();
        let found = match factors(client, &who) {
            _ if is_away() => return Ok(None),
            Ok(found) => found,
            // The node has been started again since.
            Err(_) => match client.reconnect().and_then(|()| factors(client, &who)) {
                _ if is_away() => return Ok(None),
                found => found?,
            },
        };
        Ok(Some(accounts.into_iter().cloned().zip(found).collect()))
    }

    /// Jobs of one core of one user, more than there is room for.
    fn flood(&self, cluster: &mut Cluster, flood: u64) -> anyhow::Result<()> {
        let Some(account) = &self.flooder else {
            return Ok(());
        };
        for number in 0..FLOOD {
            let job = Job {
                id: JobId(FLOOD_FROM + flood * FLOOD + number),
                account: account.clone(),
                cores: 1,
                run: FLOOD_RUN,
                requested: FLOOD_RUN,
            };
            cluster.submit(job).with_context(|| self.site.clone())?;
        }
        Ok(())
    }

    /// Reports what has ended, and what had no answer before.
    fn report(&mut self, ended: Vec<UsageRecord>) -> anyhow::Result<()> {
        self.shared
            .jobs
            .fetch_add(ended.len() as u64, Ordering::Relaxed);
        self.pending.extend(ended);
        let node = self.node.borrow().clone();
        let Some(node) = node.filter(|_| !self.pending.is_empty()) else {
            return Ok(());
        };
        let Ok(reported) = self.runtime.block_on(node.report(self.pending.clone())) else {
            return Ok(());
        };
        self.pending.clear();
        match reported.refused.first() {
            None => Ok(()),
            Some((_, why)) => anyhow::bail!("{}: a report was refused: {why}", self.site),
        }
    }

    fn report_running(&self, cluster: &Cluster, now: WallTime) {
        let running = cluster.running().map(|started: &Started| RunningJob {
            record: self.record(&started.job, [started.start, now.max(started.start)], true),
            expected_end: started.start.after(started.job.requested),
        });
        let node = self.node.borrow().clone();
        if let Some(node) = node {
            // Without an answer the node has gone: the next list tells its successor all of it.
            let _ = self.runtime.block_on(node.running(running.collect()));
        }
    }

    fn record(&self, job: &Job, ran: [WallTime; 2], running: bool) -> UsageRecord {
        let (JobId(number), origin) = (job.id, self.words[&job.account].clone());
        UsageRecord {
            running,
            ..ended(&self.site, number.to_string(), origin, job.cores, ran)
        }
    }
}

/// Factors in the order of those who are asked for.
fn factors(client: &mut Client, who: &[Who<'_>]) -> Result<Vec<u64>, ClientError> {
    let answer = client.lookup(who)?;
    let factors = answer.factors();
    Ok(factors
        .map(|factor| u64::from(factor.unwrap_or(0)))
        .collect())
}
