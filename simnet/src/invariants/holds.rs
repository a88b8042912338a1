//! A hold stays open until its job ends, is released, or passes its time by a clock that is believed, and no longer.
//!
//! Invariant checked, at honest sites: a job that may run has an open hold until its site hears of its end, or until 30
//! days, the time that the job may run and 10 minutes have passed since it asked, by its site's clock. A clock that its
//! site knows to be wrong shows nothing of that. A minute after that time, by a clock that is right, the hold is not
//! open any more.
//!
//! A site knows that its clock is wrong where members that are connected show another time, or where it has leapt since
//! the site was started. The judge holds this against a site only where no other clock was ever wrong and nobody lies.

use std::collections::BTreeSet;

use fairmesh_model::{JobKey, Millis, MonoTime, WallTime};
use fairmesh_quota::State;

use super::{Invariant, Seen, Violation};
use crate::facts::Booked;
use crate::vo::HOUR;
use crate::world::StepKind;

/// Holds that are due are freed within this time: a site looks each second, once other clocks agree with its own.
const EXPIRED_WITHIN: Millis = Millis(60_000);

/// Tolerances of clocks within which a clock is taken to be right: peers' clocks are known as they were.
const TOLERANCES: u64 = 2;

/// What is known of the clock of a site.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    life: u32,
    /// Whether it was right once in this life, so that a wrong clock has leapt.
    was_right: bool,
    /// Whether a member showed the right time after the last step.
    was_told: bool,
    /// Whether it knew after the last step that a wrong clock is wrong.
    knew: bool,
    /// Since when it has been right, and members that are connected said so.
    right_since: Option<MonoTime>,
    /// The latest time that the site may have believed.
    believed: WallTime,
}

pub(super) struct Holds {
    clocks: Vec<Clock>,
    /// Nodes whose clocks were ever wrong.
    were_wrong: BTreeSet<usize>,
}

impl Holds {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            clocks: vec![Clock::default(); nodes],
            were_wrong: BTreeSet::new(),
        }
    }

    /// What a step shows of the clock of its node.
    fn look(&mut self, seen: &Seen<'_>, node: usize) {
        let (place, now) = (seen.world.node(node), seen.world.now_at(node));
        let tolerance = TOLERANCES * place.config.timing.clock_tolerance.0;
        let off = |at: WallTime| at.0.abs_diff(seen.world.true_wall().0);
        let is_off = |at: WallTime| off(at) > tolerance;
        let is_right = !is_off(now.wall);
        // A clock that drifts does not leap.
        let may_drift = off(now.wall) < HOUR.0;
        if !is_right {
            self.were_wrong.insert(node);
        }
        let others_are_right = !self.were_wrong.iter().any(|other| *other != node);
        let is_sound = others_are_right && seen.liars.is_empty() && seen.facts.garbage == 0;
        let mut told = Vec::new();
        if let Some(site) = place.site() {
            let peers = seen.world.nodes().iter();
            told.extend(peers.filter_map(|peer| site.clock_of(peer.id, now.mono)));
        }
        let is_told = !told.is_empty() && !told.iter().any(|at| is_off(*at));
        let clock = &mut self.clocks[node];
        if clock.life != place.life() {
            *clock = Clock {
                life: place.life(),
                believed: clock.believed,
                ..Clock::default()
            };
        }
        let was_wrongly_told = told.iter().any(|at| is_off(*at));
        let knows = is_sound && !was_wrongly_told && (clock.was_right || is_told && clock.was_told);
        // Of the two messages of a step the first may have come under what the last step left.
        if may_drift || !knows || !clock.knew {
            clock.believed = clock.believed.max(now.wall);
        }
        clock.knew = knows;
        clock.was_right |= is_right;
        clock.was_told = is_told;
        let since = is_right && is_told && is_sound;
        clock.right_since = match clock.right_since {
            _ if !since => None,
            Some(at) => Some(at),
            None => Some(now.mono),
        };
    }

    fn check(
        &self,
        seen: &Seen<'_>,
        node: usize,
        job: &JobKey,
        of: &Booked,
    ) -> Result<(), Violation> {
        let site = seen.world.site(node);
        let Some(ledger) = site.and_then(|site| site.ledger(of.vo)) else {
            return Ok(());
        };
        let (clock, now) = (&self.clocks[node], seen.world.now_at(node));
        let is_open = ledger
            .mark(job)
            .is_some_and(|mark| mark.state == State::Held);
        if !is_open && clock.believed < of.expires {
            let early = of.expires.since(clock.believed).0 / 1_000;
            let state = ledger.mark(job).map(|mark| mark.state);
            let message = format!("the hold of job {} is {state:?} {early} s early", job.job);
            return Err(Violation::at(node, message));
        }
        let is_known = clock
            .right_since
            .is_some_and(|since| now.mono >= since.after(EXPIRED_WITHIN));
        let is_due = now.wall >= of.expires.after(EXPIRED_WITHIN);
        if is_open && is_due && is_known && !ledger.is_frozen() {
            let late = now.wall.since(of.expires).0 / 1_000;
            let message = format!("the hold of job {} is open {late} s late", job.job);
            return Err(Violation::at(node, message));
        }
        Ok(())
    }
}

impl Invariant for Holds {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let Some(node) = seen.node.filter(|_| seen.books.has_quotas) else {
            return Ok(());
        };
        self.look(seen, node);
        let may_change = matches!(
            seen.kind,
            StepKind::Tick | StepKind::Quota | StepKind::Report | StepKind::Started
        );
        if seen.is_liar(node) || !may_change {
            return Ok(());
        }
        for (job, of) in seen.books.held.iter().filter(|(_, of)| of.node == node) {
            if !of.is_lost && !of.is_ending {
                self.check(seen, node, job, of)?;
                *checks += 1;
            }
        }
        Ok(())
    }
}
