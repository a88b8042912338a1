//! What members, clocks, owners and users do to jobs that are passed on, by mistake or on purpose.

use std::collections::BTreeSet;

use fairmesh_broker::forward::Tried;
use fairmesh_model::{ContentHash, Millis, Signed, WallTime};
use fairmesh_site::{
    End, Event, ForwardAnswer, ForwardCall, ForwardRules, HandOffReply, JobRequest, Message, Offer,
    Settlement, Stage, Table, Take, read_forward,
};

use super::forwarding::{
    DAY, MINUTE, call, configure, errand, failed, found, hand_in, here, rules, say, settle, stage,
    taken_from,
};
use crate::mesh::Mesh;
use crate::random::with_seeds;
use crate::vo::{self, site_id};

/// Takes a node's VO out of its configuration.
fn leave(mesh: &mut Mesh, node: usize) {
    let with = &mesh.nodes[node].config;
    let without = vo::config(&[], with.introducers.clone(), with.timing);
    mesh.nodes[node].config = without.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(without)));
}

/// B hands over a job of its own, issued then.
fn offered(
    mesh: &Mesh,
    job: JobRequest,
    issued: WallTime,
    tried: Vec<Tried>,
) -> (ContentHash, Take) {
    let offer = Offer {
        origin: site_id(1),
        issued,
        until: issued.after(DAY),
        job,
    };
    let signed = Signed::sign(offer, &[&vo::site_key(1)]).expect("a sound offer");
    let take = Take {
        ttl: 4,
        tried,
        class: String::new(),
        offer: signed.bytes().to_vec().into(),
    };
    assert_eq!(signed.vo(), mesh.vo);
    (signed.hash(), take)
}

/// One that no site has the CPUs for, so that it fails where it comes, with much that was tried before.
fn stuffed(mesh: &Mesh, key: &str) -> (ContentHash, Take) {
    let job = JobRequest {
        cpus: 4_000_000_000,
        ..errand(mesh, key)
    };
    let tried = (0..62).map(|of| Tried {
        site: site_id(of).to_string(),
        said: Some("x".repeat(256)),
    });
    offered(mesh, job, mesh.now(1).wall, tried.collect())
}

/// C takes as many jobs a minute as anybody hands over.
fn take_any(mesh: &mut Mesh) {
    let any = ForwardRules {
        per_minute: u32::MAX,
        ..rules(mesh)
    };
    configure(mesh, 2, Some(any));
}

fn stuffed_at_c(mesh: &mut Mesh, key: &str) -> (ContentHash, Option<HandOffReply>) {
    let (job, take) = stuffed(mesh, key);
    let told = say(mesh, 1, 2, &Message::Take(take));
    (job, told)
}

#[test]
fn a_job_of_a_vo_that_was_left_is_given_up_and_stops_nobody() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        let job = hand_in(&mut mesh, "j1");
        mesh.run(Millis::from_secs(1));
        assert_eq!(here(&mesh, 2), [job]);
        leave(&mut mesh, 2);
        settle(
            &mut mesh,
            2,
            job,
            Settlement::Refused("it fails".to_owned()),
        );
        let end = stage(&mesh, 2, job);
        assert!(
            matches!(end, Some(Stage::Ended(End::Failed { .. }))),
            "{end:?}"
        );
        // And where one is declined that is on its way.
        let mut mesh = found(seed, 3);
        configure(&mut mesh, 2, Some(ForwardRules::default()));
        let job = hand_in(&mut mesh, "j1");
        assert_eq!(stage(&mesh, 0, job), Some(Stage::Sent(site_id(2))));
        leave(&mut mesh, 0);
        mesh.run(MINUTE);
        let (_, tried) = failed(&mesh, job);
        assert_eq!(tried.len(), 1);
    });
}

#[test]
fn an_answer_about_long_ends_is_read_and_all_are_told_in_time() {
    let mut mesh = found(1, 3);
    take_any(&mut mesh);
    let mut left = Vec::new();
    for number in 0..40 {
        let (job, told) = stuffed_at_c(&mut mesh, &format!("j{number}"));
        assert_eq!(told, Some(HandOffReply::Taken));
        left.push(job);
    }
    // One that is asked for 64 times costs no more.
    for asked in [vec![left[0]; 64], left.clone()] {
        for ask in [Message::Ends(asked.clone()), Message::Withdraw(asked)] {
            let told = say(&mut mesh, 1, 2, &ask);
            let sent = mesh.nodes[2].sent.iter().map(Vec::len).max();
            assert!(
                matches!(told, Some(HandOffReply::Ends(_))),
                "{sent:?} bytes"
            );
        }
    }
    for _ in 0..40 {
        let Some(HandOffReply::Ends(ends)) = say(&mut mesh, 1, 2, &Message::Ends(left.clone()))
        else {
            panic!("it can be read");
        };
        assert!(matches!(ends.first(), Some(Some(End::Failed { .. }))));
        let told = ends.iter().filter(|end| end.is_some()).count();
        left.drain(..told);
        if left.is_empty() {
            return;
        }
    }
    panic!("{} are never told", left.len());
}

#[test]
fn what_was_tried_takes_of_its_senders_room_until_it_is_forgotten() {
    let mut mesh = found(1, 3);
    take_any(&mut mesh);
    let bytes = |mesh: &Mesh| {
        let rows = mesh.nodes[2].rows.iter();
        let rows = rows.filter(|((table, _), _)| *table == Table::Forwarded);
        rows.map(|(_, row)| row.len()).sum::<usize>()
    };
    let fill = |mesh: &mut Mesh, round: u32| {
        let mut taken = 0;
        for number in 0..300 {
            match stuffed_at_c(mesh, &format!("j{round}.{number}")).1 {
                Some(HandOffReply::Taken) => taken += 1,
                other => {
                    assert_eq!(other, Some(HandOffReply::Later));
                    break;
                }
            }
        }
        taken
    };
    let taken = fill(&mut mesh, 0);
    assert!((100..300).contains(&taken), "{taken}");
    assert!(bytes(&mesh) < 5 << 20, "{} bytes", bytes(&mesh));
    mesh.restart(2);
    assert_eq!(fill(&mut mesh, 1), 0, "also after a start");
    // Others' room is their own.
    let errand = Box::new(errand(&mesh, "own"));
    let own = call(&mut mesh, 2, ForwardCall::HandIn(errand, None));
    assert!(matches!(own, Some(Ok(ForwardAnswer::HandedIn(_)))));
    mesh.tick_ms = 600_000;
    mesh.run(DAY.times(2));
    mesh.run(MINUTE.times(20));
    assert_eq!(fill(&mut mesh, 2), taken, "all is free again");
}

#[test]
fn a_clock_that_is_ahead_for_a_minute_forgets_no_job_and_hands_none_in() {
    let mut mesh = found(1, 3);
    let job = hand_in(&mut mesh, "j1");
    mesh.run(Millis::from_secs(1));
    settle(&mut mesh, 2, job, Settlement::Submitted("4711".to_owned()));
    for node in [0, 2, 0, 2] {
        mesh.nodes[node].ahead_ms = DAY.times(3).0;
        mesh.run(MINUTE);
        mesh.nodes[node].ahead_ms = 0;
        mesh.run(MINUTE);
        assert_eq!(mesh.nodes[node].count_rows(Table::Forwarded), 1);
    }
    assert_eq!(hand_in(&mut mesh, "j1"), job);
    // Nor is a job offered until a time that is not known.
    mesh.nodes[0].ahead_ms = DAY.times(3).0;
    mesh.run(MINUTE);
    let late = Box::new(errand(&mesh, "late"));
    let refused = call(&mut mesh, 0, ForwardCall::HandIn(late, None));
    let why = refused.expect("an answer").expect_err("it is refused");
    assert!(why.contains("clock"), "{why}");
}

#[test]
fn a_clock_that_is_ahead_at_a_start_forgets_no_job() {
    let mut mesh = found(1, 3);
    let job = hand_in(&mut mesh, "j1");
    mesh.run(Millis::from_secs(1));
    settle(&mut mesh, 2, job, Settlement::Submitted("4711".to_owned()));
    mesh.stop(2);
    mesh.nodes[2].ahead_ms = DAY.times(3).0;
    mesh.restart(2);
    mesh.nodes[2].ahead_ms = 0;
    mesh.run(MINUTE);
    assert_eq!(mesh.nodes[2].count_rows(Table::Forwarded), 1);
    assert!(matches!(
        stage(&mesh, 0, job),
        Some(Stage::Ended(End::Submitted { .. }))
    ));
}

#[test]
fn an_offer_that_is_dated_ahead_is_declined_and_not_remembered() {
    let mut mesh = found(1, 3);
    let issued = mesh.now(1).wall.after(DAY.times(365));
    let (_, take) = offered(&mesh, errand(&mesh, "j1"), issued, Vec::new());
    let told = say(&mut mesh, 1, 2, &Message::Take(take));
    assert!(matches!(told, Some(HandOffReply::Declined(_))), "{told:?}");
    assert_eq!(mesh.nodes[2].count_rows(Table::Forwarded), 0);
    // A clock that is a little ahead is nobody's fault.
    let issued = mesh.now(1).wall.after(MINUTE);
    let (_, take) = offered(&mesh, errand(&mesh, "j1"), issued, Vec::new());
    assert_eq!(
        say(&mut mesh, 1, 2, &Message::Take(take)),
        Some(HandOffReply::Taken)
    );
}

#[test]
fn who_takes_a_failed_job_back_again_and_again_has_nobody_asked() {
    let mut mesh = found(1, 4);
    take_any(&mut mesh);
    let asked = |mesh: &Mesh, node: usize| {
        let sent = mesh.nodes[node].sent.iter();
        let asks = sent.filter(|of| {
            matches!(
                read_forward(of),
                Some(Message::Ends(_) | Message::Withdraw(_))
            )
        });
        asks.count()
    };
    // At A and at C one waits of which the end is not known.
    for node in [0, 2] {
        let waits = JobRequest {
            cpus: 350,
            ..errand(&mesh, "waits")
        };
        let waits = call(&mut mesh, node, ForwardCall::HandIn(Box::new(waits), None));
        assert!(matches!(waits, Some(Ok(_))), "{waits:?}");
        mesh.run(Millis::from_secs(1));
    }
    let large = JobRequest {
        cpus: 5_000,
        ..errand(&mesh, "failed")
    };
    let failed = call(&mut mesh, 0, ForwardCall::HandIn(Box::new(large), None));
    let Some(Ok(ForwardAnswer::HandedIn(failed))) = failed else {
        panic!("{failed:?}");
    };
    mesh.nodes[0].sent.clear();
    for _ in 0..100 {
        call(&mut mesh, 0, ForwardCall::Withdraw(failed));
        mesh.run(Millis(20));
    }
    assert!(asked(&mesh, 0) <= 2, "{}", asked(&mesh, 0));
    let (job, told) = stuffed_at_c(&mut mesh, "j1");
    assert_eq!(told, Some(HandOffReply::Taken));
    let mut asks = 0;
    for _ in 0..100 {
        say(&mut mesh, 1, 2, &Message::Withdraw(vec![job]));
        mesh.run(Millis(20));
        asks += asked(&mesh, 2);
    }
    assert!(asks <= 2, "{asks}");
}

#[test]
fn a_job_that_nobody_hands_over_within_a_day_is_begun_no_more() {
    let mut mesh = found(1, 3);
    let job = hand_in(&mut mesh, "j1");
    mesh.run(Millis::from_secs(1));
    let is_withdrawn = |mesh: &Mesh| {
        let mut here = mesh.nodes[2].site.forwarded_here();
        here.next().map(|job| job.is_withdrawn)
    };
    mesh.nodes[2].ahead_ms = DAY.times(3).0;
    mesh.run(MINUTE);
    assert_eq!(is_withdrawn(&mesh), Some(false), "by a clock that is wrong");
    mesh.nodes[2].ahead_ms = 0;
    mesh.tick_ms = 600_000;
    mesh.run(DAY);
    mesh.run(MINUTE.times(20));
    assert_eq!(is_withdrawn(&mesh), Some(true));
    settle(
        &mut mesh,
        2,
        job,
        Settlement::Refused("it is too late".to_owned()),
    );
    mesh.run(MINUTE.times(20));
    // Nobody else has been asked.
    let (_, tried) = failed(&mesh, job);
    let said = Some("it is too late".to_owned());
    assert_eq!(tried, [(0, None), (2, said)]);
}

#[test]
fn words_that_a_command_takes_for_an_option_or_a_path_are_no_names() {
    let mut mesh = found(1, 3);
    let named = |user: &str, queue: Option<&str>| JobRequest {
        user: user.to_owned(),
        queue: queue.map(str::to_owned),
        ..errand(&mesh, "j1")
    };
    let bad = [
        named("-x", None),
        named("../x", None),
        named("a/b", None),
        named("ann", Some("--wrap=x")),
        named("ann", Some("a/../b")),
    ];
    for bad in bad {
        let (_, take) = offered(&mesh, bad.clone(), mesh.now(1).wall, Vec::new());
        let refused = call(&mut mesh, 0, ForwardCall::HandIn(Box::new(bad), None));
        assert!(matches!(refused, Some(Err(_))), "{refused:?}");
        let told = say(&mut mesh, 1, 2, &Message::Take(take));
        assert!(matches!(told, Some(HandOffReply::Declined(_))), "{told:?}");
    }
    assert_eq!(mesh.nodes[2].count_rows(Table::Forwarded), 0);
    // Nor is a class what its sender calls so, where the site has none.
    let (_, take) = offered(&mesh, errand(&mesh, "j1"), mesh.now(1).wall, Vec::new());
    let class = "--nodelist=all".to_owned();
    let told = say(&mut mesh, 1, 2, &Message::Take(Take { class, ..take }));
    assert_eq!(told, Some(HandOffReply::Taken));
    let classes = mesh.nodes[2].site.forwarded_here().map(|job| job.class);
    assert_eq!(classes.collect::<Vec<_>>(), [""]);
}

#[test]
fn a_site_is_called_what_the_charter_of_the_jobs_vo_calls_it() {
    let mut mesh = Mesh::found(1, 3);
    // Of two VOs one has the lower id, whichever that is; in the second one two names are exchanged.
    let mut charter = vo::charter("second", 3);
    charter.sites[0].name = "site-1".to_owned();
    charter.sites[1].name = "site-0".to_owned();
    let second = vo::sign_charter(charter);
    let vos = [mesh.vo, second.vo()];
    let config = vo::config(
        &[("grid", vos[0]), ("second", vos[1])],
        mesh.nodes[0].config.introducers.clone(),
        vo::timing(),
    );
    let config = fairmesh_site::SiteConfig {
        advert: Some(fairmesh_site::AdvertRules::default()),
        ..config
    };
    for node in 0..3 {
        mesh.nodes[node].config = config.clone();
        mesh.handle(node, Event::Reconfigured(Box::new(config.clone())));
    }
    assert!(mesh.publish(0, second.bytes()).is_ok());
    super::forwarding::tell_all(&mut mesh);
    mesh.run(MINUTE);
    let named = |vo| {
        let known = mesh.nodes[2].site.known_sites(mesh.now(2), vo);
        let named = known
            .into_iter()
            .filter_map(|(_, known)| Some(known?.view.name));
        named.collect::<Vec<_>>()
    };
    assert_eq!(named(vos[0]), ["site-0", "site-1", "site-2"]);
    assert_eq!(named(vos[1]), ["site-1", "site-0", "site-2"]);
}

#[test]
fn a_job_that_comes_back_to_where_it_was_handed_in_is_still_its_users() {
    let mut mesh = found(1, 3);
    mesh.nodes[0].sent.clear();
    let job = hand_in(&mut mesh, "j1");
    let take = taken_from(&mesh, 0);
    mesh.run(Millis::from_secs(1));
    let takes = rules(&mesh);
    configure(&mut mesh, 0, Some(takes));
    let back = Message::Take(Take {
        ttl: take.ttl - 1,
        ..take
    });
    assert_eq!(say(&mut mesh, 2, 0, &back), Some(HandOffReply::Taken));
    let known = mesh.nodes[0].site.forwarded_job(job).expect("it is known");
    assert!(known.is_own && known.from.contains(&site_id(2)));
    // However many others there are, those of this site's users are listed first.
    for number in 0..20 {
        let key = format!("other{number}");
        let (other, take) = offered(&mesh, errand(&mesh, &key), mesh.now(1).wall, Vec::new());
        assert_eq!(
            say(&mut mesh, 1, 0, &Message::Take(take)),
            Some(HandOffReply::Taken)
        );
        let known = mesh.nodes[0].site.forwarded_job(other);
        assert!(known.is_some_and(|known| !known.is_own));
    }
    let listed: Vec<_> = mesh.nodes[0].site.forwarded_ids().collect();
    assert_eq!((listed[0], listed.len()), (job, 21));
}

#[test]
fn jobs_that_are_never_answered_leave_others_their_turn_to_be_sent_again() {
    let mut mesh = found(1, 3);
    let jobs: BTreeSet<_> = (0..40)
        .map(|number| hand_in(&mut mesh, &format!("j{number}")))
        .collect();
    mesh.faults.lost_percent = 100;
    mesh.nodes[0].sent.clear();
    mesh.run(MINUTE.times(5));
    let sent = mesh.nodes[0].sent.iter();
    let sent = sent.filter_map(|bytes| match read_forward(bytes)? {
        Message::Take(take) => Some(
            Signed::<Offer>::parse(&take.offer)
                .expect("an offer")
                .hash(),
        ),
        Message::Ends(_) | Message::Withdraw(_) => None,
    });
    assert_eq!(sent.collect::<BTreeSet<_>>(), jobs);
}
