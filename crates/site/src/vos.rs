//! The VOs of a site: those that it takes part in, those that its owner has left, and those of which it only reads
//! policies.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fairmesh_gossip::Shared;
use fairmesh_model::{SiteId, VoId, WallTime, WindowLength};
use fairmesh_policy::VoPolicies;

use crate::adoptions::Adoptions;
use crate::audit::Audit;
use crate::config::SiteConfig;
use crate::kinds::{AUDIT, REACH};
use crate::own::{Bounds, Own};
use crate::published::Summed;
use crate::reach::Reach;
use crate::vo::Vo;

/// A map of the VOs that the site takes part in, with what is held of others.
#[derive(Debug)]
pub(crate) struct Vos {
    pub(crate) members: BTreeMap<VoId, Vo>,
    /// VOs that the configuration does not name any more, kept for when one is named again.
    pub(crate) left: BTreeMap<VoId, Vo>,
    /// Charters and policies of VOs that the site takes no part in, and whose policies others mount.
    pub(crate) read: BTreeMap<VoId, Arc<VoPolicies>>,
    /// Documents that came into force here.
    pub(crate) adoptions: Adoptions,
}

impl Vos {
    /// VOs that the site takes part in, and no others.
    pub(crate) fn new(members: BTreeMap<VoId, Vo>) -> Self {
        Self {
            members,
            left: BTreeMap::new(),
            read: BTreeMap::new(),
            adoptions: Adoptions::new(),
        }
    }

    /// The VOs that the site takes part in.
    pub(crate) fn ids(&self) -> Vec<VoId> {
        self.keys().copied().collect()
    }

    pub(crate) fn listed(&mut self, vo: VoId) -> &mut Vo {
        self.get_mut(&vo).expect("the site takes part in it")
    }

    /// Length of the windows in which usage of a VO, or of the site's own accounts, is counted.
    pub(crate) fn window(&self, config: &SiteConfig, vo: Option<VoId>) -> WindowLength {
        vo.map_or(config.local_window, |vo| self[&vo].window())
    }

    /// What bounds own usage of a VO; nothing does that of the site's own accounts.
    pub(crate) fn bounds(&self, vo: Option<VoId>) -> Option<Bounds> {
        vo.map(|vo| self[&vo].bounds())
    }

    /// Whether the charter of a VO is here: without it nobody can say in which windows, and by which
    /// rule, its usage counts.
    pub(crate) fn is_founded(&self, vo: VoId) -> bool {
        self.get(&vo).is_some_and(Vo::is_founded)
    }

    /// Whether every VO has its charter.
    pub(crate) fn has_all_charters(&self) -> bool {
        self.values().all(Shared::is_founded)
    }

    /// Whether a peer has sent what it holds of the earlier incarnations of this site `own`, or holds the same; or
    /// there is no peer.
    pub(crate) fn knows_own_past(&self, own: SiteId, vo: VoId) -> bool {
        let held = &self[&vo];
        held.is_alone() || (!held.told_by.is_empty() && !held.replica.is_fetching(own))
    }

    /// The newest moment of a job in what a site published, in any VO.
    pub(crate) fn reach_of(&self, site: SiteId) -> Option<WallTime> {
        let replicas = self.values().map(|vo| &vo.replica);
        let parts = replicas.flat_map(|replica| {
            let heads = replica.heads_of(site).map(|head| head.body().incarnation);
            heads.flat_map(move |head| replica.parts_of(site, head, REACH))
        });
        let reaches = parts.filter_map(|(_, bytes)| Reach::from_bytes(bytes));
        let newest = reaches.map(Reach::newest).max();
        newest.filter(|until| *until > WallTime(0))
    }

    /// A large day of a member was summed up. A VO that was left since has forgotten it.
    pub(crate) fn take_sum(&mut self, vo: VoId, summed: Summed) {
        if let Some(held) = self.get_mut(&vo) {
            held.published.take_sum(summed);
        }
    }

    /// Changes what members are told that this site has taken back.
    pub(crate) fn change_audit(
        &mut self,
        own: &mut Own,
        vo: VoId,
        change: impl FnOnce(&mut Audit),
    ) {
        if let Some(held) = self.get_mut(&vo) {
            change(&mut held.audit);
            own.set_parts(vo, AUDIT, held.audit.parts());
        }
    }
}

impl Deref for Vos {
    type Target = BTreeMap<VoId, Vo>;

    fn deref(&self) -> &Self::Target {
        &self.members
    }
}

impl DerefMut for Vos {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.members
    }
}
