//! Asking sites themselves how things stand with them now, for whoever is about to send a job.
//!
//! A node of an earlier release refuses the question as what it cannot read, and that is told as it is.
//!
//! Invariant: every question is answered, by the site or when the time for requests has passed; only members of
//! the VO are told anything, and nothing that is not in heads sooner or later.

use std::collections::BTreeMap;

use fairmesh_model::{Now, SiteId, VoId, cbor};
use serde_bytes::ByteBuf;

use super::{Advert, AdvertAnswer, part};
use crate::advert::own::{AdvertHandler, reply};
use crate::advert::pending::Call;
use crate::advert::sources::Sources;
use crate::parts::{Cx, Own, Peers, Vos};
use crate::requests::{FREE, framed, numbered, unframed};
use crate::tickets::{Channel, Ticket};

/// Longest frame: an advert and what stands around it.
const BYTES_MAX: usize = 9 << 10;

/// Most sites that are asked at once: bounds what one call makes others do.
const SITES_MAX: usize = 64;

/// Most calls that wait; more are answered at once with what is known.
const CALLS_MAX: usize = 64;

/// What a site answers: its advert, or why there is none.
type Said = Result<ByteBuf, String>;

/// Asks other sites how things stand with them, and answers when they ask.
pub(crate) struct ConfirmHandler<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) own: &'a mut Own,
    pub(crate) vos: &'a mut Vos,
    pub(crate) sources: &'a mut Sources,
    pub(crate) peers: &'a mut Peers,
}

impl ConfirmHandler<'_> {
    fn adverts(&mut self) -> AdvertHandler<'_> {
        AdvertHandler::new(self.cx, self.own, self.vos, self.sources)
    }

    pub(crate) fn ask_to_confirm(
        &mut self,
        now: Now,
        ticket: Ticket,
        vo: VoId,
        sites: Vec<SiteId>,
    ) {
        let connected: Vec<SiteId> = self.peers.gossip.peers().collect();
        let mut call = Call {
            until: now.mono.after(self.cx.config.timing.request_timeout),
            asked: BTreeMap::new(),
            said: Vec::new(),
        };
        for site in sites {
            if site == self.cx.id {
                let own = self.advert_now(now, vo);
                call.said.push((site, own));
            } else if !connected.contains(&site) {
                let why = "it cannot be reached now".to_owned();
                call.said.push((site, Err(why)));
            } else if call.asked.len() >= SITES_MAX || self.peers.confirms.calls.len() >= CALLS_MAX
            {
                let why = "too many sites are asked at once".to_owned();
                call.said.push((site, Err(why)));
            } else {
                self.peers.confirms.last += 1;
                let id = numbered(FREE, self.peers.confirms.last);
                call.asked.insert(id, site);
                let bytes = framed(FREE, &vo);
                self.cx.ask(site, id, bytes);
            }
        }
        if call.asked.is_empty() {
            return reply(self.cx, ticket, AdvertAnswer::Confirmed(call.said));
        }
        self.peers.confirms.calls.insert(ticket, call);
    }

    /// A member asks how things stand here.
    pub(crate) fn answer_question(
        &mut self,
        now: Now,
        from: SiteId,
        channel: Channel,
        bytes: &[u8],
    ) {
        let vo = unframed::<VoId>(FREE, bytes, BYTES_MAX);
        let is_member = |vo: &VoId| {
            let held = self.vos.get(vo);
            held.is_some_and(|held| held.replica.is_member(from))
        };
        let said: Said = match vo.filter(is_member) {
            Some(vo) => self
                .advert_now(now, vo)
                .map(|of| ByteBuf::from(cbor::to_vec(&of))),
            None => Err("it tells members of its VOs only".to_owned()),
        };
        let bytes = framed(FREE, &said);
        self.cx.answer(channel, bytes);
    }

    fn advert_now(&mut self, now: Now, vo: VoId) -> Result<Advert, String> {
        let is_held = self.vos.contains_key(&vo);
        let live = is_held.then(|| self.adverts().renew_advert(now, vo).live.clone());
        live.flatten().ok_or_else(|| match self.cx.config.advert {
            Some(_) => "nothing has told it lately what runs there".to_owned(),
            None => "its owner does not tell what is free".to_owned(),
        })
    }

    /// A site has answered a question, or has not.
    pub(crate) fn take_confirmed(&mut self, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        let mut calls = self.peers.confirms.calls.iter_mut();
        let Some((ticket, call)) = calls.find(|(_, call)| call.asked.get(&id) == Some(&from))
        else {
            return;
        };
        call.asked.remove(&id);
        call.said.push((from, read(bytes)));
        let ticket = *ticket;
        if call.asked.is_empty() {
            self.end_call(ticket);
        }
    }

    /// Calls whose time has passed are answered with what has come.
    pub(crate) fn advance_confirms(&mut self, now: Now) {
        let calls = self.peers.confirms.calls.iter();
        let over = calls.filter(|(_, call)| now.mono >= call.until);
        let over: Vec<Ticket> = over.map(|(ticket, _)| *ticket).collect();
        over.into_iter().for_each(|ticket| self.end_call(ticket));
    }

    fn end_call(&mut self, ticket: Ticket) {
        let Some(mut call) = self.peers.confirms.calls.remove(&ticket) else {
            return;
        };
        let silent = call.asked.into_values();
        let silent = silent.map(|site| (site, Err("it did not answer in time".to_owned())));
        call.said.extend(silent);
        reply(self.cx, ticket, AdvertAnswer::Confirmed(call.said));
    }
}

fn read(bytes: Option<&[u8]>) -> Result<Advert, String> {
    let bytes = bytes.ok_or_else(|| "it did not answer".to_owned())?;
    let said = unframed::<Said>(FREE, bytes, BYTES_MAX);
    let said =
        said.ok_or_else(|| "it does not answer such questions (an older release?)".to_owned());
    part::read(&said??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_and_are_none_of_the_others() {
        let advert = Advert {
            total: 8,
            free: 3,
            ..Advert::default()
        };
        let said: Said = Ok(ByteBuf::from(cbor::to_vec(&advert)));
        let answer = framed(FREE, &said);
        assert_eq!(read(Some(&answer)), Ok(advert));
        let refusal: Said = Err("no".to_owned());
        assert_eq!(read(Some(&framed(FREE, &refusal))), Err("no".to_owned()));
        for odd in [&b""[..], &[3], &[1, 2, 3], &answer[..answer.len() - 1]] {
            assert!(read(Some(odd)).expect_err("odd").contains("older release"));
        }
        let nonsense = Advert {
            total: 1,
            free: 2,
            ..Advert::default()
        };
        let said: Said = Ok(ByteBuf::from(cbor::to_vec(&nonsense)));
        assert!(read(Some(&framed(FREE, &said))).is_err());
        let question = framed(FREE, &VoId::from_bytes([4; 32]));
        assert!(fairmesh_gossip::wire::Request::from_bytes(&question).is_err());
        assert!(fairmesh_gossip::wire::Response::from_bytes(&answer).is_err());
    }
}
