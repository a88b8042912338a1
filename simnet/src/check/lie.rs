//! Lies that a site's owner tells his own node.
//!
//! Invariant: the ledger knows nothing of what a liar reports: what honest sites must count of it is
//! bounded by its capacity, and by nothing else. Deliberately not here: what is forged on the way
//! (`crate::liar`).

use std::sync::Arc;

use fairmesh_model::{Factor, Millis, PriceList, RunningJob, UsageRecord, WallTime};

use super::Run;
use crate::liar::{How, LIAR_CORES, Told, named};
use crate::swarm::VoOptions;
use crate::vo::job;

/// How often a liar lies in a run.
pub(super) const LIES: u64 = 24;

/// Records of countless accounts that are reported at a time.
const ACCOUNTS: usize = 100;

/// Jobs that each take the whole of a site, at one time.
const JOBS: usize = 16;

/// Queues of an endless price list, and of one that no owner may declare.
const QUEUES: [usize; 2] = [200, 1_025];

/// Fifty years in milliseconds: beyond every tolerance and history.
const YEARS_MS: i64 = 50 * 365 * 86_400_000;

impl Run {
    /// Whether a site lies.
    pub(super) fn is_liar(&self, node: usize) -> bool {
        self.liars.contains(&node)
    }

    /// A liar has its turn.
    pub(super) fn lie(&mut self, node: usize) {
        if let Some(How::Told(told)) = self.how_lies(node) {
            self.tell_lie(node, told);
        }
    }

    fn how_lies(&self, node: usize) -> Option<How> {
        let of_node = self.options.liars.iter().find(|liar| liar.site == node);
        of_node.and_then(|liar| named(&liar.lie)).map(|lie| lie.how)
    }

    fn tell_lie(&mut self, node: usize, told: Told) {
        let now = self.world.true_wall();
        let day = Millis(86_400_000);
        match told {
            Told::OverReport => {
                self.report_lies(
                    node,
                    JOBS,
                    LIAR_CORES,
                    (now.before(day.times(20)), now),
                    "u0",
                );
            }
            Told::OverRunning => {
                let ran = (now.before(day), now);
                let listed = self.false_records(node, JOBS, LIAR_CORES, ran, "u0");
                let years = Millis(YEARS_MS.unsigned_abs());
                let run = |mut record: UsageRecord| {
                    record.running = true;
                    let expected_end = now.after(years);
                    RunningJob {
                        record,
                        expected_end,
                    }
                };
                let _ = self
                    .world
                    .running(node, listed.into_iter().map(run).collect());
            }
            Told::OldJobs => {
                self.report_lies(node, 4, 64, (WallTime(0), WallTime(3_600_000)), "u0");
            }
            Told::ManyAccounts => {
                self.report_lies(node, ACCOUNTS, 1, (now.before(Millis(60_000)), now), "any");
            }
            Told::Relabelled => {
                self.report_lies(node, 4, 64, (now.before(Millis(3_600_000)), now), "u1");
            }
            Told::Restarts => self.world.restart(node).unwrap_or(()),
            Told::ClockAhead => self.set_clock(node, YEARS_MS),
            Told::ClockBehind => self.set_clock(node, -YEARS_MS),
            Told::Prices => self.say_prices(node),
        }
    }

    /// Liars whose clocks are wrong do not let them be set right.
    pub(super) fn keep_lying_clocks(&mut self) {
        for node in self.liars.clone() {
            if let Some(How::Told(told @ (Told::ClockAhead | Told::ClockBehind))) =
                self.how_lies(node)
            {
                self.tell_lie(node, told);
            }
        }
    }

    fn set_clock(&mut self, node: usize, by_ms: i64) {
        self.world.clock_correct(node);
        self.world.clock_jump(node, by_ms);
        self.facts.borrow_mut().lied.insert(node);
    }

    fn say_prices(&mut self, node: usize) {
        self.false_jobs += 1;
        let mut config = self.world.node(node).config.clone();
        let count = QUEUES[usize::from(self.false_jobs.is_multiple_of(2))];
        let queue = |index: usize| {
            let name = format!("queue-{}-{index}", self.false_jobs);
            (name, Factor::from_millionths(1_500_000))
        };
        config.charging.prices = Arc::new(PriceList {
            queues: (0..count).map(queue).collect(),
            ..PriceList::clone(&config.charging.prices)
        });
        self.world.reconfigure(node, config);
    }

    fn report_lies(
        &mut self,
        node: usize,
        count: usize,
        cores: u32,
        ran: (WallTime, WallTime),
        user: &str,
    ) {
        let records = self.false_records(node, count, cores, ran, user);
        let reported = self.world.report(node, records);
        if reported.is_some_and(|reported| reported.counted > reported.late) {
            self.facts.borrow_mut().lied.insert(node);
        }
    }

    fn false_records(
        &mut self,
        node: usize,
        count: usize,
        cores: u32,
        ran: (WallTime, WallTime),
        user: &str,
    ) -> Vec<UsageRecord> {
        let mounted = self.mounted(node);
        let Some(vo) = mounted.first() else {
            return Vec::new();
        };
        let account = VoOptions::name(*vo);
        let declared = &self.options.vos[*vo];
        let (gpus, mem_gib) = (declared.gpus.unwrap_or(0), declared.mem_gib.unwrap_or(0));
        let record = |_| {
            self.false_jobs += 1;
            let name = format!("lie {}", self.false_jobs);
            let user = match user {
                "any" => format!("x{}", self.false_jobs),
                user => user.to_owned(),
            };
            UsageRecord {
                gpus,
                mem_mib: u64::from(mem_gib) * 1_024,
                ..job(name, &account, ("g0", &user), ran, cores)
            }
        };
        (0..count).map(record).collect()
    }
}
