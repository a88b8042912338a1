//! The policy and the Grid of the FSGrid paper's evaluation, as data.
//!
//! Invariant: below every entry that has children, the children's shares add up to 100 percent, so
//! the leaves' targets add up to the whole.
//!
//! Source: Elmroth & Gardfjäll, "Design and Evaluation of a Decentralized System for Grid-wide
//! Fairshare Scheduling" (e-Science 2005, pages 221–229), Figure 4 (the policy) and section 5 (six
//! sites of 100 CPUs). Assumed, for they are not printed: the 60 and 40 percent of two siblings, and
//! the 50 and 20 beside the 30 of three.

use fairmesh_model::{AccountPath, Share};

use crate::broker::Broker;
use crate::job::AccountKey;
use crate::workload::LeafLoad;

/// How many sites there are.
pub const SITES: usize = 6;

/// CPUs of each site.
pub const CORES_PER_SITE: u32 = 100;

/// The VOs; their order gives the index in an [`AccountKey`].
pub const VOS: [&str; 2] = ["VO-A", "VO-B"];

/// One line of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyEntry {
    /// Index of its VO in [`VOS`].
    pub vo: usize,
    /// Path within the VO; `/` is the VO itself.
    pub path: &'static str,
    /// Share of the parent, in percent.
    pub percent: u32,
}

/// Figure 4 and what is assumed, parents before children.
pub const POLICY: [PolicyEntry; 10] = [
    PolicyEntry {
        vo: 0,
        path: "/",
        percent: 30,
    },
    PolicyEntry {
        vo: 0,
        path: "/P-A1",
        percent: 50,
    },
    PolicyEntry {
        vo: 0,
        path: "/P-A2",
        percent: 30,
    },
    PolicyEntry {
        vo: 0,
        path: "/P-A3",
        percent: 20,
    },
    PolicyEntry {
        vo: 1,
        path: "/",
        percent: 70,
    },
    PolicyEntry {
        vo: 1,
        path: "/P-B1",
        percent: 60,
    },
    PolicyEntry {
        vo: 1,
        path: "/P-B1/U-B11",
        percent: 50,
    },
    PolicyEntry {
        vo: 1,
        path: "/P-B1/U-B12",
        percent: 30,
    },
    PolicyEntry {
        vo: 1,
        path: "/P-B1/U-B13",
        percent: 20,
    },
    PolicyEntry {
        vo: 1,
        path: "/P-B2",
        percent: 40,
    },
];

impl PolicyEntry {
    /// The account of the entry in the simulation.
    pub fn account(&self) -> AccountKey {
        let path = AccountPath::parse(self.path).expect("the paper's names are valid paths");
        AccountKey { vo: self.vo, path }
    }

    /// The entry's share of its parent.
    pub fn share(&self) -> Share {
        Share::from_percent(self.percent).expect("the paper's shares are percentages")
    }
}

/// The accounts that jobs are charged to, with their targets as shares of the whole Grid, in the
/// policy's order.
pub fn leaves() -> Vec<(AccountKey, Share)> {
    let entries = POLICY.map(|entry| (entry.account(), entry.share()));
    let above = |leaf: &AccountKey, entry: &AccountKey| {
        leaf.vo == entry.vo && leaf.path.starts_with(&entry.path)
    };
    let is_leaf = |account: &AccountKey| {
        !entries
            .iter()
            .any(|(other, _)| other != account && above(other, account))
    };
    let target = |leaf: &AccountKey| {
        let shares = entries.iter().filter(|(entry, _)| above(leaf, entry));
        shares.fold(Share::WHOLE, |product, (_, share)| {
            let product = u64::from(product.units()) * u64::from(share.units());
            Share::from_ratio(product, u64::from(Share::ONE) * u64::from(Share::ONE))
        })
    };
    let leaves = entries
        .iter()
        .map(|(account, _)| account)
        .filter(|account| is_leaf(account));
    leaves.map(|leaf| (leaf.clone(), target(leaf))).collect()
}

/// The leaves' load: each sends its jobs to any site, from the beginning and for ever.
pub fn leaf_loads() -> Vec<LeafLoad> {
    leaves()
        .into_iter()
        .map(|(account, _)| LeafLoad::steady(account, Broker::Random))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_products_along_the_paths_and_exact() {
        let targets: Vec<_> = leaves()
            .into_iter()
            .map(|(leaf, target)| (VOS[leaf.vo], leaf.path.to_string(), target.to_string()))
            .collect();
        let expected = [
            ("VO-A", "/P-A1", "15"),
            ("VO-A", "/P-A2", "9"),
            ("VO-A", "/P-A3", "6"),
            ("VO-B", "/P-B1/U-B11", "21"),
            ("VO-B", "/P-B1/U-B12", "12.6"),
            ("VO-B", "/P-B1/U-B13", "8.4"),
            ("VO-B", "/P-B2", "28"),
        ];
        assert_eq!(
            targets,
            expected.map(|(vo, path, share)| (vo, path.into(), share.into()))
        );
        let whole: u32 = leaves().iter().map(|(_, target)| target.units()).sum();
        assert_eq!(whole, Share::ONE);
    }

    #[test]
    fn siblings_add_up_to_the_whole() {
        let parents = [(0, "/"), (1, "/"), (1, "/P-B1")];
        for (vo, parent) in parents {
            let parent = AccountPath::parse(parent).expect("valid");
            let children = POLICY.iter().filter(|entry| {
                entry.vo == vo && entry.account().path.parent().as_ref() == Some(&parent)
            });
            assert_eq!(
                children.map(|entry| entry.percent).sum::<u32>(),
                100,
                "{vo} {parent}"
            );
        }
        let vos = POLICY.iter().filter(|entry| entry.path == "/");
        assert_eq!(vos.map(|entry| entry.percent).sum::<u32>(), 100);
    }
}
