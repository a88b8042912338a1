//! The Grid total is the oracle's ledger.
//!
//! Invariant checked: at rest every node that mounts a VO has, account by account, a sum between
//! what the oracle is certain of and the most that was offered. Where no disk was lost and every
//! report was answered the two are equal, so the sum is right to the unit.

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

/// The checker.
pub(super) struct Total;

impl Invariant for Total {
    fn after_step(&mut self, _seen: &Seen<'_>, _checks: &mut u64) -> Result<(), Violation> {
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for vo in seen.vos {
            let bounds = seen.oracle.bounds(*vo);
            for node in seen
                .nodes()
                .filter(|node| site_vos(seen, *node).contains(vo))
            {
                let site = seen.world.site(node).expect("all run when all is at rest");
                let sums = seen.honest_charges(site, *vo);
                for (path, (certain, most)) in &bounds {
                    let sum = sums.get(path).copied().unwrap_or(0);
                    *checks += 1;
                    if !(*certain..=*most).contains(&sum) {
                        let message = format!(
                            "counts {sum} core-ms for {path} of VO {}; the ledger says {certain} to {most}",
                            vo.short()
                        );
                        return Err(Violation::at(node, message));
                    }
                }
            }
        }
        Ok(())
    }
}
