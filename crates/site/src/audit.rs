//! What a site tells the members of a VO about jobs that it took back: who, when, why, how much of which
//! account, and of how many jobs. Not of which: no job leaves its site.
//!
//! It is a part of the site's signed head, beside the refunds in its tables of usage. One part holds what
//! was taken back on one day, so a correction changes one part.
//!
//! Invariant: an entry only grows within an incarnation of its site, so what comes back from peers after
//! a loss joins by maximum.

use std::collections::BTreeMap;

use fairmesh_gossip::{PART_BYTES_MAX, PartKey, Replica};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{AccountPath, Incarnation, SiteId, WallTime, cbor, mutant};
use serde::{Deserialize, Serialize};

use crate::kinds::AUDIT;
use crate::refund::Refund;

/// Most pieces of a day: bounds it to some thousand entries. What is more is not told to others.
const PIECES_MAX: u8 = 4;

/// Jobs of one account that were taken back on one day by one person for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The account whose jobs were taken back.
    #[serde(rename = "p")]
    pub path: AccountPath,
    /// The user of the site who did it, by name.
    #[serde(rename = "b")]
    pub by: String,
    /// The user's reason, as it was given.
    #[serde(rename = "w")]
    pub why: String,
    /// The incarnation of the site that did it.
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    /// When the last of them was taken back, by the site's clock.
    #[serde(rename = "a")]
    pub at: WallTime,
    /// Number of jobs that were taken back.
    #[serde(rename = "j")]
    pub jobs: u64,
    /// What was taken back, core-milliseconds.
    #[serde(rename = "c")]
    pub charge: u64,
}

/// What an entry is known by: its day, account, person, reason and incarnation.
type Key = (u32, AccountPath, String, String, Incarnation);

/// What a site has taken back in one VO.
#[derive(Debug, Default)]
pub(crate) struct Audit(BTreeMap<Key, AuditEntry>);

impl Audit {
    pub(crate) fn add(&mut self, refund: &Refund) {
        let entry = AuditEntry {
            path: refund.path.clone(),
            by: refund.by.clone(),
            why: refund.why.clone(),
            incarnation: refund.incarnation,
            at: refund.at,
            jobs: 1,
            charge: refund.charge,
        };
        self.add_entry(entry);
    }

    pub(crate) fn add_entry(&mut self, entry: AuditEntry) {
        self.put(entry, u64::saturating_add);
    }

    /// Joins in what this site had told.
    pub(crate) fn join(&mut self, entries: Vec<AuditEntry>) {
        for entry in entries {
            self.put(entry, mutant!(AuditAddedUp, u64::max, u64::saturating_add));
        }
    }

    fn put(&mut self, entry: AuditEntry, combine: impl Fn(u64, u64) -> u64) {
        let (jobs, charge, at) = (entry.jobs, entry.charge, entry.at);
        let known = self.0.entry(key_of(&entry));
        let known = known.and_modify(|known| {
            known.jobs = mutant!(AuditJobsStay, combine(known.jobs, jobs), known.jobs);
            known.charge = combine(known.charge, charge);
            known.at = known.at.max(at);
        });
        known.or_insert(entry);
    }

    /// Lets go of the days that ended by `horizon`: what they took back counts no more.
    pub(crate) fn forget(&mut self, horizon: WallTime) {
        let first = day_of(horizon);
        self.0.retain(|(day, ..), _| *day >= first);
    }

    pub(crate) fn parts(&self) -> BTreeMap<PartKey, Vec<u8>> {
        let mut days: BTreeMap<u32, Vec<&AuditEntry>> = BTreeMap::new();
        for ((day, ..), entry) in &self.0 {
            days.entry(*day).or_default().push(entry);
        }
        let parts = days.into_iter().flat_map(|(day, entries)| {
            let pieces = (0..PIECES_MAX).zip(cut(&entries));
            pieces.map(move |(piece, bytes)| (part_key(day, piece), bytes))
        });
        parts.collect()
    }
}

/// The entries as pieces that are no larger than a part.
fn cut(entries: &[&AuditEntry]) -> Vec<Vec<u8>> {
    let bytes = cbor::to_vec(&entries);
    if bytes.len() <= PART_BYTES_MAX || entries.len() < 2 {
        return vec![bytes];
    }
    let (first, second) = entries.split_at(entries.len() / 2);
    [cut(first), cut(second)].concat()
}

fn part_key(day: u32, piece: u8) -> PartKey {
    let name: Vec<u8> = day.to_be_bytes().into_iter().chain([piece]).collect();
    PartKey::new(AUDIT, &name)
}

fn key_of(entry: &AuditEntry) -> Key {
    let AuditEntry { path, by, why, .. } = entry.clone();
    (day_of(entry.at), path, by, why, entry.incarnation)
}

fn day_of(at: WallTime) -> u32 {
    u32::try_from(at.0 / DAY_MS).unwrap_or(u32::MAX)
}

/// The entries of a part; none where it is no such part.
pub(crate) fn entries(bytes: &[u8]) -> Option<Vec<AuditEntry>> {
    cbor::from_slice(bytes, PART_BYTES_MAX).ok()
}

/// How many entries a part has.
///
/// # Errors
/// That it is none.
pub(crate) fn check(key: &[u8], bytes: &[u8]) -> Result<u32, String> {
    let [_, _, _, _, piece] = key else {
        return Err("bad name of an audit".to_owned());
    };
    let entries = entries(bytes).filter(|_| *piece < PIECES_MAX);
    let entries = entries.ok_or("a bad audit")?;
    u32::try_from(entries.len()).map_err(|error| error.to_string())
}

/// What a member has taken back, by its newest head.
pub(crate) fn told(replica: &Replica, site: SiteId) -> Vec<AuditEntry> {
    let parts = replica.newest_parts(site, AUDIT);
    parts
        .filter_map(|(_, bytes)| entries(bytes))
        .flatten()
        .collect()
}
