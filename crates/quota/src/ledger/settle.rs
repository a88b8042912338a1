//! Changes in time: holds expire, overdrafts are settled, and frozen rights thaw.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, CoreMillis, JobKey, Settlement, SiteId, WallTime, mutant, mutated,
};

use super::{ALONE, Ledger};
use crate::grants::SliceId;
use crate::mark::State;
use crate::row::{Cell, Row};

impl Ledger {
    /// Does what is due: expired holds are freed, new rights settle debts, and what is left is passed on to parts. In
    /// this order, because each step can use the rights that the step before has freed.
    pub fn tick(&mut self, now: WallTime) {
        self.thaw_if_heard(now);
        if self.is_frozen() {
            return;
        }
        self.thawed_alone.take_if(|at| now >= at.after(ALONE));
        while let Some((until, job)) = self.open.first().cloned() {
            if mutant!(HoldsNeverExpire, until > now, true) {
                break;
            }
            self.end(&job, State::Expired);
        }
        let accounts: Vec<AccountPath> = self.grants.paths().cloned().collect();
        for account in accounts {
            self.settle(now, &account);
        }
        self.pass_on(now);
    }

    /// Core-milliseconds that the site's jobs of an account owe.
    pub(super) fn owed(&self, account: &AccountPath) -> u64 {
        let slices = self.grants.slices_of(account).into_iter();
        let owed = slices.filter_map(|(id, _)| Some(self.own_row(id)?.overdraft()));
        owed.fold(0, u64::saturating_add)
    }

    /// The part of it that arriving rights settle without an administrator.
    pub(super) fn due_of(&self, account: &AccountPath, now: WallTime) -> u64 {
        let terms = self.grants.terms(account, now);
        let is_next = terms.is_some_and(|(_, terms)| terms.settle != Settlement::Manual);
        if is_next { self.owed(account) } else { 0 }
    }

    fn settle(&mut self, now: WallTime, account: &AccountPath) {
        if self.due_of(account, now) == 0 {
            return;
        }
        let owes = |id: &SliceId| self.own_row(*id).is_some_and(|row| row.overdraft() > 0);
        let slices = self.grants.slices_of(account).into_iter();
        let owing: Vec<SliceId> = slices.map(|(id, _)| id).filter(owes).collect();
        for live in self.grants.live(account, now) {
            for owing in &owing {
                let there = self.spendable(live);
                // Checked last, because it compares sets of members.
                if there == 0 || !self.grants.settles(owing.allocation, live.allocation, now) {
                    continue;
                }
                // Two counters grow: the payment is used rights of the live slice and settles the debt of the other.
                let owed = self.own_row(*owing).map_or(0, |row| row.overdraft());
                let paid = owed.min(there);
                self.add(live, Cell::Used, mutant!(SettledForNothing, paid, 0));
                self.add(*owing, Cell::Settled, paid);
            }
        }
    }

    /// Notes that `from` holds a head of this incarnation of this site, and that this site has received all heads
    /// which `from` holds, including this site's earlier ones. From then on `from` takes nothing more that those had
    /// sent ([`Ledger::receive`]).
    pub fn hear(&mut self, now: WallTime, from: SiteId) {
        if let Some(heard) = &mut self.heard {
            heard.insert(from);
            self.thaw_if_heard(now);
        }
    }

    /// Thaws the rights once every other member has been heard. Then everything that was published is back, and a
    /// member cannot have spent rights that no member has received.
    pub(super) fn thaw_if_heard(&mut self, now: WallTime) {
        let Some(heard) = &self.heard else {
            return;
        };
        let is_enough = mutant!(
            ThawedByOne,
            self.others().all(|site| heard.contains(&site)),
            !heard.is_empty()
        );
        if !is_enough {
            return;
        }
        // Without other members nobody could give anything back, so the thaw may come too early ([`ALONE`]).
        let is_alone = self.others().next().is_none();
        self.thawed_alone = is_alone.then_some(now);
        self.heard = None;
        self.recall_sent();
        // Rights of parts exist only after they are passed on again, so sent ones are recalled a second time.
        self.pass_on(now);
        self.recall_sent();
        // Jobs that ended while the rights were frozen are freed and charged now.
        let is_due = |job: &JobKey| {
            let mark = &self.marks[job];
            mark.state != State::Held && (mark.pending.0 > 0 || !mark.parts.is_empty())
        };
        let due: Vec<JobKey> = self
            .marks
            .keys()
            .filter(|job| is_due(job))
            .cloned()
            .collect();
        for job in due {
            let mut mark = self.marks[&job].clone();
            if mutated!(PendingForgotten) {
                mark.pending = CoreMillis(0);
            }
            self.close(now, &mut mark);
            self.put_mark(job, mark);
        }
        self.find_lost_holds();
        self.take_sent();
    }

    /// Counts as sent what other sites claim to have taken, as far as rights are left: the head that had sent it may
    /// be lost on both sides. A liar can only take rights away from a site that has lost its store, and gains none
    /// itself.
    fn recall_sent(&mut self) {
        let me = self.me;
        let of_slice = |(id, rows): (&SliceId, &BTreeMap<SiteId, Row>)| -> Vec<_> {
            let taken = rows
                .iter()
                .map(|(site, row)| (*id, *site, row.get(Cell::Taken(me))));
            taken.filter(|(_, _, taken)| *taken > 0).collect()
        };
        let taken: Vec<_> = self.rows.iter().flat_map(of_slice).collect();
        for (id, site, taken) in taken {
            let unknown = taken.saturating_sub(self.get(id, Cell::Sent(site)));
            let own = self.own_row(id);
            let has_room = own.is_none_or(|own| own.has_room_for(Cell::Sent(site)));
            let sent = if has_room {
                unknown.min(self.left(id))
            } else {
                0
            };
            self.add(id, Cell::Sent(site), mutant!(TakenUnrecalled, sent, 0));
        }
    }

    /// Finds rights that are held by the counters and by no mark: jobs whose marks were lost.
    pub(super) fn find_lost_holds(&mut self) {
        let mut known: BTreeMap<_, u64> = BTreeMap::new();
        for part in self.marks.values().flat_map(|mark| &mark.parts) {
            let sum = known.entry(part.slice).or_default();
            *sum = sum.saturating_add(part.amount.0);
        }
        let lost = self.own_rows().map(|(id, row)| {
            let known = known.get(&id).copied().unwrap_or(0);
            (id, row.held().saturating_sub(known))
        });
        self.lost = lost.filter(|(_, lost)| *lost > 0).collect();
    }
}
