//! Starting and ending the processes of nodes.
//!
//! Invariant: a node starts from its disk alone, as `fairmesh-round` says; and whatever ends it, its
//! peers learn of it only by the network.
//!
//! Deliberately not here: what a site makes of its rows (`Site::restore`).

use fairmesh_model::{Incarnation, Now, SigningKey};
use fairmesh_round::{
    FileRead, Input, JOURNAL, JOURNAL_OLD, Opening, Owner, SIDE, StoreState, take_incarnation, tidy,
};
use fairmesh_site::{Event, Site};

use super::{RestartPlan, StepKind, World};
use crate::node::{SimNode, StopReason};

/// Why a node was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// It runs.
    #[error("the node runs already")]
    Running,
    /// Its process ended while it was starting.
    #[error("the node has ended while it was starting: {0:?}")]
    Ended(StopReason),
}

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
        if let Err(why) = self.come_up(node, random, started) {
            self.ended(node, why);
            return Err(StartError::Ended(why));
        }
        self.log_fact(node, StepKind::Started);
        self.network.touch();
        self.handle(node, Input::Event(Event::Tick));
        Ok(())
    }

    fn come_up(&mut self, node: usize, random: u64, started: Now) -> Result<(), StopReason> {
        let incarnation = self.next_incarnation(node, random, started)?;
        let state = self.open_store(node);
        let disk = &mut self.nodes[node].disk;
        let left = tidy(|file| disk.is_there(file));
        self.carry_out_ops(node, left)?;
        let (opening, ops) = self.open_journal(node, state, incarnation);
        self.carry_out_ops(node, ops)?;
        let place = &mut self.nodes[node];
        let mut plan = RestartPlan {
            incarnation,
            random,
            rows: place.disk.rows(),
        };
        if let Some(tamper) = &mut self.tamper {
            tamper.restart(node, &mut plan);
        }
        let site = Site::restore(
            place.config.clone(),
            SigningKey::from_secret(&place.key.to_secret()),
            plan.incarnation,
            plan.random,
            started,
            plan.rows,
        );
        let begun_with = |held| [place.disk.newest(held), site.rows_held_alone()].concat();
        let (round, ops) = opening.ready(begun_with, self.journal_bytes_max, started.wall);
        self.carry_out_ops(node, ops)?;
        let place = &mut self.nodes[node];
        place.disk.opened();
        place.life += 1;
        place.ticked_ms = self.now_ms;
        place.site = Some(site);
        place.round = Some(round);
        place.faults.owes_journal = false;
        Ok(())
    }

    fn next_incarnation(
        &mut self,
        node: usize,
        random: u64,
        started: Now,
    ) -> Result<Incarnation, StopReason> {
        let SimNode { disk, key, .. } = &mut self.nodes[node];
        let owner = Owner::new(key.site_id());
        let taken = match disk.read(&SIDE) {
            FileRead::Bytes(bytes) => take_incarnation(owner, Some(&bytes), started.wall, random),
            _ => take_incarnation(owner, None, started.wall, random),
        };
        let (incarnation, ops) = taken.unwrap_or_else(|_| {
            // The operator does what the message says.
            disk.put_side_aside();
            take_incarnation(owner, None, started.wall, random).expect("there is none")
        });
        self.carry_out_ops(node, ops)?;
        Ok(incarnation)
    }

    fn open_store(&mut self, node: usize) -> StoreState {
        let disk = &mut self.nodes[node].disk;
        let before = disk.set_aside();
        let state = disk.open();
        if disk.set_aside() > before {
            self.faults.count("store_set_aside");
            self.documents_lost();
            self.log_fact(node, StepKind::SetAside);
        }
        state
    }

    fn open_journal(
        &mut self,
        node: usize,
        state: StoreState,
        incarnation: Incarnation,
    ) -> (Opening, Vec<fairmesh_round::Op>) {
        let SimNode { disk, faults, .. } = &mut self.nodes[node];
        let (old, current) = (disk.read(&JOURNAL_OLD), disk.read(&JOURNAL));
        let lineage = incarnation.0;
        let opened = Opening::new(state, lineage, &old, &current);
        let Ok(opened) = opened else {
            // A flipped bit may look like a newer release. The operator does what the message says.
            disk.put_journal_aside();
            let absent = FileRead::Absent;
            let opened = Opening::new(state, lineage, &absent, &absent);
            return opened.expect("there is none");
        };
        faults.hides_damage |= disk.is_journal_damaged() && opened.0.journal_damage.is_none();
        opened
    }

    /// The process ends without a word, now.
    pub fn crash(&mut self, node: usize) {
        self.end(node, StopReason::Crashed);
    }

    /// The process ends after `steps` more of its rounds or, if it does not run, of its next start. It
    /// ends in the middle of a step: what that was writing is there in part.
    pub fn crash_within(&mut self, node: usize, steps: usize) {
        self.nodes[node].crash_after = Some(steps);
    }

    /// The node publishes what is pending, and stops.
    pub fn stop_gracefully(&mut self, node: usize) {
        if self.nodes[node].is_up() {
            self.faults.count("stop");
        }
        if let Some(round) = &mut self.nodes[node].round {
            round.end_with_store();
        }
        self.handle(node, Input::Event(Event::Stopping));
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
            self.ended(node, why);
            self.network.leave(node);
        }
    }

    /// The process is gone, and with it, every other time it crashes, the power of its machine.
    fn ended(&mut self, node: usize, why: StopReason) {
        self.nodes[node].end(why);
        match why {
            StopReason::DiskFull => self.faults.count("disk_full"),
            StopReason::Crashed => {
                self.faults.count("crash");
                let disk = &mut self.nodes[node].disk;
                if self.crashes.below(2) == 0 && disk.lose_power(&mut self.crashes) {
                    self.faults.count("lost_write");
                }
            }
            StopReason::NotStarted | StopReason::Stopped => {}
        }
    }
}
