//! Nobody spends more than was granted, and nothing that was granted is forgotten.
//!
//! Invariant checked, at honest nodes: of each slice no more is used, held and passed on at all of them together than
//! was granted, and where members lie, than was granted and what these held, once more for each honest node but one; of
//! a part what was granted is what sites have given up for it; no site has more of a slice than it may have at most,
//! nor gives away, holds and uses more than came to it; a node whose rights are not frozen knows of itself all that
//! others hold of it; a job that was granted has its mark after every step and start, and what open marks hold is held;
//! a job whose end was acknowledged is charged, by what its account is charged and the price of its hold, and one that
//! never ran, or was exempt, is not. At rest all nodes show the same of each slice, and granted = used + held + left +
//! on the way + passed on.
//!
//! Where a store was lost, names of jobs are: what was answered before is not held against its node. Of two losses what
//! only the two knew of each other is lost (docs/quotas.md): what they had sent, and no row says any more, may be spent
//! once more, and no more than that; and what a backup of one of the two brings back the other one has to know at rest
//! only.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Factor, JobKey, Millis, MonoTime, SiteId, VoId};
use fairmesh_quota::{Cell, Decider, Grants, Ledger, Mark, Row, SliceId, State, Totals, Verdict};
use fairmesh_site::Site;

use super::{Invariant, Seen, Violation};
use crate::facts::Booked;
use crate::world::StepKind;

/// For so long after its start a node is looked at after each step: what it lost comes back within that, if at all.
const STARTS_FOR: Millis = Millis(60_000);

#[derive(Default)]
pub(super) struct Quotas {
    /// How often each node had started, and when the last start was seen.
    started: BTreeMap<usize, (u32, MonoTime)>,
    /// The most that each site's own row has said of what it sent to another one.
    sent: Sent,
}

/// An amount, by slice, and by who sent it to whom.
type Sent = BTreeMap<(SliceId, SiteId, SiteId), u64>;

impl Quotas {
    /// Whether a node was started a moment ago.
    fn has_just_started(&mut self, seen: &Seen<'_>, node: usize) -> bool {
        let (life, now) = (seen.world.node(node).life(), seen.world.now());
        let started = self.started.entry(node).or_insert((life, MonoTime(0)));
        if started.0 != life {
            *started = (life, now);
        }
        started.0 > 1 && now < started.1.after(STARTS_FOR)
    }
}

/// Whether the charter that a node goes by lists it alone: then it waits for no other site.
fn is_alone(seen: &Seen<'_>, node: usize, vo: VoId) -> bool {
    let site = seen.world.site(node);
    let documents = site.map(|site| site.documents(vo)).unwrap_or_default();
    let held = seen.oracle.documents.in_force(documents);
    let own = seen.world.node(node).id;
    let charter = held.get(&vo).map(|held| held.charter);
    charter.is_none_or(|charter| charter.sites.iter().all(|member| member.site == own))
}

/// The ledgers of a VO at honest nodes that run.
fn ledgers<'a>(seen: &'a Seen<'_>, vo: VoId) -> Vec<(usize, &'a Ledger)> {
    let nodes = 0..seen.world.nodes().len();
    let honest = nodes.filter(|node| !seen.is_liar(*node));
    let ledgers = honest.filter_map(|node| Some((node, seen.world.site(node)?.ledger(vo)?)));
    ledgers.collect()
}

fn slices(ledger: &Ledger) -> Vec<SliceId> {
    let all = ledger.grants().iter();
    let all = all.flat_map(|(allocation, body)| {
        let count = u32::try_from(body.slices.len()).expect("few");
        (0..count).map(move |index| SliceId { allocation, index })
    });
    all.collect()
}

/// What a site has of a slice to begin with: by the split, and of a part no more than its row of the whole has given
/// up.
fn initial(grants: &Grants, rows: &[(usize, &Ledger)], id: SliceId, site: SiteId) -> u64 {
    let of_split = grants.initial(id, site);
    let Some(whole) = grants.whole(id) else {
        return of_split;
    };
    let rows = rows.iter().filter_map(|(_, of)| of.row_of(whole, site));
    let passed = rows.map(|row| row.get(Cell::Passed(id.allocation)));
    passed.max().unwrap_or(0).min(of_split)
}

/// What was granted of a slice; of a part, what sites have given up for it, as far as any node knows. Who has lost his
/// documents does not know what is a part of what, and has his rows.
fn granted(ledgers: &[(usize, &Ledger)], id: SliceId) -> u128 {
    let mut of_sites: BTreeMap<SiteId, u64> = BTreeMap::new();
    for (_, ledger) in ledgers {
        for (site, _) in ledger.grants().initial_sites(id) {
            let most = of_sites.entry(site).or_default();
            *most = initial(ledger.grants(), ledgers, id, site).max(*most);
        }
    }
    of_sites.into_values().map(u128::from).sum()
}

/// No site has more of a slice than it may have at most, nor gives away and spends more than it has.
fn check_bounds(node: usize, ledger: &Ledger) -> Result<u64, Violation> {
    let mut checks = 0;
    let known = |id: &SliceId| ledger.grants().slice(*id).is_some();
    for (id, row) in ledger.own_rows().filter(|(id, _)| known(id)) {
        let most = ledger.grants().at_most(id, ledger.me());
        let initial = initial(ledger.grants(), &[(node, ledger)], id, ledger.me());
        let came = u128::from(initial) + row.taken();
        let spent = u128::from(row.used()) + u128::from(row.held());
        let gone = row.sent() + row.passed() + spent;
        checks += 1;
        if gone > came {
            let message = format!("{gone} core-ms of slice {} are gone, of {came}", id.index);
            return Err(Violation::at(node, message));
        }
        let has = came.saturating_sub(row.sent());
        if has > u128::from(most) {
            let message = format!("has {has} core-ms of slice {}, of {most} at most", id.index);
            return Err(Violation::at(node, message));
        }
    }
    Ok(checks)
}

/// What a site's row is, joined with what others hold of it: a backup brings back holds that were given back since.
fn joined(ledgers: &[(usize, &Ledger)], id: SliceId, site: SiteId) -> Row {
    let rows = ledgers.iter().filter_map(|(_, of)| of.row_of(id, site));
    rows.fold(Row::default(), |mut joined, row| {
        joined.join(row.clone());
        joined
    })
}

/// What a row says of what its site sent to others.
fn sent_of(row: &Row) -> impl Iterator<Item = (SiteId, u64)> + '_ {
    row.cells().filter_map(|(cell, amount)| match cell {
        Cell::Sent(to) => Some((to, amount)),
        _ => None,
    })
}

/// What was sent of a slice that no row says any more.
fn forgotten(ledgers: &[(usize, &Ledger)], sent: &Sent, id: SliceId) -> u128 {
    let of_slice = sent.iter().filter(|((of, ..), _)| *of == id);
    let gone = of_slice.map(|((_, from, to), most)| {
        let known = joined(ledgers, id, *from).get(Cell::Sent(*to));
        u128::from(most.saturating_sub(known))
    });
    gone.sum()
}

/// Of each slice no more is used than was granted, and than is forgotten of what was sent.
fn check_spent(seen: &Seen<'_>, vo: VoId, sent: &Sent) -> Result<u64, Violation> {
    let ledgers = ledgers(seen, vo);
    let mut used: BTreeMap<SliceId, (u128, u128)> = BTreeMap::new();
    for (_, ledger) in &ledgers {
        for (id, _) in ledger.own_rows() {
            let row = joined(&ledgers, id, ledger.me());
            let (sum, to_liars) = used.entry(id).or_default();
            *sum += u128::from(row.used()) + u128::from(row.held()) + row.passed();
            let lied = sent_of(&row).filter(|(to, _)| seen.lies(*to));
            *to_liars += lied.map(|(_, amount)| u128::from(amount)).sum::<u128>();
        }
    }
    // Of one loss all others know together what was sent.
    let may_forget = seen.books.lost.len() > 1;
    for (id, (used, to_liars)) in &used {
        let mut all = ledgers.iter().map(|(_, ledger)| ledger);
        let Some(ledger) = all.find(|ledger| ledger.grants().slice(*id).is_some()) else {
            continue;
        };
        let initial = ledger.grants().initial_sites(*id);
        let of_liars = initial.filter(|(site, _)| seen.lies(*site));
        let of_liars: u128 = of_liars.map(|(_, amount)| u128::from(amount)).sum();
        let again = ledgers.len().saturating_sub(1) as u128;
        let mut most = granted(&ledgers, *id) + (of_liars + to_liars) * again;
        if may_forget && *used > most {
            most += forgotten(&ledgers, sent, *id);
        }
        if *used > most {
            let message = format!("{used} core-ms of slice {} are spent, of {most}", id.index);
            return Err(Violation::of_all(message));
        }
    }
    Ok(used.len() as u64)
}

/// A node knows of itself what others hold of it, but for those that have lost their stores, as it has, where `lost`
/// names them.
fn check_known(
    ledgers: &[(usize, &Ledger)],
    node: usize,
    lost: &BTreeSet<usize>,
) -> Result<u64, Violation> {
    let Some((_, own)) = ledgers.iter().find(|(of, _)| *of == node) else {
        return Ok(0);
    };
    if own.is_frozen() {
        return Ok(0);
    }
    let mut checks = 0;
    let both_lost = |other: &usize| lost.contains(&node) && lost.contains(other);
    let others = ledgers.iter();
    for (other, ledger) in others.filter(|(other, _)| *other != node && !both_lost(other)) {
        for id in slices(ledger) {
            let Some(row) = ledger.row_of(id, own.me()) else {
                continue;
            };
            let known = |cell| own.own_row(id).map_or(0, |own| own.get(cell));
            checks += 1;
            if let Some((cell, amount)) = row.cells().find(|(cell, amount)| known(*cell) < *amount)
            {
                let message = format!(
                    "site {other} holds {amount} of its {cell:?} of slice {}, and it itself {}",
                    id.index,
                    known(cell)
                );
                return Err(Violation::at(node, message));
            }
        }
    }
    Ok(checks)
}

/// The same of a site that its charter does not list alone.
fn check_known_by(
    seen: &Seen<'_>,
    vo: VoId,
    node: usize,
    lost: &BTreeSet<usize>,
) -> Result<u64, Violation> {
    let known = check_known(&ledgers(seen, vo), node, lost);
    match known {
        Err(_) if is_alone(seen, node, vo) => Ok(0),
        known => known,
    }
}

/// What was answered stays true.
fn check_books(seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
    let mut checks = 0;
    let of_node = |of: &BTreeMap<JobKey, Booked>| {
        let here = of
            .iter()
            .filter(|(_, booked)| booked.node == node && !booked.is_lost);
        here.map(|(job, booked)| (job.clone(), booked.vo))
            .collect::<Vec<_>>()
    };
    for (job, vo) in of_node(&seen.books.held) {
        let Some(ledger) = site.ledger(vo) else {
            continue;
        };
        checks += 1;
        if ledger.mark(&job).is_none() {
            let message = format!("job {} was granted, and is not known", job.job);
            return Err(Violation::at(node, message));
        }
    }
    for (job, vo) in of_node(&seen.books.charged) {
        let mark = site.ledger(vo).and_then(|ledger| ledger.mark(&job));
        checks += 1;
        if mark.is_some_and(|mark| mark.state != State::Committed) {
            let message = format!("job {} has ended, and is not charged", job.job);
            return Err(Violation::at(node, message));
        }
    }
    let is_whole = !seen.books.lost.contains(&node);
    let freed = seen.books.freed.iter();
    for (job, of) in freed.filter(|(_, of)| of.node == node && is_whole) {
        let mark = site.ledger(of.vo).and_then(|ledger| ledger.mark(job));
        checks += 1;
        if mark.is_some_and(|mark| mark.state == State::Held || charged(mark) > 0) {
            let message = format!("job {} owes its quota nothing, and has {mark:?}", job.job);
            return Err(Violation::at(node, message));
        }
    }
    for vo in seen.vos {
        // Behind a loss, rows of rights that are frozen may be with other members alone.
        let ledger = site.ledger(*vo);
        if let Some(ledger) = ledger.filter(|ledger| is_whole || !ledger.is_frozen()) {
            checks += check_marks(seen, node, ledger)? + check_bounds(node, ledger)?;
            checks += check_costs(seen, (node, *vo), ledger)?;
        }
    }
    Ok(checks)
}

/// What a quota was charged for a job, less what was given back.
fn charged(mark: &Mark) -> u128 {
    let used = mark.used.iter().chain(&mark.overdraft);
    let used = used.map(|part| u128::from(part.amount.0));
    used.sum::<u128>() + u128::from(mark.pending.0)
}

/// A job costs its quota what its account is charged, at the price of its hold; one that is exempt costs nothing.
fn check_costs(
    seen: &Seen<'_>,
    (node, vo): (usize, VoId),
    ledger: &Ledger,
) -> Result<u64, Violation> {
    let mut checks = 0;
    // What a history has passed over cannot be taken back.
    if seen.oracle.short.contains_key(&Some(vo)) {
        return Ok(0);
    }
    let ended = ledger
        .marks()
        .filter(|(_, mark)| mark.state == State::Committed);
    for (job, mark) in ended {
        let Some((least, most)) = seen.oracle.net_of(node, job) else {
            continue;
        };
        let cost = |charge: u64| match mark.verdict {
            Verdict::Exempt => 0,
            _ => {
                let price = u128::from(mark.price.millionths());
                let part = u128::from(mark.charged.millionths());
                u128::from(charge) * price * part / u128::from(Factor::UNITS).pow(2)
            }
        };
        // What is taken back of a job is rounded on its own.
        let (least, most) = (cost(least), cost(most) + 1);
        // What an owner lets run may be covered by no allocation, and then there is nothing to owe.
        let may_be_free = matches!(mark.by, Some(Decider::Owner | Decider::Vo));
        let least = if may_be_free { 0 } else { least };
        checks += 1;
        let charged = charged(mark);
        if !(least..=most).contains(&charged) {
            let message = format!(
                "job {} is charged {charged} core-ms of its quota; it costs {least} to {most}",
                job.job
            );
            return Err(Violation::at(node, message));
        }
    }
    Ok(checks)
}

/// What open marks hold is held. A backup brings back marks of jobs that have ended since.
fn check_marks(seen: &Seen<'_>, node: usize, ledger: &Ledger) -> Result<u64, Violation> {
    let mut held: BTreeMap<SliceId, u64> = BTreeMap::new();
    let is_lost = seen.books.lost.contains(&node);
    let is_of_now = |job| match seen.books.held.get(job) {
        Some(booked) => !booked.is_lost,
        None => !is_lost,
    };
    let open = ledger
        .marks()
        .filter(|(job, mark)| mark.state == State::Held && is_of_now(job));
    for part in open.flat_map(|(_, mark)| &mark.parts) {
        *held.entry(part.slice).or_default() += part.amount.0;
    }
    for (id, held) in &held {
        let counted = ledger.own_row(*id).map_or(0, |row| row.held());
        if counted < *held {
            let message = format!(
                "jobs hold {held} core-ms of slice {}, and it counts {counted}",
                id.index
            );
            return Err(Violation::at(node, message));
        }
    }
    Ok(held.len() as u64)
}

/// What a node shows of a slice that does not depend on who shows it and when.
fn shown(ledger: &Ledger, id: SliceId, node: usize, seen: &Seen<'_>) -> (Totals, u128) {
    let totals = ledger.slice_totals(id, seen.world.now_at(node).wall);
    let left = totals.spendable + totals.to_come + totals.perished;
    let same = Totals {
        here: 0,
        spendable: 0,
        to_come: 0,
        perished: 0,
        lacking: 0,
        ..totals
    };
    (same, left)
}

fn check_tables(seen: &Seen<'_>, vo: VoId, sent: &Sent) -> Result<u64, Violation> {
    let ledgers = ledgers(seen, vo);
    let is_said = |id| {
        let mut own = ledgers
            .iter()
            .filter_map(|(_, of)| Some((of.me(), of.own_row(id)?)));
        own.all(|(me, row)| ledgers.iter().all(|(_, of)| of.row_of(id, me) == Some(row)))
    };
    let Some((first, of_first)) = ledgers.first() else {
        return Ok(0);
    };
    let mut checks = 0;
    for id in slices(of_first) {
        let (totals, left) = shown(of_first, id, *first, seen);
        checks += 1;
        let sum = totals.used + totals.held + left + totals.on_the_way + totals.passed_on;
        let is_known = || forgotten(&ledgers, sent, id) == 0;
        if seen.liars.is_empty() && sum != totals.granted && is_known() {
            let message = format!("slice {}: {totals:?}, {left} left; that is {sum}", id.index);
            return Err(Violation::at(*first, message));
        }
        for (other, ledger) in &ledgers[1..] {
            let theirs = shown(ledger, id, *other, seen);
            // A charge that waited for a lost store's rights to thaw may be in no head yet.
            if theirs != (totals, left) && seen.liars.is_empty() && is_said(id) {
                let message = format!(
                    "slice {}: shows {theirs:?}, and site {first} {:?}",
                    id.index,
                    (totals, left)
                );
                return Err(Violation::at(*other, message));
            }
        }
    }
    Ok(checks)
}

fn has_quotas(seen: &Seen<'_>) -> bool {
    let honest = |node: &usize| !seen.is_liar(*node);
    let mut nodes = (0..seen.world.nodes().len()).filter(honest);
    nodes.any(|node| {
        let site = seen.world.site(node);
        site.is_some_and(|site| {
            let ledgers = seen.vos.iter().filter_map(|vo| site.ledger(*vo));
            ledgers
                .into_iter()
                .any(|ledger| !ledger.grants().is_empty())
        })
    })
}

impl Invariant for Quotas {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let due = seen.deep || matches!(seen.kind, StepKind::Quota | StepKind::Started);
        // Who is no member, or takes no part for a while, is not heard before rights thaw.
        let faults = seen.world.faults();
        let all_stay = faults.of("remove") + faults.of("unmount") == 0;
        let node = seen
            .node
            .filter(|node| seen.books.has_quotas && !seen.is_liar(*node));
        if let Some(site) = node.and_then(|node| seen.world.site(node)) {
            for ledger in seen.vos.iter().filter_map(|vo| site.ledger(*vo)) {
                for (id, row) in ledger.own_rows() {
                    for (to, amount) in sent_of(row) {
                        let most = self.sent.entry((id, ledger.me(), to)).or_default();
                        *most = amount.max(*most);
                    }
                }
            }
        }
        if let Some(node) = node.filter(|node| self.has_just_started(seen, *node))
            && all_stay
        {
            for vo in seen.vos {
                *checks += check_known_by(seen, *vo, node, &seen.books.lost)?;
            }
        }
        if !due || !has_quotas(seen) {
            return Ok(());
        }
        for vo in seen.vos {
            *checks += check_spent(seen, *vo, &self.sent)?;
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            *checks += check_books(seen, node, site)?;
            if all_stay {
                for vo in seen.vos {
                    *checks += check_known_by(seen, *vo, node, &seen.books.lost)?;
                }
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.after_step(seen, checks)?;
        for vo in seen.vos {
            for node in seen.nodes() {
                *checks += check_known_by(seen, *vo, node, &BTreeSet::new())?;
            }
            *checks += check_tables(seen, *vo, &self.sent)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{
        Allocation, AllocationSlice, CoreMillis, Incarnation, PartOf, Role, Signed, WallTime,
    };
    use fairmesh_quota::Row;

    use super::*;
    use crate::vo::{HOUR, START, allocation, key, path, site_id};

    /// A whole of 100, and a part of 60 of it, at two sites alike.
    fn grants() -> (Grants, SliceId) {
        let slice = |amount| AllocationSlice {
            amount: CoreMillis(amount),
            start: START,
            end: START.after(HOUR),
        };
        let signer = key("quotas", 0);
        let adopt = |grants: &mut Grants, body: Allocation| {
            let signed = Signed::sign(body, &[&signer]).expect("a valid allocation");
            let role = Role::single(signer.key_id());
            let verified = signed.verify(&[&role]).expect("signed by its role");
            grants.adopt(&verified).expect("it fits");
            verified.hash().into()
        };
        let vo = VoId::from_bytes([7; 32]);
        let of = |at, amount| allocation(vo, path(at), vec![slice(amount)], 2);
        let mut grants = Grants::default();
        let whole = adopt(&mut grants, of("/g0", 100));
        let part = Allocation {
            part_of: Some(PartOf {
                allocation: whole,
                slices: vec![0],
            }),
            ..of("/g0/u0", 60)
        };
        let allocation = adopt(&mut grants, part);
        let index = 0;
        (grants, SliceId { allocation, index })
    }

    fn now() -> WallTime {
        START.after(Millis(1))
    }

    /// Seed 80000844: a clock was off, so a site had told nobody what it had passed on, and then it lost its documents.
    #[test]
    fn what_a_site_without_documents_has_passed_on_was_granted_and_nothing_else() {
        let (grants, part) = grants();
        let sites: BTreeSet<SiteId> = [0, 1].map(site_id).into();
        let of = |site| Ledger::new(site_id(site), sites.clone(), grants.clone());
        let mut passed = of(0);
        passed.tick(now());
        let rows = passed.own_rows().map(|(id, row)| (id, row.clone()));
        let (rows, marks) = (rows.collect(), BTreeMap::new());
        let none = (BTreeSet::new(), Grants::default());
        let lost = Ledger::restore(site_id(0), none.0, none.1, (rows, marks), false);

        let (untold, mut passes) = (of(1), of(1));
        assert_eq!(granted(&[(0, &lost), (1, &untold)], part), 30);
        assert_eq!(granted(&[(1, &untold)], part), 0, "nobody has passed it on");
        passes.tick(now());
        assert_eq!(granted(&[(0, &lost), (1, &passes)], part), 60);
    }

    /// Seed 170008407: both members had lost their stores, and a backup of one brought back what the other had used.
    #[test]
    fn what_a_backup_brings_back_of_another_that_was_lost_has_to_be_known_at_rest() {
        let (grants, slice) = grants();
        let sites: BTreeSet<SiteId> = [0, 1].map(site_id).into();
        let of = |site| Ledger::new(site_id(site), sites.clone(), grants.clone());
        let (knows_nothing, mut was_put_back) = (of(0), of(1));
        let mut row = Row::default();
        row.add(Cell::Used, 5);
        was_put_back.receive(site_id(0), Incarnation(1), [(slice, row)]);
        let ledgers = [(0, &knows_nothing), (1, &was_put_back)];
        let check = |lost: &[usize]| check_known(&ledgers, 0, &lost.iter().copied().collect());
        assert!(check(&[0, 1]).is_ok());
        for lost in [&[][..], &[0], &[1]] {
            let violation = check(lost).expect_err("it holds more");
            assert!(violation.message.contains("holds 5 of its Used"));
        }
    }
}
