//! What can be made to go wrong, and how it is put right.
//!
//! Invariant: a fault changes the network, a disk or a clock, never a site: sites learn of it only by
//! what then reaches them. Disks are wiped, restored and damaged while their node is down, or the
//! node is ended first, because no process survives the loss of its files under it.
//!
//! Deliberately not here: lying sites (the tamper layer), and when to do what.

use fairmesh_round::{JOURNAL, JOURNAL_OLD, SIDE};

use super::World;
use crate::network::LinkSpec;
use crate::node::StopReason;

impl World {
    /// Cuts the network: each set is a side, and whoever is in none is on one side together.
    pub fn partition(&mut self, sets: &[Vec<usize>]) {
        self.faults.count("partition");
        self.network.rules.partition(sets);
        self.network.touch();
    }

    /// Cuts these nodes off from all others; among themselves they stay together.
    pub fn island(&mut self, set: &[usize]) {
        self.faults.count("island");
        self.network.rules.island(set);
        self.network.touch();
    }

    /// This node reaches all sides of any cut.
    pub fn bridge(&mut self, node: usize) {
        self.faults.count("bridge");
        self.network.rules.bridge(node);
        self.network.touch();
    }

    /// What `from` sends no longer reaches `to`; the other way it still does.
    pub fn cut_one_way(&mut self, from: &[usize], to: &[usize]) {
        self.faults.count("cut_one_way");
        self.network.rules.cut_one_way(from, to);
        self.network.touch();
    }

    /// No cuts any more. Links stay what they are.
    pub fn heal_network(&mut self) {
        self.network.rules.heal();
        self.network.touch();
    }

    /// What links do that were not given a description of their own.
    pub fn set_usual_link(&mut self, link: LinkSpec) {
        self.faults.count("link");
        self.network.links.set_usual(link);
    }

    /// What one direction between two nodes does.
    pub fn set_link(&mut self, from: usize, to: usize, link: LinkSpec) {
        self.faults.count("link");
        self.network.links.set(from, to, link);
    }

    /// Both directions.
    pub fn set_links_between(&mut self, a: usize, b: usize, link: LinkSpec) {
        self.set_link(a, b, link);
        self.set_link(b, a, link);
    }

    /// All links are again what the world began with.
    pub fn calm_links(&mut self) {
        let usual = self.network.spec.link;
        self.network.links.set_usual(usual);
        self.network.links.clear_special();
    }

    /// A node's wall clock jumps.
    pub fn clock_jump(&mut self, node: usize, by_ms: i64) {
        self.faults.count("clock_jump");
        self.nodes[node].clock.jump(by_ms);
    }

    /// A node's clocks run too fast from now on, by parts in a million (too slow, if negative).
    pub fn clock_drift(&mut self, node: usize, ppm: i64) {
        self.faults.count("clock_drift");
        let now = self.now();
        self.nodes[node].clock.drift(now, ppm);
        self.set_wakeup(node);
    }

    /// A node's wall clock is set right, and drifts no more.
    pub fn clock_correct(&mut self, node: usize) {
        let now = self.now();
        self.nodes[node].clock.correct(now);
        self.set_wakeup(node);
    }

    /// Flips a bit of a node's disk: in some row of its store and, in a busy world, in the files beside
    /// it. It is found when the row is read singly, or when the node is started next.
    pub fn flip_bit(&mut self, node: usize) {
        let files = [SIDE, JOURNAL, JOURNAL_OLD];
        let file = self.is_busy.then(|| self.flips.index(2 * files.len()));
        let disk = &mut self.nodes[node].disk;
        let is_flipped = match file.and_then(|file| files.get(file)) {
            Some(file) => disk.flip_bit_of(file, &mut self.flips),
            None => disk.flip_bit(&mut self.flips),
        };
        if is_flipped {
            self.faults.count("flip_bit");
        }
    }

    /// Flips a bit of each mark of a job that has ended in a node's store.
    pub fn flip_marks(&mut self, node: usize) {
        if self.nodes[node].disk.flip_marks() {
            self.faults.count("flip_bit");
        }
    }

    /// Lets a node's disk take only so much more. The node stops at the first write that fails.
    pub fn fill_disk(&mut self, node: usize, room_bytes: u64) {
        self.nodes[node].disk.fill(room_bytes);
    }

    /// The operator makes room; a node that has stopped for want of it is started.
    pub fn make_room(&mut self, node: usize) {
        self.nodes[node].disk.make_room();
        if self.nodes[node].stopped() == Some(StopReason::DiskFull) {
            // It may die at once, where that is planned.
            self.start(node).unwrap_or(());
        }
    }

    /// A node loses its store, and its side file unless it `keeps_side`. It has to be started.
    pub fn wipe(&mut self, node: usize, keeps_side: bool) {
        self.crash(node);
        self.faults.count("wipe");
        self.nodes[node].disk.wipe(keeps_side);
        self.documents_lost();
    }

    /// Takes a backup of a node's data folder.
    pub fn backup(&mut self, node: usize) {
        let backup = self.nodes[node].disk.snapshot();
        self.nodes[node].backups.push(backup);
    }

    /// Puts a node's oldest backup in the place of its data folder, or of its store alone where it
    /// `keeps_side`. The node has to be started. Without a backup nothing happens.
    pub fn restore_backup(&mut self, node: usize, keeps_side: bool) {
        let Some(backup) = self.nodes[node].backups.first().cloned() else {
            return;
        };
        self.crash(node);
        self.faults.count("restore_backup");
        self.nodes[node].disk.restore(&backup, keeps_side);
        self.documents_lost();
    }

    /// Puts everything right: cuts, links, clocks, full disks, and nodes that are down; not those
    /// that were never started.
    pub fn heal(&mut self) {
        self.heal_network();
        self.calm_links();
        self.flood.open = None;
        for node in 0..self.nodes.len() {
            self.clock_correct(node);
            self.nodes[node].disk.make_room();
            self.nodes[node].crash_after = None;
            let down = self.nodes[node].stopped();
            if down.is_some_and(|why| why != StopReason::NotStarted) {
                self.start(node).expect("it is down, and has room");
            }
        }
    }
}
