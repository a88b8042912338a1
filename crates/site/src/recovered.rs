//! Behind a lost store: which jobs are in counters that peers gave back.
//!
//! What each job was charged is known at its site alone, and goes with the store; the counters come back. They reach
//! up to a moment: the end of the newest usage among them, and no later than the last head that the site had signed
//! before this start.
//! What lies before that may be in them, so a job of which nothing is known is taken to be counted up to there:
//! better to leave a moment out than to count it twice. So feeds may tell everything again.
//!
//! Invariant: no moment of a job before `recovered_until` counts again, and every one after it counts once.
//! Deliberately not here: the site's own accounts. Nobody gives these back, and feeds tell them again in full.

use fairmesh_model::{Now, UsageMode, UsageRecord, VoId, WallTime, mutated};

use crate::charge::Rules;
use crate::site::Site;
use crate::store::{JobMark, Write, recovered_row};

impl Site {
    /// Until when counters of a VO reach that peers gave back; `None` where nothing was lost.
    pub fn recovered_until(&self, vo: VoId) -> Option<WallTime> {
        self.recovered.get(&vo).copied()
    }

    /// When this site signed the last head of a VO that is held of its earlier starts. What a second machine with
    /// its key signs meanwhile is of now: what came before this start is older than that, by whichever clock is ahead, ours
    /// or the members'.
    pub(crate) fn past_signed_at(&self, now: Now, vo: VoId) -> WallTime {
        let heads = self.vos[&vo]
            .replica
            .heads_of(self.id)
            .map(|head| head.body());
        let past = heads.filter(|head| head.incarnation != self.own.incarnation());
        let signed = past.map(|head| head.at).max().unwrap_or_default();
        if now.mono == self.began {
            // It was in the store.
            return signed;
        }
        let wall = self
            .own_clock
            .wall
            .max(self.members_clock.unwrap_or_default());
        signed.min(wall.before(now.mono.since(self.began)))
    }

    /// The rows of the store of all that.
    pub(crate) fn recovered_rows(&self) -> impl Iterator<Item = Write> {
        let rows = self.recovered.iter();
        rows.map(|(vo, until)| recovered_row(*vo, *until))
    }

    /// How much of a job is charged, where its `mark` may have been lost.
    pub(crate) fn mark_behind_loss(
        &self,
        vo: Option<VoId>,
        rules: &Rules,
        record: &UsageRecord,
        mark: Option<JobMark>,
    ) -> Option<JobMark> {
        match vo.and_then(|vo| self.recovered_until(vo)) {
            Some(until) if !mutated!(LossForgotten) => behind(until, rules.mode, record, mark),
            _ => mark,
        }
    }
}

/// See [`Site::mark_behind_loss`].
fn behind(
    until: WallTime,
    mode: UsageMode,
    record: &UsageRecord,
    mark: Option<JobMark>,
) -> Option<JobMark> {
    let known = mark.unwrap_or(JobMark::at(record.start));
    if known.ended || known.charged_until >= until {
        return mark;
    }
    let ended = !record.running && record.end <= until;
    // Where jobs count when they end, one that ended later is in no counter yet.
    if mode == UsageMode::Historical && !ended {
        return mark;
    }
    Some(JobMark {
        charged_until: known.charged_until.max(until.min(record.end)),
        ended,
        ..known
    })
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{JobKey, Origin, Placement};

    use super::*;

    /// How much counts again of a job that ran, or runs, from 100 to 200.
    fn left(until: u64, mode: UsageMode, running: bool, mark: Option<u64>) -> u64 {
        let record = UsageRecord {
            key: JobKey {
                cluster: "alpha".to_owned(),
                job: "1".to_owned(),
                instance: 0,
            },
            origin: Origin::default(),
            start: WallTime(100),
            end: WallTime(200),
            cores: 1,
            gpus: 0,
            mem_mib: 0,
            placement: Placement::default(),
            running,
        };
        let mark = mark.map(|until| JobMark::at(WallTime(until)));
        match behind(WallTime(until), mode, &record, mark) {
            None => 100,
            Some(mark) if mark.ended => 0,
            Some(mark) => record.end.since(mark.charged_until).0,
        }
    }

    #[test]
    fn of_a_job_that_is_not_known_what_lies_behind_the_loss_counts() {
        let active = |until| left(until, UsageMode::Active, false, None);
        assert_eq!(
            [50, 100, 130, 199, 200, 300].map(active),
            [100, 100, 70, 1, 0, 0]
        );
        let runs = |until| left(until, UsageMode::Active, true, None);
        assert_eq!([50, 130, 200, 300].map(runs), [100, 70, 0, 0]);
        let historical = |until| left(until, UsageMode::Historical, false, None);
        assert_eq!(
            [50, 130, 199, 200, 300].map(historical),
            [100, 100, 100, 0, 0]
        );
        let known = |mark| left(150, UsageMode::Active, false, Some(mark));
        assert_eq!([120, 150, 180].map(known), [50, 50, 20]);
    }
}
