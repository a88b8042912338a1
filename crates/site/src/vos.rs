//! The VOs of a site: those that it takes part in, those that its owner has left, and those whose policies it only reads.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fairmesh_model::VoId;
use fairmesh_policy::VoPolicies;

use crate::adoptions::Adoptions;
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

    /// One of [`Vos::ids`].
    pub(crate) fn listed(&mut self, vo: VoId) -> &mut Vo {
        self.get_mut(&vo).expect("the site takes part in it")
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
