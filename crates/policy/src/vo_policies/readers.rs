//! Whose policies a VO mounts, and what members of a VO that mounts this one's may have.
//!
//! Invariant: what readers may have is a function of the documents that are held. It is everything but for
//! those whom the charter in force lists no more: they get the charters up to the one that says so, and no
//! policy, so that all of them let go of it alike. Who was never listed gets nothing.
//! Deliberately not here: bringing it to them (`fairmesh-site`).

use std::collections::BTreeSet;
use std::sync::Arc;

use fairmesh_model::{Charter, ContentHash, Verified, VoId, mutated};

use super::{Active, MOUNTED_MAX, VoPolicies};
use crate::error::DocumentKind;

impl VoPolicies {
    /// The VOs whose policies those in force mount.
    pub fn mounted(&self) -> BTreeSet<VoId> {
        let policies = self.active.values().filter_map(Active::in_force);
        let mut vos: BTreeSet<VoId> = policies.flat_map(|held| &held.mounted).copied().collect();
        while vos.len() > MOUNTED_MAX {
            vos.pop_last();
        }
        vos
    }

    /// The VOs that may mount this one's policies.
    pub(super) fn readers(&self) -> BTreeSet<VoId> {
        let charter = self.chain.head().map(Verified::body);
        charter.map_or_else(BTreeSet::new, |charter| charter.readers.clone())
    }

    /// The documents that members of `reader` may have, in an order in which they can be adopted.
    pub fn shown_to(&self, reader: VoId) -> Vec<(ContentHash, Arc<[u8]>)> {
        let lists = |charter: &Verified<Charter>| {
            charter.body().readers.contains(&reader) || mutated!(AllMayRead)
        };
        let listing = self.chain.iter().enumerate();
        let Some((last, _)) = listing.filter(|(_, charter)| lists(charter)).last() else {
            return Vec::new();
        };
        let is_reader = self.chain.head().is_some_and(lists) || mutated!(FormerReadersServed);
        let documents = self.documents().enumerate();
        let shown = documents.filter(|(at, (kind, ..))| match kind {
            DocumentKind::Charter => is_reader || *at <= last + 1,
            DocumentKind::SharePolicy => is_reader,
            // Whoever mounts a policy reads shares; credit, which snapshots name too, is its members' own business.
            DocumentKind::Allocation | DocumentKind::Snapshot => false,
        });
        let shown = shown.map(|(_, (_, hash, bytes))| (hash, Arc::clone(bytes)));
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn names(vo: &VoPolicies, reader: VoId) -> usize {
        vo.shown_to(reader).len()
    }

    #[test]
    fn who_is_listed_no_more_learns_that_and_nothing_else() {
        let [reader, stranger] = [7, 8].map(|byte| VoId::from_bytes([byte; 32]));
        let (mut vo, mut last) = vo_with_delegates();
        assert_eq!(names(&vo, reader), 0);
        // A charter that names no reader has the bytes that it had before there were any.
        let says = |bytes: &[u8]| bytes.windows(7).any(|word| word == b"readers");
        assert!(!says(last.bytes()));
        // Charters and policies after each charter: listed or not, and what it comes to.
        for (lists, shown) in [(true, 3), (false, 3), (false, 3), (true, 6)] {
            let mut next = next_charter(&last);
            next.readers = lists.then_some(reader).into_iter().collect();
            last = sign_charter(next, &[1]);
            vo.adopt_charter(last.clone()).expect("it follows");
            assert_eq!((names(&vo, reader), says(last.bytes())), (shown, lists));
            assert_eq!(names(&vo, stranger), 0);
        }
        // A reader that adopts what it is shown shows the same, wherever it stopped.
        let mut read = VoPolicies::new(vo.vo());
        for (_, bytes) in vo.shown_to(reader) {
            let charter =
                fairmesh_model::Signed::parse(&bytes).map(|signed| read.adopt_charter(signed));
            if charter.is_err() {
                read.adopt(DocumentKind::SharePolicy, &bytes)
                    .expect("its charters are here");
            }
        }
        assert_eq!(read.digest(), vo.digest());
        assert_eq!(read.shown_to(reader), vo.shown_to(reader));
    }
}
