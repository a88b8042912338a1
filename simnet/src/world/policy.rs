//! What the next version of a VO's policy says, made from the one before.
//!
//! Invariant: the policy stays one that may be signed. Whoever divides an entry's share goes on to, an entry that
//! has come back is no former path any more, and what an edit asks of entries that are gone is left out.
//! Deliberately not here: who signs it, and when.

use std::collections::BTreeSet;

use fairmesh_model::{AccountPath, ShareEntry, SharePolicy};

use super::Action;
use crate::vo::path;

/// Changes a policy as an action says.
pub(super) fn change(policy: &mut SharePolicy, action: &Action) {
    let Action::Policy {
        shares,
        usage,
        removed,
        renamed,
        since,
        ..
    } = action
    else {
        unreachable!("`{}` changes no policy", action.word());
    };
    policy.usage = usage.or(policy.usage);
    for (at, share) in shares {
        let at = path(at);
        if takes_lines(policy, &at) {
            let new = ShareEntry::of(share.0);
            policy.shares.entry(at).or_insert(new).share = share.0;
        }
    }
    for at in removed {
        for line in movable(policy, &path(at)).unwrap_or_default() {
            policy.shares.remove(&line);
        }
    }
    for (from, to) in renamed {
        rename(policy, &path(from), &path(to));
    }
    if !since.is_empty() {
        for (at, entry) in &mut policy.shares {
            entry.since = since.get(at.as_str()).map(|day| day.0);
        }
    }
    forget_what_came_back(policy);
}

/// Whether a line can be there: below an entry that this policy divides.
fn takes_lines(policy: &SharePolicy, at: &AccountPath) -> bool {
    let Some(parent) = at.parent() else {
        return false;
    };
    let above = policy.shares.get(&parent);
    let is_ours = |above: &ShareEntry| above.delegate.is_none() && above.mount.is_none();
    !parent.is_others() && above.map_or(parent.is_root(), is_ours)
}

/// An entry and all below it, unless somebody else divides one of them.
fn movable(policy: &SharePolicy, at: &AccountPath) -> Option<Vec<AccountPath>> {
    let lines = policy.shares.iter();
    let lines: Vec<_> = lines.filter(|(path, _)| path.starts_with(at)).collect();
    let is_ours = |entry: &ShareEntry| entry.delegate.is_none() && entry.mount.is_none();
    let all_ours = lines.iter().all(|(_, entry)| is_ours(entry));
    let paths = lines.into_iter().map(|(path, _)| path.clone());
    all_ours.then(|| paths.collect())
}

fn rename(policy: &mut SharePolicy, from: &AccountPath, to: &AccountPath) {
    let lines = movable(policy, from).unwrap_or_default();
    let is_senseless = to.starts_with(from) || from.is_others() || to.is_others();
    let stays = |path: &AccountPath| !path.starts_with(from);
    let parent_stays = to.parent().is_some_and(|parent| stays(&parent));
    if lines.is_empty() || is_senseless || !parent_stays || !takes_lines(policy, to) {
        return;
    }
    for line in lines {
        let mut entry = policy.shares.remove(&line).expect("it is a line");
        let below = line.relative_to(from).expect("it is below");
        let at = to.join(&below).expect("few levels");
        // Usage of what is below goes with the entry.
        if below.is_root() {
            entry.was.push(line);
        }
        match policy.shares.get_mut(&at) {
            Some(there) if at.is_others() => there.share = entry.share,
            Some(there) => there.was.append(&mut entry.was),
            None => {
                policy.shares.insert(at, entry);
            }
        }
    }
}

/// Former paths that are entries, lie in somebody else's tree, or have become another entry's, are none any more.
fn forget_what_came_back(policy: &mut SharePolicy) {
    let entries: BTreeSet<AccountPath> = policy.shares.keys().cloned().collect();
    let divided = policy.shares.iter();
    let divided: BTreeSet<AccountPath> = divided
        .filter(|(_, entry)| entry.delegate.is_some() || entry.mount.is_some())
        .map(|(path, _)| path.clone())
        .collect();
    let mut claimed = BTreeSet::new();
    for entry in policy.shares.values_mut() {
        entry.was.retain(|was| {
            let is_ours = !was.ancestors().any(|above| divided.contains(&above));
            is_ours && !entries.contains(was) && claimed.insert(was.clone())
        });
    }
}
