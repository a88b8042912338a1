//! What a world is made from, beside its seed.
//!
//! Invariant: a specification holds no chance. What differs from run to run comes from the seed, or
//! from whoever wrote the specification.
//!
//! Deliberately not here: VOs and load; configurations already name their VOs.

use std::collections::BTreeSet;

use fairmesh_model::{Millis, WallTime};
use fairmesh_site::SiteConfig;

use crate::network::NetworkSpec;
use crate::vo::{OwnerSpec, START, Vo, site_config};

/// A world before it begins.
#[derive(Debug, Clone)]
pub struct WorldSpec {
    /// One node for each, in order; node `n` has the key `vo::site_key(n)`.
    pub configs: Vec<SiteConfig>,
    /// What their owners have decided alike.
    pub owner: OwnerSpec,
    /// Nodes that are started later, by a story.
    pub late: BTreeSet<usize>,
    /// What right wall clocks show when the world begins.
    pub start: WallTime,
    /// Shortest time between two ticks of one node.
    pub tick: Millis,
    /// The network.
    pub network: NetworkSpec,
    /// Whether journals outlive their stores.
    pub keeps_journal: bool,
    /// Whether nodes are busy now and then, so that rounds have several inputs, begin their journals
    /// anew early, as is drawn, and have bits flipped in their files, too.
    pub is_busy: bool,
    /// Entries that the event log remembers.
    pub log_entries: usize,
}

impl WorldSpec {
    /// A calm world of the given nodes.
    pub fn new(configs: Vec<SiteConfig>) -> Self {
        Self {
            configs,
            owner: OwnerSpec::default(),
            late: BTreeSet::new(),
            start: START,
            tick: Millis(1_000),
            network: NetworkSpec::default(),
            keeps_journal: false,
            is_busy: false,
            log_entries: 256,
        }
    }

    /// A calm world of `sites` nodes whose owners decide alike: each mounts the VOs that list it.
    pub fn of_vos(sites: usize, vos: &[Vo], owner: &OwnerSpec) -> Self {
        let configs = (0..sites).map(|site| site_config(site, vos, owner));
        Self {
            owner: owner.clone(),
            ..Self::new(configs.collect())
        }
    }
}
