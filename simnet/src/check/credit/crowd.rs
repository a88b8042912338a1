//! Jobs that ask together, and jobs whose holds reach their time.
//!
//! A crowd is four jobs of one user: the first holds seven tenths of what its site has left of the user's account, and
//! each other one asks for six tenths and waits. Soon the first one does not run, so there is enough for one of the
//! others.
//! An aged job is held while its site's clock is a month behind, so its hold expires soon after the clock is set right.
//!
//! Deliberately not here: judging (`invariants::{verdicts, holds}`).

use fairmesh_model::{Factor, Millis};

use crate::check::Run;
use crate::facts::{EXPIRES_AFTER, place};
use crate::vo::{DAY, HOUR};

/// Jobs of a crowd beside the first.
const OTHERS: usize = 3;

/// The longest time that one of a crowd asks for.
const LONGEST: Millis = Millis(20 * DAY.0);

impl Run {
    pub(super) fn crowd(&mut self, node: usize) {
        let mounted = self.mounted(node);
        if mounted.is_empty() || !self.world.node(node).is_up() || self.is_liar(node) {
            return;
        }
        self.note_odd("crowd");
        let random = &mut self.credit.of_terms;
        let vo = mounted[random.index(mounted.len())];
        let of = &self.options.vos[vo];
        let whose = (random.index(of.groups), random.index(of.users));
        let Some(all) = self.worth(node, vo, whose) else {
            return;
        };
        for at in 0..=OTHERS {
            let wall = Millis(all.0 * if at == 0 { 7 } else { 6 } / 10);
            let call = self.call((node, vo), whose, (1, wall), at > 0);
            if at == 0 {
                self.credit.crowd = Some((node, call.record.key.clone()));
            }
            self.ask(node, vo, call);
        }
    }

    /// How long a job on one core could run for all that its site has left for its user.
    fn worth(&mut self, node: usize, vo: usize, whose: (usize, usize)) -> Option<Millis> {
        let call = self.call((node, vo), whose, (1, HOUR), false);
        let asked = self.asked(node, vo, call);
        let place = place(&self.world, node, self.ids[vo])?;
        let mut job = asked.job?;
        let per_hour = job.charge.max(1);
        job.charge = u64::MAX / 4;
        let expected = place.expected(&job);
        let left: u64 = expected.parts.iter().map(|(_, amount)| *amount).sum();
        let terms = place.allocations.get(expected.parts.first()?.0.0)?;
        let (price, factor) = (expected.price.millionths(), terms.hold_factor.millionths());
        let units = u128::from(Factor::UNITS).pow(2);
        let charge = u128::from(left) * units / (u128::from(price) * u128::from(factor)).max(1);
        let ms = charge * u128::from(HOUR.0) / u128::from(per_hour);
        let ms = u64::try_from(ms).unwrap_or(u64::MAX).min(LONGEST.0);
        (ms > 60_000).then_some(Millis(ms))
    }

    /// The first job of the last crowd does not run.
    pub(super) fn leave(&mut self, node: usize) {
        let of_node = self.credit.crowd.take_if(|(at, _)| *at == node);
        if let Some((_, job)) = of_node
            && self.credit.books.held.contains_key(&job)
        {
            self.release(node, job);
        }
    }

    /// A job is held by a clock that is behind by the life of a hold, but for some minutes.
    pub(super) fn age(&mut self, node: usize) {
        let mounted = self.mounted(node);
        if mounted.is_empty() || !self.world.node(node).is_up() || self.is_liar(node) {
            return;
        }
        let random = &mut self.credit.of_terms;
        let vo = mounted[random.index(mounted.len())];
        let of = &self.options.vos[vo];
        let whose = (random.index(of.groups), random.index(of.users));
        let wall = Millis(random.between(60_000, HOUR.0));
        let left = random.between(60_000, HOUR.0 / 2);
        let by = EXPIRES_AFTER.0 + wall.0 - left;
        let by = i64::try_from(by).expect("a month");
        self.world.take_waiting(node);
        self.world.clock_jump(node, -by);
        let call = self.call((node, vo), whose, (1, wall), false);
        self.ask(node, vo, call);
        self.world.clock_jump(node, by);
    }
}
