//! Four sites over a network that loses, doubles and delays, with sites that die between any two effects.

use fairmesh_cluster::{Seed, Stream};

use super::*;

const SITES: [&str; 4] = ["a", "b", "c", "d"];

fn job(key: &str, ttl: u8) -> Traveller {
    Traveller {
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
        load: 0,
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
        Effect::Fail(job, why) => format!("fail {why:?} {}", job.tried.join(",")),
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
    let effects = sender.handle(MonoTime(1), Event::Declined(answer("b"), places.to_vec()));
    assert_eq!(words(&effects), ["keep", "send c 4"]);
    // The same answer, late: the job is c's by now.
    let late = sender.handle(MonoTime(2), Event::Declined(answer("b"), places.to_vec()));
    assert!(late.is_empty(), "{late:?}");
    let none = sender.handle(MonoTime(2), Event::Taken(answer("b")));
    assert!(none.is_empty() && sender.next_wakeup().is_some());
    sender.handle(MonoTime(3), Event::Taken(answer("c")));
    assert_eq!(sender.next_wakeup(), None);
}

#[test]
fn a_job_that_was_outrun_goes_elsewhere_or_queues() {
    let mut site = open("a");
    site.handle(MonoTime(0), from_user(1, &[place("a", 9), place("b", 5)]));
    let effects = site.clone().handle(
        MonoTime(1),
        Event::Outrun("j".to_owned(), vec![place("a", 9), place("b", 5)]),
    );
    assert_eq!(words(&effects), ["keep", "send b 1"]);
    let queued = site.handle(
        MonoTime(1),
        Event::Outrun("j".to_owned(), vec![place("a", 9)]),
    );
    assert_eq!(words(&queued), ["assign thin"]);
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
                    assert!(job.tried.len() <= usize::from(TTL), "{job:?}");
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
                    };
                    self.post(to, event, faults);
                }
                Effect::Acknowledge { to, answer } => self.post(to, Event::Taken(answer), faults),
                Effect::Decline { to, answer } => {
                    self.post(to, Event::Declined(answer, Vec::new()), faults)
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
        if let Event::FromSite { places, .. } | Event::Declined(_, places) = &mut event {
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
