//! FSGrid's priority, exactly as published: Σ (deviation in percent + 100) × 200^(d − i).
//!
//! Invariant: every digit lies in 0..=200 (relative deviations below −100 %, and what is over its limit,
//! count as −100 %), a
//! missing level is the digit 100, and the result is cut below the 24th decimal of each digit's
//! contribution. Beware: digits have 201 values in base 200, and unrounded ones let a lower level
//! outweigh a higher one, so this does *not* always keep the order of the vectors. It is kept for
//! fidelity. Deliberately not here: a repair. Source: FSGrid.

use ethnum::{I256, U256};
use fairmesh_model::Share;

use super::{Context, Priority, Projection, fraction, units_of};
use crate::deviation::{Class, Deviation, DeviationVector, VECTOR_LEVELS_MAX};
use crate::ratio::floor_scaled;

/// Base of the published number.
const BASE: u32 = 200;

/// Decimals of the unrounded priority. Seventeen levels lose at most 17 × 10^-24.
const DECIMALS: u8 = 24;

/// The projection of the FSGrid paper, with digits that are not rounded.
#[derive(Debug, Clone, Copy, Default)]
pub struct PaperProjection;

/// Digits rounded to whole numbers, halves up.
#[derive(Debug, Clone, Copy, Default)]
pub struct PaperRoundedProjection;

impl Projection for PaperProjection {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn project(&self, vector: &DeviationVector, context: &Context) -> Priority {
        let mut sum = U256::ZERO;
        for level in 0..context.depth {
            let below = context.depth - 1 - level;
            let mut scale = [BASE; VECTOR_LEVELS_MAX + 4];
            scale[below..below + 4].fill(1_000_000);
            let (numerator, denominator) = percent_plus_100(&vector.deviation(level));
            sum += floor_scaled(numerator, denominator, &scale[..below + 4]);
        }
        Priority {
            decimals: DECIMALS,
            units: sum.as_i256(),
        }
    }

    fn factor(&self, priority: &Priority, context: &Context) -> Share {
        fraction(
            units_of(priority),
            largest(context.depth) * U256::new(10).pow(u32::from(DECIMALS)),
        )
    }
}

impl Projection for PaperRoundedProjection {
    fn name(&self) -> &'static str {
        "paper-rounded"
    }

    fn project(&self, vector: &DeviationVector, context: &Context) -> Priority {
        let mut sum = U256::ZERO;
        for level in 0..context.depth {
            let (numerator, denominator) = percent_plus_100(&vector.deviation(level));
            let digit = (numerator * 2 + denominator) / (denominator * 2);
            sum = sum * U256::from(BASE) + digit;
        }
        Priority {
            decimals: 0,
            units: sum.as_i256(),
        }
    }

    fn factor(&self, priority: &Priority, context: &Context) -> Share {
        fraction(units_of(priority), largest(context.depth))
    }
}

/// The exact digit of a deviation, from 0 to 200.
fn percent_plus_100(deviation: &Deviation) -> (U256, U256) {
    let parts = deviation
        .parts()
        .filter(|_| deviation.class() == Class::Within);
    let Some((magnitude, denominator)) = parts else {
        return (U256::ZERO, U256::ONE);
    };
    let shifted = if deviation.is_negative() {
        denominator.saturating_sub(magnitude)
    } else {
        denominator + magnitude
    };
    (shifted * U256::new(100), denominator)
}

/// The priority of the digit 200 on every level.
fn largest(depth: usize) -> U256 {
    (0..depth.max(1)).fold(U256::ZERO, |sum, _| {
        sum * U256::from(BASE) + U256::from(BASE)
    })
}

const _: () = assert!(
    I256::BITS == 256 && VECTOR_LEVELS_MAX <= 17,
    "200^17 with 24 decimals fits 210 bits"
);
