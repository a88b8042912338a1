//! The jobs of a site: what runs, what was charged and taken back, and which origins map to no account.

use std::collections::BTreeMap;

use fairmesh_model::window::DAY_MS;
use fairmesh_model::{JobKey, Millis, Origin, UsageRecord, WallTime};

use crate::advert::sources::Sources;
use crate::instalments::Instalments;
use crate::refund::{Refund, Relocation};
use crate::running::Running;
use crate::store::{JobMark, Table, Write, job_key};

/// Time after the end of the history for which the charges of a running job are kept without a report: a job without
/// a final record would otherwise be kept for ever.
const INSTALMENTS_KEPT: Millis = Millis(400 * DAY_MS);

/// Time for which corrections are kept for the audit: as long as the record log keeps jobs, so that a year can be
/// compared with the one before.
const AUDIT_KEPT: Millis = Millis(400 * DAY_MS);

/// Most unmapped origins that are listed one by one: bounds what a misconfigured feed can make the site keep. Further
/// ones are counted, not listed.
const UNMAPPED_MAX: usize = 10_000;

/// The usage of an origin that maps to no account: number of records, core-milliseconds, end of the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unmapped {
    pub(crate) records: u64,
    pub(crate) charge: u64,
    pub(crate) last: WallTime,
}

/// All that a site remembers of jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// The running jobs, with the usage still expected from them.
    pub(crate) running: Running,
    /// The scheduler's last reports of running and waiting jobs.
    pub(crate) sources: Sources,
    pub(crate) unmapped: BTreeMap<Origin, Unmapped>,
    /// The instalments that running jobs were charged, by the keys of their marks.
    pub(crate) instalments: BTreeMap<Vec<u8>, Instalments>,
    /// Jobs that were taken back, by the keys of their marks.
    pub(crate) refunds: BTreeMap<Vec<u8>, Refund>,
    /// Usage that moved to other accounts.
    pub(crate) relocations: BTreeMap<Vec<u8>, Relocation>,
    /// How often since the start the mark of a job that has ended changed, or the rules by which jobs are charged.
    pub(crate) marks_moved: u64,
}

impl Jobs {
    /// The rows of the instalments of all running jobs: no peer has them, so a new journal begins with them.
    pub(crate) fn instalment_rows(&self) -> impl Iterator<Item = Write> + '_ {
        let rows = self.instalments.iter();
        rows.map(|(key, charged)| Write::set(Table::Instalments, key.clone(), charged.to_bytes()))
    }

    /// Notes what a record of a job was charged for. `mark` is the charge before; `is_known` is false if marks may be
    /// lost. Then, and when the job ends, nothing is kept, because the sum of the instalments would be wrong. Returns
    /// the row to store.
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

    /// Forgets the instalments of jobs without reports for long. Returns the rows to delete.
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

    /// The refunds of a job, in order.
    pub(crate) fn refunds_of(&self, job: &JobKey) -> impl Iterator<Item = &Refund> {
        let key = job_key(job);
        let from = self.refunds.range(key.clone()..);
        from.take_while(move |(refund_key, _)| refund_key.starts_with(&key))
            .map(|(_, refund)| refund)
    }

    /// Forgets old corrections, but none of usage that still counts: without its entry nobody could explain the
    /// refund. Returns the rows to delete.
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

    /// Whether an unmapped origin is listed, or there is room for it.
    pub(crate) fn lists_unmapped(&self, origin: &Origin) -> bool {
        self.unmapped.len() < UNMAPPED_MAX || self.unmapped.contains_key(origin)
    }
}
