//! Who has been shown two heads of a liar with one number.
//!
//! Invariant: whoever is said to have been shown both held the one as far as is known, since his node was last started,
//! and got the other. Deliberately not here: how such heads are forged (`wire`).

use std::collections::BTreeMap;

use fairmesh_gossip::Head;
use fairmesh_gossip::wire::Push;
use fairmesh_model::{Signed, SiteId};
use fairmesh_site::{HeadId, Table, Write};

/// Heads of one liar.
#[derive(Default)]
pub(super) struct Caught {
    /// Those that other nodes hold, by their places.
    held: BTreeMap<(usize, HeadId), Signed<Head>>,
    /// Those that contradict one of its node's, or each other, by the pushes that they are in.
    forged: BTreeMap<Vec<u8>, Signed<Head>>,
}

impl Caught {
    /// A contradiction is pushed.
    pub(super) fn forges(&mut self, push: &[u8]) {
        let head = Push::from_bytes(push).ok().and_then(|push| push.head(None));
        self.forged.extend(head.map(|head| (push.to_vec(), head)));
    }

    /// Another node keeps a head of the site `of`, or lets go of it.
    pub(super) fn keeps(&mut self, node: usize, of: SiteId, write: &Write) {
        let id = HeadId::of_key(&write.key).map(|(id, _)| id);
        let Some(id) = id.filter(|id| write.table == Table::Heads && id.site == of) else {
            return;
        };
        let head = write.value.as_deref().map(Signed::<Head>::parse);
        match head.and_then(Result::ok) {
            Some(head) => drop(self.held.insert((node, id), head)),
            None => drop(self.held.remove(&(node, id))),
        }
    }

    /// Another node starts: what it holds is not known before it keeps it anew.
    pub(super) fn starts(&mut self, node: usize) {
        self.held.retain(|(of, _), _| *of != node);
    }

    /// Whether a push shows another node the second of two heads with one number.
    pub(super) fn is_by(&self, node: usize, push: &[u8]) -> bool {
        let Some(head) = self.forged.get(push) else {
            return false;
        };
        let (vo, site) = (head.claimed().vo, head.claimed().site);
        let incarnation = head.claimed().incarnation;
        let id = HeadId {
            vo,
            site,
            incarnation,
        };
        let held = self.held.get(&(node, id));
        held.is_some_and(|held| {
            held.claimed().seq == head.claimed().seq && held.bytes() != head.bytes()
        })
    }
}
