//! Policies to try, in the flat `[shares]` form of the node.
//!
//! Invariant: a file means what it means to a node, but that mounts are entries like others: a trace
//! has no VO documents to mount. Periods are left out: a trace has days of its own.
//! Deliberately not here: the form (`fairmesh_policy::parse_draft`).

use std::collections::BTreeMap;

use fairmesh_cluster::Trace;
use fairmesh_model::{AccountPath, SharePolicy, ShareRule, Weight};
use fairmesh_policy::{
    SiteEntry, SitePolicy, SitePolicyError, TreeFileError, parse_draft, weights,
};

/// Reads a share tree, or the draft of a share policy that divides `/`. `file` is for error messages.
pub fn read_policy(text: &str, file: &str) -> Result<SitePolicy, TreeFileError> {
    let tree = parse_draft(text, file)?;
    let dropped: Vec<&AccountPath> = tree
        .entries()
        .filter(|(_, entry, _)| entry.is_dropped())
        .map(|(path, ..)| path)
        .collect();
    let kept = tree
        .entries()
        .filter(|(path, ..)| {
            !path.is_root() && !dropped.iter().any(|above| path.starts_with(above))
        })
        .map(|(path, entry, _)| (path.clone(), entry));
    let kept: BTreeMap<AccountPath, SiteEntry> = kept.collect();
    Ok(SitePolicy::new(without_mounts(&kept)).expect("parents stay where children do"))
}

/// The same entries with the weights that their mounts' limits leave them.
fn without_mounts(entries: &BTreeMap<AccountPath, SiteEntry>) -> BTreeMap<AccountPath, SiteEntry> {
    let weights = weights(entries, ShareRule::Weights);
    // Limits of many digits make larger numbers than people may write.
    let is_too_large = |units: &u64| Weight::from_units(*units).is_none();
    let shift = u32::from(weights.values().any(is_too_large));
    let of = |units: u64| Weight::from_units((units >> shift).max(u64::from(units > 0)));
    let entry = |(path, entry): (&AccountPath, &SiteEntry)| {
        let weight = of(weights[path]).expect("57 bits, or half of it");
        let entry = SiteEntry {
            was: entry.was.clone(),
            ..SiteEntry::local(weight)
        };
        (path.clone(), entry)
    };
    entries.iter().map(entry).collect()
}

/// The entries of a signed share policy that divides `/`.
///
/// # Errors
/// An entry without its parent.
pub fn of_policy(policy: &SharePolicy) -> Result<SitePolicy, SitePolicyError> {
    let entries = policy.shares.iter();
    let entries = entries.map(|(path, entry)| {
        let entry = SiteEntry {
            was: entry.was.clone(),
            ..SiteEntry::local(entry.share)
        };
        (path.clone(), entry)
    });
    SitePolicy::new(entries.collect())
}

/// Equal shares for all VOs of a trace, and for all users within each.
pub fn equal_shares(trace: &Trace) -> SitePolicy {
    let mut users: BTreeMap<usize, Vec<AccountPath>> = BTreeMap::new();
    for account in trace.accounts() {
        users.entry(account.vo).or_default().push(account.path);
    }
    let equal = SiteEntry::local(Weight::whole(1));
    let mut entries = BTreeMap::new();
    for (vo, accounts) in &users {
        let above = vo_path(trace, *vo);
        for account in accounts {
            let path = above.join(account).expect("two levels");
            entries.insert(path, equal.clone());
        }
        entries.insert(above, equal.clone());
    }
    SitePolicy::new(entries).expect("two levels, each entry once")
}

/// Where a VO of a trace stands in a policy: `/VO-7`.
pub(super) fn vo_path(trace: &Trace, vo: usize) -> AccountPath {
    let path = AccountPath::root().child(&trace.vos[vo]);
    path.expect("a trace's names are names of paths")
}

/// The share of the whole that each entry of a policy has.
pub fn targets(policy: &SitePolicy) -> BTreeMap<AccountPath, f64> {
    let units = |entry: &SiteEntry| entry.share.units() as f64;
    let mut levels: BTreeMap<Option<AccountPath>, f64> = BTreeMap::new();
    for (path, entry) in policy.entries() {
        *levels.entry(path.parent()).or_default() += units(entry);
    }
    let mut targets = BTreeMap::new();
    // Ascending: a parent comes before its children.
    for (path, entry) in policy.entries() {
        let above = path
            .parent()
            .and_then(|parent| targets.get(&parent).copied());
        let level = levels[&path.parent()];
        let part = if level > 0.0 {
            units(entry) / level
        } else {
            0.0
        };
        targets.insert(path.clone(), above.unwrap_or(1.0) * part);
    }
    targets
}
