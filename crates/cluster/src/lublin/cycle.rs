//! The daily cycle: how much of an hour's time counts for arrivals.
//!
//! Invariant: of the 48 half-hours of a day each counts by its weight, and the weights' mean is 1;
//! so a day counts as a day, and arrivals in it are as dense as the weights say.
//!
//! The paper draws a gap between arrivals as if all hours were alike and then pays for the half
//! hours that it passes; here the same is a walk along a clock that runs by the weights.
//!
//! Deliberately not here: weekends, which the paper leaves out, and time zones.

use fairmesh_model::WallTime;

use crate::fixed::Fixed;
use crate::gamma::Gamma;

/// Half hours of a day.
const CELLS: usize = 48;

/// Milliseconds of half an hour.
const CELL_MS: u64 = 1_800_000;

/// The cycle's first half hour is the eleventh of the day, from 5:00 to 5:30: nights are quiet, so
/// a day is cut there (`CYCLIC_DAY_START` of the authors' program, which counts from 1).
const FIRST_CELL: i64 = 11;

/// A position in time, and the weights to move it by.
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    /// By half hour of the day, from midnight.
    weights: [Fixed; CELLS],
    /// Half hours since the epoch.
    cell: u64,
    /// How much of that half hour's weight is used up.
    paid: Fixed,
}

impl Cycle {
    /// A cycle whose weights are the masses of `day` around the half hours' numbers, beginning at
    /// `start`.
    pub(super) fn new(day: Gamma, start: WallTime) -> Self {
        let mut weights = day.cells::<CELLS>(FIRST_CELL);
        // The first mass belongs to the eleventh half hour, which has index 10.
        weights.rotate_right(10);
        let into = i64::try_from(start.0 % CELL_MS).expect("less than half an hour");
        let length = i64::try_from(CELL_MS).expect("half an hour");
        let mut cycle = Self {
            weights,
            cell: start.0 / CELL_MS,
            paid: Fixed::ZERO,
        };
        cycle.paid = cycle.weight() * Fixed::ratio(into, length);
        cycle
    }

    /// Moves on by so many half hours of mean weight, at `load_permille` thousandths of the model's
    /// rate; `None` at the end of time.
    pub(super) fn pass(&mut self, half_hours: Fixed, load_permille: u32) -> Option<WallTime> {
        self.paid = self.paid + half_hours * Fixed::ratio(1_000, i64::from(load_permille));
        while self.paid >= self.weight() {
            self.paid = self.paid - self.weight();
            self.cell += 1;
        }
        let into = self.paid / self.weight() * Fixed::whole(CELL_MS.cast_signed());
        let into = u64::try_from(into.floor()).expect("time goes forward");
        let at = self.cell.checked_mul(CELL_MS)?.checked_add(into)?;
        Some(WallTime(at))
    }

    fn weight(&self) -> Fixed {
        let of_day = self.cell % CELLS as u64;
        self.weights[usize::try_from(of_day).expect("below 48")]
    }
}
