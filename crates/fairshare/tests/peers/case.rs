//! A peer's case: a tree, the peer's order, and where ours is another one.

use fairmesh_model::Distance;

use crate::tree::{BITS, FAIRTREE, Prepare, RANK, Tree};

/// An order of ours that a peer's is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Fair Tree: share ÷ usage among siblings.
    FairTree,
    /// The exact order under the relative distance: by ratio, too.
    Ratio,
    /// The exact order under the absolute distance, which is the default: target − actual share.
    Difference,
}

/// One case.
pub(crate) struct Case {
    /// Project, file and test.
    pub(crate) source: &'static str,
    /// Path, shares and usage; that of an inner entry is the sum of what is below it.
    pub(crate) tree: &'static [(&'static str, u64, u64)],
    /// The leaves as the peer serves them, by the last names of their paths: `>` before, `=` tied.
    pub(crate) order: &'static str,
    /// Where ours is another order: which it is, and why.
    pub(crate) differs: &'static [(By, &'static str, &'static str)],
}

impl By {
    const ALL: [Self; 3] = [Self::FairTree, Self::Ratio, Self::Difference];

    const fn distance(self) -> Distance {
        match self {
            Self::FairTree | Self::Ratio => Distance::Relative,
            Self::Difference => Distance::Absolute,
        }
    }

    fn projection(self) -> Prepare {
        match self {
            Self::FairTree => FAIRTREE,
            Self::Ratio | Self::Difference => RANK,
        }
    }
}

impl Case {
    /// The leaves, in the order of the tree.
    pub(crate) fn leaves(&self) -> Vec<&'static str> {
        let paths = self.tree.iter().map(|(path, ..)| *path);
        let is_leaf = |path: &&str| {
            let below = format!("{path}/");
            !self
                .tree
                .iter()
                .any(|(other, ..)| other.starts_with(&below))
        };
        paths.filter(is_leaf).collect()
    }

    pub(crate) fn built(&self, distance: Distance) -> Tree {
        let rows = self.tree.iter();
        let lines: Vec<_> = rows.map(|(path, shares, _)| (*path, *shares)).collect();
        let used = self.tree.iter().filter(|(.., usage)| *usage > 0);
        let used: Vec<_> = used.map(|(path, _, usage)| (*path, *usage)).collect();
        Tree::new(&lines, distance).with(&used)
    }

    /// Each of our orders that is neither the peer's nor the one that the case records.
    fn surprises(&self) -> Vec<String> {
        let leaves = self.leaves();
        let mut surprises = Vec::new();
        for by in By::ALL {
            let served = self.built(by.distance()).served(by.projection(), &leaves);
            let recorded = self.differs.iter().find(|(other, ..)| *other == by);
            let (expected, why) =
                recorded.map_or((self.order, "as the peer"), |(_, ours, why)| (*ours, *why));
            if served != expected {
                surprises.push(format!(
                    "{}, {by:?}: {served} instead of {expected} ({why})",
                    self.source
                ));
            }
            if recorded.is_some() && expected == self.order {
                surprises.push(format!(
                    "{}, {by:?}: the recorded order is the peer's",
                    self.source
                ));
            }
        }
        for distance in [Distance::Relative, Distance::Absolute] {
            surprises.extend(self.inverted_by_bits(&self.built(distance), &leaves));
        }
        surprises
    }

    /// Pairs of leaves that packed digits serve in the opposite order to the exact one.
    fn inverted_by_bits(&self, tree: &Tree, leaves: &[&str]) -> Vec<String> {
        let [exact, bits] = [RANK, BITS].map(|prepare| tree.ranks(prepare, leaves));
        let pairs = (0..leaves.len()).flat_map(|a| (0..leaves.len()).map(move |b| (a, b)));
        let inverted = pairs.filter(|(a, b)| exact[*a] <= exact[*b] && bits[*a] > bits[*b]);
        inverted
            .map(|(a, b)| {
                format!(
                    "{}: bits invert {} and {}",
                    self.source, leaves[a], leaves[b]
                )
            })
            .collect()
    }
}

/// Asserts that our orders of all `cases` are as they say.
pub(crate) fn check<'a>(cases: impl IntoIterator<Item = &'a Case>) {
    let surprises: Vec<String> = cases.into_iter().flat_map(Case::surprises).collect();
    assert!(surprises.is_empty(), "{surprises:#?}");
}
