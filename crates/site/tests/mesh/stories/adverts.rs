//! What sites say of their free CPUs: who knows it, how old it is, how often it is said, and what nobody believes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_broker::{Engine, Request, Sla, Verdict as Place, judge};
use fairmesh_gossip::PartKey;
use fairmesh_model::{Factor, MachineClass, Millis, MonoTime, PriceList, RunningJob, Seq, SiteId};
use fairmesh_site::{Advert, AdvertAnswer, AdvertCall, AdvertRules, Event, Occupancy, Reply};

use crate::liar::Liar;
use crate::mesh::{Faults, Mesh, ROUGH};
use crate::random::with_seeds;
use crate::vo::{self, HOUR, job, site_id};

const MINUTE: Millis = Millis::from_secs(60);

/// The kind of an advert's part.
const ADVERT: u8 = 6;

/// Longer than a heartbeat, after which a site may speak again, and an exchange.
const SETTLE: Millis = Millis::from_secs(90);

fn configure(mesh: &mut Mesh, node: usize, advert: Option<AdvertRules>) {
    let mut config = mesh.config(vo::timing());
    config.advert = advert;
    mesh.nodes[node].config = config.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(config)));
}

/// A Grid of `sites` whose owners let VOs know what is free; each has 1,000 CPUs.
fn found(seed: u64, sites: usize) -> Mesh {
    let mut mesh = Mesh::found(seed, sites);
    (0..sites).for_each(|node| configure(&mut mesh, node, Some(AdvertRules::default())));
    mesh
}

/// The owner of a node says what machines it has: so many of each class, by name.
fn describe(mesh: &mut Mesh, node: usize, classes: &[(&str, u32)]) {
    let class = |(name, count): &(&str, u32)| {
        let class = MachineClass {
            count: *count,
            cpus: 8,
            mem_mib: 1 << 14,
            gpus: 0,
            disk_mib: 0,
            spec: Factor::ONE,
            properties: BTreeSet::new(),
            queues: BTreeSet::new(),
        };
        ((*name).to_owned(), class)
    };
    let mut config = mesh.nodes[node].config.clone();
    config.charging.prices = Arc::new(PriceList {
        machines: classes.iter().map(class).collect(),
        ..PriceList::default()
    });
    mesh.nodes[node].config = config.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(config)));
}

/// Lists what runs at a node: batch account, and cores.
fn list(mesh: &mut Mesh, node: usize, jobs: &[(&str, u32)]) {
    let now = mesh.now(node).wall;
    let run = |(index, (account, cores)): (usize, &(&str, u32))| {
        let group = match *account {
            "local" => "zz-secret-group",
            _ => "g0",
        };
        let name = format!("run-{index}-{account}");
        let record = job(name, account, group, "u0", (now.before(HOUR), now), *cores);
        let expected_end = now.after(HOUR);
        let job = RunningJob {
            record,
            expected_end,
        };
        let mark = mesh.nodes[node].mark(&job.record.key);
        (job, mark)
    };
    let jobs = jobs.iter().enumerate().map(run).collect();
    mesh.handle(node, Event::Running { ticket: 1, jobs });
}

fn tell(mesh: &mut Mesh, node: usize, occupancy: Occupancy) {
    let call = AdvertCall::Report(occupancy);
    mesh.handle(node, Event::Advert { ticket: 1, call });
}

/// What a node knows of a site.
fn known(mesh: &Mesh, node: usize, of: usize) -> Option<Advert> {
    let mut adverts = mesh.nodes[node].site.adverts(mesh.vo);
    adverts.find(|(site, _)| *site == site_id(of))?.1.cloned()
}

fn free(mesh: &Mesh, node: usize, of: usize) -> Option<(u64, u64)> {
    known(mesh, node, of).map(|advert| (advert.free, advert.waiting))
}

/// Of a job of `cpus` at `of`, by what `node` knows.
fn verdict(mesh: &Mesh, node: usize, of: usize, cpus: u64) -> Place {
    let known = mesh.nodes[node].site.known_sites(mesh.now(node), mesh.vo);
    let (_, known) = known
        .into_iter()
        .find(|(site, _)| *site == site_id(of))
        .expect("a member");
    let vo = mesh.vo.to_string();
    let silence = Some(vo::timing().silence);
    let request = Request::of_cpus(&vo, cpus);
    judge(
        Engine::Sound,
        &known.expect("it has said something").view,
        &request,
        silence,
    )
}

fn heads(mesh: &Mesh, node: usize) -> Seq {
    let held = mesh.nodes[node].site.held_of(mesh.vo).expect("a member");
    let mut own = held
        .heads
        .iter()
        .filter(|(stream, _)| stream.site == site_id(node));
    own.next_back().map(|(_, seq)| *seq).expect("it has signed")
}

#[test]
fn all_members_come_to_know_what_is_free_and_how_old_that_is() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        assert_eq!(known(&mesh, 0, 0), None, "nothing has told it what runs");
        mesh.faults = ROUGH;
        list(&mut mesh, 0, &[("grid", 300), ("local", 100)]);
        list(&mut mesh, 1, &[]);
        mesh.run(MINUTE);
        mesh.heal();
        mesh.run(Millis::from_secs(20));
        for node in 0..3 {
            assert_eq!(free(&mesh, node, 0), Some((600, 0)), "at node {node}");
            assert_eq!(free(&mesh, node, 1), Some((1_000, 0)));
            assert_eq!(known(&mesh, node, 2), None);
            let standing = known(&mesh, node, 0)
                .and_then(|of| of.standing)
                .expect("the VO's");
            assert_eq!(
                standing.burst_used, 300,
                "of its own, and not of local groups"
            );
        }
        // A feed that tells nothing more: the site says so itself.
        mesh.run(vo::timing().silence.times(2));
        assert_eq!(known(&mesh, 2, 0), None);
        // The other side of a cut goes by what it knows, and then by it no more.
        list(&mut mesh, 0, &[("grid", 300)]);
        mesh.run(SETTLE);
        mesh.cut(2);
        assert!(verdict(&mesh, 2, 0, 700).is_now());
        list(&mut mesh, 0, &[("grid", 1_000)]);
        mesh.run(MINUTE);
        assert_eq!(free(&mesh, 1, 0), Some((0, 0)));
        assert_eq!(free(&mesh, 2, 0), Some((700, 0)), "an old view");
        mesh.run(vo::timing().silence);
        assert_eq!(verdict(&mesh, 2, 0, 1), Place::No(silent(&mesh, 2, 0)));
    });
}

fn silent(mesh: &Mesh, node: usize, of: usize) -> fairmesh_broker::Refusal {
    let at = known(mesh, node, of).expect("it was told").at;
    let age = Some(mesh.now(node).wall.since(at));
    fairmesh_broker::Refusal::Silent { age }
}

#[test]
fn jobs_that_start_and_end_make_no_heads_and_much_of_it_one_in_an_interval() {
    let mut mesh = found(1, 2);
    list(&mut mesh, 0, &[("local", 500)]);
    mesh.run(MINUTE);
    assert_eq!(free(&mesh, 1, 0), Some((500, 0)));
    // A job of one core of a local group each second, up to 4 % of the site: heartbeats only.
    let before = heads(&mesh, 0);
    for more in 0..40 {
        list(&mut mesh, 0, &[("local", 500 + more)]);
        mesh.run(Millis::from_secs(1));
    }
    let beats = heads(&mesh, 0).0 - before.0;
    assert!(
        beats <= 2,
        "{beats} heads in 40 s, with one in 30 s for the heartbeat"
    );
    assert!(
        free(&mesh, 1, 0).is_some_and(|(free, _)| free < 500),
        "each head says how it is"
    );
    // The site fills and empties every second: one head in 30 s for its sake.
    let before = heads(&mesh, 0);
    for second in 0..120 {
        list(
            &mut mesh,
            0,
            &[("local", if second % 2 == 0 { 1_000 } else { 1 })],
        );
        mesh.run(Millis::from_secs(1));
    }
    let news = heads(&mesh, 0).0 - before.0;
    assert!((3..=9).contains(&news), "{news} heads in two minutes");
    // What changes much is known elsewhere long before the heartbeat where nothing was said lately.
    list(&mut mesh, 0, &[("local", 500)]);
    mesh.run(MINUTE);
    list(&mut mesh, 0, &[]);
    mesh.run(Millis::from_secs(3));
    assert_eq!(free(&mesh, 1, 0), Some((1_000, 0)));
}

#[test]
fn nothing_is_said_where_the_owner_does_not_want_it() {
    let mut mesh = Mesh::found(1, 2);
    list(&mut mesh, 0, &[("grid", 7)]);
    tell(
        &mut mesh,
        0,
        Occupancy {
            free: Some(5),
            ..Occupancy::default()
        },
    );
    mesh.run(MINUTE);
    assert_eq!(known(&mesh, 1, 0), None);
    configure(&mut mesh, 0, Some(AdvertRules::default()));
    mesh.run(Millis::from_secs(20));
    assert_eq!(free(&mesh, 1, 0), Some((5, 0)), "what is known is said");
    configure(&mut mesh, 0, None);
    mesh.run(SETTLE);
    assert_eq!((known(&mesh, 1, 0), known(&mesh, 0, 0)), (None, None));
}

#[test]
fn a_scheduler_says_what_only_it_knows_and_guarantees_of_others_are_kept() {
    let mut mesh = Mesh::found(1, 2);
    let second = vo::sign_charter(vo::charter("second", 2));
    let mut config = vo::config(
        &[("grid", mesh.vo), ("second", second.vo())],
        mesh.nodes[0].config.introducers.clone(),
        vo::timing(),
    );
    let sla = "[sla]\n\"/grid\" = { cpu = \"10%+, burst 20%\", extensible = true, disk = \"40%\" }\n\"/second\" = { cpu = \"30%-\" }\n";
    config.advert = Some(AdvertRules {
        total: Some(900),
        disk_mib: Some(1_000),
        sla: Some(Sla::parse(sla, "test").expect("an SLA")),
        ..AdvertRules::default()
    });
    for node in 0..2 {
        mesh.nodes[node].config = config.clone();
        mesh.handle(node, Event::Reconfigured(Box::new(config.clone())));
    }
    assert!(mesh.publish(0, second.bytes()).is_ok());
    // Half of an hour on 90 cores: a thousandth and a little of 900 in 30 days.
    let end = mesh.now(0).wall;
    let ran = job(
        "ran",
        "grid",
        "g0",
        "u0",
        (end.before(Millis(HOUR.0 / 2)), end),
        90,
    );
    mesh.report(0, &[ran]).expect("acknowledged");
    list(
        &mut mesh,
        0,
        &[("grid", 100), ("second", 50), ("local", 10)],
    );
    let origin = |account: &str| fairmesh_model::Origin {
        user: Some("u0".to_owned()),
        group: Some("g0".to_owned()),
        account: Some(account.to_owned()),
        subject: None,
    };
    tell(
        &mut mesh,
        0,
        Occupancy {
            wait: Some(MINUTE),
            waiting: vec![(origin("second"), 40), (origin("zz-nobody"), 2)],
            staged: Some(vec![
                (origin("grid"), 90),
                (origin("second"), 5),
                (origin("grid"), 1),
            ]),
            ..Occupancy::default()
        },
    );
    mesh.run(SETTLE);
    let told = known(&mesh, 1, 0).expect("an advert");
    // 270 are guaranteed to the other VO, which has 50 and waits for 40.
    assert_eq!((told.total, told.free, told.waiting), (900, 740 - 40, 42));
    assert_eq!(told.wait, Some(MINUTE));
    let standing = told.standing.expect("it is promised something");
    assert_eq!((standing.burst_used, standing.burst_limit), (100, 180));
    assert_eq!(
        (standing.disk.share_mib, standing.disk.left_mib()),
        (Some(400), Some(309))
    );
    let epoch = (45 + 100) * 1_000_000_000 / (900 * 30 * 24);
    assert!(
        standing.epoch_used.abs_diff(epoch) < 2,
        "{} is not {epoch}",
        standing.epoch_used
    );
    // Files stay where nothing is said of them. That they have filled a share is worth a head.
    list(&mut mesh, 0, &[("grid", 100)]);
    let said = heads(&mesh, 0);
    tell(&mut mesh, 0, Occupancy::default());
    let all = Occupancy {
        staged: Some(vec![(origin("grid"), 400)]),
        ..Occupancy::default()
    };
    mesh.run(SETTLE);
    let left = |mesh: &Mesh| known(mesh, 1, 0)?.standing?.disk.left_mib();
    assert_eq!(left(&mesh), Some(309));
    tell(&mut mesh, 0, all);
    mesh.run(Millis::from_secs(35));
    assert_eq!(left(&mesh), Some(0));
    assert!(heads(&mesh, 0) > said);
    // Members of one VO learn nothing of another's jobs, nor whose they are.
    let secret = b"zz-";
    let leaks = |bytes: &Vec<u8>| bytes.windows(3).any(|of| of == secret);
    assert!(
        !mesh.nodes[0].sent.iter().any(leaks),
        "a local name left the site"
    );
}

#[test]
fn since_when_a_vo_has_more_than_it_may_is_known_elsewhere_and_behind_a_restart() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 2);
        let sla = "[sla]\n\"/grid\" = { cpu = \"burst 20%\" }\n";
        let rules = AdvertRules {
            sla: Some(Sla::parse(sla, "test").expect("an SLA")),
            ..AdvertRules::default()
        };
        configure(&mut mesh, 0, Some(rules));
        let over_for = |mesh: &Mesh| known(mesh, 1, 0)?.standing?.over_for;
        list(&mut mesh, 0, &[("grid", 200)]);
        mesh.run(SETTLE);
        assert_eq!(over_for(&mesh), None, "it has just what it may");
        let begins = mesh.elapsed_ms;
        list(&mut mesh, 0, &[("grid", 201)]);
        mesh.run(SETTLE);
        mesh.restart(0);
        list(&mut mesh, 0, &[("grid", 300)]);
        mesh.run(SETTLE);
        let since = Millis(mesh.elapsed_ms - begins);
        let said = over_for(&mesh).expect("it is over");
        assert!(
            said <= since && since <= Millis(said.0 + SETTLE.0),
            "{said:?} of {since:?}"
        );
        assert!(
            said > SETTLE,
            "the restart has forgotten it: {said:?} of {since:?}"
        );
        list(&mut mesh, 0, &[("grid", 200)]);
        mesh.run(SETTLE);
        assert_eq!(over_for(&mesh), None);
    });
}

/// Asks sites, and waits for what they say.
fn confirm(mesh: &mut Mesh, node: usize, sites: &[usize]) -> Vec<(SiteId, Result<Advert, String>)> {
    mesh.nodes[node].replies.clear();
    let sites = sites.iter().map(|site| site_id(*site)).collect();
    let call = AdvertCall::Confirm { vo: mesh.vo, sites };
    mesh.handle(node, Event::Advert { ticket: 1, call });
    mesh.run(vo::timing().request_timeout.times(2));
    match mesh.nodes[node].replies.pop() {
        Some(Reply::Advert(answer)) => match *answer {
            AdvertAnswer::Confirmed(said) => said,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_site_that_is_asked_says_how_it_is_now_or_it_is_said_why_not() {
    let mut mesh = found(1, 4);
    configure(&mut mesh, 3, None);
    (0..4).for_each(|node| list(&mut mesh, node, &[("grid", 100)]));
    mesh.run(SETTLE);
    // Too little for a head, and right behind one.
    list(&mut mesh, 1, &[("grid", 110)]);
    assert_eq!(free(&mesh, 0, 1), Some((900, 0)));
    mesh.cut(3);
    let said = confirm(&mut mesh, 0, &[0, 1, 3]);
    let of = |site: usize| {
        said.iter()
            .find(|(id, _)| *id == site_id(site))
            .map(|(_, said)| said)
    };
    assert_eq!(said.len(), 3);
    assert!(matches!(of(0), Some(Ok(own)) if own.free == 900));
    assert!(matches!(of(1), Some(Ok(live)) if live.free == 890));
    assert!(matches!(of(3), Some(Err(why)) if why.contains("cannot be reached")));
    mesh.heal();
    mesh.run(MINUTE);
    let said = confirm(&mut mesh, 0, &[3]);
    assert!(
        matches!(&said[0].1, Err(why) if why.contains("owner does not tell")),
        "{said:?}"
    );
    mesh.faults = Faults {
        lost_percent: 100,
        ..ROUGH
    };
    let said = confirm(&mut mesh, 0, &[1]);
    assert!(
        matches!(&said[0].1, Err(why) if why.contains("in time")),
        "{said:?}"
    );
    assert!(mesh.nodes[0].site.next_wakeup(MonoTime(mesh.elapsed_ms)) > MonoTime(0));
}

#[test]
fn what_no_site_can_have_is_refused_by_name_and_what_is_not_known_is_passed_on() {
    let mut mesh = Mesh::found_with(1, 3, vo::timing(), |charter| {
        *charter = vo::charter("grid", 4);
    });
    let now = mesh.now(0).wall;
    let advert = |total: u64, free: u64| {
        let advert = Advert {
            at: now,
            total,
            free,
            ..Advert::default()
        };
        Some(fairmesh_model::cbor::to_vec(&advert))
    };
    let part = |key: &[u8], bytes| vec![(PartKey::new(ADVERT, key), bytes)];
    let mut liar = Liar::new(&mesh, 3);
    let mut signs = |mesh: &mut Mesh, parts: Vec<(PartKey, Option<Vec<u8>>)>| {
        liar.start_again();
        liar.sign(now, parts);
        mesh.admit(3, std::mem::replace(&mut liar, Liar::new(mesh, 3)));
        // What is refused of a member is said once a minute.
        mesh.run(Millis::from_secs(61));
        liar = mesh.liars.remove(&site_id(3)).expect("it was admitted");
    };
    let says = |mesh: &Mesh, what: &str| mesh.noticed(0, |of| of.to_string().contains(what));
    signs(&mut mesh, part(&[0], advert(10, 11)));
    let why = "its advert: more CPUs are free (11) than there are (10)";
    assert!(says(&mesh, why), "{:?}", mesh.nodes[0].notices);
    assert_eq!(known(&mesh, 0, 3), None);
    let named = part(&[1], advert(10, 1));
    signs(&mut mesh, [part(&[0], None), named].concat());
    assert!(says(
        &mesh,
        "its advert: there is one, and it has another name"
    ));
    // A later release's kind beside it changes nothing.
    let mut parts = [part(&[0], advert(10, 9)), part(&[1], None)].concat();
    parts.push((PartKey::new(u8::MAX, b"new"), Some(b"whatever".to_vec())));
    signs(&mut mesh, parts);
    assert_eq!(free(&mesh, 0, 3), Some((9, 0)));
}

#[test]
fn what_is_free_of_each_class_stands_beside_the_class_whichever_changed_last() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 2);
        let rows: [&[(&str, u32)]; 4] = [
            &[("fat", 2), ("thin", 5)],
            &[("big", 1), ("fat", 2), ("thin", 5)],
            &[("thin", 3)],
            &[],
        ];
        for classes in rows {
            describe(&mut mesh, 1, classes);
            list(&mut mesh, 1, &[]);
            mesh.faults = ROUGH;
            mesh.run(MINUTE);
            mesh.heal();
            list(&mut mesh, 1, &[]);
            mesh.run(SETTLE);
            let expected: Vec<u64> = classes.iter().map(|(_, of)| u64::from(*of) * 8).collect();
            for node in 0..2 {
                let site = &mesh.nodes[node].site;
                let sites = site.known_sites(mesh.now(node), mesh.vo).into_iter();
                let views = sites.filter_map(|(id, known)| Some((id, known?.view)));
                let views: BTreeMap<SiteId, _> = views.collect();
                assert_eq!(*views[&site_id(1)].classes, *expected, "at node {node}");
            }
        }
        // What a site says when it is asked is of that moment, and not of what is held.
        describe(&mut mesh, 1, rows[0]);
        list(&mut mesh, 1, &[]);
        mesh.run(SETTLE);
        let mut said = known(&mesh, 0, 1).expect("it was told");
        said.classes = Arc::new(BTreeMap::from([("thin".to_owned(), 7)]));
        let (now, vo) = (mesh.now(0), mesh.vo);
        let site = &mesh.nodes[0].site;
        let view = site
            .known_by(now, (vo, &"vo".into()), site_id(1), &said)
            .view;
        assert_eq!(*view.classes, [0, 7]);
    });
}
