//! What a site must answer, given the usage that it counts: sums, shares, deviations, order, factor.
//!
//! Everything is worked out anew, for all accounts, in fractions without end.
//!
//! Invariant: two accounts are ordered as their deviations are, level by level from the root down, a
//! missing level counting as on target, and a level that has more than it may have at most behind all that do
//! not; accounts rank alike exactly where all levels are equal. The
//! packed priority cuts each level to a digit, the exact floor of `(v + 1) × 2^(bits − 1)`.
//! Source: FSGrid (Elmroth and Gardfjäll, 2005); the digits' form is said in `fairmesh-fairshare`.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, Counters, Distance, HistoryRule, Share, SiteId, Span, VoId, WindowLength,
};
use num_bigint::BigInt;
use num_rational::BigRational;

use super::AccountKey;
use super::cost::ratio;
use super::tree::{Target, Tree, Whose};
use super::weight::{age, weight};

/// Usage of an account at a site in a span.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where it was used.
    pub site: SiteId,
    /// By whom.
    pub account: AccountKey,
    /// When.
    pub span: Span,
    /// How much.
    pub counters: Counters,
}

/// How usage is weighed, and from when it is looked back.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The weights.
    pub history: HistoryRule,
    /// Windows.
    pub window: WindowLength,
    /// The window that usage is seen from.
    pub reference: u32,
}

/// What jobs that run at the site which answers count for at its own levels alone: what they have used in
/// a span, where their VO counts it only when they end; or whole, where its owner counts what runs.
pub type Running = (AccountKey, Option<Span>, u64);

/// All that answers are made of.
#[derive(Debug)]
pub struct Given<'a> {
    /// Whose answers.
    pub site: SiteId,
    /// Targets.
    pub tree: &'a Tree,
    /// Usage.
    pub rows: &'a [Row],
    /// What running jobs of a site count for in their VO: it is nothing to an owner's levels.
    pub expected: &'a [(VoId, SiteId, AccountPath, u64)],
    /// What they count for there.
    pub running: &'a [Running],
    /// How the owner weighs.
    pub local: Rules,
    /// How each VO weighs. Usage of others weighs nothing: nobody can say in which windows it lies.
    pub vos: &'a BTreeMap<VoId, Rules>,
}

/// One level of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// Its target, in 10^-9 of its parent.
    pub target: Share,
    /// The most that it may have, of its parent too.
    pub at_most: Share,
    /// How far it is from it is measured so.
    pub distance: Distance,
    /// Weighted usage in core-ms × 2^-32, of the account and of its parent.
    pub usage: (u128, u128),
}

impl Level {
    /// A level that nobody has: the root's.
    const MISSING: Self = Self {
        target: Share::ZERO,
        at_most: Share::WHOLE,
        distance: Distance::Absolute,
        usage: (0, 0),
    };
}

/// The answers about one account.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its last level.
    pub level: Level,
    /// 1 is served first.
    pub rank: u32,
    /// The packed digits.
    pub priority: u64,
    /// The factor that schedulers get.
    pub factor: Share,
}

/// Whether a level keeps to its limit, and its deviation; `None` where a zero share is used, measured
/// relatively: below every number.
type Deviation = (bool, Option<BigRational>);

/// The answers about all entries of the tree, and about the root.
pub fn answers(given: &Given<'_>) -> BTreeMap<AccountPath, Answer> {
    let (targets, levels) = (&given.tree.targets, levels(given));
    let depth = targets.keys().map(AccountPath::depth).max().unwrap_or(0);
    let deviation_of = |(path, level): (&&AccountPath, &Level)| {
        let (keeps, deviation) = (keeps_limit(level), deviation(level));
        let digit = match keeps {
            true => digit(level.distance, deviation.as_ref(), digit_bits(depth)),
            false => 0,
        };
        (AccountPath::clone(path), ((keeps, deviation), digit))
    };
    let known: BTreeMap<AccountPath, (Deviation, u64)> = levels.iter().map(deviation_of).collect();
    let vector = |path: &AccountPath| -> Vec<&(Deviation, u64)> {
        let way = std::iter::successors(Some(path.clone()), AccountPath::parent);
        let mut way: Vec<_> = way
            .filter(|path| !path.is_root())
            .map(|path| &known[&path])
            .collect();
        way.reverse();
        way
    };
    let deviations = |path: &AccountPath| {
        let known = vector(path).into_iter();
        let mut all: Vec<Deviation> = known.map(|(deviation, _)| deviation.clone()).collect();
        all.resize(depth, on_target());
        all
    };
    let all: BTreeMap<&AccountPath, Vec<Deviation>> = targets
        .keys()
        .map(|path| (path, deviations(path)))
        .collect();
    // The root is an entry, too: all its levels are missing.
    let root = vec![on_target(); depth];
    let order: BTreeSet<&Vec<Deviation>> = all.values().chain([&root]).collect();
    let ranks: BTreeMap<&Vec<Deviation>, u32> = order.into_iter().rev().zip(1..).collect();
    let answer = |level: &Level, vector: &[&(Deviation, u64)], deviations: &Vec<Deviation>| {
        let digits: Vec<u64> = vector.iter().map(|(_, digit)| *digit).collect();
        let digits = filled(digits, depth);
        Answer {
            level: level.clone(),
            rank: ranks[deviations],
            priority: packed(&digits, depth),
            factor: factor(&digits, depth),
        }
    };
    let below = targets.keys().map(|path| {
        (
            path.clone(),
            answer(&levels[path], &vector(path), &all[path]),
        )
    });
    let at_root = (AccountPath::root(), answer(&Level::MISSING, &[], &root));
    below.chain([at_root]).collect()
}

/// The level of each entry below its parent.
fn levels<'a>(given: &Given<'a>) -> BTreeMap<&'a AccountPath, Level> {
    let sums = sums(given);
    let level_of = |(path, target): (&'a AccountPath, &Target)| {
        let parent = path.parent().expect("the root is no entry");
        let of = |path: &AccountPath, vo: Option<VoId>| {
            let sum = sums.get(&(path.clone(), vo));
            sum.copied().unwrap_or(0)
        };
        let usage = match target.whose {
            Whose::Here => (of(path, None), of(&parent, None)),
            Whose::Members(vo) => (of(path, Some(vo)), of(&parent, Some(vo))),
            Whose::Vos(vo) => {
                let beside = given.tree.targets.iter();
                let beside = beside.filter(|(other, _)| other.parent().as_ref() == Some(&parent));
                let all = beside.map(|(other, target)| match target.whose {
                    Whose::Vos(Some(vo)) => of(other, Some(vo)),
                    _ => 0,
                });
                (vo.map_or(0, |vo| of(path, Some(vo))), all.sum())
            }
        };
        let level = Level {
            target: target.share,
            at_most: target.at_most,
            distance: target.distance,
            usage,
        };
        (path, level)
    };
    given.tree.targets.iter().map(level_of).collect()
}

/// Weighted usage at and below each entry: of this site (no VO), and of each VO's members.
fn sums(given: &Given<'_>) -> BTreeMap<(AccountPath, Option<VoId>), u128> {
    let mut booked: BTreeMap<(AccountPath, Option<VoId>), u128> = BTreeMap::new();
    let mut add = |place: &AccountPath, scope: Option<VoId>, amount: u128| {
        *booked.entry((place.clone(), scope)).or_default() += amount;
    };
    let one = 1u128 << 32;
    let mut weights: BTreeMap<(Option<VoId>, Option<VoId>, Span), u128> = BTreeMap::new();
    let rules = |vo: Option<VoId>| {
        let of_vo = vo.and_then(|vo| given.vos.get(&vo));
        of_vo.unwrap_or(&given.local)
    };
    let mut weighed = |row: &Row, by: Option<VoId>| {
        let of = row.account.0;
        let weigh = || {
            let (of, by) = (rules(of), rules(by));
            let age = age(row.span, of.window, by.window, by.reference);
            u128::from(weight(by.history, age))
        };
        let weight = *weights.entry((by, of, row.span)).or_insert_with(weigh);
        // What counts is what was charged and not taken back, and never less than nothing.
        u128::from(row.counters.charge.saturating_sub(row.counters.refunds)) * weight
    };
    let is_known = |row: &&Row| row.account.0.is_none_or(|vo| given.vos.contains_key(&vo));
    let rows = whole(given.rows);
    let accounts: BTreeSet<&AccountKey> = rows.iter().map(|row| &row.account).collect();
    let place = |account| (account, given.tree.place(account));
    let places: BTreeMap<&AccountKey, AccountPath> = accounts.into_iter().map(place).collect();
    for row in rows.iter().filter(is_known) {
        let place = places[&row.account].clone();
        if row.site == given.site {
            add(&place, None, weighed(row, None));
        }
        let mounted = row
            .account
            .0
            .filter(|vo| given.tree.mounts.contains_key(vo));
        if mounted.is_some() {
            add(&place, mounted, weighed(row, mounted));
        }
    }
    for (vo, _, path, charge) in given.expected {
        let place = given.tree.place(&(Some(*vo), path.clone()));
        add(&place, Some(*vo), u128::from(*charge) * one);
    }
    for (account, span, charge) in given.running {
        let age = span.map(|span| {
            let local = &given.local;
            age(span, rules(account.0).window, local.window, local.reference)
        });
        let weight = age.map_or(one, |age| u128::from(weight(given.local.history, age)));
        add(
            &given.tree.place(account),
            None,
            u128::from(*charge) * weight,
        );
    }
    let mut sums: BTreeMap<(AccountPath, Option<VoId>), u128> = BTreeMap::new();
    for ((place, scope), amount) in booked {
        for path in std::iter::successors(Some(place), AccountPath::parent) {
            *sums.entry((path, scope)).or_default() += amount;
        }
    }
    sums
}

/// One row of an account at a site in a span, of those that come in parts.
fn whole(rows: &[Row]) -> Vec<Row> {
    let mut whole: BTreeMap<(SiteId, &AccountKey, Span), Counters> = BTreeMap::new();
    for row in rows {
        let sum = whole.entry((row.site, &row.account, row.span)).or_default();
        *sum = sum.plus(row.counters);
    }
    let row = |((site, account, span), counters): ((SiteId, &AccountKey, Span), Counters)| Row {
        site,
        account: account.clone(),
        span,
        counters,
    };
    whole.into_iter().map(row).collect()
}

fn on_target() -> Deviation {
    (true, Some(ratio(0, 1)))
}

/// Whether a level has no more than it may have at most.
fn keeps_limit(level: &Level) -> bool {
    let (usage, parent) = level.usage;
    let most = ratio(u64::from(level.at_most.units()), u64::from(Share::ONE));
    BigRational::from(BigInt::from(usage)) <= most * BigRational::from(BigInt::from(parent))
}

/// How far a level is from its target.
fn deviation(level: &Level) -> Option<BigRational> {
    let zero = ratio(0, 1);
    let target = ratio(u64::from(level.target.units()), u64::from(Share::ONE));
    let (usage, parent) = level.usage;
    let actual = match parent {
        0 => zero.clone(),
        _ => BigRational::new(BigInt::from(usage), BigInt::from(parent)),
    };
    let absolute = &target - actual;
    let k = match level.distance {
        Distance::Absolute => Share::WHOLE,
        Distance::Relative => Share::ZERO,
        Distance::Mix { k } => k,
    };
    if k == Share::WHOLE {
        return Some(absolute);
    }
    if target == zero {
        return (usage == 0).then_some(zero);
    }
    let k = ratio(u64::from(k.units()), u64::from(Share::ONE));
    Some(&k * &absolute + (ratio(1, 1) - &k) * absolute / target)
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
