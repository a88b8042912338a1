//! SPEC: how fast the machine is that ran a job, relative to the VO's reference machine.
//!
//! Invariant: walltime × SPEC is the same whichever machine runs a job; a job whose speed nobody can tell
//! is an error, and one whose machine is not known is charged as on the slowest that could have run it.
//! Source: SPEC of MetaCentrum's penalty (Klusáček and Rudová, JSSPP 2014).

use fairmesh_model::{Factor, PriceList, mutant};

use super::suitable::{Counted, fits_nowhere, suitable};
use super::{ChargeError, Job};

/// SPEC of the machine that ran the job; where that is not known, of the slowest that could have:
/// never more than the job owes.
pub(super) fn of(
    prices: &PriceList,
    job: &Job<'_>,
    counted: Counted,
) -> Result<Factor, ChargeError> {
    if prices.machines.is_empty() {
        return Err(ChargeError::NoMachines);
    }
    let spec = match job.machine {
        Some(name) => prices
            .machines
            .get(name)
            .map(|class| class.spec)
            .ok_or_else(|| ChargeError::UnknownMachine(name.to_owned())),
        None => suitable(prices, job, counted)
            .map(|(_, class)| class.spec)
            .reduce(|a, b| mutant!(FastestAssumed, a.min(b), a.max(b)))
            .ok_or_else(|| fits_nowhere(job, counted)),
    }?;
    Ok(mutant!(MachinesAlike, spec, Factor::ONE))
}
