//! What can happen in a scenario.
//!
//! Invariant: every action of the world has a task, and a task does nothing else than its actions.
//! Deliberately not here: how tasks are written (`args`) and carried out (`act`).

use fairmesh_model::{Millis, Share};

use crate::network::LinkSpec;

/// Something that happens.
#[derive(Debug, Clone)]
pub enum Task {
    /// To each of some nodes, one after the other.
    Nodes {
        /// To whom.
        nodes: Vec<usize>,
        /// What.
        task: NodeTask,
    },
    /// The network is cut; each set is a side, and whoever is in none is on one side together.
    Partition(Vec<Vec<usize>>),
    /// Some nodes are cut off from all others.
    Island(Vec<usize>),
    /// What some nodes send does not reach some others.
    CutOneWay {
        /// Senders.
        from: Vec<usize>,
        /// Receivers.
        to: Vec<usize>,
    },
    /// No cuts any more.
    HealNetwork,
    /// Everything is put right.
    Heal,
    /// Links change.
    Link(LinkChange),
    /// Jobs end and are reported by one node.
    Report {
        /// Where.
        node: usize,
        /// Whose, and how many.
        jobs: Jobs,
    },
    /// Jobs run at one node; replaces what ran before.
    Running {
        /// Where.
        node: usize,
        /// Whose, and how many.
        jobs: Jobs,
        /// How much longer they are expected to run.
        left: Millis,
    },
    /// A VO signs a policy with other shares and hands it in at one node.
    Policy {
        /// Where.
        node: usize,
        /// Index of the VO.
        vo: usize,
        /// Paths and their shares.
        shares: Vec<(String, Share)>,
    },
    /// A VO signs a charter with other members and hands it in at one node.
    Charter {
        /// Where.
        node: usize,
        /// Index of the VO.
        vo: usize,
        /// Members that are listed from now on.
        add: Vec<usize>,
        /// Members that are listed no more.
        remove: Vec<usize>,
    },
    /// The load's feeds of some nodes hold back what they have.
    PauseLoad(Vec<usize>),
    /// They report again, what they held back too.
    ResumeLoad(Vec<usize>),
    /// One node sends so many messages of nonsense at every tick.
    Flood {
        /// Who.
        node: usize,
        /// How many.
        messages: usize,
    },
    /// It stops.
    EndFlood,
    /// Ticks come no more often than this.
    Tick(Millis),
}

/// What happens to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeTask {
    Start,
    Stop,
    Crash,
    CrashWithin { effects: usize },
    Restart,
    Bridge,
    ClockJump { by_ms: i64 },
    ClockDrift { ppm: i64 },
    ClockCorrect,
    FlipBit,
    FillDisk { room_bytes: u64 },
    MakeRoom,
    Wipe { keeps_side: bool },
    Backup,
    RestoreBackup { keeps_side: bool },
    Reconfigure { vo_share: Share },
}

/// Which links become what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkChange {
    /// All that have no description of their own.
    Usual(LinkSpec),
    /// Those from some nodes to some others.
    Between {
        /// Senders.
        from: Vec<usize>,
        /// Receivers.
        to: Vec<usize>,
        /// What they are.
        link: LinkSpec,
    },
    /// All are again what the Grid began with.
    Calm,
}

/// Jobs that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jobs {
    /// A VO's name, or `local`.
    pub account: String,
    /// The group that they run for.
    pub group: String,
    /// The user.
    pub user: String,
    /// Cores of each.
    pub cores: u32,
    /// How long each has run.
    pub run: Millis,
    /// How many.
    pub count: usize,
}
