//! No acknowledged usage is lost.
//!
//! Invariant checked: after an acknowledged report, and after each start on a disk that was not
//! lost, a site's own sums are at least what the oracle is certain of, VO by VO and for the site's
//! own accounts; no store takes own counters or marks of jobs before they are in the journal; and no
//! damaged journal is replaced without a message; and a healed site takes every job of which its documents tell what
//! it costs. What others hold is compared at rest (`total`).

use fairmesh_model::AccountPath;
use fairmesh_site::{Account, Site};

use super::{Invariant, Seen, Violation};
use crate::world::StepKind;

/// Reports between two checks of one node: sums cost O(cells), and a loss does not go away.
const REPORTS_BETWEEN: u64 = 4;

pub(super) struct NothingLost {
    reports: Vec<u64>,
}

impl NothingLost {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            reports: vec![0; nodes],
        }
    }

    fn is_due(&mut self, node: usize, kind: StepKind) -> bool {
        match kind {
            StepKind::Report | StepKind::Running => {
                self.reports[node] += 1;
                self.reports[node].is_multiple_of(REPORTS_BETWEEN)
            }
            StepKind::Started => true,
            _ => false,
        }
    }

    fn check(seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
        let mounted = site_vos(seen, node);
        let mut checks = 0;
        for vo in mounted.into_iter().map(Some).chain([None]) {
            let account = Account {
                vo,
                path: AccountPath::root(),
            };
            let own = site.usage_by_site(&account);
            let own = own.get(&site.id()).map_or(0, |counters| counters.charge);
            let certain = seen.oracle.certain_total(node, vo);
            checks += 1;
            if own < certain {
                let of = vo.map_or("its own accounts".to_owned(), |vo| vo.short());
                return Err(Violation::at(
                    node,
                    format!("has acknowledged {certain} core-ms for {of} and counts {own}"),
                ));
            }
        }
        Ok(checks)
    }
}

/// The VOs that a node mounts.
pub(super) fn site_vos(seen: &Seen<'_>, node: usize) -> Vec<fairmesh_model::VoId> {
    let config = &seen.world.node(node).config;
    config.vos.values().copied().collect()
}

impl Invariant for NothingLost {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let Some(node) = seen.node.filter(|node| !seen.is_liar(*node)) else {
            return Ok(());
        };
        let faults = seen.world.node(node).faults;
        if faults.is_ahead {
            let message = "goes on with own rows that its journal does not have";
            return Err(Violation::at(node, message));
        }
        if faults.hides_damage {
            let message = "begins a damaged journal anew, and tells nobody";
            return Err(Violation::at(node, message));
        }
        if let Some((_, job)) = seen.facts.untaken.first() {
            let message = format!("refuses job {job}, and its documents tell what that costs");
            return Err(Violation::at(node, message));
        }
        if !seen.whole[node] || !self.is_due(node, seen.kind) {
            return Ok(());
        }
        if let Some(site) = seen.world.site(node) {
            *checks += Self::check(seen, node, site)?;
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for node in seen.nodes() {
            let site = seen.world.site(node).expect("all run when all is at rest");
            *checks += Self::check(seen, node, site)?;
        }
        Ok(())
    }
}
