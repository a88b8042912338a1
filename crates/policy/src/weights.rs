//! What the entries of the owner's tree weigh among their siblings, after the owner's `weight` and `cap`.
//!
//! `weight` multiplies an entry's share. `cap` is the most that the entry's target may be, of its parent: where
//! the entry's part of its level would be more, the entry gets exactly its cap and its siblings divide the rest
//! by their own weights.
//!
//! Invariant: whole numbers with the exact ratios of the decimals that were written. Only where they do not fit
//! 57 bits, which takes an owner's limits of many digits each, the lowest bits are cut.
//! Deliberately not here: entries of VOs; a policy's shares are weights as they are.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Share, ShareRule, mutant};

use crate::site_policy::SiteEntry;

/// Bits of a weight in a tree.
const WEIGHT_BITS: u32 = 57;

/// Bits of a weight while caps are worked out: times a cap (30 bits), and summed over a level (17 bits), it
/// stays below 2^128.
const PART_BITS: u32 = 70;

/// One entry of a level, while its weight is worked out.
struct Part {
    weight: u128,
    cap: u128,
    is_capped: bool,
}

/// The weights of all entries but the root, in a unit of their level. As published: targets in 10^-9 of the
/// parent. O(n log n).
pub fn weights<'a>(
    entries: impl IntoIterator<Item = (&'a AccountPath, &'a SiteEntry)>,
    rule: ShareRule,
) -> BTreeMap<&'a AccountPath, u64> {
    let entries = entries.into_iter().filter(|(path, _)| !path.is_root());
    if rule == ShareRule::AsPublished {
        return entries
            .map(|(path, entry)| (path, entry.published()))
            .collect();
    }
    let mut levels: BTreeMap<&str, Vec<(&AccountPath, &SiteEntry)>> = BTreeMap::new();
    for (path, entry) in entries {
        let parent = path.parent_str().expect("not the root");
        levels.entry(parent).or_default().push((path, entry));
    }
    let of_level = |level: Vec<(&'a AccountPath, &SiteEntry)>| {
        let weights = level_weights(level.iter().map(|(_, entry)| *entry));
        let paths = level.into_iter().map(|(path, _)| path);
        paths.zip(weights).collect::<Vec<_>>()
    };
    levels.into_values().flat_map(of_level).collect()
}

fn level_weights<'a>(entries: impl Iterator<Item = &'a SiteEntry>) -> Vec<u64> {
    let percent = |of: Option<Share>| u128::from(of.unwrap_or(Share::WHOLE).units());
    let (weights, caps): (Vec<u128>, Vec<u128>) = entries
        .map(|entry| {
            let mount = entry.mount.as_ref();
            let weight = mount.and_then(|mount| mount.weight);
            let factor = percent(mutant!(OwnersWeightIgnored, weight, None));
            let cap = percent(mutant!(
                OwnersCapIgnored,
                mount.and_then(|mount| mount.cap),
                None
            ));
            (u128::from(entry.share.units()) * factor, cap)
        })
        .unzip();
    let parts = fit(weights, PART_BITS).into_iter().zip(caps);
    let mut parts: Vec<Part> = parts
        .map(|(weight, cap)| Part {
            weight,
            cap,
            is_capped: false,
        })
        .collect();
    let (free, rest) = cap(&mut parts);
    let weight = |part: &Part| match (part.is_capped, free) {
        (true, 0) => part.cap,
        (true, _) => part.cap * free,
        (false, _) => part.weight * rest,
    };
    let weights = fit(parts.iter().map(weight).collect(), WEIGHT_BITS).into_iter();
    weights
        .map(|weight| u64::try_from(weight).expect("it was cut to 57 bits"))
        .collect()
}

/// Finds out which entries get their caps: those that would have more of what the capped ones leave, the
/// furthest above their caps first. The weight of all others, and what is left for them, in 10^-9.
fn cap(parts: &mut [Part]) -> (u128, u128) {
    let mut free: u128 = parts.iter().map(|part| part.weight).sum();
    let mut rest = u128::from(Share::ONE);
    let mut capped: Vec<usize> = (0..parts.len())
        .filter(|part| parts[*part].cap < rest && parts[*part].weight > 0)
        .collect();
    capped.sort_by(|a, b| {
        let (a, b) = (&parts[*a], &parts[*b]);
        (b.weight * a.cap).cmp(&(a.weight * b.cap))
    });
    for index in capped {
        let part = &mut parts[index];
        if part.weight * rest <= part.cap * free {
            break;
        }
        part.is_capped = true;
        free -= part.weight;
        rest -= part.cap;
    }
    (free, rest)
}

/// Divides by the greatest common divisor, and cuts what does not fit so many bits.
fn fit(weights: Vec<u128>, bits: u32) -> Vec<u128> {
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    let largest = weights.iter().max().map_or(0, |largest| largest / divisor);
    let shift = (128 - largest.leading_zeros()).saturating_sub(bits);
    let fitted = weights.into_iter().map(|weight| {
        let cut = (weight / divisor) >> shift;
        cut.max(u128::from(weight > 0))
    });
    fitted.collect()
}

const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use fairmesh_model::Weight;

    use super::*;

    /// Share, weight in percent, cap in percent → the parts of the level.
    #[test]
    fn the_owner_weighs_first_and_caps_last() {
        type Row<'a> = (&'a str, Option<u32>, Option<u32>);
        let rows: [(&[Row<'_>], &[u64]); 9] = [
            (&[("30", None, None), ("10", None, None)], &[3, 1]),
            (&[("30", Some(50), None), ("70", None, None)], &[3, 14]),
            (&[("30", None, Some(10)), ("70", None, None)], &[1, 9]),
            (&[("30", None, Some(30)), ("70", None, None)], &[3, 7]),
            (
                &[
                    ("60", None, Some(20)),
                    ("30", None, Some(30)),
                    ("10", None, None),
                ],
                &[2, 3, 5],
            ),
            (
                &[("1", None, Some(50)), ("1", None, None), ("1", None, None)],
                &[1, 1, 1],
            ),
            (
                &[
                    ("30", None, Some(0)),
                    ("70", Some(0), None),
                    ("1", None, None),
                ],
                &[0, 0, 1],
            ),
            // Nobody else has a share: the caps are the ratio.
            (&[("60", None, Some(20)), ("30", None, Some(10))], &[2, 1]),
            (
                &[("33.3333333", None, None), ("66.6666666", None, None)],
                &[1, 2],
            ),
        ];
        let percent = |percent: u32| Share::from_percent(percent).expect("at most 100");
        for (level, expected) in rows {
            let entries: Vec<SiteEntry> = level
                .iter()
                .map(|(share, weight, cap)| {
                    let share = Weight::parse(share).expect("a weight");
                    let mut entry = SiteEntry::mounted(share, "vo");
                    let mount = entry.mount.as_mut().expect("a mount");
                    (mount.weight, mount.cap) = (weight.map(percent), cap.map(percent));
                    entry
                })
                .collect();
            assert_eq!(level_weights(entries.iter()), expected, "{level:?}");
        }
    }
}
