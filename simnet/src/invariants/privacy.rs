//! What the members of a VO hold stays among them.
//!
//! Invariant checked: a node answers questions about a VO to sites that the charter by which it goes
//! lists, and refuses them to all others. Deliberately not here: who is pushed what, which the network
//! sees to, and liars, who may say anything to anybody.

use fairmesh_model::{Charter, Signed, SiteId, VoId};
use fairmesh_site::Site;

use super::{Invariant, Seen, Violation};

/// The checker.
pub(super) struct Privacy;

/// Whether the newest charter that a site holds lists another.
fn lists(site: &Site, vo: VoId, other: SiteId) -> bool {
    let documents = site.documents(vo).into_iter();
    let charters = documents.filter_map(|bytes| Signed::<Charter>::parse(&bytes).ok());
    let newest = charters.max_by_key(|charter| charter.claimed().version);
    newest.is_some_and(|charter| charter.claimed().member(other).is_some())
}

impl Invariant for Privacy {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let known = seen.world.founded_vos();
        for served in &seen.facts.served {
            *checks += 1;
            // Almost always the last charter lists whoever asks.
            let last = known.iter().find(|vo| vo.id == served.vo);
            let is_listed = last.is_some_and(|vo| vo.charter.claimed().member(served.to).is_some());
            let Some(site) = seen.world.site(served.node).filter(|_| !is_listed) else {
                continue;
            };
            if !lists(site, served.vo, served.to) {
                let (to, vo) = (served.to.short(), served.vo.short());
                let message = format!("answers site {to} about VO {vo}, of which it is no member");
                return Err(Violation::at(served.node, message));
            }
        }
        Ok(())
    }
}
