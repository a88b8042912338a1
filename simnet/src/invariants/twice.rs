//! Nothing is counted twice.
//!
//! Invariant checked: at every node, whatever of the Grid it has heard, no account's sum is above
//! what all feeds together have offered. What was found good of one state of the counters is not
//! looked at again, so at rest the check costs nothing.

use std::collections::HashSet;

use fairmesh_model::{ContentHash, VoId};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

#[derive(Default)]
pub(super) struct NothingTwice {
    /// States that were good: what is offered only grows. Only looked up.
    good: HashSet<(VoId, usize, ContentHash)>,
}

impl Invariant for NothingTwice {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.deep {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            for vo in site_vos(seen, node) {
                let Some(view) = site.view_digest(vo) else {
                    continue;
                };
                if !self.good.insert((vo, node, view)) {
                    continue;
                }
                let bounds = seen.oracle.bounds(vo);
                *checks += 1;
                for (path, charge) in seen.honest_charges(site, vo) {
                    let most = bounds.get(&path).map_or(0, |(_, most)| *most);
                    if charge > most {
                        let message = format!(
                            "counts {charge} core-ms for {path} of VO {}; all feeds have offered {most}",
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
