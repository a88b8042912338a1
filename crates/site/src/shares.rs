//! The share tree in force: built from documents, fed by counters. One that is to take its place is fed
//! beside it (`loading`).
//!
//! Invariant: the tree's sums are those of own usage and of what the members have published, each
//! clamped to its site's capacity, whatever the order in which they came; a rebuild gives the same sums
//! as the changes did.

pub(crate) mod building;
pub(crate) mod loading;
pub(crate) mod tree;

use fairmesh_fairshare::Reach;
use fairmesh_model::{AccountPath, SiteId, Span, VoId, WindowLength, mutant};
use fairmesh_usage::PathId;

use crate::identity::Account;
use crate::moved::Moved;
use crate::published::Published;
use crate::running::Place;
use crate::shares::loading::{Loading, Source};
use tree::Tree;

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
