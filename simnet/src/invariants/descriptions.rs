//! What nodes show of a site's machines and prices is what its owner declares.
//!
//! Invariant checked, at rest: each node that takes part in a VO of a site shows its machine classes, its queues and
//! which machine is of which class as the owner has configured them last; and of an owner who declares more than any
//! may (docs/charging.md), nothing. That holds for members that lie as long as their nodes publish what they are told.
//! Deliberately not here: the price of quotas, which a description has, too.

use fairmesh_model::VoId;
use fairmesh_site::{Charging, Pattern};

use super::{Invariant, Seen, Violation};
use crate::liar::named;
use crate::world::World;

/// Queues and qualities of service that an owner may declare.
const QUEUES_MAX: usize = 1_024;

pub(super) struct Descriptions;

impl Invariant for Descriptions {
    fn after_step(&mut self, _seen: &Seen<'_>, _checks: &mut u64) -> Result<(), Violation> {
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for node in seen.nodes() {
            for vo in seen.vos {
                *checks += check(seen, node, *vo)?;
            }
        }
        Ok(())
    }
}

fn check(seen: &Seen<'_>, node: usize, vo: VoId) -> Result<u64, Violation> {
    let (world, mut checks) = (seen.world, 0);
    if !takes_part(world, node, vo) {
        return Ok(0);
    }
    let site = world.site(node).expect("all run when all is at rest");
    let publishes = |of: &usize| {
        let lie = seen.liars.iter().find(|liar| liar.site == *of);
        lie.is_none_or(|liar| named(&liar.lie).is_some_and(|lie| lie.sees_rightly()))
    };
    let members = (0..world.nodes().len()).filter(|of| takes_part(world, *of, vo));
    for of in members.filter(publishes) {
        let id = world.node(of).id;
        let shown = site.descriptions(vo).find(|(site, _)| *site == id);
        let usual = Charging::default();
        let declared = match &world.node(of).config.charging {
            charging if may_be_declared(charging) => charging,
            _ => &usual,
        };
        let is_right = match shown {
            None => declared.prices == usual.prices && declared.hosts.is_empty(),
            Some((_, shown)) => {
                let hosts = shown.hosts.iter();
                let mut hosts = hosts.map(|(host, class)| (Pattern::parse(host), class));
                let declared_hosts = declared.hosts.iter();
                let declared_hosts = declared_hosts.map(|(host, class)| (host.clone(), class));
                *shown.prices == *declared.prices
                    && hosts.by_ref().eq(declared_hosts)
                    && (seen.books.has_quotas || shown.price.is_none())
            }
        };
        if !is_right {
            let vo = vo.short();
            let message =
                format!("shows another description of site {of} in {vo} than its owner declares");
            return Err(Violation::at(node, message));
        }
        checks += 1;
    }
    Ok(checks)
}

fn takes_part(world: &World, node: usize, vo: VoId) -> bool {
    let mut mounted = world.node(node).config.vos.values();
    mounted.any(|of| *of == vo)
}

fn may_be_declared(charging: &Charging) -> bool {
    charging.prices.queues.len() + charging.prices.qos.len() <= QUEUES_MAX
}
