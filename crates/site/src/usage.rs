//! Counting own usage: cells grow or move, their rows are persisted, and the share tree follows.
//!
//! Invariant: whatever changes in the counters changes in the tree within the same call.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Counters, Span, VoId, WindowLength, mutant, mutated};

use crate::charge::Rules;
use crate::identity::Account;
use crate::moved::moved;
use crate::own::Counted;
use crate::parts::{Cx, Own, Shares, Vos};
use crate::published::net;
use crate::quota::rights::RightsHandler;
use crate::store::Write;

/// What is added to a span, by account.
pub(crate) type Added<'a> = BTreeMap<&'a Account, Counters>;

/// Changes own usage, and what follows from it.
pub(crate) struct UsageHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
}

impl<'a> UsageHandler<'a> {
    pub(crate) fn new(
        cx: &'a mut Cx,
        own: &'a mut Own,
        vos: &'a mut Vos,
        shares: &'a mut Shares,
    ) -> Self {
        Self {
            cx,
            own,
            vos,
            shares,
        }
    }

    pub(crate) fn rights(&mut self) -> RightsHandler<'_> {
        RightsHandler::new(self.cx, self.own, self.vos)
    }

    fn window(&self, vo: Option<VoId>) -> WindowLength {
        self.vos.window(&self.cx.config, vo)
    }

    /// Changes own usage of a VO, or of the site's own accounts, keeps that, and lets the share tree
    /// follow. Says whether anything has changed.
    pub(crate) fn change_own(
        &mut self,
        vo: Option<VoId>,
        change: impl FnOnce(&mut Own) -> Counted,
    ) -> bool {
        let (bounds, window) = (self.vos.bounds(vo), self.window(vo));
        let counted = change(self.own);
        let spans = counted.spans();
        let before = counted.sums_before(bounds);
        let after = self.own.sums_in(vo, &spans, bounds);
        if !mutated!(RecoveredUncounted) {
            self.shares
                .move_own(vo, &moved(net(&before), net(&after)), window);
        }
        self.cx.persist(counted.writes);
        !spans.is_empty()
    }

    /// Where usage of a span is counted. A day that is to be counted as a whole takes in first what is
    /// left of its windows.
    pub(crate) fn place(&mut self, vo: Option<VoId>, span: Span) -> Span {
        let window = self.window(vo);
        if matches!(span, Span::Day(_)) && !self.own.has(vo, span) {
            self.change_own(vo, |own| own.merge_days(vo, window, |day| day == span));
        }
        self.own.place(vo, span, window)
    }

    /// Adds to the cells of accounts in one span, and lets the share tree follow. Returns the rows to keep.
    pub(crate) fn count_in(
        &mut self,
        vo: Option<VoId>,
        place: Span,
        added: &Added<'_>,
    ) -> Vec<Write> {
        let (window, bounds) = (self.window(vo), self.vos.bounds(vo));
        let mut writes = Vec::with_capacity(added.len());
        let mut others = Added::new();
        for (account, counters) in added {
            if self.own.just_adds(account, place, *counters, bounds) {
                writes.extend(self.own.add(account, place, *counters));
                self.shares
                    .count_own(account, place, counters.charge, window);
            } else {
                others.insert(account, *counters);
            }
        }
        if others.is_empty() {
            return writes;
        }
        // Beyond the capacity, or with what is taken back, what counts of others changes, too; not where
        // nothing bounds it. All of a span are summed once for all that is added to it.
        let sums = |own: &Own| match bounds {
            Some(_) => own.sums_in(vo, &BTreeSet::from([place]), bounds),
            None => {
                let cell = |account: &&Account| {
                    let key = (place, account.path.clone());
                    (key, own.counted_in(account, place))
                };
                others.keys().map(cell).collect()
            }
        };
        let before = sums(self.own);
        for (account, counters) in &others {
            writes.extend(self.own.add(account, place, *counters));
        }
        let after = sums(self.own);
        self.shares
            .move_own(vo, &moved(net(&before), net(&after)), window);
        writes
    }

    /// Refunds what counts for an account in these spans. Returns how much that is.
    pub(crate) fn refund_parts(
        &mut self,
        account: &Account,
        parts: Vec<(Span, u64)>,
        rules: &Rules,
        writes: &mut Vec<Write>,
    ) -> u64 {
        let window = rules.window;
        let (mut refunded, mut missing) = (0, 0);
        let mut places = Vec::new();
        for (span, charge) in parts {
            if span.end(window) <= rules.horizon {
                continue;
            }
            let place = self.place(account.vo, span);
            let refunds = self.refund_in(account, place, charge, writes);
            refunded += refunds;
            missing += charge - refunds;
            places.push(place);
        }
        // Rules that come to the same may divide it otherwise, by a unit. What was counted while the clock was wrong
        // lies in the windows of that time.
        let counts = |place: &Span| missing > 0 && place.end(window) > rules.horizon;
        places.extend(self.own.spans(account.vo).filter(counts));
        for place in places {
            let refunds = self.refund_in(account, place, missing, writes);
            refunded += refunds;
            missing -= refunds;
        }
        refunded
    }

    /// Takes back up to `charge` of what counts for an account in a span. Returns how much that is.
    fn refund_in(
        &mut self,
        account: &Account,
        place: Span,
        charge: u64,
        writes: &mut Vec<Write>,
    ) -> u64 {
        let refunds = charge.min(self.own.counted_in(account, place).net());
        let refunds = mutant!(RefundsHalved, refunds, refunds / 2);
        if refunds > 0 {
            let amount = Counters {
                refunds,
                ..Counters::default()
            };
            let added = BTreeMap::from([(account, amount)]);
            writes.extend(self.count_in(account.vo, place, &added));
        }
        refunds
    }
}
