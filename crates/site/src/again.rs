//! A job that was taken back and is reported again.
//!
//! Feeds read the same files every day, so the record that was taken back comes again, and must not count. A record
//! that says something else about the job counts: the job gets a mark as any other, and may be taken back once more.
//! The corrections of a job keep each record that was taken back.
//!
//! Invariants: no record that was taken back counts again, whatever the rules are by then; of the records that differ
//! from these one counts, once.
//! Deliberately not here: taking back (`correct`).

use fairmesh_model::{Origin, Span, UsageRecord, WallTime, mutant};

use crate::charge::charge;
use crate::identity::{Account, IdentityMap};
use crate::parts::{Jobs, Own};
use crate::reach::Reach;
use crate::refund::Refund;
use crate::store::JobMark;
use crate::terms::Terms;

/// What a report of a job adds to, where corrections are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCorrection {
    /// It was not taken back.
    Counted(Option<JobMark>),
    /// It was taken back, and is reported as something else: so much of it is charged.
    Again(Option<JobMark>),
    /// It was taken back as it is reported, at this moment, if that is known.
    TakenBack(Option<WallTime>),
}

/// How a record compares with another one of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// It says no more than the other.
    None,
    /// It says what the other leaves out.
    Adds,
    /// It says something else.
    Contradicts,
}

/// What a report of a job means, by all that is known of it.
#[derive(Clone, Copy)]
pub(crate) struct JobTerms<'a> {
    pub(crate) terms: Terms<'a>,
    pub(crate) own: &'a Own,
    pub(crate) jobs: &'a Jobs,
}

impl<'a> JobTerms<'a> {
    pub(crate) fn new(terms: Terms<'a>, own: &'a Own, jobs: &'a Jobs) -> Self {
        Self { terms, own, jobs }
    }

    /// Whether a job whose mark is known was taken back, and what a record of it means then.
    pub(crate) fn after_correction(
        &self,
        record: &UsageRecord,
        mark: Option<JobMark>,
    ) -> AfterCorrection {
        let Some(mark) = mark.filter(|mark| mark.corrected) else {
            return AfterCorrection::Counted(mark);
        };
        let refunds: Vec<&Refund> = self.jobs.refunds_of(&record.key).collect();
        let at = refunds.iter().map(|refund| refund.at).max();
        // Corrections of earlier releases do not say what was taken back.
        let differs = |refund: &&Refund| {
            let taken_back = refund.record.as_deref();
            taken_back.is_some_and(|old| {
                let same_end = refund.until == Some(record.end);
                let end = if same_end { record.end } else { old.end };
                let old = UsageRecord { end, ..old.clone() };
                self.differs(record, &old)
            })
        };
        if mark.running_on(record) || refunds.is_empty() || !refunds.iter().all(differs) {
            return AfterCorrection::TakenBack(at);
        }
        let lost = refunds.iter().filter_map(|refund| self.lost_part(refund));
        let until = lost.max().map(|until| until.min(record.end));
        let until = until.filter(|until| *until > record.start);
        AfterCorrection::Again(until.map(JobMark::at))
    }

    /// Whether `record` reports something else than `old`, which was taken back. Of two sources of one job one may
    /// leave out what the other says; then it is something else only if it is charged otherwise.
    fn differs(&self, record: &UsageRecord, old: &UsageRecord) -> bool {
        match difference(record, old) {
            Difference::None => false,
            Difference::Contradicts => true,
            Difference::Adds => self.charged_today(record) != self.charged_today(old),
        }
    }

    /// The account that is charged for a record, and how much in which span.
    fn charged_today(&self, record: &UsageRecord) -> (Account, Vec<(Span, u64)>) {
        let account = self.terms.cx.config.identity.resolve(record);
        let account = account.unwrap_or_else(IdentityMap::nowhere);
        let vo = account.vo.filter(|vo| self.terms.vos.is_founded(*vo));
        let rules = self.terms.rules(vo, self.terms.cx.clock.own.wall);
        let charged = charge(record, None, &rules, &self.terms.cx.config.charging);
        let parts = charged.ok().flatten().map(|charged| charged.parts);
        let parts = parts.into_iter().flatten();
        (
            account,
            parts.map(|(span, part)| (span, part.charge)).collect(),
        )
    }

    /// Until when usage of a job that was taken back may still be in counters that came back after a loss: no mark
    /// says what it was charged until then, so nothing of that was taken back.
    fn lost_part(&self, refund: &Refund) -> Option<WallTime> {
        let Reach { running, .. } = self.own.recovered(refund.vo)?;
        let old = refund.record.as_deref()?;
        (old.start < running).then_some(running)
    }
}

impl JobMark {
    /// Whether a record is an instalment, and the job is known to have ended.
    fn running_on(self, record: &UsageRecord) -> bool {
        self.ended && record.running
    }
}

fn difference(new: &UsageRecord, old: &UsageRecord) -> Difference {
    let words = |origin: &Origin| {
        let Origin {
            user,
            account,
            group,
            subject,
        } = origin.clone();
        [user, account, group, subject]
    };
    let (new_place, old_place) = (&new.placement, &old.placement);
    let names = |of: &UsageRecord| [of.placement.queue.clone(), of.placement.machine.clone()];
    let numbers = |of: &UsageRecord| {
        let (nodes, gpus) = (u64::from(of.placement.nodes), u64::from(of.gpus));
        [nodes, gpus, of.mem_mib, of.placement.disk_mib].map(|of| Some(of).filter(|of| *of > 0))
    };
    let optional = words(&new.origin).into_iter().zip(words(&old.origin));
    let optional = optional.chain(names(new).into_iter().zip(names(old)));
    let mut adds = false;
    let end = mutant!(OtherEndIsSame, new.end, old.end);
    let mut contradicts = (new.start, end, new.cores) != (old.start, old.end, old.cores);
    let mut compare = |is_said: bool, was_said: bool, is_same: bool| {
        adds |= is_said && !was_said;
        contradicts |= is_said && was_said && !is_same;
    };
    optional.for_each(|(new, old)| compare(new.is_some(), old.is_some(), new == old));
    for (new, old) in numbers(new).into_iter().zip(numbers(old)) {
        compare(new.is_some(), old.is_some(), new == old);
    }
    let lists = [
        (
            new_place.properties.is_empty(),
            old_place.properties.is_empty(),
            new_place.properties == old_place.properties,
        ),
        (
            new_place.chunks.is_empty(),
            old_place.chunks.is_empty(),
            new_place.chunks == old_place.chunks,
        ),
        (
            new_place.terms.is_regular(),
            old_place.terms.is_regular(),
            new_place.terms == old_place.terms,
        ),
    ];
    lists
        .into_iter()
        .for_each(|(is_left_out, was_left_out, is_same)| {
            compare(!is_left_out, !was_left_out, is_same)
        });
    match (contradicts, adds) {
        (true, _) => Difference::Contradicts,
        (false, true) => Difference::Adds,
        (false, false) => Difference::None,
    }
}
