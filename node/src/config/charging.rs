//! `[charging]` and `[[machine]]`: what jobs cost at a site, and which jobs are charged; and the
//! rule in a charter.
//!
//! Invariant: the price list that comes out is valid and can be signed as it is; factors are read
//! from their digits, never through a float. Deliberately not here: charges (`fairshare`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{ChargingRule, Discounts, Factor, MachineClass, PriceList, Share};
use fairmesh_records::{ChargeRule, JobState, WallRule};
use fairmesh_site::{Charging, Pattern};
use serde::Deserialize;
use toml::Spanned;

mod effect;

pub(super) use effect::without_effect;

use super::quantity::{RawFactor, RawPercent};
use super::text::{FileError, Source};

/// A rule of charging as it is written: `"cpu-time"`, `{ normalised-time = … }`, `{ weights = … }` or
/// `{ penalty = … }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawRule {
    /// Cores × wall-clock.
    CpuTime,
    /// Cores × wall-clock × SPEC.
    NormalisedTime {
        /// The most that SPEC may be.
        spec_max: RawFactor,
    },
    /// Weighted resources, in thousandths of a core.
    Weights {
        /// Of one core.
        cpu: u32,
        /// Of one GPU.
        gpu: u32,
        /// Of one GiB.
        mem_gib: u32,
        /// The largest term instead of the sum.
        #[serde(default)]
        max: bool,
        /// Of one kWh, in thousandths of a core-hour, beside the rest.
        #[serde(default)]
        energy_kwh: u32,
        /// × SPEC, and the most that it may be.
        spec_max: Option<RawFactor>,
    },
    /// The part of a machine that was asked for.
    Penalty {
        /// Whether GPUs count.
        gpu: Option<bool>,
        /// What a GPU is charged beside the machine, in thousandths of a core.
        gpu_weight: Option<u32>,
        /// Whether scratch disk counts.
        disk: Option<bool>,
        /// The most that SPEC × queue cost may come to.
        factor_max: RawFactor,
    },
}

/// Discounts as they are written, in percent of the full charge.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDiscounts {
    /// Of preemptible and backfilled use.
    pub preemptible: Option<RawPercent>,
    /// Of idle machines.
    pub idle: Option<RawPercent>,
}

/// `[charging]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCharging {
    local: Option<RawRule>,
    discounts: Option<RawDiscounts>,
    /// Ended states that are charged.
    states: Option<Vec<Spanned<String>>>,
    wall: Option<WallRule>,
    cpus_unless_stated: Option<u32>,
    /// Queues and qualities of service.
    #[serde(default)]
    preemptible: Vec<Spanned<String>>,
    #[serde(default)]
    idle: Vec<Spanned<String>>,
    /// Factors of queues. Slurm calls its queues partitions: `partitions` is the same table.
    #[serde(default)]
    queues: BTreeMap<String, RawFactor>,
    #[serde(default)]
    partitions: BTreeMap<String, RawFactor>,
    /// Factors of qualities of service.
    #[serde(default)]
    qos: BTreeMap<String, RawFactor>,
}

/// `[[machine]]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMachine {
    class: Spanned<String>,
    count: Spanned<u32>,
    cpus: Spanned<u32>,
    memory: Spanned<String>,
    gpus: Option<u32>,
    disk: Option<Spanned<String>>,
    spec: Option<RawFactor>,
    #[serde(default)]
    properties: BTreeSet<String>,
    #[serde(default)]
    queues: BTreeSet<String>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
}

impl RawRule {
    /// The rule. `key` is where it stands.
    pub fn rule(&self, source: Source<'_>, key: &str) -> Result<ChargingRule, FileError> {
        let limit = |name: &str, raw| positive(source, &format!("{key}.{name}"), raw);
        let rule = match self {
            Self::CpuTime => ChargingRule::CpuTime,
            Self::NormalisedTime { spec_max } => ChargingRule::NormalisedTime {
                spec_max: limit("normalised-time.spec_max", spec_max)?,
            },
            Self::Weights {
                cpu,
                gpu,
                mem_gib,
                max,
                energy_kwh,
                spec_max,
            } => ChargingRule::Weights {
                cpu: *cpu,
                gpu: *gpu,
                mem_gib: *mem_gib,
                max: *max,
                energy_kwh: *energy_kwh,
                spec_max: match spec_max {
                    Some(spec_max) => Some(limit("weights.spec_max", spec_max)?),
                    None => None,
                },
            },
            Self::Penalty {
                gpu,
                gpu_weight,
                disk,
                factor_max,
            } => ChargingRule::Penalty {
                gpu: gpu.unwrap_or(true),
                gpu_weight: *gpu_weight,
                disk: disk.unwrap_or(true),
                factor_max: limit("penalty.factor_max", factor_max)?,
            },
        };
        let checked = rule.validate();
        checked.map_err(|problem| source.error(None, Some(key), problem))?;
        Ok(rule)
    }

    /// The text of a rule, as a draft writes it.
    pub fn text(rule: &ChargingRule) -> String {
        match rule {
            ChargingRule::CpuTime => "\"cpu-time\"".to_owned(),
            ChargingRule::NormalisedTime { spec_max } => {
                format!("{{ normalised-time = {{ spec_max = {spec_max} }} }}")
            }
            ChargingRule::Weights {
                cpu,
                gpu,
                mem_gib,
                max,
                energy_kwh,
                spec_max,
            } => {
                let mut weights =
                    format!("cpu = {cpu}, gpu = {gpu}, mem_gib = {mem_gib}, max = {max}");
                if *energy_kwh > 0 {
                    weights += &format!(", energy_kwh = {energy_kwh}");
                }
                if let Some(spec_max) = spec_max {
                    weights += &format!(", spec_max = {spec_max}");
                }
                format!("{{ weights = {{ {weights} }} }}")
            }
            ChargingRule::Penalty {
                gpu,
                gpu_weight,
                disk,
                factor_max,
            } => {
                let weight = gpu_weight.map_or(String::new(), |of| format!("gpu_weight = {of}, "));
                let fields =
                    format!("gpu = {gpu}, {weight}disk = {disk}, factor_max = {factor_max}");
                format!("{{ penalty = {{ {fields} }} }}")
            }
        }
    }
}

impl RawDiscounts {
    /// The discounts. `key` is where they stand.
    pub fn discounts(&self, source: Source<'_>, key: &str) -> Result<Discounts, FileError> {
        let share = |name: &str, given: &Option<RawPercent>| {
            given.as_ref().map_or(Ok(Share::WHOLE), |given| {
                source.percent(&format!("{key}.{name}"), given)
            })
        };
        Ok(Discounts {
            preemptible: share("preemptible", &self.preemptible)?,
            idle: share("idle", &self.idle)?,
        })
    }
}

/// What jobs cost, from both tables.
pub(super) fn charging(
    source: Source<'_>,
    raw: &RawCharging,
    machines: &[RawMachine],
) -> Result<Charging, FileError> {
    let mut prices = PriceList::default();
    let (mut hosts, mut texts) = (Vec::new(), Vec::new());
    read_factors(source, raw, &mut prices)?;
    for machine in machines {
        let name = machine.class.get_ref().clone();
        let class = class(source, machine)?;
        if prices.machines.insert(name.clone(), class).is_some() {
            let problem = format!("the class `{name}` is declared twice");
            return Err(source.wrong("machine.class", &machine.class, problem));
        }
        valid(source, &prices, &machine.class, "machine.class")?;
        for host in &machine.hosts {
            hosts.push((pattern(source, host)?, name.clone()));
            texts.push((host.get_ref().clone(), name.clone()));
            let checked = prices.validate_hosts(&texts);
            checked.map_err(|problem| source.wrong("machine.hosts", host, problem))?;
        }
    }
    let local_rule = raw.local.as_ref();
    let discounts = raw.discounts.as_ref();
    Ok(Charging {
        local_rule: local_rule.map_or(Ok(ChargingRule::default()), |rule| {
            rule.rule(source, "charging.local")
        })?,
        local_discounts: discounts.map_or(Ok(Discounts::NONE), |raw| {
            raw.discounts(source, "charging.discounts")
        })?,
        prices: Arc::new(prices),
        hosts,
    })
}

/// The factors of queues and of qualities of service.
fn read_factors(
    source: Source<'_>,
    raw: &RawCharging,
    prices: &mut PriceList,
) -> Result<(), FileError> {
    type Factors = BTreeMap<String, Factor>;
    let of_queues: fn(&mut PriceList) -> &mut Factors = |prices| &mut prices.queues;
    let of_qos: fn(&mut PriceList) -> &mut Factors = |prices| &mut prices.qos;
    let tables = [
        ("queues", &raw.queues, of_queues),
        ("partitions", &raw.partitions, of_queues),
        ("qos", &raw.qos, of_qos),
    ];
    for (table, rows, of) in tables {
        for (name, given) in rows {
            let key = format!("charging.{table}.{name}");
            let factor = source.factor(&key, given)?;
            if of(prices).insert(name.clone(), factor).is_some() {
                let problem = "[charging.queues] has this name, too, and the two tables are one";
                let error = source.wrong(&key, given, problem);
                return Err(error.with_help("keep one of the two lines"));
            }
            valid(source, prices, given, &key)?;
        }
    }
    Ok(())
}

/// Which jobs are charged, and for how long.
pub(super) fn charge_rule(source: Source<'_>, raw: &RawCharging) -> Result<ChargeRule, FileError> {
    let default = ChargeRule::default();
    let states = match &raw.states {
        None => default.states,
        Some(states) => {
            let ended = states.iter().map(|state| ended_state(source, state));
            // Whoever runs is charged in instalments; a list of ends says nothing of them.
            let running = JobState::all().filter(|state| state.is_running());
            ended.chain(running.map(Ok)).collect::<Result<_, _>>()?
        }
    };
    let words = |list: &[Spanned<String>]| list.iter().map(|word| word.get_ref().clone()).collect();
    Ok(ChargeRule {
        states,
        wall: raw.wall.unwrap_or_default(),
        cpus_unless_stated: raw.cpus_unless_stated,
        preemptible: words(&raw.preemptible),
        idle: words(&raw.idle),
    })
}

fn ended_state(source: Source<'_>, text: &Spanned<String>) -> Result<JobState, FileError> {
    let state = JobState::all().find(|state| state.name() == text.get_ref());
    state.filter(|state| state.has_ended()).ok_or_else(|| {
        let problem = format!("`{}` is no state in which a job ends", text.get_ref());
        let ends = JobState::all().filter(|state| state.has_ended());
        let names: Vec<_> = ends.map(JobState::name).collect();
        source
            .wrong("charging.states", text, problem)
            .with_help(format!("there are {}", names.join(", ")))
    })
}

fn class(source: Source<'_>, raw: &RawMachine) -> Result<MachineClass, FileError> {
    let above_0 = |key: &str, given: &Spanned<u32>| match *given.get_ref() {
        0 => Err(source.wrong(key, given, "must be at least 1")),
        amount => Ok(amount),
    };
    let spec = raw.spec.as_ref();
    let disk = raw.disk.as_ref();
    Ok(MachineClass {
        count: above_0("machine.count", &raw.count)?,
        cpus: above_0("machine.cpus", &raw.cpus)?,
        mem_mib: source.mebibytes("machine.memory", &raw.memory)?,
        gpus: raw.gpus.unwrap_or(0),
        disk_mib: disk.map_or(Ok(0), |disk| source.mebibytes("machine.disk", disk))?,
        spec: spec.map_or(Ok(Factor::ONE), |spec| {
            positive(source, "machine.spec", spec)
        })?,
        properties: raw.properties.clone(),
        queues: raw.queues.clone(),
    })
}

fn positive(source: Source<'_>, key: &str, raw: &RawFactor) -> Result<Factor, FileError> {
    match source.factor(key, raw)? {
        factor if factor.millionths() == 0 => Err(source.wrong(key, raw, "must be above 0")),
        factor => Ok(factor),
    }
}

fn pattern(source: Source<'_>, host: &Spanned<String>) -> Result<Pattern, FileError> {
    let text = host.get_ref();
    let inner = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty() || inner.contains(['*', '[', '?', ',']) {
        let problem = format!("`{text}` is not a machine's name or the beginning of names");
        let help = "write whole names, or beginnings followed by `*`: [\"fat*\", \"login1\"]";
        let error = source.wrong("machine.hosts", host, problem);
        return Err(error.with_help(help));
    }
    Ok(Pattern::parse(text))
}

/// What a price list may not hold is shown at the line that added it.
fn valid<T>(
    source: Source<'_>,
    prices: &PriceList,
    added: &Spanned<T>,
    key: &str,
) -> Result<(), FileError> {
    prices
        .validate()
        .map_err(|problem| source.wrong(key, added, problem))
}

#[cfg(test)]
mod tests;
