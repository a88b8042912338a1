//! The model's published parameters, and its draws of sizes, run times and gaps between arrivals.
//!
//! Invariant: a size is at least 1 and at most the machine; a run time is at least a second and at
//! most e^12 seconds (45 hours), a gap at most e^13 seconds (5 days), as in the authors' program.
//!
//! Source of every constant: `m_lublin99.c` by Lublin and Feitelson, in the Parallel Workloads
//! Archive. [`LublinModel::ALL`] is its set for jobs without a type (`SERIAL_PROB` to `ARAR`),
//! [`LublinModel::BATCH`] and [`LublinModel::INTERACTIVE`] those named `_BATCH` and `_ACTIVE`. The
//! GridSim port (`WorkloadLublin99.java`) has the same numbers.
//!
//! Deliberately not here: mixing two types in one stream. Give each a workload of its own.

use fairmesh_model::Millis;

use crate::fixed::Fixed;
use crate::gamma::Gamma;
use crate::random::Stream;

/// Run times above e^12 seconds are drawn anew (`TOO_MUCH_TIME`).
const RUN_LOG_MAX: Fixed = Fixed::whole(12);

/// Gaps above e^13 seconds are drawn anew (`TOO_MUCH_ARRIVE_TIME`).
const GAP_LOG_MAX: Fixed = Fixed::whole(13);

/// Seconds of half an hour, by which gaps are measured.
const HALF_HOUR_S: Fixed = Fixed::whole(1_800);

/// One set of published parameters; the numbers are ten-thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LublinModel {
    /// Part of the jobs that have one core (`SERIAL_PROB`).
    serial: i64,
    /// Part of the jobs whose size is made a power of two (`POW2_PROB`).
    power_of_two: i64,
    /// log2 of the least parallel size (`ULOW`): below 1, to give pairs their due.
    size_low: i64,
    /// How far log2 of the greatest size lies below that of the machine: `UHI` for 128 nodes.
    size_high_below_machine: i64,
    /// How far the knee of the sizes lies below the greatest (`UHI − UMED`).
    size_knee_below_high: i64,
    /// Part of the parallel jobs below the knee (`UPROB`).
    below_knee: i64,
    /// Shape and scale of the short jobs' log run times (`A1`, `B1`).
    short: (i64, i64),
    /// Shape and scale of the long jobs' log run times (`A2`, `B2`).
    long: (i64, i64),
    /// Part of short jobs among jobs of n cores: this times n (`PA`) ...
    short_part_slope: i64,
    /// ... plus this (`PB`), from 0 to 1.
    short_part_base: i64,
    /// Shape and scale of log gaps in the rush hours (`AARR`, `BARR`).
    gap: (i64, i64),
    /// What the gap's shape is multiplied by to hold for all hours (`ARAR`).
    gap_all_hours: i64,
    /// Shape and scale of arrivals over the day, in half hours (`ANUM`, `BNUM`).
    day: (i64, i64),
}

impl LublinModel {
    /// Jobs of all types together.
    pub const ALL: Self = Self {
        serial: 2_440,
        power_of_two: 5_760,
        size_low: 8_000,
        size_high_below_machine: 0,
        size_knee_below_high: 25_000,
        below_knee: 8_600,
        short: (42_000, 9_400),
        long: (3_120_000, 300),
        short_part_slope: -54,
        short_part_base: 7_800,
        gap: (102_303, 4_871),
        gap_all_hours: 10_225,
        day: (81_737, 39_631),
    };

    /// Batch jobs.
    pub const BATCH: Self = Self {
        serial: 2_927,
        power_of_two: 6_686,
        size_low: 12_000,
        size_high_below_machine: 0,
        size_knee_below_high: 20_000,
        below_knee: 8_750,
        short: (65_700, 8_230),
        long: (6_391_000, 156),
        short_part_slope: -30,
        short_part_base: 6_986,
        gap: (60_415, 8_531),
        gap_all_hours: 10_519,
        day: (61_271, 52_740),
    };

    /// Interactive jobs, the greatest of which take a third of the machine.
    pub const INTERACTIVE: Self = Self {
        serial: 1_541,
        power_of_two: 6_250,
        size_low: 10_000,
        size_high_below_machine: 15_000,
        size_knee_below_high: 25_000,
        below_knee: 7_050,
        short: (38_351, 6_605),
        long: (70_730, 6_856),
        short_part_slope: -118,
        short_part_base: 9_156,
        gap: (65_510, 6_621),
        gap_all_hours: 9_797,
        day: (89_186, 36_680),
    };

    /// Arrivals over the day.
    pub(super) fn day(&self) -> Gamma {
        gamma(self.day)
    }
}

/// The parameters for one machine, ready to be drawn from.
#[derive(Debug, Clone)]
pub(super) struct Draws {
    cores: u32,
    serial: Fixed,
    serial_or_power_of_two: Fixed,
    size_low: Fixed,
    size_knee: Fixed,
    size_high: Fixed,
    below_knee: Fixed,
    short: Gamma,
    long: Gamma,
    short_part_slope: Fixed,
    short_part_base: Fixed,
    gap: Gamma,
}

impl Draws {
    pub(super) fn new(model: &LublinModel, cores: u32) -> Self {
        let machine = Fixed::ratio(i64::from(cores), 1 << 16).log2() + Fixed::whole(16);
        let size_low = decimal(model.size_low);
        // On a machine of few cores the stages shrink to nothing, but do not change their order.
        let size_high = (machine - decimal(model.size_high_below_machine)).max(size_low);
        let size_knee = (size_high - decimal(model.size_knee_below_high)).max(size_low);
        let rush = gamma(model.gap);
        Self {
            cores,
            serial: decimal(model.serial),
            serial_or_power_of_two: decimal(model.serial + model.power_of_two),
            size_low,
            size_knee,
            size_high,
            below_knee: decimal(model.below_knee),
            short: gamma(model.short),
            long: gamma(model.long),
            short_part_slope: decimal(model.short_part_slope),
            short_part_base: decimal(model.short_part_base),
            gap: Gamma {
                shape: rush.shape * decimal(model.gap_all_hours),
                ..rush
            },
        }
    }

    /// Cores of a job: one, or a size whose logarithm is uniform in two stages, perhaps made a power
    /// of two.
    ///
    /// A power of two that rounding would lift above a machine of another size is halved; the paper
    /// has machines of 2^k nodes only.
    pub(super) fn cores(&self, stream: &mut Stream) -> u32 {
        let kind = Fixed::unit(stream);
        if kind <= self.serial {
            return 1;
        }
        let (low, high) = if Fixed::unit(stream) <= self.below_knee {
            (self.size_low, self.size_knee)
        } else {
            (self.size_knee, self.size_high)
        };
        let log = low + (high - low) * Fixed::unit(stream);
        let size = if kind <= self.serial_or_power_of_two {
            1 << log.round().min(i64::from(self.cores.ilog2()))
        } else {
            whole_exp2(log)
        };
        u32::try_from(size).unwrap_or(u32::MAX).clamp(1, self.cores)
    }

    /// Run time of a job of so many cores: e to a draw from one of two gamma distributions.
    pub(super) fn run(&self, cores: u32, stream: &mut Stream) -> Millis {
        // Above 2^16 cores the short part is 0 long since, and products would grow.
        let cores = Fixed::whole(i64::from(cores.min(1 << 16)));
        let short_part = self.short_part_slope * cores + self.short_part_base;
        let log = loop {
            let is_short = Fixed::unit(stream) <= short_part;
            let log = if is_short { self.short } else { self.long }.draw(stream);
            if log <= RUN_LOG_MAX {
                break log;
            }
        };
        // Milliseconds are put together outside of `Fixed`, whose numbers stay below 2^23.
        let seconds = log.exp();
        let whole = seconds.floor();
        let rest = (seconds - Fixed::whole(whole)) * Fixed::whole(1_000);
        Millis((whole * 1_000 + rest.floor()).unsigned_abs())
    }

    /// The gap before the next job, in half hours of mean weight.
    pub(super) fn busy_half_hours(&self, stream: &mut Stream) -> Fixed {
        loop {
            let log = self.gap.draw(stream);
            if log <= GAP_LOG_MAX {
                return log.exp() / HALF_HOUR_S;
            }
        }
    }
}

/// 2 to this power, rounded; of a power below 32.
fn whole_exp2(log: Fixed) -> i64 {
    let shift = log.floor().clamp(0, 31);
    let mantissa = (log - Fixed::whole(shift)).exp2();
    (mantissa * Fixed::whole(1 << shift.min(20))).round() << (shift - shift.min(20))
}

fn decimal(ten_thousandths: i64) -> Fixed {
    Fixed::ratio(ten_thousandths, 10_000)
}

fn gamma((shape, scale): (i64, i64)) -> Gamma {
    Gamma {
        shape: decimal(shape),
        scale: decimal(scale),
    }
}
