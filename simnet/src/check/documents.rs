//! What the authorities of VOs sign, and how it gets into the Grid.
//!
//! An authority hands a document in at one node. Where that node is down, or refuses it because an
//! earlier one has not come yet, it stays on the authority's desk: it goes first when the next one is
//! handed in, and at the latest when the Grid is healed, at the node that knows the newest charter.
//! The same holds for one whose only copies were on disks that were lost. What any node has taken is
//! never handed in again: from there on it is for the sites to spread it.
//!
//! Deliberately not here: what changes when (`swarm::faults`).

use fairmesh_model::VoId;
use fairmesh_site::Table;

use super::Run;
use crate::oracle::held_on_disk;
use crate::vo::{Vo, site_id};
use crate::world::{StepKind, World};

/// A document that an authority has signed.
#[derive(Debug)]
pub(super) struct Document {
    vo: usize,
    bytes: Vec<u8>,
    /// The site that a charter lists no more.
    without: Option<usize>,
    /// Whether a node has taken it, and it is on a disk.
    is_taken: bool,
}

/// The first documents, which every operator was given.
pub(super) fn first_documents(vos: &[Vo]) -> Vec<Document> {
    let of = |(vo, founded): (usize, &Vo)| {
        [founded.charter.bytes(), founded.policy.bytes()].map(|bytes| Document {
            vo,
            bytes: bytes.to_vec(),
            without: None,
            is_taken: true,
        })
    };
    vos.iter().enumerate().flat_map(of).collect()
}

impl Run {
    /// Hands a document in at a node, behind those of its VO that wait.
    pub(super) fn hand_in(&mut self, node: usize, vo: usize, bytes: Vec<u8>) {
        self.hand_in_without(node, vo, bytes, None);
    }

    /// The same of a charter that does not list a site any more.
    pub(super) fn hand_in_without(
        &mut self,
        node: usize,
        vo: usize,
        bytes: Vec<u8>,
        without: Option<usize>,
    ) {
        self.documents.push(Document {
            vo,
            bytes,
            without,
            is_taken: false,
        });
        self.hand_in_waiting(node, vo);
    }

    /// Hands in whatever waits, at nodes that can take it.
    pub(super) fn hand_in_all_waiting(&mut self) {
        for vo in 0..self.vos.len() {
            if let Some(node) = newest_at(&self.world, self.ids[vo]) {
                self.hand_in_waiting(node, vo);
            }
        }
    }

    fn hand_in_waiting(&mut self, node: usize, vo: usize) {
        let mine = |document: &&mut Document| document.vo == vo && !document.is_taken;
        let mut tried = false;
        let mut dropped = Vec::new();
        for document in self.documents.iter_mut().filter(mine) {
            document.is_taken = self.world.publish(node, &document.bytes).is_ok();
            dropped.extend(document.without.filter(|_| document.is_taken));
            tried = true;
        }
        for site in dropped {
            self.dropped(site, vo);
        }
        if tried {
            self.look(Some(node), StepKind::Publish, true);
        }
    }

    /// A charter that does not list a site is in force from now on. What peers hold of the site goes
    /// with it; what the site has lost itself nobody can bring along when it is listed again.
    fn dropped(&mut self, site: usize, vo: usize) {
        if self.is_fragile(site) {
            let held = held_on_disk(&self.world);
            let mut survived = self.oracle.published.said(site_id(site), &held);
            survived.remove(&self.ids[vo]);
            self.oracle.lost_elsewhere(site, &survived);
        }
    }

    /// A disk was lost: what only it held is on its authority's desk again.
    pub(super) fn documents_lost(&mut self) {
        let nodes = self.world.nodes().iter();
        let rows = nodes.flat_map(|node| node.disk.rows());
        let held: Vec<Vec<u8>> = rows
            .filter(|(table, ..)| *table == Table::Documents)
            .map(|(.., bytes)| bytes)
            .collect();
        for document in &mut self.documents {
            document.is_taken &= held.contains(&document.bytes);
        }
    }
}

/// The node that goes by the newest charter of a VO.
fn newest_at(world: &World, vo: VoId) -> Option<usize> {
    let version = |node: usize| {
        let status = world.site(node)?.vo_status(world.now_at(node));
        let of = status.into_iter().find(|status| status.vo == vo)?;
        Some((of.charter_version, std::cmp::Reverse(node)))
    };
    let newest = (0..world.nodes().len()).filter_map(version).max();
    newest.map(|(_, node)| node.0)
}
