//! After a job: it is charged, or did not run, or nobody spoke of it, or was charged in error.
//!
//! Invariant: a job is charged once, what it used and what it overdrew make up the charge, and what it held is
//! free afterwards. While counters are not to be trusted only marks change; the counting is made up for later.

use fairmesh_model::{AccountPath, CoreMillis, Factor, JobKey, WallTime, mutant, mutated};

use super::Ledger;
use crate::grants::SliceId;
use crate::mark::{Mark, Part, State, Verdict, split, sum};
use crate::row::Cell;

/// What a charge came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Out of rights, by slice.
    pub used: Vec<Part>,
    /// Beyond them.
    pub overdraft: CoreMillis,
    /// Counted once the site's counters can be trusted again.
    pub pending: CoreMillis,
    /// The job had run without asking, or after its hold had ended.
    pub is_unasked: bool,
}

impl Ledger {
    /// Charges a job, at its price already; once, whatever is said again. `user` says whose it was where nobody
    /// had asked; `None` comes back where no quota covers it.
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

    /// A job was resized, and goes on as `next`: of what it holds that keeps all beyond `cost`, which is what the part
    /// that has ended is charged. It holds as it did: for the same account, at the same price, by the same decision.
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

    /// The job did not run: what it holds is free. Of a job that has ended nothing changes. False where it
    /// is not known.
    pub fn release(&mut self, job: &JobKey) -> bool {
        self.claims.remove(job);
        self.end(job, State::Released)
    }

    /// The job is still there: its hold does not expire before `until`.
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

    /// Gives back a charge that was an error, or a part of it: first what was overdrawn, then what was used
    /// last. How much it was; `None` while counters are not to be trusted, or of a job that was not charged.
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
            // The rest was settled by rights that came later.
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

    /// Forgets a job whose whole charge was given back: it may be charged anew. False where there is no such job.
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

    /// Ends an open hold without a charge.
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

    /// Frees what a job holds and counts what it is charged, once counters can be trusted.
    pub(super) fn close(&mut self, now: WallTime, mark: &mut Mark) {
        if self.is_frozen() && !mutated!(FrozenCounts) {
            return;
        }
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
        let slice = self.owing_slice(mark, now).filter(|_| left > 0);
        if let Some(slice) = slice {
            self.add(slice, Cell::Overdraft, mutant!(OverdraftUncounted, left, 0));
            mark.overdraft = Some(Part {
                slice,
                amount: CoreMillis(left),
            });
        }
    }

    /// Frees what is held for jobs that are not known any more: one that ran without asking may be one of them.
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

    /// Whether a slice may be spent for a job; any of its account where an earlier release did not say whose it is.
    fn may_spend(&self, mark: &Mark, slice: SliceId) -> bool {
        let user = mark.user.as_ref();
        user.is_none_or(|user| self.grants.admits(slice.allocation, user))
    }

    /// Takes a charge back, as far as there is one.
    fn give_back(&mut self, slice: SliceId, amount: u64) -> u64 {
        let back = amount.min(self.own_row(slice).map_or(0, |row| row.used()));
        self.add(slice, Cell::Returned, back);
        back
    }

    /// The slice whose row counts an overdraft: of those that have begun the one that ends last.
    fn owing_slice(&self, mark: &Mark, now: WallTime) -> Option<SliceId> {
        let mut slices = self.grants.slices_of(&mark.account);
        if slices.iter().any(|(slice, _)| self.may_spend(mark, *slice)) {
            slices.retain(|(slice, _)| self.may_spend(mark, *slice));
        }
        let begun = slices.iter().rev().find(|(_, slice)| slice.start <= now);
        begun.or(slices.first()).map(|(id, _)| *id)
    }
}

/// A job that nobody had asked for.
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
