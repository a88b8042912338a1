//! What a site's machines cost is what its owner says, everywhere.
//!
//! Invariant checked: what a node holds of a site's prices its owner has once configured; at rest it is what he says
//! now, at every node that takes part in a VO of that site, and so is what the site asks for jobs by the hour.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{Millis, PriceList};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};
use crate::world::StepKind;

/// A new price is in the next head of its site, which others hold within this time, or within twice a heartbeat of that
/// site and some exchanges.
const KNOWN_AFTER: Millis = Millis(3_600_000);
const HOPS: u64 = 4;

pub(super) struct Prices {
    /// What each owner has said so far, the newest last.
    said: Vec<Vec<Arc<PriceList>>>,
}

impl Prices {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            said: vec![Vec::new(); nodes],
        }
    }

    fn hear_owners(&mut self, seen: &Seen<'_>) {
        for (said, node) in self.said.iter_mut().zip(seen.world.nodes()) {
            let now = &node.config.charging.prices;
            if said.last() != Some(now) {
                said.push(Arc::clone(now));
            }
        }
    }

    /// Looks at what a node holds of others; with `now` only what owners say now will do.
    fn check(&self, seen: &Seen<'_>, node: usize, now: bool) -> Result<u64, Violation> {
        let Some(site) = seen.world.site(node) else {
            return Ok(0);
        };
        let mut checks = 0;
        for vo in seen.vos {
            let held = site.descriptions(*vo);
            let held: BTreeMap<_, _> = held.map(|(of, told)| (of, &*told.prices)).collect();
            let said = self.said.iter().enumerate();
            for (owner, said) in said.filter(|(owner, _)| !seen.is_liar(*owner)) {
                let config = &seen.world.node(owner).config;
                let takes_part = [node, owner]
                    .iter()
                    .all(|of| seen.world.node(*of).config.vos.values().any(|of| of == vo));
                let known = held.get(&seen.world.node(owner).id).copied();
                let is_right = match known {
                    Some(known) if !now => said.iter().any(|said| **said == *known),
                    _ if !now || !takes_part => continue,
                    Some(known) => *known == *config.charging.prices,
                    None => *config.charging.prices == PriceList::default(),
                };
                checks += 1;
                if !is_right {
                    let vo = vo.short();
                    let message =
                        format!("it goes by other prices of site {owner} in {vo} than its owner");
                    return Err(Violation::at(node, message));
                }
            }
        }
        Ok(checks)
    }
}

/// What a node takes a site to ask for jobs is what that asks, and has asked for a while.
fn check_asked(seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
    let mut checks = 0;
    let held = seen.world.site(node).expect("all run when all is at rest");
    let others = seen
        .nodes()
        .filter(|other| *other != node && !seen.is_liar(*other));
    for (other, vo) in
        others.flat_map(|other| site_vos(seen, other).into_iter().map(move |vo| (other, vo)))
    {
        let site = seen.world.site(other).expect("all run when all is at rest");
        let now = seen.world.now_at(other).wall;
        let asks = site.price_at(vo, site.id());
        let (theirs, ours) = (seen.world.node(other), seen.world.node(node));
        let way = theirs.config.timing.heartbeat.0 + HOPS * ours.config.timing.sync.0;
        let known_after = KNOWN_AFTER.max(Millis(2 * way));
        let is_old = asks.is_none_or(|(_, since)| since.after(known_after) < now);
        if !is_old || !site_vos(seen, node).contains(&vo) {
            continue;
        }
        checks += 1;
        if held.price_at(vo, site.id()) != asks {
            let message = format!("takes site {other} to ask another price than {asks:?}");
            return Err(Violation::at(node, message));
        }
    }
    Ok(checks)
}

impl Invariant for Prices {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if seen.kind == StepKind::Reconfigured || self.said.iter().any(Vec::is_empty) {
            self.hear_owners(seen);
        }
        if !seen.deep {
            return Ok(());
        }
        for node in seen.nodes() {
            *checks += self.check(seen, node, false)?;
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.hear_owners(seen);
        for node in seen.nodes() {
            *checks += self.check(seen, node, true)? + check_asked(seen, node)?;
        }
        Ok(())
    }
}
