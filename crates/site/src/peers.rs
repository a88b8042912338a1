//! The part of a site that concerns other nodes: the anti-entropy, and who may speak.

use std::collections::{BTreeMap, VecDeque};

use fairmesh_gossip::Gossip;
use fairmesh_model::SiteId;

use crate::advert::pending::Confirms;
use crate::cx::Cx;
use crate::event::Effect;
use crate::vo::Vo;
use crate::vos::Vos;

/// Most callers that are let in while a VO has no charter: the last ones. They may be anyone, and have a member's
/// budgets.
const CALLERS_MAX: usize = 8;

/// Most former members that are let in for the charter that removes them: twice the sites of the largest VO. Of more,
/// those of the newest charters are; the others read that no site can be reached.
const FORMER_MAX: usize = 4_000;

/// What a site knows of other nodes.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) gossip: Gossip,
    /// Sites that called while a VO has no charter here: only the charter says which of them are members.
    pub(crate) callers: VecDeque<SiteId>,
    /// Whether the list of sites that may speak is to be announced again.
    pub(crate) are_stale: bool,
    /// Calls that wait for what other sites answer about their free CPUs.
    pub(crate) confirms: Confirms,
}

impl Peers {
    /// A site has called that is not allowed. While a VO has no charter here, the caller may be a member, so it is
    /// let in when it calls again, and asked for the documents of that VO and nothing else. A false charter does no
    /// harm: a VO's id is the hash of its first one.
    pub(crate) fn take_caller(&mut self, vos: &Vos, caller: SiteId) {
        if vos.has_all_charters() || self.callers.contains(&caller) {
            return;
        }
        if self.callers.len() >= CALLERS_MAX {
            self.callers.pop_front();
        }
        self.callers.push_back(caller);
        self.are_stale = true;
    }

    /// Callers that are let in. Once all charters are here, these say who is.
    fn admitted_callers(&mut self, vos: &Vos) -> impl Iterator<Item = SiteId> {
        if vos.has_all_charters() {
            self.callers.clear();
        }
        self.callers.iter().copied()
    }

    /// Says who may speak: members of our VOs, those whom the owner trusts to introduce us, and callers that may; and
    /// who may come for the charter that removes it.
    pub(crate) fn announce(&mut self, cx: &mut Cx, vos: &Vos) {
        self.are_stale = false;
        let mut sites = cx.config.introducers.clone();
        sites.extend(self.admitted_callers(vos));
        let mut addresses: BTreeMap<SiteId, Vec<String>> = BTreeMap::new();
        for charter in vos.values().filter_map(Vo::charter) {
            for member in charter.sites.iter().filter(|member| member.site != cx.id) {
                sites.insert(member.site);
                let known = addresses.entry(member.site).or_default();
                for address in &member.addresses {
                    if !known.contains(address) {
                        known.push(address.clone());
                    }
                }
            }
        }
        let listed = vos.values().flat_map(Vo::listed);
        let is_former = |site: &SiteId| !sites.contains(site) && *site != cx.id;
        let former = listed.filter(is_former).take(FORMER_MAX).collect();
        cx.effects.push(Effect::Allow {
            sites,
            former,
            addresses,
        });
        for (vo, held) in vos.iter() {
            if let Some(charter) = held.charter() {
                let members = charter.sites.iter().map(|member| member.site).collect();
                cx.effects.push(Effect::Subscribe { vo: *vo, members });
            }
        }
    }
}
