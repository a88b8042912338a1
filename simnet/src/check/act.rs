//! Doing what is planned: reports, faults, and putting them right again.
//!
//! Invariant: the ledger is told of a loss in the same breath in which the disk loses, and of a
//! report before and after the site is. Deliberately not here: what is planned when (`swarm`).

use std::collections::BTreeMap;

use fairmesh_model::VoId;

use super::{Planned, Run};
use crate::oracle::{Amounts, held_on_disk};
use crate::swarm::{Offer, running_jobs};
use crate::vo::site_id;
use crate::world::{Action, StepKind};

impl Run {
    pub(super) fn act(&mut self, planned: Planned) {
        match planned {
            Planned::Report(node) if self.paused.contains(&node) => {}
            Planned::Report(node) => {
                let (now, mounted) = (self.world.true_wall(), self.mounted(node));
                let offers = self.feeds.report(node, now, &mounted);
                self.report(node, &offers);
            }
            Planned::Running(node) => self.running(node),
            Planned::Fault(action) => self.fault(&action),
        }
    }

    /// VOs that a node mounts now, by their numbers.
    pub(super) fn mounted(&self, node: usize) -> Vec<usize> {
        let config = &self.world.node(node).config;
        let named = |vo: &VoId| config.vos.values().any(|of| of == vo);
        (0..self.ids.len())
            .filter(|vo| named(&self.ids[*vo]))
            .collect()
    }

    /// Offers records as a feed does. What is not answered is offered again by a later report.
    pub(super) fn report(&mut self, node: usize, offers: &[Offer]) {
        if offers.is_empty() || !self.world.node(node).is_up() {
            return;
        }
        self.offered(node, offers.iter());
        let records = offers.iter().map(|offer| offer.record.clone()).collect();
        if let Some(reported) = self.world.report(node, records) {
            let refused: Vec<usize> = reported.refused.iter().map(|(at, _)| *at).collect();
            let taken = (0..offers.len()).filter(|at| !refused.contains(at));
            for offer in taken.map(|at| &offers[at]) {
                let (job, charge) = (&offer.record.key.job, offer.charge());
                self.oracle.acknowledged(node, &offer.account, job, charge);
                self.feeds.answered(node, offer);
            }
        }
        self.look(Some(node), StepKind::Report, false);
    }

    fn running(&mut self, node: usize) {
        let (now, mounted) = (self.world.true_wall(), self.mounted(node));
        let listed = self.feeds.running(node, now, &mounted);
        if !self.world.node(node).is_up() {
            return;
        }
        self.offered(node, listed.iter().map(|(offer, _)| offer));
        if let Some(reported) = self.world.running(node, running_jobs(&listed)) {
            let refused: Vec<usize> = reported.refused.iter().map(|(at, _)| *at).collect();
            for (at, (offer, _)) in listed.iter().enumerate() {
                if offer.counts && !refused.contains(&at) {
                    let (job, charge) = (&offer.record.key.job, offer.charge());
                    self.oracle.acknowledged(node, &offer.account, job, charge);
                }
            }
        }
        self.look(Some(node), StepKind::Running, false);
    }

    fn offered<'a>(&mut self, node: usize, offers: impl Iterator<Item = &'a Offer>) {
        for offer in offers {
            let (job, charge) = (&offer.record.key.job, offer.charge());
            self.oracle.offered(node, &offer.account, job, charge);
        }
    }

    /// Does what goes wrong, or is put right, and tells whoever keeps books.
    pub(super) fn fault(&mut self, action: &Action) {
        if !self.is_possible(action) {
            return;
        }
        if let Action::Backup { nodes } = action {
            nodes.iter().for_each(|node| self.note_backup(*node));
        }
        let before = self.stores();
        // A document that its node is not up to take is published again by the heal.
        let _ = self.world.apply(action);
        self.was_lost(action);
        self.note_dropped();
        self.were_started(before);
        let (kind, deep) = match action {
            Action::Stop { .. } => (StepKind::Stopping, false),
            Action::Garbage { .. } => (StepKind::Publish, false),
            Action::Policy { .. }
            | Action::Charter { .. }
            | Action::Remove { .. }
            | Action::Admit { .. } => (StepKind::Publish, true),
            Action::Reconfigure { .. } | Action::Mount { .. } | Action::Unmount { .. } => {
                (StepKind::Reconfigured, true)
            }
            _ => return,
        };
        for node in action.nodes() {
            self.look(Some(*node), kind, deep);
        }
    }

    /// Whether it is done at all; what lasts is put right only where it was done.
    fn is_possible(&mut self, action: &Action) -> bool {
        let vo = action.vo().and_then(|name| {
            let mut names = self.world.founded_vos().iter().map(|vo| &vo.spec.name);
            names.position(|other| other == name)
        });
        match (action, vo) {
            (Action::RestoreBackup { nodes, .. }, _) => {
                let has_one = |node: &usize| !self.world.node(*node).backups.is_empty();
                nodes.iter().all(has_one)
            }
            // What a site has lost and only its peers still hold would go with it.
            (Action::Remove { sites, .. }, Some(vo)) => {
                let listed = self.world.founded_vos()[vo].charter.claimed().sites.len();
                let is_removed = |site: &usize| self.removed.contains(&(*site, vo));
                let stays = |site: &usize| self.is_fragile(*site) || is_removed(site);
                let possible = listed > sites.len() + 1 && !sites.iter().any(stays);
                let gone = sites.iter().filter(|_| possible).map(|site| (*site, vo));
                self.removed.extend(gone);
                possible
            }
            (Action::Admit { sites, .. }, Some(vo)) => {
                sites.iter().all(|site| self.removed.remove(&(*site, vo)))
            }
            (Action::Unmount { nodes, .. }, Some(vo)) => {
                let may_go = |node: &usize| {
                    let mounted = self.mounted(*node);
                    mounted.len() > 1 && mounted.contains(&vo)
                };
                let possible = nodes.iter().all(may_go);
                let gone = nodes.iter().filter(|_| possible).map(|node| (*node, vo));
                self.departed.extend(gone);
                possible
            }
            (Action::Mount { nodes, .. }, Some(vo)) => {
                nodes.iter().all(|node| self.departed.remove(&(*node, vo)))
            }
            (Action::PauseLoad { nodes }, _) => {
                self.paused.extend(nodes);
                true
            }
            (Action::ResumeLoad { nodes }, _) => {
                self.paused.retain(|node| !nodes.contains(node));
                true
            }
            _ => true,
        }
    }

    fn note_backup(&mut self, node: usize) {
        // The oldest backup is the one that is restored.
        if self.world.node(node).backups.is_empty() {
            let local = self.oracle.certain(node, None);
            self.backups.insert(node, local);
        }
    }

    fn was_lost(&mut self, action: &Action) {
        match action {
            Action::Wipe { nodes, keeps_side } => {
                let keeps_journal = *keeps_side && self.options.keeps_journal;
                for node in nodes {
                    self.lost(*node, *keeps_side, keeps_journal, &Amounts::new());
                }
            }
            Action::RestoreBackup { nodes, keeps_side } => {
                for node in nodes {
                    let local = self.backups.get(node).cloned().unwrap_or_default();
                    self.lost(*node, *keeps_side, false, &local);
                }
            }
            _ => {}
        }
    }

    /// Charters that do not list a site are in force from now on. What peers hold of it goes with
    /// them; what the site has lost itself nobody can bring along when it is listed again.
    pub(super) fn note_dropped(&mut self) {
        for (site, vo) in self.world.take_dropped() {
            if self.is_fragile(site) {
                let held = held_on_disk(&self.world);
                let mut survived = self.oracle.published.said(site_id(site), &held);
                survived.remove(&self.ids[vo]);
                self.oracle.lost_elsewhere(site, &survived);
            }
        }
    }

    /// For each node, how many stores it has set aside, and how often it was started.
    pub(super) fn stores(&self) -> Vec<(u32, u32)> {
        let nodes = self.world.nodes().iter();
        nodes
            .map(|node| (node.disk.set_aside(), node.life()))
            .collect()
    }

    /// Notes what became of nodes that may have been started since: stores found to be damaged.
    pub(super) fn were_started(&mut self, before: Vec<(u32, u32)>) {
        for (node, (set_aside, life)) in before.into_iter().enumerate() {
            if self.world.node(node).disk.set_aside() > set_aside {
                self.lost(node, true, self.options.keeps_journal, &Amounts::new());
            }
            if self.world.node(node).life() > life {
                self.look(Some(node), StepKind::Started, true);
            }
        }
    }

    /// A node has lost its store, or been given an older one.
    fn lost(&mut self, node: usize, keeps_side: bool, keeps_journal: bool, local: &Amounts) {
        self.whole[node] = false;
        for (invariant, _) in &mut self.invariants {
            invariant.forgot(node, keeps_side);
        }
        let held = held_on_disk(&self.world);
        let removed = self.removed.iter().any(|(site, _)| *site == node);
        // A side file keeps what no peer is known to hold; a peer that has lost its store since may
        // have held the rest alone.
        let others_lost = self.lost_streams.keys().any(|other| *other != node);
        if !keeps_journal || removed || others_lost {
            let mut survived = self.oracle.published.said(site_id(node), &held);
            // Those who still hold what a site that is not listed has said let go of it when they
            // hear of the charter.
            for (_, vo) in self.removed.iter().filter(|(site, _)| *site == node) {
                survived.remove(&self.ids[*vo]);
            }
            self.oracle.lost(node, &survived, local);
            self.feeds.lost(node);
        }
        let streams = self.oracle.published.streams_of(site_id(node)).collect();
        self.lost_streams.insert(node, streams);
        for (other, streams) in &self.lost_streams {
            if *other != node {
                let of_then = held.iter().filter(|(place, _)| streams.contains(*place));
                let of_then: BTreeMap<_, _> = of_then
                    .map(|(place, cells)| (*place, cells.clone()))
                    .collect();
                let survived = self.oracle.published.said(site_id(*other), &of_then);
                self.oracle.lost_elsewhere(*other, &survived);
            }
        }
    }

    /// Whether a node's usage may be with its peers alone.
    pub(super) fn is_fragile(&self, node: usize) -> bool {
        self.lost_streams.contains_key(&node)
    }
}
