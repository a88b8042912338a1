//! Jobs that lack rights which other sites have: who gives, and who keeps.

use fairmesh_model::{CoreMillis, WallTime};
use fairmesh_quota::{HoldRequest, Ledger, Verdict, Want};

use super::*;

/// What the planted faults are looked for with.
#[cfg(feature = "mutants")]
pub(super) const ROWS: &[(&str, fn())] = &[
    (
        "the older claim",
        of_two_sites_the_one_whose_job_asked_first_gets,
    ),
    (
        "expected jobs",
        what_is_expected_and_the_floor_yield_to_a_job,
    ),
    ("too large", a_job_that_is_too_large_for_all_claims_nothing),
];

/// Two sites with 100 each, for a day.
fn two_sites() -> [Ledger; 2] {
    let (grants, _) = grants(vec![allocation(vec![slice(200, 0, 86_400_000)], &[1, 1])]);
    [0, 1].map(|me| Ledger::new(site(me), members(2), grants.clone()))
}

fn waiting(number: u8, amount: u64) -> HoldRequest {
    HoldRequest {
        may_wait: true,
        ..request(number, amount)
    }
}

/// What a ledger asks the other site for.
fn want_of(ledger: &mut Ledger, now: WallTime) -> Want {
    let wants = ledger.wants(now, |_, _| true);
    let [(_, want)] = wants[..] else {
        panic!("one request: {wants:?}")
    };
    want
}

#[test]
fn of_two_sites_the_one_whose_job_asked_first_gets() {
    for (of_a, of_b) in [(1_000, 2_000), (2_000, 1_000), (1_000, 1_000)] {
        let [mut a, mut b] = two_sites();
        a.hold(WallTime(of_a), &waiting(1, 150));
        b.hold(WallTime(of_b), &waiting(2, 150));
        let now = WallTime(2_500);
        let (want_a, want_b) = (want_of(&mut a, now), want_of(&mut b, now));
        let (to_a, to_b) = (b.give(now, site(0), &want_a), a.give(now, site(1), &want_b));
        // At one moment the lower id comes first.
        let expected = if of_a <= of_b { (50, 0) } else { (0, 50) };
        assert_eq!((to_a.0, to_b.0), expected, "{of_a} {of_b}");
    }
}

#[test]
fn a_job_that_waits_comes_before_a_refused_one() {
    let [mut a, mut b] = two_sites();
    assert_eq!(
        a.hold(WallTime(1), &request(1, 150)).verdict,
        Verdict::Refused
    );
    let now = WallTime(60_000);
    b.hold(now, &waiting(2, 150));
    let want = want_of(&mut b, now);
    assert_eq!(a.give(now, site(1), &want), CoreMillis(50));
    // And for some minutes the refused one has what it needs fetched.
    let [mut a, mut b] = two_sites();
    a.hold(WallTime(1), &request(1, 150));
    let want = want_of(&mut a, now);
    assert_eq!(b.give(now, site(0), &want), CoreMillis(50));
    assert!(a.wants(WallTime(200_000), |_, _| true).is_empty());
}

#[test]
fn what_is_expected_and_the_floor_yield_to_a_job() {
    let [mut a, mut b] = two_sites();
    assert_eq!(
        b.hold(WallTime(1), &request(1, 20)).verdict,
        Verdict::Granted
    );
    let now = WallTime(61_000);
    a.hold(now, &waiting(2, 180));
    let want = want_of(&mut a, now);
    assert_eq!(b.give(now, site(0), &want), CoreMillis(80));
}

#[test]
fn a_job_that_is_too_large_for_all_claims_nothing() {
    let [mut a, _] = two_sites();
    let now = WallTime(1);
    assert_eq!(a.hold(now, &waiting(1, 201)).verdict, Verdict::Waiting);
    assert!(!a.has_claim(&job(1)));
    a.hold(now, &waiting(1, 200));
    assert!(a.has_claim(&job(1)));
    assert!(
        !a.release(&job(1)) && !a.has_claim(&job(1)),
        "it did not run"
    );
    // Nor does a claim stay of a job that is decided otherwise: it would keep rights from others.
    a.hold(now, &waiting(1, 200));
    let exempt = HoldRequest {
        is_exempt: true,
        ..waiting(1, 200)
    };
    assert_eq!(a.hold(now, &exempt).verdict, Verdict::Exempt);
    assert!(!a.has_claim(&job(1)));
}
