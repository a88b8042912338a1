//! What counts of the usage that a site has published: no more than it can have run.
//!
//! Invariant: where the charges of a site in a span come to more than what its charter lets it charge in
//! that time, and a sixteenth, each account's net charge is cut to `charge × limit ÷ sum`, rounded down; a site
//! that the charter does not list charges nothing, but for the one that answers. Only charges are cut:
//! answers are made of nothing else.

use std::collections::BTreeMap;

use fairmesh_model::{ChargingRule, Charter, Counters, Factor, MemberSite, SiteId, Span, VoId};

use super::AccountKey;
use super::answers::Row;

const DAY_MS: u64 = 86_400_000;

/// Memory of a core, GiB, where a charter does not say what a site has.
const MEM_GIB: u128 = 64;

/// Power of a core and of a GPU, watts.
const WATTS: [u128; 2] = [100, 2_000];

/// The rows of which `own` makes its answers, where `charter_of` is the charter that it goes by.
pub fn clamped<'a>(
    rows: &[Row],
    own: SiteId,
    charter_of: impl Fn(VoId) -> Option<&'a Charter>,
) -> Vec<Row> {
    let mut sums: BTreeMap<(SiteId, &AccountKey, Span), Counters> = BTreeMap::new();
    let mut charged: BTreeMap<(SiteId, Option<VoId>, Span), u128> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry((row.site, &row.account, row.span)).or_default();
        *sum = sum.plus(row.counters);
    }
    let net = |of: &Counters| of.charge.saturating_sub(of.refunds);
    for ((site, account, span), counters) in &sums {
        let charged = charged.entry((*site, account.0, *span));
        *charged.or_default() += u128::from(net(counters));
    }
    let rows = sums.into_iter().map(|((site, account, span), counters)| {
        let charter = account.0.and_then(&charter_of);
        let sum = charged[&(site, account.0, span)];
        let limit = charter.map_or(Some(u128::MAX), |charter| limit(charter, site, span));
        let limit = limit.unwrap_or(if site == own { u128::MAX } else { 0 });
        let charge = if sum <= limit {
            net(&counters)
        } else {
            u64::try_from(u128::from(net(&counters)) * limit / sum).unwrap_or(u64::MAX)
        };
        Row {
            site,
            account: account.clone(),
            span,
            counters: Counters {
                charge,
                refunds: 0,
                ..counters
            },
        }
    });
    rows.collect()
}

/// The most that a site may charge in a span; `None` where the charter does not list it.
fn limit(charter: &Charter, site: SiteId, span: Span) -> Option<u128> {
    let ms = match span {
        Span::Day(_) => DAY_MS,
        Span::Window(_) => charter.window.millis().0,
    };
    let cores = charged_cores(&charter.charging, charter.member(site)?);
    Some(cores * u128::from(ms) * 17 / 16)
}

/// How many cores' time the dearest jobs that fill a site cost.
fn charged_cores(rule: &ChargingRule, member: &MemberSite) -> u128 {
    let cores = u128::from(member.cores);
    let gpus = member.gpus.map_or(cores, u128::from);
    let dearest = |most: Factor| u128::from(most.millionths().max(1_000_000));
    match rule {
        ChargingRule::CpuTime => cores,
        ChargingRule::NormalisedTime { spec_max } => cores * dearest(*spec_max) / 1_000_000,
        ChargingRule::Weights {
            cpu,
            gpu,
            mem_gib,
            energy_kwh,
            spec_max,
            ..
        } => {
            let [cpu, gpu, mem, energy] = [*cpu, *gpu, *mem_gib, *energy_kwh].map(u128::from);
            let mem_gib = member.mem_gib.map_or(MEM_GIB * cores, u128::from);
            let watts = WATTS[0] * cores + WATTS[1] * gpus;
            let thousandths = cores * cpu + gpus * gpu + mem_gib * mem + watts * energy / 1_000;
            let weighed = cores.max(thousandths / 1_000);
            spec_max.map_or(weighed, |spec| weighed * dearest(spec) / 1_000_000)
        }
        ChargingRule::Penalty {
            gpu,
            gpu_weight,
            disk,
            factor_max,
        } => {
            // One of all CPUs, one of all memory, and so on; GPUs fill a machine, or are charged by number.
            let whole = 2 + u128::from(*disk);
            let filled = match gpu_weight {
                Some(weight) => cores * whole + gpus * u128::from(*weight) / 1_000,
                None => cores * (whole + u128::from(*gpu)),
            };
            filled * dearest(*factor_max) / 1_000_000
        }
    }
}
