//! What an owner asks for his machines, whom he lets run on idle ones, and who stands behind the others.

use fairmesh_model::{Factor, Importance, Millis, Origin};
use fairmesh_quota::price::{LoadPrice, Pricing};
use fairmesh_quota::{Answer, Verdict};
use fairmesh_site::{AdvertCall, Event, HoldCall, IdleRules, Occupancy, OwnerQuota, QuotaCall};

use super::quotas::{MINUTE, answer, asking, call, found, found_on, hold, hours, totals};
use crate::mesh::Mesh;
use crate::vo::{self, path, site_id};

fn factor(text: &str) -> Factor {
    Factor::parse(text).expect("a factor")
}

fn configure(mesh: &mut Mesh, node: usize, quota: OwnerQuota) {
    let mut config = mesh.config(vo::timing());
    config.quotas.insert(mesh.vo, quota);
    mesh.nodes[node].config = config.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(config)));
}

/// A scheduler with 100 cores says how many are free, and who waits for how many, by account and group.
fn tell(mesh: &mut Mesh, node: usize, free: u64, waiting: &[(&str, &str, u64)]) {
    let origin = |account: &str, group: &str| Origin {
        user: Some("u1".to_owned()),
        account: Some(account.to_owned()),
        group: Some(group.to_owned()),
        subject: None,
    };
    let waiting = waiting
        .iter()
        .map(|(account, group, cores)| (origin(account, group), *cores));
    let occupancy = Occupancy {
        total: Some(100),
        free: Some(free),
        waiting: waiting.collect(),
        ..Occupancy::default()
    };
    let call = AdvertCall::Report(occupancy);
    mesh.handle(node, Event::Advert { ticket: 1, call });
}

fn hold_important(mesh: &mut Mesh, node: usize, name: &str, cores: u32, number: u8) -> Answer {
    let record = asking(mesh, name, cores);
    let held = QuotaCall::Hold(Box::new(HoldCall {
        record,
        account: None,
        is_exempt: false,
        may_wait: false,
        importance: Importance::try_from(number).expect("in range"),
    }));
    answer(call(mesh, node, held))
}

#[test]
fn a_price_follows_the_load_is_known_to_all_and_stays_with_a_job() {
    let mut mesh = found_on(1, 3, 60, |of| of.fee = factor("0.5"));
    let by_load = OwnerQuota {
        pricing: Pricing::Load(LoadPrice::default()),
        ..OwnerQuota::default()
    };
    configure(&mut mesh, 1, by_load);
    // 100 cores run, and 50 are waited for.
    for _ in 0..17 {
        tell(&mut mesh, 1, 0, &[("grid", "g0", 50)]);
        mesh.run(MINUTE);
    }
    let price = |mesh: &Mesh, node: usize, of: usize| {
        let price = mesh.nodes[node].site.price_at(mesh.vo, site_id(of));
        price.map(|(price, _)| price)
    };
    for node in 0..3 {
        assert_eq!(price(&mesh, node, 1), Some(factor("1.3")), "{node}");
        assert_eq!(price(&mesh, node, 0), None, "{node}");
    }
    let record = asking(&mesh, "quoted", 10);
    let quote = |of: usize| {
        let (site, usual) = (&mesh.nodes[0].site, Importance::default());
        let quote = site.quote(mesh.now(0), &record, usual, site_id(of));
        quote.expect("it says what it costs")
    };
    let (here, there) = (quote(0), quote(1));
    assert_eq!(here.cost.0 * 13, there.cost.0 * 10);
    assert_eq!((here.since.is_none(), there.since.is_some()), (true, true));

    let tenth = |mesh: &Mesh| {
        let totals = totals(mesh, 1);
        [totals.used, totals.held].map(|amount| amount * 10 / u128::from(vo::HOUR.0))
    };
    let granted = hold(&mut mesh, 1, "a", 10);
    assert_eq!(
        (granted.verdict, granted.price),
        (Verdict::Granted, factor("1.3"))
    );
    assert_eq!(tenth(&mesh), [0, 130]);
    let important = hold_important(&mut mesh, 1, "b", 1, 200);
    assert_eq!(important.price, factor("1.95"));
    // Nothing runs any more, and the price falls; not for whom it was fixed.
    for _ in 0..33 {
        tell(&mut mesh, 1, 100, &[]);
        mesh.run(MINUTE);
    }
    assert_eq!(price(&mesh, 2, 1), Some(factor("0.55")));
    assert_eq!(hold(&mut mesh, 1, "a", 10), granted);
    let ran = asking(&mesh, "a", 10);
    mesh.report(1, &[ran]).expect("it is counted");
    assert_eq!(tenth(&mesh)[0], 130);
    assert_eq!(hold(&mut mesh, 1, "c", 2).price, factor("0.55"));
    assert_eq!(hold(&mut mesh, 0, "d", 1).price, Factor::ONE);
}

#[test]
fn machines_that_nobody_wants_are_given_once_and_not_for_long() {
    let mut mesh = found_on(2, 3, 30, |of| of.idle_charge = factor("0.5"));
    let open = OwnerQuota {
        idle: Some(IdleRules::default()),
        ..OwnerQuota::default()
    };
    assert_eq!(hold(&mut mesh, 1, "all", 10).verdict, Verdict::Granted);
    tell(&mut mesh, 1, 20, &[]);
    assert_eq!(hold(&mut mesh, 1, "closed", 8).verdict, Verdict::Refused);
    configure(&mut mesh, 1, open);
    assert_eq!(hold(&mut mesh, 1, "first", 8).verdict, Verdict::Idle);
    // 12 are left, of which 5 are kept.
    assert_eq!(hold(&mut mesh, 1, "second", 8).verdict, Verdict::Refused);
    assert_eq!(hold(&mut mesh, 1, "first", 8).verdict, Verdict::Idle);
    assert_eq!(hold(&mut mesh, 1, "third", 7).verdict, Verdict::Idle);
    // Who waits for more of the same credit wants nothing that he could have; a local group does.
    for (waiting, verdict) in [
        (("grid", "g0", 3), Verdict::Idle),
        (("local", "zz-secret-group", 3), Verdict::Refused),
        (("grid", "g1", 3), Verdict::Idle),
    ] {
        tell(&mut mesh, 1, 20, &[waiting]);
        let name = format!("{}-{}", waiting.0, waiting.1);
        assert_eq!(hold(&mut mesh, 1, &name, 8).verdict, verdict, "{name}");
    }
    let mut long = asking(&mesh, "long", 1);
    long.start = long.start.before(Millis(1));
    let long = QuotaCall::Hold(Box::new(HoldCall {
        record: long,
        account: None,
        is_exempt: false,
        may_wait: false,
        importance: Importance::default(),
    }));
    assert_eq!(answer(call(&mut mesh, 1, long)).verdict, Verdict::Refused);
    let ran = asking(&mesh, "first", 8);
    mesh.report(1, &[ran]).expect("it is counted");
    let totals = totals(&mesh, 1);
    assert_eq!(totals.overdraft, 4 * u128::from(vo::HOUR.0));
    // Nothing was heard for too long.
    tell(&mut mesh, 1, 100, &[]);
    assert_eq!(hold(&mut mesh, 1, "loud", 31).verdict, Verdict::Idle);
    mesh.run(Millis(5 * MINUTE.0));
    assert_eq!(hold(&mut mesh, 1, "silent", 31).verdict, Verdict::Refused);
}

#[test]
fn who_has_nothing_left_stands_behind_where_the_owner_says_so() {
    let mut mesh = found(3, 2, 20);
    let bands = OwnerQuota {
        bands: true,
        ..OwnerQuota::default()
    };
    configure(&mut mesh, 1, bands);
    mesh.run(MINUTE);
    let within = |mesh: &Mesh, node: usize| {
        let bands = mesh.nodes[node].site.bands();
        let entries = [
            "/",
            "/grid",
            "/grid/g0/u0",
            "/grid/g1/u2",
            "/local/zz-secret-group",
        ];
        entries.map(|entry| bands.is_within(&path(entry)))
    };
    assert_eq!(within(&mesh, 1), [true, true, true, false, true]);
    assert!(mesh.nodes[0].site.bands().is_empty());
    let first = mesh.nodes[1].site.bands();
    mesh.run(MINUTE);
    assert!(first.is_same(&mesh.nodes[1].site.bands()));
    mesh.cut(1);
    mesh.run(MINUTE);
    hold(&mut mesh, 1, "all", 10);
    mesh.run(MINUTE);
    assert_eq!(hours(totals(&mesh, 1))[1], 10);
    assert_eq!(within(&mesh, 1), [true, true, false, false, true]);
    assert!(!first.is_same(&mesh.nodes[1].site.bands()));
    configure(&mut mesh, 1, OwnerQuota::default());
    mesh.run(MINUTE);
    assert_eq!(within(&mesh, 1), [true; 5]);
}
