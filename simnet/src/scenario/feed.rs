//! The load's feeds: jobs end at sites and are reported until they are acknowledged.
//!
//! Invariant: a job is reported again exactly until it was acknowledged, as real feeds do, and what
//! was acknowledged is counted by hand. Each feed draws from a stream of its own, so that one more
//! load shifts no other.
//!
//! Deliberately not here: schedulers; the jobs of a scenario have run already.

use std::collections::BTreeMap;

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Millis, MonoTime, UsageRecord, VoId};

use super::Load;
use super::condition::Acknowledged;
use crate::vo::{Vo, job};
use crate::world::{Jobs, World};

/// Most records in one report, as the node's control socket takes them.
const REPORT_RECORDS_MAX: usize = 1_000;

/// All feeds of a scenario.
#[derive(Debug)]
pub(super) struct Feeds {
    feeds: Vec<Feed>,
    /// Jobs that no feed of the load has: those of `report` steps, by node.
    asked: BTreeMap<usize, Vec<UsageRecord>>,
    accounts: BTreeMap<String, Vec<(String, String)>>,
    ids: BTreeMap<String, VoId>,
    held: Vec<bool>,
    held_all: bool,
    jobs: u64,
    /// What was acknowledged so far.
    pub(super) acknowledged: Acknowledged,
    /// How many records were.
    pub(super) records: u64,
}

#[derive(Debug)]
struct Feed {
    node: usize,
    load: Load,
    next: MonoTime,
    random: Stream,
    waiting: Vec<UsageRecord>,
}

impl Feeds {
    pub(super) fn new(seed: Seed, sites: usize, loads: &[Load], vos: &[Vo]) -> Self {
        let mut feeds = Vec::new();
        for (number, load) in loads.iter().enumerate() {
            for node in &load.sites {
                let mut random = seed.stream(&format!("scenario load {number} site {node}"));
                let first = random.between(0, load.every.0);
                feeds.push(Feed {
                    node: *node,
                    load: load.clone(),
                    next: MonoTime(load.from.0 + first),
                    random,
                    waiting: Vec::new(),
                });
            }
        }
        let mut accounts: BTreeMap<_, _> = vos.iter().map(leaves_of).collect();
        let local = ["a", "b"].map(|user| ("staff".to_owned(), user.to_owned()));
        accounts.insert("local".to_owned(), local.to_vec());
        Self {
            feeds,
            asked: BTreeMap::new(),
            accounts,
            ids: vos.iter().map(|vo| (vo.spec.name.clone(), vo.id)).collect(),
            held: vec![false; sites],
            held_all: false,
            jobs: 0,
            acknowledged: Acknowledged::new(),
            records: 0,
        }
    }

    /// When the next job ends.
    pub(super) fn next(&self) -> Option<MonoTime> {
        let open = self.feeds.iter().filter(|feed| feed.is_open());
        open.map(|feed| feed.next).min()
    }

    /// Jobs end that are due, and all that waits at their sites is reported.
    pub(super) fn advance(&mut self, world: &mut World) {
        for index in 0..self.feeds.len() {
            let due = self.feeds[index].next <= world.now();
            if due && self.feeds[index].is_open() {
                self.end_job(index, world);
                self.report(index, world);
            }
        }
    }

    /// Everybody reports what waits, as far as feeds are not held.
    pub(super) fn flush(&mut self, world: &mut World) {
        (0..self.feeds.len()).for_each(|index| self.report(index, world));
        for (node, mut waiting) in std::mem::take(&mut self.asked) {
            self.hand_in(node, &mut waiting, world);
            if !waiting.is_empty() {
                self.asked.insert(node, waiting);
            }
        }
    }

    /// Holds feeds of some nodes, or of all if none is named.
    pub(super) fn hold(&mut self, nodes: &[usize], held: bool) {
        if nodes.is_empty() {
            self.held.fill(held);
        }
        nodes.iter().for_each(|node| self.held[*node] = held);
    }

    pub(super) fn hold_all(&mut self, held: bool) {
        self.held_all = held;
    }

    /// Jobs that a step asks for.
    pub(super) fn ask_for(&mut self, node: usize, jobs: &Jobs, world: &mut World) {
        let records = jobs.records(self.jobs + 1, world.true_wall());
        self.jobs += records.len() as u64;
        self.asked.entry(node).or_default().extend(records);
        self.flush(world);
    }

    fn end_job(&mut self, index: usize, world: &World) {
        self.jobs += 1;
        let name = format!("load {}", self.jobs);
        let feed = &mut self.feeds[index];
        let leaves = &self.accounts[&feed.load.account];
        let (group, user) = &leaves[feed.random.index(leaves.len())];
        let run = feed
            .random
            .between(feed.load.shortest.0, feed.load.longest.0);
        let (least, most) = feed.load.cores;
        let cores = feed.random.between(u64::from(least), u64::from(most));
        let end = match feed.load.by_own_clock {
            true => world.now_at(feed.node).wall,
            false => world.true_wall(),
        };
        let who = (group.as_str(), user.as_str());
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        let record = job(
            name,
            &feed.load.account,
            who,
            (end.before(Millis(run)), end),
            cores,
        );
        feed.waiting.push(record);
        // Half to one and a half times the mean.
        let gap = feed.load.every.0 / 2 + feed.random.between(0, feed.load.every.0);
        feed.next = feed.next.after(Millis(gap.max(1)));
    }

    fn report(&mut self, index: usize, world: &mut World) {
        let node = self.feeds[index].node;
        let mut waiting = std::mem::take(&mut self.feeds[index].waiting);
        self.hand_in(node, &mut waiting, world);
        self.feeds[index].waiting = waiting;
    }

    fn hand_in(&mut self, node: usize, waiting: &mut Vec<UsageRecord>, world: &mut World) {
        while !waiting.is_empty() && !self.held_all && !self.held[node] {
            let rest = waiting.split_off(waiting.len().min(REPORT_RECORDS_MAX));
            let records = std::mem::replace(waiting, rest);
            let Some(reported) = world.report(node, records.clone()) else {
                waiting.splice(0..0, records);
                return;
            };
            let refused: Vec<usize> = reported.refused.iter().map(|(at, _)| *at).collect();
            let mut left = Vec::new();
            for (at, record) in records.into_iter().enumerate() {
                if refused.contains(&at) {
                    left.push(record);
                } else {
                    self.count(&record);
                }
            }
            if !left.is_empty() {
                waiting.splice(0..0, left);
                return;
            }
        }
    }

    fn count(&mut self, record: &UsageRecord) {
        self.records += 1;
        let account = record.origin.account.as_ref();
        if let Some(vo) = account.and_then(|account| self.ids.get(account)) {
            let charge = u64::from(record.cores) * record.end.since(record.start).0;
            *self.acknowledged.entry(*vo).or_default() += charge;
        }
    }
}

impl Feed {
    fn is_open(&self) -> bool {
        self.load.until.is_none_or(|until| self.next.0 <= until.0)
    }
}

fn leaves_of(vo: &Vo) -> (String, Vec<(String, String)>) {
    let paths = vo.spec.shares.iter();
    let leaf = |(path, _): &(String, _)| {
        let (group, user) = path.trim_start_matches('/').split_once('/')?;
        Some((group.to_owned(), user.to_owned()))
    };
    (vo.spec.name.clone(), paths.filter_map(leaf).collect())
}
