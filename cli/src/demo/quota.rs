//! The part of a demonstration that shows quotas: one project with credit for all sites together, whose users
//! submit mostly at one of them.
//!
//! A third of the credit can be spent in each third of the time. Whatever a site lacks it asks others for; a cut
//! mesh goes on with what each side has; what nobody spends in time perishes. At the end all sites' counters
//! are joined: the sum of what was spent is compared with what was granted.
//!
//! Invariant: jobs run only where their site's node has granted a hold, and are charged by its feed.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use fairmesh_model::{AccountPath, Allocation, CoreMillis, Millis, Signed, UsageRecord};
use fairmesh_node::driver::{Clock as _, NodeHandle};
use fairmesh_quota::slices::{Period, windows};
use fairmesh_quota::{Totals, Verdict};
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaCall, QuotaStats};
use serde::Serialize;

use super::bank::{Bank, BankReport};
use super::grid::{Grid, ended, origin};

/// The project, and the user of that name.
pub(super) const PROJECT: &str = "P-Q";

/// Slices of its credit.
const SLICES: u32 = 3;

/// Of what users ask for in all, what is granted: so that some are refused.
const GRANTED_PERCENT: u64 = 70;

/// Time between two jobs.
const EVERY: Duration = Duration::from_millis(150);

/// Of a hundred jobs those that are submitted at the first site.
const AT_FIRST_PERCENT: u64 = 60;

/// Jobs run for so long, of what they asked for.
const RAN_PERCENT: u64 = 80;

/// What became of the credit, core-milliseconds, and of those who asked for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct QuotaReport {
    pub(super) granted: u64,
    pub(super) spent: u64,
    /// By how much more was spent than granted, slice by slice: 0.
    pub(super) overspent: u64,
    pub(super) perished: u64,
    /// Jobs.
    pub(super) refused: u64,
    /// Jobs whose rights were where they were submitted; all others waited for rights of other sites.
    pub(super) granted_locally: u64,
    pub(super) granted_after_transfer: u64,
    /// Transfers of rights between sites.
    pub(super) transfers: u64,
    /// Jobs that were granted while the bank beside was away.
    pub(super) granted_while_bank_away: u64,
    /// What that bank would have come to.
    pub(super) bank: BankReport,
}

impl QuotaReport {
    /// In a sentence or two.
    pub(super) fn words(&self) -> String {
        let hours = |amount: u64| amount / 3_600_000;
        format!(
            "Quota of {PROJECT}: {} of {} core-hours spent by all sites together, {} perished, overspent by {}. \
             {} jobs were granted at once, {} after rights had come ({} transfers), {} refused.\n\
             While a bank beside it was away {} jobs were granted here. Sites that refuse without their bank would have \
             refused all {} that asked; those that run everything and tell it later would have overspent {} \
             core-hours.",
            hours(self.spent),
            hours(self.granted),
            hours(self.perished),
            self.overspent,
            self.granted_locally,
            self.granted_after_transfer,
            self.transfers,
            self.refused,
            self.granted_while_bank_away,
            self.bank.refused_while_away,
            hours(self.bank.overspent)
        )
    }
}

/// The users of the project.
pub(super) struct Quota {
    path: AccountPath,
    /// Core-milliseconds that a job asks for.
    ask: u64,
    wall: Millis,
    submitted: u64,
    last: Option<Instant>,
    calls: Vec<tokio::task::JoinHandle<Option<Running>>>,
    running: VecDeque<Running>,
    bank: Bank,
    is_away: bool,
    granted_while_away: u64,
}

struct Running {
    node: usize,
    /// Whether the bank was away when it asked.
    while_away: bool,
    record: UsageRecord,
}

impl Quota {
    /// Grants the project credit for `length` of the machine's time, and waits until all sites can spend it.
    pub(super) async fn grant(grid: &Grid, length: Duration) -> anyhow::Result<Self> {
        let start = grid.clock.now().wall;
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let period = Millis(grid.clock.paced(millis));
        let jobs = millis / u64::try_from(EVERY.as_millis()).expect("a moment");
        let wall = Millis((period.0 / 40).max(1_000));
        let ask = wall.0;
        let amount = CoreMillis((jobs * ask / 100 * RAN_PERCENT / 100 * GRANTED_PERCENT).max(1));
        let path = AccountPath::root().child(PROJECT)?;
        let body = Allocation::new(
            grid.vos[0],
            path.clone(),
            start
                ..start
                    .after(period)
                    .after(Millis::from_secs(10 * 365 * 86_400)),
            windows(
                amount,
                Period {
                    from: start,
                    until: start.after(period),
                    slices: SLICES,
                    grace: Millis(0),
                },
            ),
            grid.nodes.iter().map(|node| (node.id, 1)).collect(),
        );
        let bank = Bank::new(body.slices.clone());
        let signed = Signed::sign(body, &[&grid.authority])?;
        let published = grid.nodes[0]
            .handle
            .publish(signed.bytes().to_vec(), "the demonstration")
            .await?;
        published.map_err(|why| anyhow!(why))?;
        let quota = Self {
            path,
            ask,
            wall,
            submitted: 0,
            last: None,
            calls: Vec::new(),
            running: VecDeque::new(),
            bank,
            is_away: false,
            granted_while_away: 0,
        };
        quota.await_rights(grid).await?;
        Ok(quota)
    }

    async fn await_rights(&self, grid: &Grid) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let vo = grid.vos[0];
        for node in &grid.nodes {
            while !node
                .handle
                .ask(move |site, _| {
                    let ledger = site.ledger(vo);
                    ledger.is_some_and(|of| !of.is_frozen() && !of.grants().is_empty())
                })
                .await?
            {
                anyhow::ensure!(Instant::now() < deadline, "rights did not thaw in a minute");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Submits what is due, and reports what has ended.
    pub(super) async fn step(&mut self, grid: &Grid, is_away: bool) -> anyhow::Result<()> {
        self.is_away = is_away;
        self.bank.step(grid.clock.now().wall, is_away);
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            self.submit(grid);
        }
        let (done, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.calls)
            .into_iter()
            .partition(tokio::task::JoinHandle::is_finished);
        self.calls = open;
        for call in done {
            self.begin(call.await?);
        }
        let now = grid.clock.now().wall;
        let (ended, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|job| job.record.end <= now);
        self.running = running;
        self.report(grid, ended).await
    }

    fn begin(&mut self, granted: Option<Running>) {
        let while_away = granted.as_ref().is_some_and(|job| job.while_away);
        self.granted_while_away += u64::from(while_away);
        self.running.extend(granted);
    }

    fn submit(&mut self, grid: &Grid) {
        self.submitted += 1;
        let draw = self.submitted * 37 % 100;
        let others = grid.nodes.len() as u64 - 1;
        let node = match draw < AT_FIRST_PERCENT || others == 0 {
            true => 0,
            false => usize::try_from(1 + self.submitted % others).expect("few"),
        };
        let now = grid.clock.now().wall;
        let (site, job) = (
            &grid.nodes[node].name,
            format!("{PROJECT}-{}", self.submitted),
        );
        let origin = origin(&self.path, &grid.vo_name);
        let record = ended(site, job, origin, 1, [now.before(self.wall), now]);
        let handle = grid.nodes[node].handle.clone();
        let ran = Millis(self.ask / 100 * RAN_PERCENT);
        self.bank.ask(now, self.ask, ran.0, now.after(ran));
        let while_away = self.is_away;
        let clock = std::sync::Arc::clone(&grid.clock);
        self.calls.push(tokio::spawn(async move {
            if !hold(&handle, record.clone()).await {
                return None;
            }
            let start = clock.now().wall;
            Some(Running {
                node,
                while_away,
                record: UsageRecord {
                    start,
                    end: start.after(ran),
                    ..record
                },
            })
        }));
    }

    async fn report(&self, grid: &Grid, ended: VecDeque<Running>) -> anyhow::Result<()> {
        let mut of_nodes: BTreeMap<usize, Vec<UsageRecord>> = BTreeMap::new();
        for job in ended {
            of_nodes.entry(job.node).or_default().push(job.record);
        }
        for (node, records) in of_nodes {
            grid.nodes[node].handle.report(records).await?;
        }
        Ok(())
    }

    /// Ends what still runs, and lets what was asked be answered.
    pub(super) async fn finish(&mut self, grid: &Grid) -> anyhow::Result<()> {
        for call in std::mem::take(&mut self.calls) {
            self.begin(call.await?);
        }
        let now = grid.clock.now().wall;
        let mut ended = std::mem::take(&mut self.running);
        for job in &mut ended {
            job.record.end = job
                .record
                .end
                .min(now.max(job.record.start.after(Millis(1))));
        }
        self.report(grid, ended).await
    }

    /// What became of the credit, by what all nodes hold together at the end.
    pub(super) async fn outcome(&mut self, grid: &Grid) -> anyhow::Result<QuotaReport> {
        let (vo, path) = (grid.vos[0], self.path.clone());
        let of_slices = grid.nodes[0].handle.ask(move |site, now| {
            let ledger = site.ledger(vo)?;
            let slices = ledger.grants().slices_of(&path).into_iter();
            let totals = slices.map(|(id, _)| ledger.slice_totals(id, now.wall));
            Some(totals.collect::<Vec<Totals>>())
        });
        let of_slices = of_slices.await?.context("the node takes no part")?;
        let sum = |of: fn(&Totals) -> u128| -> u64 {
            u64::try_from(of_slices.iter().map(of).sum::<u128>()).unwrap_or(u64::MAX)
        };
        let mut report = QuotaReport {
            granted: sum(|of| of.granted),
            spent: sum(|of| of.used),
            overspent: sum(|of| of.used.saturating_sub(of.granted)),
            perished: sum(|of| of.perished),
            granted_while_bank_away: self.granted_while_away,
            bank: self.bank.outcome(),
            ..QuotaReport::default()
        };
        for node in &grid.nodes {
            let stats: QuotaStats = node.handle.ask(|site, _| site.quota_stats()).await?;
            report.refused += stats.refused;
            report.granted_locally += stats.granted_locally;
            report.granted_after_transfer += stats.granted_after_transfer;
            report.transfers += stats.transfers;
        }
        Ok(report)
    }
}

async fn hold(handle: &NodeHandle, record: UsageRecord) -> bool {
    let call = HoldCall {
        record,
        account: None,
        is_exempt: false,
        may_wait: true,
        importance: Default::default(),
    };
    let answer = handle.quota(QuotaCall::Hold(Box::new(call))).await;
    matches!(answer, Ok(Ok(QuotaAnswer::Held { answer, .. })) if answer.verdict == Verdict::Granted)
}
