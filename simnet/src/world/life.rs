//! Starting and ending the processes of nodes.
//!
//! Invariant: a node starts from its disk alone, under an incarnation that is durable in the side
//! file before it is used, as the node's driver does it; and whatever ends it, its peers learn of it
//! only by the network.
//!
//! Deliberately not here: what a site makes of its rows (`Site::restore`).

use fairmesh_model::{Incarnation, SigningKey};
use fairmesh_site::{Event, Site};

use super::{RestartPlan, StepKind, World};
use crate::disk::DiskError;
use crate::node::StopReason;

/// Why a node was not started. It is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// It runs.
    #[error("the node runs already")]
    Running,
    /// Its disk has no room for its side file.
    #[error("the disk: {0}")]
    Disk(#[from] DiskError),
}

/// Bits of an incarnation that are drawn.
const RANDOM_BITS: u64 = 0xf_ffff;

impl World {
    /// Starts a node on whatever its disk holds.
    pub fn start(&mut self, node: usize) -> Result<(), StartError> {
        if self.nodes[node].is_up() {
            return Err(StartError::Running);
        }
        let now = self.now();
        let random = self.incarnations.between(0, u64::MAX);
        let place = &mut self.nodes[node];
        place.clock.restart(now);
        let started = place.clock.now(now);
        let seconds = started.wall.0 / 1_000;
        let incarnation = choose_incarnation(seconds, random, place.disk.side.floor);
        place.disk.raise_floor(incarnation)?;
        if place.disk.open() {
            self.faults.count("store_set_aside");
            self.documents_lost();
            self.log_fact(node, StepKind::SetAside);
        }
        let place = &mut self.nodes[node];
        let mut plan = RestartPlan {
            incarnation,
            random,
            rows: place.disk.rows(),
        };
        if let Some(tamper) = &mut self.tamper {
            tamper.restart(node, &mut plan);
        }
        place.life += 1;
        place.ticked_ms = self.now_ms;
        place.site = Some(Site::restore(
            place.config.clone(),
            SigningKey::from_secret(&place.key.to_secret()),
            plan.incarnation,
            plan.random,
            started,
            plan.rows,
        ));
        self.log_fact(node, StepKind::Started);
        self.network.touch();
        self.handle(node, Event::Tick, None);
        Ok(())
    }

    /// The process ends without a word, now.
    pub fn crash(&mut self, node: usize) {
        if self.nodes[node].is_up() {
            self.faults.count("crash");
            self.end(node, StopReason::Crashed);
        }
    }

    /// The process ends after `effects` more effects, in the middle of whatever it then does. A
    /// change of the store that it dies in is on disk whole, or not at all.
    pub fn crash_within(&mut self, node: usize, effects: usize) {
        if self.nodes[node].is_up() {
            self.nodes[node].crash_after = Some(effects);
        }
    }

    /// The node publishes what is pending, and stops.
    pub fn stop_gracefully(&mut self, node: usize) {
        if self.nodes[node].is_up() {
            self.faults.count("stop");
        }
        self.handle(node, Event::Stopping, None);
        self.end(node, StopReason::Stopped);
    }

    /// Stops a node, however, and starts it again.
    pub fn restart(&mut self, node: usize) -> Result<(), StartError> {
        self.crash(node);
        self.start(node)
    }

    pub(super) fn end(&mut self, node: usize, why: StopReason) {
        if self.nodes[node].is_up() {
            self.log_fact(node, StepKind::Ended);
            self.nodes[node].end(why);
            self.network.leave(node);
        }
    }
}

/// The node's rule: at or above the floor, led by the time, and told apart by chance where the floor
/// is ahead of the time (`node::driver::start`).
fn choose_incarnation(seconds: u64, random: u64, floor: Incarnation) -> Incarnation {
    let random = random & RANDOM_BITS;
    let by_time = (seconds << 20) | random;
    Incarnation(if by_time > floor.0 {
        by_time
    } else {
        floor.0.saturating_add(random)
    })
}
