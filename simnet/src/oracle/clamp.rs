//! What counts of the usage that a site has published: no more than it can have run.
//!
//! Invariant: where the accounts of a site say more of a span than its charter declares for that time, and a sixteenth,
//! in charge, CPU time, GPU time or memory, each account's number of that column is cut to `number × limit ÷ sum`,
//! rounded down. What was taken back is gone first: from the charge, and the same part of what was held, rounded down.
//! A site that the charter does not list charges and holds nothing, except the one that answers.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{ChargingRule, Charter, Counters, Factor, MemberSite, SiteId, Span, VoId};

use super::AccountKey;
use super::answers::Row;

const DAY_MS: u64 = 86_400_000;

/// Memory of a core, GiB, where a charter does not say what a site has.
const MEM_GIB: u128 = 64;

/// Power of a core and of a GPU, watts.
const WATTS: [u128; 2] = [100, 2_000];

/// Charge, CPU time, GPU time, memory.
type Columns = [u128; 4];

const NO_LIMIT: Columns = [u128::MAX; 4];

/// The rows of which `own` makes its answers, where `charter_of` is the charter that it goes by. Charges are net.
pub fn clamped<'a>(
    rows: &[Row],
    own: SiteId,
    charter_of: impl Fn(VoId) -> Option<&'a Charter>,
) -> Vec<Row> {
    let sums = sums_of(rows);
    let totals = totals_of(&sums);
    let rows = sums.into_iter().map(|((site, account, span), counters)| {
        let charter = account.0.and_then(&charter_of);
        let limit = charter.map_or(NO_LIMIT, |charter| limit(charter, (site, own), span));
        let total = totals[&(site, account.0, span)];
        let is_over = total.iter().zip(limit).any(|(sum, limit)| *sum > limit);
        let of = |column: usize| {
            let number = left(&counters)[column];
            let (sum, limit) = (total[column], limit[column]);
            let cut = if sum > limit {
                number * limit / sum
            } else {
                number
            };
            u64::try_from(cut).expect("less than the number")
        };
        let net = counters.charge.saturating_sub(counters.refunds);
        let counters = Counters {
            charge: if is_over { of(0) } else { net },
            refunds: 0,
            ..counters
        };
        let counters = match is_over {
            false => counters,
            true => Counters {
                cpu_ms: of(1),
                gpu_ms: of(2),
                mem_mib_s: of(3),
                ..counters
            },
        };
        Row {
            site,
            account: account.clone(),
            span,
            counters,
        }
    });
    rows.collect()
}

/// The sites that published more of a span than they can have run, and in which VO.
pub fn beyond<'a>(
    rows: &[Row],
    own: SiteId,
    charter_of: impl Fn(VoId) -> Option<&'a Charter>,
) -> BTreeSet<(VoId, SiteId)> {
    let totals = totals_of(&sums_of(rows)).into_iter();
    let over = totals.filter_map(|((site, vo, span), total)| {
        let limit = limit(charter_of(vo?)?, (site, own), span);
        let mut columns = total.iter().zip(limit);
        columns
            .any(|(sum, limit)| *sum > limit)
            .then_some((vo?, site))
    });
    over.collect()
}

/// What is published of each account in a span, over all incarnations.
type Published<'a> = BTreeMap<(SiteId, &'a AccountKey, Span), Counters>;

fn sums_of(rows: &[Row]) -> Published<'_> {
    let mut sums = Published::new();
    for row in rows {
        let sum = sums.entry((row.site, &row.account, row.span)).or_default();
        *sum = sum.plus(row.counters);
    }
    sums
}

fn totals_of(sums: &Published<'_>) -> BTreeMap<(SiteId, Option<VoId>, Span), Columns> {
    let mut totals: BTreeMap<(SiteId, Option<VoId>, Span), Columns> = BTreeMap::new();
    for ((site, account, span), counters) in sums {
        let total = totals.entry((*site, account.0, *span)).or_default();
        let left = left(counters).into_iter();
        total.iter_mut().zip(left).for_each(|(sum, of)| *sum += of);
    }
    totals
}

/// What is left of an account's numbers without what was taken back.
fn left(counters: &Counters) -> Columns {
    let Counters {
        charge, refunds, ..
    } = *counters;
    let net = u128::from(charge.saturating_sub(refunds));
    let part = |held: u64| match refunds {
        0 => u128::from(held),
        _ => u128::from(held) * net / u128::from(charge.max(1)),
    };
    let Counters {
        cpu_ms,
        gpu_ms,
        mem_mib_s,
        ..
    } = *counters;
    [net, part(cpu_ms), part(gpu_ms), part(mem_mib_s)]
}

/// The most that a site may have charged and held in a span, as `own` sees it.
fn limit(charter: &Charter, (site, own): (SiteId, SiteId), span: Span) -> Columns {
    let ms = match span {
        Span::Day(_) => DAY_MS,
        Span::Window(_) => charter.window.millis().0,
    };
    let ms = u128::from(ms) * 17 / 16;
    let Some(member) = charter.member(site) else {
        let most = if site == own { u128::MAX } else { 0 };
        return [most, most, u128::MAX, u128::MAX];
    };
    let gpus = member.gpus.map_or(u128::MAX, |gpus| u128::from(gpus) * ms);
    let mem = member
        .mem_gib
        .map_or(u128::MAX, |gib| u128::from(gib) * 1_024 * ms / 1_000);
    let charged = charged_cores(&charter.charging, member) * ms;
    [charged, u128::from(member.cores) * ms, gpus, mem]
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
