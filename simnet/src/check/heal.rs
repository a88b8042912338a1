//! Documents and configurations that change, and the heal, after which nothing does.
//!
//! Invariant: when the Grid is healed every site runs, is listed by all charters of its VOs, mounts
//! them, and has been told of everything that its feed had to tell.
//!
//! Deliberately not here: networks, disks and clocks (`act`, and the world's own heal).

use std::sync::Arc;

use fairmesh_model::{Factor, Millis, PriceList};
use fairmesh_site::Timing;

use super::{LOOK_EVERY, Liveness, Phase, Planned, Run};
use crate::invariants::Slowest;
use crate::swarm::Fault;
use crate::vo::{Vo, site_id};
use crate::world::StepKind;

/// Simulated minutes after which old days may be merged: two whole days, and the one that passes.
const MERGES_AFTER_MINUTES: u64 = 2 * 24 * 60;

/// Reports with which a feed tells a healed site what is left, at most.
const LAST_REPORTS_MAX: usize = 64;

impl Run {
    pub(super) fn fault_of_documents(&mut self, fault: Fault) {
        match fault {
            Fault::Garbage { node, bytes } => {
                self.stats.fault("garbage document");
                let _ = self.world.publish(node, &bytes);
                self.look(Some(node), StepKind::Publish, false);
            }
            Fault::Policy { node, vo } => {
                self.stats.fault("policy changed");
                let changed = self.vos[vo].next_policy(|policy| {
                    // The shares move on by one place, so that each version differs.
                    let shares: Vec<_> = policy.shares.values().cloned().collect();
                    let next = shares.iter().cycle().skip(1);
                    let places = policy.shares.values_mut().zip(next);
                    let _ = places.map(|(share, next)| share.clone_from(next)).count();
                });
                if let Ok(bytes) = changed {
                    self.hand_in(node, vo, bytes);
                }
            }
            Fault::Charter { node, vo } => {
                self.stats.fault("charter changed");
                let changed = self.vos[vo].next_charter(|charter| {
                    charter.distance = match charter.distance {
                        fairmesh_model::Distance::Absolute => fairmesh_model::Distance::Relative,
                        _ => fairmesh_model::Distance::Absolute,
                    };
                });
                self.hand_in(node, vo, changed.expect("one field differs"));
            }
            Fault::Removal { node, vo, ms } => self.remove(node, vo, ms),
            Fault::Reconfigure {
                node,
                publish_s,
                sync_s,
                long_percent,
            } => {
                self.stats.fault("reconfigured");
                let mut config = self.world.node(node).config.clone();
                config.timing.publish = Millis::from_secs(publish_s);
                config.timing.sync = Millis::from_secs(sync_s);
                config.timing.heartbeat = Millis::from_secs(publish_s * 3);
                let cost = Factor::from_millionths(long_percent * 10_000);
                let long = (long_percent > 0).then(|| ("long".to_owned(), cost));
                config.charging.prices = Arc::new(PriceList {
                    queues: long.into_iter().collect(),
                    ..PriceList::default()
                });
                self.world.reconfigure(node, config);
                self.look(Some(node), StepKind::Reconfigured, true);
            }
            Fault::Departure { node, vo, ms } => self.depart(node, vo, ms),
            _ => unreachable!("all other faults are done elsewhere"),
        }
    }

    /// The next charter does not list a site. What a site has lost and only its peers still hold
    /// would go with it, so such a site is not removed.
    fn remove(&mut self, node: usize, vo: usize, ms: u64) {
        let listed = self.vos[vo].charter.claimed().sites.len();
        if self.is_fragile(node) || listed <= 2 || !self.removed.insert((node, vo)) {
            return;
        }
        self.stats.fault("site removed");
        let changed = self.vos[vo]
            .next_charter(|charter| charter.sites.retain(|member| member.site != site_id(node)));
        let at = (node + 1) % self.options.sites;
        self.hand_in_without(at, vo, changed.expect("one site less"), Some(node));
        self.after(ms, Planned::List { node, vo });
    }

    pub(super) fn list_again(&mut self, node: usize, vo: usize) {
        if !self.removed.remove(&(node, vo)) {
            return;
        }
        let first = Vo::member(node, crate::swarm::CORES);
        let changed = self.vos[vo].next_charter(|charter| charter.sites.push(first));
        let at = (node + 1) % self.options.sites;
        self.hand_in(at, vo, changed.expect("one site more"));
    }

    fn depart(&mut self, node: usize, vo: usize, ms: u64) {
        if self.mounted(node).len() < 2 || !self.mounted(node).contains(&vo) {
            return;
        }
        self.stats.fault("VO left");
        self.departed.insert((node, vo));
        self.remount(node);
        self.after(ms, Planned::Return { node, vo });
    }

    pub(super) fn come_back(&mut self, node: usize, vo: usize) {
        if self.departed.remove(&(node, vo)) {
            self.remount(node);
        }
    }

    fn remount(&mut self, node: usize) {
        let of_node = self.departed.iter().filter(|(of, _)| *of == node);
        let gone: Vec<usize> = of_node.map(|(_, vo)| *vo).collect();
        let config = self.config_without(node, &gone);
        self.world.reconfigure(node, config);
        self.look(Some(node), StepKind::Reconfigured, true);
    }

    /// Puts everything right, and lets everything be said that is left to say.
    pub(super) fn heal(&mut self) {
        self.facts.borrow_mut().is_calm = true;
        self.schedule.clear();
        let before: Vec<(u32, u32)> = self.stores();
        self.world.heal();
        for (node, (set_aside, life)) in before.into_iter().enumerate() {
            self.was_started(node, set_aside, life);
        }
        for (node, vo) in std::mem::take(&mut self.departed) {
            self.departed.remove(&(node, vo));
            self.remount(node);
        }
        for (node, vo) in self.removed.clone() {
            self.list_again(node, vo);
        }
        self.hand_in_all_waiting();
        for node in 0..self.options.sites {
            self.tell_the_rest(node);
        }
        let prices = self.stats.faults.contains_key("reconfigured");
        let now = self.world.now();
        let merges = self.options.minutes > MERGES_AFTER_MINUTES;
        let sites = self.options.sites;
        let liveness = Liveness::new(now, self.slowest(), sites, merges, prices);
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
        }
    }

    fn stores(&self) -> Vec<(u32, u32)> {
        let nodes = self.world.nodes().iter();
        nodes
            .map(|node| (node.disk.set_aside(), node.life()))
            .collect()
    }

    fn tell_the_rest(&mut self, node: usize) {
        let (now, mounted) = (self.true_wall(), self.mounted(node));
        self.feeds.end_all(node, now);
        let _ = self.world.running(node, Vec::new());
        self.look(Some(node), StepKind::Running, false);
        for _ in 0..LAST_REPORTS_MAX {
            let offers = self.feeds.pending(node, &mounted);
            if offers.is_empty() {
                break;
            }
            self.report(node, &offers);
        }
    }
}
