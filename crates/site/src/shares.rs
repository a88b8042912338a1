//! The share tree in force: built from documents, fed by counters. One that is to take its place is fed
//! beside it (`loading`).
//!
//! Invariant: the tree's sums are those of own usage and of what the members have published, each
//! clamped to its site's capacity, whatever the order in which they came; a rebuild gives the same sums
//! as the changes did.

mod loading;

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::{
    EntryId, EntrySpec, History, Reach, Scope, Snapshot, TreeSpec, TreeWriter, WeightTable,
};
use fairmesh_gossip::Shared;
use fairmesh_model::{
    AccountPath, Distance, HistoryRule, SiteId, Span, VoId, WallTime, Window, WindowLength, mutant,
    mutated,
};
use fairmesh_policy::{CompiledTree, InForce, compile};

use crate::config::SiteConfig;
use crate::identity::Account;
use crate::published::{Moved, Published};
use crate::view::View;
use crate::vo::Vo;
use fairmesh_usage::PathId;

use loading::Source;
pub(crate) use loading::{Fed, Loading};

/// The tree, its view, and what is needed to feed it.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) view: Arc<View>,
    pub(crate) compiled: CompiledTree,
    writer: TreeWriter,
    /// Whose history each one is: the site's own first, then those of the VOs.
    histories: Vec<Option<VoId>>,
    /// Window lengths, history by history.
    lengths: Vec<WindowLength>,
    /// How the owner weighs.
    local: WeightTable,
    /// Windows after which usage of the site's own accounts weighs nothing.
    pub(crate) local_horizon_windows: u64,
    references: Vec<Window>,
    /// Whether windows have moved on and not all entries have followed yet.
    pub(crate) is_sweeping: bool,
    /// The tree that is to take this one's place, while it is fed.
    pub(crate) next: Option<Box<Loading>>,
}

impl Shares {
    /// The tree of the documents in force, without usage.
    pub(crate) fn build(config: &SiteConfig, vos: &BTreeMap<VoId, Vo>, now: WallTime) -> Self {
        let compiled = compile(&config.policy, &mounted_policies(config, vos, now));
        let histories = histories_of(config, vos);
        let tables: Vec<History> = histories.iter().map(|rules| rules.table()).collect();
        // The site's own history is the first one.
        let local = tables[0].weights.clone();
        let local_horizon_windows = local.horizon_windows();
        let lengths: Vec<WindowLength> = histories.iter().map(|rules| rules.window).collect();
        let references = references_at(&lengths, now);
        let histories: Vec<Option<VoId>> = histories.iter().map(|rules| rules.of).collect();
        let writer = spec_of(&compiled, &histories, tables)
            .build(&references)
            .expect("a compiled tree has no gaps and no doubles");
        let (identity, places) = (config.identity.clone(), places_of(&compiled));
        let view = Arc::new(View::new(identity, places, writer.reader()));
        Self {
            view,
            compiled,
            writer,
            histories,
            lengths,
            local,
            local_horizon_windows,
            references,
            is_sweeping: false,
            next: None,
        }
    }

    /// Usage of an account that was counted here, in a span of windows of length `window`.
    pub(crate) fn count_own(
        &mut self,
        account: &Account,
        span: Span,
        charge: u64,
        window: WindowLength,
    ) {
        if let Some(next) = self.next_that_holds(Source::own(account.vo), Some(span)) {
            next.count_own(account, span, charge, window);
        }
        let entry = self.view.locate(account).entry;
        let span = self.span_of(account.vo, span, window);
        self.writer.apply(entry, span, charge, Reach::Own);
    }

    /// What counts of usage that was counted here, in windows of length `window`, changed.
    pub(crate) fn move_own(
        &mut self,
        vo: Option<VoId>,
        moved: &[Moved<AccountPath>],
        window: WindowLength,
    ) {
        for moved in moved {
            if let Some(next) = self.next_that_holds(Source::own(vo), Some(moved.span)) {
                next.move_one_own(vo, moved, window);
            }
            self.move_one_own(vo, moved, window);
        }
    }

    fn move_one_own(&mut self, vo: Option<VoId>, moved: &Moved<AccountPath>, window: WindowLength) {
        let path = moved.path.clone();
        let entry = self.view.locate(&Account { vo, path }).entry;
        let span = self.span_of(vo, moved.span, window);
        self.change(entry, span, moved, Reach::Own);
    }

    /// What counts of usage that a member published changed.
    pub(crate) fn move_member(
        &mut self,
        (vo, site): (VoId, SiteId),
        published: &mut Published,
        moved: &[Moved<PathId>],
    ) {
        let reach = mutant!(ReceivedAsOwn, Reach::Remote, Reach::Own);
        for moved in moved {
            let day = published.day_of(moved.span);
            if let Some(next) = self.next_that_holds(Source::member(vo, site), Some(day)) {
                let entry = next.entry_of(vo, published, moved.path);
                next.change(entry, moved.span, moved, reach);
            }
            let entry = self.entry_of(vo, published, moved.path);
            self.change(entry, moved.span, moved, reach);
        }
    }

    fn change<P>(&mut self, entry: EntryId, span: Span, moved: &Moved<P>, reach: Reach) {
        let (before, after) = (moved.before, moved.after);
        if after >= before {
            self.writer.apply(entry, span, after - before, reach);
        } else if !mutated!(TakenBackCounts) {
            self.writer.take_back(entry, span, before - after, reach);
        }
    }

    /// The entry of a member's account, looked up once in the life of a tree: of the one that is fed,
    /// where there is one.
    fn entry_of(&self, vo: VoId, published: &mut Published, id: PathId) -> EntryId {
        if self.next.is_some() {
            let path = published.paths.path(id).clone();
            return self.view.locate(&Account { vo: Some(vo), path }).entry;
        }
        let known = published
            .paths
            .place(id)
            .and_then(|place| self.view.reader().entry_at(place));
        known.unwrap_or_else(|| {
            let account = Account {
                vo: Some(vo),
                path: published.paths.path(id).clone(),
            };
            let entry = self.view.locate(&account).entry;
            let place = u32::try_from(entry.index()).expect("entries are numbered in 32 bits");
            published.paths.set_place(id, place);
            entry
        })
    }

    /// Expected usage of running jobs changed.
    pub(crate) fn change_in_flight(
        &mut self,
        (vo, site): (VoId, SiteId),
        changes: &[(AccountPath, i128)],
        own: bool,
    ) {
        if let Some(next) = self.next_that_holds(Source::member(vo, site), None) {
            next.change_in_flight((vo, site), changes, own);
        }
        for (path, change) in changes {
            let entry = self
                .view
                .locate(&Account {
                    vo: Some(vo),
                    path: path.clone(),
                })
                .entry;
            let change =
                i64::try_from(*change).unwrap_or(if *change < 0 { i64::MIN } else { i64::MAX });
            let (own, remote) = if own { (change, 0) } else { (0, change) };
            self.writer.change_in_flight(entry, own, remote);
        }
    }

    /// Moves the windows on, a bounded number of entries at a time. False where the clock has gone
    /// back across a window's end: the tree must be built anew, as windows never move back.
    #[must_use]
    pub(crate) fn advance(&mut self, now: WallTime, entries_max: usize) -> bool {
        let references = references_at(&self.lengths, now);
        let mut places = references.iter().zip(&self.references);
        if places.any(|(next, last)| next < last) {
            return false;
        }
        let moved = references
            .iter()
            .zip(&self.references)
            .any(|(next, last)| next > last);
        if moved {
            self.references
                .iter_mut()
                .zip(references)
                .for_each(|(last, next)| *last = next.max(*last));
        }
        self.is_sweeping = !self.writer.advance(&self.references, entries_max);
        true
    }

    /// The weighted sums at and below `entry`, in path order, with paths below it.
    pub(crate) fn digest(&self, entry: EntryId, feed: impl FnMut(&str, u128)) {
        self.writer.digest(entry, feed);
    }

    /// The window that a VO's sums are seen from.
    pub(crate) fn reference(&self, vo: VoId) -> Option<Window> {
        let index = self.histories.iter().position(|of| *of == Some(vo))?;
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

/// The windows that the sums of each history are seen from.
fn references_at(lengths: &[WindowLength], now: WallTime) -> Vec<Window> {
    let windows = lengths.iter().map(|length| length.window_at(now));
    windows
        .map(|window| mutant!(ReferenceOneLate, window, Window(window.0.saturating_sub(1))))
        .collect()
}

/// The rules by which the site itself, or a VO, weighs usage.
struct HistoryRules {
    of: Option<VoId>,
    rule: HistoryRule,
    window: WindowLength,
    distance: Distance,
}

impl HistoryRules {
    fn table(&self) -> History {
        History {
            weights: WeightTable::new(self.rule, self.window),
            distance: self.distance,
        }
    }
}

/// The policies in force of the VOs that are known, by the owner's alias.
fn mounted_policies(
    config: &SiteConfig,
    vos: &BTreeMap<VoId, Vo>,
    now: WallTime,
) -> BTreeMap<String, InForce> {
    let known = config.vos.iter().filter_map(|(alias, vo)| {
        let vo = vos.get(vo).filter(|vo| vo.is_founded())?;
        Some((alias.clone(), vo.policies.in_force(now)))
    });
    known.collect()
}

/// The site's own rules first, then those of the VOs that are known.
fn histories_of(config: &SiteConfig, vos: &BTreeMap<VoId, Vo>) -> Vec<HistoryRules> {
    let own = HistoryRules {
        of: None,
        rule: config.local_history,
        window: config.local_window,
        distance: Distance::default(),
    };
    let charters = vos.iter().filter_map(|(id, vo)| Some((*id, vo.charter()?)));
    let vos = charters.map(|(vo, charter)| HistoryRules {
        of: Some(vo),
        rule: mutant!(
            HistoryIgnored,
            charter.history,
            HistoryRule::None { horizon: u32::MAX }
        ),
        window: charter.window,
        distance: mutant!(DistanceIgnored, charter.distance, Distance::default()),
    });
    [own].into_iter().chain(vos).collect()
}

fn spec_of(compiled: &CompiledTree, histories: &[Option<VoId>], tables: Vec<History>) -> TreeSpec {
    let places: BTreeMap<Option<VoId>, usize> = histories.iter().copied().zip(0..).collect();
    let history = |vo: Option<VoId>| places.get(&vo).copied().unwrap_or(0);
    let mut spec = TreeSpec::new(tables, 0);
    spec.root_history = history(compiled.root_vo);
    let entries = compiled.entries.iter().map(|entry| EntrySpec {
        path: entry.path.clone(),
        share: entry.share,
        scope: match entry.scope {
            fairmesh_policy::Scope::Local => Scope::Local,
            fairmesh_policy::Scope::Global => Scope::Global,
        },
        history: history(entry.vo),
    });
    spec.entries = entries.collect();
    spec
}

/// Where each VO is mounted.
fn places_of(compiled: &CompiledTree) -> BTreeMap<VoId, AccountPath> {
    let at_root = compiled.root_vo.map(|vo| (vo, AccountPath::root()));
    let mounts = compiled
        .entries
        .iter()
        .filter(|entry| entry.vo_path.as_ref().is_some_and(AccountPath::is_root));
    let mounted = mounts.filter_map(|entry| Some((entry.vo?, entry.path.clone())));
    mounted.chain(at_root).collect()
}
