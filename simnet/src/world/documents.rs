//! What the authorities of VOs sign, and how it gets into the Grid.
//!
//! An authority hands a document in at one node. Where that node is down, or refuses it because an
//! earlier one has not come yet, it stays on the authority's desk: it goes first when the next one is
//! handed in, and at the latest when the Grid is healed, at the node that knows the newest charter.
//! The same holds for one whose only copies were on disks that were lost. What any node has taken is
//! never handed in again: from there on it is for the sites to spread it. A member that lies is no such
//! node: a document that only it has helps nobody. Nor is a site that only reads the policies of a VO: it may pass
//! them on to other readers alone, and to nobody once the charter lists none.
//!
//! Invariant: documents of one VO are handed in in the order in which they were signed. Deliberately
//! not here: what changes when (`swarm::faults`).

use std::collections::BTreeSet;

use fairmesh_site::Table;

use super::World;
use crate::node::SimNode;
use crate::vo::Vo;

/// A document that an authority has signed.
#[derive(Debug)]
pub(super) struct Document {
    vo: usize,
    bytes: Vec<u8>,
    /// Sites that a charter lists no more.
    without: Vec<usize>,
    /// Whether an honest node has taken it, and it is on a disk.
    is_taken: bool,
}

impl World {
    /// The first documents, which every operator was given.
    pub(super) fn give_first_documents(&mut self) {
        for (index, vo) in self.vos.clone().into_iter().enumerate() {
            for bytes in vo.documents() {
                for (member, _) in &vo.spec.members {
                    // A member that comes late gets them from the others.
                    let _ = self.publish(*member, bytes);
                }
                self.documents.push(Document {
                    vo: index,
                    bytes: bytes.to_vec(),
                    without: Vec::new(),
                    is_taken: true,
                });
            }
        }
    }

    /// Hands a document in at a node, behind those of its VO that wait.
    pub(super) fn hand_in(
        &mut self,
        node: usize,
        vo: usize,
        bytes: Vec<u8>,
        without: Vec<usize>,
    ) -> Result<(), String> {
        self.documents.push(Document {
            vo,
            bytes,
            without,
            is_taken: false,
        });
        self.hand_in_waiting(node, vo)
    }

    /// Hands in whatever waits, at nodes that can take it: those that are returned.
    pub(crate) fn hand_in_all_waiting(&mut self) -> BTreeSet<usize> {
        let waiting = self.documents.iter().filter(|document| !document.is_taken);
        let vos: BTreeSet<usize> = waiting.map(|document| document.vo).collect();
        let places = vos.into_iter();
        let places = places.filter_map(|vo| Some((vo, self.newest_at(vo)?)));
        let places: Vec<(usize, usize)> = places.collect();
        for (vo, node) in &places {
            // What it refuses waits on.
            let _ = self.hand_in_waiting(*node, *vo);
        }
        places.into_iter().map(|(_, node)| node).collect()
    }

    /// Sites, and VOs by their numbers, whose charters without them were taken since the last call.
    pub(crate) fn take_dropped(&mut self) -> Vec<(usize, usize)> {
        std::mem::take(&mut self.dropped)
    }

    /// What became of the last of them.
    fn hand_in_waiting(&mut self, node: usize, vo: usize) -> Result<(), String> {
        let mut last = Ok(());
        for index in 0..self.documents.len() {
            let document = &self.documents[index];
            if document.vo == vo && !document.is_taken {
                let bytes = document.bytes.clone();
                last = self.publish(node, &bytes).map(drop);
                let document = &mut self.documents[index];
                // A liar may never pass it on to who was down then: it waits for an honest node.
                document.is_taken = last.is_ok() && !self.liars.contains(&node);
                let gone = document.without.iter().filter(|_| last.is_ok());
                self.dropped.extend(gone.map(|site| (*site, vo)));
            }
        }
        last
    }

    /// These lie: that one of them holds a document helps nobody, as honest sites stop asking it.
    pub(crate) fn set_liars(&mut self, liars: BTreeSet<usize>) {
        self.liars = liars;
    }

    /// A disk was lost: what only it held is on its authority's desk again.
    pub(super) fn documents_lost(&mut self) {
        let documents_of = |node: &SimNode| -> BTreeSet<Vec<u8>> {
            let rows = node.disk.rows().into_iter();
            let documents = rows.filter(|(table, ..)| *table == Table::Documents);
            documents.map(|(.., bytes)| bytes).collect()
        };
        let held: Vec<_> = self.nodes.iter().map(documents_of).collect();
        for document in &mut self.documents {
            let members = self.vos[document.vo].spec.members.iter();
            let mut honest = members.filter(|(member, _)| !self.liars.contains(member));
            document.is_taken &= honest.any(|(member, _)| held[*member].contains(&document.bytes));
        }
    }

    /// Whether a node goes by the newest charter of a VO.
    pub(super) fn has_newest_charter(&self, node: usize, vo: &Vo) -> bool {
        let newest = vo.charter.claimed().version;
        let held = self.site(node).into_iter().flat_map(|site| site.held());
        let mut of_vo = held.filter(|(of, _)| *of == vo.id);
        of_vo.any(|(_, held)| held.charter_version == newest)
    }

    /// The node that goes by the newest charter of a VO.
    fn newest_at(&self, vo: usize) -> Option<usize> {
        let id = self.vos[vo].id;
        let version = |node: usize| {
            let status = self.site(node)?.vo_status(self.now_at(node));
            let of = status.into_iter().find(|status| status.vo == id)?;
            Some((of.held.charter_version, std::cmp::Reverse(node)))
        };
        let honest = (0..self.nodes.len()).filter(|node| !self.liars.contains(node));
        let newest = honest.filter_map(version).max();
        newest.map(|(_, node)| node.0)
    }
}

#[cfg(test)]
mod tests {
    use fairmesh_cluster::Seed;

    use super::*;
    use crate::vo::{OwnerSpec, VoSpec};
    use crate::world::WorldSpec;

    /// Found by `simnet check --lies withstood --seed 101353`: a policy was handed in at a liar while the only
    /// other member was down.
    #[test]
    fn a_document_that_only_a_liar_has_taken_is_handed_in_again() {
        let vos = [Vo::found(0, VoSpec::small("grid", 2)).expect("a valid VO")];
        let spec = WorldSpec::of_vos(2, &vos, &OwnerSpec::default());
        let mut world = World::founded(Seed(1), spec, &vos);
        world.crash(0);
        let mut of_liar = |lies: bool| {
            world.set_liars(if lies {
                BTreeSet::from([1])
            } else {
                BTreeSet::new()
            });
            let charter = world.vos[0].next_charter(|charter| charter.name.push('+'));
            let bytes = charter.expect("it differs");
            world.hand_in(1, 0, bytes, Vec::new()).expect("it runs");
            world.documents.last().expect("it was handed in").is_taken
        };
        assert!(!of_liar(true));
        // Those that wait go with the next one, and are taken then.
        assert!(of_liar(false));
        assert!(world.documents.iter().all(|document| document.is_taken));
    }
    /// Found by `simnet check --lies withstood --seed 150000031`: both members lost their disks within a minute, and
    /// who mounts their policy had the one that the charter no longer lets it pass on.
    #[test]
    fn a_document_that_only_a_reader_has_left_is_handed_in_again() {
        let read = Vo::found(0, VoSpec::small("read", 1)).expect("a valid VO");
        let of_all = Vo::found(1, VoSpec::small("of-all", 2)).expect("a valid VO");
        let vos = [read, of_all];
        let spec = WorldSpec::of_vos(2, &vos, &OwnerSpec::default());
        let mut world = World::founded(Seed(1), spec, &vos);
        // The other site holds what it has read.
        let disk = world.nodes[0].disk.snapshot();
        world.nodes[1].disk.restore(&disk, true);
        let mut of = |wiped: usize| {
            world.wipe(wiped, false);
            let taken = world.documents.iter();
            let taken = taken.filter(|document| document.is_taken);
            taken
                .map(|document| document.vo)
                .collect::<BTreeSet<usize>>()
        };
        assert_eq!(of(0), [1].into(), "the other member has those of its VO");
        assert_eq!(of(1), [].into());
    }
}
