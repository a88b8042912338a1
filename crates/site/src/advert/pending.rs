//! Calls that wait for what other sites answer about their free CPUs.

use std::collections::BTreeMap;

use fairmesh_model::{MonoTime, SiteId};

use crate::advert::part::Advert;
use crate::tickets::Ticket;

/// Calls that wait for answers.
#[derive(Debug, Default)]
pub(crate) struct Confirms {
    pub(super) calls: BTreeMap<Ticket, Call>,
    pub(super) last: u64,
}

impl Confirms {
    /// When a call has waited for long enough.
    pub(crate) fn wakeup(&self) -> Option<MonoTime> {
        self.calls.values().map(|call| call.until).min()
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) until: MonoTime,
    pub(super) asked: BTreeMap<u64, SiteId>,
    pub(super) said: Vec<(SiteId, Result<Advert, String>)>,
}
