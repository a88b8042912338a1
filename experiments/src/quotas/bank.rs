//! One server that keeps all accounts: what quotas without a bank are compared with.
//!
//! A site that cannot reach it either refuses every job, or lets every job run and tells what it cost when the
//! bank is there again: the two ways that Gardfjäll's thesis names (Umeå University, section 3.6.1).
//!
//! Invariant: while all sites reach it, no project is charged beyond its grant.
//! Deliberately not here: slices, overdrafts, prices, several banks.

use std::collections::BTreeMap;

use fairmesh_model::{CoreMillis, JobKey, Millis, WallTime};
use fairmesh_quota::Verdict;

use super::credit::{Ask, Credit, Decided, Spent};
use simnet::queue::Queue;

/// What a site does that cannot reach its bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// No job runs.
    Refuse,
    /// Every job runs, and its charge is told later.
    RunAndCorrect,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    granted: u128,
    used: u128,
    held: u128,
}

/// The bank.
pub struct Bank {
    accounts: Vec<Account>,
    away: Away,
    /// From a question to its answer.
    round_trip: Millis,
    groups: Vec<usize>,
    /// What was held for a job, and of whom; nothing, where it ran unasked.
    held: BTreeMap<JobKey, (usize, u128)>,
    /// Charges that sites keep until the bank can be reached.
    untold: Vec<Vec<(JobKey, CoreMillis)>>,
    answers: Queue<WallTime, Decided>,
    decided: Vec<Decided>,
}

impl Bank {
    /// A bank with these accounts, core-milliseconds each.
    pub fn new(granted: &[u64], sites: usize, round_trip: Millis, away: Away) -> Self {
        let account = |granted: &u64| Account {
            granted: u128::from(*granted),
            ..Account::default()
        };
        Self {
            accounts: granted.iter().map(account).collect(),
            away,
            round_trip,
            groups: vec![0; sites],
            held: BTreeMap::new(),
            untold: vec![Vec::new(); sites],
            answers: Queue::default(),
            decided: Vec::new(),
        }
    }

    fn charge(&mut self, job: &JobKey, charge: CoreMillis) {
        let (project, held) = self.held.remove(job).expect("it was asked about");
        let account = &mut self.accounts[project];
        account.held -= held;
        account.used += u128::from(charge.0);
    }
}

impl Credit for Bank {
    fn next_at(&self) -> Option<WallTime> {
        self.answers.next_at()
    }

    fn advance(&mut self, now: WallTime) {
        while let Some((_, answer)) = self.answers.pop_due(now) {
            self.decided.push(answer);
        }
    }

    fn ask(&mut self, now: WallTime, ask: Ask) {
        let is_there = self.groups[ask.site] == 0;
        let account = &mut self.accounts[ask.project];
        let amount = u128::from(ask.charge.0);
        let has_room = account.used + account.held + amount <= account.granted;
        let (runs, held) = match (is_there, self.away) {
            (true, _) => (has_room, amount),
            (false, Away::Refuse) => (false, 0),
            (false, Away::RunAndCorrect) => (true, 0),
        };
        if runs {
            account.held += held;
            self.held.insert(ask.job.clone(), (ask.project, held));
        }
        let answer = Decided {
            job: ask.job,
            verdict: if runs {
                Verdict::Granted
            } else {
                Verdict::Refused
            },
            has_waited: false,
        };
        self.answers.push(now.after(self.round_trip), answer);
    }

    fn decided(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decided)
    }

    fn ended(&mut self, _now: WallTime, site: usize, job: &JobKey, charge: CoreMillis) {
        match self.groups[site] {
            0 => self.charge(job, charge),
            _ => self.untold[site].push((job.clone(), charge)),
        }
    }

    fn cut(&mut self, _now: WallTime, groups: &[usize]) {
        self.groups = groups.to_vec();
        for (site, group) in groups.iter().enumerate() {
            if *group == 0 {
                for (job, charge) in std::mem::take(&mut self.untold[site]) {
                    self.charge(&job, charge);
                }
            }
        }
    }

    fn spent(&self, _now: WallTime, project: usize) -> Spent {
        let account = self.accounts[project];
        Spent {
            granted: account.granted,
            used: account.used,
            overdraft: 0,
            spendable: account.granted.saturating_sub(account.used + account.held),
        }
    }
}
