//! How far own counters reach, and which jobs may be in them after a loss of the store: see [`Reach`].

use fairmesh_gossip::PartKey;
use fairmesh_model::{UsageRecord, VoId, WallTime, mutated};

use crate::kinds::REACH;
use crate::own::Own;
use crate::reach::{Reach, Reaches, behind, reach_row};
use crate::store::{JobMark, Write};

impl Own {
    /// Until when counters reach whose jobs' marks are lost; `None` where nothing was lost.
    pub(crate) fn recovered(&self, vo: Option<VoId>) -> Option<Reach> {
        let reach = self.reach.get(&vo)?.recovered;
        (reach != Reach::default()).then_some(reach)
    }

    /// Own counters reach so far. Returns what is to be kept, if they did not before.
    pub(crate) fn reaches(&mut self, vo: Option<VoId>, until: Reach) -> Option<Write> {
        let reach = self.reach.entry(vo).or_default();
        let counted = reach.counted.join(until);
        let has_moved = std::mem::replace(&mut reach.counted, counted) != counted;
        has_moved.then(|| reach_row(vo, *reach))
    }

    /// Puts into the next head of a VO until when what it has reaches. What was counted while the clock was ahead
    /// reaches no further than to `latest`.
    pub(crate) fn bring_reach(&mut self, vo: VoId, latest: WallTime) {
        let reach = self.reach.get(&Some(vo)).map(|reach| reach.counted);
        let bytes = reach.map(|reach| reach.no_later_than(latest).to_bytes());
        let bytes = bytes.filter(|_| !mutated!(ReachUnpublished));
        self.set_part(vo, PartKey::new(REACH, &[]), bytes);
    }

    /// What was counted while the clock was ahead reaches no further than to `latest`: jobs that end later are new.
    pub(crate) fn cut_reaches(&mut self, latest: WallTime) -> Vec<Write> {
        let mut writes = Vec::new();
        for (vo, reach) in &mut self.reach {
            let cut = Reaches {
                counted: reach.counted.no_later_than(latest),
                recovered: reach.recovered.no_later_than(latest),
            };
            if std::mem::replace(reach, cut) != cut {
                writes.push(reach_row(*vo, cut));
            }
        }
        writes
    }

    /// The rows of the store of all that.
    pub(crate) fn reach_rows(&self) -> impl Iterator<Item = Write> {
        let rows = self.reach.iter();
        rows.map(|(vo, reach)| reach_row(*vo, *reach))
    }

    /// How much of a job is charged, where its `mark` may have been lost.
    pub(crate) fn mark_behind_loss(
        &self,
        vo: Option<VoId>,
        record: &UsageRecord,
        mark: Option<JobMark>,
    ) -> Option<JobMark> {
        match self.recovered(vo) {
            Some(reach) if !mutated!(LossForgotten) => behind(reach, record, mark),
            _ => mark,
        }
    }
}
