//! Four sites over a network that loses, doubles and delays, with sites that die between any two effects.

use fairmesh_cluster::{Seed, Stream};

use super::*;

const SITES: [&str; 4] = ["a", "b", "c", "d"];

fn job(key: &str, ttl: u8) -> RoutedJob {
    RoutedJob {
        job: key.to_owned(),
        vo: "vo".to_owned(),
        ttl,
        tried: Vec::new(),
    }
}

fn place(site: &str, utility: u32) -> Place {
    Place {
        site: site.to_owned(),
        class: "thin".to_owned(),
        utility,
        ..Place::default()
    }
}

fn open(site: &str) -> Forwarder {
    Forwarder::start(site, BTreeSet::from(["vo".to_owned()]), BTreeMap::new()).0
}

fn from_user(ttl: u8, places: &[Place]) -> Event {
    Event::FromUser {
        job: job("j", ttl),
        places: places.to_vec(),
    }
}

fn from_site(from: &str, ttl: u8, wanted_free: Option<&str>, places: &[Place]) -> Event {
    Event::FromSite {
        from: from.to_owned(),
        job: job("j", ttl),
        wanted_free: wanted_free.map(str::to_owned),
        places: places.to_vec(),
        refuse: None,
    }
}

/// What is done, beside what is kept, in few words.
fn words(effects: &[Effect]) -> Vec<String> {
    let word = |effect: &Effect| match effect {
        Effect::Keep(..) => "keep".to_owned(),
        Effect::Assign { class, .. } => format!("assign {class}"),
        Effect::Send(sending) => format!("send {} {}", sending.to, sending.job.ttl),
        Effect::Acknowledge { to, answer } => format!("ack {to} {}", answer.ttl),
        Effect::Decline { to, .. } => format!("decline {to}"),
        Effect::Fail(job, why) => {
            let tried = job.tried.iter().map(|tried| match &tried.said {
                Some(_) => format!("({})", tried.site),
                None => tried.site.clone(),
            });
            format!("fail {why:?} {}", tried.collect::<Vec<_>>().join(","))
        }
    };
    effects.iter().map(word).collect()
}

#[test]
pub(crate) fn the_best_class_gets_the_job_and_ties_stay_here() {
    let rows: [(&[Place], &str); 5] = [
        (&[place("b", 500), place("a", 400)], "send b 4"),
        (&[place("b", 500), place("a", 500)], "assign thin"),
        (&[place("c", 500), place("b", 500)], "send b 4"),
        (
            &[
                Place {
                    load: 1,
                    ..place("b", 500)
                },
                place("c", 500),
            ],
            "send c 4",
        ),
        (&[place("b", 0)], "fail Nowhere "),
    ];
    for (places, expected) in rows {
        let effects = open("a").handle(MonoTime(0), from_user(TTL, places));
        assert_eq!(words(&effects), ["keep", expected], "{places:?}");
    }
    // A failure is told only where the best is elsewhere.
    let far = open("a").handle(MonoTime(0), from_user(0, &[place("b", 1)]));
    assert_eq!(words(&far), ["keep", "fail TooFar "]);
    let here = open("a").handle(MonoTime(0), from_user(0, &[place("a", 1)]));
    assert_eq!(words(&here), ["keep", "assign thin"]);
}

#[test]
pub(crate) fn a_receiver_counts_the_hop_and_acknowledges_behind_what_it_keeps() {
    let mut site = open("b");
    let effects = site.handle(MonoTime(0), from_site("a", 4, None, &[place("c", 1)]));
    assert_eq!(words(&effects), ["keep", "ack a 4", "send c 3"]);
    let again = site.handle(MonoTime(1), from_site("a", 4, None, &[place("c", 1)]));
    assert_eq!(words(&again), ["ack a 4"], "a repeat");
    let mut last = open("b");
    let effects = last.handle(MonoTime(0), from_site("a", 1, None, &[place("c", 1)]));
    assert_eq!(words(&effects), ["keep", "ack a 1", "fail TooFar a"]);
    let wanted = open("b").handle(
        MonoTime(0),
        from_site("a", 1, Some("thin"), &[place("c", 1)]),
    );
    assert_eq!(words(&wanted), ["keep", "ack a 1", "assign thin"]);
}

#[test]
pub(crate) fn who_does_not_consent_is_asked_once_and_believed_once() {
    let mut closed = Forwarder::start("b", BTreeSet::new(), BTreeMap::new()).0;
    let effects = closed.handle(MonoTime(0), from_site("a", 4, None, &[place("b", 9)]));
    assert_eq!(words(&effects), ["keep", "decline a"]);
    let places = [place("b", 9), place("c", 5), place("a", 1)];
    let mut sender = open("a");
    sender.handle(MonoTime(0), from_user(TTL, &places));
    let answer = |from: &str| Answer {
        from: from.to_owned(),
        job: "j".to_owned(),
        ttl: 4,
    };
    let declined = |from| Event::Declined(answer(from), "no".to_owned(), places.to_vec());
    let effects = sender.handle(MonoTime(1), declined("b"));
    assert_eq!(words(&effects), ["keep", "send c 4"]);
    // The same answer, late: the job is c's by now.
    let late = sender.handle(MonoTime(2), declined("b"));
    assert!(late.is_empty(), "{late:?}");
    let none = sender.handle(MonoTime(2), Event::Taken(answer("b")));
    assert!(none.is_empty() && sender.next_wakeup().is_some());
    sender.handle(MonoTime(3), Event::Taken(answer("c")));
    assert_eq!(sender.next_wakeup(), None);
}

#[test]
fn nobody_moves_a_job_by_a_message_that_is_declined_or_comes_while_the_job_is_here() {
    let closed = Forwarder::start("a", BTreeSet::new(), BTreeMap::new()).0;
    for (at, site) in [("b", open("a")), ("b", closed), ("a", open("a"))] {
        let mut site = site;
        site.handle(MonoTime(0), from_user(TTL, &[place(at, 9)]));
        let before = site.kept("j").expect("it was handed in").clone();
        let refused = |ttl| {
            let mut event = from_site("liar", ttl, None, &[]);
            if let Event::FromSite { refuse, .. } = &mut event {
                *refuse = Some("no".to_owned());
            }
            event
        };
        for ttl in [0, 1, 3, TTL_MAX + 1] {
            site.handle(MonoTime(1), refused(ttl));
        }
        let after = site.kept("j").expect("it is known");
        assert_eq!((after.ttl, &after.state), (before.ttl, &before.state));
        let next = site.handle(MonoTime(0).after(RESEND), Event::Tick);
        assert_eq!(words(&next).is_empty(), at == "a", "it is sent again");
    }
    let mut here = open("a");
    here.handle(MonoTime(0), from_user(TTL, &[place("a", 9)]));
    let moved = here.handle(MonoTime(1), from_site("liar", 1, None, &[]));
    assert_eq!(words(&moved), ["ack liar 1"], "it is here");
}

#[test]
fn a_job_that_was_only_declined_is_taken_when_somebody_else_sends_it() {
    let mut site = open("b");
    for ttl in [0, TTL_MAX + 1] {
        let effects = site.handle(MonoTime(0), from_site("liar", ttl, None, &[place("b", 9)]));
        assert_eq!(words(&effects), ["decline liar"]);
        assert_eq!(site.kept("j"), None, "nothing is remembered of that");
    }
    site.accept(BTreeSet::new());
    let effects = site.handle(MonoTime(0), from_site("liar", 1, None, &[]));
    assert_eq!(words(&effects), ["keep", "decline liar"]);
    site.accept(BTreeSet::from(["vo".to_owned()]));
    let kept = site.kept("j").expect("it was declined").clone();
    let kept = BTreeMap::from([("j".to_owned(), kept)]);
    let (mut site, _) = Forwarder::start("b", BTreeSet::from(["vo".to_owned()]), kept);
    let again = site.handle(MonoTime(0), from_site("a", 1, None, &[place("b", 9)]));
    assert_eq!(words(&again), ["decline a"], "a repeat");
    let effects = site.handle(MonoTime(0), from_site("a", TTL, None, &[place("b", 9)]));
    assert_eq!(words(&effects), ["keep", "ack a 4", "assign thin"]);
}

#[test]
fn a_job_that_was_outrun_goes_elsewhere_or_queues() {
    let mut site = open("a");
    site.handle(MonoTime(0), from_user(1, &[place("a", 9), place("b", 5)]));
    let effects = site.clone().handle(
        MonoTime(1),
        Event::ClassTaken("j".to_owned(), vec![place("a", 9), place("b", 5)]),
    );
    assert_eq!(words(&effects), ["keep", "send b 1"]);
    let queued = site.handle(
        MonoTime(1),
        Event::ClassTaken("j".to_owned(), vec![place("a", 9)]),
    );
    assert_eq!(words(&queued), ["assign thin"]);
}

#[test]
fn a_job_whose_batch_system_refuses_it_goes_to_the_next_and_all_that_was_tried_is_told() {
    let places = [place("a", 9), place("b", 5), place("c", 1)];
    let mut site = open("a");
    site.handle(MonoTime(0), from_user(1, &places));
    let refused = Event::Refused("j".to_owned(), "no such queue".to_owned(), places.to_vec());
    let effects = site.handle(MonoTime(1), refused.clone());
    assert_eq!(words(&effects), ["keep", "send b 1"]);
    assert!(site.handle(MonoTime(1), refused).is_empty(), "it is b's");
    let declined = |from: &str, places: &[Place]| {
        let answer = Answer {
            from: from.to_owned(),
            job: "j".to_owned(),
            ttl: 1,
        };
        Event::Declined(answer, "full".to_owned(), places.to_vec())
    };
    let mut far = site.clone();
    let effects = site.handle(MonoTime(2), declined("b", &places[..2]));
    assert_eq!(words(&effects), ["keep", "fail Nowhere (a),(b)"]);
    far.handle(MonoTime(2), declined("b", &places));
    let doubt = far.handle(MonoTime(3), Event::Expired("j".to_owned()));
    assert_eq!(words(&doubt), ["keep", "fail InDoubt (a),(b),(c)"]);
    // Too late, and nothing is sent on.
    let late = far.handle(MonoTime(4), declined("c", &places));
    assert!(late.is_empty() && far.next_wakeup().is_none(), "{late:?}");
}

#[test]
fn a_place_where_it_could_start_comes_before_a_better_one_where_it_would_wait() {
    let waiting = Place {
        waits: true,
        ..place("b", 900)
    };
    let free = place("c", 100);
    let effects = open("a").handle(MonoTime(0), from_user(TTL, &[waiting.clone(), free]));
    assert_eq!(words(&effects), ["keep", "send c 4"]);
    let effects = open("a").handle(MonoTime(0), from_user(TTL, &[waiting]));
    assert_eq!(words(&effects), ["keep", "send b 4"]);
}

#[test]
fn a_job_that_everybody_declines_ends() {
    let name = |at: usize| format!("s{at:03}");
    let places: Vec<Place> = (0..200).map(|at| place(&name(at), 5)).collect();
    let mut site = open("a");
    let mut effects = site.handle(MonoTime(0), from_user(TTL, &places));
    let mut asked = 0;
    while let Some(Effect::Send(sending)) = effects.last() {
        asked += 1;
        let answer = Answer {
            from: sending.to.clone(),
            job: "j".to_owned(),
            ttl: TTL,
        };
        let declined = Event::Declined(answer, "no".to_owned(), places.clone());
        effects = site.handle(MonoTime(0), declined);
    }
    assert_eq!(asked, TRIED_MAX);
    assert!(matches!(
        effects.last(),
        Some(Effect::Fail(_, Failure::TooFar))
    ));
}

/// A Grid of four sites and one job.
struct Grid {
    stream: Stream,
    sites: BTreeMap<&'static str, Forwarder>,
    disks: BTreeMap<&'static str, BTreeMap<String, Kept>>,
    messages: Vec<(String, Event)>,
    now: MonoTime,
    /// Where the job was started, and how its user was told that it was not.
    ends: BTreeSet<String>,
}

impl Grid {
    fn new(seed: u64) -> Self {
        Self {
            stream: Seed(seed).stream("forwarding"),
            sites: SITES.map(|site| (site, open(site))).into(),
            disks: SITES.map(|site| (site, BTreeMap::new())).into(),
            messages: Vec::new(),
            now: MonoTime(0),
            ends: BTreeSet::new(),
        }
    }

    /// Views that are old and wrong: anybody may seem best.
    fn places(&mut self) -> Vec<Place> {
        SITES
            .map(|site| place(site, u32::try_from(self.stream.below(4)).expect("small")))
            .to_vec()
    }

    fn chance(&mut self, of: u64) -> bool {
        self.stream.below(of) == 0
    }

    /// Carries effects out, and dies in between at times.
    fn carry_out(&mut self, site: &'static str, effects: Vec<Effect>, faults: bool) {
        for effect in effects {
            if faults && self.chance(8) {
                let accepts = BTreeSet::from(["vo".to_owned()]);
                let (started, effects) = Forwarder::start(site, accepts, self.disks[site].clone());
                self.sites.insert(site, started);
                return self.carry_out(site, effects, false);
            }
            match effect {
                Effect::Keep(job, kept) => {
                    self.disks.get_mut(site).expect("a site").insert(job, kept);
                }
                Effect::Assign { job, .. } => {
                    self.ends.insert(format!("{site} started it"));
                    self.settled(site, job);
                }
                Effect::Fail(job, why) => {
                    let been = job.tried.iter().filter(|tried| tried.said.is_none());
                    assert!(been.count() <= usize::from(TTL), "{job:?}");
                    self.ends.insert(format!("{site} gave it up: {why}"));
                    self.settled(site, job.job);
                }
                Effect::Send(sending) => {
                    let (to, job) = (sending.to, sending.job);
                    let event = Event::FromSite {
                        from: site.to_owned(),
                        job,
                        wanted_free: None,
                        places: Vec::new(),
                        refuse: None,
                    };
                    self.post(to, event, faults);
                }
                Effect::Acknowledge { to, answer } => self.post(to, Event::Taken(answer), faults),
                Effect::Decline { to, answer, why } => {
                    self.post(to, Event::Declined(answer, why, Vec::new()), faults)
                }
            }
        }
    }

    /// The batch system has it, or its user knows; at times nobody notes that.
    fn settled(&mut self, site: &'static str, job: String) {
        if !self.chance(3) {
            self.post(site.to_owned(), Event::Settled(job), false);
        }
    }

    fn post(&mut self, to: String, event: Event, faults: bool) {
        let copies = if faults { self.stream.below(3) } else { 1 };
        for _ in 0..copies {
            self.messages.push((to.clone(), event.clone()));
        }
    }

    fn step(&mut self, faults: bool) {
        self.now = self.now.after(Millis(1_000));
        for site in SITES {
            let effects = self
                .sites
                .get_mut(site)
                .expect("a site")
                .handle(self.now, Event::Tick);
            self.carry_out(site, effects, faults);
        }
        if self.messages.is_empty() {
            return;
        }
        let (to, mut event) = self
            .messages
            .swap_remove(self.stream.index(self.messages.len()));
        if let Event::FromSite { places, .. } | Event::Declined(_, _, places) = &mut event {
            *places = self.places();
        }
        let site = SITES.into_iter().find(|site| *site == to).expect("a site");
        // Consent comes and goes.
        let accepts = !self.chance(5);
        let forwarder = self.sites.get_mut(site).expect("a site");
        forwarder.accepts = accepts.then(|| "vo".to_owned()).into_iter().collect();
        let effects = forwarder.handle(self.now, event);
        self.carry_out(site, effects, faults);
    }
}

#[test]
pub(crate) fn a_job_ends_once_whatever_is_lost_doubled_and_killed() {
    for seed in 0..400 {
        let mut grid = Grid::new(seed);
        let places = grid.places();
        // The user's own hand-over is not lost, or there would be no job.
        let effects = grid
            .sites
            .get_mut("a")
            .expect("a site")
            .handle(MonoTime(0), from_user(TTL, &places));
        grid.carry_out("a", effects, false);
        (0..60).for_each(|_| grid.step(true));
        let late = std::mem::take(&mut grid.messages);
        (0..200).for_each(|_| grid.step(false));
        // What was under way for a very long time comes all the same.
        grid.messages.extend(late);
        (0..400).for_each(|_| grid.step(false));
        assert_eq!(grid.ends.len(), 1, "seed {seed}: {:?}", grid.ends);
    }
}
