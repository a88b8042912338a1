//! Transfers: a site that is about to run out of rights requests some, and a site with more than it needs sends them.
//!
//! A request states how much the requester has taken from the receiver so far. Rights that were sent and not taken
//! are in transit and count as given. So a repeated request, or one that crosses its reply, moves nothing twice,
//! without request numbers that would have to be stored.
//!
//! Invariant: a site sends only what is left of its rights. For jobs that are expected elsewhere it keeps its own target
//! and a floor, and sends no tiny amounts; for a job that lacks rights elsewhere it keeps only what its own jobs need
//! that come first (`claim`).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use fairmesh_model::{AccountPath, CoreMillis, SiteId, WallTime, mutant};
use serde::{Deserialize, Serialize};

use super::Ledger;
use super::claim::Claim;
use crate::grants::SliceId;
use crate::row::{Cell, Row};
use crate::slices::divide;

/// Sites that are asked at a time for one account; others are asked in a later round if these cannot send enough.
const ASKED_MAX: usize = 2;

/// The same for a job that lacks rights now.
const ASKED_FOR_CLAIM_MAX: usize = 64;

/// Percent of a slice's average grant for a site that a site keeps whatever others request: its next job must not
/// have to wait for a transfer.
const FLOOR_PERCENT: u64 = 5;

/// Percent of the same that is the least amount sent, unless less is requested. Each transfer costs a row in a head.
const STEP_PERCENT: u64 = 1;

/// A request for rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The slice of which rights are requested.
    pub slice: SliceId,
    /// Core-milliseconds requested.
    pub amount: CoreMillis,
    /// Core-milliseconds of that slice that the requester has taken from the receiver, in total.
    pub taken: CoreMillis,
    /// The first job that lacks rights at the requester; `None` if no job does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

impl Ledger {
    /// The requests for accounts of which the site has less than half of its target. Only sites that `can_hear` are
    /// asked. Half, so that it does not ask again after every job.
    pub fn wants(
        &mut self,
        now: WallTime,
        can_hear: impl Fn(SiteId, SliceId) -> bool,
    ) -> Vec<(SiteId, Want)> {
        self.forget_claims(now);
        let claims = self.claims.values().map(|claim| &claim.account);
        let accounts: BTreeSet<AccountPath> = self.demand.keys().chain(claims).cloned().collect();
        let mut wants = Vec::new();
        for account in accounts {
            let target = self.target(&account, now);
            let spendable = self.spendable_of(&account, now);
            let has_claim = self.first_claim(&account, now).is_some();
            if spendable < target / 2 || has_claim {
                let lacking = CoreMillis(target.saturating_sub(spendable));
                wants.extend(self.ask(now, &account, lacking, &can_hear));
            }
        }
        wants
    }

    /// The requests for `amount` of an account, plus what arriving rights settle or pass on before any of them can be
    /// spent. Asked are the sites that `can_hear` and have most left, beginning with the slice that ends first.
    pub fn ask(
        &self,
        now: WallTime,
        account: &AccountPath,
        amount: CoreMillis,
        can_hear: impl Fn(SiteId, SliceId) -> bool,
    ) -> Vec<(SiteId, Want)> {
        let mut wants = Vec::new();
        let due = self.due_of(account, now);
        let mut left = amount.0.saturating_add(due);
        let mut claim = None;
        // A frozen site could not take what it is sent.
        if self.is_frozen() {
            return wants;
        }
        for slice in self.grants.live(account, now) {
            if self.room_of(slice, self.me) == 0 {
                continue;
            }
            let mut others = self.others_with_rights(slice);
            others.retain(|(site, _)| can_hear(*site, slice));
            others.sort_by_key(|(site, surplus)| (Reverse(*surplus), *site));
            if others.is_empty() {
                continue;
            }
            // Only now: most calls that wait find that all others have been asked.
            let claim = claim.get_or_insert_with(|| {
                let claim = self.first_claim(account, now)?;
                let short = claim.short.plus(CoreMillis(due));
                Some(Claim { short, ..claim })
            });
            let asked_max = match claim {
                Some(_) => ASKED_FOR_CLAIM_MAX,
                None => ASKED_MAX,
            };
            let mut lacking = mutant!(PartsNotAskedFor, self.lacking_parts(slice), 0);
            for (site, surplus) in others {
                if left == 0 || wants.len() >= asked_max {
                    return wants;
                }
                let amount = left.saturating_add(lacking);
                let want = Want {
                    slice,
                    amount: CoreMillis(amount.min(self.room_of(slice, self.me))),
                    taken: CoreMillis(self.get(slice, Cell::Taken(site))),
                    claim: claim.filter(|claim| claim.short.0 > 0),
                };
                wants.push((site, want));
                let surplus_beyond = surplus.saturating_sub(lacking);
                left = left.saturating_sub(surplus_beyond);
                if let Some(claim) = claim.as_mut() {
                    claim.short = claim.short.minus(CoreMillis(surplus_beyond));
                }
                lacking = lacking.saturating_sub(surplus);
            }
        }
        wants
    }

    /// Sends a member requested rights, if there are any to spare. Returns how much was sent.
    pub fn give(&mut self, now: WallTime, to: SiteId, want: &Want) -> CoreMillis {
        let Want {
            slice: id,
            amount,
            taken,
            claim,
        } = *want;
        let terms = self.grants.get(id.allocation).zip(self.grants.slice(id));
        let Some((terms, slice)) = terms.filter(|_| self.may_send(id, to)) else {
            return CoreMillis(0);
        };
        if now < slice.start || now >= slice.end {
            return CoreMillis(0);
        }
        let per_site = slice.amount.0 / u64::try_from(terms.split.len()).unwrap_or(u64::MAX).max(1);
        let (floor, step) = (
            per_site / 100 * FLOOR_PERCENT,
            per_site / 100 * STEP_PERCENT,
        );
        let account = terms.path.clone();
        self.forget_claims(now);
        let target = self.target(&account, now);
        let spendable = self.spendable_of(&account, now);
        let spare = |keeps: u64| {
            let spare = spendable.saturating_sub(keeps).min(self.spendable(id));
            mutant!(SentUnchecked, spare, u64::MAX)
        };
        let spare_for_claim = claim.map_or(0, |claim| {
            let first = self.claimed(&account, Some(claim.rank(to)));
            spare(mutant!(ClaimsYield, first, target.max(floor))).min(claim.short.0)
        });
        let spare = spare(target.max(floor)).max(spare_for_claim);
        // Sent and not taken: this request may be a repetition, or the requester has not seen the last head.
        let on_the_way = self.get(id, Cell::Sent(to)).saturating_sub(taken.0);
        let on_the_way = mutant!(RepeatsServed, on_the_way, 0);
        let wanted = amount.0.min(self.room_of(id, to));
        let wanted = wanted.saturating_sub(on_the_way);
        let given = wanted.min(spare);
        if given < step.min(wanted) && spare_for_claim == 0 {
            return CoreMillis(0);
        }
        self.send(id, to, given);
        CoreMillis(given)
    }

    /// Sends everything left of slices that have not ended to the other sites, in the ratio of their initial rights,
    /// before the site leaves the VO or is drained. Returns how much was sent.
    pub fn drain(&mut self, now: WallTime) -> CoreMillis {
        // Otherwise the site would request the rights again at once.
        self.demand.clear();
        self.claims.clear();
        let mut gone = CoreMillis(0);
        for id in self.not_ended(now) {
            let others = self
                .grants
                .initial_sites(id)
                .filter(|(site, _)| self.may_send(id, *site));
            for (to, amount) in divide(self.spendable(id), &others.collect()) {
                self.send(id, to, amount);
                gone = gone.plus(CoreMillis(amount));
            }
        }
        gone
    }

    /// Core-milliseconds that the site has left of slices that have not ended; 0 while frozen.
    pub fn left_to_spend(&self, now: WallTime) -> CoreMillis {
        let slices = self.not_ended(now).into_iter();
        slices.map(|id| CoreMillis(self.spendable(id))).sum()
    }

    fn not_ended(&self, now: WallTime) -> Vec<SliceId> {
        let paths = self.grants.paths();
        let slices = paths.flat_map(|path| self.grants.slices_of(path));
        let to_come = slices.filter(|(_, slice)| now < slice.end);
        to_come.map(|(id, _)| id).collect()
    }

    fn send(&mut self, id: SliceId, to: SiteId, amount: u64) {
        self.add(id, Cell::Sent(to), amount);
    }

    /// Whether rights of a slice may be sent to `to` at all. A counter above half its range is left alone, so that it
    /// never overflows.
    fn may_send(&self, id: SliceId, to: SiteId) -> bool {
        let own = self.own_row(id);
        let has_room = own.is_none_or(|own| {
            own.has_room_for(Cell::Sent(to)) && own.get(Cell::Sent(to)) < u64::MAX / 2
        });
        to != self.me && self.members.contains(&to) && !self.is_frozen() && has_room
    }

    /// What the site wants to have in hand: for the jobs that lack rights, or for those that are expected.
    fn target(&mut self, account: &AccountPath, now: WallTime) -> u64 {
        let demand = self.demand.get_mut(account);
        let expected = demand.map_or(0, |demand| demand.target(now));
        expected.max(self.claimed(account, None))
    }

    /// What other members have left of a slice, by their last received rows.
    fn others_with_rights(&self, id: SliceId) -> Vec<(SiteId, u64)> {
        let left = |site| {
            let granted = self.granted(id, site);
            let row = self.row_of(id, site);
            (
                site,
                row.map_or(granted, |row: &Row| row.spendable(granted)),
            )
        };
        self.others()
            .map(left)
            .filter(|(_, left)| *left > 0)
            .collect()
    }
}
