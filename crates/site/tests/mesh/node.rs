//! One site with what a driver gives it: a store, and a record of all that left it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairmesh_model::{Incarnation, Now, VoId};
use fairmesh_site::{
    Done, JobMark, Notice, Reply, Row, Site, SiteConfig, Table, Verdict, Write, job_key,
};

/// Rows by table and key.
pub(crate) type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// A site and its surroundings.
pub(crate) struct Node {
    index: usize,
    pub(crate) config: SiteConfig,
    pub(crate) site: Site,
    pub(crate) rows: Rows,
    pub(crate) up: bool,
    /// By how much its wall clock is ahead.
    pub(crate) ahead_ms: u64,
    /// Effects that are still carried out before it crashes; the rest is lost.
    pub(crate) crash_after: Option<usize>,
    pub(crate) subscribed: BTreeSet<VoId>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) replies: Vec<Reply>,
    /// Everything that left the site for others.
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) ticked_at: u64,
    /// What it handed out, and when that is done.
    pub(crate) works: VecDeque<(u64, Done)>,
    /// How often a tree has come into force.
    pub(crate) views: usize,
    /// Marks of jobs that ended before this may be deleted.
    pub(crate) forget_before: fairmesh_model::WallTime,
}

impl Node {
    pub(crate) fn new(index: usize, config: SiteConfig, incarnation: u64, now: Now) -> Self {
        let key = crate::vo::site_key(index);
        let seed = index as u64;
        let site = Site::new(config.clone(), key, Incarnation(incarnation), seed, now);
        Self {
            index,
            config,
            site,
            rows: Rows::new(),
            up: true,
            ahead_ms: 0,
            crash_after: None,
            subscribed: BTreeSet::new(),
            notices: Vec::new(),
            verdicts: Vec::new(),
            replies: Vec::new(),
            sent: Vec::new(),
            ticked_at: 0,
            works: VecDeque::new(),
            views: 0,
            forget_before: fairmesh_model::WallTime(0),
        }
    }

    /// Starts the process again on whatever the store has now.
    pub(crate) fn restore(&mut self, incarnation: u64, now: Now) {
        let rows: Vec<Row> = self
            .rows
            .iter()
            .map(|((table, key), value)| (*table, key.clone(), value.clone()))
            .collect();
        let mut tell = |what: &str, done, of| assert!(done <= of, "{what}: {done} of {of}");
        self.site = Site::restore_telling(
            self.config.clone(),
            crate::vo::site_key(self.index),
            Incarnation(incarnation),
            incarnation,
            now,
            rows,
            &mut tell,
        );
        self.up = true;
        self.subscribed.clear();
    }

    pub(crate) fn persist(&mut self, writes: Vec<Write>) {
        for Write { table, key, value } in writes {
            match value {
                Some(value) => self.rows.insert((table, key), value),
                None => self.rows.remove(&(table, key)),
            };
        }
    }

    /// The mark that the store holds of a job, as a driver looks it up.
    pub(crate) fn mark(&self, job: &fairmesh_model::JobKey) -> Option<JobMark> {
        JobMark::from_bytes(self.rows.get(&(Table::Jobs, job_key(job)))?)
    }

    pub(crate) fn count_rows(&self, table: Table) -> usize {
        self.rows.keys().filter(|(of, _)| *of == table).count()
    }
}
