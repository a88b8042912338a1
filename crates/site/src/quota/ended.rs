//! Jobs that a report says have ended, on their way from the counters to the quotas.
//!
//! Invariant: such a job is charged to its quota in the same change as to its account.

use fairmesh_model::{JobKey, UsageRecord};

use crate::identity::Account;

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
