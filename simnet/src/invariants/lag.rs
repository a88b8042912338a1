//! How long the heads that sites sign after the heal take to be held by all who are to hold them.
//!
//! Where credit is passed on, a site whose own demand fades gives others more of it each minute, each time with
//! a head, until it is at its floor. Views then differ most of the time, though nothing is wrong: what tells is
//! whether each head reaches everybody.
//!
//! Deliberately not here: what heads say (the other invariants), and heads of liars.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{IncarnationId, MonoTime, Seq, SiteId, VoId};

use crate::vo::Vo;
use crate::world::World;

/// Heads that not all hold yet, and when each was first seen.
#[derive(Debug, Clone, Default)]
pub struct Lag {
    /// Of each site's incarnation in each VO: its newest head, and those that somebody lacks.
    streams: BTreeMap<(VoId, IncarnationId), Stream>,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    newest: Seq,
    lacked: BTreeMap<Seq, MonoTime>,
}

impl Lag {
    /// Since when somebody honest has lacked a head of somebody honest. What was signed before the first look does
    /// not count.
    pub fn look(
        &mut self,
        now: MonoTime,
        world: &World,
        vos: &[Vo],
        liars: &BTreeSet<usize>,
    ) -> Option<MonoTime> {
        let honest = world.nodes().iter();
        let honest: Vec<_> = honest.filter(|node| !liars.contains(&node.index)).collect();
        let is_first = self.streams.is_empty();
        let signers: BTreeSet<SiteId> = honest.iter().map(|node| node.id).collect();
        for vo in vos {
            let holders = honest.iter().filter_map(|node| node.site()?.held_of(vo.id));
            let held: Vec<BTreeMap<IncarnationId, Seq>> = holders.map(|held| held.heads).collect();
            let streams: BTreeSet<IncarnationId> =
                held.iter().flat_map(BTreeMap::keys).copied().collect();
            for stream in streams.into_iter().filter(|of| signers.contains(&of.site)) {
                let seqs = held.iter().map(|heads| heads.get(&stream).copied());
                let seqs: Vec<Seq> = seqs.map(Option::unwrap_or_default).collect();
                let least = seqs.iter().min().copied().unwrap_or_default();
                let newest = seqs.iter().max().copied().unwrap_or_default();
                let of = self.streams.entry((vo.id, stream)).or_default();
                if is_first {
                    of.newest = newest;
                }
                of.see(now, least, newest);
            }
        }
        let lacked = self.streams.values().flat_map(|of| of.lacked.values());
        lacked.min().copied()
    }
}

impl Stream {
    fn see(&mut self, now: MonoTime, least: Seq, newest: Seq) {
        if newest > self.newest {
            self.newest = newest;
            self.lacked.insert(newest, now);
        }
        self.lacked.retain(|seq, _| *seq > least);
    }
}
