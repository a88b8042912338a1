//! The Grid total is the oracle's ledger.
//!
//! Invariant checked: at rest every node that mounts a VO has, account by account, a sum between
//! what the oracle is certain of and the most that was offered. Where no disk was lost and every
//! report was answered the two are equal, so the sum is right to the unit. So is what is left of a site's charges when
//! refunds are taken off, also where a final record contradicted the instalments of its job.

use std::collections::BTreeMap;

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};
use crate::oracle::AccountKey;

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
        *checks += check_net(seen)?;
        Ok(())
    }
}

/// What every node counts of each site's charges, without what is refunded.
fn check_net(seen: &Seen<'_>) -> Result<u64, Violation> {
    let mut checks = 0;
    let told: Vec<_> = seen.nodes().map(|of| (of, seen.oracle.net(of))).collect();
    for node in seen.nodes() {
        let site = seen.world.site(node).expect("all run when all is at rest");
        let mut sums: BTreeMap<(_, AccountKey), (u64, u64)> = BTreeMap::new();
        for cell in site.usage_cells().filter(|cell| !seen.lies(cell.site)) {
            let sum = sums.entry((cell.site, (cell.vo, cell.path))).or_default();
            *sum = (sum.0 + cell.counters.charge, sum.1 + cell.counters.refunds);
        }
        let mounted = site_vos(seen, node);
        for (of, told) in &told {
            let counts = |vo: &Option<_>| vo.map_or(*of == node, |vo| mounted.contains(&vo));
            for (account, (least, most)) in told.iter().filter(|(account, _)| counts(&account.0)) {
                let key = (seen.world.node(*of).id, account.clone());
                let (charge, refunds) = sums.get(&key).copied().unwrap_or_default();
                let net = charge.saturating_sub(refunds);
                let least = least * u64::from(!seen.oracle.short.contains_key(&account.0));
                checks += 1;
                if !(least..=*most).contains(&net) {
                    let message = format!(
                        "counts {net} core-ms net ({charge} charged, {refunds} refunded) for {account:?} of site {of}; \
                         the ledger says {least} to {most}"
                    );
                    return Err(Violation::at(node, message));
                }
            }
        }
    }
    Ok(checks)
}
