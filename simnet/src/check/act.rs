//! Doing what is planned: reports, faults, and putting them right again.
//!
//! Invariant: the ledger is told of a loss in the same breath in which the disk loses, and of a
//! report before and after the site is. Deliberately not here: what is planned when (`swarm`).

use std::collections::BTreeMap;

use fairmesh_model::{Millis, VoId, WallTime};

use super::{Planned, Run};
use crate::network::LinkSpec;
use crate::oracle::{Amounts, held_on_disk};
use crate::swarm::{Fault, Offer, running_jobs};
use crate::vo::{START, site_config, site_id};
use crate::world::StepKind;

impl Run {
    pub(super) fn act(&mut self, planned: Planned) {
        match planned {
            Planned::Report(node) => {
                let (now, mounted) = (self.true_wall(), self.mounted(node));
                let offers = self.feeds.report(node, now, &mounted);
                self.report(node, &offers);
            }
            Planned::Running(node) => self.running(node),
            Planned::Fault(fault) => self.fault(*fault),
            Planned::HealNetwork => self.world.heal_network(),
            Planned::Start(node) => self.start(node),
            Planned::MakeRoom(node) => {
                self.stats.fault("room made");
                self.stored(node, |run| run.world.make_room(node));
            }
            Planned::ClockRight(node) => self.world.clock_correct(node),
            Planned::LinkRight(from, to) => {
                let link = self.options.link.spec();
                self.world.set_link(from, to, link);
            }
            Planned::List { node, vo } => self.list_again(node, vo),
            Planned::Return { node, vo } => self.come_back(node, vo),
        }
    }

    pub(super) fn true_wall(&self) -> WallTime {
        START.after(Millis(self.world.now().0))
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
        let (now, mounted) = (self.true_wall(), self.mounted(node));
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

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Partition { set, ms } => {
                self.world.partition(&[set]);
                self.after(ms, Planned::HealNetwork);
            }
            Fault::Island { set, ms } => {
                self.world.island(&set);
                self.after(ms, Planned::HealNetwork);
            }
            Fault::Bridge { node, set, ms } => {
                self.world.partition(&[set]);
                self.world.bridge(node);
                self.after(ms, Planned::HealNetwork);
            }
            Fault::OneWayCut { from, to, ms } => {
                self.world.cut_one_way(&from, &to);
                self.after(ms, Planned::HealNetwork);
            }
            Fault::CloggedLink { from, to, ms } => {
                let link = LinkSpec {
                    bandwidth_bytes_per_s: 2_000,
                    queue_bytes_max: 8_000,
                    ..self.options.link.spec()
                };
                self.world.set_link(from, to, link);
                self.after(ms, Planned::LinkRight(from, to));
            }
            Fault::ClockJump { node, by_ms, ms } => {
                self.world.clock_jump(node, by_ms);
                self.after(ms, Planned::ClockRight(node));
            }
            Fault::Drift { node, ppm, ms } => {
                self.world.clock_drift(node, ppm);
                self.after(ms, Planned::ClockRight(node));
            }
            other => self.fault_of_node(other),
        }
    }

    fn fault_of_node(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { node, ms } => {
                self.world.crash(node);
                self.after(ms, Planned::Start(node));
            }
            Fault::CrashWithin { node, effects, ms } => {
                self.world.crash_within(node, effects);
                self.after(ms + 60_000, Planned::Start(node));
            }
            Fault::Stop { node, ms } => {
                self.stats.fault("graceful stop");
                self.world.stop_gracefully(node);
                self.look(Some(node), StepKind::Stopping, false);
                self.after(ms, Planned::Start(node));
            }
            Fault::Wipe {
                node,
                keeps_side,
                ms,
            } => {
                self.world.wipe(node, keeps_side);
                let keeps_journal = keeps_side && self.options.keeps_journal;
                self.lost(node, keeps_side, keeps_journal, &Amounts::new());
                self.after(ms, Planned::Start(node));
            }
            Fault::Backup { node } => self.back_up(node),
            Fault::Restore {
                node,
                keeps_side,
                ms,
            } => {
                if self.world.node(node).backups.is_empty() {
                    return;
                }
                self.world.restore_backup(node, keeps_side);
                let local = self.backups.get(&node).cloned().unwrap_or_default();
                self.lost(node, keeps_side, false, &local);
                self.after(ms, Planned::Start(node));
            }
            Fault::BitFlip { node, ms } => {
                self.world.flip_bit(node);
                self.world.crash(node);
                self.after(ms, Planned::Start(node));
            }
            Fault::FullDisk {
                node,
                room_bytes,
                ms,
            } => {
                self.world.fill_disk(node, room_bytes);
                self.after(ms, Planned::MakeRoom(node));
            }
            other => self.fault_of_documents(other),
        }
    }

    fn back_up(&mut self, node: usize) {
        // The oldest backup is the one that is restored.
        if self.world.node(node).backups.is_empty() {
            let local = self.oracle.certain(node, None);
            self.backups.insert(node, local);
        }
        self.world.backup(node);
    }

    pub(super) fn start(&mut self, node: usize) {
        if !self.world.node(node).is_up() {
            // A full disk keeps it down until there is room.
            self.stored(node, |run| run.world.start(node).unwrap_or(()));
        }
    }

    /// Does something that may start a node, and notes whether its store was found to be damaged.
    pub(super) fn stored(&mut self, node: usize, act: impl FnOnce(&mut Self)) {
        let before = self.world.node(node).disk.set_aside();
        let life = self.world.node(node).life();
        act(self);
        self.was_started(node, before, life);
    }

    /// Notes what became of a node that may have been started since.
    pub(super) fn was_started(&mut self, node: usize, set_aside: u32, life: u32) {
        if self.world.node(node).disk.set_aside() > set_aside {
            self.lost(node, true, self.options.keeps_journal, &Amounts::new());
        }
        if self.world.node(node).life() > life {
            self.look(Some(node), StepKind::Started, true);
        }
    }

    /// A node has lost its store, or been given an older one.
    fn lost(&mut self, node: usize, keeps_side: bool, keeps_journal: bool, local: &Amounts) {
        self.whole[node] = false;
        self.documents_lost();
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
                let of_then: BTreeMap<_, _> = of_then.map(|(place, seq)| (*place, *seq)).collect();
                let survived = self.oracle.published.said(site_id(*other), &of_then);
                self.oracle.lost_elsewhere(*other, &survived);
            }
        }
    }

    /// Whether a node's usage may be with its peers alone.
    pub(super) fn is_fragile(&self, node: usize) -> bool {
        self.lost_streams.contains_key(&node)
    }

    /// The configuration of a node without some VOs.
    pub(super) fn config_without(&self, node: usize, gone: &[usize]) -> fairmesh_site::SiteConfig {
        let left = self.vos.iter().enumerate();
        let left = left.filter(|(index, _)| !gone.contains(index));
        let left: Vec<_> = left.map(|(_, vo)| vo.clone()).collect();
        let mut config = site_config(node, &left, &self.options.owner());
        config.timing = self.world.node(node).config.timing;
        config
    }
}
