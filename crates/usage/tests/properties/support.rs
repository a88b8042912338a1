//! Writers that sign real histories, replicas that hear parts of them, and what makes two equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::documents::PathCells;
use fairmesh_model::{
    AccountPath, Checkpoint, ContentHash, Counters, Document, Incarnation, Role, Seq, Signed,
    SigningKey, Span, StreamId, UsageBatch, Verified, VoId, WallTime, Window, WindowLength,
};
use fairmesh_usage::{
    Applied, Bound, CellChange, CheckpointOffer, Delta, DeltaItem, LiveCell, VersionVector, VoUsage,
};
use proptest::prelude::*;

pub(crate) const AMPLE: Bound = Bound::new(1_000, 1_000);
pub(crate) type Batch = Arc<Verified<UsageBatch>>;
type Row = (Span, AccountPath, Counters);

pub(crate) fn vo() -> VoId {
    VoId::from_bytes([9; 32])
}

pub(crate) fn empty() -> VoUsage {
    VoUsage::new(vo(), WindowLength::HOUR)
}

pub(crate) fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a valid path")
}

pub(crate) fn hour(window: u32) -> Span {
    Span::Window(Window(window))
}

/// Core-milliseconds of both charge and CPU time, and one job.
pub(crate) fn used(ms: u64) -> Counters {
    Counters {
        charge: ms,
        cpu_ms: ms,
        jobs: 1,
        ..Counters::default()
    }
}

fn verified<T: Document>(body: T, key: &SigningKey) -> Arc<Verified<T>> {
    let signed = Signed::sign(body, &[key]).expect("signs");
    Arc::new(
        signed
            .verify(&[&Role::single(key.site_id())])
            .expect("verifies"),
    )
}

/// One incarnation of a site, with all that it ever said.
pub(crate) struct Writer {
    secret: u8,
    pub(crate) stream: StreamId,
    pub(crate) own: VoUsage,
    pub(crate) batches: Vec<Batch>,
    pub(crate) retired_below: Incarnation,
    pub(crate) settled_below: Incarnation,
    at: u64,
}

impl Writer {
    pub(crate) fn new(secret: u8, incarnation: u64) -> Self {
        let site = SigningKey::from_secret(&[secret; 32]).site_id();
        let stream = StreamId {
            site,
            incarnation: Incarnation(incarnation),
        };
        Self {
            secret,
            stream,
            own: empty(),
            batches: Vec::new(),
            retired_below: Incarnation(0),
            settled_below: Incarnation(0),
            at: 0,
        }
    }

    /// The same site, which goes another way behind its first `prefix` batches.
    pub(crate) fn fork_after(&self, prefix: usize) -> Self {
        let mut other = Self::new(self.secret, self.stream.incarnation.0);
        other.at = 1_000_000;
        for batch in &self.batches[..prefix] {
            let applied = other.own.apply_batch(batch.clone(), AMPLE);
            assert!(matches!(applied, Ok(Applied::Fresh(_))));
            other.batches.push(batch.clone());
        }
        other
    }

    /// Signs a batch of absolute rows without applying it.
    pub(crate) fn sign(&self, rows: Vec<Row>) -> Batch {
        let body = UsageBatch {
            vo: vo(),
            site: self.stream.site,
            incarnation: self.stream.incarnation,
            seq: Seq(self.batches.len() as u64 + 1),
            previous: self.batches.last().map(|batch| batch.hash()),
            at: WallTime(self.at + self.batches.len() as u64),
            retired_below: self.retired_below,
            settled_below: self.settled_below,
            cells: PathCells::from_rows(rows),
        };
        verified(body, &SigningKey::from_secret(&[self.secret; 32]))
    }

    pub(crate) fn publish(&mut self, rows: Vec<Row>) -> Batch {
        let batch = self.sign(rows);
        let applied = self
            .own
            .apply_batch(batch.clone(), AMPLE)
            .expect("within capacity");
        assert!(matches!(applied, Applied::Fresh(_)), "{applied:?}");
        self.batches.push(batch.clone());
        batch
    }

    /// Counts `ms` more for an account, where it is not absorbed.
    pub(crate) fn count(&mut self, window: u32, account: &AccountPath, ms: u64) -> Batch {
        let span = self
            .own
            .span_to_count_in(self.stream, account, Window(window));
        let before = self
            .own
            .cell(self.stream, span, account)
            .unwrap_or_default();
        self.publish(vec![(span, account.clone(), before.plus(used(ms)))])
    }

    pub(crate) fn checkpoint(&self) -> (Arc<Verified<Checkpoint>>, BTreeMap<ContentHash, Vec<u8>>) {
        let (body, seals) = self
            .own
            .checkpoint_of(self.stream, WallTime(77))
            .expect("something was said");
        self.sign_checkpoint(body, seals)
    }

    pub(crate) fn sign_checkpoint(
        &self,
        body: Checkpoint,
        seals: Vec<Vec<u8>>,
    ) -> (Arc<Verified<Checkpoint>>, BTreeMap<ContentHash, Vec<u8>>) {
        let seals = seals
            .into_iter()
            .map(|bytes| (ContentHash::of(&bytes), bytes))
            .collect();
        (
            verified(body, &SigningKey::from_secret(&[self.secret; 32])),
            seals,
        )
    }
}

/// What a site does next.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Count {
        window: u32,
        account: usize,
        ms: u64,
    },
    CompactBefore {
        day: u32,
    },
    Heartbeat,
    /// Declares all earlier lives over.
    Retire,
}

pub(crate) const ACCOUNTS: [&str; 4] = ["/a", "/p/u", "/p/v", "/q"];

pub(crate) fn any_steps(length: usize) -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        8 => (0..60u32, 0..ACCOUNTS.len(), 1..1_000u64).prop_map(|(window, account, ms)| Step::Count { window, account, ms }),
        1 => (1..3u32).prop_map(|day| Step::CompactBefore { day }),
        1 => Just(Step::Heartbeat),
        1 => Just(Step::Retire),
    ];
    proptest::collection::vec((0..3usize, step), 1..length)
}

/// Three streams of two sites (one of them in two lives) and what they did.
pub(crate) fn history(steps: &[(usize, Step)]) -> Vec<Writer> {
    let mut writers = vec![Writer::new(1, 1), Writer::new(1, 2), Writer::new(2, 1)];
    for (writer, step) in steps {
        take_step(&mut writers[*writer], step);
    }
    writers
}

pub(crate) fn take_step(writer: &mut Writer, step: &Step) {
    match step {
        Step::Count {
            window,
            account,
            ms,
        } => {
            writer.count(*window, &path(ACCOUNTS[*account]), *ms);
        }
        Step::CompactBefore { day } => {
            let rows = writer.own.compact_days(writer.stream, *day);
            writer.publish(rows);
        }
        Step::Heartbeat => {
            writer.publish(Vec::new());
        }
        Step::Retire => {
            writer.retired_below = writer.stream.incarnation;
            writer.publish(Vec::new());
        }
    }
}

/// A replica that has heard a prefix of each stream.
pub(crate) fn replica(writers: &[Writer], heard: &[prop::sample::Index]) -> VoUsage {
    let mut usage = empty();
    for (writer, heard) in writers.iter().zip(heard) {
        for batch in &writer.batches[..heard.index(writer.batches.len() + 1)] {
            usage
                .apply_batch(batch.clone(), AMPLE)
                .expect("within capacity");
        }
    }
    usage
}

/// All that must agree where two states are equal.
#[derive(Debug, PartialEq)]
pub(crate) struct Value {
    digest: [u8; 32],
    vector: VersionVector,
    cells: Vec<LiveCell>,
    horizon: WallTime,
    streams: Vec<(StreamId, Seq, Option<ContentHash>, Option<Seq>)>,
    retained: Vec<ContentHash>,
}

pub(crate) fn value(usage: &VoUsage) -> Value {
    let positions = |stream: StreamId, seq: Seq| {
        (1..=seq.0).filter_map(move |seq| usage.batch(stream, Seq(seq)))
    };
    Value {
        digest: usage.state_digest(),
        vector: usage.version_vector(),
        cells: usage.cells().collect(),
        horizon: usage.horizon(),
        streams: usage
            .streams()
            .map(|s| (s.stream, s.seq, s.head, s.cap))
            .collect(),
        retained: usage
            .streams()
            .flat_map(|s| positions(s.stream, s.seq))
            .map(|batch| batch.hash())
            .collect(),
    }
}

/// Cells and vector: what two nodes agree on, whatever history each retains.
pub(crate) fn agreed(usage: &VoUsage) -> ([u8; 32], VersionVector, Vec<LiveCell>) {
    (
        usage.state_digest(),
        usage.version_vector(),
        usage.cells().collect(),
    )
}

/// Applies a delta in the order in which it reads, fetching seals from `server`.
pub(crate) fn apply_delta(usage: &mut VoUsage, delta: Delta, server: &VoUsage) -> Vec<CellChange> {
    let mut changes = Vec::new();
    for item in delta.items {
        match item {
            // A server may not have heard yet that a life is over.
            item if usage.is_retired(item.stream()) => {}
            DeltaItem::Batch(batch) => match usage.apply_batch(batch, AMPLE).expect("honest") {
                Applied::Fresh(more) => changes.extend(more),
                other => panic!("a delta left a gap or repeated itself: {other:?}"),
            },
            DeltaItem::Checkpoint(document) => {
                match usage.offer_checkpoint(document, AMPLE).expect("honest") {
                    CheckpointOffer::Wants(seals) => {
                        for seal in seals {
                            let bytes = server
                                .seal(&seal.hash)
                                .expect("the server holds its checkpoint's seals");
                            changes.extend(usage.offer_seal(seal, bytes).expect("honest"));
                        }
                    }
                    CheckpointOffer::Adopted(more) => changes.extend(more),
                    CheckpointOffer::Behind => panic!("a delta sent what the digest names"),
                }
            }
        }
    }
    changes
}

/// Pulls until nothing is left; a few hundred bytes at a time.
pub(crate) fn pull_all(usage: &mut VoUsage, server: &VoUsage, bytes_max: usize) -> Vec<CellChange> {
    let mut changes = Vec::new();
    loop {
        // A server that has not heard yet that a life is over would offer it again and again.
        let mut digest = usage.version_vector();
        let over = server
            .streams()
            .filter(|held| usage.is_retired(held.stream));
        digest
            .dots
            .extend(over.map(|held| (held.stream, held.seq.0)));
        let delta = server.delta_since(&digest, bytes_max);
        let complete = delta.complete;
        changes.extend(apply_delta(usage, delta, server));
        if complete {
            return changes;
        }
    }
}

/// A mirror of the cells, kept by following changes: what a downstream sum sees.
#[derive(Debug, Default)]
pub(crate) struct Follower(BTreeMap<(StreamId, Span, AccountPath), Counters>);

impl Follower {
    pub(crate) fn follow(&mut self, changes: Vec<CellChange>) {
        for change in changes {
            let key = (change.stream, change.span, change.path);
            let before = self.0.insert(key, change.after).unwrap_or_default();
            assert_eq!(
                before, change.before,
                "a change starts where the last one ended"
            );
        }
    }

    pub(crate) fn assert_mirrors(&self, usage: &VoUsage) {
        let nonzero = |counters: &Counters| !counters.is_zero();
        let mirrored: Vec<_> = self
            .0
            .iter()
            .filter(|(_, counters)| nonzero(counters))
            .collect();
        let cells: BTreeMap<_, _> = usage
            .cells()
            .filter(|cell| nonzero(&cell.counters))
            .map(|cell| ((cell.stream, cell.span, cell.path), cell.counters))
            .collect();
        assert_eq!(mirrored, cells.iter().collect::<Vec<_>>());
    }
}
