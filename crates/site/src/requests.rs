//! Requests between members: of the anti-entropy, for rights and of them, about free CPUs, and of jobs that are passed on;
//! and who may send them.
//!
//! Invariant: a request goes to one of the five by its first byte, and its answer by the first byte of its number.

use std::collections::BTreeMap;

use fairmesh_gossip::Shared;
use fairmesh_model::{Now, SiteId, cbor};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::{Channel, Effect};
use crate::site::Site;
use crate::vo::Vo;

/// First byte of the frames about rights, free CPUs, jobs and what is witnessed. Those of the anti-entropy begin with 0 or 1,
/// and a node of an earlier release refuses the others as what it cannot read.
pub(crate) const WANT: u8 = 2;
pub(crate) const FREE: u8 = 3;
pub(crate) const JOBS: u8 = 4;
pub(crate) const WITNESS: u8 = 5;

/// Most callers that are let in while a VO has no charter: the last ones. They may be anyone, and have a member's
/// budgets.
const CALLERS_MAX: usize = 8;

/// Most former members that are let in for the charter that removes them: twice the sites of the largest VO. Of more, those
/// of the newest charters are; the others read that no site can be reached.
const FORMER_MAX: usize = 4_000;

/// The number of the request whose frames begin so; the anti-entropy counts its own from 1.
pub(crate) fn numbered(first: u8, count: u64) -> u64 {
    u64::from(first) << 56 | count
}

/// A message behind the byte that says what it is about.
pub(crate) fn framed(first: u8, message: &impl Serialize) -> Vec<u8> {
    [&[first], &cbor::to_vec(message)[..]].concat()
}

/// Reads what [`framed`] has written; `None` for anything else, and for more than `bytes_max`.
pub(crate) fn unframed<T: DeserializeOwned>(
    first: u8,
    frame: &[u8],
    bytes_max: usize,
) -> Option<T> {
    cbor::from_slice(frame.strip_prefix(&[first])?, bytes_max).ok()
}

impl Site {
    /// A site has called that is not allowed. While a VO has no charter here, the caller may be a member, so it is
    /// let in when it calls again, and asked for the documents of that VO and nothing else. A false charter does no
    /// harm: a VO's id is the hash of its first one.
    pub(crate) fn take_caller(&mut self, caller: SiteId) {
        if self.has_all_charters() || self.peers.callers.contains(&caller) {
            return;
        }
        if self.peers.callers.len() >= CALLERS_MAX {
            self.peers.callers.pop_front();
        }
        self.peers.callers.push_back(caller);
        self.peers.are_stale = true;
    }

    /// Callers that are let in. Once all charters are here, these say who is.
    pub(crate) fn admitted_callers(&mut self) -> impl Iterator<Item = SiteId> {
        if self.has_all_charters() {
            self.peers.callers.clear();
        }
        self.peers.callers.iter().copied()
    }

    /// Says who may speak: members of our VOs, those whom the owner trusts to introduce us, and callers that may; and who
    /// may come for the charter that removes it.
    pub(crate) fn announce_peers(&mut self) {
        self.peers.are_stale = false;
        let mut sites = self.cx.config.introducers.clone();
        sites.extend(self.admitted_callers());
        let mut addresses: BTreeMap<SiteId, Vec<String>> = BTreeMap::new();
        for charter in self.vos.values().filter_map(Vo::charter) {
            for member in charter
                .sites
                .iter()
                .filter(|member| member.site != self.cx.id)
            {
                sites.insert(member.site);
                let known = addresses.entry(member.site).or_default();
                for address in &member.addresses {
                    if !known.contains(address) {
                        known.push(address.clone());
                    }
                }
            }
        }
        let listed = self.vos.values().flat_map(Vo::listed);
        let is_former = |site: &SiteId| !sites.contains(site) && *site != self.cx.id;
        let former = listed.filter(is_former).take(FORMER_MAX).collect();
        self.cx.effects.push(Effect::Allow {
            sites,
            former,
            addresses,
        });
        for (vo, held) in self.vos.iter() {
            if let Some(charter) = held.charter() {
                let members = charter.sites.iter().map(|member| member.site).collect();
                self.cx.effects.push(Effect::Subscribe { vo: *vo, members });
            }
        }
    }

    /// Whether every VO has its charter.
    fn has_all_charters(&self) -> bool {
        self.vos.values().all(Shared::is_founded)
    }

    /// A peer asks.
    pub(crate) fn answer(&mut self, now: Now, from: SiteId, channel: Channel, bytes: &[u8]) {
        match bytes.first() {
            Some(&WANT) => return self.quota_handler().answer_want(now, from, channel, bytes),
            Some(&FREE) => {
                return self
                    .confirm_handler()
                    .answer_question(now, from, channel, bytes);
            }
            Some(&JOBS) => return self.answer_forward(now, from, channel, bytes),
            Some(&WITNESS) => return self.quota_handler().answer_witness(from, channel, bytes),
            _ => {}
        }
        let response = self.peers.gossip.answer(now, from, bytes, &self.vos);
        self.cx.watch_peer(&self.peers.gossip, now, from);
        self.head_handler().follow_agreements(now, from);
        let bytes = response.to_bytes();
        self.cx.effects.push(Effect::Answer { channel, bytes });
    }

    /// A peer has answered, or has not.
    pub(crate) fn answered(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        match id.to_be_bytes()[0] {
            WANT => self.vos.take_given(bytes),
            FREE => self.confirm_handler().take_confirmed(from, id, bytes),
            JOBS => self.take_told(now, from, id, bytes),
            WITNESS => self.quota_handler().take_witnessed(from, id, bytes),
            _ => self.head_handler().take_answer(now, from, id, bytes),
        }
    }
}
