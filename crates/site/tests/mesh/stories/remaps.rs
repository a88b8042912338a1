//! Usage moves to the account that today's rules name: once, whatever a crash cuts off, and everywhere.

use std::collections::BTreeMap;

use fairmesh_model::{ChargingRule, Millis, UsageRecord, WallTime};
use fairmesh_site::{Event, Fate, IdentityMap, Pattern, Remap, Reply, Reported, Rule, Uncovered};

use super::corrections::correct;
use crate::ledger::assert_same;
use crate::mesh::{Mesh, ROUGH};
use crate::random::with_seeds;
use crate::vo::{DAY, HOUR, job, next_charter, path, sign_charter};

const SETTLE: Millis = Millis::from_secs(40);

/// Jobs of the batch account `name` go to `/{group}/{user}` of the VO, or of the site's own `/local`.
fn map_to(mesh: &mut Mesh, name: &str, to_vo: bool) {
    let mut config = mesh.config(mesh.nodes[0].config.timing);
    let rule = |account: &str, vo, path: &str| Rule {
        account: Some(Pattern::parse(account)),
        vo,
        path: path.to_owned(),
        ..Rule::default()
    };
    let place = if to_vo {
        "/{group}/{user}"
    } else {
        "/local/{group}/{user}"
    };
    config.identity = IdentityMap::new(vec![
        rule("local", None, "/local/{group}/{user}"),
        rule("grid", Some(mesh.vo), "/{group}/{user}"),
        rule(name, to_vo.then_some(mesh.vo), place),
    ]);
    mesh.nodes[0].config = config.clone();
    mesh.handle(0, Event::Reconfigured(Box::new(config)));
}

fn wrong_name(name: &str, account: &str, ran: (WallTime, WallTime)) -> UsageRecord {
    job(name, account, "g0", "u0", ran, 3)
}

/// What the record log says moves, and what is not in it.
fn plan(mesh: &Mesh, log: &[UsageRecord]) -> (Remap, Vec<String>, Vec<Uncovered>) {
    let site = &mesh.nodes[0].site;
    let mut remapper = site.remapper(mesh.now(0), WallTime(0));
    remapper.index();
    let (mut change, mut left) = (remapper.change("ann", "a rule was missing"), Vec::new());
    for record in log {
        match remapper.judge(record, mesh.nodes[0].mark(&record.key), None) {
            Fate::Moves(moved) => change.add(*moved),
            Fate::Left(why) => left.push(why),
            Fate::Stays | Fate::Past => {}
        }
    }
    (change, left, remapper.uncovered())
}

fn remap(mesh: &mut Mesh, change: Remap) -> Option<Reported> {
    let change = Box::new(change);
    mesh.nodes[0].replies.clear();
    mesh.handle(0, Event::Remap { ticket: 1, change });
    match mesh.nodes[0].replies.pop() {
        Some(Reply::Reported(reported)) => Some(reported),
        None => None,
        other => panic!("{other:?}"),
    }
}

/// What counts of each account of the VO at a node, and of the site's own.
fn nets(mesh: &Mesh, node: usize) -> BTreeMap<String, u64> {
    let site = &mesh.nodes[node].site;
    let of_vo = site.usage_by_account(Some(mesh.vo));
    let own = site.usage_by_account(None);
    let named = |prefix: &'static str| {
        move |(path, sum): (fairmesh_model::AccountPath, fairmesh_model::Counters)| {
            (format!("{prefix}{path}"), sum.net())
        }
    };
    let all = of_vo.into_iter().map(named("vo:"));
    let all = all.chain(own.into_iter().map(named("own:")));
    all.filter(|(_, net)| *net > 0).collect()
}

fn sums(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
    rows.iter()
        .map(|(name, sum)| ((*name).to_owned(), *sum))
        .collect()
}

#[test]
fn a_month_of_an_unmapped_account_moves_into_the_vo_once() {
    let mut mesh = Mesh::found(1, 2);
    mesh.tick_ms = 600_000;
    let mut log = Vec::new();
    for day in 0..6 {
        let end = mesh.now(0).wall;
        let ran = (end.before(Millis(HOUR.0 * 3 / 2)), end);
        log.push(wrong_name(&format!("job-{day}"), "CMS", ran));
        mesh.report(0, &log[log.len() - 1..]).expect("counted");
        mesh.run(DAY);
    }
    mesh.tick_ms = 1;
    let each = 3 * HOUR.0 * 3 / 2;
    assert_eq!(nets(&mesh, 0), sums(&[("own:/", 6 * each)]));
    assert_eq!(mesh.nodes[0].site.unmapped().count(), 1);
    map_to(&mut mesh, "CMS", true);
    let (change, left, uncovered) = plan(&mesh, &log);
    assert_eq!((change.jobs(), left.len(), uncovered.len()), (6, 0, 0));
    let moved: Vec<_> = change.moved().values().collect();
    assert_eq!(
        (moved[0].jobs, moved[0].credit, moved[0].charge),
        (6, 6 * each, 6 * each)
    );
    let stale = change.clone();
    assert_eq!(
        remap(&mut mesh, change).map(|of| (of.counted, of.charge)),
        Some((6, 6 * each))
    );
    let expected = sums(&[("vo:/g0/u0", 6 * each)]);
    assert_eq!(nets(&mesh, 0), expected);
    assert_eq!(mesh.nodes[0].site.unmapped().count(), 0);
    // What was planned before is refused, and what is planned now is nothing.
    let again = remap(&mut mesh, stale).expect("answered");
    assert!(
        again.counted == 0 && again.refused[0].1.contains("ask again"),
        "{again:?}"
    );
    assert_eq!(plan(&mesh, &log).0.jobs(), 0);
    // The feed repeats its records.
    assert_eq!(mesh.report(0, &log).expect("answered").known, 6);
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    assert_eq!(nets(&mesh, 1), expected);
    // A tree that is built anew has the same.
    let weighed = |mesh: &Mesh| {
        let view = mesh.nodes[0].site.view();
        let entry = |name| view.reader().entry(&path(name)).expect("an entry");
        ["/grid/g0/u0", "/local"].map(|name| view.reader().sums(entry(name)).local)
    };
    let before = weighed(&mesh);
    assert!(before[0] > 0);
    mesh.restart(0);
    assert_eq!((weighed(&mesh), nets(&mesh, 0)), (before, expected.clone()));
    let audit: Vec<_> = mesh.nodes[0].site.relocations().collect();
    assert_eq!(
        (audit.len(), audit[0].jobs, audit[0].by.as_str()),
        (1, 6, "ann")
    );
    // The disk is lost: what moved into the VO comes back, and is not counted again.
    mesh.restart_on(0, Default::default());
    mesh.run(SETTLE);
    assert_eq!(nets(&mesh, 0), expected);
    assert_eq!(mesh.report(0, &log).expect("answered").left_out, 6);
    let (change, left, uncovered) = plan(&mesh, &log);
    assert_eq!((change.jobs(), left.len()), (0, 6));
    assert_eq!(uncovered.iter().map(|of| of.charge).sum::<u64>(), 6 * each);
    // Nor is it said that such a job was never counted.
    let refused = correct(&mut mesh, 0, &[&log[0]]).refused;
    assert!(refused[0].1.contains("came back"), "{refused:?}");
}

#[test]
fn usage_moves_out_of_the_vo_and_back_by_what_it_costs_there_and_members_read_why() {
    let mut mesh = Mesh::found(1, 2);
    let end = mesh.now(0).wall;
    let log = [wrong_name("a", "CMS", (end.before(HOUR), end))];
    map_to(&mut mesh, "CMS", true);
    mesh.report(0, &log).expect("counted");
    map_to(&mut mesh, "CMS", false);
    let (change, ..) = plan(&mesh, &log);
    assert_eq!(remap(&mut mesh, change).expect("moved").counted, 1);
    assert_eq!(nets(&mesh, 0), sums(&[("own:/local/g0/u0", 3 * HOUR.0)]));
    mesh.run(SETTLE);
    assert_same(&mut mesh);
    assert_eq!(nets(&mesh, 1), sums(&[]));
    let told = mesh.nodes[1].site.audit_of_members(mesh.vo);
    let why: Vec<String> = told
        .flat_map(|(_, entries)| entries)
        .map(|of| of.why)
        .collect();
    assert_eq!(
        why,
        ["moved to an account outside this VO: a rule was missing"]
    );
    // A core costs twice as much there by now.
    let mut charter = next_charter(&mesh.charter);
    charter.charging = ChargingRule::Weights {
        cpu: 2_000,
        gpu: 0,
        mem_gib: 0,
        max: false,
        energy_kwh: 0,
        spec_max: None,
    };
    assert!(mesh.publish(0, sign_charter(charter).bytes()).is_ok());
    mesh.run(SETTLE);
    map_to(&mut mesh, "CMS", true);
    let (change, ..) = plan(&mesh, &log);
    assert_eq!(remap(&mut mesh, change).expect("moved").charge, 3 * HOUR.0);
    assert_eq!(nets(&mesh, 0), sums(&[("vo:/g0/u0", 6 * HOUR.0)]));
    // It is taken back where it is now.
    assert_eq!(correct(&mut mesh, 0, &[&log[0]]).charge, 6 * HOUR.0);
    assert_eq!(nets(&mesh, 0), sums(&[]));
    map_to(&mut mesh, "CMS", false);
    assert_eq!(
        plan(&mesh, &log).0.jobs(),
        0,
        "what was taken back does not move"
    );
}

#[test]
fn what_cannot_move_is_named_and_stays() {
    let mut mesh = Mesh::found(1, 1);
    let end = mesh.now(0).wall;
    let ran = (end.before(HOUR), end);
    let [good, mut large, unknown, mut runs] =
        ["good", "large", "unknown", "runs"].map(|name| wrong_name(name, "CMS", ran));
    (large.cores, runs.running) = (2_000, true);
    mesh.report(0, &[good.clone(), large.clone(), runs.clone()])
        .expect("counted");
    // Not in the log.
    mesh.report(0, &[wrong_name("unlogged", "CMS", ran)])
        .expect("counted");
    map_to(&mut mesh, "CMS", true);
    let (change, left, uncovered) = plan(&mesh, &[good, large, unknown, runs]);
    let expected = ["larger than this site", "no mark here", "not ended yet"];
    assert_eq!(left.len(), expected.len(), "{left:?}");
    for (why, word) in left.iter().zip(expected) {
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(
        uncovered.iter().map(|of| of.charge).collect::<Vec<_>>(),
        [3 * HOUR.0]
    );
    assert_eq!(remap(&mut mesh, change).expect("moved").counted, 1);
    let stays = (2_000 + 3 + 3) * HOUR.0;
    let expected = sums(&[("own:/", stays), ("vo:/g0/u0", 3 * HOUR.0)]);
    assert_eq!(nets(&mesh, 0), expected);
}

#[test]
fn whatever_a_crash_cuts_off_a_change_is_whole_or_not_there_and_moves_nothing_twice() {
    with_seeds(|seed| {
        let mut mesh = Mesh::found(seed, 2);
        mesh.faults = ROUGH;
        mesh.tick_ms = 600_000;
        let mut log = Vec::new();
        for number in 0..12 {
            let end = mesh.now(0).wall;
            let ran = (end.before(Millis(1 + mesh.dice.below(3 * HOUR.0))), end);
            log.push(wrong_name(&format!("job-{number}"), "CMS", ran));
            mesh.report(0, &log[number..]).expect("counted");
            let pause = Millis(mesh.dice.below(2 * HOUR.0));
            mesh.run(pause);
        }
        mesh.tick_ms = 1;
        let all: u64 = log.iter().map(|of| 3 * of.end.since(of.start).0).sum();
        let [in_vo, outside] = ["vo:/g0/u0", "own:/local/g0/u0"].map(|name| sums(&[(name, all)]));
        let mut is_in_vo = true;
        map_to(&mut mesh, "CMS", true);
        let (change, ..) = plan(&mesh, &log);
        remap(&mut mesh, change).expect("moved");
        for _ in 0..10 {
            map_to(&mut mesh, "CMS", !is_in_vo);
            let (change, ..) = plan(&mesh, &log);
            assert_eq!(change.jobs(), log.len());
            mesh.nodes[0].crash_after = Some(mesh.dice.below(4) as usize);
            remap(&mut mesh, change);
            let pause = Millis(mesh.dice.below(9_000));
            mesh.run(pause);
            mesh.restart(0);
            let now = nets(&mesh, 0);
            assert!(now == in_vo || now == outside, "{now:?}");
            // Whoever had no answer asks again.
            let (change, ..) = plan(&mesh, &log);
            assert!([0, log.len()].contains(&change.jobs()));
            remap(&mut mesh, change);
            is_in_vo = !is_in_vo;
            let expected = if is_in_vo { &in_vo } else { &outside };
            assert_eq!(nets(&mesh, 0), *expected);
        }
        mesh.heal();
        mesh.run(Millis::from_secs(60));
        assert_same(&mut mesh);
    });
}
