//! What goes wrong when: a list drawn before the run begins.
//!
//! Invariant: the plan depends on the seed and the options alone, and what one kind of fault draws
//! shifts nothing of another, so that a failing run can be made smaller by taking kinds away.
//!
//! Deliberately not here: doing it (`check::act`).

use fairmesh_cluster::{Seed, Stream};

use super::{FaultOptions, Options};

/// One thing that goes wrong. Where it lasts, for how long in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Fault {
    Partition {
        set: Vec<usize>,
        ms: u64,
    },
    Island {
        set: Vec<usize>,
        ms: u64,
    },
    Bridge {
        node: usize,
        set: Vec<usize>,
        ms: u64,
    },
    OneWayCut {
        from: Vec<usize>,
        to: Vec<usize>,
        ms: u64,
    },
    CloggedLink {
        from: usize,
        to: usize,
        ms: u64,
    },
    Crash {
        node: usize,
        ms: u64,
    },
    CrashWithin {
        node: usize,
        effects: usize,
        ms: u64,
    },
    Stop {
        node: usize,
        ms: u64,
    },
    Wipe {
        node: usize,
        keeps_side: bool,
        ms: u64,
    },
    Backup {
        node: usize,
    },
    Restore {
        node: usize,
        keeps_side: bool,
        ms: u64,
    },
    BitFlip {
        node: usize,
        ms: u64,
    },
    FullDisk {
        node: usize,
        room_bytes: u64,
        ms: u64,
    },
    ClockJump {
        node: usize,
        by_ms: i64,
        ms: u64,
    },
    Drift {
        node: usize,
        ppm: i64,
        ms: u64,
    },
    Garbage {
        node: usize,
        bytes: Vec<u8>,
    },
    Policy {
        node: usize,
        vo: usize,
    },
    Charter {
        node: usize,
        vo: usize,
    },
    Removal {
        node: usize,
        vo: usize,
        ms: u64,
    },
    Reconfigure {
        node: usize,
        publish_s: u64,
        sync_s: u64,
        /// What a job of the queue `long` costs, in percent; 0 takes the queue off the list.
        long_percent: u32,
    },
    Departure {
        node: usize,
        vo: usize,
        ms: u64,
    },
}

/// Draws the times and places of everything that goes wrong in a run of `ms`.
pub(crate) fn plan_faults(seed: Seed, options: &Options, ms: u64) -> Vec<(u64, Fault)> {
    let f = options.faults;
    let kinds: [(&str, u64, Draw); 20] = [
        ("partitions", f.partitions, |d| d.partition()),
        ("islands", f.islands, |d| d.island()),
        ("bridges", f.bridges, |d| d.bridge()),
        ("one-way cuts", f.one_way_cuts, |d| d.one_way()),
        ("clogged links", f.clogged_links, |d| d.clogged()),
        ("crashes", f.crashes, |d| d.crash()),
        ("crashes within", f.crashes_within, |d| d.crash_within()),
        ("stops", f.graceful_stops, |d| d.stop()),
        ("wipes", f.wipes, |d| d.wipe(true)),
        ("wipes with side", f.wipes_with_side, |d| d.wipe(false)),
        ("bit flips", f.bit_flips, |d| d.bit_flip()),
        ("full disks", f.full_disks, |d| d.full_disk()),
        ("clock jumps", f.clock_jumps, |d| d.clock_jump()),
        ("clock years", f.clock_years, |d| d.clock_year()),
        ("drifts", f.clock_drifts, |d| d.drift()),
        ("garbage", f.garbage_documents, |d| d.garbage()),
        ("policies", f.policies, |d| d.policy()),
        ("charters", f.charters, |d| d.charter()),
        ("removals", f.removals, |d| d.removal()),
        ("reconfigurations", f.reconfigurations, |d| d.reconfigure()),
    ];
    let mut planned = Vec::new();
    for (name, count, draw) in kinds {
        let mut drawn = Drawn::new(seed, name, options);
        for _ in 0..count {
            let at = drawn.random.below(ms);
            planned.push((at, draw(&mut drawn)));
        }
    }
    plan_pairs(seed, options, ms, f, &mut planned);
    planned
}

/// Faults that come in two parts, or at certain places only.
fn plan_pairs(
    seed: Seed,
    options: &Options,
    ms: u64,
    f: FaultOptions,
    planned: &mut Vec<(u64, Fault)>,
) {
    let mut drawn = Drawn::new(seed, "backups", options);
    for _ in 0..f.backups_restored {
        let node = drawn.node();
        let taken = drawn.random.below(ms);
        let back = drawn.random.between(taken, ms - 1);
        let keeps_side = drawn.random.below(2) == 1;
        let down = drawn.a_while();
        planned.push((taken, Fault::Backup { node }));
        planned.push((
            back,
            Fault::Restore {
                node,
                keeps_side,
                ms: down,
            },
        ));
    }
    let mut drawn = Drawn::new(seed, "departures", options);
    for _ in 0..f.departures {
        let (vo, node) = drawn.member();
        let (at, ms) = (drawn.random.below(ms), drawn.a_while());
        planned.push((at, Fault::Departure { node, vo, ms }));
    }
}

type Draw = fn(&mut Drawn<'_>) -> Fault;

/// A stream of one kind of fault.
struct Drawn<'a> {
    random: Stream,
    options: &'a Options,
}

impl<'a> Drawn<'a> {
    fn new(seed: Seed, name: &str, options: &'a Options) -> Self {
        Self {
            random: seed.stream(&format!("swarm {name}")),
            options,
        }
    }

    fn node(&mut self) -> usize {
        self.random.index(self.options.sites)
    }

    fn member(&mut self) -> (usize, usize) {
        let vo = self.random.index(self.options.vos.len());
        let members = &self.options.vos[vo].members;
        (vo, members[self.random.index(members.len())])
    }

    fn set(&mut self) -> Vec<usize> {
        let all = 0..self.options.sites;
        all.filter(|_| self.random.below(2) == 0).collect()
    }

    /// From seconds to an hour, short ones as often as long ones.
    fn a_while(&mut self) -> u64 {
        let most = [5_000, 60_000, 600_000, 3_600_000][self.random.index(4)];
        self.random.between(500, most)
    }

    fn partition(&mut self) -> Fault {
        Fault::Partition {
            set: self.set(),
            ms: self.a_while() * 2,
        }
    }

    fn island(&mut self) -> Fault {
        Fault::Island {
            set: vec![self.node()],
            ms: self.a_while() * 4,
        }
    }

    fn bridge(&mut self) -> Fault {
        Fault::Bridge {
            node: self.node(),
            set: self.set(),
            ms: self.a_while() * 2,
        }
    }

    fn one_way(&mut self) -> Fault {
        Fault::OneWayCut {
            from: self.set(),
            to: self.set(),
            ms: self.a_while(),
        }
    }

    fn clogged(&mut self) -> Fault {
        Fault::CloggedLink {
            from: self.node(),
            to: self.node(),
            ms: self.a_while(),
        }
    }

    fn crash(&mut self) -> Fault {
        Fault::Crash {
            node: self.node(),
            ms: self.a_while(),
        }
    }

    fn crash_within(&mut self) -> Fault {
        let effects = self.random.index(6);
        Fault::CrashWithin {
            node: self.node(),
            effects,
            ms: self.a_while(),
        }
    }

    fn stop(&mut self) -> Fault {
        Fault::Stop {
            node: self.node(),
            ms: self.a_while(),
        }
    }

    fn wipe(&mut self, keeps_side: bool) -> Fault {
        Fault::Wipe {
            node: self.node(),
            keeps_side,
            ms: self.a_while(),
        }
    }

    fn bit_flip(&mut self) -> Fault {
        Fault::BitFlip {
            node: self.node(),
            ms: self.a_while(),
        }
    }

    fn full_disk(&mut self) -> Fault {
        let room_bytes = self.random.below(20_000);
        Fault::FullDisk {
            node: self.node(),
            room_bytes,
            ms: self.a_while(),
        }
    }

    fn clock_jump(&mut self) -> Fault {
        let most = [10_000, 240_000, 3_600_000, 86_400_000][self.random.index(4)];
        let by = i64::try_from(self.random.below(most)).expect("a day fits");
        let by_ms = if self.random.below(2) == 0 { by } else { -by };
        Fault::ClockJump {
            node: self.node(),
            by_ms,
            ms: self.a_while() * 2,
        }
    }

    fn clock_year(&mut self) -> Fault {
        let by_ms = 365 * 86_400_000;
        Fault::ClockJump {
            node: self.node(),
            by_ms,
            ms: self.a_while() * 2,
        }
    }

    fn drift(&mut self) -> Fault {
        let pace = i64::try_from(self.random.below(2_001)).expect("small") - 1_000;
        Fault::Drift {
            node: self.node(),
            ppm: pace,
            ms: self.a_while() * 4,
        }
    }

    fn garbage(&mut self) -> Fault {
        let length = self.random.index(3_000);
        let byte = |_| u8::try_from(self.random.below(256)).expect("a byte");
        let bytes = (0..length).map(byte).collect();
        Fault::Garbage {
            node: self.node(),
            bytes,
        }
    }

    fn policy(&mut self) -> Fault {
        let (vo, node) = self.member();
        Fault::Policy { node, vo }
    }

    fn charter(&mut self) -> Fault {
        let (vo, node) = self.member();
        Fault::Charter { node, vo }
    }

    fn removal(&mut self) -> Fault {
        let (vo, node) = self.member();
        Fault::Removal {
            node,
            vo,
            ms: self.a_while(),
        }
    }

    fn reconfigure(&mut self) -> Fault {
        let (publish_s, sync_s) = (self.random.between(10, 120), self.random.between(5, 60));
        Fault::Reconfigure {
            node: self.node(),
            publish_s,
            sync_s,
            long_percent: 50 * u32::try_from(self.random.below(4)).expect("small"),
        }
    }
}
