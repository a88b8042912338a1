//! Answers carry true age and coverage.
//!
//! Invariant checked: what a node says it last heard of a site is no younger than what that site has
//! signed and the node can hold; and it counts the charter's sites, and those it has heard, rightly.

use std::collections::HashMap;

use fairmesh_model::{SiteId, VoId};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

/// The checker.
pub(super) struct Coverage {
    /// The latest moment that each site has signed. Only looked up.
    at: HashMap<(VoId, SiteId), u64>,
}

impl Coverage {
    pub(super) fn new(_nodes: usize) -> Self {
        Self { at: HashMap::new() }
    }

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
                let heard = u32::try_from(coverage.heard.len()).unwrap_or(u32::MAX);
                if heard != coverage.sites_heard || heard > coverage.sites_total {
                    let message = format!(
                        "claims to have heard {} of {} sites, and names {heard}",
                        coverage.sites_heard, coverage.sites_total
                    );
                    return Err(Violation::at(node, message));
                }
                for (of, at) in coverage.heard.iter().filter(|(of, _)| !seen.lies(**of)) {
                    let latest = self.latest(vo, *of);
                    if at.0 > latest {
                        let message = format!(
                            "claims to have heard site {} at {}, which last signed at {latest}",
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
