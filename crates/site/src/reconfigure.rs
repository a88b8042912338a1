//! Another configuration comes into force.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairmesh_model::{Now, VoId, mutated};
use fairmesh_policy::HighestSeen;

use crate::advert::own::AdvertHandler;
use crate::config::SiteConfig;
use crate::describe::describe_all;
use crate::event::Effect;
use crate::parts::{Cx, Forwarding, Jobs, Own, Peers, Shares, Vos};
use crate::publish::PublishHandler;
use crate::usage::UsageHandler;
use crate::vo::Vo;

pub(crate) struct ConfigHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) shares: &'a mut Shares,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) forward: &'a mut Forwarding,
    pub(crate) peers: &'a mut Peers,
}

impl ConfigHandler<'_> {
    fn usage(&mut self) -> UsageHandler<'_> {
        UsageHandler::new(self.cx, self.own, self.vos, self.shares)
    }

    fn publisher(&mut self) -> PublishHandler<'_> {
        PublishHandler {
            cx: self.cx,
            own: self.own,
            vos: self.vos,
            shares: self.shares,
            sources: &mut self.jobs.sources,
        }
    }

    pub(crate) fn reconfigure(&mut self, now: Now, mut config: SiteConfig) {
        self.jobs.marks_moved += 1;
        let named: BTreeSet<VoId> = config.vos.values().copied().collect();
        let mut leaves = self.vos.ids();
        leaves.retain(|vo| !named.contains(vo));
        if !leaves.is_empty() {
            // What was counted for them is theirs.
            self.publisher().publish_all(now);
        }
        for vo in leaves {
            let mut left = self.vos.remove_entry(&vo);
            // A change that is not counted to its end is none of a tree without the VO.
            left.iter_mut()
                .for_each(|(_, held)| held.forget_published());
            self.vos
                .left
                .extend(left.filter(|_| !mutated!(LeftIsForgotten)));
            self.cx.notices.clear(|notice| notice.vo() != Some(vo));
            self.cx.effects.push(Effect::Unsubscribe { vo });
        }
        // Counters are kept by the window, so its length stays until the next start, and with it the history, which is
        // told in windows.
        if config.local_window != self.cx.config.local_window {
            config.local_window = self.cx.config.local_window;
            config.local_history = self.cx.config.local_history;
        }
        self.cx.config = Arc::new(config);
        self.forward.follow_consent(&self.cx.config);
        self.peers
            .gossip
            .set_intervals(self.cx.config.timing.intervals());
        for vo in named {
            if self.vos.contains_key(&vo) {
                continue;
            }
            let held = self.vos.left.remove(&vo);
            let mut held =
                held.unwrap_or_else(|| Vo::new(vo, &self.cx.key, &HighestSeen::default()));
            self.vos.join_read(vo, &mut held);
            self.vos.insert(vo, held);
            if !mutated!(RejoinedUnread) {
                self.usage().read_members(now, vo);
            }
        }
        for held in self.vos.values_mut() {
            held.silence_checked = None;
        }
        self.vos.follow_mounts();
        self.shares.is_stale = true;
        self.peers.are_stale = true;
        if !mutated!(NewPricesUnsaid) {
            describe_all(&self.cx.config, self.own, self.vos);
        }
        AdvertHandler::new(self.cx, self.own, self.vos, &mut self.jobs.sources).follow_sources(now);
    }
}
