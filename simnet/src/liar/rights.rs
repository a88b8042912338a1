//! Members that show rights which they do not have, or the same rights to several.
//!
//! Their nodes run the real code until they lie, and are gone from then on: what is shown is signed with their keys.
//! Invariant: what is forged goes on from the last head that the node has pushed itself.
//! Deliberately not here: who is shown what, and when (the experiment `quotas liars`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fairmesh_model::VoId;
use fairmesh_quota::{Row, SliceId};
use fairmesh_site::Effect;

use super::wire::Forger;
use crate::world::Tamper;

/// What has been seen of the nodes that are going to lie. Clones are the same.
#[derive(Clone)]
pub struct Forgers(Rc<RefCell<BTreeMap<usize, Forger>>>);

impl Forgers {
    /// Of these nodes.
    pub fn new(nodes: impl IntoIterator<Item = usize>) -> Self {
        let forger = |node| (node, Forger::new(node, BTreeMap::new()));
        Self(Rc::new(RefCell::new(
            nodes.into_iter().map(forger).collect(),
        )))
    }

    /// A push of the next head of a node's site, which has this row.
    ///
    /// # Panics
    /// Where the node has pushed no head yet.
    pub fn head(&self, node: usize, vo: VoId, id: SliceId, row: &Row) -> Vec<u8> {
        let forgers = self.0.borrow();
        let push = forgers[&node].with_rights(vo, id, row);
        push.expect("it has pushed a head, and keeps its parts")
    }
}

impl Tamper for Forgers {
    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        if let Some(forger) = self.0.borrow_mut().get_mut(&node) {
            effects.iter().for_each(|effect| forger.sees(effect));
        }
    }
}
