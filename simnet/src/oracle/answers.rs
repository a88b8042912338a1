//! What a site must answer, given the usage that it counts: sums, shares, deviations, order, factor.
//!
//! Everything is worked out anew, for all accounts, in fractions without end.
//!
//! Invariant: two accounts are ordered as their deviations are, level by level from the root down, a
//! missing level counting as on target. At each level those that keep to their limits come first, then those that
//! have more than they may have at most, and then those of a weight of zero, the less used first. Accounts rank
//! alike exactly where all levels are equal. A `*` that nobody wrote and no account belongs to has no rank of its
//! own. The packed priority cuts each level to a digit, the exact floor of `(v + 1) × 2^(bits − 1)`.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005); the digits' form is said in `fairmesh-fairshare`.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, Distance, Share, ShareRule, VoId};
use num_bigint::BigInt;
use num_rational::BigRational;

use super::cost::ratio;
use super::owner::fraction;
use super::sums::Sums;
use super::tree::{Target, Whose};

pub use super::given::{Given, Row, Rules, Running};

/// One level of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// Its target, a part of its parent.
    pub target: BigRational,
    /// Whether its siblings all go first: its weight is zero.
    pub is_last: bool,
    /// The most that it may have, of its parent too.
    pub at_most: Share,
    /// How far it is from it is measured so.
    pub distance: Distance,
    /// Weighted usage in core-ms × 2^-32, of the account and of its parent.
    pub usage: (u128, u128),
}

impl Level {
    /// A level that nobody has, the root's: nothing of nothing.
    pub fn missing() -> Self {
        Self {
            target: ratio(0, 1),
            is_last: false,
            at_most: Share::WHOLE,
            distance: Distance::Absolute,
            usage: (0, 0),
        }
    }
}

/// An entry or an account, at its own level.
struct Stand {
    level: Level,
    /// Whether the rule of weights applies.
    by_weight: bool,
    /// The entry above; none below the root.
    above: Option<AccountPath>,
    /// Whether anybody should see it.
    is_present: bool,
}

/// The answers about one account.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its last level.
    pub level: Level,
    /// Whether anybody should see it: not a `*` that nobody wrote and no account belongs to.
    pub is_present: bool,
    /// 1 is served first.
    pub rank: u32,
    /// The packed digits.
    pub priority: u64,
    /// The factor that schedulers get.
    pub factor: Share,
}

/// Which entries of a level go first, whatever their distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Last,
    Over,
    Within,
}

/// A level's class and deviation; `None` where a zero share is used, measured relatively and as published: below
/// every number.
type Deviation = (Class, Option<BigRational>);

/// Where an entry or account is in the order, and its digits, from the root down.
type Vector = (Vec<Deviation>, Vec<u64>);

/// The answers about all entries of the tree, about the accounts without a line, and about the root.
pub fn answers(given: &Given<'_>) -> BTreeMap<AccountPath, Answer> {
    let stands = stands(given);
    let depth = stands.keys().map(|path| way(&stands, path).len());
    let depth = depth.max().unwrap_or(0);
    let known: BTreeMap<&AccountPath, (Deviation, u64)> = stands
        .iter()
        .map(|(path, stand)| (path, judged(stand, digit_bits(depth))))
        .collect();
    let vector = |path: &AccountPath| -> Vector {
        let way = way(&stands, path);
        let mut vector: Vector = way.into_iter().map(|path| known[path].clone()).unzip();
        vector.0.resize(depth, on_target());
        vector.1 = filled(vector.1, depth);
        vector
    };
    let vectors: BTreeMap<&AccountPath, Vector> =
        stands.keys().map(|path| (path, vector(path))).collect();
    // The root is an entry, too: all its levels are missing.
    let root = (vec![on_target(); depth], filled(Vec::new(), depth));
    let present = vectors.iter().filter(|(path, _)| stands[**path].is_present);
    let order = present.map(|(_, (deviations, _))| deviations);
    let order: BTreeSet<&Vec<Deviation>> = order.chain([&root.0]).collect();
    let better: BTreeMap<&Vec<Deviation>, u32> = order.iter().rev().copied().zip(0..).collect();
    let answer = |level: &Level, is_present: bool, (deviations, digits): &Vector| {
        let better = match better.get(deviations) {
            Some(better) => *better,
            // As those that come next, or after all.
            None => {
                let before = order.iter().filter(|other| **other > deviations);
                u32::try_from(before.count()).expect("few")
            }
        };
        Answer {
            level: level.clone(),
            is_present,
            rank: better + 1,
            priority: packed(digits, depth),
            factor: factor(digits, depth),
        }
    };
    let below = stands.iter().map(|(path, stand)| {
        let answer = answer(&stand.level, stand.is_present, &vectors[path]);
        (path.clone(), answer)
    });
    let at_root = (AccountPath::root(), answer(&Level::missing(), true, &root));
    below.chain([at_root]).collect()
}

/// The entries from the uppermost down to one.
fn way<'a>(
    stands: &'a BTreeMap<AccountPath, Stand>,
    path: &'a AccountPath,
) -> Vec<&'a AccountPath> {
    let above = |path: &&'a AccountPath| stands[*path].above.as_ref();
    let mut way: Vec<_> = std::iter::successors(Some(path), above).collect();
    way.reverse();
    way
}

/// All entries and accounts without a line, each at its level.
fn stands(given: &Given<'_>) -> BTreeMap<AccountPath, Stand> {
    let (targets, sums) = (&given.tree.targets, Sums::of(given));
    let by_weight = given.tree.rule == ShareRule::Weights;
    let mut levels: BTreeMap<AccountPath, Vec<(&AccountPath, &Target)>> = BTreeMap::new();
    for (path, target) in targets {
        let parent = path.parent().expect("the root is no entry");
        levels.entry(parent).or_default().push((path, target));
    }
    let mut stands = BTreeMap::new();
    for (parent, level) in &levels {
        for (path, target) in level {
            let has_members = sums.members.values().any(|others| others == *path);
            let stand = Stand {
                level: level_of(given, &sums, (parent, level), (path, target)),
                by_weight,
                above: Some(parent.clone()).filter(|parent| !parent.is_root()),
                is_present: !target.is_implied || has_members,
            };
            stands.insert(AccountPath::clone(path), stand);
        }
    }
    for (account, others) in &sums.members {
        let scope = match targets[others].whose {
            Whose::Here => Some(None),
            Whose::Members(vo) => Some(Some(vo)),
            // No VO is mounted on it.
            Whose::Vos(_) => None,
        };
        let used = |path| scope.map_or(0, |scope| sums.at(path, scope));
        let stand = Stand {
            level: Level {
                usage: (used(account), used(others)),
                ..Level::missing()
            },
            by_weight,
            above: Some(others.clone()),
            is_present: true,
        };
        stands.insert(account.clone(), stand);
    }
    stands
}

/// The level of an entry below its parent.
fn level_of(
    given: &Given<'_>,
    sums: &Sums,
    (parent, siblings): (&AccountPath, &[(&AccountPath, &Target)]),
    (path, target): (&AccountPath, &Target),
) -> Level {
    let is_published = given.tree.rule == ShareRule::AsPublished;
    let of_siblings = |scope_of: &dyn Fn(&Target) -> Option<Option<VoId>>| {
        let used = siblings
            .iter()
            .map(|(path, target)| scope_of(target).map_or(0, |scope| sums.at(path, scope)));
        used.sum()
    };
    let compared = |scope| match is_published {
        true => (sums.at(path, scope), sums.at(parent, scope)),
        false => (sums.at(path, scope), of_siblings(&|_| Some(scope))),
    };
    let usage = match target.whose {
        Whose::Here => compared(None),
        Whose::Members(vo) => compared(Some(vo)),
        Whose::Vos(vo) => {
            let of_mount = |target: &Target| match target.whose {
                Whose::Vos(Some(vo)) => Some(Some(vo)),
                _ => None,
            };
            let own = vo.map_or(0, |vo| sums.at(path, Some(vo)));
            (own, of_siblings(&of_mount))
        }
    };
    let zero = ratio(0, 1);
    let all: BigRational = siblings.iter().map(|(_, target)| &target.weight).sum();
    let part = match is_published || all == zero {
        true => target.weight.clone(),
        false => &target.weight / all,
    };
    Level {
        is_last: !is_published && part == zero,
        target: part,
        at_most: target.at_most,
        distance: target.distance,
        usage,
    }
}

/// Where a level is among others, and its digit.
fn judged(stand: &Stand, bits: u32) -> (Deviation, u64) {
    let (level, zero) = (&stand.level, ratio(0, 1));
    let class = match (level.is_last, keeps_limit(level)) {
        (true, _) => Class::Last,
        (false, false) => Class::Over,
        (false, true) => Class::Within,
    };
    let deviation = match class {
        Class::Last => Some(&zero - actual(level)),
        Class::Over | Class::Within => deviation(level),
    };
    let kept_free = match stand.by_weight {
        true => kept_free(bits),
        false => 0,
    };
    let digit = match class {
        Class::Last => {
            // As many as are below the one of those over their limits, the least for who has used everything.
            let room = kept_free.saturating_sub(2);
            let unused = digit(Distance::Absolute, deviation.as_ref(), bits);
            let unused = ratio(unused, 1 << (bits - 1)) * ratio(room, 1);
            let unused = unused.floor().to_integer();
            u64::try_from(unused).expect("no more than there is room")
        }
        Class::Over => kept_free.saturating_sub(1),
        Class::Within => digit(level.distance, deviation.as_ref(), bits).max(kept_free),
    };
    ((class, deviation), digit)
}

/// How many of the lowest digits are not for those of a weight.
fn kept_free(bits: u32) -> u64 {
    match bits {
        0 | 1 => 0,
        2 => 1,
        _ => 1 << (bits / 3),
    }
}

fn on_target() -> Deviation {
    (Class::Within, Some(ratio(0, 1)))
}

/// Whether a level has no more than it may have at most.
fn keeps_limit(level: &Level) -> bool {
    let (usage, parent) = level.usage;
    let most = fraction(level.at_most);
    level.at_most == Share::WHOLE
        || BigRational::from(BigInt::from(usage)) <= most * BigRational::from(BigInt::from(parent))
}

/// What a level has of its parent.
fn actual(level: &Level) -> BigRational {
    let (usage, parent) = level.usage;
    match parent {
        0 => ratio(0, 1),
        _ => BigRational::new(BigInt::from(usage), BigInt::from(parent)),
    }
}

/// How far a level is from its target.
fn deviation(level: &Level) -> Option<BigRational> {
    let zero = ratio(0, 1);
    let absolute = &level.target - actual(level);
    let k = match level.distance {
        Distance::Absolute => Share::WHOLE,
        Distance::Relative => Share::ZERO,
        Distance::Mix { k } => k,
    };
    if k == Share::WHOLE {
        return Some(absolute);
    }
    if level.target == zero {
        return (level.usage.0 == 0).then_some(zero);
    }
    let k = fraction(k);
    Some(&k * &absolute + (ratio(1, 1) - &k) * absolute / &level.target)
}

fn digit_bits(depth: usize) -> u32 {
    u32::try_from(64 / depth.clamp(1, 64)).expect("at most 64")
}

/// The digit of a level that is so far from its target.
fn digit(distance: Distance, deviation: Option<&BigRational>, bits: u32) -> u64 {
    let half = ratio(1 << (bits - 1), 1);
    let largest = u64::MAX >> (64 - bits);
    let (one, zero) = (ratio(1, 1), ratio(0, 1));
    let Some(deviation) = deviation else {
        return 0;
    };
    // Relative distances reach below -1, without end: they are bent to end there.
    let bent = match distance {
        Distance::Absolute => deviation.clone(),
        _ if *deviation < zero => deviation / (&one - deviation),
        _ => deviation.clone(),
    };
    let digit = ((bent + one) * half).floor().to_integer();
    u64::try_from(digit).unwrap_or(u64::MAX).min(largest)
}

/// The digits of all levels of the deepest entry, from the root down: those that are missing are on
/// target.
fn filled(mut digits: Vec<u64>, depth: usize) -> Vec<u64> {
    digits.resize(depth.max(1), 1 << (digit_bits(depth) - 1));
    digits
}

fn packed(digits: &[u64], depth: usize) -> u64 {
    let bits = digit_bits(depth);
    let packed = digits
        .iter()
        .fold(0u128, |packed, digit| (packed << bits) | u128::from(*digit));
    u64::try_from(packed).expect("64 bits in all")
}

/// The digits, each cut to its share of 29 bits, as a fraction of the largest such number.
fn factor(digits: &[u64], depth: usize) -> Share {
    let narrow = u32::try_from(29 / depth.clamp(1, 29)).expect("at most 29");
    let wide = digit_bits(depth);
    let cut = digits.iter().fold(0u64, |cut, digit| {
        (cut << narrow) | (digit >> (wide - narrow))
    });
    let largest = digits
        .iter()
        .fold(0u64, |all, _| (all << narrow) | ((1 << narrow) - 1));
    let units = u128::from(cut) * u128::from(Share::ONE) / u128::from(largest);
    let units = u32::try_from(units).ok().and_then(Share::from_units);
    units.expect("a part of the largest")
}
