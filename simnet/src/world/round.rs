//! A node's rounds: what reaches it, and the steps that they come to, one by one.
//!
//! While a node is busy with a round what reaches it waits, and is one round with what comes next; so a
//! world whose nodes are busy now and then groups inputs as the real driver does.
//!
//! Invariant: a process that ends in the middle of a round has done a first part of its steps, perhaps
//! a part of one, and nothing of the rest. Deliberately not here: what the steps are
//! (`fairmesh-round`), and doing effects (`effects`).

use fairmesh_model::{SiteId, VoId};
use fairmesh_round::{Input, JOURNAL, Op, ROUND_MAX, Step, Unreadable};
use fairmesh_site::{Effect, Event, Table, Write};

use super::{Queued, World};
use crate::event_log::{Entry, NOBODY, StepKind, hash_bytes, number};
use crate::node::{SimNode, StopReason};

/// Who sent it, and the payload's hash.
type Sender = Option<(usize, u128)>;

impl World {
    /// Something reaches a node that runs. The kind of the step, unless it waits.
    pub(super) fn arrive(&mut self, node: usize, event: Event, from: Sender) -> Option<StepKind> {
        let is_busy = self.hold_ms > 0 && self.rounds.below(4) == 0;
        let inbox = &mut self.nodes[node].inbox;
        inbox.push((Input::Event(event), from));
        let waiting = inbox.len();
        if waiting == 1 && is_busy {
            let held_ms = self.rounds.between(0, self.hold_ms);
            let round = Queued::Round { node };
            self.queue.push(self.now_ms + held_ms, round);
        }
        let waits = waiting > 1 || is_busy;
        if waits && waiting < ROUND_MAX {
            return None;
        }
        self.flush(node)
    }

    /// Hands something to a node's site at once, if it runs, with what waits there.
    pub(super) fn handle(&mut self, node: usize, input: Input) {
        if self.nodes[node].is_up() {
            self.nodes[node].inbox.push((input, None));
            self.flush(node);
        }
    }

    /// Hands the site what waits there, as the first of the round that the next call ends. Whoever calls
    /// knows then what the site goes by when it takes the call.
    pub(crate) fn take_waiting(&mut self, node: usize) -> Option<StepKind> {
        let mut kind = None;
        for (input, from) in std::mem::take(&mut self.nodes[node].inbox) {
            let of = self.take(node, input, from);
            if kind != Some(StepKind::Connected) {
                kind = Some(of);
            }
        }
        kind
    }

    /// Makes a round of all that waits. The kind of the last of it; sessions that begin come first.
    pub(super) fn flush(&mut self, node: usize) -> Option<StepKind> {
        let kind = self.take_waiting(node);
        let SimNode { site, round, .. } = &mut self.nodes[node];
        if let (Some(site), Some(round)) = (site, round) {
            let steps = round.finish(|| site.rows_held_alone());
            self.carry_out_all(node, steps);
        }
        kind
    }

    fn take(&mut self, node: usize, input: Input, from: Sender) -> StepKind {
        let SimNode { round, disk, .. } = &self.nodes[node];
        let round = round.as_ref().expect("it runs");
        let tamper = &mut self.tamper;
        let mut event = round.event(input, |record| {
            let mut mark = round.mark_of(record, |key| {
                let stored = disk.get(Table::Jobs, key).map_err(|_| Unreadable)?;
                Ok(stored.map(<[u8]>::to_vec))
            });
            if let Some(tamper) = tamper {
                tamper.mark(node, &record.key, &mut mark);
            }
            mark
        });
        if let Some(tamper) = tamper {
            tamper.event(node, &mut event);
        }
        let kind = self.log_event(node, &event, from);
        if kind == StepKind::Tick {
            self.nodes[node].ticked_ms = self.now_ms;
        }
        let now = self.now_at(node);
        let site = self.nodes[node].site.as_mut().expect("it runs");
        if let Some(tamper) = &mut self.tamper {
            tamper.handles(node, &event, site, &self.vos);
        }
        let mut effects = site.handle(now, event);
        if kind == StepKind::Tick && self.flood.open.is_some() {
            let vos: Vec<VoId> = self.vos.iter().map(|vo| vo.id).collect();
            let sites: Vec<SiteId> = self.nodes.iter().map(|node| node.id).collect();
            self.flood.add(node, &mut effects, &vos, &sites);
        }
        if let Some(tamper) = &mut self.tamper {
            tamper.effects(node, &mut effects);
        }
        let SimNode { round, faults, .. } = &mut self.nodes[node];
        faults.owes_journal |= effects.iter().any(has_own_rows);
        round.as_mut().expect("it runs").push_effects(effects);
        kind
    }

    fn carry_out_all(&mut self, node: usize, steps: Vec<Step>) {
        let faults = &mut self.nodes[node].faults;
        let owes_journal = std::mem::take(&mut faults.owes_journal);
        faults.is_ahead |= is_ahead_of_journal(&steps, owes_journal);
        for step in steps {
            let done = match step {
                Step::Disk(op) => self.carry_out_op(node, op),
                Step::Do(_) if self.dies_now(node) => Err(StopReason::Crashed),
                Step::Do(effect) => {
                    self.carry_out(node, effect);
                    Ok(())
                }
            };
            if let Err(why) = done {
                self.end(node, why);
                break;
            }
        }
        self.nodes[node].judging.clear();
        self.nodes[node].channels.clear();
        self.set_wakeup(node);
    }

    pub(super) fn carry_out_ops(&mut self, node: usize, ops: Vec<Op>) -> Result<(), StopReason> {
        ops.into_iter()
            .try_for_each(|op| self.carry_out_op(node, op))
    }

    /// Does an operation, unless the process ends in the middle of it.
    fn carry_out_op(&mut self, node: usize, op: Op) -> Result<(), StopReason> {
        if self.dies_now(node) {
            let disk = &mut self.nodes[node].disk;
            if let Some(is_kept) = disk.carry_out_partly(op, &mut self.crashes) {
                let kinds = ["lost_write", "kept_write"];
                self.faults.count(kinds[usize::from(is_kept)]);
            }
            return Err(StopReason::Crashed);
        }
        match &op {
            Op::Write { bytes, .. } => self.log.mix(short(hash_bytes(bytes))),
            Op::Apply { writes, .. } => {
                for write in writes {
                    let value = write.value.as_deref().unwrap_or(&[0]);
                    for hash in [hash_bytes(&write.key), hash_bytes(value)] {
                        self.log.mix(short(hash));
                    }
                }
            }
            _ => {}
        }
        let done = self.nodes[node].disk.carry_out(op);
        done.map_err(|_| StopReason::DiskFull)
    }

    /// Whether the process ends before its next step.
    fn dies_now(&mut self, node: usize) -> bool {
        match &mut self.nodes[node].crash_after {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn log_event(&mut self, node: usize, event: &Event, from: Option<(usize, u128)>) -> StepKind {
        let (peer, hash) = from.map_or((NOBODY, 0), |(peer, hash)| (number(peer), short(hash)));
        let (kind, bytes) = match event {
            Event::Tick => (StepKind::Tick, 0),
            Event::Connected(_) | Event::Called(_) => (StepKind::Connected, 0),
            Event::Disconnected(_) => (StepKind::Disconnected, 0),
            Event::Pushed { bytes, .. } => (StepKind::Pushed, bytes.len()),
            Event::Requested { bytes, .. } => (StepKind::Requested, bytes.len()),
            Event::Answered {
                bytes: Some(bytes), ..
            } => (StepKind::Answered, bytes.len()),
            Event::Answered { bytes: None, .. } => (StepKind::Failed, 0),
            Event::Report { records, .. } => (StepKind::Report, records.len()),
            Event::Running { jobs, .. } => (StepKind::Running, jobs.len()),
            Event::Correct { correction, .. } => (StepKind::Report, correction.records.len()),
            Event::Remap { change, .. } => (StepKind::Report, change.jobs()),
            Event::Quota { .. } => (StepKind::Quota, 0),
            // None hands jobs in here.
            Event::Advert { .. } | Event::Forward { .. } => (StepKind::Advert, 0),
            Event::Publish { bytes, .. } => (StepKind::Publish, bytes.len()),
            Event::Done(_) => (StepKind::Done, 0),
            Event::Reconfigured(_) => (StepKind::Reconfigured, 0),
            Event::Stopping => (StepKind::Stopping, 0),
        };
        self.log.push(Entry {
            at_ms: self.now_ms,
            kind,
            node: number(node),
            peer,
            bytes: number(bytes),
            hash,
        });
        kind
    }
}

/// Whether a round's steps let the store take anything before the round's own rows, if it `owes` any, are in the journal and
/// synced, or leave them out there: a store that is lost would take them along, though nobody else has them.
fn is_ahead_of_journal(steps: &[Step], owes: bool) -> bool {
    let (mut is_written, mut is_synced, mut is_ahead) = (false, false, false);
    for step in steps {
        match step {
            Step::Disk(Op::Write { file, .. }) if *file == JOURNAL => is_written = true,
            Step::Disk(Op::Sync(file)) if *file == JOURNAL => is_synced = is_written,
            Step::Disk(Op::Apply { .. }) => is_ahead |= !is_synced && (owes || is_written),
            _ => {}
        }
    }
    is_ahead || owes && !is_synced
}

fn has_own_rows(effect: &Effect) -> bool {
    use Table::{Audit, Forwarded, Holds, Jobs, Ledger, Rights};
    let is_own = |write: &Write| {
        matches!(
            write.table,
            Ledger | Jobs | Audit | Rights | Holds | Forwarded
        )
    };
    matches!(effect, Effect::Persist(writes) if writes.iter().any(is_own))
}

/// Half of a hash: enough for the log.
fn short(hash: u128) -> u64 {
    u64::try_from(hash >> 64).expect("64 bits are left")
}
