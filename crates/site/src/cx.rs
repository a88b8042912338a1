//! What every handler may use: configuration, key, clock, effects, notices and statistics.
//!
//! Invariant: effects leave in the order in which handlers push them, so a row that is persisted is durable before
//! anything that a later handler sends.

use std::sync::Arc;

use fairmesh_gossip::Change;
use fairmesh_model::{MonoTime, SigningKey, SiteId, VoId, mutated};

use crate::config::SiteConfig;
use crate::event::{Effect, Reply};
use crate::notice::{Notice, Notices};
use crate::store::{Table, Write, head_row};
use crate::tickets::{Channel, Ticket};
use crate::time::Clock;

/// Counters for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteStats {
    /// Records that counted something new.
    pub records_counted: u64,
    /// Records that said nothing new.
    pub records_known: u64,
    /// Records that were refused.
    pub records_refused: u64,
    /// Records that map nowhere.
    pub records_unmapped: u64,
    /// Jobs that were taken back.
    pub jobs_corrected: u64,
    /// Own heads signed since the start.
    pub heads_published: u64,
    /// Heads of others taken.
    pub heads_taken: u64,
    /// Documents and heads of others refused.
    pub refused: u64,
    /// Accounts' sums that changed by what others published.
    pub cells_taken: u64,
}

/// The context of a handler.
#[derive(Debug)]
pub(crate) struct Cx {
    /// Shared with a tree that is built of it on another thread.
    pub(crate) config: Arc<SiteConfig>,
    pub(crate) key: SigningKey,
    pub(crate) id: SiteId,
    pub(crate) clock: Clock,
    pub(crate) effects: Vec<Effect>,
    pub(crate) notices: Notices,
    pub(crate) stats: SiteStats,
}

impl Cx {
    /// Persists rows, if there are any, before any later effect is carried out.
    pub(crate) fn persist(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.effects.push(Effect::Persist(writes));
        }
    }

    /// Persists what a head changed of the heads that are held.
    pub(crate) fn persist_head(&mut self, vo: VoId, change: &Change) {
        let rows = change.rows.iter().map(|row| head_row(vo, row));
        let kept = rows.filter(|row| row.table != Table::Parts || !mutated!(PartsUnstored));
        self.persist(kept.collect());
    }

    /// Answers a local caller.
    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.effects.push(Effect::Reply { ticket, reply });
    }

    /// Answers a peer's request.
    pub(crate) fn answer(&mut self, channel: Channel, bytes: Vec<u8>) {
        self.effects.push(Effect::Answer { channel, bytes });
    }

    /// Sends a peer a request.
    pub(crate) fn ask(&mut self, to: SiteId, id: u64, bytes: Vec<u8>) {
        self.effects.push(Effect::Ask { to, id, bytes });
    }

    /// Reports something to the operator, once.
    pub(crate) fn notice(&mut self, now: MonoTime, notice: Notice) {
        let said = self.notices.add(now, notice);
        self.effects.extend(said.map(Effect::Notice));
    }

    /// Reports something to the operator while it holds.
    pub(crate) fn notice_while(&mut self, now: MonoTime, notice: Notice, holds: bool) {
        if holds {
            self.notice(now, notice);
        } else if !mutated!(ConditionsStay) {
            self.notices.clear(|listed| *listed != notice);
        }
    }

    /// Counts and reports something that a peer sent and that is refused.
    pub(crate) fn refused(&mut self, now: MonoTime, vo: VoId, from: SiteId, why: &str) {
        self.stats.refused += 1;
        let why = why.to_owned();
        if !mutated!(RefusalUnsaid) {
            self.notice(now, Notice::Refused { vo, from, why });
        }
    }
}
