//! What others say: pushes, answers and documents, and what each is worth.
//!
//! Invariant: whatever changes a replica is persisted as the exact bytes that were verified. What
//! is refused changes nothing, is counted, and says who sent it and why.

use std::sync::Arc;

use fairmesh_gossip::wire::Push;
use fairmesh_gossip::{Absorbed, Arrival, Refusal, Replica};
use fairmesh_model::documents::BATCH_BYTES_MAX;
use fairmesh_model::{
    Checkpoint, ContentHash, Counters, Document, Millis, Now, Seq, SiteId, StreamId, Verified,
    VoId, WallTime, cbor, mutated,
};
use fairmesh_usage::CellChange;

use crate::event::{Effect, PushToken, Reply, Ticket, Verdict};
use crate::notice::Notice;
use crate::rise::{merges_young, rises};
use crate::site::Site;
use crate::store::{Table, Write, hash_key, pruned_rows, site_key, stream_key};

/// Largest push: two batches of a fork proof, or a sheet or policy of the transport's own limit.
const PUSH_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX + 1_024;

/// Members of a VO that must say how far the site's earlier lives got; all, where there are fewer. A
/// batch reaches everybody who is not cut off within a second, so eight that lack one are enough.
const SETTLE_WITNESSES: usize = 8;

/// Time after its start in which a site waits for so many.
const SETTLE_WITHIN: Millis = Millis::from_secs(3_600);

/// What something from a peer was worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    New,
    /// A checkpoint whose seals have to be asked for.
    Incomplete,
    Known,
    /// What comes before it is not here.
    Early,
    Refused,
    Lie,
}

impl Worth {
    /// Whether a push of it is passed on.
    const fn verdict(self) -> Verdict {
        match self {
            Self::New | Self::Incomplete => Verdict::Accept,
            Self::Known | Self::Early | Self::Refused => Verdict::Ignore,
            Self::Lie => Verdict::Reject,
        }
    }
}

impl Site {
    /// Judges and absorbs a push.
    pub(crate) fn take_push(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        bytes: &[u8],
        token: PushToken,
    ) {
        let verdict = match Push::from_bytes(bytes, PUSH_BYTES_MAX) {
            Err(error) => {
                self.refused(vo, from, &error.to_string());
                Verdict::Reject
            }
            Ok(push) => {
                let arrival = match push {
                    Push::Batch(bytes) => Arrival::Batch(bytes),
                    Push::Checkpoint(bytes) => Arrival::Checkpoint(bytes),
                    Push::Sheet(bytes) => Arrival::Sheet(bytes),
                    Push::Charter(bytes) => Arrival::Charter(bytes),
                    Push::Policy(bytes) => Arrival::Policy(bytes),
                    Push::Fork(a, b) => Arrival::Fork(a, b),
                    Push::Description(bytes) => Arrival::Description(bytes),
                };
                self.absorb(now, from, vo, arrival, true).verdict()
            }
        };
        self.effects.push(Effect::Judge { token, verdict });
    }

    /// Takes the answer to one of our requests.
    pub(crate) fn take_answer(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let answer = self.gossip.answered(now, from, id, bytes, &self.replicas);
        let mut is_whole = true;
        for (vo, arrival) in answer.arrivals {
            let is_usage = matches!(arrival, Arrival::Batch(_) | Arrival::Checkpoint(_));
            // What follows a batch that was refused is a gap too, and asking for it at once would
            // bring the same answer, for ever: the next exchange does.
            let worth = self.absorb(now, from, vo, arrival, false);
            is_whole &= !is_usage || matches!(worth, Worth::New | Worth::Known);
        }
        if let Some(vo) = answer.last_of.filter(|_| is_whole) {
            self.gossip.absorbed_all(from, vo);
        }
        self.watch_peer(now, from);
        self.note_landed(now.mono, from);
        let mut waits = self.replicas.iter().filter(|(vo, replica)| {
            self.ledger.has_carried(**vo) && replica.serves(from) && replica.serves(self.id)
        });
        if waits.any(|(vo, _)| !self.gossip.has_told_all(from, *vo)) {
            self.gossip.confirm(from);
        }
    }

    /// Takes a document that somebody hands in here, and pushes it to all members.
    pub(crate) fn take_document(&mut self, now: Now, ticket: Ticket, bytes: &[u8]) {
        let vos: Vec<VoId> = self.replicas.keys().copied().collect();
        let mut result = Err("it belongs to no VO that this site takes part in".to_owned());
        for vo in vos {
            let replica = self.replicas.get_mut(&vo).expect("it was listed");
            if let Some(kind) = replica.kind_of(bytes) {
                result = self.adopt(now, vo, kind, bytes);
                break;
            }
        }
        self.effects.push(Effect::Reply {
            ticket,
            reply: Reply::Published(result),
        });
    }

    fn adopt(
        &mut self,
        now: Now,
        vo: VoId,
        kind: &'static str,
        bytes: &[u8],
    ) -> Result<String, String> {
        if mutated!(DocumentDropped) {
            return Ok(format!("{kind} is adopted"));
        }
        let arrival = document_arrival(kind, bytes);
        let push = document_push(kind, bytes);
        match self.absorb_result(now, self.id, vo, arrival) {
            Ok(Absorbed::Known) => Ok(format!("{kind} was known already")),
            Ok(_) => {
                self.effects.push(Effect::Push {
                    vo,
                    bytes: push.to_bytes(),
                });
                Ok(format!("{kind} is adopted"))
            }
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    /// Absorbs one thing and says what it was worth.
    fn absorb(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        arrival: Arrival,
        pushed: bool,
    ) -> Worth {
        if pushed && self.is_ahead(vo, &arrival) {
            self.gossip.suspect_behind(from, vo);
            return Worth::Early;
        }
        match self.absorb_result(now, from, vo, arrival) {
            Ok(Absorbed::Known) => Worth::Known,
            Ok(Absorbed::Gap) => {
                if pushed {
                    self.gossip.suspect_behind(from, vo);
                }
                Worth::Early
            }
            Ok(Absorbed::Wanted(_)) => Worth::Incomplete,
            Ok(_) => Worth::New,
            Err(refusal) => {
                self.note_clock(now, &refusal);
                self.refused(vo, from, &refusal.to_string());
                if refusal.is_lie() {
                    Worth::Lie
                } else {
                    Worth::Refused
                }
            }
        }
    }

    /// Whether it is a pushed checkpoint of batches that are not all here: they are cheaper to get
    /// than its seals.
    fn is_ahead(&self, vo: VoId, arrival: &Arrival) -> bool {
        let Arrival::Checkpoint(bytes) = arrival else {
            return false;
        };
        self.replicas
            .get(&vo)
            .is_some_and(|replica| replica.is_behind(bytes))
    }

    fn absorb_result(
        &mut self,
        now: Now,
        from: SiteId,
        vo: VoId,
        arrival: Arrival,
    ) -> Result<Absorbed, Refusal> {
        let tolerance = self.config.timing.clock_tolerance;
        let Some(replica) = self.replicas.get_mut(&vo) else {
            return Err(Refusal::NotOurs);
        };
        let (absorbed, bytes) = match arrival {
            Arrival::Charter(bytes) => (replica.absorb_charter(&bytes)?, bytes),
            Arrival::Policy(bytes) => (replica.absorb_policy(&bytes)?, bytes),
            Arrival::Batch(bytes) => (replica.absorb_batch(&bytes, now.wall, tolerance)?, bytes),
            Arrival::Checkpoint(bytes) => (replica.absorb_checkpoint(&bytes)?, bytes),
            Arrival::Seal(bytes) => (replica.absorb_seal(&bytes)?, bytes),
            Arrival::Sheet(bytes) => return self.absorb_sheet(vo, &bytes),
            Arrival::Description(bytes) => (replica.absorb_description(&bytes)?, bytes),
            Arrival::Fork(a, b) => (replica.absorb_fork(&a, &b)?, a),
        };
        self.keep(now, from, vo, &absorbed, &bytes);
        self.delete_dropped(vo);
        Ok(absorbed)
    }

    /// Deletes what is kept of streams that were let go of.
    pub(crate) fn delete_dropped(&mut self, vo: VoId) {
        let Some(replica) = self.replicas.get_mut(&vo) else {
            return;
        };
        let mut rows = Vec::new();
        for (stream, pruned) in replica.take_dropped() {
            rows.push(Write::delete(Table::Forks, stream_key(vo, stream, Seq(0))));
            rows.extend(pruned_rows(vo, stream, &pruned));
        }
        if !rows.is_empty() {
            self.effects.push(Effect::Persist(rows));
        }
    }

    /// Persists what was absorbed and lets everything that depends on it know.
    fn keep(&mut self, now: Now, from: SiteId, vo: VoId, absorbed: &Absorbed, bytes: &[u8]) {
        match absorbed {
            Absorbed::Known | Absorbed::Gap | Absorbed::Sheet { .. } | Absorbed::Sealed => {}
            Absorbed::Document {
                hash,
                what,
                founded,
            } => self.keep_document(vo, hash, bytes, what, *founded),
            Absorbed::Usage {
                stream,
                seq,
                at,
                changes,
            } => {
                let key = stream_key(vo, *stream, *seq);
                let mut stored = bytes.to_vec();
                if stream.site != self.id && mutated!(StoredOtherwise) {
                    stored[0] ^= 1;
                }
                let row = Write::set(Table::Batches, key, stored);
                self.effects.push(Effect::Persist(vec![row]));
                self.stats.batches_taken += 1;
                self.note_own(vo, *stream);
                self.watch_clock(now, stream.site, *at);
                self.apply_changes(now, vo, changes);
                self.move_horizon(now, vo, *at);
            }
            Absorbed::Wanted(hashes) => self.gossip.want_seals(from, vo, hashes),
            Absorbed::Checkpoints {
                adopted,
                seals,
                changes,
            } => {
                self.keep_checkpoints(vo, adopted, seals);
                for checkpoint in adopted {
                    self.note_own(vo, checkpoint.body().stream());
                }
                let signed = adopted.iter().map(|checkpoint| checkpoint.body().at);
                let signed = signed.max().unwrap_or_default();
                if !changes.is_empty() {
                    self.apply_changes(now, vo, changes);
                    // The batches behind a checkpoint are the next thing to ask for.
                    self.gossip.suspect_behind(from, vo);
                }
                self.move_horizon(now, vo, signed);
            }
            Absorbed::Description { site } => self.keep_description(vo, *site, bytes),
            Absorbed::Forked { stream, proof, .. } => {
                let key = stream_key(vo, *stream, Seq(0));
                let row = Write::set(Table::Forks, key, proof.clone());
                self.effects.push(Effect::Persist(vec![row]));
                let site = stream.site;
                self.notice(Notice::Forked { vo, site });
                // The one case in which counters fall: sum up anew.
                self.tree_is_stale = true;
            }
        }
    }

    /// Keeps a document, and with it the memory against rollback.
    fn keep_document(
        &mut self,
        vo: VoId,
        hash: &ContentHash,
        bytes: &[u8],
        what: &str,
        founded: bool,
    ) {
        let document = Write::set(
            Table::Documents,
            hash_key(vo, hash.as_bytes()),
            bytes.to_vec(),
        );
        let seen = cbor::to_vec(&self.replicas[&vo].policies().highest_seen());
        let seen = Write::set(Table::Policy, vo.as_bytes().to_vec(), seen);
        if !mutated!(DocumentsUnwritten) {
            self.effects.push(Effect::Persist(vec![document, seen]));
        }
        self.document_adopted(vo, what, founded);
    }

    /// Keeps checkpoints and their seals, and lets go of the batches that they cover.
    fn keep_checkpoints(
        &mut self,
        vo: VoId,
        adopted: &[Arc<Verified<Checkpoint>>],
        seals: &[(ContentHash, Arc<[u8]>)],
    ) {
        let seal_row = |(hash, seal): &(ContentHash, Arc<[u8]>)| {
            Write::set(Table::Seals, hash_key(vo, hash.as_bytes()), seal.to_vec())
        };
        let mut rows: Vec<Write> = seals.iter().map(seal_row).collect();
        for checkpoint in adopted {
            let key = hash_key(vo, checkpoint.hash().as_bytes());
            let bytes = checkpoint.bytes().to_vec();
            rows.push(Write::set(Table::Checkpoints, key, bytes));
            rows.extend(self.prune(vo, checkpoint.body().stream()));
        }
        self.effects.push(Effect::Persist(rows));
    }

    pub(crate) fn absorb_sheet(&mut self, vo: VoId, bytes: &[u8]) -> Result<Absorbed, Refusal> {
        let Some(replica) = self.replicas.get_mut(&vo) else {
            return Err(Refusal::NotOurs);
        };
        let absorbed = replica.absorb_sheet(bytes)?;
        if let Absorbed::Sheet { site, changes } = &absorbed {
            if *site != self.id {
                self.effects.push(Effect::Persist(vec![Write::set(
                    Table::InFlight,
                    site_key(vo, *site),
                    bytes.to_vec(),
                )]));
            }
            let own = *site == self.id;
            let changes = changes.clone();
            self.shares.change_in_flight(vo, &changes, own);
        }
        Ok(absorbed)
    }

    /// Lets the share tree know of changed cells. Our own current ones were counted when they were
    /// reported; our own earlier ones may have been, if they were carried.
    fn apply_changes(&mut self, now: Now, vo: VoId, changes: &[CellChange]) {
        let current = self.stream_id();
        let length = match self.replicas.get(&vo).and_then(Replica::usage) {
            Some(usage) => usage.window_length(),
            None => return,
        };
        let over = |change: &CellChange| change.before.charge > 0 && self.is_retired(vo, change);
        if changes.iter().any(over) || merges_young(changes, length, now.wall) {
            // A life was declared over, or windows were merged, that weigh here: sum up anew.
            self.tree_is_stale = true;
        }
        let mut recovered = false;
        for rise in rises(changes, length) {
            if rise.stream == current {
                continue;
            }
            self.stats.cells_taken += 1;
            if rise.stream.site != self.id {
                self.shares
                    .count_rise(vo, &rise, Counters::default(), false);
                continue;
            }
            recovered = true;
            let key = (rise.span, rise.path.clone());
            let incarnation = rise.stream.incarnation;
            let carried = self
                .ledger
                .found_published(vo, incarnation, &key, rise.amount, length);
            if !carried.is_zero() {
                // It may have been carried in other spans of that day.
                self.note_merged(now.wall, &[rise.span.day(length)]);
            }
            if !mutated!(RecoveredUncounted) {
                self.shares.count_rise(vo, &rise, carried, true);
            }
        }
        if recovered {
            self.notice(Notice::Recovered { vo });
        }
    }

    /// An earlier life of ours is found to have signed something.
    fn note_own(&mut self, vo: VoId, stream: StreamId) {
        let is_ours = stream.site == self.id && stream != self.stream_id();
        let usage = self.replicas.get(&vo).and_then(Replica::usage);
        let Some(usage) = usage.filter(|_| is_ours) else {
            return;
        };
        let settled_below = usage.settled_below(self.id);
        self.tree_is_stale |= self.ledger.placed(vo, stream.incarnation);
        self.tree_is_stale |= self.ledger.settled_elsewhere(vo, settled_below);
    }

    fn is_retired(&self, vo: VoId, change: &CellChange) -> bool {
        self.replicas[&vo].is_retired(change.stream)
    }

    /// Settles what earlier incarnations of ours counted and did not publish, once those who could
    /// have heard them have said how far they got. Who cannot be reached in our first hour is not
    /// waited for: what we counted would be missing everywhere else as long as he is away.
    pub(crate) fn settle_carried(&mut self, now: Now) {
        let vos: Vec<VoId> = self
            .replicas
            .keys()
            .copied()
            .filter(|vo| self.ledger.has_carried(*vo))
            .collect();
        let is_over = now.mono >= self.started.mono.after(SETTLE_WITHIN);
        let mut waits = false;
        for vo in vos {
            // Who is no member is not told what members hold.
            let replica = &self.replicas[&vo];
            let Some(charter) = replica.charter().filter(|_| replica.serves(self.id)) else {
                continue;
            };
            let members = charter.sites.iter().map(|member| member.site);
            let others: Vec<SiteId> = members.filter(|site| *site != self.id).collect();
            let (told, silent): (Vec<SiteId>, Vec<SiteId>) = others
                .iter()
                .partition(|peer| self.gossip.has_told_all(**peer, vo));
            let enough = if is_over { 1 } else { SETTLE_WITNESSES };
            if told.len() >= enough.min(others.len()) || mutated!(SettledUnasked) {
                let window = charter.window;
                self.take_over(now, vo, window);
            } else if now.mono >= self.ask_witnesses_at {
                // Not one by one, as they are drawn: what is carried is missing everywhere else.
                silent
                    .into_iter()
                    .for_each(|peer| self.gossip.confirm(peer));
                waits = true;
            }
        }
        if waits {
            self.ask_witnesses_at = now.mono.after(Millis(self.config.timing.sync.0 / 2));
        }
    }

    /// Sheets of sites that have fallen silent do not count.
    pub(crate) fn weigh_silence(&mut self, now: Now) {
        let since = now.wall.before(self.config.timing.silence);
        for (vo, replica) in &mut self.replicas {
            for (site, changes) in replica.count_sheets_since(since) {
                self.shares.change_in_flight(*vo, &changes, site == self.id);
            }
        }
    }

    fn document_adopted(&mut self, vo: VoId, what: &str, founded: bool) {
        self.tree_is_stale = !mutated!(TreeOutlivesPolicy) || founded;
        self.allow_is_stale = true;
        self.undescribed.insert(vo);
        self.gossip.may_confirm_again();
        self.ledger.retry_held_back(vo);
        self.notice(Notice::Adopted {
            vo,
            what: what.to_owned(),
        });
        if founded {
            let name = self.replicas[&vo]
                .charter()
                .map(|charter| charter.name.clone())
                .unwrap_or_default();
            self.notice(Notice::Founded { vo, name });
        }
    }

    fn refused(&mut self, vo: VoId, from: SiteId, why: &str) {
        self.stats.refused += 1;
        self.notice(Notice::Refused {
            vo,
            from,
            why: why.to_owned(),
        });
    }

    fn note_clock(&mut self, now: Now, refusal: &Refusal) {
        if let Refusal::Future { site, at } = refusal {
            let by = at.since(now.wall);
            self.clocks_off.insert(*site, true);
            self.notice(Notice::ClockOff {
                site: *site,
                by,
                ahead: true,
            });
        }
    }

    /// Names a peer whose clock is off, once, and again when it comes back.
    pub(crate) fn watch_peer(&mut self, now: Now, peer: SiteId) {
        let Some(theirs) = self.gossip.clock_of(peer, now.mono) else {
            return;
        };
        let ours = self.own_clock;
        let by = theirs.since(ours).max(ours.since(theirs));
        let off = by > self.config.timing.clock_tolerance;
        if self.clocks_off.insert(peer, off) != Some(off) && off {
            let (site, ahead) = (peer, theirs > ours);
            self.notice(Notice::ClockOff { site, by, ahead });
        }
    }

    /// Names a clock that is off, once, and again when it comes back.
    fn watch_clock(&mut self, now: Now, site: SiteId, at: WallTime) {
        let ahead = at.since(now.wall) > self.config.timing.clock_tolerance;
        if self.clocks_off.insert(site, ahead) != Some(ahead) && ahead {
            self.notice(Notice::ClockOff {
                site,
                by: at.since(now.wall),
                ahead,
            });
        }
    }
}

fn document_arrival(kind: &str, bytes: &[u8]) -> Arrival {
    let bytes = serde_bytes::ByteBuf::from(bytes.to_vec());
    if kind == fairmesh_model::Charter::TYPE {
        Arrival::Charter(bytes)
    } else {
        Arrival::Policy(bytes)
    }
}

fn document_push(kind: &str, bytes: &[u8]) -> Push {
    let bytes = serde_bytes::ByteBuf::from(bytes.to_vec());
    if kind == fairmesh_model::Charter::TYPE {
        Push::Charter(bytes)
    } else {
        Push::Policy(bytes)
    }
}
