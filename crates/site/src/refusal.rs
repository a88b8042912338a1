//! Which records a report would refuse for good, before anything of them is logged or counted.
//!
//! Invariant: nothing changes; a record is named here exactly if [`Site::handle`] would refuse it at the same moment
//! and no charter or clock that is still awaited would change that. Deliberately not here: jobs that are counted
//! already, which only their marks show.

use std::collections::BTreeMap;

use fairmesh_model::{Now, UsageRecord};

use crate::site::Site;
use crate::terms::Payers;

impl Site {
    /// The reasons for which records are refused for good, by their positions.
    pub fn refusals(&self, now: Now, records: &[UsageRecord]) -> BTreeMap<usize, String> {
        // What a wrong clock refuses passes.
        if self.cx.clock.refuses_all().is_some() {
            return BTreeMap::new();
        }
        let mut payers = Payers::new();
        let refusal = |(index, record): (usize, _)| {
            let payer = self.terms().payer_of(record, now.wall, &mut payers);
            let (vo, charging) = (payer.account.vo, &self.cx.config.charging);
            let charged = self
                .terms()
                .check(record)
                .and_then(|()| self.terms().check_capacity(vo, record))
                .and_then(|()| {
                    self.terms()
                        .charge_of(record, None, (vo, &payer.rules), charging)
                });
            let why = charged.err()?;
            (!self.terms().passes(vo, record)).then_some((index, why))
        };
        records.iter().enumerate().filter_map(refusal).collect()
    }
}
