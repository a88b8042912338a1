//! The rules that a charter fixes for all of a VO's sites: how old usage counts, which usage
//! counts, and what a job is charged.

use serde::{Deserialize, Serialize};

use crate::factor::Factor;
use crate::record::Terms;
use crate::units::Share;

/// How usage is weighed by its age. Raw amounts are kept, so a VO can change its rule without
/// losing history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryRule {
    /// As in Maui and FSGrid: time is cut into `count` intervals of `length` windows, the newest
    /// weighs 1, each older one `factor` of the one before; beyond them usage weighs nothing.
    Windows {
        /// Windows in one interval, at least 1.
        length: u32,
        /// Intervals that count, at least 1.
        count: u32,
        /// Weight of an interval relative to the next newer one.
        factor: Share,
    },
    /// The weight halves every `windows` windows and is nothing after `horizon` windows.
    HalfLife {
        /// Windows after which usage weighs half, at least 1.
        windows: u32,
        /// Windows after which it is forgotten, at least 1.
        horizon: u32,
    },
    /// All usage of the last `horizon` windows weighs the same.
    None {
        /// Windows after which usage is forgotten, at least 1.
        horizon: u32,
    },
    /// Only running jobs count: the history-less mode of Gardfjäll's thesis (Umeå University).
    RunningOnly,
}

impl Default for HistoryRule {
    /// A half-life of seven days over ninety days of hourly windows, Slurm's default half-life.
    fn default() -> Self {
        Self::HalfLife {
            windows: 7 * 24,
            horizon: 90 * 24,
        }
    }
}

/// Which usage makes priorities: the three modes of FSGrid's evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageMode {
    /// Jobs that have ended.
    Historical,
    /// And what running jobs have used so far.
    #[default]
    Active,
    /// And what running jobs are still expected to use.
    Predictive,
}

/// What a job is charged. Weights are in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargingRule {
    /// Cores held × wall-clock.
    #[default]
    CpuTime,
    /// Cores held × wall-clock × SPEC of the machine that ran the job ([`super::MachineClass::spec`]).
    NormalisedTime {
        /// The most that SPEC may be, for the reason that a penalty has a `factor_max`.
        spec_max: Factor,
    },
    /// Weighted resources × wall-clock, in the manner of Slurm's TRES billing weights.
    Weights {
        /// Rate of one core, in CPU equivalents.
        cpu: u32,
        /// Rate of one GPU, in CPU equivalents.
        gpu: u32,
        /// Of one GiB of memory.
        mem_gib: u32,
        /// Whether the largest term counts alone, instead of the sum of all.
        max: bool,
        /// Of one kWh that the job used, in thousandths of a core-hour, beside the rest.
        #[serde(default, skip_serializing_if = "is_zero")]
        energy_kwh: u32,
        /// Where it is said: × SPEC of the machine that ran the job, which may be so much at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spec_max: Option<Factor>,
    },
    /// MetaCentrum's penalty: of the machine class that is cheapest for what the job asked for, the
    /// part of a machine that it asked for (of CPUs, memory …, whichever is largest) in CPUs, ×
    /// wall-clock × SPEC of the machine that ran it × cost of its queue. Classes and costs are each
    /// site's own ([`super::PriceList`]).
    Penalty {
        /// Whether GPUs count, of jobs that ask for them.
        gpu: bool,
        /// What one GPU is charged beside the rest of the machine, which others can still use when the
        /// GPUs are taken. Where it is not said, the part of a machine's GPUs is a part of the machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu_weight: Option<u32>,
        /// Whether scratch disk counts, of jobs that ask for it.
        disk: bool,
        /// The most that SPEC × queue cost may come to. Without it a site could claim any charge
        /// for its cores; a dearer job is refused where it ran.
        factor_max: Factor,
    },
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl ChargingRule {
    /// Says what is wrong with the rule, if anything.
    ///
    /// # Errors
    /// A limit of 0, which would charge nobody; a weight of GPUs that do not count.
    pub fn validate(&self) -> Result<(), String> {
        let none = Factor::from_millionths(0);
        match self {
            Self::Penalty { factor_max, .. } if *factor_max == none => {
                Err("charging: factor_max is 0".to_owned())
            }
            Self::Penalty {
                gpu: false,
                gpu_weight: Some(_),
                ..
            } => Err("charging: gpu_weight without gpu = true".to_owned()),
            _ if self.spec_max() == Some(none) => Err("charging: spec_max is 0".to_owned()),
            _ => Ok(()),
        }
    }

    /// The most that SPEC may be where the rule multiplies by it alone.
    pub const fn spec_max(&self) -> Option<Factor> {
        match self {
            Self::NormalisedTime { spec_max } => Some(*spec_max),
            Self::Weights { spec_max, .. } => *spec_max,
            Self::CpuTime | Self::Penalty { .. } => None,
        }
    }

    /// Whether it matters on which machines a job ran, or could have.
    pub const fn looks_at_machines(&self) -> bool {
        matches!(self, Self::Penalty { .. }) || self.spec_max().is_some()
    }
}

/// What use on other than the usual terms is charged, of its full charge. Off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discounts {
    /// Preemptible or backfilled use.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub preemptible: Share,
    /// Use of idle machines.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub idle: Share,
}

impl Discounts {
    /// Everything is charged in full.
    pub const NONE: Self = Self {
        preemptible: Share::WHOLE,
        idle: Share::WHOLE,
    };

    /// What use on `terms` is charged, of its full charge.
    pub const fn of(&self, terms: Terms) -> Share {
        match terms {
            Terms::Regular => Share::WHOLE,
            Terms::Preemptible => self.preemptible,
            Terms::Idle => self.idle,
        }
    }

    /// Whether everything is charged in full.
    pub fn are_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl Default for Discounts {
    fn default() -> Self {
        Self::NONE
    }
}

const fn whole() -> Share {
    Share::WHOLE
}

fn is_whole(share: &Share) -> bool {
    *share == Share::WHOLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbor;

    /// What charters say that were signed before there were penalties, discounts and limits of SPEC.
    #[test]
    fn rules_of_old_charters_keep_their_bytes() {
        let cpu_time = cbor::to_vec(&ChargingRule::CpuTime);
        assert_eq!(cpu_time, b"\x68cpu_time");
        let weights = ChargingRule::Weights {
            cpu: 1,
            gpu: 2,
            mem_gib: 3,
            max: true,
            energy_kwh: 0,
            spec_max: None,
        };
        let old = b"\xa1\x67weights\xa4\x63cpu\x01\x63gpu\x02\x63max\xf5\x67mem_gib\x03";
        assert_eq!(cbor::to_vec(&weights), old);
        assert_eq!(cbor::from_slice::<ChargingRule>(old, 64), Ok(weights));
        let penalty = ChargingRule::Penalty {
            gpu: true,
            gpu_weight: None,
            disk: false,
            factor_max: Factor::from_millionths(2),
        };
        let old = b"\xa1\x67penalty\xa3\x63gpu\xf5\x64disk\xf4\x6afactor_max\x02";
        assert_eq!(cbor::to_vec(&penalty), old);
        assert_eq!(cbor::from_slice::<ChargingRule>(old, 64), Ok(penalty));
    }

    #[test]
    fn what_is_new_in_a_rule_is_written_and_read() {
        let spec_max = Factor::from_millionths(1_500_000);
        let weights = ChargingRule::Weights {
            cpu: 1,
            gpu: 2,
            mem_gib: 3,
            max: true,
            energy_kwh: 0,
            spec_max: Some(spec_max),
        };
        let penalty = ChargingRule::Penalty {
            gpu: true,
            gpu_weight: Some(4_000),
            disk: true,
            factor_max: spec_max,
        };
        for rule in [ChargingRule::NormalisedTime { spec_max }, weights, penalty] {
            let bytes = cbor::to_vec(&rule);
            assert_eq!(cbor::from_slice::<ChargingRule>(&bytes, 128), Ok(rule));
            assert!(rule.looks_at_machines());
        }
    }

    #[test]
    fn what_is_charged_in_full_is_not_written() {
        assert_eq!(cbor::to_vec(&Discounts::NONE), b"\xa0");
        let half = Discounts {
            idle: Share::from_percent(50).expect("at most 100"),
            ..Discounts::NONE
        };
        let bytes = cbor::to_vec(&half);
        assert_eq!(cbor::from_slice::<Discounts>(&bytes, 64), Ok(half));
        assert_eq!(half.of(Terms::Preemptible), Share::WHOLE);
        assert!(half.of(Terms::Idle) < Share::WHOLE);
    }

    #[test]
    fn a_rule_that_charges_nobody_or_contradicts_itself_is_refused() {
        let factor = Factor::from_millionths;
        let rule = |gpu, gpu_weight, millionths| ChargingRule::Penalty {
            gpu,
            gpu_weight,
            disk: true,
            factor_max: factor(millionths),
        };
        let normalised = |millionths| ChargingRule::NormalisedTime {
            spec_max: factor(millionths),
        };
        assert!(rule(true, None, 0).validate().is_err());
        assert!(rule(true, Some(1), 1).validate().is_ok());
        assert!(rule(false, None, 1).validate().is_ok());
        assert!(rule(false, Some(1), 1).validate().is_err());
        assert!(normalised(0).validate().is_err());
        assert!(normalised(1).validate().is_ok());
    }
}
