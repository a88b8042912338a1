//! Priorities are identical for identical views.
//!
//! Invariant checked: the digest of a view decides the target, the usage and so the deviation of
//! every entry below a VO's mount, at any two nodes and any two times; but for the usage in levels
//! that count each site's own. Accounts without a line are looked at where their `*` has one and members have used
//! something by them: others are in no digest.

use std::collections::{BTreeSet, HashMap};

use fairmesh_fairshare::EntryKind;
use fairmesh_model::{ContentHash, Scope, VoId};
use fairmesh_site::Site;

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

/// Deep checks of one node between two of these: a copy of the tree is made for each.
const DEEP_BETWEEN: u64 = 4;

#[derive(Default)]
pub(super) struct Priorities {
    /// What goes with each view, and who had it first. Only looked up.
    levels: HashMap<(VoId, ContentHash), (ContentHash, usize)>,
    passed: u64,
}

/// One hash of the deviations of all entries below a VO's mount.
fn levels(site: &Site, vo: VoId) -> Option<ContentHash> {
    let view = site.view();
    let mount = view.mounts().get(&vo)?;
    let snapshot = site.snapshot();
    let mut lines = BTreeSet::new();
    for entry in snapshot.ids() {
        let path = snapshot.path(entry);
        let Some(below) = path.relative_to(mount).filter(|below| !below.is_root()) else {
            continue;
        };
        let line = match snapshot.kind(entry) {
            EntryKind::Unlisted if snapshot.sums(entry).global > 0 => snapshot.parent(entry),
            EntryKind::Listed | EntryKind::Others => Some(entry),
            EntryKind::Unlisted | EntryKind::ImpliedOthers => None,
        };
        let line = line.and_then(|line| site.compiled().get(snapshot.path(line)));
        let Some(line) = line else {
            continue;
        };
        let mut level = snapshot.level(entry);
        if line.scope == Scope::Local {
            (level.usage, level.parent_usage) = (0, 0);
        }
        if line.scope == Scope::Global || snapshot.kind(entry) != EntryKind::Unlisted {
            // Accounts without a line have the order in which they came.
            lines.insert(format!("{below} {level:?}"));
        }
    }
    let lines: Vec<String> = lines.into_iter().collect();
    Some(ContentHash::of(lines.join("\n").as_bytes()))
}

impl Invariant for Priorities {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.is_due(&mut self.passed, DEEP_BETWEEN) {
            return Ok(());
        }
        for node in seen.nodes() {
            // While the next tree is fed the one of earlier documents answers, and a view names the new ones.
            let site = seen.world.site(node).filter(|site| !site.is_feeding());
            let Some(site) = site else {
                continue;
            };
            for vo in site_vos(seen, node) {
                let (Some(view), Some(now)) = (site.view_digest(vo), levels(site, vo)) else {
                    continue;
                };
                let (known, who) = *self.levels.entry((vo, view)).or_insert((now, node));
                *checks += 1;
                if known != now {
                    let message = format!(
                        "has the view of VO {} that site {who} had, and other priorities",
                        vo.short()
                    );
                    return Err(Violation::at(node, message));
                }
            }
        }
        Ok(())
    }
}
