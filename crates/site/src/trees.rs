//! Building and feeding share trees, and putting them into force.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairmesh_gossip::Shared;
use fairmesh_model::{HashSecret, Now, VoId, mutant};

use crate::event::Effect;
use crate::notice::Notice;
use crate::parts::{Cx, Own, Shares, Vos};
use crate::running::Running;
use crate::shares::Next;
use crate::shares::building::Blueprint;
use crate::shares::loading::{Fed, Loading};
use crate::shares::tree::Tree;
use crate::usage::UsageHandler;
use crate::vo::Vo;
use crate::work::Work;

/// Replaces the share tree.
pub(crate) struct TreeHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) running: &'a Running,
}

impl TreeHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    /// Begins to build the tree anew: documents or the configuration changed. What changes while it is built
    /// and fed is for the one behind it, so that each comes into force however often they change.
    pub(crate) fn begin_shares(&mut self, now: Now) {
        self.shares.is_stale = false;
        warn_of_documents(self.cx, self.vos, now);
        let blueprint = self.blueprint(now);
        if blueprint.entries_max() <= self.cx.config.timing.build_entries {
            return self.load_shares(Tree::build(&blueprint));
        }
        self.shares.next = Some(Next::Building);
        self.cx.effects.push(Effect::Work(Work::build(blueprint)));
    }

    fn blueprint(&self, now: Now) -> Blueprint {
        let policies = |(id, vo): (&VoId, &Vo)| (*id, Arc::clone(&vo.policies));
        Blueprint {
            config: Arc::clone(&self.cx.config),
            vos: self.vos.iter().map(policies).collect(),
            read: self.vos.read.clone(),
            secret: HashSecret::of(&self.cx.key),
            now: now.wall,
        }
    }

    /// A tree was built beside the site.
    pub(crate) fn take_tree(&mut self, tree: Tree) {
        if matches!(self.shares.next, Some(Next::Building)) {
            self.shares.is_stale &= mutant!(ChangeWhileBuildingLost, true, false);
            self.load_shares(tree);
        }
    }

    fn load_shares(&mut self, tree: Tree) {
        let loading = Loading::begin(tree, &mut self.fed());
        self.shares.follow_by(loading);
    }

    /// Feeds the tree that is built anew, if there is one; once it holds everything it is in force.
    pub(crate) fn feed_shares(&mut self, now: Now) {
        let mut next = match self.shares.next.take() {
            Some(Next::Loading(next)) => next,
            other => return self.shares.next = other,
        };
        let entries_max = self.cx.config.timing.sweep_entries;
        if next.step(&mut self.fed(), now.wall, entries_max) {
            self.shares.tree = next.into_tree();
            self.cx
                .effects
                .push(Effect::View(Arc::clone(&self.shares.tree.view)));
            // Feeding it has clamped all usage by the charters that it is of.
            for vo in self.vos.ids() {
                self.usage().notice_all_over_capacity(now, vo);
            }
            self.vos.values_mut().for_each(|vo| vo.published.wake());
        } else {
            self.shares.next = Some(Next::Loading(next));
        }
    }

    /// Builds the tree anew, whatever time that takes.
    pub(crate) fn rebuild_shares(&mut self, now: Now) {
        self.shares.is_stale = false;
        warn_of_documents(self.cx, self.vos, now);
        self.load_shares(Tree::build(&self.blueprint(now)));
        while self.shares.next.is_some() {
            self.feed_shares(now);
        }
    }

    fn fed(&mut self) -> Fed<'_> {
        Fed {
            own: self.own,
            running: self.running,
            vos: self.vos,
        }
    }
}

/// Says what is not as it should be with the documents in force, while it is: expired ones, say.
pub(crate) fn warn_of_documents(cx: &mut Cx, vos: &Vos, now: Now) {
    let founded = vos.iter().filter(|(_, vo)| vo.is_founded());
    let policies = founded.map(|(vo, held)| (*vo, &*held.policies));
    let warnings = policies.chain(vos.read_policies());
    let warnings = warnings.flat_map(|(vo, policies)| {
        let warnings = policies.warnings(now.wall).into_iter();
        warnings.map(move |warning| Notice::Policy {
            vo,
            what: warning.to_string(),
        })
    });
    let snapshots = vos.iter().flat_map(|(vo, held)| {
        let warnings = held.policies.snapshot_warnings(now.wall).into_iter();
        warnings.map(|warning| Notice::Snapshot {
            vo: *vo,
            what: warning.to_string(),
        })
    });
    let warnings: BTreeSet<Notice> = warnings.chain(snapshots).collect();
    let holds = |notice: &Notice| {
        let is_of_documents = matches!(notice, Notice::Policy { .. } | Notice::Snapshot { .. });
        !is_of_documents || warnings.contains(notice)
    };
    cx.notices.clear(holds);
    for warning in warnings {
        cx.notice(now.mono, warning);
    }
}
