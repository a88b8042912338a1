//! Jobs move to other accounts: one durable change of credit, charge, marks and audit.
//!
//! Invariant: a change is made of one state of the marks and rules, and is taken in that state only; so no job of it
//! has been taken back or moved meanwhile. No cell is credited more than is left of it.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Counters, Now, Span, VoId, cbor};

use super::Remap;
use super::change::Moved;
use crate::audit::AuditEntry;
use crate::identity::Account;
use crate::jobs::Unmapped;
use crate::parts::{Own, Vos};
use crate::refund::{MOVED_PREFIX, Relocation, lacks_words};
use crate::report::JobHandler;
use crate::reporting::Reporting;
use crate::store::{Table, Write, origin_key};
use crate::tickets::Ticket;

/// What is added to the cells of a VO, or of the site's own accounts, by span and account.
type Amounts = BTreeMap<(Option<VoId>, Span), BTreeMap<Account, Counters>>;

impl JobHandler<'_> {
    /// Moves jobs to other accounts, and answers once it is durable.
    pub(crate) fn take_remap(&mut self, now: Now, ticket: Ticket, change: Remap) {
        let mut report = Reporting::default();
        match self.refuses_remap(&change) {
            Some(why) => {
                self.refuse(0, why, &mut report);
            }
            None => self.move_jobs(now, change, &mut report),
        }
        self.finish_report(ticket, report);
    }

    fn refuses_remap(&self, change: &Remap) -> Option<String> {
        let is_known = |vo: VoId| self.vos.is_founded(vo);
        let mut vos = change.moved.keys();
        let has_left =
            !vos.all(|(from, to)| from.vo.is_none_or(is_known) && to.vo.is_none_or(is_known));
        let is_old = change.state != self.jobs.marks_moved || has_left;
        self.cx.clock.refuses_all()
            .or_else(|| lacks_words((&change.by, &change.why)))
            .or_else(|| {
                is_old.then(|| {
                    "jobs were taken back, or the configuration changed, while the record log was read: ask again"
                        .to_owned()
                })
            })
    }

    fn move_jobs(&mut self, now: Now, mut change: Remap, report: &mut Reporting) {
        self.jobs.marks_moved += 1;
        let mut amounts = Amounts::new();
        let credited = self.place_credit(now, &change, &mut amounts);
        for ((account, span), counters) in &change.charge {
            if let Some(place) = self.place_of(now, account, *span) {
                let of_place = amounts.entry((account.vo, place)).or_default();
                let sum = of_place.entry(account.clone()).or_default();
                *sum = sum.plus(*counters);
            }
        }
        for ((vo, place), added) in &amounts {
            let added = added.iter().map(|(account, counters)| (account, *counters));
            let writes = self.usage().count_in(*vo, *place, &added.collect());
            report.writes.extend(writes);
        }
        for (vo, reach) in &change.reach {
            report.writes.extend(self.own.reaches(*vo, *reach));
        }
        report.reported.counted = u64::try_from(change.marks.len()).unwrap_or(u64::MAX);
        report.reported.charge = credited;
        report.marks = std::mem::take(&mut change.marks);
        self.follow_unmapped(&change, report);
        self.audit_moves(now, change, report);
    }

    /// Where usage of a span is counted, unless it counts no more.
    fn place_of(&mut self, now: Now, account: &Account, span: Span) -> Option<Span> {
        let rules = self.terms().rules(account.vo, now.wall);
        let counts = span.end(rules.window) > rules.horizon;
        counts.then(|| self.usage().place(account.vo, span))
    }

    /// Puts what is credited into the cells that it was charged in, as far as it is there. What is not lies in other
    /// cells of the account: rules that come to the same may divide it otherwise, or a wrong clock had counted it
    /// elsewhere.
    fn place_credit(&mut self, now: Now, change: &Remap, amounts: &mut Amounts) -> u64 {
        let spans = change.credit.keys().chain(change.charge.keys());
        // Days that are to be counted as a whole first: what is in their windows goes there, too.
        let spans: BTreeSet<&(Account, Span)> = spans.collect();
        for (account, span) in spans {
            self.place_of(now, account, *span);
        }
        let (mut missing, mut credited) = (BTreeMap::<&Account, u64>::new(), 0_u64);
        for ((account, span), wanted) in &change.credit {
            if let Some(place) = self.place_of(now, account, *span) {
                let credit = self.credit_in(account, place, *wanted, amounts);
                credited = credited.saturating_add(credit);
                *missing.entry(account).or_default() += wanted - credit;
            }
        }
        missing.retain(|_, missing| *missing > 0);
        for (account, mut missing) in missing {
            let (horizon, window) = (
                self.terms().rules(account.vo, now.wall).horizon,
                self.vos.window(&self.cx.config, account.vo),
            );
            let others = self.own.spans(account.vo);
            let others: Vec<Span> = others.filter(|span| span.end(window) > horizon).collect();
            for place in others {
                let credit = self.credit_in(account, place, missing, amounts);
                credited = credited.saturating_add(credit);
                missing -= credit;
            }
        }
        credited
    }

    /// Plans to credit up to `wanted` of what counts for an account in a span. Returns how much that is.
    fn credit_in(&self, account: &Account, place: Span, wanted: u64, amounts: &mut Amounts) -> u64 {
        let left = self.own.counted_in(account, place).net();
        if left == 0 || wanted == 0 {
            return 0;
        }
        let of_place = amounts.entry((account.vo, place)).or_default();
        let sum = of_place.entry(account.clone()).or_default();
        let credit = wanted.min(left.saturating_sub(sum.refunds));
        sum.refunds += credit;
        credit
    }

    /// Origins that are mapped now are listed no more, and those that are not any more are.
    fn follow_unmapped(&mut self, change: &Remap, report: &mut Reporting) {
        let mut rows = BTreeSet::new();
        for (origin, moved) in &change.mapped {
            if let Some(seen) = self.jobs.unmapped.get_mut(origin) {
                seen.records = seen.records.saturating_sub(moved.jobs);
                seen.charge = seen.charge.saturating_sub(moved.credit);
                rows.insert(origin);
            }
        }
        for (origin, (moved, last)) in &change.unmapped {
            if self.jobs.lists_unmapped(origin) {
                let seen = self.jobs.unmapped.entry(origin.clone()).or_default();
                *seen = Unmapped {
                    records: seen.records.saturating_add(moved.jobs),
                    charge: seen.charge.saturating_add(moved.charge),
                    last: seen.last.max(*last),
                };
                rows.insert(origin);
            }
        }
        for origin in rows {
            let key = origin_key(origin);
            let write = match self
                .jobs
                .unmapped
                .get(origin)
                .filter(|seen| seen.records > 0)
            {
                Some(seen) => {
                    let row = (origin, seen.records, seen.charge, seen.last);
                    Write::set(Table::Unmapped, key, cbor::to_vec(&row))
                }
                None => {
                    self.jobs.unmapped.remove(origin);
                    Write::delete(Table::Unmapped, key)
                }
            };
            report.writes.push(write);
        }
    }

    fn audit_moves(&mut self, now: Now, change: Remap, report: &mut Reporting) {
        let incarnation = self.own.incarnation();
        for (number, ((from, to), moved)) in (0_u32..).zip(&change.moved) {
            let Moved {
                jobs,
                credit,
                charge,
            } = *moved;
            let relocation = Relocation {
                from_vo: from.vo,
                from: from.path.clone(),
                to_vo: to.vo,
                to: to.path.clone(),
                jobs,
                credit,
                charge,
                incarnation,
                at: now.wall,
                by: change.by.clone(),
                why: change.why.clone(),
            };
            let key = [
                MOVED_PREFIX,
                &incarnation.0.to_be_bytes(),
                &self.jobs.marks_moved.to_be_bytes(),
                &number.to_be_bytes(),
            ]
            .concat();
            let row = cbor::to_vec(&relocation);
            report
                .writes
                .push(Write::set(Table::Audit, key.clone(), row));
            tell_of_move(self.vos, self.own, &relocation);
            self.jobs.relocations.insert(key, relocation);
        }
    }
}

/// Tells members of the VO that is credited, with the next head. Where the usage went they learn only if that is
/// theirs, too.
pub(crate) fn tell_of_move(vos: &mut Vos, own: &mut Own, moved: &Relocation) {
    let Some(vo) = moved.from_vo.filter(|_| moved.credit > 0) else {
        return;
    };
    let place = match moved.to_vo == moved.from_vo {
        true => moved.to.to_string(),
        false => "an account outside this VO".to_owned(),
    };
    let entry = AuditEntry {
        path: moved.from.clone(),
        by: moved.by.clone(),
        why: format!("moved to {place}: {}", moved.why),
        incarnation: moved.incarnation,
        at: moved.at,
        jobs: moved.jobs,
        charge: moved.credit,
    };
    vos.change_audit(own, vo, |audit| audit.add_entry(entry));
}
