//! The VOs and their rules that options stand for.
//!
//! Invariant: one option is one rule, whatever else is drawn.
//! Deliberately not here: which options are drawn (`draw`).

use super::*;

impl HistoryOption {
    /// The rule, over so many windows.
    pub(crate) fn rule(self, windows: u32) -> HistoryRule {
        match self {
            Self::Windows => HistoryRule::Windows {
                length: windows.div_ceil(64),
                count: windows.min(64),
                factor: Share::from_percent(90).expect("at most 100"),
            },
            Self::HalfLife => HistoryRule::HalfLife {
                windows: windows.div_ceil(60),
                horizon: windows,
            },
            Self::None => HistoryRule::None { horizon: windows },
            Self::RunningOnly => HistoryRule::RunningOnly,
        }
    }
}

impl ChargingOption {
    /// The rule, which weighs energy if it is one of weights.
    pub(crate) fn rule(self, weighs_energy: bool) -> ChargingRule {
        let weights = |max, spec_max| ChargingRule::Weights {
            cpu: 1_000,
            gpu: 12_345,
            mem_gib: 333,
            max,
            energy_kwh: if weighs_energy { 1_777 } else { 0 },
            spec_max,
        };
        let penalty = |gpu_weight| ChargingRule::Penalty {
            gpu: true,
            gpu_weight,
            disk: true,
            factor_max: Factor::from_millionths(4_000_000),
        };
        // Machines with GPUs are faster, and a job on them is refused.
        let spec_max = Factor::from_millionths(1_400_000);
        match self {
            Self::CpuTime => ChargingRule::CpuTime,
            Self::WeightsSum => weights(false, None),
            Self::WeightsMax => weights(true, None),
            Self::Penalty => penalty(None),
            Self::NormalisedTime => ChargingRule::NormalisedTime { spec_max },
            Self::WeightsNormalised => weights(true, Some(spec_max)),
            Self::PenaltyGpusBeside => penalty(Some(7_001)),
        }
    }
}

impl ModeOption {
    pub(crate) fn mode(self) -> UsageMode {
        match self {
            Self::Historical => UsageMode::Historical,
            Self::Active => UsageMode::Active,
            Self::Predictive => UsageMode::Predictive,
        }
    }
}

impl VoOptions {
    /// What entries say of how those below them are compared.
    fn says(&self) -> BTreeMap<String, (Option<Scope>, Option<Distance>)> {
        let (local, global) = (Some(Scope::Local), Some(Scope::Global));
        let (root, first) = match self.local_levels {
            LocalLevels::Unsaid => (None, None),
            LocalLevels::All => (local, None),
            LocalLevels::OfFirstGroup => (None, local),
            LocalLevels::AllButOfFirstGroup => (local, global),
        };
        let distance = |distance| self.distances.then_some(distance);
        let root = (root, distance(Distance::Relative));
        let first = (first, distance(MIXED));
        BTreeMap::from([("/".to_owned(), root), ("/g0".to_owned(), first)])
    }

    /// The VO of this number, whose history reaches back so many windows.
    pub(super) fn spec(&self, index: usize, windows: u32) -> VoSpec {
        let valid = match self.expires_hours {
            0 => VALIDITY,
            hours => Millis(DAY.0 + hours * 3_600_000),
        };
        let cores = if self.cores == 0 { CORES } else { self.cores };
        VoSpec {
            valid,
            delegates: self.delegates,
            thresholds: self.thresholds,
            snapshots: self.snapshots,
            members: self.members.iter().map(|site| (*site, cores)).collect(),
            gpus: self.gpus,
            mem_gib: self.mem_gib,
            shares: self.shares(),
            was: self.was(),
            since: self.since(),
            history: self.history.rule(windows),
            usage_mode: self.mode.mode(),
            limits: self.limits,
            says: self.says(),
            charging: self.charging.rule(self.weighs_energy),
            discounts: Discounts {
                preemptible: percent(self.preemptible_percent),
                ..Discounts::NONE
            },
            window: window(self.window_s),
            ..VoSpec::small(&Self::name(index), 0)
        }
    }
}
