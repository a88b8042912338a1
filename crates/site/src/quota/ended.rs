//! Jobs that a report says have ended, on their way from the counters to the quotas.
//!
//! Invariant: such a job is charged to its quota in the same change as to its account.

use fairmesh_model::{CoreMillis, JobKey, Now, UsageRecord, VoId, mutant, mutated};

use super::calls::cost;
use crate::identity::Account;
use crate::report::Reporting;
use crate::site::Site;

/// A job that a report says has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) account: Account,
    pub(crate) job: JobKey,
    /// Whether it was charged before, and taken back.
    pub(crate) is_again: bool,
    /// The run as which it goes on, where it was resized.
    pub(crate) next: Option<JobKey>,
    pub(crate) charge: u64,
}

impl Ended {
    /// The job of a record, which its account is charged so much for.
    pub(crate) fn new(account: &Account, record: &UsageRecord, charge: u64) -> Self {
        Self {
            account: account.clone(),
            job: record.key.clone(),
            is_again: false,
            next: record.placement.next_instance.map(|instance| JobKey {
                instance,
                ..record.key.clone()
            }),
            charge,
        }
    }
}

impl Site {
    /// Whether a job of a VO is charged to quotas. One that holds is, though its names mean another account by now.
    pub(crate) fn is_of_quotas(&self, vo: Option<VoId>, job: &JobKey) -> bool {
        self.has_quota(vo) || self.has_hold(job)
    }

    /// Charges the quotas of jobs that a report says have ended, in the same change of the store.
    pub(crate) fn commit_ended(&mut self, now: Now, report: &mut Reporting) {
        for ended in std::mem::take(&mut report.ended) {
            if ended.is_again {
                self.forget_charge(&ended.job, report);
            }
            let held = self.quota_of_hold(&ended.job).map(|(vo, _)| vo);
            let vo = held.or(ended.account.vo);
            let is_off = |vo: &VoId| {
                self.cx
                    .config
                    .quotas
                    .get(vo)
                    .is_some_and(|owner| owner.is_off && !mutated!(OffIsCharged))
            };
            let is_charged = |vo: &VoId| held.is_some() || !is_off(vo);
            let is_charged = |vo: &VoId| is_charged(vo) && !mutated!(EndedUncommitted);
            let Some(vo) = vo.filter(is_charged) else {
                continue;
            };
            let charge = CoreMillis(ended.charge);
            if let (Some(next), Some(held)) = (&ended.next, self.vos.get_mut(&vo)) {
                let ledger = &mut held.quota.ledger;
                let cost = cost(ledger.mark(&ended.job), charge);
                ledger.hand_on(&ended.job, next, cost);
            }
            self.commit(now, vo, &ended.job, charge, &ended.account.path);
            let writes = self.quota_writes(vo);
            let writes = mutant!(CommitUnwritten, writes, Vec::new());
            report.writes.extend(writes);
        }
    }

    /// A job that was taken back is charged as if it had never been: perhaps to another account.
    fn forget_charge(&mut self, job: &JobKey, report: &mut Reporting) {
        if let Some((vo, quota)) = self.quota_of_hold(job)
            && quota.ledger.forget_charge(job)
        {
            report.writes.extend(self.quota_writes(vo));
        }
    }
}
