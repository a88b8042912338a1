//! Policies to try, in the flat `[shares]` form of the node.
//!
//! Invariant: a file means what it means to a node, but that mounts are entries like others: a trace
//! has no VO documents to mount. Deliberately not here: the form (`fairmesh_policy::parse_draft`).

use std::collections::BTreeMap;

use fairmesh_cluster::Trace;
use fairmesh_model::{AccountPath, Share, SharePolicy};
use fairmesh_policy::{SiteEntry, SitePolicy, SitePolicyError, TreeFileError, parse_draft};

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
        .map(|(path, entry, _)| (path.clone(), SiteEntry::local(entry.target())));
    Ok(SitePolicy::new(kept.collect()).expect("parents stay where children do"))
}

/// The entries of a signed share policy that divides `/`.
///
/// # Errors
/// An entry without its parent.
pub fn of_policy(policy: &SharePolicy) -> Result<SitePolicy, SitePolicyError> {
    let entries = policy.shares.iter();
    let entries = entries.map(|(path, entry)| (path.clone(), SiteEntry::local(entry.share)));
    SitePolicy::new(entries.collect())
}

/// Equal shares for all VOs of a trace, and for all users within each.
pub fn equal_shares(trace: &Trace) -> SitePolicy {
    let mut users: BTreeMap<usize, Vec<AccountPath>> = BTreeMap::new();
    for account in trace.accounts() {
        users.entry(account.vo).or_default().push(account.path);
    }
    let of = |count: usize| Share::from_ratio(1, count as u64);
    let mut entries = BTreeMap::new();
    for (vo, accounts) in &users {
        let above = vo_path(trace, *vo);
        for account in accounts {
            let path = above.join(account).expect("two levels");
            entries.insert(path, SiteEntry::local(of(accounts.len())));
        }
        entries.insert(above, SiteEntry::local(of(users.len())));
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
    let part = |share: Share| f64::from(share.units()) / f64::from(Share::ONE);
    let mut targets = BTreeMap::new();
    // Ascending: a parent comes before its children.
    for (path, entry) in policy.entries() {
        let above = path
            .parent()
            .and_then(|parent| targets.get(&parent).copied());
        targets.insert(path.clone(), above.unwrap_or(1.0) * part(entry.share));
    }
    targets
}
