//! Drawing options from a seed.
//!
//! Invariant: one seed draws one set of options. Runs are cut to a length that keeps a seed within
//! about a second: what costs is the batches that all members take. Deliberately not here: what a
//! number means (`options`).

use fairmesh_cluster::{Seed, Stream};

use crate::liar;

use super::{
    ChargingOption, FaultOptions, HistoryOption, LinkOptions, LoadOptions, LocalLevels,
    LocalOptions, ModeOption, Options, QuotaOptions, TimingOptions, VoOptions, WeightsOption,
    options::all_at_once,
};

/// Batches that all nodes together take in one run, about.
const BATCHES_TAKEN: u64 = 4_000;

/// Of so many Grids one has a pace of its own, and documents that expire.
const SLOW_OF: u64 = 4;

/// Of so many Grids one has histories that end within a run; one has more accounts than a slice of a table holds.
const SHORT_OF: u64 = 4;
const CROWD_OF: u64 = 8;

/// Of so many Grids marks of jobs become unreadable in one; in another one nodes and batch systems have one clock.
const RARE_OF: u64 = 16;

/// Accounts of a crowd: more than a slice of a table holds.
const CROWD: (u64, u64) = (1_030, 1_200);

/// Sites and minutes of a Grid that has a crowd, at most: every look at a node costs more there.
const CROWD_SITES_MAX: usize = 6;
const CROWD_MINUTES_MAX: u64 = 120;

/// Entries that a site recomputes in one step, at least, if there is a crowd or ticks are minutes apart: with one or
/// two it would count for days what the others publish in hours.
pub(super) const SWEEP_OF_MANY: usize = 64;

/// Longest and shortest safety phase.
const MINUTES: (u64, u64) = (60, 2 * 24 * 60);

/// The charging rules, and how many of the first of them hunts draw for a site's own jobs.
const LOCAL_RULES: usize = 3;
const RULES: [ChargingOption; 7] = [
    ChargingOption::CpuTime,
    ChargingOption::WeightsSum,
    ChargingOption::WeightsMax,
    ChargingOption::Penalty,
    ChargingOption::NormalisedTime,
    ChargingOption::WeightsNormalised,
    ChargingOption::PenaltyGpusBeside,
];

impl Options {
    /// Draws a Grid of 2 to 12 sites, some of which sweep few entries at a time, have histories that end within a run,
    /// a crowd of accounts, a pace of their own, or rare faults.
    pub fn draw(seed: Seed) -> Self {
        let sites = seed.stream("swarm sites").between(2, 12);
        let mut drawn = Self::draw_of(seed, usize::try_from(sites).expect("few"), None);
        drawn.sweep_entries = draw_sweep(&mut seed.stream("swarm sweeps"));
        drawn.local.charging = RULES[seed.stream("swarm local charging").index(RULES.len())];
        let drawn = drawn.with_own_histories(&mut seed.stream("swarm histories"));
        let mut drawn = drawn.with_crowd(&mut seed.stream("swarm crowd"));
        if seed.stream("swarm slow").below(SLOW_OF) == 0 {
            drawn = drawn.with_pace(seed);
        }
        match seed.stream("swarm rare faults").below(RARE_OF) {
            0 => drawn.with_bad_marks(),
            1 => drawn.with_one_clock(),
            _ => drawn,
        }
    }

    /// Draws a Grid of so many sites, and how long it is watched unless it is given.
    pub fn draw_of(seed: Seed, sites: usize, minutes: Option<u64>) -> Self {
        let mut random = seed.stream("swarm options");
        let mut vos = draw_vos(&mut random, sites);
        // Streams of their own, so that what is drawn here shifts none of the faults.
        let local = draw_charging(&mut seed.stream("swarm charging"), &mut vos);
        let mut delegation = seed.stream("swarm delegation");
        for vo in &mut vos {
            vo.delegates = delegation.below(2) == 1;
        }
        let mut snapshots = seed.stream("swarm snapshots");
        for vo in &mut vos {
            vo.snapshots = snapshots.below(3) == 0;
        }
        let mut thresholds = seed.stream("swarm thresholds");
        for vo in &mut vos {
            vo.thresholds = thresholds.below(3) == 0;
        }
        let timing = draw_timing(&mut random);
        let minutes = minutes.unwrap_or_else(|| draw_minutes(&mut random, &vos, timing));
        let mut coins = seed.stream("swarm faults");
        let drawn = Self {
            sites,
            minutes,
            stretch: 1,
            batch_clocks: false,
            one_clock: false,
            ends_first: seed.stream("swarm ends first").below(2) == 1,
            history_hours: 0,
            reports_per_hour: random.between(1, 20).min(2 + 2_000 / minutes.max(1)),
            repeat_permille: coin(&mut coins, 200),
            late_permille: coin(&mut coins, 100),
            running_s: coin(&mut coins, 1) * pick(&mut random, &[120, 300, 900]),
            keeps_journal: random.below(2) == 1,
            local_window_s: pick(&mut random, &[900, 3_600, 21_600]),
            local,
            sweep_entries: all_at_once(),
            build_entries: [0, all_at_once()][seed.stream("swarm works").index(2)],
            adverts: seed.stream("swarm adverts").below(2) == 1,
            degree: 0,
            timing,
            load: draw_load(&mut seed.stream("swarm load")),
            link: draw_link(&mut coins),
            faults: draw_faults(&mut coins, minutes),
            vos,
            quotas: QuotaOptions::draw(seed, minutes),
            liars: Vec::new(),
            step: None,
        };
        let drawn = drawn.with_running_only(&mut seed.stream("swarm running only"));
        let drawn = drawn.with_limits(&mut seed.stream("swarm limits"));
        let drawn = drawn.with_levels(&mut seed.stream("swarm levels"));
        let drawn = drawn.with_lines(&mut seed.stream("swarm lines"));
        let drawn = drawn.with_mounts(&mut seed.stream("swarm mounts"));
        let drawn = drawn.with_finals(&mut seed.stream("swarm finals"));
        drawn.with_capacities(&mut seed.stream("swarm capacities"))
    }
}

impl Options {
    /// With VOs and owners for whom nothing but running jobs counts: usage is kept for weeks then, which is
    /// too short where clocks are wrong by years.
    fn with_running_only(mut self, random: &mut Stream) -> Self {
        let vos = self.vos.iter_mut().map(|vo| &mut vo.history);
        for history in vos.chain([&mut self.local.history]) {
            if random.below(6) == 0 && self.faults.clock_years == 0 {
                *history = HistoryOption::RunningOnly;
            }
        }
        self
    }

    /// With VOs and owners who say how much an entry may have at most.
    fn with_limits(mut self, random: &mut Stream) -> Self {
        let vos = self.vos.iter_mut().map(|vo| &mut vo.limits);
        for limits in vos.chain([&mut self.local.limits]) {
            *limits = random.below(3) == 0;
        }
        self
    }

    /// With VOs and owners who say by whose usage, and how, the entries of a level are compared.
    fn with_levels(mut self, random: &mut Stream) -> Self {
        const LOCAL: [LocalLevels; 6] = [
            LocalLevels::Unsaid,
            LocalLevels::Unsaid,
            LocalLevels::Unsaid,
            LocalLevels::All,
            LocalLevels::OfFirstGroup,
            LocalLevels::AllButOfFirstGroup,
        ];
        for vo in &mut self.vos {
            vo.local_levels = LOCAL[random.index(LOCAL.len())];
            vo.distances = random.below(3) == 0;
        }
        self.local.together = random.below(3) == 0;
        self.local.mixes = random.below(3) == 0;
        self
    }

    /// With VOs and owners whose lines say more than equal shares of all accounts.
    fn with_lines(mut self, random: &mut Stream) -> Self {
        const WEIGHTS: [WeightsOption; 3] = [
            WeightsOption::Equal,
            WeightsOption::Numbers,
            WeightsOption::Zeros,
        ];
        for vo in &mut self.vos {
            vo.weights = WEIGHTS[random.index(WEIGHTS.len())];
            vo.others = random.below(3) == 0;
            vo.unlisted = random.below(3) == 0;
            vo.renamed = random.below(4) == 0;
            vo.periods = random.below(4) == 0;
        }
        let local = &mut self.local;
        local.weighs = random.below(3) == 0;
        local.divides = random.below(2) == 0;
        local.others = random.below(3) == 0;
        local.renamed = random.below(4) == 0;
        local.periods = random.below(4) == 0;
        local.own_last = random.below(6) == 0;
        self
    }

    /// With VOs whose policies divide a part of another's, where they are let.
    fn with_mounts(mut self, random: &mut Stream) -> Self {
        for vo in &mut self.vos {
            vo.mounts_next = random.below(2) == 0;
            vo.may_be_read = random.below(3) > 0;
        }
        self
    }

    /// With final records that contradict their instalments, jobs that report energy, and rules that weigh it.
    fn with_finals(mut self, random: &mut Stream) -> Self {
        self.load.contradict_permille = coin(random, 500);
        self.load.energy_permille = coin(random, 500);
        let vos = self.vos.iter_mut().map(|vo| &mut vo.weighs_energy);
        for weighs_energy in vos.chain([&mut self.local.weighs_energy]) {
            *weighs_energy = random.below(2) == 0;
        }
        self
    }

    /// With charters that declare less than what sites report, of which any job takes a part. Jobs that ask for credit
    /// are not to be refused for it.
    fn with_capacities(mut self, random: &mut Stream) -> Self {
        for vo in &mut self.vos {
            let cores = [64, 64, 256][random.index(3)];
            vo.gpus = [None, Some(4), Some(16)][random.index(3)];
            vo.mem_gib = [None, Some(512), Some(4_096)][random.index(3)];
            if random.below(2) == 0 && self.quotas.is_none() {
                vo.cores = cores;
            }
        }
        if random.below(4) == 0 {
            // Then all that a site describes is what queues cost, as long as they cost anything.
            self.local.machine_classes = 0;
        }
        self
    }

    /// With VOs and owners whose histories end within a run, or within a month of it, each after a time of its own.
    /// What a wrong clock takes for old would count no more, and marks of jobs that hold credit go with the history.
    fn with_own_histories(mut self, random: &mut Stream) -> Self {
        const HOURS: [u64; 6] = [0, 0, 1, 6, 24, 30 * 24];
        if random.below(SHORT_OF) > 0 || self.quotas.is_some() {
            return self;
        }
        let vos = self.vos.iter_mut().map(|vo| &mut vo.history_hours);
        for hours in vos.chain([&mut self.local.history_hours]) {
            *hours = HOURS[random.index(HOURS.len())];
        }
        let faults = &mut self.faults;
        (faults.clock_jumps, faults.clock_years, faults.clock_drifts) = (0, 0, 0);
        self
    }

    /// With jobs of more accounts, in one span, than a slice of a table holds: few sites, for an hour or two.
    fn with_crowd(mut self, random: &mut Stream) -> Self {
        let crowd = random.between(CROWD.0, CROWD.1);
        if random.below(CROWD_OF) == 0 && self.sites <= CROWD_SITES_MAX {
            self.load.crowd = crowd;
            self.minutes = self.minutes.min(CROWD_MINUTES_MAX);
            self.sweep_entries = self.sweep_entries.max(SWEEP_OF_MANY);
        }
        self
    }

    /// With histories that are longer than anything lasts here.
    pub(super) fn with_long_histories(mut self) -> Self {
        let vos = self.vos.iter_mut().map(|vo| &mut vo.history);
        for history in vos.chain([&mut self.local.history]) {
            if *history == HistoryOption::RunningOnly {
                *history = HistoryOption::None;
            }
        }
        self
    }

    /// With journals, and crashes between any two effects after which the store or a part of it is gone.
    #[must_use]
    pub fn with_crashes(mut self) -> Self {
        self.keeps_journal = true;
        let faults = &mut self.faults;
        faults.crashes_within += 24;
        faults.wipes += 4;
        faults.backups_restored += 4;
        faults.bit_flips += 4;
        faults.bad_marks += 2;
        faults.stores_replaced += 2;
        faults.graceful_stops += 2;
        self
    }

    /// With clocks of nodes that are wrong for a while, of batch systems that are wrong always, and stores
    /// that are lost while the file beside them stays.
    #[must_use]
    pub fn with_wrong_clocks(mut self) -> Self {
        self.batch_clocks = true;
        self.faults.clock_years += 8;
        self.faults.wipes += 8;
        self.with_long_histories()
    }

    /// With other lies than those that are drawn.
    pub fn with_lies(mut self, seed: Seed, choice: liar::Choice) -> Self {
        self.liars = liar::draw(seed, self.sites, choice);
        if !self.liars.is_empty() {
            // What liars claim of the past counts, so that it can be seen that they are named for it.
            self.vos.iter_mut().for_each(|vo| vo.history_hours = 0);
        }
        self
    }
}

fn pick(random: &mut Stream, of: &[u64]) -> u64 {
    of[random.index(of.len())]
}

/// Nothing, or something up to `most`, by a coin.
fn coin(random: &mut Stream, most: u64) -> u64 {
    let drawn = random.between(1, most);
    if random.below(2) == 1 { drawn } else { 0 }
}

fn draw_vos(random: &mut Stream, sites: usize) -> Vec<VoOptions> {
    let count = random.between(1, 3);
    (0..count)
        .map(|index| draw_vo(random, sites, index))
        .collect()
}

fn draw_vo(random: &mut Stream, sites: usize, index: u64) -> VoOptions {
    // The first VO has all sites; others may have fewer, but at least two.
    let mut members: Vec<usize> = (0..sites).collect();
    while index > 0 && members.len() > 2 && random.below(3) > 0 {
        members.remove(random.index(members.len()));
    }
    VoOptions {
        members,
        history_hours: 0,
        cores: 0,
        gpus: None,
        mem_gib: None,
        groups: 1 + random.index(3),
        users: 1 + random.index(4),
        window_s: pick(random, &[900, 3_600, 3_600, 86_400]),
        history: [
            HistoryOption::Windows,
            HistoryOption::HalfLife,
            HistoryOption::None,
        ][random.index(3)],
        mode: [
            ModeOption::Historical,
            ModeOption::Active,
            ModeOption::Predictive,
        ][random.index(3)],
        delegates: false,
        snapshots: false,
        mounts_next: false,
        may_be_read: false,
        limits: false,
        weights: WeightsOption::Equal,
        others: false,
        unlisted: false,
        renamed: false,
        periods: false,
        local_levels: LocalLevels::Unsaid,
        distances: false,
        charging: ChargingOption::CpuTime,
        weighs_energy: false,
        expires_hours: 0,
        thresholds: false,
        preemptible_percent: 100,
    }
}

fn draw_charging(random: &mut Stream, vos: &mut [VoOptions]) -> LocalOptions {
    for vo in vos {
        vo.charging = RULES[random.index(RULES.len())];
        vo.preemptible_percent = [100, 100, 50, 33][random.index(4)];
    }
    let histories = [
        HistoryOption::None,
        HistoryOption::Windows,
        HistoryOption::HalfLife,
    ];
    LocalOptions {
        history: histories[random.index(3)],
        charging: RULES[random.index(LOCAL_RULES)],
        machine_classes: 1 + random.index(3),
        ..LocalOptions::default()
    }
}

/// Entries that are recomputed in one step: all, or few.
fn draw_sweep(random: &mut Stream) -> usize {
    [all_at_once(), all_at_once(), 1, 2][random.index(4)]
}

fn draw_load(random: &mut Stream) -> LoadOptions {
    LoadOptions {
        gpu_permille: coin(random, 200),
        memory_permille: coin(random, 200),
        nodes_permille: coin(random, 200),
        discount_permille: coin(random, 200),
        too_large_permille: coin(random, 30),
        requeue_permille: coin(random, 100),
        instalment_permille: coin(random, 200),
        disorder_permille: coin(random, 300),
        cancel_permille: coin(random, 100),
        suspend_permille: coin(random, 200),
        identity_changes: coin(random, 6),
        correct_permille: coin(random, 200),
        ..LoadOptions::default()
    }
}

fn draw_timing(random: &mut Stream) -> TimingOptions {
    let publish_s = random.between(10, 120);
    let sync_s = random.between(5, 60);
    TimingOptions {
        publish_s,
        heartbeat_s: publish_s * random.between(2, 6),
        sync_s,
        request_timeout_s: random.between(5, 20),
        tick_ms: pick(random, &[1_000, 2_000, 5_000]),
    }
}

fn draw_minutes(random: &mut Stream, vos: &[VoOptions], timing: TimingOptions) -> u64 {
    let taken_at_once: u64 = vos
        .iter()
        .map(|vo| (vo.members.len() * vo.members.len()) as u64)
        .sum();
    // Between a heartbeat and a publication every time.
    let interval_s = (timing.publish_s + timing.heartbeat_s) / 2;
    let longest = BATCHES_TAKEN * interval_s / 60 / taken_at_once.max(1);
    let (least, most) = MINUTES;
    random.between(least, longest.clamp(least, most))
}

fn draw_link(coins: &mut Stream) -> LinkOptions {
    LinkOptions {
        latency_ms: coins.between(1, 100),
        jitter_ms: coin(coins, 500),
        loss_permille: coin(coins, 300),
        duplicate_permille: coin(coins, 200),
        reorder_permille: coin(coins, 200),
        replay_permille: coin(coins, 30),
        garbage_permille: coin(coins, 20),
    }
}

fn draw_faults(coins: &mut Stream, minutes: u64) -> FaultOptions {
    let hours = (minutes / 60).clamp(1, 48);
    let mut some = |most: u64| coin(coins, (most * hours / 12).max(1));
    FaultOptions {
        partitions: some(8),
        islands: some(8),
        bridges: some(4),
        one_way_cuts: some(6),
        clogged_links: some(6),
        crashes: some(12),
        crashes_within: some(16),
        graceful_stops: some(6),
        wipes: some(3),
        wipes_with_side: some(3),
        backups_restored: some(4),
        stores_replaced: 0,
        bit_flips: some(4),
        bad_marks: 0,
        full_disks: some(4),
        clock_jumps: some(6),
        clock_years: some(2),
        clock_drifts: some(6),
        garbage_documents: some(20),
        policies: some(6),
        charters: some(4),
        removals: some(2),
        reconfigurations: some(4),
        departures: some(3),
        descriptions: some(4),
        unread: some(3),
    }
}
