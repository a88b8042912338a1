//! What sites say of their free CPUs is not old, and not more than they have.
//!
//! Source: docs/placement.md, "What a site says of itself".
//!
//! Invariant checked: a head that a site signs says of free CPUs what was so no longer ago than sites may be silent. At
//! rest every other member takes all CPUs for free, as nothing runs, but for fewer than make a head of their own: those
//! of the machines that the owner declares, or, where there are none, those that a charter lists for the site.
//! Deliberately not here: what is promised to VOs, which no owner here does.

use fairmesh_model::{Share, SiteId};
use fairmesh_site::{AdvertRules, Site};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

pub(super) struct Adverts;

impl Invariant for Adverts {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for of in &seen.facts.adverts {
            let config = &seen.world.node(of.node).config;
            let (signed, at) = (of.signed, of.advert.at);
            let silence = config.timing.silence;
            let message = if rules(seen, of.node).is_none() {
                "says how much is free, which its owner does not want".to_owned()
            } else if at > signed || signed.since(at) > silence {
                let (signed, at, silence) = (signed.0, at.0, silence.0);
                format!("says at {signed} what was free at {at}; that is older than {silence} ms")
            } else {
                *checks += 1;
                continue;
            };
            return Err(Violation::at(of.node, message));
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.after_step(seen, checks)?;
        for node in seen.nodes() {
            let site = seen.world.site(node).expect("all run when all is at rest");
            for vo in site_vos(seen, node) {
                let adverts = site.adverts(vo);
                let honest = adverts.filter(|(of, _)| *of != site.id() && !seen.lies(*of));
                for (of, advert) in honest {
                    let Some(advert) = advert else { continue };
                    let of = seen.world.index_of(of).expect("a charter lists it");
                    let right = seen.world.site(of).map(|site| total(seen, of, site));
                    let (free, total) = (advert.free, advert.total);
                    let taken = u128::from(total.abs_diff(free));
                    let is_little = rules(seen, of).is_some_and(|rules| {
                        let change = u128::from(total) * u128::from(rules.change.units());
                        taken * u128::from(Share::ONE) < change
                    });
                    let is_free = taken == 0 || is_little;
                    if !is_free || advert.waiting > 0 || right != Some(total) {
                        let message = format!(
                            "takes {free} of {total} CPUs of site {of} for free; nothing runs, and it has {right:?}"
                        );
                        return Err(Violation::at(node, message));
                    }
                    *checks += 1;
                }
            }
        }
        Ok(())
    }
}

fn rules<'a>(seen: &'a Seen<'_>, node: usize) -> Option<&'a AdvertRules> {
    seen.world.node(node).config.advert.as_ref()
}

/// CPUs of the machines that the owner declares; where there are none, the most that a charter lists.
fn total(seen: &Seen<'_>, node: usize, site: &Site) -> u64 {
    let prices = &seen.world.node(node).config.charging.prices;
    let classes = prices.machines.values();
    let declared: u64 = classes
        .map(|of| u64::from(of.count) * u64::from(of.cpus))
        .sum();
    let id: SiteId = site.id();
    let documents = seen.vos.iter().flat_map(|vo| site.documents(*vo));
    let held = seen.oracle.documents.in_force(documents);
    let listed = held.values().filter_map(|held| held.charter.member(id));
    let listed = listed.map(|member| u64::from(member.cores)).max();
    match declared {
        0 => listed.unwrap_or(0),
        declared => declared,
    }
}
