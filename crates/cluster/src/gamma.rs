//! The gamma distribution in fixed point: draws, and the mass of equal cells.
//!
//! Invariant: a draw takes from the given stream alone and uses integers alone, so a seed gives the
//! same numbers on every machine. Draws follow the exact distribution but for the 2^-32 of
//! [`Fixed`].
//!
//! Draws: Marsaglia & Tsang, "A simple method for generating gamma variables", ACM TOMS 26(3), 2000;
//! its normal is Marsaglia's polar one (Marsaglia & Bray 1964), which needs no sine. Mass: the
//! series of Abramowitz & Stegun 6.5.29.
//!
//! Deliberately not here: shapes below 1; no published model here needs them.

use crate::fixed::Fixed;
use crate::random::Stream;

/// A gamma distribution; its mean is shape times scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gamma {
    pub(crate) shape: Fixed,
    pub(crate) scale: Fixed,
}

impl Gamma {
    pub(crate) fn draw(self, stream: &mut Stream) -> Fixed {
        let third = Fixed::ratio(1, 3);
        let d = self.shape - third;
        let c = third / d.sqrt();
        loop {
            let normal = normal(stream);
            let root = Fixed::ONE + c * normal;
            // An exact zero would have no logarithm, nor any mass.
            let v = root * root * root;
            if v <= Fixed::ZERO {
                continue;
            }
            let bound = normal * normal / Fixed::whole(2) + d * (Fixed::ONE - v + v.ln());
            if Fixed::unit(stream).ln() < bound {
                return d * v * self.scale;
            }
        }
    }

    /// The mass of the cells `[first − ½, first + ½)`, `[first + ½, first + 1½)` and so on, relative
    /// to their mean. `first` is at least 1.
    pub(crate) fn cells<const COUNT: usize>(self, first: i64) -> [Fixed; COUNT] {
        let mut below = self.mass_below(Fixed::ratio(2 * first - 1, 2));
        let mut cells = [Fixed::ZERO; COUNT];
        for (cell, number) in cells.iter_mut().zip(first..) {
            let above = self.mass_below(Fixed::ratio(2 * number + 1, 2));
            *cell = above - below;
            below = above;
        }
        let sum = cells.iter().fold(Fixed::ZERO, |sum, cell| sum + *cell);
        let mean = sum / Fixed::whole(i64::try_from(COUNT).expect("a small count"));
        cells.map(|cell| cell / mean)
    }

    /// The mass below `at`, up to a factor that is the same for all of them.
    fn mass_below(self, at: Fixed) -> Fixed {
        let (a, x) = (self.shape, at / self.scale);
        // Scaled by the greatest value that x^a e^-x takes, at x = a, to stay near 1.
        let log = a * x.ln() - x - (a * a.ln() - a);
        let mut term = Fixed::ONE / a;
        let mut sum = Fixed::ZERO;
        let mut next = a;
        while term > Fixed::ZERO {
            sum = sum + term;
            next = next + Fixed::ONE;
            term = term * x / next;
        }
        log.exp() * sum
    }
}

/// A draw from the standard normal distribution.
fn normal(stream: &mut Stream) -> Fixed {
    let mut coordinate = || {
        let unit = Fixed::unit(stream);
        unit + unit - Fixed::ONE
    };
    loop {
        let (x, y) = (coordinate(), coordinate());
        let square = x * x + y * y;
        if square > Fixed::ZERO && square < Fixed::ONE {
            let log = Fixed::ZERO - square.ln();
            return x * ((log + log) / square).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    const DRAWS: i64 = 40_000;

    /// Mean and variance of many draws, in thousandths.
    fn moments(mut draw: impl FnMut(&mut Stream) -> Fixed) -> (i64, i64) {
        let mut stream = Seed(7).stream("moments");
        let count = Fixed::whole(DRAWS);
        let (mut sum, mut squares) = (Fixed::ZERO, Fixed::ZERO);
        for _ in 0..DRAWS {
            let drawn = draw(&mut stream);
            sum = sum + drawn;
            squares = squares + drawn * drawn;
        }
        let mean = sum / count;
        let thousandths = |number: Fixed| (number * Fixed::whole(1_000)).round();
        (
            thousandths(mean),
            thousandths(squares / count - mean * mean),
        )
    }

    #[test]
    fn normal_draws_have_mean_0_and_variance_1() {
        let (mean, variance) = moments(normal);
        assert!(mean.abs() <= 20, "{mean}");
        assert!((980..=1_020).contains(&variance), "{variance}");
    }

    #[test]
    fn gamma_draws_have_mean_shape_scale_and_variance_shape_scale_squared() {
        // Shape and scale in hundredths, mean and variance in thousandths.
        let rows = [
            (420, 94, 3_948, 3_711),
            (31_200, 3, 9_360, 281),
            (1_046, 49, 5_125, 2_511),
            (100, 200, 2_000, 4_000),
        ];
        for (shape, scale, mean, variance) in rows {
            let gamma = Gamma {
                shape: Fixed::ratio(shape, 100),
                scale: Fixed::ratio(scale, 100),
            };
            let found = moments(|stream| gamma.draw(stream));
            assert!((found.0 - mean).abs() * 100 <= mean, "{found:?} {mean}");
            assert!(
                (found.1 - variance).abs() * 20 <= variance,
                "{found:?} {variance}"
            );
        }
    }

    #[test]
    fn cells_of_an_exponential_fall_by_its_own_factor() {
        // With shape 1 and scale s each cell holds e^(-1/s) of the one before it.
        let gamma = Gamma {
            shape: Fixed::ONE,
            scale: Fixed::whole(5),
        };
        let cells = gamma.cells::<20>(1);
        let mean: i64 = cells
            .iter()
            .map(|cell| (*cell * Fixed::whole(1_000)).round())
            .sum();
        assert!((mean - 20_000).abs() <= 20, "{mean}");
        for pair in cells.windows(2) {
            let factor = (pair[1] / pair[0] * Fixed::whole(1_000_000)).round();
            assert!((factor - 818_731).abs() <= 1, "{factor}");
        }
    }
}
