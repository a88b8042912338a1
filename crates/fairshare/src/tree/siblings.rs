//! What the entries of one level share: how they are compared, and the sum of their weights.
//!
//! Invariant: weights are divided by their greatest common divisor, so the ratio of each to the sum is exact and
//! both stay below 2^41. Only weights that no document and no owner's limit can have are scaled down to that.
//! Deliberately not here: the entries.

use fairmesh_model::{Distance, Scope, mutant};

use super::entry::Node;

/// Weights add up to less than this: exact arithmetic multiplies two of them with usage in 256 bits.
const TOTAL_MAX: u128 = 1 << 41;

#[derive(Debug, Clone)]
pub(crate) struct Siblings {
    pub(crate) scope: Scope,
    pub(crate) distance: Distance,
    /// The sum of the weights; 0 where all are.
    pub(crate) total: u64,
    /// What the weights were divided by.
    pub(crate) unit: u64,
    /// The entry of the accounts without a line.
    pub(crate) others: Option<u32>,
    /// Where the sum of what counts at this level is kept, if it is not what counts for the parent: a period
    /// begins at one of the entries.
    pub(crate) sums: Option<u32>,
}

/// Reduces the weights of all levels, and sums them up.
pub(super) fn reduce(nodes: &mut [Node], levels: &mut [Siblings]) {
    let mut divisors = vec![0u64; levels.len()];
    let mut totals = vec![0u128; levels.len()];
    for node in &nodes[1..] {
        let level = node.level();
        divisors[level] = fairmesh_model::documents::gcd(divisors[level], node.weight);
        totals[level] += u128::from(node.weight);
    }
    let shifts: Vec<u32> = (totals.iter().zip(&divisors))
        .map(|(total, divisor)| {
            let reduced = total / u128::from(*divisor).max(1);
            (128 - reduced.leading_zeros()).saturating_sub(TOTAL_MAX.trailing_zeros())
        })
        .collect();
    for (level, divisor) in levels.iter_mut().zip(&divisors) {
        level.unit = *divisor;
    }
    for node in &mut nodes[1..] {
        let level = node.level();
        if node.weight > 0 {
            node.weight = ((node.weight / divisors[level]) >> shifts[level]).max(1);
        }
        let total = levels[level].total;
        let sum = total + node.weight;
        levels[level].total = mutant!(PartsOfLargest, sum, total.max(node.weight));
    }
}
