//! The site's own streams: batches, heartbeats, checkpoints and in-flight sheets.
//!
//! Invariant: a batch is durable here before anybody else sees it; its seq follows the one before
//! without a gap, under an incarnation that no earlier life of the site has used. So a crash at any
//! moment leaves others with a prefix of what this site's own store holds.

use std::collections::BTreeSet;

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Refusal, Replica};
use fairmesh_model::documents::{BATCH_BYTES_MAX, PathCells};
use fairmesh_model::{
    AccountPath, Checkpoint, ContentHash, Counters, InFlightSheet, Incarnation, Millis, MonoTime,
    Now, Seq, Signed, Span, StreamId, UsageBatch, VoId, WallTime, WindowLength, mutated,
};
use fairmesh_usage::Refused;
use serde_bytes::ByteBuf;

use crate::config::Timing;
use crate::event::Effect;
use crate::ingest::{Reporting, WINDOW_DAYS};
use crate::ledger::Settled;
use crate::notice::Notice;
use crate::site::Site;
use crate::store::{Table, Write, hash_key, pruned_rows, site_key, stream_key};

/// One cell of a batch, absolute.
type Row = (Span, AccountPath, Counters);

/// Bytes of a batch beside its rows: envelope, signature and heads, generously.
const BATCH_OVERHEAD_BYTES: usize = 1_024;

/// Bytes of a row at most, beside its path: five counters, a span and an index as varints.
const ROW_BYTES: usize = 5 * 10 + 6 + 5;

/// What is known of our own stream of one VO in this incarnation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnStream {
    published_at: Option<MonoTime>,
    batches_since_checkpoint: u64,
    pub(crate) sheet_version: u64,
    pub(crate) has_sheet: bool,
    /// When the site last signed what its machines cost.
    pub(crate) described_at: Option<MonoTime>,
    /// What the next batch is to declare over, where that is more than was said.
    retire_below: Incarnation,
    /// The same of what earlier lives had counted and not published.
    settle_below: Incarnation,
}

impl OwnStream {
    /// When the next batch is due.
    pub(crate) fn due(&self, has_unpublished: bool, timing: &Timing) -> MonoTime {
        let interval = if has_unpublished {
            timing.publish
        } else {
            timing.heartbeat
        };
        // The first one waits, too: a node that keeps crashing right after its start must not
        // leave an incarnation behind each time.
        let first = MonoTime(0).after(timing.publish);
        self.published_at.map_or(first, |at| at.after(interval))
    }
}

impl Site {
    /// Publishes for every VO whose batch or heartbeat is due.
    pub(crate) fn publish_due(&mut self, now: Now) {
        for vo in self.publishing_vos(now.mono) {
            self.place_untimed(now, vo);
            let stream = self.streams.entry(vo).or_default();
            if now.mono >= stream.due(self.ledger.has_unpublished(vo), &self.config.timing) {
                self.publish(now, vo, Vec::new());
            }
        }
    }

    /// Publishes everything that is pending, due or not.
    pub(crate) fn publish_all(&mut self, now: Now) {
        for vo in self.publishing_vos(now.mono) {
            if self.ledger.has_unpublished(vo) {
                self.publish(now, vo, Vec::new());
            }
        }
    }

    /// VOs for which this site counts.
    pub(crate) fn own_vos(&self) -> Vec<VoId> {
        let counts = |(vo, replica): (&VoId, &Replica)| replica.serves(self.id).then_some(*vo);
        self.replicas.iter().filter_map(counts).collect()
    }

    /// The VOs for which a batch may be signed now. With a clock that is ahead one would be refused
    /// until its time has come, and everything behind it: so not before a peer has said what time it
    /// is. Nobody would have heard it anyway.
    pub(crate) fn publishing_vos(&self, now: MonoTime) -> Vec<VoId> {
        let mut vos = self.own_vos();
        vos.retain(|vo| self.knows_time(now, *vo));
        vos
    }

    /// Whether a peer has said what time it is, or there is nobody who could.
    pub(crate) fn knows_time(&self, now: MonoTime, vo: VoId) -> bool {
        let has_heard = self.gossip.peers_clock(now).is_some() || mutated!(TimeTakenForKnown);
        has_heard || self.is_alone(vo)
    }

    /// Whether no other site takes part in the VO.
    fn is_alone(&self, vo: VoId) -> bool {
        let charter = self.replicas.get(&vo).and_then(Replica::charter);
        charter.is_some_and(|charter| charter.sites.iter().all(|member| member.site == self.id))
    }

    /// Signs what is unpublished, and `extra` rows beside it, as one batch or more.
    pub(crate) fn publish(&mut self, now: Now, vo: VoId, extra: Vec<Row>) {
        let latest = now.wall.after(self.config.timing.clock_tolerance);
        self.ledger.retry_held_back(vo);
        let mut rows = self.ledger.take_unpublished(vo);
        rows.extend(extra);
        rows.retain(|row| self.is_believable(vo, row, latest));
        let mut rows = rows.into_iter().peekable();
        loop {
            let mut chunk = Vec::new();
            let mut bytes = BATCH_OVERHEAD_BYTES;
            while let Some((_, path, _)) = rows.peek() {
                bytes += path.as_str().len() + ROW_BYTES;
                if bytes > BATCH_BYTES_MAX {
                    break;
                }
                chunk.extend(rows.next());
            }
            self.publish_batch(now, vo, chunk);
            if rows.peek().is_none() {
                break;
            }
        }
        let stream = self.streams.entry(vo).or_default();
        stream.published_at = Some(now.mono);
        if stream.batches_since_checkpoint >= self.config.timing.checkpoint_batches {
            self.checkpoint(now, vo);
        }
    }

    /// Gives what was counted before anybody had said what time it is its place, before this life's
    /// first batch. Nobody would believe what lies ahead before its window has come, and nodes would
    /// disagree until then.
    fn place_untimed(&mut self, now: Now, vo: VoId) {
        let usage = self.replicas.get(&vo).and_then(Replica::usage);
        let Some(usage) = usage.filter(|_| self.ledger.has_untimed(vo)) else {
            return;
        };
        let latest = now.wall.after(self.config.timing.clock_tolerance);
        let placed = self.ledger.place(vo, latest, usage.window_length());
        self.keep_settled(now, placed);
    }

    /// Counts what earlier lives had left as our own, and says so in the next batch: a backup of
    /// theirs would count it again.
    pub(crate) fn take_over(&mut self, now: Now, vo: VoId, window: WindowLength) {
        let latest = now.wall.after(self.config.timing.clock_tolerance);
        let settled = self.ledger.settle(vo, latest, window);
        self.streams.entry(vo).or_default().settle_below = self.ledger.incarnation();
        self.keep_settled(now, settled);
    }

    /// Keeps what moved within the ledger.
    pub(crate) fn keep_settled(&mut self, now: Now, settled: Settled) {
        if settled.writes.is_empty() {
            return;
        }
        self.note_merged(now.wall, &settled.merged);
        self.tree_is_stale |= settled.moved;
        self.effects.push(Effect::Persist(settled.writes));
    }

    /// Whether peers whose clocks are right would take the row. One that they would not, because this
    /// machine's clock was ahead when it was counted, would stop the stream there: it is held back.
    fn is_believable(&mut self, vo: VoId, (span, path, _): &Row, latest: WallTime) -> bool {
        let usage = self.replicas.get(&vo).and_then(Replica::usage);
        let future = usage.is_some_and(|usage| span.start(usage.window_length()) > latest);
        if future {
            self.ledger.hold_back(vo, (*span, path.clone()));
        }
        !future
    }

    /// Signs a batch; without what the charter's capacity does not allow, which is held back.
    fn publish_batch(&mut self, now: Now, vo: VoId, mut rows: Vec<Row>) {
        let stream = self.stream_id();
        let (seq, head) = self.head_of(vo, stream);
        let own = self.streams.entry(vo).or_default();
        let retired_below = std::mem::take(&mut own.retire_below);
        let settled_below = std::mem::take(&mut own.settle_below);
        let bytes = loop {
            let batch = UsageBatch {
                vo,
                site: self.id,
                incarnation: stream.incarnation,
                seq: seq.next(),
                previous: head,
                at: now.wall,
                retired_below,
                settled_below,
                cells: PathCells::from_rows(rows.clone()),
            };
            let signed = Signed::sign(batch, &[&self.key]).expect("our own batch is well-formed");
            let bytes = signed.bytes().to_vec();
            let replica = self
                .replicas
                .get_mut(&vo)
                .expect("we publish for VOs that we hold");
            match replica.absorb_batch(&bytes, now.wall, Millis(u64::MAX)) {
                Ok(Absorbed::Usage { .. }) => break bytes,
                Err(Refusal::Usage(over @ Refused::OverCapacity { .. })) if !rows.is_empty() => {
                    self.hold_back(vo, &mut rows, &over);
                }
                other => panic!("our own batch follows our own last one: {other:?}"),
            }
        };
        self.streams.entry(vo).or_default().batches_since_checkpoint += 1;
        self.stats.batches_published += 1;
        self.move_horizon(now, vo, now.wall);
        let key = stream_key(vo, stream, seq.next());
        if mutated!(PushedBeforePersist) {
            let bytes = Push::Batch(ByteBuf::from(bytes.clone())).to_bytes();
            self.effects.push(Effect::Push { vo, bytes });
        }
        self.effects.push(Effect::Persist(vec![Write::set(
            Table::Batches,
            key,
            bytes.clone(),
        )]));
        self.effects.push(Effect::Push {
            vo,
            bytes: Push::Batch(ByteBuf::from(bytes)).to_bytes(),
        });
    }

    /// Takes out of `rows` what claims too much, the largest first: at least one row.
    fn hold_back(&mut self, vo: VoId, rows: &mut Vec<Row>, over: &Refused) {
        let Refused::OverCapacity {
            span,
            claimed,
            bound,
            ..
        } = over
        else {
            return;
        };
        let Some(usage) = self.replicas.get(&vo).and_then(|replica| replica.usage()) else {
            return;
        };
        let (length, stream) = (usage.window_length(), self.stream_id());
        let claims = |row: &Row| {
            row.0 == *span || matches!(span, Span::Day(day) if row.0.day(length) == *day)
        };
        let growth = |row: &Row| {
            let before = usage.cell(stream, row.0, &row.1).unwrap_or_default();
            let grown = row.2.minus(before);
            u128::from(grown.cpu_ms.max(grown.charge))
        };
        let mut order: Vec<(u128, usize)> = (0..rows.len())
            .filter(|index| claims(&rows[*index]))
            .map(|index| (growth(&rows[index]), index))
            .collect();
        order.sort_unstable();
        let mut excess = claimed.saturating_sub(*bound).max(1);
        let mut held = BTreeSet::new();
        while let Some((grown, index)) = order.pop().filter(|_| excess > 0) {
            held.insert(index);
            excess = excess.saturating_sub(grown);
        }
        if held.is_empty() {
            held.extend(0..rows.len());
        }
        let all = std::mem::take(rows);
        for (index, row) in all.into_iter().enumerate() {
            if held.contains(&index) {
                self.ledger.hold_back(vo, (row.0, row.1));
            } else {
                rows.push(row);
            }
        }
        self.notice(Notice::OverCapacity {
            vo,
            why: over.to_string(),
        });
    }

    /// Signs a checkpoint of our own stream, so that old batches can go everywhere.
    pub(crate) fn checkpoint(&mut self, now: Now, vo: VoId) {
        let stream = self.stream_id();
        let replica = self
            .replicas
            .get_mut(&vo)
            .expect("we hold the VOs that we publish for");
        let Some((body, seals)) = replica
            .usage()
            .and_then(|usage| usage.checkpoint_of(stream, now.wall))
        else {
            return;
        };
        let signed: Signed<Checkpoint> =
            Signed::sign(body, &[&self.key]).expect("our own checkpoint is well-formed");
        let bytes = signed.bytes().to_vec();
        let mut writes: Vec<Write> = seals
            .iter()
            .map(|seal| {
                Write::set(
                    Table::Seals,
                    hash_key(vo, ContentHash::of(seal).as_bytes()),
                    seal.clone(),
                )
            })
            .collect();
        writes.push(Write::set(
            Table::Checkpoints,
            hash_key(vo, signed.hash().as_bytes()),
            bytes.clone(),
        ));
        self.streams.entry(vo).or_default().batches_since_checkpoint = 0;
        match replica.absorb_checkpoint(&bytes) {
            Ok(Absorbed::Checkpoints { .. }) => {}
            // Nothing was published since the last one.
            Ok(Absorbed::Known) => return,
            other => panic!("our own checkpoint says what we hold: {other:?}"),
        }
        self.stats.checkpoints += 1;
        writes.extend(self.prune(vo, stream));
        self.effects.push(Effect::Persist(writes));
        // So that others can let go of old batches too. Who misses it lets go at the next one.
        if bytes.len() <= BATCH_BYTES_MAX {
            self.effects.push(Effect::Push {
                vo,
                bytes: Push::Checkpoint(ByteBuf::from(bytes)).to_bytes(),
            });
        }
    }

    /// Drops what the retained checkpoints cover. Returns the rows to delete.
    pub(crate) fn prune(&mut self, vo: VoId, stream: StreamId) -> Vec<Write> {
        let Some(usage) = self
            .replicas
            .get_mut(&vo)
            .and_then(|replica| replica.usage_mut())
        else {
            return Vec::new();
        };
        let pruned = usage.prune(stream);
        if mutated!(NothingDeleted) {
            return Vec::new();
        }
        pruned_rows(vo, stream, &pruned).collect()
    }

    /// Signs an in-flight sheet. It leaves behind the change of the store that `report` becomes.
    pub(crate) fn sign_sheet(&mut self, sheet: InFlightSheet, report: &mut Reporting) {
        let vo = sheet.vo;
        let signed = Signed::sign(sheet, &[&self.key]).expect("our own sheet is well-formed");
        let bytes = signed.bytes().to_vec();
        self.absorb_sheet(vo, &bytes)
            .expect("our own sheet is newer than our own last one");
        report.writes.push(Write::set(
            Table::InFlight,
            site_key(vo, self.id),
            bytes.clone(),
        ));
        report.behind.push(Effect::Push {
            vo,
            bytes: Push::Sheet(ByteBuf::from(bytes)).to_bytes(),
        });
    }

    /// Once a day: windows of days long past are merged into the day.
    pub(crate) fn compact_days(&mut self, now: Now) {
        let stream = self.stream_id();
        for vo in self.publishing_vos(now.mono) {
            let rules = self.rules(Some(vo), now.wall);
            let today = rules.window.day_of(rules.window.window_at(now.wall));
            let before = today.saturating_sub(WINDOW_DAYS);
            // Unpublished hours of those days must be in the stream before it is compacted.
            if self.ledger.has_unpublished(vo) && !mutated!(MergedUnpublished) {
                self.publish(now, vo, Vec::new());
            }
            let usage = self
                .replicas
                .get_mut(&vo)
                .and_then(|replica| replica.usage_mut());
            let rows = usage
                .map(|usage| usage.compact_days(stream, before))
                .unwrap_or_default();
            if !rows.is_empty() {
                let writes = self.ledger.compact(vo, &rows, rules.window);
                let days: Vec<u32> = rows.iter().map(|row| row.0.day(rules.window)).collect();
                self.note_merged(now.wall, &days);
                self.effects.push(Effect::Persist(writes));
                self.publish(now, vo, rows);
                self.checkpoint(now, vo);
            }
        }
    }

    /// Declares our earlier lives over in which nothing weighs any more, so that everybody can let go
    /// of their streams. Not before all peers that can be reached hold what we hold of them: a
    /// restored backup may know less of its past than others do.
    pub(crate) fn retire_old_lives(&mut self, now: Now) {
        let stream = self.stream_id();
        for vo in self.own_vos() {
            let replica = &self.replicas[&vo];
            let (Some(usage), Some(charter)) = (replica.usage(), replica.charter()) else {
                continue;
            };
            let below = usage.retirable_below(stream);
            let is_member = |peer| charter.member(peer).is_some();
            let agreed = self.is_alone(vo) || self.gossip.all_have_told_all(vo, is_member);
            if below > usage.retired_below(self.id) && agreed && !self.ledger.has_carried(vo) {
                self.streams.entry(vo).or_default().retire_below = below;
                self.publish(now, vo, Vec::new());
                self.delete_dropped(vo);
            }
        }
    }

    /// The stream that we sign now.
    pub(crate) fn stream_id(&self) -> StreamId {
        StreamId {
            site: self.id,
            incarnation: self.ledger.incarnation(),
        }
    }

    fn head_of(&self, vo: VoId, stream: StreamId) -> (Seq, Option<ContentHash>) {
        let usage = self.replicas.get(&vo).and_then(|replica| replica.usage());
        usage
            .and_then(|usage| usage.head(stream))
            .map_or((Seq(0), None), |(seq, hash)| (seq, Some(hash)))
    }
}
