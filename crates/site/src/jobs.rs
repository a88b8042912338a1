//! The part of a site that concerns jobs: what runs, what was charged and taken back, and whose jobs map nowhere.

use std::collections::BTreeMap;

use fairmesh_model::window::DAY_MS;
use fairmesh_model::{JobKey, Millis, Origin, UsageRecord, WallTime};

use crate::advert::sources::Sources;
use crate::instalments::Instalments;
use crate::refund::{Refund, Relocation};
use crate::running::Running;
use crate::store::{JobMark, Table, Write, job_key};

/// A job that was not heard of for so long behind the history has no final record.
const INSTALMENTS_KEPT: Millis = Millis(400 * DAY_MS);

/// How long it is told who took a job back: as long as the record log tells of jobs, so that a year can
/// be compared with the one before.
const AUDIT_KEPT: Millis = Millis(400 * DAY_MS);

/// Most origins that map nowhere and are listed one by one: bounds what a confused feed can make
/// the site keep. More are counted, but not listed.
const UNMAPPED_MAX: usize = 10_000;

/// What is known of an origin that maps nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unmapped {
    pub(crate) records: u64,
    pub(crate) charge: u64,
    pub(crate) last: WallTime,
}

/// What a site knows of jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// What runs here, as the owner's levels count it.
    pub(crate) running: Running,
    /// What the scheduler reported last of free and waiting CPUs.
    pub(crate) sources: Sources,
    pub(crate) unmapped: BTreeMap<Origin, Unmapped>,
    /// What running jobs are charged for, by the keys of their marks.
    pub(crate) instalments: BTreeMap<Vec<u8>, Instalments>,
    /// Jobs that were taken back, by the keys of their marks.
    pub(crate) refunds: BTreeMap<Vec<u8>, Refund>,
    /// Usage that moved to other accounts.
    pub(crate) relocations: BTreeMap<Vec<u8>, Relocation>,
    /// How often since the start the mark of a job that has ended changed, or the rules by which jobs are charged.
    pub(crate) marks_moved: u64,
}

impl Jobs {
    /// The rows of all jobs that run.
    pub(crate) fn instalment_rows(&self) -> impl Iterator<Item = Write> + '_ {
        let rows = self.instalments.iter();
        rows.map(|(key, charged)| Write::set(Table::Instalments, key.clone(), charged.to_bytes()))
    }

    /// Notes what a record of a job was charged for, which was charged before as `mark` says; `is_known` where nothing
    /// of that was lost. Gives the row to keep.
    pub(crate) fn note_instalment(
        &mut self,
        key: &[u8],
        record: &UsageRecord,
        (mark, is_known): (Option<JobMark>, bool),
    ) -> Option<Write> {
        let known = self.instalments.get(key).copied();
        let now = match (mark, known) {
            _ if !record.running || !is_known => None,
            (None, _) => Some(Instalments::first(record)),
            (Some(mark), Some(known)) => Some(known.and(record, mark.charged_until)),
            (Some(_), None) => None,
        };
        if now == known {
            return None;
        }
        let (table, row) = (Table::Instalments, key.to_vec());
        Some(match now {
            Some(now) => {
                self.instalments.insert(row.clone(), now);
                Write::set(table, row, now.to_bytes())
            }
            None => {
                self.instalments.remove(key);
                Write::delete(table, row)
            }
        })
    }

    /// Forgets jobs of which nothing was heard for long.
    pub(crate) fn forget_instalments(&mut self, horizon: WallTime) -> Vec<Write> {
        let before = horizon.before(INSTALMENTS_KEPT);
        let mut rows = Vec::new();
        self.instalments.retain(|key, charged| {
            let is_kept = charged.since >= before;
            if !is_kept {
                rows.push(Write::delete(Table::Instalments, key.clone()));
            }
            is_kept
        });
        rows
    }

    /// What was taken back of a job, in order.
    pub(crate) fn refunds_of(&self, job: &JobKey) -> impl Iterator<Item = &Refund> {
        let key = job_key(job);
        let from = self.refunds.range(key.clone()..);
        from.take_while(move |(of, _)| of.starts_with(&key))
            .map(|(_, refund)| refund)
    }

    /// Entries that are told no more go. Who took back what still counts is told as long as that counts.
    pub(crate) fn forget_refunds(&mut self, now: WallTime, horizon: WallTime) -> Vec<Write> {
        let before = now.before(AUDIT_KEPT).min(horizon);
        let mut rows = Vec::new();
        let mut keep = |key: &Vec<u8>, at: WallTime| {
            let is_kept = at >= before;
            if !is_kept {
                rows.push(Write::delete(Table::Audit, key.clone()));
            }
            is_kept
        };
        self.refunds.retain(|key, refund| keep(key, refund.at));
        self.relocations.retain(|key, moved| keep(key, moved.at));
        rows
    }

    /// Whether an origin that maps nowhere is listed, or may be.
    pub(crate) fn lists_unmapped(&self, origin: &Origin) -> bool {
        self.unmapped.len() < UNMAPPED_MAX || self.unmapped.contains_key(origin)
    }
}
