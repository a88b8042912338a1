//! What a charge is multiplied by: SPEC of the machine, and the factors of the job's queue and quality of service.
//!
//! Invariant: the factors multiply, under every rule alike, and nothing is rounded. A factor of 1 changes no number, so
//! a site without factors charges what it charged before there were any. What bounds a product is the charter's
//! (`factor_max`, `spec_max`), and a dearer job is an error.
//! Source: the queue cost of MetaCentrum's penalty (Klusáček and Rudová, JSSPP 2014); Slurm's `UsageFactor` of a QOS.

use ethnum::U256;
use fairmesh_model::{Factor, PriceList, mutated};

use super::{ChargeError, Fraction, Job};

/// The factors of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    /// SPEC of the machine that ran it.
    pub(super) spec: Factor,
    pub(super) queue: Factor,
    /// Of its quality of service.
    pub(super) qos: Factor,
}

impl Factors {
    /// Those of the queue and the quality of service of `job`.
    pub(super) fn of_terms(prices: &PriceList, job: &Job<'_>) -> Self {
        let queue = job.queue.filter(|_| !mutated!(QueueFree));
        let qos = job.qos.filter(|_| !mutated!(QosFree));
        Self {
            spec: Factor::ONE,
            queue: prices.queue_cost(queue),
            qos: prices.qos_cost(qos),
        }
    }

    pub(super) const fn of_speed(spec: Factor) -> Self {
        Self {
            spec,
            queue: Factor::ONE,
            qos: Factor::ONE,
        }
    }

    /// Checks that their product is `most` at most. It is then below 2^72 in units of 10^-18.
    ///
    /// # Errors
    /// That it is more.
    pub(super) fn check(self, most: Factor) -> Result<Self, ChargeError> {
        let product = |factors: [Factor; 3]| {
            let millionths = factors.map(|factor| u128::from(factor.millionths()));
            millionths.into_iter().product::<u128>()
        };
        let Self { spec, queue, qos } = self;
        if product([spec, queue, qos]) > product([most, Factor::ONE, Factor::ONE]) {
            return Err(ChargeError::FactorAboveMax {
                spec,
                queue,
                qos,
                factor_max: most,
            });
        }
        Ok(self)
    }

    /// A fraction times all of them.
    pub(super) fn times(self, fraction: Fraction) -> Fraction {
        let factors = [self.spec, self.queue, self.qos].into_iter();
        let factors = factors.filter(|factor| *factor != Factor::ONE);
        factors.fold(fraction, |(numerator, denominator), factor| {
            (
                numerator * U256::from(factor.millionths()),
                denominator * U256::from(Factor::UNITS),
            )
        })
    }
}
