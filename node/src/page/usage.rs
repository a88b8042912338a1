//! What was used behind an entry: where, and when.
//!
//! Invariant: sums are of what the sites have published, unweighted and as they said it, and at a level of the site's
//! own of this site alone: what the share of that level is measured by. Tables are listed on the node's task, shared,
//! and read here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fairmesh_fairshare::EntryId;
use fairmesh_fairshare::explain::levels;
use fairmesh_model::{AccountPath, SiteId, VoId, WallTime};
use fairmesh_site::PublishedTables;

use super::figures::share;
use super::page_data::PageData;
use crate::driver::{Gone, NodeHandle};

/// Rows of the site's own accounts that are held for pages at most, the newest: some 40 MB.
const LOCAL_ROWS_MAX: usize = 1_000_000;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Steps of time that are drawn at most.
const STEPS_MAX: usize = 48;

/// Where history is this short it is shown by the hour: older hours are kept as days.
const BY_HOUR_MAX: u64 = 2 * DAY_MS;

/// The tables of all VOs, and of the site's own accounts.
pub(super) struct Usage {
    pub(super) taken: Instant,
    pub(super) took: Duration,
    own: SiteId,
    vos: BTreeMap<VoId, PublishedTables>,
    local: Vec<(WallTime, AccountPath, u64)>,
}

/// What was used in a step of time, in core-milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) start: WallTime,
    pub(super) own: u64,
    /// By all of its parent.
    pub(super) parent: u64,
}

/// The usage that counts for an entry, by site and in time.
#[derive(Debug, Default)]
pub(super) struct EntryUsage {
    /// Core-milliseconds by site, largest first.
    pub(super) by_site: Vec<(SiteId, u64)>,
    /// Consecutive steps without gaps.
    pub(super) steps: Vec<Step>,
    /// The length of a step.
    pub(super) step_ms: u64,
    /// Whether usage of all sites counts.
    pub(super) is_global: bool,
    /// What the entry should have of its parent, where it has one.
    pub(super) target: Option<f64>,
}

/// Which of a VO's accounts count for an entry of the site's tree.
enum Part {
    All,
    Below(AccountPath),
    None,
}

impl Usage {
    /// Lists what there is.
    pub(super) async fn list(node: &NodeHandle, own: SiteId) -> Result<Self, Gone> {
        let began = Instant::now();
        let (vos, (length, mut spans)) = node
            .ask(|site, now| {
                let vos = site.vo_status(now).into_iter().map(|status| status.vo);
                let tables = vos.filter_map(|vo| Some((vo, site.published_tables(vo)?)));
                (tables.collect(), site.local_spans())
            })
            .await?;
        spans.sort_by_key(|span| std::cmp::Reverse(span.start(length)));
        let mut local = Vec::new();
        // One at a time: in between, the node does what it is there for.
        for span in spans {
            let cells = node.ask(move |site, _| site.local_cells(span)).await?;
            let at = span.start(length);
            local.extend(cells.into_iter().map(|(path, of)| (at, path, of.net())));
            if local.len() > LOCAL_ROWS_MAX {
                local.truncate(LOCAL_ROWS_MAX);
                break;
            }
        }
        Ok(Self {
            taken: Instant::now(),
            took: began.elapsed(),
            own,
            vos,
            local,
        })
    }

    /// The usage that counts for `entry`.
    pub(super) fn usage_of(&self, data: &PageData, entry: EntryId) -> EntryUsage {
        let snapshot = data.moment.snapshot();
        let level = levels(snapshot, entry).pop();
        let is_global = level.as_ref().is_none_or(|level| level.global);
        let path = snapshot.path(entry);
        let parent = path.parent().unwrap_or_else(AccountPath::root);
        let mut by_site: BTreeMap<SiteId, u64> = BTreeMap::new();
        let mut times: BTreeMap<u64, Step> = BTreeMap::new();
        let mut add = |site: SiteId, start: WallTime, is_own: bool, charge: u64| {
            if !is_global && site != self.own {
                return;
            }
            let hour = WallTime(start.0 - start.0 % HOUR_MS);
            let step = times.entry(hour.0).or_default();
            step.start = hour;
            step.parent = step.parent.saturating_add(charge);
            if is_own {
                step.own = step.own.saturating_add(charge);
                let sum = by_site.entry(site).or_default();
                *sum = sum.saturating_add(charge);
            }
        };
        for (vo, tables) in &self.vos {
            let mount = data.moment.view.mounts().get(vo);
            let (own, all) = (Part::of(path, mount), Part::of(&parent, mount));
            if matches!(all, Part::None) {
                continue;
            }
            let name = |account: &str| all.has(account).then(|| own.has(account));
            for ((site, span, is_own), counters) in tables.sums(name) {
                let start = span.start(tables.length());
                add(site, start, is_own, counters.net());
            }
        }
        for (start, account, charge) in &self.local {
            if account.starts_with(&parent) {
                add(self.own, *start, account.starts_with(path), *charge);
            }
        }
        let mut by_site: Vec<_> = by_site.into_iter().collect();
        by_site.sort_by_key(|(site, charge)| (std::cmp::Reverse(*charge), *site));
        let now = WallTime(data.said.rests_on.as_of_ms);
        let (steps, step_ms) = stepped(times.into_values().collect(), now);
        EntryUsage {
            by_site,
            steps,
            step_ms,
            is_global,
            target: level.map(|level| share(level.target)),
        }
    }
}

impl Part {
    /// The accounts of a VO that is mounted there which count at or below `path`. One that is mounted nowhere counts
    /// at the root.
    fn of(path: &AccountPath, mount: Option<&AccountPath>) -> Self {
        let Some(mount) = mount else {
            return if path.is_root() {
                Self::All
            } else {
                Self::None
            };
        };
        if mount.starts_with(path) {
            return Self::All;
        }
        path.relative_to(mount).map_or(Self::None, Self::Below)
    }

    fn has(&self, account: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Below(path) => account
                .strip_prefix(path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

/// Hours, or days where they reach back further, up to now and without a gap.
fn stepped(hours: Vec<Step>, now: WallTime) -> (Vec<Step>, u64) {
    let Some(first) = hours.first() else {
        return (Vec::new(), DAY_MS);
    };
    let last = hours.last().map_or(now, |last| last.start.max(now));
    let is_short = last.0.saturating_sub(first.start.0) < BY_HOUR_MAX;
    let length = if is_short { HOUR_MS } else { DAY_MS };
    let end = last.0 / length;
    let begin = (first.start.0 / length).max((end + 1).saturating_sub(STEPS_MAX as u64));
    let empty = |at: u64| Step {
        start: WallTime(at * length),
        ..Step::default()
    };
    let mut steps: Vec<Step> = (begin..=end).map(empty).collect();
    for hour in hours {
        let at = (hour.start.0 / length).checked_sub(begin);
        let step = at.and_then(|at| steps.get_mut(usize::try_from(at).ok()?));
        if let Some(step) = step {
            step.own = step.own.saturating_add(hour.own);
            step.parent = step.parent.saturating_add(hour.parent);
        }
    }
    (steps, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_history_is_by_the_hour_and_a_long_one_by_the_day() {
        let hour = |at: u64, own| Step {
            start: WallTime(at * HOUR_MS),
            own,
            parent: 10,
        };
        let (steps, length) = stepped(vec![hour(5, 1), hour(7, 2)], WallTime(8 * HOUR_MS));
        let own: Vec<u64> = steps.iter().map(|step| step.own).collect();
        assert_eq!((own, length), (vec![1, 0, 2, 0], HOUR_MS));
        let (steps, length) = stepped(vec![hour(5, 1), hour(6, 1), hour(99, 4)], WallTime(0));
        let own: Vec<u64> = steps.iter().map(|step| step.own).collect();
        assert_eq!((own, length), (vec![2, 0, 0, 0, 4], DAY_MS));
        let (steps, _) = stepped(vec![hour(0, 1), hour(24 * 100, 1)], WallTime(0));
        assert_eq!(steps.len(), STEPS_MAX);
        assert_eq!(steps.iter().map(|step| step.own).sum::<u64>(), 1);
    }

    #[test]
    fn accounts_count_at_their_entry_and_above() {
        let path = |text: &str| AccountPath::parse(text).expect("a path");
        let mount = path("/grid/VO-A");
        let part = |of: &str| Part::of(&path(of), Some(&mount));
        assert!(part("/").has("/P/u") && part("/grid").has("/P/u"));
        assert!(part("/grid/VO-A").has("/P/u") && part("/grid/VO-A/P").has("/P/u"));
        assert!(!part("/grid/VO-A/P").has("/P2/u") && !part("/grid/VO-B").has("/P/u"));
        assert!(Part::of(&path("/"), None).has("/P") && !Part::of(&mount, None).has("/P"));
    }
}
