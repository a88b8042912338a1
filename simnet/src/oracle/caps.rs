//! What entries of one level weigh where the owner caps some of them.
//!
//! Invariant: an entry whose part of the level would be more than its cap gets exactly the cap, and the others
//! divide the rest in the ratio of their weights. Where no other has a weight, the caps are the ratio.

use std::collections::BTreeMap;

use fairmesh_model::AccountPath;
use num_rational::BigRational;

use super::cost::ratio;

/// An entry of the level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it weighs among its siblings.
    pub weight: BigRational,
    /// The most of its level that it may get, a part of one.
    pub cap: BigRational,
}

/// What all entries of a level weigh after their caps: one after the other is capped, the one that is furthest
/// above its cap first, until none is above it.
pub fn capped(level: BTreeMap<AccountPath, Part>) -> BTreeMap<AccountPath, BigRational> {
    let zero = ratio(0, 1);
    let mut free = level;
    let mut at_cap: BTreeMap<AccountPath, BigRational> = BTreeMap::new();
    loop {
        let weight: BigRational = free.values().map(|part| &part.weight).sum();
        let rest = ratio(1, 1) - at_cap.values().sum::<BigRational>();
        let gets = |part: &Part| match weight == zero {
            true => zero.clone(),
            false => &part.weight / &weight * &rest,
        };
        let above = free.iter().filter(|(_, part)| gets(part) > part.cap);
        // By how many times its cap. What may get nothing is infinitely far above that.
        let times = |part: &Part| (part.cap == zero, gets(part) / not_zero(&part.cap));
        let furthest = above.max_by(|(_, a), (_, b)| times(a).cmp(&times(b)));
        let Some((path, cap)) = furthest.map(|(path, part)| (path.clone(), part.cap.clone()))
        else {
            let rest = free.iter().map(|(path, part)| (path.clone(), gets(part)));
            return rest.chain(at_cap.clone()).collect();
        };
        free.remove(&path);
        at_cap.insert(path, cap);
    }
}

fn not_zero(cap: &BigRational) -> BigRational {
    match *cap == ratio(0, 1) {
        true => ratio(1, 1),
        false => cap.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vo::path;

    /// Weight, cap in percent → what it gets.
    #[test]
    fn the_furthest_above_its_cap_is_capped_first() {
        type Row<'a> = (&'a [(u64, u64)], &'a [(u64, u64)]);
        let rows: [Row<'_>; 5] = [
            (&[(30, 100), (10, 100)], &[(3, 4), (1, 4)]),
            (&[(30, 10), (70, 100)], &[(1, 10), (9, 10)]),
            (
                &[(60, 20), (30, 30), (10, 100)],
                &[(2, 10), (3, 10), (5, 10)],
            ),
            (&[(60, 20), (30, 10)], &[(2, 10), (1, 10)]),
            (&[(30, 0), (0, 100)], &[(0, 1), (0, 1)]),
        ];
        for (level, right) in rows {
            let part = |(index, (weight, cap)): (usize, &(u64, u64))| {
                let part = Part {
                    weight: ratio(*weight, 1),
                    cap: ratio(*cap, 100),
                };
                (path(&format!("/{index}")), part)
            };
            let weights = capped(level.iter().enumerate().map(part).collect());
            let right = right.iter().map(|(part, whole)| ratio(*part, *whole));
            assert!(weights.into_values().eq(right), "{level:?}");
        }
    }
}
