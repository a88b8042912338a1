//! Doing what is planned: reports, faults, and putting them right again.
//!
//! Invariant: the ledger is told of a loss in the same breath in which the disk loses, and of a
//! report before and after the site is. Deliberately not here: what is planned when (`swarm`).

use std::collections::BTreeMap;
use std::rc::Rc;

use fairmesh_model::{HistoryRule, RunningJob, UsageMode, UsageRecord, VoId, WallTime};
use fairmesh_site::Table;

use super::{Planned, Run};
use crate::disk::Losses;
use crate::facts::owner_of;
use crate::invariants::clocks_were_wrong;
use crate::oracle::{Amounts, Documents, HeldCells, HeldVos, Recovered, Terms};
use crate::swarm::Offer;
use crate::vo::{OwnerSpec, Vo, mounting};
use crate::world::{Action, StepKind};

/// Most that a clock is wrong by: a year, and what it was off before.
const CLOCK_OFF_MS_MAX: u64 = 370 * 86_400_000;

impl Run {
    pub(super) fn act(&mut self, planned: Planned) {
        match planned {
            Planned::Report(node) if self.paused.contains(&node) => {}
            Planned::Report(node) => {
                let (now, mounted) = (self.batch_wall(node), self.mounted(node));
                let offers = self.feeds.report(node, now, &mounted);
                self.report(node, &offers);
                if let Some(record) = self.feeds.correction(node, &mounted) {
                    self.correct(node, record);
                }
            }
            Planned::Running(node) => self.running(node),
            Planned::Fault(action) => self.fault(&action),
            Planned::Relabel(node) => self.relabel(node),
            Planned::Lie(node) => self.lie(node),
            Planned::Credit(step) => self.act_on_credit(step),
            Planned::Crowd(node) => {
                let (now, mounted) = (self.batch_wall(node), self.mounted(node));
                let offers = self.feeds.crowd(node, now, &mounted);
                self.report(node, &offers);
            }
            Planned::Glance => self.glance(),
        }
    }

    /// What time a site's batch system takes it to be.
    pub(super) fn batch_wall(&self, node: usize) -> WallTime {
        let now = if self.options.one_clock {
            self.world.now_at(node).wall
        } else {
            self.world.true_wall()
        };
        let by = self.options.batch_clock_ms(self.seed, node);
        WallTime(now.0.saturating_add_signed(by))
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
        self.world.take_waiting(node);
        let records: Vec<_> = offers.iter().map(|offer| offer.record.clone()).collect();
        let terms = self.offered(node, records.iter());
        if let Some(reported) = self.world.report(node, records) {
            let refused: Vec<usize> = reported.refused.iter().map(|(at, _)| *at).collect();
            for (at, offer) in offers.iter().enumerate() {
                if !refused.contains(&at) {
                    if !self.is_liar(node) {
                        self.oracle.acknowledged(node, &offer.record);
                    }
                    self.feeds.answered(node, offer);
                    self.credit.answered(&offer.record);
                    if let Some(vo) = self.is_free(node, offer) {
                        self.credit.ended_free((node, vo), &offer.record);
                    }
                } else if self.is_for_a_person(node, offer, terms[at].as_deref()) {
                    self.note_odd("uncharged_job");
                    self.feeds.done(node, offer);
                }
            }
        }
        self.look(Some(node), StepKind::Report, false);
    }

    /// Takes a job back, as an operator does.
    fn correct(&mut self, node: usize, record: UsageRecord) {
        if !self.world.node(node).is_up() {
            return;
        }
        self.note_odd("correction");
        self.world.take_waiting(node);
        let is_liar = self.is_liar(node);
        let owner = owner_of(&self.world.node(node).config);
        let terms = Documents::terms(&owner, &self.in_force(node), &record);
        if !is_liar {
            self.oracle.correcting(node, &record.key, terms.as_ref());
        }
        let reported = self.world.correct(node, vec![record.clone()]);
        let is_taken_back = reported.is_some_and(|reported| !reported.taken_back.is_empty());
        if is_taken_back && !is_liar {
            self.oracle.corrected(node, &record.key, terms.as_ref());
        }
        self.look(Some(node), StepKind::Report, false);
    }

    fn running(&mut self, node: usize) {
        let (now, mounted) = (self.batch_wall(node), self.mounted(node));
        let listed = self.feeds.running(node, now, &mounted);
        self.list(node, listed);
    }

    /// Lists what runs, as a feed does.
    pub(super) fn list(&mut self, node: usize, jobs: Vec<RunningJob>) {
        if !self.world.node(node).is_up() {
            return;
        }
        self.world.take_waiting(node);
        let terms = self.offered(node, jobs.iter().map(|job| &job.record));
        let asking = self.asking(node);
        let reported = self.world.running(node, jobs.clone());
        let refused = reported
            .as_ref()
            .map_or(&[][..], |reported| &reported.refused);
        let refused: Vec<usize> = refused.iter().map(|(at, _)| *at).collect();
        let counted: Vec<_> = jobs.into_iter().zip(terms).collect();
        let counted = counted.into_iter().enumerate();
        let counted = counted.filter(|(at, _)| !refused.contains(at));
        let counted: Vec<_> = counted.map(|(_, job)| job).collect();
        if self.is_liar(node) {
            return;
        }
        if reported.is_some() {
            for (job, _) in &counted {
                self.oracle.acknowledged(node, &job.record);
            }
        }
        let life = self.world.node(node).life();
        let told = (self.world.now(), life, reported.is_some());
        self.oracle.listed(node, &asking, &counted, told);
        self.look(Some(node), StepKind::Running, false);
    }

    /// Notes what a feed hands in, and by which rules the site counts it.
    fn offered<'a>(
        &mut self,
        node: usize,
        records: impl Iterator<Item = &'a UsageRecord>,
    ) -> Vec<Option<Rc<Terms>>> {
        let owner = owner_of(&self.world.node(node).config);
        let held = self.in_force(node);
        let rules = |record| {
            let terms = Documents::terms(&owner, &held, record);
            (record, terms.map(Rc::new))
        };
        let rules: Vec<_> = records.map(rules).collect();
        let site = self.world.site(node);
        let reach = |vo: Option<VoId>| {
            let reach = site?.recovered(vo)?;
            let (ended, running) = (reach.ended.0, reach.running.0);
            Some((vo, Recovered { ended, running }))
        };
        let vos = self.ids.iter().copied().map(Some).chain([None]);
        let recovered = vos.filter_map(reach).collect();
        self.oracle.recovered(node, recovered);
        let (clocks_off, is_liar) = (clocks_were_wrong(&self.world), self.is_liar(node));
        let note = |(record, terms): (&UsageRecord, Option<Rc<Terms>>)| {
            if let Some(terms) = terms.as_ref().filter(|_| !is_liar) {
                self.oracle.offered(node, record, terms, clocks_off);
            }
            terms
        };
        rules.into_iter().map(note).collect()
    }

    /// Takes note of the last documents that the authorities have signed.
    pub(super) fn learn_documents(&mut self) {
        for vo in self.world.founded_vos() {
            vo.documents()
                .for_each(|bytes| self.oracle.documents.signed(bytes));
        }
    }

    /// Counts what feeds and owners do beside what [`Action`] names.
    pub(super) fn note_odd(&mut self, word: &str) {
        *self.stats.faults.entry(word.to_owned()).or_default() += 1;
    }

    /// Who is who at a site changes.
    fn relabel(&mut self, node: usize) {
        self.note_odd("relabel");
        self.relabels[node] = self.relabels[node].next();
        let owner = OwnerSpec {
            relabel: self.relabels[node],
            ..self.options.owner()
        };
        let vos = self.world.founded_vos();
        let mounted: Vec<&Vo> = self.mounted(node).into_iter().map(|vo| &vos[vo]).collect();
        let identity = mounting(&mounted, &owner).identity;
        let config = fairmesh_site::SiteConfig {
            identity,
            ..self.world.node(node).config.clone()
        };
        self.world.reconfigure(node, config);
        self.look(Some(node), StepKind::Reconfigured, true);
    }

    /// Whether a person must act: the job's cost is unknown, or it holds more than the charter declares for the site.
    pub(super) fn is_for_a_person(
        &self,
        node: usize,
        offer: &Offer,
        terms: Option<&Terms>,
    ) -> bool {
        let held = self.in_force(node);
        let Some(terms) = terms else {
            return offer.vo.is_none_or(|vo| held.contains_key(&self.ids[vo]));
        };
        let held = terms.account.0.and_then(|vo| held.get(&vo));
        let member = held.and_then(|held| held.charter.member(self.world.node(node).id));
        let record = &offer.record;
        member.is_some_and(|has| {
            record.cores > has.cores
                || has.gpus.is_some_and(|gpus| record.gpus > gpus)
                || (has.mem_gib).is_some_and(|gib| record.mem_mib > u64::from(gib) * 1_024)
        })
    }

    pub(super) fn in_force(&self, node: usize) -> HeldVos<'_> {
        let site = self.world.site(node).into_iter();
        let held = site.flat_map(|site| self.ids.iter().flat_map(|vo| site.documents(*vo)));
        self.oracle.documents.in_force(held)
    }

    /// For whom a list says what a site's running jobs count for, and whether as a whole: VOs whose charter
    /// asks, and the owner. To those whose charter is not here, or does not list the site, it says that there
    /// is nothing.
    fn asking(&self, node: usize) -> BTreeMap<Option<VoId>, Option<bool>> {
        let (place, held) = (self.world.node(node), self.in_force(node));
        let of = |vo: &VoId| {
            let Some(charter) = held.get(vo).map(|held| held.charter) else {
                return Some((Some(*vo), None));
            };
            let whole = charter.history == HistoryRule::RunningOnly;
            let asks = whole || charter.usage_mode == UsageMode::Predictive;
            let listed = charter.member(place.id).is_some();
            asks.then_some((Some(*vo), listed.then_some(whole)))
        };
        let owner = place.config.local_history == HistoryRule::RunningOnly;
        let vos = place.config.vos.values().filter_map(of);
        vos.chain([(None, Some(owner))]).collect()
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
        self.learn_documents();
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
            // Histories reach back further than one such year, and not further than two.
            (Action::ClockJump { nodes, by }, _) => nodes.iter().all(|node| {
                let ahead = self.world.node(*node).clock.ahead_ms(self.world.now());
                (ahead + by.0).unsigned_abs() <= CLOCK_OFF_MS_MAX
            }),
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
                let keeps_journal = *keeps_side && self.options.keeps_journal;
                for node in nodes {
                    let local = self.backups.get(node).cloned().unwrap_or_default();
                    self.lost(*node, *keeps_side, keeps_journal, &local);
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
                let held = self.held_on_disk();
                let mut survived = self.oracle.published.said(self.world.node(site).id, &held);
                survived.remove(&self.ids[vo]);
                self.oracle.lost_elsewhere(site, &survived);
            }
        }
    }

    /// For each node, what its starts have found to be lost, and how often it was started.
    pub(super) fn stores(&self) -> Vec<(Losses, u32)> {
        let nodes = self.world.nodes().iter();
        nodes
            .map(|node| (node.disk.losses(), node.life()))
            .collect()
    }

    /// Notes what became of nodes that may have been started since.
    pub(super) fn were_started(&mut self, before: Vec<(Losses, u32)>) {
        for (node, (losses, life)) in before.into_iter().enumerate() {
            self.was_started(node, losses, life);
        }
    }

    fn was_started(&mut self, node: usize, before: Losses, life: u32) {
        let now = self.world.node(node).disk.losses();
        let has_journal = now.journals == before.journals;
        if now.set_aside > before.set_aside || !has_journal {
            let keeps_journal = has_journal && self.options.keeps_journal;
            self.lost(node, true, keeps_journal, &Amounts::new());
        }
        if now.marks > before.marks {
            self.feeds.lost(node);
        }
        if now.sides > before.sides {
            self.forgot(node, false);
        }
        if self.world.node(node).life() > life {
            self.look(Some(node), StepKind::Started, true);
        }
    }

    /// A node has lost its store, or been given an older one.
    fn lost(&mut self, node: usize, keeps_side: bool, keeps_journal: bool, local: &Amounts) {
        self.whole[node] = false;
        self.credit.lost(node);
        self.forgot(node, keeps_side);
        let held = self.held_on_disk();
        let removed = self.removed.iter().any(|(site, _)| *site == node);
        // A side file keeps what no peer is known to hold; a peer that has lost its store since may
        // have held the rest alone.
        let others_lost = self.lost_streams.keys().any(|other| *other != node);
        if !keeps_journal || removed || others_lost {
            let mut survived = self.oracle.published.said(self.world.node(node).id, &held);
            // Those who still hold what a site that is not listed has said let go of it when they
            // hear of the charter.
            for (_, vo) in self.removed.iter().filter(|(site, _)| *site == node) {
                survived.remove(&self.ids[*vo]);
            }
            self.oracle.lost(node, &survived, local);
            self.feeds.lost(node);
        } else {
            // The journal has what nobody else holds; the rest is with its peers alone from now on.
            let certain = |vo: &VoId| (*vo, self.oracle.certain(node, Some(*vo)));
            let survived = self.ids.iter().map(certain).collect();
            let local = self.oracle.certain(node, None);
            self.oracle.lost(node, &survived, &local);
        }
        let streams = self
            .oracle
            .published
            .streams_of(self.world.node(node).id)
            .collect();
        self.lost_streams.insert(node, streams);
        for (other, streams) in &self.lost_streams {
            if *other != node {
                let (id, held) = (self.world.node(*other).id, held.of(streams));
                let survived = self.oracle.published.said(id, &held);
                self.oracle.lost_elsewhere(*other, &survived);
            }
        }
    }

    /// What can be read of all heads from any disk except those of liars that break requests or leave them unanswered:
    /// what those hold helps no other site.
    fn held_on_disk(&self) -> HeldCells {
        let mut held = HeldCells::default();
        let nodes = self.world.nodes().iter();
        for node in nodes.filter(|node| !self.blinded.contains(&node.index)) {
            for (table, key, part) in node.disk.rows() {
                if table == Table::Parts {
                    held.add(&key, &part);
                }
            }
        }
        held
    }

    fn forgot(&mut self, node: usize, keeps_side: bool) {
        for (invariant, _) in &mut self.invariants {
            invariant.forgot(node, keeps_side);
        }
    }

    /// Whether a node's usage may be with its peers alone.
    pub(super) fn is_fragile(&self, node: usize) -> bool {
        self.lost_streams.contains_key(&node)
    }
}
