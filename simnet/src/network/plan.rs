//! Which pairs of sites hold a connection.
//!
//! Where every site can hold one with every other, all do. Otherwise sites stand in a few rings, each
//! a seeded order of all of them, and connect to the next in each ring that they may connect to. A
//! few random rings together are an expander, and whatever a cut leaves over is one ring again on
//! each of its sides; so a component never falls apart for want of connections.
//!
//! Invariant: the pairs are a function of the seed and of who may connect to whom, not of history.
//! Deliberately not here: how dialling works in the real node (addresses, back-off, limits).

use std::collections::BTreeSet;

use fairmesh_cluster::Stream;

#[derive(Debug)]
pub(crate) struct Plan {
    nodes: usize,
    /// For each ring: who stands where, and where everybody stands. Empty for a full mesh.
    rings: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Plan {
    /// A plan for `nodes` sites with about `degree` connections each.
    pub(crate) fn new(nodes: usize, degree: usize, random: &mut Stream) -> Self {
        let rings = if degree + 1 >= nodes {
            0
        } else {
            degree.div_ceil(2).max(1)
        };
        let ring = |_| {
            let mut order: Vec<usize> = (0..nodes).collect();
            for at in (1..nodes).rev() {
                order.swap(at, random.index(at + 1));
            }
            let mut place = vec![0; nodes];
            for (at, node) in order.iter().enumerate() {
                place[*node] = at;
            }
            (order, place)
        };
        Self {
            nodes,
            rings: (0..rings).map(ring).collect(),
        }
    }

    /// All pairs, the lower number first, of those that `may` connect.
    pub(crate) fn pairs(&self, may: impl Fn(usize, usize) -> bool) -> BTreeSet<(usize, usize)> {
        let mut pairs = BTreeSet::new();
        for node in 0..self.nodes {
            if self.rings.is_empty() {
                pairs.extend(
                    (node + 1..self.nodes)
                        .map(|other| (node, other))
                        .filter(|(a, b)| may(*a, *b)),
                );
            }
            for (order, place) in &self.rings {
                let others = (1..self.nodes).map(|step| order[(place[node] + step) % self.nodes]);
                let next = others.into_iter().find(|other| may(node, *other));
                pairs.extend(next.map(|other| (node.min(other), node.max(other))));
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_cluster::Seed;

    fn reached(pairs: &BTreeSet<(usize, usize)>, from: usize) -> usize {
        let mut seen = BTreeSet::from([from]);
        let mut last = 0;
        while last < seen.len() {
            last = seen.len();
            for (a, b) in pairs {
                if seen.contains(a) || seen.contains(b) {
                    seen.extend([*a, *b]);
                }
            }
        }
        seen.len()
    }

    #[test]
    fn few_sites_form_a_full_mesh() {
        let plan = Plan::new(6, 15, &mut Seed(1).stream("plan"));
        assert_eq!(plan.pairs(|_, _| true).len(), 15);
    }

    #[test]
    fn rings_connect_everybody_and_each_side_of_a_cut() {
        let plan = Plan::new(200, 8, &mut Seed(1).stream("plan"));
        let all = plan.pairs(|_, _| true);
        assert_eq!(reached(&all, 0), 200);
        assert!((700..=800).contains(&all.len()), "{}", all.len());
        let cut = plan.pairs(|a, b| (a < 5) == (b < 5));
        assert_eq!((reached(&cut, 0), reached(&cut, 5)), (5, 195));
    }
}
