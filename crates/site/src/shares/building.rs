//! Building the tree of the documents in force, from a value that has all that it takes: here, or beside the
//! site (`work`).
//!
//! Invariant: the tree is a function of the blueprint alone. Documents are shared, not copied: the site goes
//! on with its own, and takes a copy where one changes meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_fairshare::{EntrySpec, TreeSpec, WeightTable};
use fairmesh_model::{AccountPath, HashSecret, HistoryRule, VoId, WallTime, mutant};
use fairmesh_policy::{CompiledTree, InForce, VoPolicies, compile};

use super::tree::{History, Tree, references_at};
use crate::config::SiteConfig;
use crate::view::{Divided, View};
use crate::vo::kept_windows;

/// What a tree is built of.
#[derive(Debug, Clone)]
pub(crate) struct Blueprint {
    pub(crate) config: Arc<SiteConfig>,
    /// Of the VOs that the site takes part in.
    pub(crate) vos: BTreeMap<VoId, Arc<VoPolicies>>,
    /// Of those whose policies these mount.
    pub(crate) read: BTreeMap<VoId, Arc<VoPolicies>>,
    /// What paths of the tree are hashed behind.
    pub(crate) secret: HashSecret,
    pub(crate) now: WallTime,
}

impl Blueprint {
    /// As many entries as the tree can have, or more: where a VO mounts others' policies, as if each of its
    /// entries did.
    pub(crate) fn entries_max(&self) -> usize {
        let entries = |of: &BTreeMap<VoId, Arc<VoPolicies>>| -> usize {
            of.values().map(|policies| policies.entries()).sum()
        };
        let all = entries(&self.vos).saturating_add(entries(&self.read));
        let of_vo = |policies: &Arc<VoPolicies>| {
            let times = if policies.mounted().is_empty() {
                0
            } else {
                all
            };
            policies.entries().saturating_mul(1 + times)
        };
        let site = self.config.policy.entries().count();
        self.vos
            .values()
            .map(of_vo)
            .fold(site, usize::saturating_add)
    }

    fn policies_of(&self, vo: VoId) -> Option<&VoPolicies> {
        let member = self.vos.get(&vo);
        member.or_else(|| self.read.get(&vo)).map(|held| &**held)
    }
}

impl Tree {
    /// The tree of the documents in force, without usage.
    pub(crate) fn build(of: &Blueprint) -> Self {
        let mounted = mounted_policies(of);
        let inner = inner_policies(of, &mounted);
        let compiled = compile(&of.config.policy, &mounted, &inner, of.config.share_rule);
        let (histories, tables): (Vec<_>, Vec<_>) = histories_of(of).into_iter().unzip();
        // The site's own history is the first one.
        let local: WeightTable = tables[0].clone();
        let references = references_at(&histories, of.now);
        let writer = spec_of(of, &compiled, &histories, tables)
            .build(&references)
            .expect("a compiled tree has no gaps and no doubles");
        let (places, divided) = (places_of(&compiled), divided_by(of, &compiled));
        let config = Arc::clone(&of.config);
        let view = Arc::new(View::new(config, places, divided, writer.reader()));
        Self {
            view,
            compiled,
            writer,
            histories,
            local_horizon_windows: kept_windows(local.rule(), local.length()),
            local,
            references,
            is_sweeping: false,
            is_newest: true,
        }
    }
}

/// The policies in force of the VOs that are known, by the owner's alias.
fn mounted_policies(of: &Blueprint) -> BTreeMap<String, InForce> {
    let known = of.config.vos.iter().filter_map(|(alias, vo)| {
        let policies = of.vos.get(vo).filter(|vo| vo.charter().is_some())?;
        Some((alias.clone(), policies.in_force(of.now)))
    });
    known.collect()
}

/// The policies in force that those mount, as far as they are held.
fn inner_policies(of: &Blueprint, mounted: &BTreeMap<String, InForce>) -> BTreeMap<VoId, InForce> {
    let entries = mounted.values().flat_map(|vo| &vo.entries);
    let inner = entries.filter_map(|entry| entry.mount.as_ref());
    let inner: BTreeSet<VoId> = inner.map(|mount| mount.vo).collect();
    let known = inner.into_iter();
    known
        .filter_map(|vo| Some((vo, of.policies_of(vo)?.in_force(of.now))))
        .collect()
}

/// The entries that another VO's policy divides, and whose.
fn divided_by(of: &Blueprint, compiled: &CompiledTree) -> BTreeMap<AccountPath, Divided> {
    let parts = compiled.entries.iter();
    let parts = parts.filter_map(|entry| Some((entry.path.parent()?, entry.policy_of?)));
    let uppermost = parts.filter(|(above, _)| {
        let above = compiled.get(above);
        above.is_some_and(|above| above.policy_of.is_none())
    });
    let divided = uppermost.map(|(above, vo)| {
        let charter = of.policies_of(vo).and_then(VoPolicies::charter);
        let name = charter.map(|charter| charter.body().name.clone());
        let name = name.unwrap_or_else(|| vo.short());
        (above, Divided { vo, name })
    });
    divided.collect()
}

/// By which rules the site itself weighs usage, and then the VOs that are known.
fn histories_of(of: &Blueprint) -> Vec<(History, WeightTable)> {
    let history = |of, rule, window| ((of, window), WeightTable::new(rule, window));
    let (rule, window) = (of.config.local_history, of.config.local_window);
    let own = history(None, rule, window);
    let charters = of.vos.iter();
    let charters = charters.filter_map(|(id, vo)| Some((*id, vo.charter()?.body())));
    let vos = charters.map(|(vo, charter)| {
        let unweighed = HistoryRule::None { horizon: u32::MAX };
        let rule = mutant!(HistoryIgnored, charter.history, unweighed);
        history(Some(vo), rule, charter.window)
    });
    [own].into_iter().chain(vos).collect()
}

fn spec_of(
    of: &Blueprint,
    compiled: &CompiledTree,
    histories: &[History],
    tables: Vec<WeightTable>,
) -> TreeSpec {
    let owners = histories.iter().map(|(of, _)| *of);
    let places: BTreeMap<Option<VoId>, usize> = owners.zip(0..).collect();
    let history = |vo: Option<VoId>| places.get(&vo).copied().unwrap_or(0);
    let mut spec = TreeSpec::new(tables, 0);
    (spec.root_history, spec.secret) = (history(compiled.root_vo), of.secret);
    let entries = compiled.entries.iter().map(|entry| EntrySpec {
        path: entry.path.clone(),
        weight: entry.weight,
        at_most: entry.at_most,
        scope: entry.scope,
        distance: entry.distance,
        history: history(entry.vo),
        since: entry.since,
    });
    spec.entries = entries.collect();
    let former = compiled.former.iter();
    spec.moves = former.map(|of| (of.was.clone(), of.now.clone())).collect();
    spec.rule = compiled.rule;
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
