//! What a job is charged, and how the charge is spread over the windows in which it ran.
//!
//! Invariants: sums saturate, they never wrap; the parts of a split add up to the whole, to the
//! unit, and depend only on the job's times and the window length.
//! Deliberately not here: rules that need to know machines and queues. Source: FSGrid, section 4.3
//! (CPU time); Slurm's TRES billing weights.

use fairmesh_model::{ChargingRule, Counters, Millis, WallTime, Window, WindowLength};

/// What a job held, all the time it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Cores.
    pub cores: u64,
    /// GPUs.
    pub gpus: u64,
    /// Memory in MiB, of all its nodes together.
    pub mem_mib: u64,
}

/// The counters of holding `held` for `wall`, under `rule`. `jobs` is 0: the caller knows whether
/// this is a job's last instalment. Fractions of a core-ms are cut.
pub fn charge(rule: &ChargingRule, held: Resources, wall: Millis) -> Counters {
    let for_wall = |amount: u64| u128::from(amount) * u128::from(wall.0);
    let charge = match *rule {
        ChargingRule::CpuTime => for_wall(held.cores),
        ChargingRule::Weights {
            cpu,
            gpu,
            mem_gib,
            max,
        } => {
            let term = |weight: u32, amount: u64| u128::from(weight) * u128::from(amount);
            // In 1,024ths of a thousandth of a core, so that MiB need no division.
            let terms = [
                term(cpu, held.cores) << 10,
                term(gpu, held.gpus) << 10,
                term(mem_gib, held.mem_mib),
            ];
            let cores = if max {
                terms.into_iter().fold(0, u128::max)
            } else {
                terms.into_iter().fold(0, u128::saturating_add)
            };
            cores.saturating_mul(u128::from(wall.0)) / (1_000 << 10)
        }
    };
    Counters {
        charge: saturate(charge),
        cpu_ms: saturate(for_wall(held.cores)),
        gpu_ms: saturate(for_wall(held.gpus)),
        mem_mib_s: saturate(for_wall(held.mem_mib) / 1_000),
        jobs: 0,
    }
}

/// Spreads `amount` over the windows from `start` to `end` (excluded) by overlap. What had been
/// used by the end of each window is rounded down, and the last one gets the rest; parts of zero are
/// yielded too. A job without duration falls in the window of its start.
pub fn split_amount(
    amount: u64,
    start: WallTime,
    end: WallTime,
    length: WindowLength,
) -> impl Iterator<Item = (Window, u64)> {
    let duration = end.since(start).0;
    let last = length.window_at(WallTime(end.0.saturating_sub(1).max(start.0)));
    let mut before = 0;
    (length.window_at(start).0..=last.0).map(move |index| {
        let window = Window(index);
        let elapsed = length.end_of(window).since(start).0.min(duration);
        let until = if window == last {
            amount
        } else {
            saturate(u128::from(amount) * u128::from(elapsed) / u128::from(duration.max(1)))
        };
        let part = until - before;
        before = until;
        (window, part)
    })
}

/// Spreads every column of `counters` as [`split_amount`] does, except `jobs`: a job is counted in
/// the window in which it ended.
pub fn split_counters(
    counters: Counters,
    start: WallTime,
    end: WallTime,
    length: WindowLength,
) -> impl Iterator<Item = (Window, Counters)> {
    let [charge, cpu, gpu, mem, _] = counters.to_columns();
    let last = length.window_at(WallTime(end.0.saturating_sub(1).max(start.0)));
    let column = move |amount| split_amount(amount, start, end, length).map(|(_, part)| part);
    split_amount(charge, start, end, length)
        .zip(column(cpu).zip(column(gpu)).zip(column(mem)))
        .map(move |((window, charge), ((cpu, gpu), mem))| {
            let jobs = if window == last { counters.jobs } else { 0 };
            (
                window,
                Counters::from_columns([charge, cpu, gpu, mem, jobs]),
            )
        })
}

fn saturate(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn charges_by_rows() {
        let weights = |max| ChargingRule::Weights {
            cpu: 1_000,
            gpu: 4_000,
            mem_gib: 250,
            max,
        };
        let held = Resources {
            cores: 4,
            gpus: 1,
            mem_mib: 32_768,
        };
        // rule, what is held, milliseconds, core-ms
        let rows = [
            (ChargingRule::CpuTime, held, 1_000, 4_000),
            (weights(false), held, 1_000, 16_000),
            (weights(true), held, 1_000, 8_000),
            (weights(false), Resources::default(), 1_000, 0),
            (weights(false), held, 0, 0),
            (
                ChargingRule::Weights {
                    cpu: 1,
                    gpu: 0,
                    mem_gib: 0,
                    max: false,
                },
                held,
                499,
                1,
            ),
            (
                ChargingRule::CpuTime,
                Resources {
                    cores: u64::MAX,
                    ..held
                },
                2,
                u64::MAX,
            ),
            (
                weights(false),
                Resources {
                    cores: u64::MAX,
                    gpus: u64::MAX,
                    mem_mib: u64::MAX,
                },
                u64::MAX,
                u64::MAX,
            ),
        ];
        for (rule, held, wall, expected) in rows {
            assert_eq!(
                charge(&rule, held, Millis(wall)).charge,
                expected,
                "{rule:?} {held:?} {wall}"
            );
        }
        let counters = charge(&ChargingRule::CpuTime, held, Millis(1_500));
        assert_eq!(
            (counters.gpu_ms, counters.mem_mib_s, counters.jobs),
            (1_500, 49_152, 0)
        );
    }

    #[test]
    fn a_job_is_split_by_overlap_and_counted_where_it_ended() {
        let hour = 3_600_000;
        let counters = Counters {
            charge: 1_001,
            jobs: 1,
            ..Counters::default()
        };
        let (start, end) = (WallTime(hour / 2), WallTime(2 * hour));
        let parts: Vec<_> = split_counters(counters, start, end, WindowLength::HOUR).collect();
        let charges: Vec<_> = parts
            .iter()
            .map(|(window, part)| (window.0, part.charge, part.jobs))
            .collect();
        assert_eq!(charges, [(0, 333, 0), (1, 668, 1)]);
        let instant: Vec<_> = split_amount(7, end, end, WindowLength::HOUR).collect();
        assert_eq!(instant, [(Window(2), 7)]);
        let backwards: Vec<_> = split_amount(7, end, start, WindowLength::HOUR).collect();
        assert_eq!(backwards, [(Window(2), 7)]);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(amount in any::<u64>(), start in 0u64..1_000_000_000, duration in 0u64..500_000_000) {
            let (start, end) = (WallTime(start), WallTime(start + duration));
            let parts: Vec<_> = split_amount(amount, start, end, WindowLength::HOUR).collect();
            prop_assert_eq!(parts.iter().map(|(_, part)| u128::from(*part)).sum::<u128>(), u128::from(amount));
            prop_assert!(parts.windows(2).all(|pair| pair[0].0.0 + 1 == pair[1].0.0));
        }
    }
}
