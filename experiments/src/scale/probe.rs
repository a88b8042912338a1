//! Watching which way changes come.
//!
//! Invariant: nothing is changed; a world with a probe has the trace of one without.
//! Deliberately not here: when things came (the caller has the time).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fairmesh_model::SiteId;
use fairmesh_site::{Effect, Event};

use simnet::vo::site_id;
use simnet::world::Tamper;

/// What was seen; shared with the copy that sits in the world.
#[derive(Debug, Clone)]
pub(super) struct Probe(Rc<RefCell<Seen>>);

#[derive(Debug)]
struct Seen {
    nodes: BTreeMap<SiteId, usize>,
    /// Pushes that sites made of their own, with who made them. Empty while nobody looks.
    made: Option<Vec<(usize, Vec<u8>)>>,
    /// Whom the last event of each node came from.
    last_from: Vec<Option<usize>>,
    /// The push that the last event of each node was.
    last_push: Vec<Option<Vec<u8>>>,
}

impl Probe {
    pub(super) fn new(sites: usize) -> Self {
        Self(Rc::new(RefCell::new(Seen {
            nodes: (0..sites).map(|node| (site_id(node), node)).collect(),
            made: None,
            last_from: vec![None; sites],
            last_push: vec![None; sites],
        })))
    }

    /// Begins to remember what is pushed.
    pub(super) fn begin(&self) {
        self.0.borrow_mut().made = Some(Vec::new());
    }

    /// What was pushed since then, and by whom.
    pub(super) fn end(&self) -> Vec<(usize, Vec<u8>)> {
        self.0.borrow_mut().made.take().unwrap_or_default()
    }

    /// Who sent what this node had last, and what was pushed to it, if something was.
    pub(super) fn last(&self, node: usize) -> (Option<usize>, Option<Vec<u8>>) {
        let mut seen = self.0.borrow_mut();
        (seen.last_from[node], seen.last_push[node].take())
    }
}

impl Tamper for Probe {
    fn event(&mut self, node: usize, event: &mut Event) {
        let mut seen = self.0.borrow_mut();
        let (from, push) = match event {
            Event::Pushed { from, bytes, .. } => (Some(*from), Some(bytes.clone())),
            Event::Requested { from, .. } | Event::Answered { from, .. } => (Some(*from), None),
            _ => (None, None),
        };
        let from = from.and_then(|from| seen.nodes.get(&from).copied());
        seen.last_from[node] = from;
        seen.last_push[node] = push;
    }

    fn effects(&mut self, node: usize, effects: &mut Vec<Effect>) {
        let mut seen = self.0.borrow_mut();
        let Some(made) = &mut seen.made else {
            return;
        };
        for effect in effects {
            if let Effect::Push { bytes, .. } = effect {
                made.push((node, bytes.clone()));
            }
        }
    }
}
