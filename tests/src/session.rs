//! A session with whole sites, as bytes say it: what members, the network, local callers and the clock do.
//!
//! Two honest sites of a VO talk to each other through a network that the bytes decide, and to a third member that
//! signs and sends what they say. What fuzzing single decoders cannot reach, what comes of bytes that were taken, is
//! reached here. A step is a byte that says what is done and what belongs to it; the last one may be cut short.
//!
//! Invariants: nobody panics; nothing leaves an honest site that is larger than others take; each one's own counters
//! come to what it has acknowledged, whatever it is sent, and however often it starts again on its rows.
//! Deliberately not here: bytes on sockets and streams (`decoders`, `hostile`), disks (`crates/round`).

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::OnceLock;

use fairmesh_gossip::wire::{
    HeadContent, HeadItem, PUSH_BYTES_MAX, Probe, PullAnswer, REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX, Request, Response, Summary,
};
use fairmesh_gossip::{Head, HeldRow, KEY_BYTES_MAX, Kinds, PartKey, Replica};
use fairmesh_model::{
    AccountPath, Counters, Importance, Incarnation, JobKey, Millis, MonoTime, Now, Origin,
    Placement, RunningJob, SigningKey, SiteId, Span, UsageRecord, VoId, WallTime, WindowLength,
};
use fairmesh_node::config::Config;
use fairmesh_site::{
    Effect, Event, HoldCall, JobMark, QuotaCall, Reply, Row, Site, SiteConfig, Table, job_key,
};
use serde_bytes::ByteBuf;

use crate::Vo;

/// 2026-01-05, a Monday, 12:20 UTC.
const START: WallTime = WallTime(1_767_615_600_000);
const HOUR_MS: u64 = 3_600_000;
/// Time that passes in a session, and how far a clock leaps, at most: less than what any history forgets.
const ELAPSED_MS_MAX: u64 = 7 * 24 * HOUR_MS;
const LEAP_MS_MAX: u64 = 3 * 24 * HOUR_MS;
/// Sites that keep the rules; the one behind them does not.
const HONEST: usize = 2;
const LIAR: usize = HONEST;
/// Messages that wait to be delivered, at most; the oldest is lost.
const WAITING_MAX: usize = 64;
/// Messages of one talk: the liar's probes never agree, so it may have no end.
const TALK_MAX: usize = 100;

/// Carries a session out. True if a head that the liar signed came into force at an honest site.
///
/// # Panics
/// If an invariant does not hold: that is what it is for.
pub fn run(bytes: &[u8]) -> bool {
    let (mut session, mut script) = (Session::begin(), Script(bytes));
    while session.step(&mut script).is_some() {}
    session.check();
    let of_liar = session.vo.id(LIAR);
    let is_taken = |place: &Place| {
        let held = place.site.held_of(session.vo.vo);
        held.is_some_and(|held| held.heads.keys().any(|of| of.site == of_liar))
    };
    session.places.iter().any(is_taken)
}

/// What the honest sites say to each other about a job, a restart and what comes of them, each with the name of its decoder.
#[cfg(test)]
pub(crate) fn said() -> Vec<(&'static str, Vec<u8>)> {
    let mut session = Session::begin();
    let mut said = Vec::new();
    for script in [
        &[8, 0, 7, 1, 0, 0, 1, 1, 0][..],
        &[10, 14],
        &[13, 1],
        &[10, 14],
    ] {
        session.step(&mut Script(script)).expect("a whole step");
        while let Some(parcel) = session.wire.pop_front() {
            let name = match parcel.what {
                What::Push => "gossip_push",
                What::Ask(_) => "gossip_request",
                What::Answer(_) => "gossip_response",
            };
            said.push((name, parcel.bytes.clone()));
            if parcel.to != LIAR {
                session.deliver(parcel);
            }
        }
    }
    said
}

/// What is left of the bytes.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from(self.byte()?) << 8 | u64::from(self.byte()?))
    }

    /// As many as the byte before them says, or all that are left.
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?).min(self.0.len());
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(text)
    }

    fn index(&mut self, of: usize) -> Option<usize> {
        Some(usize::from(self.byte()?) % of.max(1))
    }
}

/// The VO: signed once, and the same in all sessions.
struct Founded {
    vo: VoId,
    keys: Vec<SigningKey>,
    config: SiteConfig,
    documents: Vec<Vec<u8>>,
}

impl Founded {
    fn get() -> &'static Self {
        static FOUNDED: OnceLock<Founded> = OnceLock::new();
        FOUNDED.get_or_init(|| {
            let keys: Vec<SigningKey> = (0..=LIAR).map(key_of).collect();
            let ids: Vec<SiteId> = keys.iter().map(SigningKey::site_id).collect();
            let names = ids.iter().copied().zip(["a", "b", "liar"]);
            let names: Vec<(SiteId, &str)> = names.collect();
            let vo = Vo::found_at(START, "grid", &names, &["ann", "bob"], |_| {});
            let vo = vo.expect("a valid VO");
            let credit = vo.grant("/bob", 1_000_000_000, &ids, |_| {});
            let documents = vo.documents().map(<[u8]>::to_vec).into_iter();
            let text = format!(
                "[site]\nname = \"a\"\n[vos]\ngrid = \"{}\"\n[[identity]]\naccount = \"grid\"\nvo = \"grid\"\n\
                 path = \"/{{user}}\"\n[shares]\n\"/grid\" = {{ share = 50, mount = \"grid\" }}\n",
                vo.id()
            );
            let no_files = |_: &Path| Err(anyhow::anyhow!("there are no files here"));
            let config = Config::parse(&text, Path::new("/session/fairmesh.toml"), &no_files);
            Self {
                vo: vo.vo(),
                keys,
                config: config.expect("a valid configuration").to_site_config(),
                documents: documents.chain([credit.expect("valid credit")]).collect(),
            }
        })
    }

    fn id(&self, index: usize) -> SiteId {
        self.keys[index].site_id()
    }

    fn index(&self, site: SiteId) -> Option<usize> {
        (0..self.keys.len()).find(|index| self.id(*index) == site)
    }
}

fn key_of(index: usize) -> SigningKey {
    SigningKey::from_secret(&[[1, 2, 3][index]; 32])
}

/// An honest site, with what a driver gives it.
struct Place {
    site: Site,
    rows: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    incarnation: u64,
    /// By how much its wall clock is ahead.
    ahead_ms: u64,
    /// Charge that it has acknowledged, core-milliseconds.
    acknowledged: u64,
}

/// A message on its way.
struct Parcel {
    from: usize,
    to: usize,
    what: What,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
enum What {
    Push,
    Ask(u64),
    Answer(u64),
}

/// Whatever the liar likes to sign.
struct Anything;

impl Kinds for Anything {
    fn check(&self, _: &Head, _: &PartKey, _: &[u8]) -> Result<u32, String> {
        Ok(0)
    }
}

struct Session {
    vo: &'static Founded,
    places: Vec<Place>,
    elapsed_ms: u64,
    wire: VecDeque<Parcel>,
    /// Who asked on a channel, and by which number.
    channels: BTreeMap<u64, (usize, u64)>,
    numbers: u64,
    liar: Replica,
}

impl Session {
    /// Both honest sites know the VO, and all are connected.
    fn begin() -> Self {
        let vo = Founded::get();
        let now = Now {
            mono: MonoTime(0),
            wall: START,
        };
        let place = |index: usize| {
            let (config, key) = (vo.config.clone(), key_of(index));
            Place {
                site: Site::new(config, key, Incarnation(START.0), index as u64, now),
                rows: BTreeMap::new(),
                incarnation: START.0,
                ahead_ms: 0,
                acknowledged: 0,
            }
        };
        let mut session = Self {
            vo,
            places: (0..HONEST).map(place).collect(),
            elapsed_ms: 0,
            wire: VecDeque::new(),
            channels: BTreeMap::new(),
            numbers: 0,
            liar: Replica::new(vo.vo, vo.id(LIAR)),
        };
        for to in 0..HONEST {
            for bytes in vo.documents.clone() {
                session.publish(to, bytes);
            }
            session.connect(to);
        }
        session
    }

    /// Does what the next bytes say; `None` behind the last of them.
    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let what = script.byte()?;
        match what % 20 {
            0..=3 => self.pass(what % 20, script)?,
            4 => {
                let (to, bytes) = (script.index(HONEST)?, script.text()?.to_vec());
                self.deliver_of_liar(to, What::Push, bytes);
            }
            5 => self.sign(script)?,
            6 => {
                let (to, bytes) = (script.index(HONEST)?, script.text()?.to_vec());
                self.numbers += 1;
                self.deliver_of_liar(to, What::Ask(self.numbers), bytes);
            }
            7 => self.answer_as_liar(script)?,
            8 => {
                let (to, record) = (script.index(HONEST)?, self.record(script)?);
                let mark = self.mark(to, &record.key);
                let records = vec![(record, mark)];
                self.handle(to, Event::Report { ticket: 1, records });
            }
            9 => self.list_running(script)?,
            10 => self.wait(1 << (script.byte()? % 27)),
            11 => self.leap(script.index(HONEST)?, script.number()? * 60_000),
            12 => {
                let (to, bytes) = (script.index(HONEST)?, script.text()?.to_vec());
                self.publish(to, bytes);
            }
            13 => self.restart(script.index(HONEST)?),
            14 => self.ask_quota(script)?,
            15 => self.lose_peer(script)?,
            _ => self.talk(),
        }
        Some(())
    }

    /// A message that waits arrives, arrives and may arrive again, arrives with bytes that are others, or is lost.
    fn pass(&mut self, how: u8, script: &mut Script<'_>) -> Option<()> {
        let index = script.index(self.wire.len())?;
        let Some(mut parcel) = self.wire.remove(index) else {
            return Some(());
        };
        match how {
            1 => self.wire.push_back(Parcel {
                bytes: parcel.bytes.clone(),
                ..parcel
            }),
            2 => {
                let at = usize::try_from(script.number()?).ok()? % parcel.bytes.len().max(1);
                let others = script.text()?;
                parcel.bytes.truncate(at.max(1));
                parcel.bytes.extend(others);
            }
            3 => return Some(()),
            _ => {}
        }
        self.deliver(parcel);
        Some(())
    }

    /// A second passes, all that waits arrives, and what comes of it; the liar answers with all that it has signed.
    fn talk(&mut self) {
        self.wait(1_000);
        for _ in 0..TALK_MAX {
            let Some(parcel) = self.wire.pop_front() else {
                return;
            };
            match (parcel.to, parcel.what) {
                (LIAR, What::Ask(id)) => {
                    let (from, bytes) = (self.vo.id(LIAR), self.told_by_liar(&parcel.bytes, false));
                    self.handle(parcel.from, Event::Answered { from, id, bytes });
                }
                _ => self.deliver(parcel),
            }
        }
    }

    /// The liar signs a head over a part of any kind, or over counters, and pushes it.
    fn sign(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (to, kind) = (script.index(HONEST)?, script.byte()?);
        let (ago, text) = (script.number()?, script.text()?);
        let now = START.after(Millis(self.elapsed_ms));
        let at = WallTime(now.0.saturating_sub(ago * 60_000));
        let parts = match kind {
            0..128 => {
                let span = Span::Window(WindowLength::HOUR.window_at(at));
                let counters = |charge: u64| Counters {
                    charge,
                    cpu_ms: charge,
                    ..Counters::default()
                };
                let cells = text.chunks_exact(4).map(|cell| {
                    let charge = u64::from(cell[3]) << (cell[2] % 57);
                    let path = format!("/u{:02x}", cell[0]);
                    let path = AccountPath::parse(&path).expect("a valid path");
                    ((path, Incarnation(cell[1].into())), counters(charge))
                });
                let cells: BTreeMap<_, _> = cells.collect();
                let cells = cells.iter().map(|((path, of), sum)| (path, *of, *sum));
                let tables = fairmesh_usage::cut(span, cells, 4_096).into_iter();
                tables
                    .map(|(slice, bytes)| (PartKey::new(1, &slice.to_bytes()), Some(bytes)))
                    .collect()
            }
            kind => {
                let key_bytes = script.index(KEY_BYTES_MAX)?.min(text.len());
                let (key, bytes) = text.split_at(key_bytes);
                vec![(PartKey::new(kind % 8, key), Some(bytes.to_vec()))]
            }
        };
        let (key, incarnation) = (&self.vo.keys[LIAR], Incarnation(u64::from(kind % 4) + 1));
        let (_, push) = self.liar.publish(&Anything, key, incarnation, at, parts);
        self.deliver_of_liar(to, What::Push, push);
        Some(())
    }

    /// The liar answers what it was asked: not at all, with any bytes, or with all that it has signed.
    fn answer_as_liar(&mut self, script: &mut Script<'_>) -> Option<()> {
        let asked = self.wire.iter().position(|parcel| parcel.to == LIAR);
        let (how, text) = (script.byte()?, script.text()?);
        let Some(parcel) = asked.and_then(|index| self.wire.remove(index)) else {
            return Some(());
        };
        let What::Ask(id) = parcel.what else {
            return Some(());
        };
        let bytes = match how % 3 {
            0 => None,
            1 => Some(text.to_vec()),
            _ => self.told_by_liar(&parcel.bytes, how & 128 != 0),
        };
        let from = self.vo.id(LIAR);
        self.handle(parcel.from, Event::Answered { from, id, bytes });
        Some(())
    }

    /// What is true of all that the liar has signed, but that its probes never agree.
    fn told_by_liar(&self, request: &[u8], need_full: bool) -> Option<Vec<u8>> {
        let rows = self.liar.rows_of_site(self.vo.id(LIAR)).into_iter();
        let (heads, parts): (Vec<HeldRow>, Vec<HeldRow>) = rows.partition(|row| row.part.is_none());
        let bytes = |row: &HeldRow| Some(ByteBuf::from(row.bytes.as_ref()?.to_vec()));
        let item = |head: &HeldRow| {
            let of = parts
                .iter()
                .filter(|part| part.incarnation == head.incarnation);
            let of = of.filter_map(|part| Some((part.part.clone()?, bytes(part)?)));
            let content = HeadContent::Whole(of.collect());
            bytes(head).map(|head| HeadItem { head, content })
        };
        let response = match Request::from_bytes(request).expect("an honest site asks") {
            Request::Probe(theirs) => {
                let other = |(vo, theirs): (VoId, Summary)| {
                    let heads = theirs.heads.map(|byte| !byte);
                    (vo, Summary { heads, ..theirs })
                };
                Response::Probe(Probe {
                    at: theirs.at,
                    vos: theirs.vos.into_iter().map(other).collect(),
                })
            }
            Request::Pull(_) => Response::Pull(PullAnswer {
                heads: heads.iter().filter_map(item).collect(),
                need_full,
                ..PullAnswer::default()
            }),
            Request::Parts { .. } => Response::Parts(parts.iter().filter_map(bytes).collect()),
        };
        Some(response.to_bytes())
    }

    /// A job of the last day, or JSON of one.
    fn record(&mut self, script: &mut Script<'_>) -> Option<UsageRecord> {
        let (name, user, text) = (script.byte()?, script.byte()?, script.text()?);
        let read: Option<UsageRecord> = serde_json::from_slice(text).ok();
        // What is old enough to be forgotten while the session lasts would not be counted at its end.
        if let Some(record) =
            read.filter(|record| record.start >= START.before(Millis(48 * HOUR_MS)))
        {
            return Some(record);
        }
        let (ended, ran) = (script.number()?, script.number()?);
        let now = START.0 + self.elapsed_ms;
        let end = now - ended % 1_440 * 60_000;
        Some(UsageRecord {
            key: JobKey {
                cluster: "cluster".to_owned(),
                job: (name % 32).to_string(),
                instance: 0,
            },
            origin: Origin {
                user: Some(["ann", "bob", "eve"][usize::from(user) % 3].to_owned()),
                account: Some(["grid", "own"][usize::from(user) % 2].to_owned()),
                group: None,
                subject: None,
            },
            start: WallTime(end - ran % 1_440 * 60_000),
            end: WallTime(end),
            cores: u32::from(user) + 1,
            gpus: 0,
            mem_mib: 0,
            placement: Placement::default(),
            running: user & 128 != 0,
        })
    }

    fn list_running(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (to, count) = (script.index(HONEST)?, script.index(4)?);
        let mut jobs = Vec::new();
        for _ in 0..count {
            let record = UsageRecord {
                running: true,
                ..self.record(script)?
            };
            let more = Millis(script.number()? * 60_000);
            let expected_end = record.end.after(more);
            let mark = self.mark(to, &record.key);
            let job = RunningJob {
                record,
                expected_end,
            };
            jobs.push((job, mark));
        }
        self.handle(to, Event::Running { ticket: 2, jobs });
        Some(())
    }

    fn ask_quota(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (to, how, record) = (script.index(HONEST)?, script.byte()?, self.record(script)?);
        let call = match how % 4 {
            0 => QuotaCall::Release { job: record.key },
            1 => QuotaCall::Drain,
            _ => QuotaCall::Hold(Box::new(HoldCall {
                record,
                account: None,
                is_exempt: how & 4 != 0,
                may_wait: how & 8 != 0,
                importance: Importance::default(),
            })),
        };
        self.handle(to, Event::Quota { ticket: 3, call });
        Some(())
    }

    fn lose_peer(&mut self, script: &mut Script<'_>) -> Option<()> {
        let (of, peer) = (script.index(HONEST)?, script.index(self.vo.keys.len())?);
        if of != peer {
            let peer = self.vo.id(peer);
            self.handle(of, Event::Disconnected(peer));
            self.handle(of, Event::Connected(peer));
        }
        Some(())
    }

    fn publish(&mut self, to: usize, bytes: Vec<u8>) {
        let by = "root".to_owned();
        let ticket = 4;
        self.handle(to, Event::Publish { ticket, bytes, by });
        self.handle(to, Event::Tick);
    }

    fn connect(&mut self, of: usize) {
        for peer in (0..self.vo.keys.len()).filter(|peer| *peer != of) {
            self.handle(of, Event::Connected(self.vo.id(peer)));
        }
    }

    fn wait(&mut self, ms: u64) {
        self.elapsed_ms = (self.elapsed_ms + ms).min(ELAPSED_MS_MAX);
        (0..HONEST).for_each(|to| self.handle(to, Event::Tick));
    }

    fn leap(&mut self, of: usize, ms: u64) {
        self.places[of].ahead_ms = ms.min(LEAP_MS_MAX);
        self.handle(of, Event::Tick);
    }

    /// The process is gone, and starts again on its rows.
    fn restart(&mut self, index: usize) {
        self.check();
        self.elapsed_ms += 1;
        let now = self.now(index);
        let (vo, place) = (self.vo, &mut self.places[index]);
        place.incarnation = place.incarnation.max(now.wall.0) + 1;
        let rows = place.rows.iter();
        let rows = rows.map(|((table, key), value)| (*table, key.clone(), value.clone()));
        let rows: Vec<Row> = rows.collect();
        let (config, key) = (vo.config.clone(), key_of(index));
        let incarnation = Incarnation(place.incarnation);
        place.site = Site::restore(config, key, incarnation, place.incarnation, now, rows);
        self.channels.retain(|_, (asker, _)| *asker != index);
        self.wire
            .retain(|parcel| parcel.to != index || matches!(parcel.what, What::Push));
        self.handle(index, Event::Tick);
        self.connect(index);
        self.check();
    }

    fn now(&self, of: usize) -> Now {
        Now {
            mono: MonoTime(self.elapsed_ms),
            wall: WallTime(START.0 + self.elapsed_ms + self.places[of].ahead_ms),
        }
    }

    fn mark(&self, of: usize, job: &JobKey) -> Option<JobMark> {
        JobMark::from_bytes(self.places[of].rows.get(&(Table::Jobs, job_key(job)))?)
    }

    fn deliver_of_liar(&mut self, to: usize, what: What, bytes: Vec<u8>) {
        self.deliver(Parcel {
            from: LIAR,
            to,
            what,
            bytes,
        });
    }

    fn deliver(&mut self, parcel: Parcel) {
        let (from, bytes) = (self.vo.id(parcel.from), parcel.bytes);
        let event = match parcel.what {
            What::Push => Event::Pushed {
                from,
                vo: self.vo.vo,
                bytes,
                token: 0,
            },
            What::Ask(id) => {
                self.numbers += 1;
                let channel = self.numbers;
                self.channels.insert(channel, (parcel.from, id));
                Event::Requested {
                    from,
                    bytes,
                    channel,
                }
            }
            What::Answer(id) => Event::Answered {
                from,
                id,
                bytes: Some(bytes),
            },
        };
        // What goes to the liar is there for it to answer, and does nothing by itself.
        if parcel.to < HONEST {
            self.handle(parcel.to, event);
        }
    }

    /// Hands an event to an honest site and carries out what follows.
    fn handle(&mut self, to: usize, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = self.now(to);
            for effect in self.places[to].site.handle(now, event) {
                match effect {
                    Effect::Work(work) => events.push_back(Event::Done(work.run())),
                    effect => self.carry_out(to, effect),
                }
            }
        }
    }

    fn carry_out(&mut self, of: usize, effect: Effect) {
        match effect {
            Effect::Persist(writes) => {
                let rows = &mut self.places[of].rows;
                for write in writes {
                    match write.value {
                        Some(value) => rows.insert((write.table, write.key), value),
                        None => rows.remove(&(write.table, write.key)),
                    };
                }
            }
            Effect::Push { bytes, .. } => {
                assert!(bytes.len() <= PUSH_BYTES_MAX, "a push of {}", bytes.len());
                for to in (0..HONEST).filter(|to| *to != of) {
                    self.send(of, to, What::Push, bytes.clone());
                }
            }
            Effect::Ask { to, id, bytes } => {
                assert!(bytes.len() <= REQUEST_BYTES_MAX, "asks {}", bytes.len());
                let to = self.vo.index(to).expect("only members are asked");
                self.send(of, to, What::Ask(id), bytes);
            }
            Effect::Answer { channel, bytes } => {
                assert!(bytes.len() <= RESPONSE_BYTES_MAX, "tells {}", bytes.len());
                if let Some((to, id)) = self.channels.remove(&channel) {
                    self.send(of, to, What::Answer(id), bytes);
                }
            }
            Effect::Reply {
                reply: Reply::Reported(reported),
                ..
            } => self.places[of].acknowledged += reported.charge,
            _ => {}
        }
    }

    fn send(&mut self, from: usize, to: usize, what: What, bytes: Vec<u8>) {
        if self.wire.len() >= WAITING_MAX {
            self.wire.pop_front();
        }
        self.wire.push_back(Parcel {
            from,
            to,
            what,
            bytes,
        });
    }

    /// Each honest site counts what it has acknowledged.
    fn check(&self) {
        for (index, place) in self.places.iter().enumerate() {
            let cells = place.site.usage_cells();
            let own = cells.filter(|cell| cell.site == self.vo.id(index));
            let counted: u64 = own.map(|cell| cell.counters.charge).sum();
            assert_eq!(counted, place.acknowledged, "of site {index}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn whatever_a_session_brings_each_site_counts_what_it_has_acknowledged(
            bytes in proptest::collection::vec(any::<u8>(), 0..4_000),
        ) {
            run(&bytes);
        }
    }

    #[test]
    fn what_a_member_signs_comes_into_force_and_counts_nothing_of_others() {
        // The site asks for what the first head stands for, and is told the truth.
        let told = [7, 2, 0].repeat(8);
        let cells = [1, 1, 0, 9, 2, 1, 0, 9, 3, 1, 7, 9, 4, 1, 55, 255];
        let counts = [&[5, 0, 0, 0, 0, 16][..], &cells, &told].concat();
        assert!(run(&counts));
        let no_table = [&[5, 0, 129, 0, 0, 3, 1, 2, 3, 1][..], &told].concat();
        assert!(!run(&no_table));
    }
}
