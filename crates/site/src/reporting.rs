//! What is gathered while records are reported: one change of the store, and the answer after it.

use std::collections::BTreeMap;

use fairmesh_model::{JobKey, UsageRecord};

use crate::charge::Rules;
use crate::event::Reported;
use crate::identity::Account;
use crate::instalments::Refunds;
use crate::store::{JobMark, Write};

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

/// What is known of the job of a record.
pub(crate) struct KnownJob {
    pub(crate) key: Vec<u8>,
    pub(crate) mark: Option<JobMark>,
    /// Whether that is all that was charged of it: no mark was lost.
    pub(crate) is_known: bool,
    /// Whether it was taken back, and counts again.
    pub(crate) is_again: bool,
}

/// What is gathered while a report is read: one change of the store, and the answer behind it.
#[derive(Debug, Default)]
pub(crate) struct Reporting {
    pub(crate) writes: Vec<Write>,
    pub(crate) marks: BTreeMap<Vec<u8>, JobMark>,
    pub(crate) reported: Reported,
    /// Jobs that have ended, where quotas are charged for them.
    pub(crate) ended: Vec<Ended>,
    /// What instalments charged beyond the final records of their jobs: of whom, by which rules, how much in which
    /// span.
    pub(crate) refunds: Vec<(Account, Rules, Refunds)>,
}
