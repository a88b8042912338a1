//! A share tree, its view, and what is needed to feed it.

use std::sync::Arc;

use fairmesh_fairshare::{EntryId, Reach, Snapshot, TreeWriter, WeightTable};
use fairmesh_model::window::DAY_MS;
use fairmesh_model::{AccountPath, Span, VoId, WallTime, Window, WindowLength, mutant, mutated};
use fairmesh_policy::CompiledTree;
use fairmesh_usage::PathId;

use crate::config::SiteConfig;
use crate::identity::Account;
use crate::moved::Moved;
use crate::published::Published;
use crate::running::Place;
use crate::view::View;

/// Whose history it is, and of which windows.
pub(super) type History = (Option<VoId>, WindowLength);

/// A tree, its view, and what is needed to feed it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) view: Arc<View>,
    pub(crate) compiled: CompiledTree,
    pub(super) writer: TreeWriter,
    /// The site's own first, then those of the VOs.
    pub(super) histories: Vec<History>,
    /// How the owner weighs.
    pub(super) local: WeightTable,
    /// Windows after which usage of the site's own accounts is not kept.
    pub(super) local_horizon_windows: u64,
    pub(super) references: Vec<Window>,
    /// Whether windows have moved on and not all entries have followed yet.
    pub(crate) is_sweeping: bool,
    /// Whether the places that are noted beside members' accounts are those of this tree: of the newest.
    pub(super) is_newest: bool,
}

impl Tree {
    pub(super) fn change<K>(&mut self, entry: EntryId, span: Span, moved: &Moved<K>, reach: Reach) {
        let (before, after) = (moved.before, moved.after);
        if after >= before {
            self.writer.apply(entry, span, after - before, reach);
        } else if !mutated!(TakenBackCounts) {
            self.writer.take_back(entry, span, before - after, reach);
        }
    }

    pub(super) fn change_in_flight(&mut self, vo: VoId, changes: &[Moved<AccountPath>]) {
        for moved in changes {
            let (vo, path) = (Some(vo), moved.key.clone());
            let entry = self.place(&Account { vo, path });
            let change = difference(moved);
            let locally = mutant!(ExpectedLocally, 0, change);
            self.writer.change_in_flight(entry, locally, change);
        }
    }

    pub(super) fn change_running(&mut self, moved: &Moved<Place>) {
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
    pub(super) fn place(&mut self, account: &Account) -> EntryId {
        let path = self.view.tree_path(account);
        self.writer.place(&path.unwrap_or_else(AccountPath::root))
    }

    /// The entry of a member's account, looked up once in the life of the newest tree.
    pub(super) fn entry_of(&mut self, vo: VoId, published: &mut Published, id: PathId) -> EntryId {
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
    pub(super) fn span_of(&self, vo: Option<VoId>, span: Span, window: WindowLength) -> Span {
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
pub(super) fn references_at(histories: &[History], now: WallTime) -> Vec<Window> {
    let windows = histories.iter().map(|(_, length)| length.window_at(now));
    windows
        .map(|window| mutant!(ReferenceOneLate, window, Window(window.0.saturating_sub(1))))
        .collect()
}
