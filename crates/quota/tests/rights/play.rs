//! A Grid of ledgers, their stores and their messages; and the books that are kept beside it.
//!
//! The books know what every site has answered and nothing of rows: what jobs hold, what they were charged.
//! Invariant: a site's answer is in the books only once it is durable, as a caller hears it then.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{CoreMillis, Incarnation, JobKey, Millis, SiteId, WallTime};
use fairmesh_quota::{
    Cell, Grants, HoldRequest, Ledger, Mark, Offer, Part, Row, SliceId, State, Totals, Verdict,
    Want,
};

use super::grid::{Lie, Plan, Step};
use super::{Rows, allocation, grants, job, part, path, request, site, slice};

/// Length of a slice: a day.
const SLICE_MS: u64 = 86_400_000;

/// Heads of a site, by incarnation; all that was seen of each, joined.
type Heads = BTreeMap<Incarnation, Rows>;

/// What is durable.
#[derive(Debug, Clone, Default)]
struct Store {
    rows: Rows,
    marks: BTreeMap<JobKey, Mark>,
    heads: BTreeMap<SiteId, Heads>,
    is_frozen: bool,
}

struct Node {
    ledger: Ledger,
    store: Store,
    copy: Option<Store>,
    incarnation: Incarnation,
    tears: bool,
    lies: BTreeMap<SliceId, Row>,
    hides_use: bool,
    /// What it has said while it lied: a row does not shrink.
    told: Rows,
    /// Who has witnessed what was sent to it.
    witnessed: BTreeMap<Offer, BTreeSet<u8>>,
}

#[derive(Debug, Clone)]
enum Message {
    Head {
        from: u8,
        incarnation: Incarnation,
        rows: Rows,
    },
    Want {
        from: u8,
        want: Want,
    },
    /// All heads that `from` holds, among them one of this incarnation of the receiver.
    Held {
        from: u8,
        of: Incarnation,
        heads: BTreeMap<SiteId, Heads>,
    },
}

/// A job as its site has answered.
#[derive(Debug, Clone)]
struct Booked {
    parts: Vec<Part>,
    is_held: bool,
    charged: Option<u64>,
}

/// What sites have answered.
#[derive(Debug, Default)]
struct Books {
    jobs: BTreeMap<(u8, u8), Booked>,
    /// Net, by site and slice.
    used: BTreeMap<(u8, SliceId), i128>,
    /// What was used and is known to nobody any more.
    lost: BTreeMap<SliceId, i128>,
    /// What each site that has lost its store must know again before it spends anything.
    owed: BTreeMap<u8, Rows>,
}

struct Grid<'a> {
    plan: &'a Plan,
    grants: Grants,
    slices: Vec<SliceId>,
    members: BTreeSet<SiteId>,
    nodes: Vec<Node>,
    messages: Vec<(u8, Message)>,
    now: WallTime,
    books: Books,
    /// Whether a head came after a newer incarnation's.
    was_late: bool,
}

/// Runs a plan, and says what went wrong.
pub(super) fn play(plan: &Plan) -> Result<(), String> {
    let mut grid = Grid::new(plan);
    for (index, step) in plan.steps.iter().enumerate() {
        let happened = grid.step(step).and_then(|()| grid.check());
        happened.map_err(|what| format!("step {index}, {step:?}: {what}"))?;
    }
    grid.come_to_rest().and_then(|()| grid.check_at_rest())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl<'a> Grid<'a> {
    fn new(plan: &'a Plan) -> Self {
        let slices = (0..).zip(&plan.amounts).map(|(index, amount)| {
            let start = if plan.is_expiring {
                0
            } else {
                index * SLICE_MS
            };
            slice(*amount, start, (index + 1) * SLICE_MS)
        });
        let whole = allocation(slices.collect(), &plan.weights);
        let parts = plan.passed.map(|percent| part(&whole, percent));
        let (grants, slices) = grants([whole].into_iter().chain(parts).collect());
        let count = u8::try_from(plan.weights.len()).expect("few sites");
        let members: BTreeSet<SiteId> = (0..count).map(site).collect();
        let node = |at| Node {
            ledger: Ledger::new(site(at), members.clone(), grants.clone()),
            store: Store::default(),
            copy: None,
            incarnation: Incarnation(1),
            tears: false,
            lies: BTreeMap::new(),
            hides_use: false,
            told: Rows::new(),
            witnessed: BTreeMap::new(),
        };
        Self {
            plan,
            nodes: (0..count).map(node).collect(),
            grants,
            slices,
            members,
            messages: Vec::new(),
            now: WallTime(1),
            books: Books::default(),
            was_late: false,
        }
    }

    fn count(&self) -> u8 {
        u8::try_from(self.nodes.len()).expect("few sites")
    }

    fn is_liar(&self, at: u8) -> bool {
        at + self.plan.liars >= self.count()
    }

    fn node(&mut self, at: u8) -> &mut Node {
        let at = usize::from(at % self.count());
        &mut self.nodes[at]
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let count = self.count();
        match step.clone() {
            Step::Hold { at, job, amount } => self.hold(at % count, job, amount),
            Step::Commit { at, job, percent } => self.commit(at % count, job, percent),
            Step::Release { at, job } => self.release(at % count, job),
            Step::Correct { at, job, amount } => self.correct(at % count, job, amount),
            Step::Tick { at } => {
                let now = self.now;
                self.node(at).ledger.tick(now);
                self.settled(at % count)
            }
            Step::Ask { at, amount } => self.ask(at % count, amount),
            Step::Publish { at } => {
                self.publish(at % count);
                Ok(())
            }
            Step::HandOver { at, of } => {
                self.hand_over(at % count, of % count);
                Ok(())
            }
            Step::Confirm { at, by } => {
                self.confirm(at % count, by % count);
                Ok(())
            }
            Step::Deliver { which } | Step::Repeat { which } | Step::Drop { which } => {
                if self.messages.is_empty() {
                    return Ok(());
                }
                let which = which.index(self.messages.len());
                let (to, message) = match step {
                    Step::Repeat { .. } => self.messages[which].clone(),
                    _ => self.messages.swap_remove(which),
                };
                match step {
                    Step::Drop { .. } => Ok(()),
                    _ => self.deliver(to, message),
                }
            }
            Step::Drain { at } => {
                let now = self.now;
                self.node(at).ledger.drain(now);
                self.persist(at % count);
                Ok(())
            }
            Step::Kill { at } => {
                self.restart(at % count, true);
                Ok(())
            }
            Step::Tear { at } => {
                self.node(at).tears = true;
                Ok(())
            }
            Step::Copy { at } => {
                let node = self.node(at);
                node.copy = Some(node.store.clone());
                Ok(())
            }
            Step::Lose { at, copy } => {
                self.lose(at % count, copy);
                Ok(())
            }
            Step::Later { percent } => {
                self.now = self.now.after(Millis(SLICE_MS / 100 * percent));
                Ok(())
            }
            Step::Tell { at, lie, amount } => {
                self.tell(at % count, lie, amount);
                Ok(())
            }
        }
    }

    /// Makes durable what a node has changed; false where it is killed before that.
    fn persist(&mut self, at: u8) -> bool {
        if self.node(at).tears {
            self.restart(at, true);
            return false;
        }
        let node = self.node(at);
        let changes = node.ledger.take_changes();
        node.store.is_frozen = node.ledger.is_frozen();
        for id in changes.rows {
            let row = node
                .ledger
                .own_row(id)
                .expect("a row that has changed")
                .clone();
            node.store.rows.insert(id, row);
        }
        for job in changes.marks {
            let mark = node
                .ledger
                .mark(&job)
                .expect("a mark that has changed")
                .clone();
            node.store.marks.insert(job, mark);
        }
        true
    }

    fn restart(&mut self, at: u8, is_intact: bool) {
        let (grants, members) = (self.grants.clone(), self.members.clone());
        let node = self.node(at);
        node.tears = false;
        node.witnessed.clear();
        node.incarnation = Incarnation(node.incarnation.0 + 1);
        let store = &node.store;
        let own = (store.rows.clone(), store.marks.clone());
        let is_intact = is_intact && !store.is_frozen;
        node.ledger = Ledger::restore(site(at), members, grants, own, is_intact);
        for (from, heads) in &store.heads {
            for (incarnation, rows) in heads {
                node.ledger.receive(*from, *incarnation, rows.clone());
            }
        }
        // What was handed over and not written is owed no more.
        let written = node.store.rows.clone();
        self.books.owed.entry(at).and_modify(|owed| *owed = written);
        self.persist(at);
    }

    /// The store goes. Jobs that ran go on, and nobody knows of them.
    fn lose(&mut self, at: u8, copy: bool) {
        let node = self.node(at);
        node.store = node.copy.clone().filter(|_| copy).unwrap_or_default();
        self.books.jobs.retain(|(of, _), _| *of != at);
        self.books.owed.insert(at, Rows::new());
        self.restart(at, false);
    }

    fn hold(&mut self, at: u8, number: u8, amount: u64) -> Result<(), String> {
        let (now, asked) = (
            self.now,
            HoldRequest {
                until: self.now.after(Millis(SLICE_MS)),
                ..request(number, amount)
            },
        );
        let ledger = &mut self.node(at).ledger;
        let is_new = ledger.mark(&asked.job).is_none();
        let said = ledger.check(now, &asked, CoreMillis(0));
        let answer = ledger.hold(now, &asked);
        ensure(
            !is_new
                || (said.verdict, said.short, &said.parts)
                    == (answer.verdict, answer.short, &answer.parts),
            || format!("it was said that {said:?}, and then {answer:?}"),
        )?;
        if !self.persist(at) {
            return Ok(());
        }
        if self.node(at).ledger.is_frozen() {
            // Nothing new is held; what was held before the loss is in no book.
            return Ok(());
        }
        let known = self.books.jobs.get(&(at, number)).cloned();
        let sum: u64 = answer.parts.iter().map(|part| part.amount.0).sum();
        match answer.verdict {
            Verdict::Granted => {
                ensure(sum == amount, || {
                    format!("a hold of {amount} has parts of {sum}")
                })?;
                let kept = known.map_or_else(Vec::new, |known| known.parts);
                let was_known = !kept.is_empty() || self.books.owed.contains_key(&at);
                for part in &answer.parts {
                    let slice = self.grants.slice(part.slice).expect("a known slice");
                    let is_live = slice.start <= now && now < slice.end;
                    let was_held = kept.iter().any(|old| old.slice == part.slice)
                        || self.books.owed.contains_key(&at);
                    ensure(is_live || was_held, || "a part of a dead slice".to_owned())?;
                }
                let order: Vec<_> = answer.parts.iter().map(|part| part.slice.index).collect();
                let of = answer.parts.first().map(|part| part.slice.allocation);
                ensure(
                    answer
                        .parts
                        .iter()
                        .all(|part| Some(part.slice.allocation) == of),
                    || "parts of two allocations".to_owned(),
                )?;
                ensure(was_known || order.is_sorted(), || {
                    "not the slice that ends first".to_owned()
                })?;
                let booked = Booked {
                    parts: answer.parts,
                    is_held: true,
                    charged: None,
                };
                self.books.jobs.insert((at, number), booked);
                Ok(())
            }
            // In strict mode everything else leaves no trace.
            verdict => {
                let has_ended = known.as_ref().is_some_and(|known| !known.is_held);
                // A store that came back may know a job that the books have forgotten.
                let is_lost = self.books.owed.contains_key(&at);
                ensure((verdict == Verdict::Ended) == has_ended || is_lost, || {
                    format!("{verdict:?}")
                })
            }
        }
    }

    fn commit(&mut self, at: u8, number: u8, percent: u64) -> Result<(), String> {
        let known = self.books.jobs.get(&(at, number)).cloned();
        let held: u64 = known
            .iter()
            .flat_map(|known| &known.parts)
            .map(|part| part.amount.0)
            .sum();
        let charge = if held > 0 {
            held * percent / 100
        } else {
            percent
        };
        let now = self.now;
        let before = self.own_rows(at);
        let user = path("/P-A1/U-A11");
        let committed = self
            .node(at)
            .ledger
            .commit(now, &job(number), CoreMillis(charge), &user);
        if !self.persist(at) {
            return Ok(());
        }
        let committed = committed.expect("its account has an allocation");
        let used: u64 = committed.used.iter().map(|part| part.amount.0).sum();
        let sum = used + committed.overdraft.0 + committed.pending.0;
        if let Some(charged) = known.as_ref().and_then(|known| known.charged) {
            ensure(self.own_rows(at) == before, || "charged twice".to_owned())?;
            return ensure(sum <= charged, || {
                format!("{charged} was charged, and now {sum}")
            });
        }
        let is_lost = self.books.owed.contains_key(&at);
        ensure(sum == charge || is_lost, || {
            format!("{charge} were charged as {sum}")
        })?;
        if self.own_rows(at) != before {
            self.book_use(at, &committed.used, 1);
        }
        let booked = Booked {
            parts: Vec::new(),
            is_held: false,
            charged: Some(sum),
        };
        self.books.jobs.insert((at, number), booked);
        Ok(())
    }

    fn release(&mut self, at: u8, number: u8) -> Result<(), String> {
        let known = self.node(at).ledger.release(&job(number));
        if !self.persist(at) {
            return Ok(());
        }
        let booked = self.books.jobs.get_mut(&(at, number));
        ensure(known || booked.is_none(), || {
            "a hold was forgotten".to_owned()
        })?;
        if let Some(booked) = booked {
            booked.is_held = false;
            booked.parts.clear();
        }
        Ok(())
    }

    fn correct(&mut self, at: u8, number: u8, amount: u64) -> Result<(), String> {
        let now = self.now;
        let returned = |rows: &Rows| -> Vec<(SliceId, u64)> {
            rows.iter()
                .map(|(id, row)| (*id, row.get(Cell::Returned)))
                .collect()
        };
        let before = returned(&self.own_rows(at));
        let credit = self
            .node(at)
            .ledger
            .correct(now, &job(number), CoreMillis(amount));
        if !self.persist(at) {
            return Ok(());
        }
        let booked = self.books.jobs.get_mut(&(at, number));
        if let (Some(credit), Some(charged)) =
            (credit, booked.and_then(|booked| booked.charged.as_mut()))
        {
            ensure(credit.0 <= *charged, || {
                format!("{} given back of {charged}", credit.0)
            })?;
            *charged -= credit.0;
        }
        // Which slices it goes back to is the ledger's to say; that it is no more than the charge is not.
        for (id, after) in returned(&self.own_rows(at)) {
            let old = before
                .iter()
                .find(|(slice, _)| *slice == id)
                .map_or(0, |(_, old)| *old);
            let part = Part {
                slice: id,
                amount: CoreMillis(after - old),
            };
            self.book_use(at, &[part], -1);
        }
        Ok(())
    }

    /// What a tick has settled is used; holds have expired.
    fn settled(&mut self, at: u8) -> Result<(), String> {
        let before = self.node(at).store.rows.clone();
        if !self.persist(at) {
            return Ok(());
        }
        let used = |rows: &Rows| -> u64 { rows.values().map(|row| row.get(Cell::Used)).sum() };
        let settled =
            |rows: &Rows| -> u64 { rows.values().map(|row| row.get(Cell::Settled)).sum() };
        let after = self.own_rows(at);
        let (paid, owed) = (
            used(&after) - used(&before),
            settled(&after) - settled(&before),
        );
        ensure(paid == owed, || format!("{owed} were settled by {paid}"))?;
        for (id, row) in &after {
            let old = before.get(id).map_or(0, |row| row.get(Cell::Used));
            let part = Part {
                slice: *id,
                amount: CoreMillis(row.get(Cell::Used) - old),
            };
            self.book_use(at, &[part], 1);
        }
        let now = self.now;
        let ledger = &self.nodes[usize::from(at)].ledger;
        for ((of, number), booked) in &mut self.books.jobs {
            let mark = ledger.mark(&job(*number)).filter(|_| *of == at);
            if let Some(mark) = mark.filter(|mark| mark.state == State::Expired) {
                ensure(mark.until <= now, || "a hold expired too soon".to_owned())?;
                booked.is_held = false;
                booked.parts.clear();
            }
            let overdue = |mark: &&Mark| mark.state == State::Held && mark.until <= now;
            let is_stuck = mark.filter(overdue).is_some() && !ledger.is_frozen();
            ensure(!is_stuck, || "a hold did not expire".to_owned())?;
        }
        Ok(())
    }

    fn ask(&mut self, at: u8, amount: Option<u64>) -> Result<(), String> {
        let now = self.now;
        let accounts = ["/P-A1", "/P-A1/U-A11"].map(path);
        let ledger = &mut self.node(at).ledger;
        let wants = match amount {
            Some(amount) => {
                let asked = accounts.iter();
                let asked =
                    asked.flat_map(|of| ledger.ask(now, of, CoreMillis(amount), |_, _| true));
                asked.collect()
            }
            None => ledger.wants(now, |_, _| true),
        };
        let number = |to: SiteId| to.as_bytes()[0];
        let messages = wants
            .into_iter()
            .map(|(to, want)| (number(to), Message::Want { from: at, want }));
        self.messages.extend(messages);
        Ok(())
    }

    /// A site asks another about all that it was sent and has not taken. It takes what all others have witnessed;
    /// liars witness anything.
    fn confirm(&mut self, at: u8, by: u8) {
        for offer in self.node(at).ledger.unconfirmed() {
            let is_honest = !self.is_liar(by) && site(by) != offer.from;
            if is_honest && !self.node(by).ledger.witnesses(site(at), &offer) {
                continue;
            }
            let others = (0..self.count()).filter(|other| *other != at);
            let others: BTreeSet<u8> = others.collect();
            let node = self.node(at);
            let witnessed = node.witnessed.entry(offer).or_default();
            witnessed.insert(by);
            if witnessed.is_superset(&others) {
                node.ledger.confirm(&offer);
            }
        }
        self.persist(at);
    }

    fn publish(&mut self, at: u8) {
        let is_liar = self.is_liar(at);
        let node = self.node(at);
        let mut rows: Rows = node
            .ledger
            .own_rows()
            .map(|(id, row)| (id, row.clone()))
            .collect();
        if is_liar {
            for (id, lie) in &node.lies {
                rows.entry(*id).or_default().join(lie.clone());
            }
            if node.hides_use {
                let is_use = |cell: &Cell| matches!(cell, Cell::Used | Cell::Held | Cell::Freed);
                for row in rows.values_mut() {
                    let kept: Vec<_> = row.cells().filter(|(cell, _)| !is_use(cell)).collect();
                    *row = Row::default();
                    kept.into_iter()
                        .for_each(|(cell, amount)| row.add(cell, amount));
                }
            }
            for (id, row) in rows {
                node.told.entry(id).or_default().join(row);
            }
            rows = node.told.clone();
        }
        let head = Message::Head {
            from: at,
            incarnation: node.incarnation,
            rows,
        };
        for to in (0..self.count()).filter(|to| *to != at) {
            self.messages.push((to, head.clone()));
        }
    }

    fn hand_over(&mut self, at: u8, to: u8) {
        let mut heads = self.node(at).store.heads.clone();
        let own = (self.node(at).incarnation, self.own_rows(at));
        let newest = heads
            .get(&site(to))
            .and_then(|heads| heads.keys().next_back());
        if let Some(of) = newest.copied().filter(|_| at != to) {
            heads.insert(site(at), Heads::from([own]));
            self.messages.push((
                to,
                Message::Held {
                    from: at,
                    of,
                    heads,
                },
            ));
        }
    }

    fn deliver(&mut self, to: u8, message: Message) -> Result<(), String> {
        let now = self.now;
        match message {
            Message::Head {
                from,
                incarnation,
                rows,
            } => {
                // What no honest site signs is refused with its head.
                let mut forms = rows.values().map(|row| Row::from_bytes(&row.to_bytes()));
                if forms.all(|form| form.is_ok()) {
                    self.receive(to, site(from), incarnation, rows);
                    self.persist(to);
                }
            }
            Message::Want { from, want } => {
                let given = self.node(to).ledger.give(now, site(from), &want);
                if self.persist(to) {
                    ensure(given <= want.amount, || {
                        format!("{given:?} given for {want:?}")
                    })?;
                }
            }
            Message::Held { from, of, heads } => self.come_back(to, from, of, heads)?,
        }
        Ok(())
    }

    fn receive(&mut self, to: u8, from: SiteId, incarnation: Incarnation, rows: Rows) {
        let node = self.node(to);
        node.ledger.receive(from, incarnation, rows.clone());
        // What comes late is no part of what somebody holds: it may have been given up for lost.
        let held = node.store.heads.entry(from).or_default();
        let is_late = held.keys().any(|newer| *newer > incarnation);
        if !is_late {
            let held = held.entry(incarnation).or_default();
            rows.into_iter()
                .for_each(|(id, row)| held.entry(id).or_default().join(row));
        }
        // Who has lost his own store does not know how late it is.
        let sender = from.as_bytes()[0];
        let is_old = incarnation < self.node(sender).incarnation;
        self.was_late |= is_late || is_old && self.books.owed.contains_key(&sender);
    }

    fn come_back(
        &mut self,
        to: u8,
        from: u8,
        of: Incarnation,
        heads: BTreeMap<SiteId, Heads>,
    ) -> Result<(), String> {
        let now = self.now;
        if self.node(to).incarnation != of || !self.node(to).ledger.is_frozen() {
            return Ok(());
        }
        for (of, heads) in heads {
            for (incarnation, rows) in heads {
                if of != site(to) {
                    self.receive(to, of, incarnation, rows);
                    continue;
                }
                self.node(to).ledger.receive(of, incarnation, rows.clone());
                let owed = self.books.owed.entry(to).or_default();
                rows.into_iter()
                    .for_each(|(id, row)| owed.entry(id).or_default().join(row));
            }
        }
        self.node(to).ledger.hear(now, site(from));
        if !self.persist(to) || self.node(to).ledger.is_frozen() {
            return Ok(());
        }
        // What nobody holds is lost; what somebody handed over is not.
        let after = self.own_rows(to);
        for (id, owed) in self.books.owed.get(&to).cloned().unwrap_or_default() {
            let row = after.get(&id).cloned().unwrap_or_default();
            let lacks = owed.cells().find(|(cell, amount)| row.get(*cell) < *amount);
            ensure(lacks.is_none(), || {
                format!("{lacks:?} was handed over, and is not known")
            })?;
        }
        for id in self.slices.clone() {
            let known = after.get(&id).map_or(0, |row| i128::from(row.used()));
            let used = self.books.used.entry((to, id)).or_default();
            *self.books.lost.entry(id).or_default() += (*used - known).max(0);
            *used = known;
        }
        Ok(())
    }

    fn tell(&mut self, at: u8, lie: Lie, amount: u64) {
        let (count, slices) = (self.count(), self.slices.clone());
        if !self.is_liar(at) {
            return;
        }
        let whole = |id: &SliceId| self.grants.whole(*id);
        let wholes: Vec<_> = slices
            .iter()
            .filter_map(|id| Some((*id, whole(id)?)))
            .collect();
        let node = self.node(at);
        let mut add = |cell| {
            for id in &slices {
                node.lies.entry(*id).or_default().add(cell, amount);
            }
        };
        match lie {
            Lie::Passes => {
                for (id, whole) in &wholes {
                    let lie = node.lies.entry(*whole).or_default();
                    lie.add(Cell::Passed(id.allocation), amount);
                }
            }
            Lie::Sends(to) if to % count != at => add(Cell::Sent(site(to % count))),
            Lie::Takes(from) if from % count != at => add(Cell::Taken(site(from % count))),
            Lie::HidesUse => node.hides_use = true,
            Lie::StartsAnew => {
                node.incarnation = Incarnation(node.incarnation.0 + 1);
                node.told.clear();
                node.lies.clear();
            }
            Lie::Sends(_) | Lie::Takes(_) => {}
        }
    }

    fn book_use(&mut self, at: u8, parts: &[Part], sign: i128) {
        for part in parts {
            *self.books.used.entry((at, part.slice)).or_default() +=
                sign * i128::from(part.amount.0);
        }
    }

    fn own_rows(&self, at: u8) -> Rows {
        let rows = self.nodes[usize::from(at)].ledger.own_rows();
        rows.map(|(id, row)| (id, row.clone())).collect()
    }

    /// What must hold at any moment.
    fn check(&self) -> Result<(), String> {
        for id in &self.slices {
            self.check_overspent(*id)?;
        }
        for at in 0..self.count() {
            self.check_books(at)?;
        }
        Ok(())
    }

    /// Never more is used of a slice and its parts than was granted, but for what nobody has known of. A part is
    /// looked at by itself, too.
    fn check_overspent(&self, id: SliceId) -> Result<(), String> {
        let granted = i128::from(self.grants.slice(id).expect("a known slice").amount.0);
        let (mut used, mut of_honest, mut lost, mut of_liars, mut forgotten) = (0, 0, 0, 0, 0);
        for of in [id].into_iter().chain(self.grants.parts(id)) {
            let sums = self.spent(of);
            used += sums.0;
            of_honest += sums.1;
            lost += sums.2;
            of_liars += sums.3;
            forgotten += self.forgotten_transfers(of);
        }
        let most = granted + lost + forgotten;
        ensure(of_honest <= most, || {
            format!("honest sites used {of_honest} of {granted} ({lost} unknown)")
        })?;
        ensure(used <= most + of_liars, || {
            format!("{used} used of {granted}, liars held {of_liars}")
        })
    }

    /// What all have used of a slice, and honest sites alone; what of that was lost; and what liars held of it.
    fn spent(&self, id: SliceId) -> (i128, i128, i128, i128) {
        let (mut used, mut of_honest) = (0, 0);
        let mut lost = self.books.lost.get(&id).copied().unwrap_or(0);
        let mut of_liars = 0;
        for at in 0..self.count() {
            let of_site = self.books.used.get(&(at, id)).copied().unwrap_or(0);
            let ledger = &self.nodes[usize::from(at)].ledger;
            let own = ledger.own_row(id);
            if ledger.is_frozen() {
                lost += (of_site - own.map_or(0, |row| i128::from(row.used()))).max(0);
            }
            used += of_site;
            if self.is_liar(at) {
                let initial = u128::from(ledger.granted(id, site(at)));
                let held = initial + own.map_or(0, Row::taken);
                of_liars += i128::try_from(held).expect("small");
            } else {
                of_honest += of_site;
            }
        }
        (used, of_honest, lost, of_liars)
    }

    /// What sites have taken and their senders no longer know of. One that has lost its store learns that from the
    /// others, so there is such a thing only where several have.
    fn forgotten_transfers(&self, id: SliceId) -> i128 {
        if self.books.owed.len() < 2 {
            return 0;
        }
        let count = |of: u8, cell: Cell| {
            let own = self.nodes[usize::from(of)].ledger.own_row(id);
            i128::from(own.map_or(0, |row| row.get(cell)))
        };
        let pairs = (0..self.count()).flat_map(|a| (0..self.count()).map(move |b| (a, b)));
        let unknown = pairs.map(|(a, b)| {
            let (sent, taken) = (
                count(a, Cell::Sent(site(b))),
                count(b, Cell::Taken(site(a))),
            );
            (taken - sent).max(0)
        });
        unknown.sum()
    }

    /// A site's rows say what it has answered, and no more is gone than it has.
    fn check_books(&self, at: u8) -> Result<(), String> {
        let ledger = &self.nodes[usize::from(at)].ledger;
        let is_known = !self.books.owed.contains_key(&at);
        for id in &self.slices {
            let row = ledger.own_row(*id).cloned().unwrap_or_default();
            let initial = u128::from(ledger.granted(*id, site(at)));
            let has = initial + row.taken() + u128::from(row.get(Cell::Returned));
            let spent = u128::from(row.get(Cell::Used)) + u128::from(row.held());
            let gone = row.sent() + row.passed() + spent;
            ensure(gone <= has || ledger.is_frozen(), || {
                format!("site {at} has {has}, and {gone} is gone")
            })?;
            let of_site =
                |((of, _), booked): (&(u8, u8), &Booked)| (*of == at).then(|| booked.parts.clone());
            let parts = self.books.jobs.iter().filter_map(of_site).flatten();
            let held: u64 = parts
                .filter(|part| part.slice == *id)
                .map(|part| part.amount.0)
                .sum();
            ensure(row.held() == held || !is_known, || {
                format!("site {at} holds {} for {held}", row.held())
            })?;
            let used = self.books.used.get(&(at, *id)).copied().unwrap_or(0);
            let counted = i128::from(row.used());
            ensure(counted == used || !is_known, || {
                format!("site {at} counts {counted} of {used}")
            })?;
        }
        for ((of, number), booked) in &self.books.jobs {
            if *of == at && booked.is_held {
                let mark = ledger.mark(&job(*number));
                let is_there = mark
                    .is_some_and(|mark| mark.state == State::Held && mark.parts == booked.parts);
                ensure(is_there, || {
                    format!("site {at} has forgotten the hold of job {number}")
                })?;
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more, and everybody says everything.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.messages.clear();
        for _ in 0..6 {
            for at in 0..self.count() {
                self.node(at).tears = false;
                self.publish(at);
            }
            self.deliver_all()?;
            for at in 0..self.count() {
                (0..self.count()).for_each(|of| self.hand_over(at, of));
            }
            self.deliver_all()?;
            for at in 0..self.count() {
                (0..self.count()).for_each(|by| self.confirm(at, by));
            }
        }
        self.check()
    }

    fn deliver_all(&mut self) -> Result<(), String> {
        while let Some((to, message)) = self.messages.pop() {
            self.deliver(to, message)
                .map_err(|why| format!("at the end: {why}"))?;
        }
        Ok(())
    }

    /// All rights are accounted for, and all sites say the same.
    fn check_at_rest(&self) -> Result<(), String> {
        if self.plan.liars > 0 {
            return Ok(());
        }
        let frozen = self.nodes.iter().position(|node| node.ledger.is_frozen());
        ensure(frozen.is_none(), || {
            format!("the rights of site {frozen:?} are frozen for good")
        })?;
        // Somebody who knows of each site what it says itself.
        let mut all = Ledger::new(site(u8::MAX), self.members.clone(), self.grants.clone());
        for at in 0..self.count() {
            all.receive(site(at), Incarnation(1), self.own_rows(at));
        }
        for id in &self.slices {
            let of = |ledger: &Ledger| Totals {
                here: 0,
                ..ledger.slice_totals(*id, self.now)
            };
            let all = of(&all);
            let left = all.spendable + all.to_come + all.perished;
            let sum = all.used + all.held + left + all.on_the_way + all.passed_on;
            // Sites that lose their stores at one time lose what only they knew of each other.
            let is_bounded = self.books.owed.len() > 1;
            ensure(sum == all.granted || is_bounded, || {
                format!("{sum} are accounted for: {all:?}")
            })?;
            ensure(all.on_the_way == 0 || self.was_late || is_bounded, || {
                format!("{} are on the way for good", all.on_the_way)
            })?;
            let other = self
                .nodes
                .iter()
                .map(|node| of(&node.ledger))
                .find(|other| *other != all);
            // Who has received what its own site has given up for lost knows of that, too.
            let is_same = other.is_none() || self.was_late;
            ensure(is_same, || format!("{other:?} is not {all:?}"))?;
        }
        Ok(())
    }
}
