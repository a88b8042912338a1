//! Two machines that run with one site's key: each is let in for its turn, and that they are two is reported.
//!
//! libp2p knows a peer by its key alone and spreads requests over all connections with it. So a request for what one of
//! the two machines holds would go to the other one, and its usage would reach nobody. Of one site only connections of
//! one incarnation are kept; the other machine, which dials again and again, is let in when [`TURN`] is over.
//!
//! Invariant: a machine that keeps dialling is let in within [`TURN`]. An incarnation that comes back after another one
//! took its place is the proof of two machines: a start that has ended does not come back.
//! Deliberately not here: what counts (heads of both machines add up), and connections, which the driver closes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use fairmesh_model::SiteId;

/// How long a machine is heard before the other one is: long enough for an exchange of everything, short enough that
/// usage of both is everywhere within half a minute.
pub(crate) const TURN: Duration = Duration::from_secs(10);

/// For so long a machine may take to come back: all connections with its site were closed when its turn began.
const RETURN: Duration = Duration::from_secs(3);

/// For so long after the last proof two machines are reported: three turns, each of which is a proof.
const REPORTED: Duration = Duration::from_secs(45);

/// Incarnations that are remembered of a site: more machines than these with one key are reported as well.
const EARLIER_MAX: usize = 8;

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Keeps,
    /// It is closed: another machine has its turn.
    Waits,
    /// Its machine's turn begins: all connections with the site are closed, and that machine comes back.
    Displaces,
}

/// Whose turn it is, by site.
#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeMap<SiteId, Turn>);

#[derive(Debug)]
struct Turn {
    incarnation: u64,
    address: String,
    since: Instant,
    /// Until when its place is kept, if its turn began by closing all connections and it has not come back yet.
    kept_until: Option<Instant>,
    earlier: VecDeque<u64>,
    proof: Option<([String; 2], Instant)>,
}

impl Turns {
    /// A node of `site` said which incarnation it is. `is_held` says whether a connection with the one whose turn it is
    /// is open.
    pub(crate) fn admit(
        &mut self,
        site: SiteId,
        (incarnation, address): (u64, String),
        is_held: impl FnOnce(u64) -> bool,
        now: Instant,
    ) -> Admission {
        let turn = self.0.entry(site).or_insert_with(|| Turn {
            incarnation,
            address: address.clone(),
            since: now,
            kept_until: None,
            earlier: VecDeque::new(),
            proof: None,
        });
        if turn.incarnation == incarnation {
            (turn.address, turn.kept_until) = (address, None);
            return Admission::Keeps;
        }
        // A node that ended has no connection any more: its next start takes its place at once, and is no second
        // machine.
        let is_held = is_held(turn.incarnation);
        let kept_until = turn.kept_until.or(is_held.then(|| turn.since + TURN));
        if kept_until.is_some_and(|until| now < until) {
            return Admission::Waits;
        }
        if turn.earlier.contains(&incarnation) {
            turn.proof = Some(([turn.address.clone(), address.clone()], now));
        }
        turn.earlier.retain(|earlier| *earlier != incarnation);
        turn.earlier.push_back(turn.incarnation);
        if turn.earlier.len() > EARLIER_MAX {
            turn.earlier.pop_front();
        }
        (turn.incarnation, turn.address, turn.since) = (incarnation, address, now);
        turn.kept_until = is_held.then(|| now + RETURN);
        match is_held {
            true => Admission::Displaces,
            false => Admission::Keeps,
        }
    }

    /// Where the two machines of a site are, while they are reported.
    pub(crate) fn machines(&self, site: SiteId, now: Instant) -> Option<&[String; 2]> {
        let (machines, at) = self.0.get(&site)?.proof.as_ref()?;
        (now < *at + REPORTED).then_some(machines)
    }

    /// Forgets sites that are not allowed any more.
    pub(crate) fn retain(&mut self, allowed: &BTreeSet<SiteId>) {
        self.0.retain(|site, _| allowed.contains(site));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: SiteId = SiteId::from_bytes([1; 32]);

    fn admit(turns: &mut Turns, incarnation: u64, is_held: bool, now: Instant) -> Admission {
        let machine = (incarnation, format!("machine {incarnation}"));
        turns.admit(SITE, machine, |_| is_held, now)
    }

    #[test]
    fn two_machines_take_turns_and_are_reported_until_one_is_gone() {
        let (mut turns, mut now) = (Turns::default(), Instant::now());
        assert_eq!(admit(&mut turns, 1, false, now), Admission::Keeps);
        now += TURN / 2;
        assert_eq!(admit(&mut turns, 2, true, now), Admission::Waits);
        now += TURN / 2;
        assert_eq!(admit(&mut turns, 2, true, now), Admission::Displaces);
        // Not yet a proof: the first one may have ended.
        assert_eq!(turns.machines(SITE, now), None);
        // The connections were closed, and the machine before is not faster than the one whose turn it is.
        assert_eq!(admit(&mut turns, 1, false, now), Admission::Waits);
        assert_eq!(admit(&mut turns, 2, false, now), Admission::Keeps);
        now += TURN;
        assert_eq!(admit(&mut turns, 1, true, now), Admission::Displaces);
        let machines = ["machine 2", "machine 1"].map(str::to_owned);
        assert_eq!(turns.machines(SITE, now), Some(&machines));
        now += REPORTED;
        assert_eq!(turns.machines(SITE, now), None);
    }

    #[test]
    fn a_node_that_starts_again_is_let_in_and_no_second_machine() {
        let (mut turns, mut now) = (Turns::default(), Instant::now());
        for incarnation in 1..20 {
            assert_eq!(admit(&mut turns, incarnation, false, now), Admission::Keeps);
            assert_eq!(turns.machines(SITE, now), None);
        }
        // Its machine lost power: the connection looks open for minutes, and the next start waits for one turn at most.
        now += TURN;
        assert_eq!(admit(&mut turns, 20, true, now), Admission::Displaces);
        assert_eq!(turns.machines(SITE, now), None);
    }
}
