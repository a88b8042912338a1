//! Rows of data: what the rules come to in small cases that can be worked out by hand.

use fairmesh_model::{
    AccountPath, AllocationId, CoreMillis, Factor, Importance, Incarnation, Millis, QuotaMode,
    Settlement, Share, WallTime,
};
use fairmesh_quota::decision::{Case, band, decide};
use fairmesh_quota::price::{LoadPrice, charge, hold, with_fee};
use fairmesh_quota::slices::{Period, divide, expiring, windows};
use fairmesh_quota::{Answer, Cell, Decider, Ledger, Row, State, Verdict, Want};

use super::*;

const DAY: u64 = 86_400_000;

/// What the planted faults are looked for with, beside the Grid.
#[cfg(feature = "mutants")]
pub(super) const ROWS: &[(&str, fn())] = &[
    ("windows of three", a_window_is_used_or_lost),
    ("expiring slices", expiring_slices_can_be_spent_early),
    ("a transfer", rights_that_were_sent_are_spent_once),
    ("a job of eight cores", prices_are_fixed_at_the_hold),
    ("more than was held", what_was_not_held_is_overdrawn),
    ("a resized job", a_resized_job_holds_on_to_what_is_left),
    ("bands", those_within_their_quota_come_first),
    ("prices by load", prices_follow_load),
    ("settling", an_overdraft_is_settled_by_what_comes_next),
    ("soft", a_site_owes_its_part_of_the_overdraft),
    ("asking", what_is_owed_is_asked_for_with_what_is_needed),
    ("owners", owners_have_the_last_word),
    ("replacing", a_hold_is_replaced_or_stays),
    ("expiring holds", a_hold_that_nobody_speaks_of_expires),
    ("credits", an_error_is_given_back_once),
    ("versions", later_versions_take_nothing_back_that_was_spent),
    ("largest", one_job_may_hold_so_much),
    ("accounts", the_deepest_account_with_rights_pays),
    ("split", a_split_sums_up),
    ("liars", what_a_row_does_not_account_for_is_not_taken),
    ("two tales", what_each_is_shown_alone_is_taken_once),
    (
        "witnesses",
        who_has_witnessed_takes_nothing_that_contradicts_it,
    ),
    ("giving", a_site_sends_what_it_has_and_keeps_a_floor),
    ("recalling", what_others_have_taken_was_sent),
    ("two credits", no_job_is_given_back_more_than_it_was_charged),
    ("late heads", a_head_that_comes_late_offers_nothing),
    (
        "loss",
        jobs_that_end_while_rights_are_frozen_are_charged_later,
    ),
    ("alone", a_site_that_was_alone_for_a_moment_waits_for_others),
];

fn ledger(me: u8, slices: Vec<AllocationSlice>, split: &[u64]) -> (Ledger, Vec<SliceId>) {
    let (grants, ids) = grants(vec![allocation(slices, split)]);
    let count = u8::try_from(split.len()).expect("few");
    (Ledger::new(site(me), members(count), grants), ids)
}

fn period() -> Period {
    Period {
        from: WallTime(0),
        until: WallTime(30 * DAY),
        slices: 3,
        grace: Millis(0),
    }
}

fn parts(answer: &Answer) -> Vec<(u32, u64)> {
    let parts = answer.parts.iter();
    parts
        .map(|part| (part.slice.index, part.amount.0))
        .collect()
}

fn user() -> AccountPath {
    path("/P-A1/U-A11")
}

#[test]
fn a_window_is_used_or_lost() {
    let (mut ledger, _) = ledger(0, windows(CoreMillis(1_000), period()), &[1]);
    let answer = ledger.hold(WallTime(5 * DAY), &request(1, 400));
    assert_eq!(
        (answer.verdict, answer.short),
        (Verdict::Refused, CoreMillis(67))
    );
    assert!(
        answer
            .message
            .expect("a reason")
            .contains("next slice (0.0) in 5 days")
    );
    assert!(ledger.mark(&job(1)).is_none());
    let answer = ledger.hold(WallTime(5 * DAY), &request(1, 333));
    assert_eq!(
        (answer.verdict, parts(&answer)),
        (Verdict::Granted, vec![(0, 333)])
    );
    // At the border the next one lives, and the one before does not.
    assert_eq!(
        parts(&ledger.hold(WallTime(10 * DAY), &request(2, 333))),
        [(1, 333)]
    );
    assert_eq!(
        ledger.hold(WallTime(10 * DAY), &request(3, 1)).verdict,
        Verdict::Refused
    );
}

#[test]
fn a_check_counts_what_is_ahead_and_holds_nothing() {
    let (mut ledger, _) = ledger(0, windows(CoreMillis(1_000), period()), &[1]);
    ledger.take_changes();
    for (ahead, verdict) in [
        (0, Verdict::Granted),
        (33, Verdict::Granted),
        (34, Verdict::Refused),
        (u64::MAX, Verdict::Refused),
    ] {
        let at = WallTime(5 * DAY);
        let answer = ledger.check(at, &request(1, 300), CoreMillis(ahead));
        assert_eq!(answer.verdict, verdict, "{ahead}");
        assert_eq!(parts(&answer).is_empty(), verdict == Verdict::Refused);
    }
    assert_eq!(ledger.take_changes(), Default::default());
    assert!(ledger.mark(&job(1)).is_none());
}

#[test]
fn a_check_tells_nothing_of_what_a_job_of_that_name_holds() {
    let (mut ledger, _) = ledger(0, windows(CoreMillis(1_000), period()), &[1]);
    let at = WallTime(5 * DAY);
    assert_eq!(ledger.hold(at, &request(1, 123)).verdict, Verdict::Granted);
    let short = |number| {
        let answer = ledger.check(at, &request(number, 300), CoreMillis(u64::MAX));
        (answer.short, answer.price, answer.message)
    };
    assert_eq!(short(1), short(2));
    assert_eq!(short(1).0, CoreMillis(300));
}

#[test]
fn expiring_slices_can_be_spent_early() {
    let (mut ledger, ids) = ledger(0, expiring(CoreMillis(1_000), period()), &[1]);
    let answer = ledger.hold(WallTime(5 * DAY), &request(1, 400));
    assert_eq!(parts(&answer), [(0, 333), (1, 67)]);
    let at = WallTime(10 * DAY);
    assert_eq!(ledger.slice_totals(ids[0], at).perished, 0);
    assert!(ledger.release(&job(1)));
    let first = ledger.slice_totals(ids[0], at);
    let second = ledger.slice_totals(ids[1], at);
    assert_eq!((first.perished, first.held), (333, 0));
    assert_eq!((second.spendable, second.perished), (333, 0));
}

#[test]
fn rights_that_were_sent_are_spent_once() {
    let (grants, ids) = grants(vec![allocation(vec![slice(300, 0, DAY)], &[1, 1, 1])]);
    let now = WallTime(1);
    let new = |me| Ledger::new(site(me), members(3), grants.clone());
    let (mut a, mut b) = (new(0), new(1));
    // b has not heard of anything yet.
    assert_eq!(b.hold(now, &request(1, 150)).verdict, Verdict::Refused);
    assert_eq!(b.spendable(ids[0]), 100);
    let want = Want {
        slice: ids[0],
        amount: CoreMillis(60),
        taken: CoreMillis(0),
        claim: None,
    };
    assert_eq!(a.give(now, site(1), &want), CoreMillis(60));
    assert_eq!(
        a.give(now, site(1), &want),
        CoreMillis(0),
        "it is on the way"
    );
    assert_eq!(a.spendable(ids[0]), 40);
    let row = a.own_row(ids[0]).expect("it has sent").clone();
    for _ in 0..2 {
        receive(&mut b, site(0), 1, [(ids[0], row.clone())]);
        assert_eq!(b.spendable(ids[0]), 160);
    }
    assert_eq!(b.hold(now, &request(1, 150)).verdict, Verdict::Granted);
    b.commit(now, &job(1), CoreMillis(150), &user());
    assert_eq!(b.hold(now, &request(2, 10)).verdict, Verdict::Granted);
    let own = b.own_row(ids[0]).expect("it counts");
    assert_eq!((own.used(), own.held(), b.spendable(ids[0])), (150, 10, 0));
    let totals = b.slice_totals(ids[0], now);
    assert_eq!(
        (
            totals.used,
            totals.held,
            totals.spendable,
            totals.on_the_way
        ),
        (150, 10, 140, 0)
    );
    assert_eq!(totals.granted, 300);
}

#[test]
fn prices_are_fixed_at_the_hold() {
    let price = Factor::from_millionths(1_250_000);
    let (mut ledger, ids) = ledger(0, vec![slice(40_000_000, 0, DAY)], &[1]);
    let asked = HoldRequest {
        price,
        ..request(1, 8 * 3_600_000)
    };
    let answer = ledger.hold(WallTime(1), &asked);
    assert_eq!(
        (parts(&answer), answer.price),
        (vec![(0, 36_000_000)], price)
    );
    let cost = charge(CoreMillis(8 * 3_000_000), answer.price, Factor::ONE);
    let committed = ledger
        .commit(WallTime(2), &job(1), cost, &user())
        .expect("it is charged");
    assert_eq!(committed.used[0].amount, CoreMillis(30_000_000));
    assert_eq!(ledger.spendable(ids[0]), 10_000_000);
    let third = Factor::from_millionths(333_333);
    assert_eq!(hold(CoreMillis(1), Factor::ONE, third), CoreMillis(1));
    assert_eq!(charge(CoreMillis(1), third, Factor::ONE), CoreMillis(0));
}

#[test]
fn a_resized_job_holds_on_to_what_is_left() {
    let price = Factor::from_millionths(500_000);
    let (mut ledger, ids) = ledger(0, vec![slice(60, 0, DAY), slice(100, 0, 2 * DAY)], &[1]);
    let asked = HoldRequest {
        price,
        ..request(1, 200)
    };
    assert_eq!(parts(&ledger.hold(WallTime(1), &asked)), [(0, 60), (1, 40)]);
    let counts = |ledger: &Ledger| {
        let count = |id| ledger.own_row(id).map(|row| (row.used(), row.held()));
        [count(ids[0]), count(ids[1])].map(Option::unwrap_or_default)
    };
    // Its first part costs 30; said again, or of a part that is known, nothing changes.
    for _ in 0..2 {
        ledger.hand_on(&job(1), &job(2), CoreMillis(30));
        ledger.commit(WallTime(2), &job(1), CoreMillis(30), &user());
        assert_eq!(counts(&ledger), [(30, 30), (0, 40)]);
    }
    let next = ledger.mark(&job(2)).expect("it goes on");
    assert_eq!((next.state, next.price), (State::Held, price));
    let committed = ledger.commit(WallTime(3), &job(2), CoreMillis(50), &user());
    let committed = committed.expect("it is charged");
    assert!(!committed.is_unasked);
    assert_eq!(counts(&ledger), [(60, 0), (20, 0)]);
    // One that nobody had asked about has nothing to hand on.
    ledger.hand_on(&job(3), &job(4), CoreMillis(1));
    assert_eq!(ledger.mark(&job(4)), None);
}

#[test]
fn what_was_not_held_is_overdrawn() {
    let (mut ledger, ids) = ledger(0, vec![slice(115, 0, DAY)], &[1]);
    ledger.hold(WallTime(1), &request(1, 100));
    let committed = ledger.commit(WallTime(2), &job(1), CoreMillis(120), &user());
    let committed = committed.expect("it is charged");
    assert_eq!(committed.overdraft, CoreMillis(5));
    let row = ledger.own_row(ids[0]).expect("it counts").clone();
    assert_eq!((row.used(), row.held(), row.overdraft()), (115, 0, 5));
    // The same again, another amount, and a hold that comes late: nothing changes.
    for charge in [120, 500] {
        let again = ledger.commit(WallTime(3), &job(1), CoreMillis(charge), &user());
        assert_eq!(again.as_ref(), Some(&committed));
    }
    assert_eq!(
        ledger.hold(WallTime(3), &request(1, 100)).verdict,
        Verdict::Ended
    );
    assert!(ledger.release(&job(1)));
    assert_eq!(ledger.own_row(ids[0]), Some(&row));
    // A job that nobody had asked for.
    let unasked = ledger.commit(WallTime(3), &job(2), CoreMillis(7), &user());
    let unasked = unasked.expect("its account has an allocation");
    assert!(unasked.is_unasked && !committed.is_unasked);
    assert_eq!(ledger.own_row(ids[0]).expect("it counts").overdraft(), 12);
    assert_eq!(
        ledger.commit(WallTime(3), &job(3), CoreMillis(7), &path("/P-B1")),
        None
    );
}

#[test]
fn those_within_their_quota_come_first() {
    let factor = Share::from_units(400_000_000).expect("at most 1");
    assert_eq!(band(factor, false).units(), 200_000_000);
    assert_eq!(band(factor, true).units(), 700_000_000);
}

#[test]
fn prices_follow_load() {
    for (load, price) in [
        (1_500_000, 1_300_000),
        (100_000, 600_000),
        (4_000_000, 2_000_000),
    ] {
        let at = LoadPrice::default().at(Factor::from_millionths(load));
        assert_eq!(at.millionths(), price);
    }
    let most = Importance::MAX;
    let fee = with_fee(
        Factor::ONE,
        most,
        Factor::from_millionths(500_000),
        Factor::ONE,
    );
    assert_eq!(fee.millionths(), 1_500_000);
}

#[test]
fn an_overdraft_is_settled_by_what_comes_next() {
    for (settle, paid) in [(Settlement::Next, 30), (Settlement::Manual, 0)] {
        let slices = vec![slice(100, 0, DAY), slice(100, DAY, 2 * DAY)];
        let body = Allocation {
            settle,
            ..allocation(slices, &[1])
        };
        let (grants, ids) = grants(vec![body]);
        let mut ledger = Ledger::new(site(0), members(1), grants);
        ledger.commit(WallTime(1), &job(1), CoreMillis(130), &user());
        ledger.tick(WallTime(2));
        assert_eq!(ledger.own_row(ids[0]).expect("it counts").overdraft(), 30);
        ledger.tick(WallTime(DAY));
        assert_eq!(
            ledger.own_row(ids[0]).expect("it counts").overdraft(),
            30 - paid
        );
        assert_eq!(ledger.spendable(ids[1]), 100 - paid);
    }
}

/// Seed 8000530: each transfer was settled away as it came, so the next was asked for five seconds later, until
/// nothing was owed any more.
#[test]
fn what_is_owed_is_asked_for_with_what_is_needed() {
    for (settle, asked, left) in [(Settlement::Next, 40, 10), (Settlement::Manual, 10, 10)] {
        let body = Allocation {
            settle,
            ..allocation(vec![slice(200, 0, DAY)], &[1, 1])
        };
        let (grants, ids) = grants(vec![body]);
        let now = WallTime(1);
        let new = |me| Ledger::new(site(me), members(2), grants.clone());
        let (mut a, mut b) = (new(0), new(1));
        b.commit(now, &job(1), CoreMillis(130), &user());
        let path = b.grants().paths().next().expect("one").clone();
        let wants = b.ask(now, &path, CoreMillis(10), |_, _| true);
        let [(to, want)] = wants[..] else {
            panic!("{wants:?}");
        };
        assert_eq!((to, want.amount), (site(0), CoreMillis(asked)));
        assert_eq!(a.give(now, site(1), &want), CoreMillis(asked));
        let row = a.own_row(ids[0]).expect("it has sent").clone();
        receive(&mut b, site(0), 1, [(ids[0], row)]);
        b.tick(now);
        assert_eq!(b.spendable(ids[0]), left);
    }
}

#[test]
fn a_site_owes_its_part_of_the_overdraft() {
    let body = Allocation {
        mode: Some(QuotaMode::Soft),
        overdraft_max: CoreMillis(60),
        ..allocation(vec![slice(100, 0, DAY)], &[2, 1])
    };
    let (grants, _) = grants(vec![body]);
    let mut ledger = Ledger::new(site(1), members(2), grants);
    // 33 are granted here, and 20 may be owed.
    let answer = ledger.hold(WallTime(1), &request(1, 50));
    assert_eq!(
        (answer.verdict, parts(&answer), answer.short.0),
        (Verdict::OverQuota, vec![(0, 33)], 17)
    );
    assert_eq!(
        ledger.hold(WallTime(1), &request(2, 4)).verdict,
        Verdict::Refused
    );
    assert_eq!(
        ledger.hold(WallTime(1), &request(2, 3)).verdict,
        Verdict::OverQuota
    );
    ledger.commit(WallTime(2), &job(1), CoreMillis(40), &user());
    assert_eq!(
        ledger.hold(WallTime(2), &request(3, 11)).verdict,
        Verdict::Refused
    );
    assert_eq!(
        ledger.hold(WallTime(2), &request(3, 10)).verdict,
        Verdict::OverQuota
    );
}

#[test]
fn owners_have_the_last_word() {
    let (mut ledger, ids) = ledger(0, vec![slice(100, 0, DAY)], &[1]);
    let advisory = HoldRequest {
        owner: Some(QuotaMode::Advisory),
        ..request(1, 200)
    };
    let answer = ledger.hold(WallTime(1), &advisory);
    assert_eq!(
        (answer.verdict, answer.by),
        (Verdict::OverQuota, Some(Decider::Owner))
    );
    let exempt = HoldRequest {
        account: Some(path("/P-A1")),
        is_exempt: true,
        ..request(2, 200)
    };
    assert_eq!(ledger.hold(WallTime(1), &exempt).verdict, Verdict::Exempt);
    ledger.commit(WallTime(2), &job(2), CoreMillis(60), &user());
    let row = ledger.own_row(ids[0]).expect("it counts");
    assert_eq!((row.used(), row.overdraft()), (0, 0));
    let idle = HoldRequest {
        is_idle: true,
        ..request(3, 200)
    };
    let answer = ledger.hold(WallTime(1), &idle);
    assert_eq!((answer.verdict, answer.parts.len()), (Verdict::Idle, 0));
    let waits = HoldRequest {
        may_wait: true,
        ..request(4, 200)
    };
    assert_eq!(ledger.hold(WallTime(1), &waits).verdict, Verdict::Waiting);
    // Nobody has granted anything: no quotas.
    let mut free = Ledger::new(site(0), members(1), Grants::default());
    let answer = free.hold(WallTime(1), &request(1, 200));
    assert_eq!(
        (answer.verdict, answer.by),
        (Verdict::Exempt, Some(Decider::Vo))
    );
    let case = Case {
        owner: Some(QuotaMode::Soft),
        ..Case::default()
    };
    assert_eq!(decide(&case), (Verdict::Refused, Decider::Owner));
}

#[test]
fn a_hold_is_replaced_or_stays() {
    let (mut ledger, ids) = ledger(0, vec![slice(100, 0, DAY)], &[1]);
    let now = WallTime(1);
    let held = |ledger: &Ledger| ledger.own_row(ids[0]).expect("it counts").held();
    ledger.hold(now, &request(1, 60));
    for (charge, verdict, expected) in [
        (60, Verdict::Granted, 60),
        (90, Verdict::Granted, 90),
        (101, Verdict::Refused, 90),
        (20, Verdict::Granted, 20),
        (100, Verdict::Granted, 100),
    ] {
        let answer = ledger.hold(now, &request(1, charge));
        assert_eq!(
            (answer.verdict, held(&ledger)),
            (verdict, expected),
            "{charge}"
        );
    }
    ledger.hold(now, &request(1, 30));
    assert_eq!(ledger.hold(now, &request(2, 70)).verdict, Verdict::Granted);
}

#[test]
fn a_hold_that_nobody_speaks_of_expires() {
    let (mut ledger, ids) = ledger(0, vec![slice(100, 0, DAY)], &[1]);
    for number in [1, 2] {
        let until = WallTime(100);
        ledger.hold(
            WallTime(1),
            &HoldRequest {
                until,
                ..request(number, 40)
            },
        );
    }
    ledger.renew(&job(2), WallTime(200));
    ledger.tick(WallTime(99));
    assert_eq!(ledger.spendable(ids[0]), 20);
    ledger.tick(WallTime(100));
    assert_eq!(ledger.spendable(ids[0]), 60);
    assert_eq!(
        ledger.mark(&job(1)).map(|mark| mark.state),
        Some(State::Expired)
    );
    let late = ledger.commit(WallTime(110), &job(1), CoreMillis(50), &user());
    assert!(late.expect("it is charged").is_unasked);
    assert_eq!(ledger.spendable(ids[0]), 10);
}

#[test]
fn an_error_is_given_back_once() {
    let (mut ledger, ids) = ledger(0, vec![slice(100, 0, DAY)], &[1]);
    ledger.commit(WallTime(1), &job(1), CoreMillis(130), &user());
    let mut correct = |amount| ledger.correct(WallTime(2), &job(1), CoreMillis(amount));
    assert_eq!(correct(50), Some(CoreMillis(50)));
    assert_eq!(correct(100), Some(CoreMillis(80)));
    assert_eq!(correct(1), Some(CoreMillis(0)));
    let row = ledger.own_row(ids[0]).expect("it counts");
    assert_eq!((row.used(), row.overdraft()), (0, 0));
    assert_eq!(ledger.spendable(ids[0]), 100);
    assert_eq!(ledger.correct(WallTime(2), &job(9), CoreMillis(1)), None);
}

#[test]
fn later_versions_take_nothing_back_that_was_spent() {
    let first = verified(allocation(vec![slice(100, 0, DAY)], &[1, 1]));
    let second = |change: fn(&mut Allocation)| {
        let mut body = first.body().clone();
        (body.version, body.id) = (2, Some(first.hash().into()));
        change(&mut body);
        verified(body)
    };
    let adopt = |change| {
        let mut grants = Grants::default();
        grants.adopt(&first).expect("the first");
        grants.adopt(&second(change))
    };
    assert_eq!(adopt(|body| body.slices[0].end = WallTime(9)), Ok(true));
    assert_eq!(adopt(|body| body.mode = None), Ok(true));
    let forbidden: [fn(&mut Allocation); 5] = [
        |body| body.slices[0].amount = CoreMillis(101),
        |body| body.slices[0].start = WallTime(1),
        |body| body.slices[0].end = WallTime(DAY + 1),
        |body| body.slices.push(slice(1, 0, DAY)),
        |body| body.split = [(site(0), 1)].into(),
    ];
    for change in forbidden {
        assert!(matches!(adopt(change), Err(GrantError::Changed { .. })));
    }
    let mut grants = Grants::default();
    let revoked = second(|body| body.slices[0].end = WallTime(9));
    assert_eq!(grants.adopt(&revoked), Ok(true));
    assert_eq!(grants.adopt(&revoked), Ok(false));
    assert!(matches!(
        grants.adopt(&first),
        Err(GrantError::Older { .. })
    ));
    assert!(grants.live(&path("/P-A1"), WallTime(9)).is_empty());
}

#[test]
fn one_job_may_hold_so_much() {
    let body = Allocation {
        hold_max: Some(CoreMillis(50)),
        hold_factor: Factor::from_millionths(500_000),
        ..allocation(vec![slice(1_000, 0, DAY)], &[1])
    };
    let (grants, _) = grants(vec![body]);
    let mut ledger = Ledger::new(site(0), members(1), grants);
    assert_eq!(
        parts(&ledger.hold(WallTime(1), &request(1, 100))),
        [(0, 50)]
    );
    let answer = ledger.hold(WallTime(1), &request(2, 101));
    assert_eq!(answer.verdict, Verdict::Refused);
    assert!(
        answer
            .message
            .expect("a reason")
            .contains("one job may hold")
    );
}

#[test]
fn the_deepest_account_with_rights_pays() {
    let of = |path: &str, amount| Allocation {
        path: AccountPath::parse(path).expect("valid"),
        ..allocation(vec![slice(amount, 0, DAY)], &[1])
    };
    let closed = Allocation {
        members: [path("/P-A1/U-A12")].into(),
        ..of("/P-A1", 1_000)
    };
    let (grants, _) = grants(vec![of("/", 500), of("/P-A1/U-A11", 10), closed]);
    let mut ledger = Ledger::new(site(0), members(1), grants);
    let mut account = |number, charge, user: &str, named: Option<&str>| {
        let named = named.map(path);
        let request = HoldRequest {
            user: path(user),
            account: named,
            ..request(number, charge)
        };
        let answer = ledger.hold(WallTime(1), &request);
        answer
            .account
            .map(|account| (account.to_string(), answer.verdict))
    };
    let paid = |account: &str| Some((account.to_owned(), Verdict::Granted));
    assert_eq!(account(1, 10, "/P-A1/U-A11", None), paid("/P-A1/U-A11"));
    assert_eq!(account(2, 10, "/P-A1/U-A11", None), paid("/"));
    assert_eq!(account(3, 10, "/P-A1/U-A12", None), paid("/P-A1"));
    assert_eq!(account(4, 10, "/P-A1/U-A12", Some("/")), paid("/"));
    assert_eq!(account(5, 10, "/P-B1", Some("/P-A1")), None);
}

/// Whatever other allocations of the path there are, or were.
#[test]
fn what_an_allocation_grants_only_its_members_spend() {
    let open = Allocation {
        mode: Some(QuotaMode::Soft),
        overdraft_max: CoreMillis(50),
        ..allocation(vec![slice(100, 0, 10)], &[1])
    };
    let closed = Allocation {
        members: [path("/P-A1/U-A12")].into(),
        issued: WallTime(2),
        ..allocation(vec![slice(1_000, 0, DAY)], &[1])
    };
    let (grants, ids) = grants(vec![open, closed]);
    let mut ledger = Ledger::new(site(0), members(1), grants);
    let member = |number, charge| HoldRequest {
        user: path("/P-A1/U-A12"),
        ..request(number, charge)
    };
    let now = WallTime(5);
    let answer = ledger.check(now, &request(1, 200), CoreMillis(0));
    let message = answer.message.expect("a reason");
    assert!(
        message.contains("0.0 core-hours left here, 0.0 in the VO"),
        "{message}"
    );
    let answer = ledger.hold(now, &request(1, 120));
    let held = (ids[0], CoreMillis(100));
    let of = |answer: &Answer| {
        answer
            .parts
            .iter()
            .map(|part| (part.slice, part.amount))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (answer.verdict, of(&answer)),
        (Verdict::OverQuota, vec![held])
    );
    // What it owes then is not paid by the others' credit.
    let charged = ledger
        .commit(now, &job(1), CoreMillis(150), &user())
        .expect("it was held");
    assert_eq!(charged.overdraft, CoreMillis(50));
    ledger.tick(now);
    assert_eq!(
        (
            ledger.spendable(ids[1]),
            ledger.own_row(ids[0]).expect("it counts").overdraft()
        ),
        (1_000, 50)
    );
    assert!(!ledger.is_within(&user(), now) && !ledger.funded(now).is_within(&user()));
    assert!(ledger.funded(now).is_within(&path("/P-A1/U-A12")));
    assert_eq!(ledger.hold(now, &member(2, 400)).verdict, Verdict::Granted);
    // Once the first has ended it lets nobody in, and its debts are the project's.
    let later = WallTime(20);
    let refused = ledger.hold(later, &request(3, 1));
    assert_eq!((refused.verdict, refused.account), (Verdict::Refused, None));
    assert_eq!(ledger.commit(later, &job(3), CoreMillis(1), &user()), None);
    ledger.tick(later);
    assert_eq!(ledger.spendable(ids[1]), 550);
    assert_eq!(
        ledger.hold(later, &member(4, 550)).verdict,
        Verdict::Granted
    );
}

/// What a job was promised of one account makes no room in another.
#[test]
fn a_job_that_moves_to_another_account_finds_what_others_were_promised_there() {
    let of = |at: &str| Allocation {
        path: path(at),
        mode: Some(QuotaMode::Soft),
        overdraft_max: CoreMillis(50),
        ..allocation(vec![slice(1, 0, DAY)], &[1])
    };
    let (grants, _) = grants(vec![of("/"), of("/P-A1")]);
    let mut ledger = Ledger::new(site(0), members(1), grants);
    let mut verdict = |number, account: &str| {
        let request = HoldRequest {
            account: Some(path(account)),
            ..request(number, 50)
        };
        ledger.hold(WallTime(1), &request).verdict
    };
    assert_eq!(verdict(1, "/"), Verdict::OverQuota);
    assert_eq!(verdict(2, "/P-A1"), Verdict::OverQuota);
    assert_eq!(verdict(1, "/P-A1"), Verdict::Refused);
    assert_eq!(verdict(2, "/P-A1"), Verdict::OverQuota, "asked again");
}

#[test]
fn a_split_sums_up() {
    let parts = divide(10, &(0..).map(site).zip([1, 1, 1]).collect());
    assert_eq!(parts.into_values().collect::<Vec<_>>(), [4, 3, 3]);
}

#[test]
fn jobs_can_be_gone_through_some_at_a_time() {
    let (grants, _) = grants(vec![allocation(vec![slice(100, 0, DAY)], &[1, 0])]);
    let mut ledger = Ledger::new(site(0), members(2), grants);
    for number in 1..=5 {
        ledger.hold(WallTime(1), &request(number, 10));
    }
    let mut jobs: Vec<JobKey> = Vec::new();
    loop {
        let some = ledger.marks_after(jobs.last()).take(2);
        let some: Vec<JobKey> = some.map(|(job, _)| job.clone()).collect();
        if some.is_empty() {
            break;
        }
        jobs.extend(some);
    }
    assert!(jobs.iter().eq(ledger.marks().map(|(job, _)| job)));
    assert_eq!(jobs.len(), 5);
}

#[test]
fn jobs_that_end_while_rights_are_frozen_are_charged_later() {
    let (grants, ids) = grants(vec![allocation(vec![slice(100, 0, DAY)], &[1, 0])]);
    let mut ledger = Ledger::new(site(0), members(2), grants.clone());
    ledger.hold(WallTime(1), &request(1, 40));
    let marks = ledger
        .marks()
        .map(|(job, mark)| (job.clone(), mark.clone()))
        .collect();
    let old: Rows = ledger
        .own_rows()
        .map(|(id, row)| (id, row.clone()))
        .collect();
    // What was published later than the copy that comes back.
    ledger.hold(WallTime(1), &request(2, 30));
    ledger.commit(WallTime(1), &job(3), CoreMillis(20), &user());
    let published: Vec<(SliceId, Row)> = ledger
        .own_rows()
        .map(|(id, row)| (id, row.clone()))
        .collect();
    let mut back = Ledger::restore(site(0), members(2), grants, (old, marks), false);
    assert_eq!(
        back.hold(WallTime(2), &request(4, 1)).verdict,
        Verdict::Refused
    );
    let pending = back
        .commit(WallTime(2), &job(1), CoreMillis(35), &user())
        .expect("it is charged");
    assert_eq!((pending.pending.0, pending.used.len()), (35, 0));
    back.receive(site(0), Incarnation(1), published);
    back.hear(WallTime(3), site(1));
    let row = back.own_row(ids[0]).expect("it is back");
    assert_eq!(
        (row.get(Cell::Used), row.held(), back.spendable(ids[0])),
        (55, 30, 15)
    );
    // The hold whose mark is lost covers the job when it is reported.
    back.commit(WallTime(4), &job(2), CoreMillis(25), &user());
    let row = back.own_row(ids[0]).expect("it counts");
    assert_eq!(
        (row.get(Cell::Used), row.held(), row.overdraft()),
        (80, 5, 0)
    );
}

#[test]
fn a_head_that_comes_late_offers_nothing() {
    let (grants, ids) = grants(vec![allocation(vec![slice(200, 0, DAY)], &[1, 1])]);
    let now = WallTime(1);
    let mut b = Ledger::new(site(1), members(2), grants.clone());
    let mut a = Ledger::new(site(0), members(2), grants.clone());
    let want = Want {
        slice: ids[0],
        amount: CoreMillis(60),
        taken: CoreMillis(0),
        claim: None,
    };
    a.give(now, site(1), &want);
    let late = a.own_row(ids[0]).expect("it has sent").clone();
    // It loses its store, and nobody has received what it had sent.
    let nothing = Default::default();
    let mut a = Ledger::restore(site(0), members(2), grants, nothing, false);
    receive(&mut b, site(0), 2, Rows::new());
    a.hear(now, site(1));
    assert_eq!(a.hold(now, &request(1, 100)).verdict, Verdict::Granted);
    receive(&mut b, site(0), 1, [(ids[0], late)]);
    assert_eq!(b.spendable(ids[0]), 100);
}

#[test]
fn what_a_row_does_not_account_for_is_not_taken() {
    let (grants, ids) = grants(vec![allocation(vec![slice(300, 0, DAY)], &[1, 1, 1])]);
    let row = |cells: &[(Cell, u64)]| {
        let mut row = Row::default();
        cells
            .iter()
            .for_each(|(cell, amount)| row.add(*cell, *amount));
        [(ids[0], row)]
    };
    let (me, liar, other) = (site(1), site(0), site(2));
    let sends = |amount| (Cell::Sent(me), amount);
    // What the liar says, what another says, and what comes of it.
    for (says, of_other, taken) in [
        (vec![sends(100)], vec![], 100),
        (vec![sends(101)], vec![], 0),
        (vec![sends(60), (Cell::Used, 41)], vec![], 0),
        (vec![sends(60), (Cell::Sent(other), 41)], vec![], 0),
        (vec![sends(150), (Cell::Taken(other), 50)], vec![], 0),
        (
            vec![sends(150), (Cell::Taken(other), 50)],
            vec![(Cell::Used, 1)],
            0,
        ),
        (
            vec![sends(150), (Cell::Taken(other), 50)],
            vec![(Cell::Sent(liar), 50)],
            150,
        ),
        (
            vec![sends(300), (Cell::Taken(other), 200)],
            vec![(Cell::Sent(liar), 200)],
            0,
        ),
    ] {
        let mut ledger = Ledger::new(me, members(3), grants.clone());
        receive(&mut ledger, liar, 1, row(&says));
        receive(&mut ledger, other, 1, row(&of_other));
        assert_eq!(
            ledger.spendable(ids[0]),
            100 + taken,
            "{says:?} {of_other:?}"
        );
        // It stays here, whatever is shown later; and nothing more comes of one that contradicts itself.
        ledger.distrust(liar);
        receive(&mut ledger, liar, 2, row(&[sends(200), (Cell::Used, 900)]));
        assert_eq!(ledger.spendable(ids[0]), 100 + taken);
    }
}

/// Rows of one slice.
fn rows_of(id: SliceId, cells: &[(Cell, u64)]) -> [(SliceId, Row); 1] {
    let mut row = Row::default();
    let mut add = |(cell, amount): &(Cell, u64)| row.add(*cell, *amount);
    cells.iter().for_each(&mut add);
    [(id, row)]
}

#[test]
fn what_each_is_shown_alone_is_taken_once() {
    let (grants, ids) = grants(vec![allocation(vec![slice(300, 0, DAY)], &[1, 1, 1])]);
    let new = |me| Ledger::new(site(me), members(3), grants.clone());
    let (mut b, mut c) = (new(1), new(2));
    let shown = |to: u8| rows_of(ids[0], &[(Cell::Sent(site(to)), 100)]);
    b.receive(site(0), Incarnation(1), shown(1));
    c.receive(site(0), Incarnation(1), shown(2));
    let (to_b, to_c) = (b.unconfirmed()[0], c.unconfirmed()[0]);
    assert_eq!(b.spendable(ids[0]), 100, "nobody has witnessed it");
    assert!(!c.witnesses(site(1), &to_b) && !b.witnesses(site(2), &to_c));
    // They compare. Each has seen both now, and witnesses neither.
    c.receive(site(0), Incarnation(1), shown(1));
    assert!(!c.witnesses(site(1), &to_b));
    // Whatever b does alone, c takes nothing.
    b.confirm(&to_b);
    c.confirm(&to_c);
    assert_eq!((b.spendable(ids[0]), c.spendable(ids[0])), (200, 100));
    assert!(b.unconfirmed().is_empty());
}

#[test]
fn who_has_witnessed_takes_nothing_that_contradicts_it() {
    let (grants, ids) = grants(vec![allocation(vec![slice(400, 0, DAY)], &[1, 1, 1, 1])]);
    let new = |me| Ledger::new(site(me), members(4), grants.clone());
    let (mut a, mut c) = (new(2), new(3));
    let [first, second] = [site(0), site(1)];
    // Two liars: the second shows a that it has sent its rights to a, and c that it has sent them to the first.
    let (to_a, to_first) = ((Cell::Sent(site(2)), 100), (Cell::Sent(first), 100));
    let of_first = [(Cell::Taken(second), 100), (Cell::Sent(site(3)), 200)];
    a.receive(second, Incarnation(1), rows_of(ids[0], &[to_a]));
    c.receive(second, Incarnation(1), rows_of(ids[0], &[to_first]));
    for ledger in [&mut a, &mut c] {
        ledger.receive(first, Incarnation(1), rows_of(ids[0], &of_first));
    }
    let to_c = c.unconfirmed()[0];
    assert!(
        !a.witnesses(site(3), &to_c),
        "a has not seen what the first has it of"
    );
    c.receive(second, Incarnation(1), rows_of(ids[0], &[to_a]));
    c.confirm(&to_c);
    assert_eq!(
        c.spendable(ids[0]),
        100,
        "it has seen that it was sent twice"
    );
}

#[test]
fn a_site_sends_what_it_has_and_keeps_a_floor() {
    let (mut ledger, ids) = ledger(0, vec![slice(2_000, 0, DAY)], &[1, 1]);
    let want = |amount, taken| Want {
        slice: ids[0],
        amount: CoreMillis(amount),
        taken: CoreMillis(taken),
        claim: None,
    };
    let now = WallTime(1);
    let mut give = |to, amount, taken| ledger.give(now, site(to), &want(amount, taken)).0;
    assert_eq!(
        (give(0, 10, 0), give(7, 10, 0)),
        (0, 0),
        "itself, and a stranger"
    );
    assert_eq!(give(1, 4, 0), 4, "a small hold needs no more");
    assert_eq!(give(1, 5_000, 4), 946);
    assert_eq!(give(1, 5_000, 950), 0, "50 stay");
    ledger.hold(now, &request(1, 50));
    let row = ledger.own_row(ids[0]).expect("it counts");
    assert_eq!((row.sent(), row.held()), (950, 50));
    assert_eq!(
        ledger.give(WallTime(DAY), site(1), &want(1, 950)).0,
        0,
        "it has ended"
    );
}

#[test]
fn what_others_have_taken_was_sent() {
    let (grants, ids) = grants(vec![allocation(vec![slice(300, 0, DAY)], &[1, 1, 1])]);
    let nothing = Default::default();
    let mut ledger = Ledger::restore(site(0), members(3), grants, nothing, false);
    let mut row = Row::default();
    row.add(Cell::Taken(site(0)), 60);
    ledger.receive(site(1), Incarnation(1), [(ids[0], row)]);
    ledger.hear(WallTime(1), site(1));
    assert!(ledger.is_frozen(), "one is lacking");
    ledger.hear(WallTime(1), site(2));
    assert_eq!((ledger.is_frozen(), ledger.spendable(ids[0])), (false, 40));
}

#[test]
fn no_job_is_given_back_more_than_it_was_charged() {
    let (mut ledger, _) = ledger(0, vec![slice(300, 0, DAY)], &[1]);
    for number in [1, 2] {
        ledger.commit(WallTime(1), &job(number), CoreMillis(100), &user());
    }
    let mut correct = |amount| ledger.correct(WallTime(2), &job(1), CoreMillis(amount));
    assert_eq!(
        (correct(60), correct(60)),
        (Some(CoreMillis(60)), Some(CoreMillis(40)))
    );
}

#[test]
fn rights_of_slices_that_nothing_grants_are_not_remembered() {
    let (mut ledger, ids) = ledger(0, vec![slice(200, 0, DAY)], &[1, 1]);
    let mut row = Row::default();
    row.add(Cell::Sent(site(0)), 1);
    let unknown = |number: u32| SliceId {
        allocation: AllocationId::from_bytes([7; 32]),
        index: number,
    };
    let known = |index| SliceId { index, ..ids[0] };
    for number in 1..20_000 {
        let rows = [unknown(number), known(number)].map(|id| (id, row.clone()));
        ledger.receive(site(1), Incarnation(1), rows);
        assert_eq!(ledger.row_of(unknown(number), site(1)), None);
        assert_eq!(ledger.row_of(known(number), site(1)), None);
    }
    assert_eq!(ledger.unconfirmed(), []);
    // What it has published itself comes back all the same.
    ledger.receive(site(0), Incarnation(1), [(unknown(1), row.clone())]);
    assert_eq!(ledger.own_row(unknown(1)), Some(&row));
}

#[test]
fn what_is_forgotten_does_not_come_back() {
    let slices = vec![slice(200, 0, DAY), slice(200, DAY, 9 * DAY)];
    let (mut ledger, ids) = ledger(1, slices, &[1, 1]);
    let mut row = Row::default();
    row.add(Cell::Sent(site(1)), 60);
    let head = [(ids[0], row)];
    ledger.receive(site(0), Incarnation(1), head.clone());
    ledger.commit(WallTime(1), &job(1), CoreMillis(10), &user());
    assert_eq!(
        ledger.hold(WallTime(2), &request(2, 5)).verdict,
        Verdict::Granted
    );
    ledger.forget(WallTime(2 * DAY));
    assert!(ledger.own_row(ids[0]).is_some(), "something of it is held");
    assert!(ledger.mark(&job(1)).is_none() && ledger.mark(&job(2)).is_some());
    ledger.release(&job(2));
    ledger.forget(WallTime(2 * DAY));
    ledger.receive(site(0), Incarnation(1), head);
    assert_eq!(ledger.own_rows().count(), 0);
    assert_eq!(ledger.spendable(ids[1]), 100);
}

#[test]
fn a_job_from_before_the_first_allocation_is_asked_about_again() {
    let mut ledger = Ledger::new(site(0), members(1), Grants::default());
    assert_eq!(
        ledger.hold(WallTime(1), &request(1, 50)).verdict,
        Verdict::Exempt
    );
    let document = verified(allocation(vec![slice(100, 0, DAY)], &[1]));
    let mut grants = Grants::default();
    assert_eq!(grants.adopt(&document), Ok(true));
    ledger.set_grants(grants);
    let answer = ledger.hold(WallTime(1), &request(1, 50));
    assert_eq!(
        (answer.verdict, parts(&answer)),
        (Verdict::Granted, vec![(0, 50)])
    );
}

#[test]
fn an_open_hold_stays_as_it_is_while_rights_are_frozen() {
    let (grants, ids) = grants(vec![allocation(vec![slice(100, 0, DAY)], &[1])]);
    let mut ledger = Ledger::new(site(0), members(1), grants.clone());
    ledger.hold(WallTime(1), &request(1, 60));
    let rows: Rows = ledger
        .own_rows()
        .map(|(id, row)| (id, row.clone()))
        .collect();
    let marks = ledger
        .marks()
        .map(|(job, mark)| (job.clone(), mark.clone()))
        .collect();
    let mut back = Ledger::restore(site(0), members(1), grants, (rows, marks), false);
    assert_eq!(parts(&back.hold(WallTime(1), &request(1, 20))), [(0, 60)]);
    assert!(back.take_changes().rows.is_empty());
    // Nobody else is there to be heard.
    back.tick(WallTime(2));
    assert_eq!(parts(&back.hold(WallTime(2), &request(1, 20))), [(0, 20)]);
    assert_eq!(back.spendable(ids[0]), 80);
}

/// Seed 40000841: both members had lost their stores, and one was restored from a backup after rights had thawed.
#[test]
fn what_comes_back_after_rights_have_thawed_counts_here_as_it_does_elsewhere() {
    let (grants, ids) = grants(vec![allocation(vec![slice(100, 0, DAY)], &[1, 1])]);
    let now = WallTime(1);
    let mut before = Ledger::new(site(0), members(2), grants.clone());
    before.hold(now, &request(1, 30));
    let row = before.own_row(ids[0]).expect("it holds").clone();
    let mut back = Ledger::restore(site(0), members(2), grants, Default::default(), false);
    back.hear(now, site(1));
    assert_eq!((back.is_frozen(), back.spendable(ids[0])), (false, 50));
    receive(&mut back, site(0), 1, [(ids[0], row)]);
    assert_eq!(back.spendable(ids[0]), 20);
    assert!(
        back.take_changes().rows.contains(&ids[0]),
        "it is published"
    );
}

#[test]
fn what_is_owed_of_many_slices_with_many_members_is_settled_soon() {
    let slices: Vec<_> = (1..=200).map(|end| slice(10, 0, end * DAY)).collect();
    let member = |number| path(&format!("/P-A1/U{number}"));
    let body = Allocation {
        members: (0..300).map(member).collect(),
        ..allocation(slices, &[1])
    };
    let (grants, ids) = grants(vec![body]);
    let mut ledger = Ledger::new(site(0), members(1), grants);
    ledger.commit(WallTime(1), &job(1), CoreMillis(2_030), &member(7));
    for second in 2..22 {
        ledger.tick(WallTime(second));
    }
    let owed = |ledger: &Ledger| ledger.own_row(ids[199]).expect("it counts").overdraft();
    assert_eq!(owed(&ledger), 30);
    // A charge that was an error is there again.
    ledger.correct(WallTime(30), &job(1), CoreMillis(40));
    ledger.tick(WallTime(31));
    assert_eq!(owed(&ledger), 0);
}

#[test]
fn a_site_that_was_alone_for_a_moment_waits_for_others() {
    let (grants, ids) = grants(vec![allocation(vec![slice(100, 0, DAY)], &[1, 1])]);
    let nothing = (BTreeMap::new(), BTreeMap::new());
    let mut ledger = Ledger::restore(site(0), members(1), grants, nothing, false);
    ledger.tick(WallTime(1));
    assert_eq!(ledger.spendable(ids[0]), 50, "it waits for no other site");
    ledger.set_members(members(2));
    assert!(ledger.is_frozen(), "the other may hold what it has spent");
}
