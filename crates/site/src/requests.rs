//! Requests between members: of the anti-entropy, for rights and of them, about free CPUs, and of jobs that are passed on.
//!
//! Invariant: a request goes to one of the five by its first byte, and its answer by its number.

use fairmesh_model::{Now, SiteId, cbor};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::advert::is_question;
use crate::event::{Channel, Effect};
use crate::forward::is_forward;
use crate::quota::{is_want, is_witness};
use crate::site::Site;

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
    /// A peer asks.
    pub(crate) fn answer(&mut self, now: Now, from: SiteId, channel: Channel, bytes: &[u8]) {
        if is_want(bytes) {
            return self.answer_want(now, from, channel, bytes);
        }
        if is_witness(bytes) {
            return self.answer_witness(from, channel, bytes);
        }
        if is_question(bytes) {
            return self.answer_question(now, from, channel, bytes);
        }
        if is_forward(bytes) {
            return self.answer_forward(now, from, channel, bytes);
        }
        let response = self.gossip.answer(now, from, bytes, &self.vos);
        self.watch_peer(now, from);
        let bytes = response.to_bytes();
        self.effects.push(Effect::Answer { channel, bytes });
    }

    /// A peer has answered, or has not.
    pub(crate) fn answered(&mut self, now: Now, from: SiteId, id: u64, bytes: Option<&[u8]>) {
        if Self::asked_for_rights(id) {
            self.take_given(bytes);
        } else if Self::asked_to_witness(id) {
            self.take_witnessed(from, id, bytes);
        } else if Self::asked_to_confirm(id) {
            self.take_confirmed(from, id, bytes);
        } else if Self::asked_to_forward(id) {
            self.take_told(now, from, id, bytes);
        } else {
            self.take_answer(now, from, id, bytes);
        }
    }
}
