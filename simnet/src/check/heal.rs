//! The heal, after which nothing changes.
//!
//! Invariant: when the Grid is healed every site runs, is listed by all charters of its VOs, mounts
//! them, and has been told of everything that its feed had to tell; once more what it had counted before it
//! lost its store, when its own past has come back.
//!
//! Deliberately not here: networks, disks and clocks (the world's own heal).

use fairmesh_model::Millis;
use fairmesh_site::{Site, Timing};

use super::{LOOK_EVERY, Liveness, Phase, Run};
use crate::facts::owner_of;
use crate::invariants::{Slowest, clocks_were_wrong};
use crate::oracle::Documents;
use crate::swarm::VoOptions;
use crate::world::{Action, StepKind};

/// Simulated minutes after which old days may be merged: two whole days, and the one that passes.
const MERGES_AFTER_MINUTES: u64 = 2 * 24 * 60;

/// Reports with which a feed tells a healed site what is left, at most.
const LAST_REPORTS_MAX: usize = 64;

impl Run {
    /// Puts everything right, and lets everything be said that is left to say.
    pub(super) fn heal(&mut self) {
        self.facts.borrow_mut().is_calm = true;
        self.schedule.clear();
        self.paused.clear();
        self.fault(&Action::Heal {});
        self.keep_lying_clocks();
        for (node, vo) in self.departed.clone() {
            let (nodes, vo) = (vec![node], VoOptions::name(vo));
            self.fault(&Action::Mount { nodes, vo });
        }
        for (site, vo) in self.removed.clone() {
            let (sites, vo) = (vec![site], VoOptions::name(vo));
            let node = (site + 1) % self.options.sites;
            self.fault(&Action::Admit { node, vo, sites });
        }
        let handed_in = self.world.hand_in_all_waiting();
        self.note_dropped();
        for node in handed_in {
            self.look(Some(node), StepKind::Publish, true);
        }
        for node in 0..self.options.sites {
            self.tell_the_rest(node);
        }
        let prices = self.world.faults().of("reconfigure") > 0;
        let now = self.world.now();
        let merges = self.options.minutes > MERGES_AFTER_MINUTES;
        let sites = self.options.sites;
        let moves = (prices, self.options.quotas.is_some());
        let liveness = Liveness::new(now, self.slowest(), sites, merges, moves);
        self.phase = Phase::Healed(liveness);
        self.look_at = now.after(LOOK_EVERY);
    }

    fn slowest(&self) -> Slowest {
        let timings = || self.world.nodes().iter().map(|node| node.config.timing);
        let of = |field: fn(Timing) -> Millis| timings().map(field).max().unwrap_or_default();
        Slowest {
            sync: of(|timing| timing.sync),
            timeout: of(|timing| timing.request_timeout),
            publish: of(|timing| timing.publish),
            heartbeat: of(|timing| timing.heartbeat),
            tick: self.options.tick(),
        }
    }

    pub(super) fn tell_the_rest(&mut self, node: usize) {
        let (now, mounted) = (self.batch_wall(node), self.mounted(node));
        self.feeds.end_all(node, now);
        self.list(node, Vec::new());
        for _ in 0..LAST_REPORTS_MAX {
            let offers = self.feeds.pending(node, &mounted);
            if offers.is_empty() {
                break;
            }
            self.report(node, &offers);
        }
    }

    /// Notes which jobs a healed site still refuses although its documents tell what they cost. A site whose batch
    /// system goes by another clock may have to.
    pub(super) fn note_untaken(&mut self, node: usize) {
        if clocks_were_wrong(&self.world) || self.options.batch_clocks || self.is_liar(node) {
            return;
        }
        let (owner, held) = (owner_of(&self.world.node(node).config), self.in_force(node));
        let offers = self.feeds.pending(node, &self.mounted(node));
        let untaken = offers.iter().filter(|offer| {
            let terms = Documents::terms(&owner, &held, &offer.record);
            terms.is_some() && !self.is_for_a_person(node, offer, terms.as_ref())
        });
        let untaken: Vec<_> = untaken
            .map(|offer| (node, offer.record.key.job.clone()))
            .collect();
        self.facts.borrow_mut().untaken.extend(untaken);
        self.look(Some(node), StepKind::Report, false);
    }

    /// A feed that was lost with its node's store tells again what is charged now as it was then, unless a member has
    /// still to say what it holds of the site.
    pub(super) fn tell_all_again(&mut self, node: usize) {
        let mut offers = self.feeds.before_loss(node, &self.mounted(node));
        let (owner, held) = (owner_of(&self.world.node(node).config), self.in_force(node));
        offers.retain(|offer| {
            let terms = Documents::terms(&owner, &held, &offer.record);
            terms.is_some_and(|now| self.oracle.is_charged_by(node, &offer.record.key, &now))
        });
        if offers.is_empty() || self.is_liar(node) {
            return;
        }
        let now = self.world.now_at(node);
        let site = self.world.site(node);
        let knows = |site: &Site| site.vo_status(now).iter().all(|vo| vo.past_known);
        if !site.is_some_and(knows) {
            return self.note_odd("not_told_again_as_a_member_is_silent");
        }
        self.note_odd("told_again_behind_a_loss");
        for offers in offers.chunks(LAST_REPORTS_MAX) {
            self.report(node, offers);
        }
        self.look(Some(node), StepKind::Report, true);
    }
}
