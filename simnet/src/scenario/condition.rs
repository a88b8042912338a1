//! What must hold after every step and at the end of a scenario, whatever its file says.
//!
//! Invariant: a condition reads the world and changes nothing in it.
//! Deliberately not here: what a file expects at its own times (`judge`).

use std::collections::BTreeMap;

use fairmesh_model::VoId;

use crate::facts::watch::SharedFacts;
use crate::world::{StepInfo, World};

/// What was acknowledged so far, by VO, in core-milliseconds. Counted by hand from the records, so
/// that it owes nothing to what is tested.
pub type Acknowledged = BTreeMap<VoId, u64>;

/// Watches a world.
pub trait Condition {
    /// Where what sites do is to be noted, if anybody wants to know.
    fn facts(&self) -> Option<SharedFacts> {
        None
    }

    /// A node loses its store, or gets an older one, and its side file unless it `keeps_side`.
    fn forgot(&mut self, _node: usize, _keeps_side: bool) {}

    /// After one step; `Err` says what is broken and ends the run.
    fn step(&mut self, world: &World, step: &StepInfo) -> Result<(), String>;

    /// At the end, when all faults are healed and all has come to rest.
    fn end(&mut self, world: &World, acknowledged: &Acknowledged) -> Result<(), String>;
}

/// At the end all running members of each VO agree, and know of what was acknowledged, to the unit.
#[derive(Debug, Clone, Copy, Default)]
pub struct CalmEnd;

impl Condition for CalmEnd {
    fn step(&mut self, _: &World, _: &StepInfo) -> Result<(), String> {
        Ok(())
    }

    fn end(&mut self, world: &World, acknowledged: &Acknowledged) -> Result<(), String> {
        for vo in world.vos() {
            if !world.agree(vo) {
                return Err(format!("sites do not agree on VO {}", vo.short()));
            }
            let expected = acknowledged.get(&vo).copied().unwrap_or(0);
            for node in world.nodes().iter().filter(|node| node.is_up()) {
                if !node.config.vos.values().any(|of| *of == vo) {
                    continue;
                }
                let known = known(world, node.index, vo);
                if known != expected {
                    return Err(format!(
                        "site {} knows of {known} core-ms of VO {}, {expected} were acknowledged",
                        node.index,
                        vo.short()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// All charge of a VO that a node knows of; 0 while it is down.
pub(super) fn known(world: &World, node: usize, vo: VoId) -> u64 {
    let Some(site) = world.site(node) else {
        return 0;
    };
    let by_account = site.usage_by_account(Some(vo));
    by_account.values().map(|counters| counters.charge).sum()
}
