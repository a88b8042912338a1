//! A site that is connected does in time what time asks of it.
//!
//! Invariant checked between steps, at honest nodes: sums are seen from the window that it is, as soon as a site can
//! have seen that time has passed; a member that is connected has signed within its heartbeat; and it has asked a peer
//! within its sync interval and the time after which it gives a request up. The intervals are those of its last reload.
//! Where a clock is wrong a site may have to wait, so only times before the first wrong clock are judged.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Millis, MonoTime, VoId};
use fairmesh_site::Site;

use super::lost::site_vos;
use super::{Invariant, Seen, StepKind, Violation, clocks_were_wrong};
use crate::liar::{Lie, named};

/// A site sees every second that time has passed, unless it may not tick as often; and what reaches it may wait a while
/// in a round.
pub(crate) const SEES_TIME_WITHIN: Millis = Millis::from_secs(5);

/// What a node did last.
#[derive(Debug, Clone, Default)]
struct Last {
    /// From when on nothing has changed that could keep it: sessions, the process, the configuration.
    settled: MonoTime,
    asked: MonoTime,
    signed: BTreeMap<VoId, MonoTime>,
    /// VOs of which it had a charter at the look before.
    founded: BTreeSet<VoId>,
    sync: Millis,
}

pub(super) struct Fresh(Vec<Last>);

impl Fresh {
    pub(super) fn new(nodes: usize) -> Self {
        Self(vec![Last::default(); nodes])
    }
}

impl Invariant for Fresh {
    fn after_step(&mut self, seen: &Seen<'_>, _checks: &mut u64) -> Result<(), Violation> {
        let now = seen.world.now();
        for head in seen.facts.heads.iter().filter(|head| head.own) {
            self.0[head.node].signed.insert(head.head.vo, now);
        }
        for node in &seen.facts.asked {
            self.0[*node].asked = now;
        }
        let Some(node) = seen.node else {
            return Ok(());
        };
        let last = &mut self.0[node];
        match seen.kind {
            StepKind::Started => {
                last.settled = now;
                last.founded.clear();
            }
            StepKind::Connected | StepKind::Disconnected => last.settled = now,
            // The next exchange is planned already.
            StepKind::Reconfigured => last.settled = now.after(last.sync),
            _ => {}
        }
        last.sync = seen.world.node(node).config.timing.sync;
        Ok(())
    }

    fn at_rest(&mut self, _seen: &Seen<'_>, _checks: &mut u64) -> Result<(), Violation> {
        Ok(())
    }

    fn between_steps(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        let sees_rightly = |lie: &str| named(lie).is_some_and(Lie::sees_rightly);
        let are_blinded = seen.liars.iter().any(|liar| !sees_rightly(&liar.lie));
        if are_blinded || clocks_were_wrong(seen.world) {
            return Ok(());
        }
        for node in seen.nodes() {
            if let Some(site) = seen.world.site(node) {
                *checks += check_windows(seen, node, site)? + self.check_word(seen, node, site)?;
            }
        }
        Ok(())
    }
}

fn late(seen: &Seen<'_>) -> Millis {
    Millis(SEES_TIME_WITHIN.0 + 2 * seen.world.tick().0)
}

/// Sums are seen from the window that it is.
fn check_windows(seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
    if site.is_sweeping() || site.is_feeding() {
        return Ok(0);
    }
    let wall = seen.world.now_at(node).wall.before(late(seen));
    let founded = seen.world.founded_vos().iter();
    let of_vos = founded.filter_map(|vo| Some((vo.spec.window, site.reference(vo.id)?)));
    let local = seen.world.node(node).config.local_window;
    let local = (local, site.view().reader().local_reference());
    let mut checks = 0;
    for (length, reference) in of_vos.chain([local]) {
        checks += 1;
        let window = wall.0 / length.millis().0;
        if u64::from(reference.0) < window {
            let message = format!(
                "sees usage from window {} of {} ms; {window} has begun {late} ms ago and more",
                reference.0,
                length.millis().0,
                late = late(seen).0
            );
            return Err(Violation::at(node, message));
        }
    }
    Ok(checks)
}

impl Fresh {
    /// A connected node has signed, and asked a peer, within the time allowed.
    fn check_word(&mut self, seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
        let (now, last) = (seen.world.now(), &mut self.0[node]);
        let timing = seen.world.node(node).config.timing;
        let mut peers = site.peers().into_iter();
        let is_heard =
            peers.any(|peer| peer.connected && peer.is_member && peer.exchanges.ended > 0);
        if !is_heard || site.is_taking_in() {
            return Ok(0);
        }
        let since = |at: MonoTime| now.since(at.max(last.settled));
        let due = Millis(timing.sync.0 + timing.request_timeout.0 + late(seen).0);
        if since(last.asked) > due {
            let message = format!(
                "is connected and has asked no peer for {} ms; {} is the most",
                since(last.asked).0,
                due.0
            );
            return Err(Violation::at(node, message));
        }
        let mut checks = 1;
        let due = Millis(timing.heartbeat.0 + late(seen).0);
        let are_removed = seen.world.faults().of("remove") > 0;
        for vo in site_vos(seen, node).into_iter().filter(|_| !are_removed) {
            let has_charter = site
                .held_of(vo)
                .is_some_and(|held| held.charter_version > 0);
            if !has_charter || !last.founded.contains(&vo) {
                continue;
            }
            checks += 1;
            let signed = last.signed.get(&vo).copied().unwrap_or(MonoTime(0));
            if since(signed) > due {
                let message = format!(
                    "is connected and has signed nothing of VO {} for {} ms; {} is the most",
                    vo.short(),
                    since(signed).0,
                    due.0
                );
                return Err(Violation::at(node, message));
            }
        }
        let founded = site.held().filter(|(_, held)| held.charter_version > 0);
        last.founded = founded.map(|(vo, _)| vo).collect();
        Ok(checks)
    }
}
