//! After the loss of a store: which jobs are contained in the counters that peers gave back.
//!
//! Only the site knows what each job was charged, and loses that with the store; the counters come back. They contain
//! jobs up to a time, which the site publishes in each head. An unknown job is assumed to be counted up to that time:
//! usage that is missing can be fed again, usage that counts twice cannot be removed. So feeds may repeat everything.
//! Ended and running jobs have different times: if running jobs are never listed, or a VO counts jobs only at their
//! end, a job that ended later is in no counter.
//!
//! Invariant: no moment of a job that counted before the loss counts again, and every moment after [`Reach`] counts
//! once. Peers do not have the counters of the site's own accounts: feeds repeat those in full, unless the journal
//! has them. The journal has no marks from before it began, so marks are also lost up to what the counters contained
//! then ([`marks_lost`]).

use fairmesh_model::{UsageRecord, VoId, WallTime, mutant};

use crate::store::{JobMark, Table, Write};

/// The times up to which counters contain jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    /// Every ended job in the counters had ended by this time.
    pub ended: WallTime,
    /// The counters contain no moment after this time of a job that was running when it was counted.
    pub running: WallTime,
}

impl Reach {
    /// The reach of a single job by its mark.
    pub(crate) fn of(mark: JobMark) -> Self {
        let (until, none) = (mark.charged_until, WallTime(0));
        let (ended, running) = if mark.ended {
            (until, none)
        } else {
            (none, until)
        };
        Self { ended, running }
    }

    /// The later of both.
    pub fn newest(self) -> WallTime {
        self.ended.max(self.running)
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            ended: self.ended.max(other.ended),
            running: mutant!(
                RunningReachFalls,
                self.running.max(other.running),
                self.running.min(other.running)
            ),
        }
    }

    /// The earlier of each.
    fn meet(self, other: Self) -> Self {
        Self {
            ended: self.ended.min(other.ended),
            running: self.running.min(other.running),
        }
    }

    pub(crate) fn no_later_than(self, wall: WallTime) -> Self {
        let (ended, running) = (wall, wall);
        self.meet(Self { ended, running })
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.ended, self.running]
            .map(|at| at.0.to_be_bytes())
            .concat()
    }

    /// As the part of a head has it.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ended, running) = bytes.split_first_chunk()?;
        let time = |bytes| WallTime(u64::from_be_bytes(bytes));
        Some(Self {
            ended: time(*ended),
            running: time(running.try_into().ok()?),
        })
    }
}

/// Until when own counters reach, of a VO or of the site's own accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reaches {
    /// The reach of all counters.
    pub(crate) counted: Reach,
    /// The reach of counters whose marks are lost: up to here it is unknown what each job was charged.
    pub(crate) recovered: Reach,
}

impl Reaches {
    /// After peers have given back counters with the reach `past`: their marks are lost.
    pub(crate) fn given_back(self, past: Reach) -> Self {
        Self {
            counted: self.counted.join(past),
            recovered: self.recovered.join(past),
        }
    }

    fn lost_until(self, began: Reach) -> Self {
        Self {
            recovered: self.recovered.join(began),
            ..self
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        [self.counted, self.recovered].map(Reach::to_bytes).concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (counted, recovered) = bytes.split_at_checked(16)?;
        Some(Self {
            counted: Reach::from_bytes(counted)?,
            recovered: Reach::from_bytes(recovered)?,
        })
    }
}

/// The row `reach` of a store that has lost the marks of jobs from before its row was `began`. The reach only grows,
/// except that it is cut after a clock that was ahead was set right; so the earlier of the two counts.
pub fn marks_lost(reach: &[u8], began: &[u8]) -> Option<Vec<u8>> {
    let (reach, began) = (Reaches::from_bytes(reach)?, Reaches::from_bytes(began)?);
    let lost = began.counted.meet(reach.counted);
    Some(reach.lost_until(lost).to_bytes())
}

/// The row with the reach of a VO's own counters.
pub(crate) fn reach_row(vo: Option<VoId>, reach: Reaches) -> Write {
    let key = vo.map_or_else(Vec::new, |vo| vo.as_bytes().to_vec());
    Write::set(Table::Reach, key, reach.to_bytes())
}

/// The mark to assume for a job whose `mark` may be lost, if counters with this reach came back.
pub(crate) fn behind(reach: Reach, record: &UsageRecord, mark: Option<JobMark>) -> Option<JobMark> {
    let known = mark.unwrap_or(JobMark::at(record.start));
    // A record that ends by then may be of a job that had ended, and was counted as a whole.
    let is_in = record.end <= reach.ended;
    let until = if is_in {
        record.end
    } else {
        reach.running.min(record.end)
    };
    let ended = is_in && !record.running;
    if known.ended || (!ended && known.charged_until >= until) {
        return mark;
    }
    Some(JobMark {
        charged_until: known.charged_until.max(until),
        ended,
        ..known
    })
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{JobKey, Origin, Placement};

    use super::*;

    /// How much counts again of a job that ran, or runs, from 100 to 200, where counters came back.
    fn left(ended: u64, until: u64, running: bool, mark: Option<u64>) -> u64 {
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
        let reach = Reach {
            ended: WallTime(ended),
            running: WallTime(until),
        };
        let mark = mark.map(|until| JobMark::at(WallTime(until)));
        match behind(reach, &record, mark) {
            None => 100,
            Some(mark) if mark.ended => 0,
            Some(mark) => record.end.since(mark.charged_until).0,
        }
    }

    #[test]
    fn a_journal_that_began_while_the_clock_was_ahead_says_no_more_than_its_newest_row() {
        let counted = |ended, running| Reaches {
            counted: Reach {
                ended: WallTime(ended),
                running: WallTime(running),
            },
            recovered: Reach::default(),
        };
        let lost = |began: Reaches, newest: Reaches| {
            let row = marks_lost(&newest.to_bytes(), &began.to_bytes()).expect("two rows");
            let recovered = Reaches::from_bytes(&row).expect("a row").recovered;
            (recovered.ended.0, recovered.running.0)
        };
        assert_eq!(lost(counted(50, 60), counted(90, 95)), (50, 60));
        assert_eq!(lost(counted(900, 60), counted(90, 95)), (90, 60));
    }

    #[test]
    fn of_a_job_that_is_not_known_what_lies_behind_the_loss_counts() {
        let both = |until| left(until, until, false, None);
        assert_eq!(
            [50, 100, 130, 199, 200, 300].map(both),
            [100, 100, 70, 1, 0, 0]
        );
        let runs = |until| left(until, until, true, None);
        assert_eq!([50, 130, 200, 300].map(runs), [100, 70, 0, 0]);
        let ran = |ended| left(ended, 0, true, None);
        assert_eq!([199, 200].map(ran), [100, 0], "it may have ended by 200");
        // Where jobs count when they end, one that ended later is in no counter.
        let ended = |until| left(until, 0, false, None);
        assert_eq!([50, 130, 199, 200, 300].map(ended), [100, 100, 100, 0, 0]);
        let known = |mark| left(150, 150, false, Some(mark));
        assert_eq!([120, 150, 180].map(known), [50, 50, 20]);
    }
}
