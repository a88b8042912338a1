//! What can be planned to happen in a world.
//!
//! Invariant: an action does exactly what the method of its name does, so a plan and a story have
//! the same trace. Actions that need an answer leave it in the node's replies.
//!
//! Deliberately not here: deciding what happens when (scenarios and swarms).

use fairmesh_model::{RunningJob, UsageRecord};
use fairmesh_site::SiteConfig;

use super::World;
use crate::network::LinkSpec;

/// Something to happen at its time. Nodes go by their numbers, times are in milliseconds.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Action {
    Report {
        node: usize,
        records: Vec<UsageRecord>,
    },
    Running {
        node: usize,
        jobs: Vec<RunningJob>,
    },
    Publish {
        node: usize,
        bytes: Vec<u8>,
    },
    Reconfigure {
        node: usize,
        config: Box<SiteConfig>,
    },
    Start {
        node: usize,
    },
    Stop {
        node: usize,
    },
    Crash {
        node: usize,
    },
    CrashWithin {
        node: usize,
        effects: usize,
    },
    Partition {
        sets: Vec<Vec<usize>>,
    },
    Island {
        set: Vec<usize>,
    },
    Bridge {
        node: usize,
    },
    CutOneWay {
        from: Vec<usize>,
        to: Vec<usize>,
    },
    HealNetwork,
    UsualLink {
        link: LinkSpec,
    },
    Link {
        from: usize,
        to: usize,
        link: LinkSpec,
    },
    ClockJump {
        node: usize,
        by_ms: i64,
    },
    ClockDrift {
        node: usize,
        ppm: i64,
    },
    ClockCorrect {
        node: usize,
    },
    FlipBit {
        node: usize,
    },
    FillDisk {
        node: usize,
        room_bytes: u64,
    },
    MakeRoom {
        node: usize,
    },
    Wipe {
        node: usize,
        keeps_side: bool,
    },
    Backup {
        node: usize,
    },
    RestoreBackup {
        node: usize,
        keeps_side: bool,
    },
    Heal,
}

impl Action {
    /// The node that it concerns, if it is one.
    pub fn node(&self) -> Option<usize> {
        match self {
            Self::Report { node, .. }
            | Self::Running { node, .. }
            | Self::Publish { node, .. }
            | Self::Reconfigure { node, .. }
            | Self::Start { node }
            | Self::Stop { node }
            | Self::Crash { node }
            | Self::CrashWithin { node, .. }
            | Self::Bridge { node }
            | Self::ClockJump { node, .. }
            | Self::ClockDrift { node, .. }
            | Self::ClockCorrect { node }
            | Self::FlipBit { node }
            | Self::FillDisk { node, .. }
            | Self::MakeRoom { node }
            | Self::Wipe { node, .. }
            | Self::Backup { node }
            | Self::RestoreBackup { node, .. } => Some(*node),
            _ => None,
        }
    }
}

impl World {
    /// Does it now. Whether a node was up to answer is seen in its replies and its state.
    pub fn apply(&mut self, action: Action) {
        match action {
            Action::Report { node, records } => self.send_report(node, records).map_or((), drop),
            Action::Running { node, jobs } => self.send_running(node, jobs).map_or((), drop),
            Action::Publish { node, bytes } => self.send_document(node, bytes).map_or((), drop),
            Action::Reconfigure { node, config } => self.reconfigure(node, *config),
            // A node whose disk is full stays down, as `SimNode::stopped` says.
            Action::Start { node } => self.start(node).unwrap_or(()),
            Action::Stop { node } => self.stop_gracefully(node),
            Action::Crash { node } => self.crash(node),
            Action::CrashWithin { node, effects } => self.crash_within(node, effects),
            Action::Partition { sets } => self.partition(&sets),
            Action::Island { set } => self.island(&set),
            Action::Bridge { node } => self.bridge(node),
            Action::CutOneWay { from, to } => self.cut_one_way(&from, &to),
            Action::HealNetwork => self.heal_network(),
            Action::UsualLink { link } => self.set_usual_link(link),
            Action::Link { from, to, link } => self.set_link(from, to, link),
            Action::ClockJump { node, by_ms } => self.clock_jump(node, by_ms),
            Action::ClockDrift { node, ppm } => self.clock_drift(node, ppm),
            Action::ClockCorrect { node } => self.clock_correct(node),
            Action::FlipBit { node } => self.flip_bit(node),
            Action::FillDisk { node, room_bytes } => self.fill_disk(node, room_bytes),
            Action::MakeRoom { node } => self.make_room(node),
            Action::Wipe { node, keeps_side } => self.wipe(node, keeps_side),
            Action::Backup { node } => self.backup(node),
            Action::RestoreBackup { node, keeps_side } => self.restore_backup(node, keeps_side),
            Action::Heal => self.heal(),
        }
    }
}
