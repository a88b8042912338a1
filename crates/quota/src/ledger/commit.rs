//! After a job: it is charged, did not run, was forgotten by its scheduler, or was charged in error.
//!
//! Invariant: a job is charged once, its used and overdrawn rights sum up to the charge, and its hold is free
//! afterwards. While the rights are frozen only marks change; the counters follow when the rights thaw.

use fairmesh_model::{AccountPath, CoreMillis, Factor, JobKey, WallTime, mutant, mutated};

use super::Ledger;
use crate::grants::SliceId;
use crate::mark::{Mark, Part, State, Verdict, split, sum};
use crate::row::Cell;

/// How a charge was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The part covered by rights, by slice.
    pub used: Vec<Part>,
    /// The part beyond the rights.
    pub overdraft: CoreMillis,
    /// The part that will be counted when the site's rights thaw: all or nothing.
    pub pending: CoreMillis,
    /// Whether the job ran without a hold, or after its hold had ended.
    pub is_unasked: bool,
}

impl Ledger {
    /// Charges a job with an amount that includes its price. A repeated call changes nothing. `user` is the user of a
    /// job without a hold. Returns `None` if no quota covers the job.
    pub fn commit(
        &mut self,
        now: WallTime,
        job: &JobKey,
        charge: CoreMillis,
        user: &AccountPath,
    ) -> Option<Committed> {
        let known = self.marks.get(job).cloned();
        let is_over = known
            .as_ref()
            .is_some_and(|mark| mark.state == State::Committed);
        if is_over && !mutated!(CommittedTwice) {
            return known.map(|mark| committed(&mark));
        }
        // A job that ran without a hold is charged all the same: it has used the machines.
        let mut mark = match known {
            Some(mark) => mark,
            None => unasked(self.usual_account(now, user)?, user.clone(), now),
        };
        if mark.state != State::Held {
            mark.by = None;
        }
        mark.state = State::Committed;
        mark.pending = match mark.verdict {
            Verdict::Exempt if !mutated!(ExemptCharged) => CoreMillis(0),
            _ => charge,
        };
        self.close(now, &mut mark);
        let answer = committed(&mark);
        self.put_mark(job.clone(), mark);
        Some(answer)
    }

    /// Hands a resized job's hold on to its continuation `next`, except for `cost`, which the part that has ended is
    /// charged. The continuation keeps the account, the price and the decision.
    pub fn hand_on(&mut self, job: &JobKey, next: &JobKey, cost: CoreMillis) {
        let open = self.marks.get(job).filter(|mark| mark.state == State::Held);
        let Some(mut mark) = open.cloned().filter(|_| !self.marks.contains_key(next)) else {
            return;
        };
        let (own, rest) = split(&mark.parts, cost.0);
        let goes_on = Mark {
            amount: mark.amount.minus(cost),
            parts: rest,
            ..mark.clone()
        };
        mark.amount = mark.amount.min(cost);
        mark.parts = mutant!(HandedOnTwice, own, mark.parts);
        self.put_mark(next.clone(), goes_on);
        self.put_mark(job.clone(), mark);
    }

    /// Frees the hold of a job that did not run. An ended job does not change. Returns false for an unknown job.
    pub fn release(&mut self, job: &JobKey) -> bool {
        self.claims.remove(job);
        self.end(job, State::Released)
    }

    /// Extends a hold to `until`, because the job still exists. A hold is never shortened.
    pub fn renew(&mut self, job: &JobKey, until: WallTime) {
        let open = self.marks.get(job).filter(|mark| mark.state == State::Held);
        if let Some(mark) = open.filter(|mark| mark.until < until) {
            let mark = Mark {
                until,
                ..mark.clone()
            };
            self.put_mark(job.clone(), mark);
        }
    }

    /// Gives back a wrong charge or a part of it: first the overdraft, then the rights that were used last. Returns
    /// how much was given back; `None` while frozen, or for a job that was not charged.
    pub fn correct(
        &mut self,
        now: WallTime,
        job: &JobKey,
        amount: CoreMillis,
    ) -> Option<CoreMillis> {
        let charged = self
            .marks
            .get(job)
            .filter(|mark| mark.state == State::Committed);
        let mut mark = charged.filter(|_| !self.is_frozen())?.clone();
        let mut left = amount.0;
        if let Some(overdraft) = mark.overdraft {
            let back = left.min(overdraft.amount.0);
            left -= back;
            let owed = self
                .own_row(overdraft.slice)
                .map_or(0, |row| row.overdraft());
            self.add(overdraft.slice, Cell::Settled, back.min(owed));
            // The rest was settled meanwhile by rights of live slices, to which it goes back.
            let mut settled = back.saturating_sub(owed);
            for slice in self.grants.live(&mark.account, now) {
                settled -= self.give_back(slice, settled);
            }
            mark.overdraft = Some(Part {
                amount: overdraft.amount.minus(CoreMillis(back)),
                ..overdraft
            });
        }
        for part in mark.used.iter_mut().rev() {
            let back = self.give_back(part.slice, left.min(part.amount.0));
            part.amount = mutant!(
                CreditedAgain,
                part.amount.minus(CoreMillis(back)),
                part.amount
            );
            left -= back;
        }
        self.put_mark(job.clone(), mark);
        Some(amount.minus(CoreMillis(left)))
    }

    /// Forgets a job whose whole charge was given back, so that it can be charged again. Returns false for any other
    /// job.
    pub fn forget_charge(&mut self, job: &JobKey) -> bool {
        let is_free = |mark: &Mark| {
            let overdraft = mark.overdraft.map_or(0, |part| part.amount.0);
            let is_given_back = sum(&mark.used).0 == 0 && overdraft == 0 && mark.pending.0 == 0;
            mark.state == State::Committed && is_given_back
        };
        if !self.marks.get(job).is_some_and(is_free) {
            return false;
        }
        self.changes.marks.insert(job.clone());
        self.marks.remove(job);
        true
    }

    /// Ends an open hold without a charge. Returns whether the job is known.
    pub(super) fn end(&mut self, job: &JobKey, state: State) -> bool {
        let Some(mark) = self.marks.get(job) else {
            return false;
        };
        if mark.state == State::Held {
            let mut mark = Mark {
                state,
                ..mark.clone()
            };
            self.close(WallTime(0), &mut mark);
            self.put_mark(job.clone(), mark);
        }
        true
    }

    /// Frees a job's hold and counts its charge; does nothing while frozen.
    pub(super) fn close(&mut self, now: WallTime, mark: &mut Mark) {
        if self.is_frozen() && !mutated!(FrozenCounts) {
            return;
        }
        // The hold is freed before the charge is counted: the charge may use the same rights.
        let parts = std::mem::take(&mut mark.parts);
        for part in &parts {
            let kept = mutated!(HoldsStayHeld) && mark.state == State::Committed;
            if !kept {
                self.free(*part);
            }
        }
        let mut left = std::mem::take(&mut mark.pending).0;
        if left == 0 {
            return;
        }
        if mark.verdict != Verdict::Idle {
            // A job without a mark may be one whose mark was lost with the store; its hold came back from peers.
            let lost = match mark.by {
                Some(_) => Vec::new(),
                None => self.reclaim(mark, left),
            };
            let own = parts
                .iter()
                .chain(&lost)
                .map(|part| (part.slice, part.amount.0));
            let live = self.grants.live(&mark.account, now).into_iter();
            let live = live.filter(|slice| self.may_spend(mark, *slice));
            let live = live.map(|slice| (slice, u64::MAX));
            // First the slices that the job held, at most as much as it held, then whatever is live.
            for (slice, most) in own.chain(live).collect::<Vec<_>>() {
                let used = left.min(most).min(self.left(slice));
                let used = mutant!(ExcessUnchecked, used, left.min(most));
                self.add(slice, Cell::Used, used);
                left -= used;
                if used > 0 {
                    mark.used.push(Part {
                        slice,
                        amount: CoreMillis(used),
                    });
                }
            }
        }
        // Usage is never dropped: what no right covers becomes a debt.
        let slice = self.owing_slice(mark, now).filter(|_| left > 0);
        if let Some(slice) = slice {
            self.add(slice, Cell::Overdraft, mutant!(OverdraftUncounted, left, 0));
            mark.overdraft = Some(Part {
                slice,
                amount: CoreMillis(left),
            });
        }
    }

    /// Frees holds of unknown jobs of the account, up to `need`, for a job that may be one of them.
    fn reclaim(&mut self, mark: &Mark, need: u64) -> Vec<Part> {
        let mut left = need;
        let mut parts = Vec::new();
        let mut slices = self.grants.slices_of(&mark.account);
        slices.retain(|(slice, _)| self.may_spend(mark, *slice));
        for (slice, _) in slices {
            let amount = self.lost.get_mut(&slice).map_or(0, |lost| {
                let amount = left.min(*lost);
                *lost -= amount;
                amount
            });
            left -= amount;
            if amount > 0 {
                let part = Part {
                    slice,
                    amount: CoreMillis(amount),
                };
                self.free(part);
                parts.push(part);
            }
        }
        parts
    }

    /// Whether a slice may be spent for a job. Without a user, in a mark of an earlier release, any slice of the
    /// account may.
    fn may_spend(&self, mark: &Mark, slice: SliceId) -> bool {
        let user = mark.user.as_ref();
        user.is_none_or(|user| self.grants.admits(slice.allocation, user))
    }

    /// Returns rights to a slice, at most what was used of it. Returns how much.
    fn give_back(&mut self, slice: SliceId, amount: u64) -> u64 {
        let back = amount.min(self.own_row(slice).map_or(0, |row| row.used()));
        self.add(slice, Cell::Returned, back);
        back
    }

    /// The slice whose row counts an overdraft: of the slices that have begun the one that ends last, so that the
    /// debt is remembered longest.
    fn owing_slice(&self, mark: &Mark, now: WallTime) -> Option<SliceId> {
        let mut slices = self.grants.slices_of(&mark.account);
        if slices.iter().any(|(slice, _)| self.may_spend(mark, *slice)) {
            slices.retain(|(slice, _)| self.may_spend(mark, *slice));
        }
        let begun = slices.iter().rev().find(|(_, slice)| slice.start <= now);
        begun.or(slices.first()).map(|(id, _)| *id)
    }
}

/// The mark of a job that was charged without a hold.
fn unasked(account: AccountPath, user: AccountPath, now: WallTime) -> Mark {
    Mark {
        state: State::Expired,
        account,
        user: Some(user),
        at: now,
        verdict: Verdict::OverQuota,
        by: None,
        amount: CoreMillis(0),
        parts: Vec::new(),
        price: Factor::ONE,
        charged: Factor::ONE,
        until: now,
        used: Vec::new(),
        overdraft: None,
        pending: CoreMillis(0),
    }
}

fn committed(mark: &Mark) -> Committed {
    debug_assert!(
        mark.pending.0 == 0 || sum(&mark.used).0 == 0,
        "pending is all or nothing"
    );
    Committed {
        used: mark.used.clone(),
        overdraft: mark.overdraft.map_or(CoreMillis(0), |part| part.amount),
        pending: mark.pending,
        is_unasked: mark.by.is_none(),
    }
}
