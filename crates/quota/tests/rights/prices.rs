//! Rows of data: what jobs cost, and which of them stand behind the others.

use fairmesh_model::{CoreMillis, Factor, Millis, MonoTime, Now, Share, WallTime};
use fairmesh_quota::decision::Machines;
use fairmesh_quota::price::{LoadPrice, Poster, Pricing};
use fairmesh_quota::{Ledger, Verdict};

use super::*;

/// What the planted faults are looked for with, too.
#[cfg(feature = "mutants")]
pub(super) const ROWS: &[(&str, fn())] = &[
    ("asked again", an_open_hold_keeps_its_price),
    ("terms", the_vo_bounds_the_price_and_sets_the_fee),
    ("idle", idle_machines_cost_what_the_allocation_says),
    ("machines", idle_machines_are_those_that_nobody_wants),
    ("a quarter of an hour", prices_stay_for_a_while),
    ("who is within", who_has_nothing_left_stands_behind),
];

fn factor(text: &str) -> Factor {
    Factor::parse(text).expect("a factor")
}

fn importance(number: u8) -> Importance {
    Importance::try_from(number).expect("in range")
}

fn ledger(change: impl Fn(&mut Allocation)) -> Ledger {
    let mut body = allocation(vec![slice(1_000, 0, 86_400_000)], &[1]);
    change(&mut body);
    Ledger::new(site(0), members(1), grants(vec![body]).0)
}

#[test]
fn an_open_hold_keeps_its_price() {
    let mut ledger = ledger(|of| of.fee = Factor::ONE);
    let answer = ledger.hold(WallTime(1), &request(1, 100));
    let later = HoldRequest {
        price: factor("1.5"),
        importance: Importance::MAX,
        ..request(1, 100)
    };
    assert_eq!(ledger.hold(WallTime(2), &later), answer);
    let larger = HoldRequest {
        charge: CoreMillis(200),
        ..later.clone()
    };
    assert_eq!(ledger.hold(WallTime(2), &larger).price, Factor::ONE);
    let mark = ledger.mark(&job(1)).expect("it holds");
    assert_eq!(mark.cost(CoreMillis(150)), CoreMillis(150));
    let other = HoldRequest {
        job: job(2),
        ..later
    };
    let other = ledger.hold(WallTime(2), &other);
    assert_eq!(other.price, factor("3"));
    assert_eq!(other.parts[0].amount, CoreMillis(300));
}

#[test]
fn the_vo_bounds_the_price_and_sets_the_fee() {
    for (price_max, fee, number, asked, price) in [
        (None, "0", 100, "1.5", "1.5"),
        (None, "0", 200, "1.5", "1.5"),
        (None, "0", 100, "9", "2"),
        (Some("1.2"), "0", 100, "9", "1.2"),
        (Some("9"), "0", 100, "8", "8"),
        (Some("1.2"), "0.5", 200, "9", "1.8"),
        (None, "1", 0, "1", "0.5"),
        (None, "1", 0, "0.4", "0.4"),
    ] {
        let ledger = ledger(|of| {
            of.price_max = price_max.map(factor);
            of.fee = factor(fee);
        });
        let asking = HoldRequest {
            price: factor(asked),
            importance: importance(number),
            ..request(1, 10)
        };
        let answer = ledger.check(WallTime(1), &asking, CoreMillis(0));
        assert_eq!(answer.price, factor(price), "{asked} {fee} {number}");
    }
}

#[test]
fn idle_machines_cost_what_the_allocation_says() {
    for (idle_charge, owed) in [("1", 3_000), ("0.5", 1_500), ("0", 0)] {
        let mut ledger = ledger(|of| of.idle_charge = factor(idle_charge));
        let asking = HoldRequest {
            is_idle: true,
            price: factor("1.5"),
            ..request(1, 2_000)
        };
        let answer = ledger.hold(WallTime(1), &asking);
        assert_eq!((answer.verdict, answer.parts.len()), (Verdict::Idle, 0));
        // Asked again when nothing is idle any more: it has been let run.
        let again = HoldRequest {
            is_idle: false,
            ..asking
        };
        assert_eq!(ledger.hold(WallTime(1), &again).verdict, Verdict::Idle);
        let cost = ledger
            .mark(&job(1))
            .expect("it runs")
            .cost(CoreMillis(2_000));
        let charged = ledger.commit(WallTime(2), &job(1), cost, &path("/P-A1/U-A11"));
        let charged = charged.expect("it is known");
        assert_eq!((charged.overdraft.0, charged.used.len()), (owed, 0));
    }
}

#[test]
fn idle_machines_are_those_that_nobody_wants() {
    let machines = Machines {
        is_wanted: false,
        free: 15,
        cores: 100,
        reserve: Share::from_percent(5).expect("at most 100"),
        run_max: Millis::from_secs(3_600),
    };
    let wanted = Machines {
        is_wanted: true,
        ..machines
    };
    for (machines, cores, seconds, expected) in [
        (machines, 10, 3_600, true),
        (machines, 11, 3_600, false),
        (machines, 10, 3_601, false),
        (wanted, 10, 3_600, false),
    ] {
        let idle = machines.would_idle(cores, Millis::from_secs(seconds));
        assert_eq!(idle, expected, "{machines:?} {cores} {seconds}");
    }
}

#[test]
fn prices_stay_for_a_while() {
    let by_load = Pricing::Load(LoadPrice::default());
    let mut poster = Poster::default();
    let mut price = |minutes: u64, load: &str| {
        let now = Now {
            mono: MonoTime(minutes * 60_000),
            wall: WallTime(minutes * 60_000),
        };
        poster.look(now, &by_load, Some(factor(load)));
        poster.price()
    };
    assert_eq!(price(0, "1.5"), Factor::ONE);
    assert_eq!(price(14, "1.5"), Factor::ONE);
    assert_eq!(price(15, "0.1"), factor("1.3"));
    assert_eq!(price(29, "0.1"), factor("1.3"));
    assert_eq!(price(30, "0.1"), factor("0.6"));
}

#[test]
fn who_has_nothing_left_stands_behind() {
    let mut deep = allocation(vec![slice(100, 0, 86_400_000)], &[1]);
    deep.path = path("/P-A1/deep");
    deep.members = BTreeSet::from([path("/P-A1/deep/ann")]);
    let whole = allocation(vec![slice(1_000, 0, 86_400_000)], &[1]);
    let (grants, _) = grants(vec![whole, deep]);
    let mut ledger = Ledger::new(site(0), members(1), grants);
    let within = |ledger: &Ledger| {
        let funded = ledger.funded(WallTime(1));
        let accounts = [
            "/",
            "/P-A1",
            "/P-A1/bob",
            "/P-A1/deep/ann",
            "/P-A1/deep/eve",
            "/P-B1",
        ];
        accounts.map(|account| {
            let account = path(account);
            let is_within = funded.is_within(&account);
            // Nobody has a job above all credit.
            if !account.is_root() && account != path("/P-A1") {
                assert_eq!(is_within, ledger.is_within(&account, WallTime(1)));
            }
            is_within
        })
    };
    assert_eq!(within(&ledger), [true, true, true, true, true, false]);
    ledger.hold(WallTime(1), &request(1, 1_000));
    assert_eq!(within(&ledger), [true, false, false, true, false, false]);
    let ann = HoldRequest {
        user: path("/P-A1/deep/ann"),
        ..request(2, 100)
    };
    assert_eq!(ledger.hold(WallTime(1), &ann).verdict, Verdict::Granted);
    assert_eq!(within(&ledger), [true, false, false, false, false, false]);
    ledger.release(&job(1));
    assert_eq!(within(&ledger), [true, true, true, true, true, false]);
}
