//! Answers carry true age and coverage.
//!
//! Invariant checked: when a node says that a site signed last is no later than what that site has
//! signed and the node can hold; and it counts the charter's sites, and those of which it holds anything, rightly.

use std::collections::HashMap;

use fairmesh_model::{SiteId, VoId};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

#[derive(Default)]
pub(super) struct Coverage {
    /// The latest moment that each site has signed. Only looked up.
    at: HashMap<(VoId, SiteId), u64>,
}

impl Coverage {
    fn learn(&mut self, seen: &Seen<'_>) {
        for seen in seen.facts.heads.iter().filter(|seen| seen.own) {
            let last = self.at.entry((seen.head.vo, seen.head.site)).or_default();
            *last = (*last).max(seen.head.at.0);
        }
    }

    fn latest(&self, vo: VoId, site: SiteId) -> u64 {
        self.at.get(&(vo, site)).copied().unwrap_or(0)
    }
}

impl Invariant for Coverage {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.learn(seen);
        if !seen.deep {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            for vo in site_vos(seen, node) {
                let coverage = site.coverage_of(vo);
                *checks += 1;
                let named = u32::try_from(coverage.signed_at.len()).unwrap_or(u32::MAX);
                if named != coverage.sites_known || named > coverage.sites_total {
                    let message = format!(
                        "claims to know {} of {} sites, and names {named}",
                        coverage.sites_known, coverage.sites_total
                    );
                    return Err(Violation::at(node, message));
                }
                for (of, at) in coverage.signed_at.iter().filter(|(of, _)| !seen.lies(**of)) {
                    let latest = self.latest(vo, *of);
                    if at.0 > latest {
                        let message = format!(
                            "claims that site {} signed at {}, which last signed at {latest}",
                            of.short(),
                            at.0
                        );
                        return Err(Violation::at(node, message));
                    }
                }
            }
        }
        Ok(())
    }
}
