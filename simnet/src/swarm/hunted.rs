//! What Grids of hunts have beside what a campaign draws.
//!
//! Some faults show only where histories are shorter than what jobs go back, where little but what runs counts, where
//! batch systems share the wrong clocks of their nodes, or where stores cannot read what jobs were charged. A campaign
//! draws the last two in a few of its Grids.
//!
//! Invariant: what is drawn here shifts nothing of what is drawn elsewhere. Deliberately not here: which
//! seeds of a hunt have what (`mutants::hunt`).

use fairmesh_cluster::Seed;

use super::{HistoryOption, ModeOption, Options};

/// Hours that short histories reach back: jobs go back eight.
const HOURS: (u64, u64) = (1, 6);

/// Seconds between two lists of running jobs where there were none.
const RUNNING_S: u64 = 120;

/// Jobs of a thousand that are suspended or cancelled at a list, at most.
const UNSETTLED_PERMILLE: u64 = 50;

/// Messages of a thousand that are lost, at least, on bad links.
const LOSS_PERMILLE: u64 = 300;

/// Longest publish and sync intervals, seconds, and how many publish intervals a heartbeat then is, where
/// heads are to be rare: less than the time after which a site counts as silent.
const PUBLISH_S: u64 = 20;
const HEARTBEAT: u64 = 20;

/// Reports of a thousand that repeat an earlier one, and how often marks become unreadable, where they do.
const REPEAT_PERMILLE: u64 = 500;
const BAD_MARKS: u64 = 16;

/// Crashes beside those that are drawn.
const CRASHES: u64 = 16;

impl Options {
    /// With histories shorter than what jobs go back. What is days late would not count any more, nor what
    /// a clock a day ahead takes for that, so there is neither.
    #[must_use]
    pub fn with_short_histories(mut self, seed: Seed) -> Self {
        let mut random = seed.stream("swarm short histories");
        self.history_hours = random.between(HOURS.0, HOURS.1);
        self.late_permille = 0;
        self.batch_clocks = false;
        let faults = &mut self.faults;
        (faults.clock_jumps, faults.clock_years, faults.clock_drifts) = (0, 0, 0);
        self.with_long_histories()
    }

    /// With lists of what runs, reports of ends that come before the next one, and VOs and owners for whom
    /// nothing else counts; those VOs do not ask for predictions beside it.
    #[must_use]
    pub fn with_what_runs(mut self, seed: Seed) -> Self {
        let mut random = seed.stream("swarm what runs");
        if self.running_s == 0 {
            self.running_s = RUNNING_S;
        }
        self.ends_first = true;
        self.faults.clock_years = 0;
        let load = &mut self.load;
        load.suspend_permille = load.suspend_permille.min(UNSETTLED_PERMILLE);
        load.cancel_permille = load.cancel_permille.min(UNSETTLED_PERMILLE);
        for vo in &mut self.vos {
            if random.below(2) == 0 {
                vo.history = HistoryOption::RunningOnly;
                vo.mode = [ModeOption::Historical, ModeOption::Active][random.index(2)];
            }
        }
        if random.below(3) == 0 {
            self.local.history = HistoryOption::RunningOnly;
        }
        self
    }

    /// With stores whose marks of jobs become unreadable, while feeds report many jobs again; a crash would be the
    /// end of such a store, so there are few.
    #[must_use]
    pub fn with_bad_marks(mut self) -> Self {
        self.repeat_permille = REPEAT_PERMILLE;
        self.faults.bad_marks += BAD_MARKS;
        self.faults.crashes_within = 0;
        self
    }

    /// With batch systems that go by the clocks of their nodes, right or wrong.
    #[must_use]
    pub fn with_one_clock(mut self) -> Self {
        self.batch_clocks = false;
        self.one_clock = true;
        self
    }

    /// With what makes this lie felt, where all liars of a hunt tell it: statements that contradict each other
    /// must reach some and not others; and what is held back must be a head that is not pushed as what it
    /// changes, because its site was just started, and that no other follows soon.
    #[must_use]
    pub fn with_load_of(mut self, lie: &str) -> Self {
        match lie {
            "contradiction" => {
                self.link.loss_permille = self.link.loss_permille.max(LOSS_PERMILLE);
            }
            "withheld" => {
                let timing = &mut self.timing;
                timing.publish_s = timing.publish_s.min(PUBLISH_S);
                timing.heartbeat_s = timing.publish_s * HEARTBEAT;
                timing.sync_s = timing.sync_s.min(PUBLISH_S);
                self.faults.crashes += CRASHES;
            }
            _ => {}
        }
        self
    }
}
