//! Feeding a new tree while the old one answers.
//!
//! Documents or the configuration have changed, so the tree is another one, and every cell of every member
//! has to find its place in it. That is done some cells at a time, between events: look-ups, reports and
//! peers wait for a slice of it and not for all. Until the new tree holds everything the old one stays in
//! force, and what changes meanwhile is booked in both: in the new one if it has that site's day already,
//! else it is read with the rest of the day.
//!
//! Invariant: what the new tree is fed is what a tree that was built now would be fed, whatever came
//! between two slices.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_fairshare::{EntryId, Reach, UsageItem};
use fairmesh_gossip::Shared as _;
use fairmesh_model::{SiteId, Span, VoId, WallTime, mutant, mutated};

use super::tree::Tree;
use crate::identity::Account;
use crate::moved::moved;
use crate::own::Own;
use crate::published::Published;
use crate::running::Running;
use crate::vo::Vo;
use crate::vos::Vos;

/// Where usage comes from: counted here for a VO or locally, published by a member, or running here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Running,
    Own(Option<VoId>),
    Member(VoId, SiteId),
}

/// A tree that is fed, and what it has not been fed yet: spans of own usage, days of members.
#[derive(Debug)]
pub(crate) struct Loading {
    tree: Tree,
    pending: BTreeMap<Source, BTreeSet<Span>>,
    is_summing: bool,
}

/// All that a tree is fed from.
pub(crate) struct Fed<'a> {
    /// What was counted here.
    pub(crate) own: &'a Own,
    /// What runs here.
    pub(crate) running: &'a Running,
    /// What members published, and the VOs that the owner has left.
    pub(crate) vos: &'a mut Vos,
}

impl Loading {
    /// Begins to feed `tree`.
    pub(crate) fn begin(tree: Tree, fed: &mut Fed<'_>) -> Self {
        let mut pending = BTreeMap::from([(Source::Running, BTreeSet::new())]);
        let founded = fed
            .vos
            .iter()
            .chain(&fed.vos.left)
            .filter(|(_, vo)| vo.is_founded());
        let own = founded.map(|(id, _)| Some(*id)).chain([None]);
        for vo in own {
            pending.insert(Source::Own(vo), fed.own.spans(vo).collect());
        }
        for (id, vo) in fed.vos.iter_mut() {
            // Places are those of the tree that is fed from now on.
            if !mutated!(PlacesOutliveTree) {
                vo.published.paths.clear_places();
            }
            for site in vo.published.sites() {
                let days = vo.published.days(site).into_iter().map(Span::Day);
                pending.insert(Source::Member(*id, site), days.collect());
            }
        }
        Self {
            tree,
            pending,
            is_summing: false,
        }
    }

    /// The tree, if it holds what came from `source` in `span`, or all of it.
    pub(super) fn tree_that_holds(
        &mut self,
        source: Source,
        span: Option<Span>,
    ) -> Option<&mut Tree> {
        let pending = self.pending.get(&source);
        let lacks = pending.is_some_and(|spans| span.is_none_or(|span| spans.contains(&span)));
        (!lacks).then_some(&mut self.tree)
    }

    /// Feeds it half as many cells as entries are swept at a time, a few milliseconds by default; true
    /// once it holds everything and its sums are up to date.
    pub(crate) fn step(&mut self, fed: &mut Fed<'_>, now: WallTime, entries_max: usize) -> bool {
        let mut room = entries_max.div_ceil(2);
        while room > 0 {
            // A site whose accounts are being moved is read once they are.
            let mut sources = self.pending.iter_mut();
            let Some((of, spans)) = sources.find(|(of, _)| !is_moving(fed.vos, **of)) else {
                break;
            };
            let (of, span) = (*of, spans.pop_first());
            let items = match (of, span) {
                (Source::Own(vo), Some(span)) => own_items(&mut self.tree, fed, vo, span),
                (Source::Member(vo, site), Some(Span::Day(day))) => {
                    member_items(&mut self.tree, fed, (vo, site), day)
                }
                _ => {
                    self.pending.remove(&of);
                    self.feed_expected(fed, of);
                    Vec::new()
                }
            };
            room = room.saturating_sub(items.len().max(16));
            self.tree.writer.book(items);
        }
        if !self.pending.is_empty() {
            return false;
        }
        if !std::mem::replace(&mut self.is_summing, true) {
            self.tree.writer.sum_up();
        }
        // A clock that has gone back is found out once the tree is in force.
        let is_ahead = !self.tree.advance(now, entries_max);
        is_ahead || !self.tree.is_sweeping
    }

    /// Whether a step can do something.
    pub(crate) fn is_ready(&self, vos: &BTreeMap<VoId, Vo>) -> bool {
        let mut sources = self.pending.keys();
        self.pending.is_empty() || sources.any(|of| !is_moving(vos, *of))
    }

    /// The tree.
    pub(crate) fn into_tree(self) -> Tree {
        self.tree
    }

    /// What running jobs count for: those of a site in their VO, or this site's at the owner's levels.
    fn feed_expected(&mut self, fed: &Fed<'_>, of: Source) {
        if of == Source::Running && !mutated!(RebuildLosesLocal) {
            let all = fed.running.all();
            all.iter().for_each(|moved| self.tree.change_running(moved));
        }
        let Source::Member(vo, site) = of else { return };
        let published = fed.vos.get(&vo).map(|held| &held.published);
        let rows = published.map_or(&[][..], |published| published.expected_of(site));
        if !mutated!(RebuildLosesRunning) {
            let changes = moved([], rows.iter().cloned());
            self.tree.change_in_flight(vo, &changes);
        }
    }
}

/// Whether accounts of a site are being moved.
fn is_moving(vos: &BTreeMap<VoId, Vo>, of: Source) -> bool {
    let Source::Member(vo, site) = of else {
        return false;
    };
    let held = vos.get(&vo);
    held.is_some_and(|held| held.published.is_moving(site)) && !mutated!(MovingSiteRead)
}

fn item(entry: EntryId, span: Span, charge: u64, reach: Reach) -> UsageItem {
    UsageItem {
        entry,
        span,
        charge,
        reach,
    }
}

fn own_items(tree: &mut Tree, fed: &Fed<'_>, vo: Option<VoId>, span: Span) -> Vec<UsageItem> {
    let held = vo.and_then(|vo| fed.vos.get(&vo).or_else(|| fed.vos.left.get(&vo)));
    let bounds = held.map(Vo::bounds);
    let sums = fed.own.sums_in(vo, &BTreeSet::from([span]), bounds);
    let sums = sums.into_iter().flat_map(|((span, path), counters)| {
        let entry = tree.place(&Account { vo, path });
        let span = bounds.map_or(span, |bounds| tree.span_of(vo, span, bounds.window));
        let of_own = item(entry, span, counters.net(), Reach::Own);
        std::iter::repeat_n(of_own, mutant!(OwnTwiceInTree, 1, 2))
    });
    sums.collect()
}

fn member_items(
    tree: &mut Tree,
    fed: &mut Fed<'_>,
    (vo, site): (VoId, SiteId),
    day: u32,
) -> Vec<UsageItem> {
    let Some(held) = fed.vos.get_mut(&vo) else {
        return Vec::new();
    };
    let capacity = held.capacity(site);
    let published: &mut Published = &mut held.published;
    let sums = published.sums_of_day(site, day, capacity).into_iter();
    sums.map(|((span, path), counters)| {
        let entry = tree.entry_of(vo, published, path);
        item(entry, span, counters.net(), Reach::Remote)
    })
    .collect()
}
