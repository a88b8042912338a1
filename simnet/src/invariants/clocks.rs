//! Who knows better than his own clock goes by what he knows.
//!
//! Invariant checked: a site signs nothing while its clock is ahead of its peers' by more than the
//! tolerance, where these have always been right and were told so. Deliberately not here: Grids with
//! liars, and clocks that are behind, by which a head that comes back looks as one that is signed.

use std::collections::BTreeSet;

use fairmesh_model::{ContentHash, WallTime};

use super::{Invariant, Seen, Violation};

/// Tolerances of clocks by which a head may be ahead: one is allowed, and peers' clocks are known as
/// they were when they were told.
const TOLERANCES: u64 = 2;

#[derive(Default)]
pub(super) struct Clocks {
    /// Nodes whose clocks were wrong when they did something.
    were_wrong: BTreeSet<usize>,
    /// Nodes that held a wrong clock of a peer after their last step: by that they began this one.
    told_wrong: BTreeSet<usize>,
    /// Heads that were signed ahead of the time: a site takes back what it signed before it knew better.
    signed_ahead: BTreeSet<ContentHash>,
}

/// By how many milliseconds a time is off.
fn off(seen: &Seen<'_>, at: WallTime) -> u64 {
    at.0.abs_diff(seen.world.true_wall().0)
}

/// Whether the node holds a wrong clock of a peer, which a message that was broken on its way may leave.
fn is_told_wrong(seen: &Seen<'_>, node: usize, tolerance: u64) -> bool {
    let (site, now) = (seen.world.site(node), seen.world.now_at(node).mono);
    let told = seen.world.nodes().iter();
    let mut told = told.filter_map(|peer| site?.clock_of(peer.id, now));
    told.any(|at| off(seen, at) > TOLERANCES * tolerance)
}

impl Invariant for Clocks {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let Some(node) = seen.node.filter(|_| seen.liars.is_empty()) else {
            return Ok(());
        };
        let tolerance = seen.world.node(node).config.timing.clock_tolerance.0;
        if off(seen, seen.world.now_at(node).wall) > tolerance {
            self.were_wrong.insert(node);
        }
        let is_told_wrong = is_told_wrong(seen, node, tolerance);
        let was_told_wrong = match is_told_wrong {
            true => !self.told_wrong.insert(node),
            false => self.told_wrong.remove(&node),
        };
        // A step may be of two messages, and the second right what a broken first one said.
        let knows = !is_told_wrong && !was_told_wrong && seen.facts.garbage == 0;
        let others_are_right = !self.were_wrong.iter().any(|other| *other != node);
        for signed in seen.facts.heads.iter().filter(|signed| signed.own) {
            *checks += u64::from(others_are_right);
            let (at, by) = (signed.head.at, off(seen, signed.head.at));
            let is_ahead = at > seen.world.true_wall() && by > TOLERANCES * tolerance;
            let is_new = is_ahead && self.signed_ahead.insert(signed.hash);
            if is_new && others_are_right && knows {
                let message = format!("signs while its clock is {} s ahead", by / 1_000);
                return Err(Violation::at(node, message));
            }
        }
        Ok(())
    }
}
