//! Rows of data: what leaders pass on, and what a site may have at most.

use fairmesh_model::{AllocationId, Share};
use fairmesh_quota::{Cell, Ledger, Row, SliceId, Verdict, Want};

use super::*;

const DAY: u64 = 86_400_000;

/// What the planted faults are looked for with, beside the Grid.
#[cfg(feature = "mutants")]
pub(super) const ROWS: &[(&str, fn())] = &[
    ("passing", what_leaders_pass_on_leaves_the_whole),
    ("passing later", a_site_passes_on_what_it_has_left),
    (
        "asking for parts",
        what_parts_lack_is_asked_for_with_what_jobs_need,
    ),
    ("passing too much", parts_come_to_no_more_than_the_whole),
    ("ends of parts", a_part_ends_with_the_whole),
    (
        "prices of parts",
        what_a_job_of_a_part_costs_is_the_authoritys_to_say,
    ),
    (
        "claims to pass",
        a_part_that_the_whole_does_not_have_is_not_taken,
    ),
    ("at most", a_site_has_no_more_than_it_may),
    ("at most of parts", a_site_has_no_more_of_a_part_either),
];

/// A whole of 300 at three sites alike, and parts of it of so many hundredths, each signed later than the one before.
fn grid(percents: &[u64]) -> (Grants, SliceId, Vec<SliceId>) {
    let whole = allocation(vec![slice(300, 0, DAY)], &[1, 1, 1]);
    let parts = (2..).zip(percents).map(|(issued, percent)| Allocation {
        issued: WallTime(issued),
        ..part(&whole, *percent)
    });
    let parts: Vec<_> = parts.collect();
    let (grants, ids) = grants([whole].into_iter().chain(parts).collect());
    (grants, ids[0], ids[1..].to_vec())
}

fn site_of(me: u8, grants: &Grants) -> Ledger {
    let mut ledger = Ledger::new(site(me), members(3), grants.clone());
    ledger.tick(WallTime(1));
    ledger
}

fn other(number: u8, charge: u64) -> HoldRequest {
    HoldRequest {
        user: path("/P-A1/U-A12"),
        ..request(number, charge)
    }
}

#[test]
fn what_leaders_pass_on_leaves_the_whole() {
    let (grants, whole, parts) = grid(&[30]);
    let mut a = site_of(0, &grants);
    let now = WallTime(1);
    assert_eq!((a.spendable(whole), a.spendable(parts[0])), (70, 30));
    let passed = a.own_row(whole).expect("it has passed on").clone();
    assert_eq!(passed.get(Cell::Passed(parts[0].allocation)), 30);
    a.tick(now);
    assert_eq!(a.own_row(whole), Some(&passed), "once");
    // The user spends his part, and what is left of the whole where that is not enough; nobody else spends his part.
    assert_eq!(a.hold(now, &request(1, 30)).parts[0].slice, parts[0]);
    assert_eq!(a.hold(now, &other(2, 71)).verdict, Verdict::Refused);
    assert_eq!(a.hold(now, &request(3, 70)).parts[0].slice, whole);
    let (of_whole, of_part) = (a.slice_totals(whole, now), a.slice_totals(parts[0], now));
    // Of the others it is not known yet that they have passed anything on.
    assert_eq!(
        (of_whole.granted, of_whole.passed_on, of_whole.held),
        (300, 30, 70)
    );
    assert_eq!(
        (of_part.granted, of_part.lacking, of_part.held),
        (30, 60, 30)
    );
    let b = site_of(1, &grants);
    let row = b.own_row(whole).expect("it has passed on").clone();
    receive(&mut a, site(1), 1, [(whole, row)]);
    let of_part = a.slice_totals(parts[0], now);
    assert_eq!(
        (of_part.granted, of_part.lacking, of_part.spendable),
        (60, 30, 30)
    );
    // After a start it is as it was.
    let own = a.own_rows().map(|(id, row)| (id, row.clone())).collect();
    let marks = a.marks().map(|(job, mark)| (job.clone(), mark.clone()));
    let mut back = Ledger::restore(site(0), members(3), grants, (own, marks.collect()), true);
    back.tick(now);
    assert_eq!((back.spendable(whole), back.spendable(parts[0])), (0, 0));
}

#[test]
fn a_site_passes_on_what_it_has_left() {
    let (grants, whole, parts) = grid(&[30]);
    let mut a = Ledger::new(site(0), members(3), grants);
    let now = WallTime(1);
    assert_eq!(a.hold(now, &other(1, 95)).verdict, Verdict::Granted);
    a.tick(now);
    assert_eq!((a.spendable(whole), a.spendable(parts[0])), (0, 5));
    assert!(a.release(&job(1)));
    a.tick(now);
    assert_eq!((a.spendable(whole), a.spendable(parts[0])), (70, 30));
}

/// Seed 30000626: each transfer for jobs was passed on as it came, so the next was asked for five seconds later, for
/// an hour.
#[test]
fn what_parts_lack_is_asked_for_with_what_jobs_need() {
    let (grants, whole, parts) = grid(&[30]);
    let new = |me| Ledger::new(site(me), members(3), grants.clone());
    let (mut a, mut b) = (new(0), new(1));
    let now = WallTime(1);
    assert_eq!(a.hold(now, &other(1, 95)).verdict, Verdict::Granted);
    a.tick(now);
    assert_eq!((a.spendable(whole), a.spendable(parts[0])), (0, 5));
    let wants = a.ask(now, &path("/P-A1"), CoreMillis(10), |_, _| true);
    let [(to, want)] = wants[..] else {
        panic!("{wants:?}");
    };
    assert_eq!((to, want.amount), (site(1), CoreMillis(35)));
    assert_eq!(b.give(now, to, &want), CoreMillis(0), "not to itself");
    assert_eq!(b.give(now, site(0), &want), CoreMillis(35));
    let row = b.own_row(whole).expect("it has sent").clone();
    receive(&mut a, site(1), 1, [(whole, row)]);
    a.tick(now);
    assert_eq!((a.spendable(whole), a.spendable(parts[0])), (10, 30));
}

#[test]
fn parts_come_to_no_more_than_the_whole() {
    let (grants, whole, parts) = grid(&[60, 70]);
    let mut a = site_of(0, &grants);
    let left = |a: &Ledger| {
        (
            a.spendable(whole),
            a.spendable(parts[0]),
            a.spendable(parts[1]),
        )
    };
    assert_eq!(left(&a), (0, 60, 40), "who signed first comes first");
    let now = WallTime(1);
    assert_eq!(a.hold(now, &request(1, 100)).verdict, Verdict::Granted);
    assert_eq!(a.hold(now, &request(2, 1)).verdict, Verdict::Refused);
}

#[test]
fn a_part_ends_with_the_whole() {
    let whole = allocation(vec![slice(300, 0, DAY)], &[1]);
    let of_user = part(&whole, 50);
    let mut revoked = whole.clone();
    (revoked.version, revoked.id) = (2, Some(verified(whole.clone()).hash().into()));
    revoked.slices[0].end = WallTime(DAY / 2);
    let (grants, ids) = grants(vec![whole, revoked, of_user.clone()]);
    let part = SliceId {
        allocation: verified(of_user.clone()).hash().into(),
        index: 0,
    };
    assert_eq!(grants.whole(part), Some(ids[0]));
    assert_eq!(grants.parts(ids[0]).collect::<Vec<_>>(), [part]);
    let mut a = Ledger::new(site(0), members(1), grants.clone());
    a.tick(WallTime(1));
    let (before, after) = (WallTime(DAY / 2 - 1), WallTime(DAY / 2));
    assert_eq!(a.spendable_of(&of_user.path, before), 150);
    assert_eq!(a.spendable_of(&of_user.path, after), 0);
    assert_eq!(a.slice_totals(part, after).perished, 150);
    let alone = Grants::default().adopt(&verified(of_user));
    assert!(matches!(alone, Err(GrantError::Misfit { .. })));
}

#[test]
fn what_a_job_of_a_part_costs_is_the_authoritys_to_say() {
    let whole = Allocation {
        hold_max: Some(CoreMillis(50)),
        fee: Factor::ONE,
        ..allocation(vec![slice(300, 0, DAY)], &[1])
    };
    let cheap = Allocation {
        hold_max: None,
        hold_factor: Factor::from_millionths(1),
        fee: Factor::from_millionths(0),
        price_max: Some(Factor::from_millionths(1)),
        ..part(&whole, 50)
    };
    let (grants, _) = grants(vec![whole, cheap]);
    let mut a = Ledger::new(site(0), members(1), grants);
    let now = WallTime(1);
    a.tick(now);
    let answer = a.hold(now, &request(1, 40));
    assert_eq!(answer.parts[0].amount, CoreMillis(40));
    assert_eq!(a.hold(now, &request(2, 51)).verdict, Verdict::Refused);
}

#[test]
fn a_part_that_the_whole_does_not_have_is_not_taken() {
    for (claimed, taken) in [(30, 30), (101, 0), (1 << 40, 0)] {
        let (grants, whole, parts) = grid(&[100]);
        let mut a = site_of(0, &grants);
        let before = a.spendable(parts[0]);
        let row = |cells: &[(Cell, u64)]| {
            let mut row = Row::default();
            cells
                .iter()
                .for_each(|(cell, amount)| row.add(*cell, *amount));
            row
        };
        let of_whole = row(&[(Cell::Passed(parts[0].allocation), claimed)]);
        let of_part = row(&[(Cell::Sent(site(0)), claimed.min(100))]);
        receive(&mut a, site(1), 1, [(whole, of_whole), (parts[0], of_part)]);
        assert_eq!(a.spendable(parts[0]) - before, taken, "{claimed}");
    }
    // Nor one of which the whole says nothing at all.
    let (grants, _, parts) = grid(&[100]);
    let mut a = site_of(0, &grants);
    let mut sent = Row::default();
    sent.add(Cell::Sent(site(0)), 10);
    receive(&mut a, site(1), 1, [(parts[0], sent)]);
    assert_eq!(a.spendable(parts[0]), 100);
    let stranger = AllocationId::from_bytes([3; 32]);
    assert_eq!(
        a.granted(
            SliceId {
                allocation: stranger,
                index: 0
            },
            site(1)
        ),
        0
    );
}

#[test]
fn a_site_has_no_more_than_it_may() {
    let body = Allocation {
        at_most: [(site(1), Share::from_percent(40).expect("at most 100"))].into(),
        ..allocation(vec![slice(300, 0, DAY)], &[1, 1, 1])
    };
    let (grants, ids) = grants(vec![body]);
    let now = WallTime(1);
    let new = |me| Ledger::new(site(me), members(3), grants.clone());
    let (mut a, mut b, mut c) = (new(0), new(1), new(2));
    let want = |amount| Want {
        slice: ids[0],
        amount: CoreMillis(amount),
        taken: CoreMillis(0),
        claim: None,
    };
    let asked = b.ask(now, &path("/P-A1"), CoreMillis(90), |_, _| true);
    assert!(
        asked.iter().all(|(_, want)| want.amount == CoreMillis(20)),
        "{asked:?}"
    );
    assert_eq!(a.give(now, site(1), &want(90)), CoreMillis(20));
    assert_eq!(
        c.give(now, site(1), &want(90)),
        CoreMillis(20),
        "it has not heard of that"
    );
    for (from, of) in [(0, &a), (2, &c)] {
        let row = of.own_row(ids[0]).expect("it has sent").clone();
        receive(&mut b, site(from), 1, [(ids[0], row)]);
    }
    assert_eq!(b.spendable(ids[0]), 120);
    assert!(
        b.ask(now, &path("/P-A1"), CoreMillis(90), |_, _| true)
            .is_empty()
    );
    // What it cannot take is on the way until it has sent some away itself.
    assert_eq!(b.give(now, site(2), &want(15)), CoreMillis(15));
    let row = c.own_row(ids[0]).expect("it has sent").clone();
    receive(&mut b, site(2), 1, [(ids[0], row)]);
    assert_eq!(b.spendable(ids[0]), 120);
    // Of one that says it has more nothing is taken.
    let mut greedy = Row::default();
    greedy.add(Cell::Taken(site(2)), 50);
    greedy.add(Cell::Held, 130);
    greedy.add(Cell::Sent(site(0)), 5);
    let mut sender = c.own_row(ids[0]).expect("it has sent").clone();
    sender.add(Cell::Sent(site(1)), 30);
    let before = a.spendable(ids[0]);
    receive(&mut a, site(2), 1, [(ids[0], sender)]);
    receive(&mut a, site(1), 1, [(ids[0], greedy)]);
    assert_eq!(a.spendable(ids[0]), before);
}

/// Whatever the leaders sign.
#[test]
fn a_site_has_no_more_of_a_part_either() {
    let percent = |percent| Share::from_percent(percent).expect("at most 100");
    let whole = Allocation {
        at_most: [(site(1), percent(40))].into(),
        ..allocation(vec![slice(300, 0, DAY)], &[1, 1, 1])
    };
    let alike = Allocation {
        at_most: [(site(2), percent(50))].into(),
        ..part(&whole, 50)
    };
    let all_there = Allocation {
        at_most: Default::default(),
        split: [(site(1), 1)].into(),
        ..part(&whole, 20)
    };
    let (mut grants, ids) = grants(vec![whole, alike.clone(), all_there]);
    let most = |part, number| grants.at_most(ids[part], site(number));
    assert_eq!([0, 1, 2].map(|number| most(1, number)), [u64::MAX, 60, 75]);
    assert_eq!((most(2, 1), grants.initial(ids[2], site(1))), (24, 24));
    let mut b = site_of(1, &grants);
    assert_eq!([1, 2].map(|part| b.spendable(ids[part])), [50, 24]);
    let before = path("/P-A1/U-A11");
    let asked = b.ask(WallTime(1), &before, CoreMillis(90), |_, part| {
        part == ids[1]
    });
    assert!(
        asked.iter().all(|(_, want)| want.amount == CoreMillis(10)),
        "{asked:?}"
    );
    let mut sent = Row::default();
    sent.add(Cell::Sent(site(1)), 40);
    let mut passed = Row::default();
    passed.add(Cell::Passed(ids[1].allocation), 50);
    // Or where others' rights are there before it has passed on its own.
    let mut late = Ledger::new(site(1), members(3), grants.clone());
    for of in [&mut b, &mut late] {
        let rows = [(ids[0], passed.clone()), (ids[1], sent.clone())];
        receive(of, site(0), 1, rows);
        of.tick(WallTime(1));
        assert_eq!(of.spendable(ids[1]), 60);
    }
    // A later version says as little of it, and is one of the same.
    let mut ended = alike;
    (ended.version, ended.id) = (2, Some(ids[1].allocation));
    ended.slices[0].end = WallTime(2);
    assert_eq!(grants.adopt(&verified(ended)), Ok(true));
}
