//! The share tree in force: built from documents, fed by counters.
//!
//! Invariant: the tree's sums are those of the ledger (for usage counted here) and of the replicas
//! (for usage counted elsewhere), whatever the order in which they came; a rebuild gives the same
//! sums as the changes did.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_fairshare::{
    EntryId, EntrySpec, History, Reach, Scope, Snapshot, TreeSpec, TreeWriter, UsageItem,
    WeightTable,
};
use fairmesh_gossip::Replica;
use fairmesh_model::{
    AccountPath, Charter, Counters, Distance, HistoryRule, Now, SiteId, Span, StreamId, VoId,
    WallTime, Window, WindowLength, mutant, mutated,
};
use fairmesh_policy::{CompiledTree, InForce, compile};

use crate::config::SiteConfig;
use crate::identity::Account;
use crate::ledger::Ledger;
use crate::notice::Notice;
use crate::rise::Rise;
use crate::site::Site;
use crate::view::View;

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
}

impl Shares {
    /// The tree of the documents in force, without usage.
    pub(crate) fn build(
        config: &SiteConfig,
        replicas: &BTreeMap<VoId, Replica>,
        now: WallTime,
    ) -> Self {
        let compiled = compile(&config.policy, &mounted_policies(config, replicas, now));
        let histories = histories_of(config, replicas);
        let tables: Vec<History> = histories.iter().map(|rules| rules.table()).collect();
        // The site's own history is the first one.
        let local = tables[0].weights.clone();
        let local_horizon_windows = local.horizon_windows();
        let lengths: Vec<WindowLength> = histories.iter().map(|rules| rules.window).collect();
        let references: Vec<Window> = lengths.iter().map(|length| length.window_at(now)).collect();
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
        }
    }

    /// Usage that was counted here.
    pub(crate) fn count_own(&mut self, entry: EntryId, span: Span, charge: u64) {
        self.writer.apply(entry, span, charge, Reach::Own);
    }

    /// Usage that somebody published. Of usage counted here, `carried` is counted already.
    pub(crate) fn count_rise(&mut self, vo: VoId, rise: &Rise, carried: Counters, own: bool) {
        let risen = rise.amount.charge.saturating_sub(carried.charge);
        if risen > 0 {
            let account = Account {
                vo: Some(vo),
                path: rise.path.clone(),
            };
            let entry = self.view.locate(&account).entry;
            let own = own || mutated!(ReceivedAsOwn);
            let reach = if own { Reach::Own } else { Reach::Remote };
            self.writer.apply(entry, rise.span, risen, reach);
        }
    }

    /// Expected usage of running jobs changed.
    pub(crate) fn change_in_flight(
        &mut self,
        vo: VoId,
        changes: &[(AccountPath, i128)],
        own: bool,
    ) {
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
        let late =
            |window: Window| mutant!(ReferenceOneLate, window, Window(window.0.saturating_sub(1)));
        let references: Vec<Window> = self
            .lengths
            .iter()
            .map(|length| late(length.window_at(now)))
            .collect();
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

    /// Where own usage of a VO that is not mounted counts: against the root, whose windows are the
    /// owner's. `None` where no charter says in which windows it was counted.
    fn span_at_root(&self, span: Span, charter: Option<&Charter>) -> Option<Span> {
        Some(self.local.convert(span, charter?.window))
    }

    /// Feeds sums from scratch: what the ledger alone knows, and what was published. `left` are VOs
    /// that the owner has left.
    fn load(
        &mut self,
        ledger: &Ledger,
        replicas: &BTreeMap<VoId, Replica>,
        left: &BTreeMap<VoId, Replica>,
        own: SiteId,
    ) {
        let mut items = Vec::new();
        for (vo, span, path, counters) in ledger.cells() {
            let path = path.clone();
            let entry = self.view.locate(&Account { vo, path }).entry;
            let unmounted = vo.filter(|vo| !self.view.mounts().contains_key(vo));
            let span = match unmounted {
                None => Some(span),
                Some(vo) => {
                    let replica = replicas.get(&vo).or_else(|| left.get(&vo));
                    self.span_at_root(span, replica.and_then(Replica::charter))
                }
            };
            let Some(span) = span else { continue };
            items.push(UsageItem {
                entry,
                span,
                charge: counters.charge,
                reach: Reach::Own,
            });
        }
        for (vo, replica) in replicas {
            let Some(usage) = replica.usage() else {
                continue;
            };
            let current = StreamId {
                site: own,
                incarnation: ledger.incarnation(),
            };
            let counts = |stream| stream != current || mutated!(OwnStreamTwice);
            for cell in usage.cells().filter(|cell| counts(cell.stream)) {
                let (vo, path) = (Some(*vo), cell.path);
                let entry = self.view.locate(&Account { vo, path }).entry;
                let reach = if cell.stream.site == own {
                    Reach::Own
                } else {
                    Reach::Remote
                };
                items.push(UsageItem {
                    entry,
                    span: cell.span,
                    charge: cell.counters.charge,
                    reach,
                });
            }
        }
        self.writer.load(items);
        for (vo, replica) in replicas {
            for (site, rows) in replica.sheets() {
                let changes: Vec<(AccountPath, i128)> = rows
                    .iter()
                    .map(|(path, amount)| (path.clone(), i128::from(amount.0)))
                    .collect();
                self.change_in_flight(*vo, &changes, site == own);
            }
        }
    }
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
    replicas: &BTreeMap<VoId, Replica>,
    now: WallTime,
) -> BTreeMap<String, InForce> {
    let known = config.vos.iter().filter_map(|(alias, vo)| {
        let replica = replicas.get(vo).filter(|replica| replica.is_founded())?;
        Some((alias.clone(), replica.policies().in_force(now)))
    });
    known.collect()
}

/// The site's own rules first, then those of the VOs that are known.
fn histories_of(config: &SiteConfig, replicas: &BTreeMap<VoId, Replica>) -> Vec<HistoryRules> {
    let own = HistoryRules {
        of: None,
        rule: config.local_history,
        window: config.local_window,
        distance: Distance::default(),
    };
    let charters = replicas
        .iter()
        .filter_map(|(vo, replica)| Some((*vo, replica.charter()?)));
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

impl Site {
    /// Builds the tree anew: documents or the configuration changed, or counters fell.
    pub(crate) fn rebuild_shares(&mut self, now: Now) {
        self.tree_is_stale = false;
        self.shares = Shares::build(&self.config, &self.replicas, now.wall);
        self.shares
            .load(&self.ledger, &self.replicas, &self.left, self.id);
        self.warn_of_documents(now);
        self.effects.push(crate::event::Effect::View(self.view()));
    }

    /// Says what is not as it should be with the documents in force: expired ones, say.
    pub(crate) fn warn_of_documents(&mut self, now: Now) {
        let warnings: Vec<(VoId, String)> = self
            .replicas
            .iter()
            .filter(|(_, replica)| replica.is_founded())
            .flat_map(|(vo, replica)| {
                replica
                    .policies()
                    .warnings(now.wall)
                    .into_iter()
                    .map(|warning| (*vo, warning.to_string()))
            })
            .collect();
        for (vo, what) in warnings {
            self.notice(Notice::Policy { vo, what });
        }
    }
}
