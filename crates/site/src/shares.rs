//! The share tree in force: built from documents, fed by counters. One that is to take its place is fed
//! beside it (`loading`).
//!
//! Invariant: the tree's sums are those of own usage and of what the members have published, each
//! clamped to its site's capacity, whatever the order in which they came; a rebuild gives the same sums
//! as the changes did.

mod building;
mod loading;

use std::sync::Arc;

use fairmesh_fairshare::{EntryId, Reach, Snapshot, TreeWriter, WeightTable};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{
    AccountPath, SiteId, Span, VoId, WallTime, Window, WindowLength, mutant, mutated,
};
use fairmesh_policy::CompiledTree;
use fairmesh_usage::PathId;

use crate::config::SiteConfig;
use crate::identity::Account;
use crate::moved::Moved;
use crate::published::Published;
use crate::running::Place;
use crate::view::View;
use loading::Source;

pub(crate) use building::Blueprint;
pub(crate) use loading::{Fed, Loading};

/// The tree in force, and the one that is to take its place.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) tree: Tree,
    pub(crate) next: Option<Next>,
    /// Whether documents or the configuration have changed since the newest tree was begun.
    pub(crate) is_stale: bool,
}

/// A tree that is to be in force.
#[derive(Debug)]
pub(crate) enum Next {
    /// It is built beside the site.
    Building,
    /// It is fed.
    Loading(Box<Loading>),
}

/// Whose history it is, and of which windows.
type History = (Option<VoId>, WindowLength);

/// A tree, its view, and what is needed to feed it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) view: Arc<View>,
    pub(crate) compiled: CompiledTree,
    writer: TreeWriter,
    /// The site's own first, then those of the VOs.
    histories: Vec<History>,
    /// How the owner weighs.
    local: WeightTable,
    /// Windows after which usage of the site's own accounts is not kept.
    local_horizon_windows: u64,
    references: Vec<Window>,
    /// Whether windows have moved on and not all entries have followed yet.
    pub(crate) is_sweeping: bool,
    /// Whether the places that are noted beside members' accounts are those of this tree: of the newest.
    is_newest: bool,
}

impl Shares {
    /// A tree that another one is to follow.
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            tree,
            next: None,
            is_stale: true,
        }
    }

    /// Another tree is to take this one's place once it is fed.
    pub(crate) fn follow_by(&mut self, next: Loading) {
        self.tree.is_newest = false;
        self.next = Some(Next::Loading(Box::new(next)));
    }

    /// The trees that hold what came from `source` in `span`, or all of it.
    fn trees(&mut self, source: Source, span: Option<Span>) -> impl Iterator<Item = &mut Tree> {
        let next = match &mut self.next {
            Some(Next::Loading(next)) => next.tree_that_holds(source, span),
            Some(Next::Building) | None => None,
        };
        next.into_iter().chain([&mut self.tree])
    }

    /// Usage of an account that was counted here, in a span of windows of length `window`.
    pub(crate) fn count_own(
        &mut self,
        account: &Account,
        span: Span,
        charge: u64,
        window: WindowLength,
    ) {
        for tree in self.trees(Source::Own(account.vo), Some(span)) {
            let entry = tree.place(account);
            let span = tree.span_of(account.vo, span, window);
            tree.writer.apply(entry, span, charge, Reach::Own);
        }
    }

    /// What counts of usage that was counted here, in windows of length `window`, changed.
    pub(crate) fn move_own(
        &mut self,
        vo: Option<VoId>,
        moved: &[Moved<(Span, AccountPath)>],
        window: WindowLength,
    ) {
        for moved in moved {
            let (span, path) = &moved.key;
            for tree in self.trees(Source::Own(vo), Some(*span)) {
                let path = path.clone();
                let entry = tree.place(&Account { vo, path });
                let span = tree.span_of(vo, *span, window);
                tree.change(entry, span, moved, Reach::Own);
            }
        }
    }

    /// What counts of usage that a member published changed.
    pub(crate) fn move_member(
        &mut self,
        (vo, site): (VoId, SiteId),
        published: &mut Published,
        moved: &[Moved<(Span, PathId)>],
    ) {
        let reach = mutant!(ReceivedAsOwn, Reach::Remote, Reach::Own);
        for moved in moved {
            let (span, path) = moved.key;
            let day = published.day_of(span);
            for tree in self.trees(Source::Member(vo, site), Some(day)) {
                let entry = tree.entry_of(vo, published, path);
                tree.change(entry, span, moved, reach);
            }
        }
    }

    /// What running jobs of a site count for in their VO changed.
    pub(crate) fn change_in_flight(
        &mut self,
        (vo, site): (VoId, SiteId),
        changes: &[Moved<AccountPath>],
    ) {
        for tree in self.trees(Source::Member(vo, site), None) {
            tree.change_in_flight(vo, changes);
        }
    }

    /// What running jobs of this site count for at the owner's levels changed.
    pub(crate) fn change_running(&mut self, moved: &[Moved<Place>]) {
        for tree in self.trees(Source::Running, None) {
            moved.iter().for_each(|moved| tree.change_running(moved));
        }
    }
}

impl Tree {
    fn change<K>(&mut self, entry: EntryId, span: Span, moved: &Moved<K>, reach: Reach) {
        let (before, after) = (moved.before, moved.after);
        if after >= before {
            self.writer.apply(entry, span, after - before, reach);
        } else if !mutated!(TakenBackCounts) {
            self.writer.take_back(entry, span, before - after, reach);
        }
    }

    fn change_in_flight(&mut self, vo: VoId, changes: &[Moved<AccountPath>]) {
        for moved in changes {
            let (vo, path) = (Some(vo), moved.key.clone());
            let entry = self.place(&Account { vo, path });
            let change = difference(moved);
            let locally = mutant!(ExpectedLocally, 0, change);
            self.writer.change_in_flight(entry, locally, change);
        }
    }

    fn change_running(&mut self, moved: &Moved<Place>) {
        let (place, before, after) = (&moved.key, moved.before, moved.after);
        let entry = self.place(&place.account);
        let Some(span) = place.span else {
            return self.writer.change_in_flight(entry, difference(moved), 0);
        };
        let span = self.span_of(place.account.vo, span, place.window);
        if after >= before {
            self.writer.add_running(entry, span, after - before);
        } else {
            self.writer.take_running(entry, span, before - after);
        }
    }

    /// The entry where usage of an account is booked: an account without a line gets one.
    fn place(&mut self, account: &Account) -> EntryId {
        let path = self.view.tree_path(account);
        self.writer.place(&path.unwrap_or_else(AccountPath::root))
    }

    /// The entry of a member's account, looked up once in the life of the newest tree.
    fn entry_of(&mut self, vo: VoId, published: &mut Published, id: PathId) -> EntryId {
        let known = published.paths.place(id).filter(|_| self.is_newest);
        let known = known.and_then(|place| self.view.reader().entry_at(place));
        known.unwrap_or_else(|| {
            let account = Account {
                vo: Some(vo),
                path: published.paths.path(id).clone(),
            };
            let entry = self.place(&account);
            if self.is_newest {
                let place = u32::try_from(entry.index()).expect("entries are numbered in 32 bits");
                published.paths.set_place(id, place);
            }
            entry
        })
    }

    /// Moves the windows on, a bounded number of entries at a time. False where the clock has gone
    /// back across a window's end: the tree must be built anew, as windows never move back.
    #[must_use]
    pub(crate) fn advance(&mut self, now: WallTime, entries_max: usize) -> bool {
        let references = references_at(&self.histories, now);
        let mut places = references.iter().zip(&self.references);
        if places.any(|(next, last)| next < last) {
            return false;
        }
        self.references = references;
        self.is_sweeping = !self.writer.advance(&self.references, entries_max);
        true
    }

    /// The moment before which usage of the site's own accounts weighs nothing.
    pub(crate) fn local_horizon(&self, config: &SiteConfig, now: WallTime) -> WallTime {
        let window = config.local_window;
        let windows = self.local_horizon_windows.saturating_add(window.per_day());
        WallTime(now.before(window.millis().times(windows)).0 / DAY_MS * DAY_MS)
    }

    /// The window that a VO's sums are seen from.
    pub(crate) fn reference(&self, vo: VoId) -> Option<Window> {
        let index = self.histories.iter().position(|(of, _)| *of == Some(vo))?;
        self.writer.reader().references().get(index).copied()
    }

    /// A copy of all sums, for ranks and explanations.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.writer.snapshot()
    }

    /// The span that own usage of a VO counts in. Where the VO is not mounted it counts against the
    /// root, whose windows are the owner's.
    fn span_of(&self, vo: Option<VoId>, span: Span, window: WindowLength) -> Span {
        match vo.filter(|vo| !self.view.mounts().contains_key(vo)) {
            None => span,
            Some(_) => self.local.convert(span, window),
        }
    }
}

fn difference<K>(moved: &Moved<K>) -> i64 {
    let change = i128::from(moved.after) - i128::from(moved.before);
    i64::try_from(change).unwrap_or(if change < 0 { i64::MIN } else { i64::MAX })
}

/// The windows that the sums of each history are seen from.
fn references_at(histories: &[History], now: WallTime) -> Vec<Window> {
    let windows = histories.iter().map(|(_, length)| length.window_at(now));
    windows
        .map(|window| mutant!(ReferenceOneLate, window, Window(window.0.saturating_sub(1))))
        .collect()
}
