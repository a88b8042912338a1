//! From shares and charges to numbers, through the engine that a node runs.
//!
//! How it stays exact: a tree books 64-bit amounts under 32-bit weights. With a half-life of one
//! window the weight of a charge that is 32 windows old is one unit and that of a present one 2^32,
//! so a charge below 2^96 is booked as its high bits now and its low 32 bits then: the sums are the
//! charges themselves, to the last digit.
//!
//! Invariant: ranks are dense over all listed entries, 1 first, equal exactly where priorities are.
//! Deliberately not here: files and tables.

use ethnum::U256;
use fairmesh_fairshare::{
    EntryId, Level, Order, RankedEntry, Reach, Snapshot, TreeSpec, UsageItem, WeightTable,
};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    AccountPath, Date, Distance, HistoryRule, Share, ShareRule, Span, Window, WindowLength,
};
use fairmesh_node::driver::wall_now;
use fairmesh_node::projection::ProjectionName;

use super::decimal::decimal;
use super::jobs::{EmulatedJob, Jobs};
use super::tree::ShareTree;
use super::usage::{Charges, UsageError};

/// Where the sums are seen from. In the middle of the 41st day, so that no day is old.
const NOW: Window = Window(1_000);

/// Windows after which a weight is one unit.
const UNIT_AGE: u32 = 32;

/// What to do, where shares are read as published, with a charge on a path that the tree does not have. Under the
/// rule of weights it is that of an account without a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Say so, and which entry above it there is.
    Refuse,
    /// Count it on the deepest entry that there is, as a node does.
    CountAbove,
}

/// All entries, ascending by path.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Emulated {
    /// All entries of the tree, ascending by path.
    pub entries: Vec<EmulatedEntry>,
    /// Jobs that were named, in the order in which they are served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<EmulatedJob>,
}

/// One entry; numbers as decimal text, shares and deviations in percent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EmulatedEntry {
    /// The entry's path in the tree of the policies.
    pub path: AccountPath,
    /// What it should have of its parent.
    pub target: String,
    /// What it has of its parent's usage; 0 where that is 0.
    pub actual: String,
    /// Target less actual for each level from the root down to the entry; `-inf` for use of a
    /// share of zero under a relative distance.
    pub deviation: Vec<String>,
    /// By the projection; the greater is served first.
    pub priority: String,
    /// By the priority; 1 is served first.
    pub rank: u32,
}

/// Computes everything; jobs that wait have their importance behind their entry's priority.
///
/// # Errors
/// Where a charge's path is unknown and `unknown` says to refuse it, and where a job's path is unknown.
pub fn emulate(
    tree: &ShareTree,
    charges: &Charges,
    jobs: &Jobs,
    distance: Distance,
    projection: ProjectionName,
    unknown: Unknown,
) -> Result<Emulated, UsageError> {
    let history = HistoryRule::HalfLife {
        windows: 1,
        horizon: UNIT_AGE + 1,
    };
    let history = WeightTable::new(history, WindowLength::HOUR);
    let mut spec = TreeSpec::new(vec![history], 0);
    spec.rule = projection.share_rule();
    spec.entries = tree.specs(spec.rule, distance, today());
    spec.moves = tree.moves();
    let is_published = spec.rule == ShareRule::AsPublished;
    let mut writer = spec
        .build(&[NOW])
        .expect("a share tree has no gaps and no doubles");
    let reader = writer.reader();
    let mut items = Vec::new();
    for (path, charge) in &charges.charges {
        let is_refused = unknown == Unknown::Refuse && is_published;
        if is_refused && reader.entry(path).is_none() {
            return Err(UsageError {
                file: charges.file.clone(),
                line: charge.line,
                problem: super::unknown_path(&reader, path),
            });
        }
        items.extend(booked(writer.place(path), charge.amount));
    }
    writer.load(items);
    let root = AccountPath::root();
    let lists_root = tree.lists_root() || charges.charges.contains_key(&root);
    let snapshot = writer.snapshot();
    let projection = projection.prepare(&snapshot);
    let order = Order::of(snapshot, projection);
    Ok(Emulated {
        entries: report(&order, lists_root),
        jobs: jobs.served(&order, &reader)?,
    })
}

fn today() -> Date {
    let days = wall_now().0 / DAY_MS;
    Date(u32::try_from(days).unwrap_or(u32::MAX))
}

/// The bookings that weigh exactly `charge` units together.
fn booked(entry: EntryId, charge: u128) -> [UsageItem; 2] {
    let item = |window: u32, charge: u128| UsageItem {
        entry,
        span: Span::Window(Window(window)),
        charge: u64::try_from(charge).expect("charges are below 2^96"),
        reach: Reach::Own,
    };
    let low = charge & u128::from(u32::MAX);
    [item(NOW.0, charge >> 32), item(NOW.0 - UNIT_AGE, low)]
}

fn report(order: &Order, lists_root: bool) -> Vec<EmulatedEntry> {
    let snapshot = order.snapshot();
    let listed: Vec<EntryId> = snapshot
        .ids()
        .filter(|entry| lists_root || *entry != EntryId::ROOT)
        .filter(|entry| snapshot.is_present(*entry))
        .collect();
    let mut ranked = order.ranking().among(&listed);
    let path = |item: &RankedEntry| snapshot.path(item.entry);
    ranked.sort_by(|a, b| path(a).names().cmp(path(b).names()));
    ranked
        .iter()
        .map(|item| {
            let vector = snapshot.vector(item.entry);
            // That of a `*` ends with the level of a new account, which is no level of its own.
            let own = vector.levels().len() - usize::from(snapshot.is_others(item.entry));
            let levels = &vector.levels()[..own];
            let (target, actual) = shares(snapshot, item.entry, levels.last());
            EmulatedEntry {
                path: snapshot.path(item.entry).clone(),
                target,
                actual,
                deviation: levels.iter().map(deviation_percent).collect(),
                priority: order.priority(item.entry).to_string(),
                rank: item.rank,
            }
        })
        .collect()
}

/// Target and actual share in percent. The root should have all of what there is.
fn shares(snapshot: &Snapshot, entry: EntryId, level: Option<&Level>) -> (String, String) {
    let Some(level) = level else {
        let any = snapshot.sums(entry).local > 0;
        return ("100".to_owned(), if any { "100" } else { "0" }.to_owned());
    };
    let actual = U256::from(level.usage) * U256::new(100);
    let whole = U256::from(level.parent_usage.max(1));
    let (part, of) = level.target.ratio();
    let target = decimal(false, U256::from(part) * U256::new(100), U256::from(of));
    (target, decimal(false, actual, whole))
}

/// The deviation of a level in percent: what `Level::deviation` orders by, as decimal text.
fn deviation_percent(level: &Level) -> String {
    let one = U256::from(Share::ONE);
    let (part, of) = level.target.ratio();
    let (part, of) = (U256::from(part), U256::from(of));
    let whole = U256::from(level.parent_usage.max(1));
    let (due, used) = (part * whole, U256::from(level.usage) * of);
    let (negative, excess) = (used > due, used.abs_diff(due));
    let k = match level.distance {
        _ if level.target.is_last() => one,
        Distance::Absolute => one,
        Distance::Relative => U256::ZERO,
        Distance::Mix { k } => U256::from(k.units()),
    };
    let percent = excess * U256::new(100);
    if k == one {
        return decimal(negative, percent, whole * of);
    }
    if part == U256::ZERO {
        return if level.usage == 0 { "0" } else { "-inf" }.to_owned();
    }
    // k × d + (1 − k) × d / target, over one denominator.
    let weight = k * part + (one - k) * of;
    decimal(negative, percent * weight, whole * of * one * part)
}

#[cfg(test)]
mod tests {
    use fairmesh_fairshare::Target;

    use super::*;

    #[test]
    fn a_charge_weighs_itself() {
        let charges = format!(
            "path,charge\n/a,{}\n/b,4294967297\n",
            super::super::usage::CHARGE_MAX
        );
        let charges = Charges::parse(&charges, "u").expect("valid");
        for (path, charge) in &charges.charges {
            let rule = HistoryRule::HalfLife {
                windows: 1,
                horizon: UNIT_AGE + 1,
            };
            let history = WeightTable::new(rule, WindowLength::HOUR);
            let mut writer = TreeSpec::new(vec![history], 0)
                .build(&[NOW])
                .expect("a tree");
            writer.load(booked(EntryId::ROOT, charge.amount));
            assert_eq!(
                writer.snapshot().sums(EntryId::ROOT).local,
                charge.amount,
                "{path}"
            );
        }
    }

    /// The text agrees with the engine's own, which prints seven decimals and cuts the rest.
    #[test]
    fn deviations_are_the_engines() {
        let shares = [0, 1, 333_333_333, 500_000_000, 1_000_000_000];
        let usages = [
            (0, 0),
            (0, 7),
            (3, 7),
            (7, 7),
            (12_345_678_901_234_567_890, 1 << 100),
        ];
        let half = Share::from_units(500_000_000).expect("a half");
        for target in shares
            .map(|units| Share::from_units(units).expect("a share"))
            .map(|share| Target::published(share.into()))
        {
            for (usage, parent_usage) in usages {
                for distance in [
                    Distance::Absolute,
                    Distance::Relative,
                    Distance::Mix { k: half },
                ] {
                    let level = Level {
                        target,
                        distance,
                        usage,
                        parent_usage,
                        ..Level::MISSING
                    };
                    let (ours, theirs) = (deviation_percent(&level), level.deviation().to_string());
                    let theirs = theirs.trim_start_matches('+');
                    let (whole, decimals) = ours.split_once('.').unwrap_or((&ours, ""));
                    let cut = format!("{whole}.{:0<7}", &decimals[..decimals.len().min(7)]);
                    let same = ours == theirs || cut == theirs || cut == format!("-{theirs}");
                    assert!(same, "{level:?}: {ours} is not {theirs}");
                }
            }
        }
    }
}
