//! What members say to each other of jobs that they pass on: take this one; what became of those.
//!
//! A node of an earlier release refuses them as what it cannot read, and its sender takes that for no answer.
//!
//! Invariant: what is read is bounded, and its words show themselves.

use fairmesh_broker::forward::{TRIED_MAX, Tried};
use fairmesh_model::{ContentHash, SiteId, cbor, is_visible};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::requests::{JOBS, framed, unframed};

/// Longest frame: an offer, and what was tried.
const BYTES_MAX: usize = 128 << 10;

/// What a frame of ends has beside these, at most.
const FRAME_BYTES: usize = 32;

/// Most jobs that are asked for at once.
pub(super) const ENDS_MAX: usize = 64;

/// Longest word of a site about a job, in bytes: with what was tried, a job that was taken can be sent on and told of.
const WORDS_BYTES_MAX: usize = 256;

/// What a member is told or asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Asks the receiver to take a job.
    Take(Take),
    /// What became of these?
    Ends(Vec<ContentHash>),
    /// Their users take these back: the answer is as to [`Message::Ends`], once nothing can change it any more.
    Withdraw(Vec<ContentHash>),
}

/// A job that is handed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// Number of further sites that may pass it on.
    pub ttl: u8,
    /// The sites that were tried, and why they did not take it.
    pub tried: Vec<Tried>,
    /// The class that it is to have.
    pub class: String,
    /// The offer in the bytes that its origin signed.
    pub offer: ByteBuf,
}

/// What a member answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOffReply {
    /// It is taken, and durable.
    Taken,
    /// It is not taken, and why.
    Declined(String),
    /// It cannot be said now.
    Later,
    /// What became of the jobs that were asked for, in their order, as far as it is known. Of the last ones nothing
    /// may be said, where the answer would be too long: whoever asks again without those that he knows is told.
    Ends(Vec<Option<End>>),
}

/// What became of a job in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// A batch system has it.
    Submitted {
        /// The site whose batch system has it.
        site: SiteId,
        /// Its name for the job.
        batch: String,
    },
    /// It runs nowhere, or that is not known.
    Failed {
        /// The reason, for the user.
        why: String,
        /// The sites that were tried, and why they did not take it.
        tried: Vec<Tried>,
    },
}

/// Whether a request brings a job, of which something would be remembered.
pub fn brings_job(bytes: &[u8]) -> bool {
    matches!(read_forward(bytes), Some(Message::Take(_)))
}

pub(super) fn message(message: &Message) -> Vec<u8> {
    framed(JOBS, message)
}

pub(super) fn reply_bytes(reply: &HandOffReply) -> Vec<u8> {
    framed(JOBS, reply)
}

/// As many ends as one frame holds; the others are not worked out.
pub(super) fn ends(all: impl Iterator<Item = Option<End>>) -> HandOffReply {
    let mut left = BYTES_MAX - FRAME_BYTES;
    let fits = |end: &Option<End>| {
        let bytes = cbor::to_vec(end).len();
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    HandOffReply::Ends(all.take_while(fits).collect())
}

/// Reads a message about jobs; nothing where it is none.
pub fn read_forward(bytes: &[u8]) -> Option<Message> {
    let message = unframed(JOBS, bytes, BYTES_MAX)?;
    let is_sound = match &message {
        Message::Take(Take { tried, class, .. }) => are_plain(tried) && is_plain(class),
        Message::Ends(jobs) | Message::Withdraw(jobs) => jobs.len() <= ENDS_MAX,
    };
    is_sound.then_some(message)
}

/// Reads an answer about jobs; nothing where it is none.
pub fn read_forward_reply(bytes: &[u8]) -> Option<HandOffReply> {
    let reply = unframed(JOBS, bytes, BYTES_MAX)?;
    let is_sound = match &reply {
        HandOffReply::Taken | HandOffReply::Later => true,
        HandOffReply::Declined(why) => is_plain(why),
        HandOffReply::Ends(ends) => {
            ends.len() <= ENDS_MAX && ends.iter().flatten().all(End::is_sound)
        }
    };
    is_sound.then_some(reply)
}

impl End {
    /// Its user has taken it back, and it does not run.
    pub(super) fn withdrawn(tried: Vec<Tried>) -> Self {
        Self::Failed {
            why: "its user has taken it back".to_owned(),
            tried,
        }
    }

    fn is_sound(&self) -> bool {
        match self {
            Self::Submitted { batch, .. } => is_plain(batch),
            Self::Failed { why, tried } => is_plain(why) && are_plain(tried),
        }
    }
}

fn are_plain(tried: &[Tried]) -> bool {
    // One more than a job may have tried: its last sender.
    let is_site = |of: &Tried| of.site.parse::<SiteId>().is_ok();
    let is_good = |of: &Tried| is_site(of) && of.said.as_deref().is_none_or(is_plain);
    tried.len() <= TRIED_MAX + 1 && tried.iter().all(is_good)
}

fn is_plain(text: &str) -> bool {
    text.len() <= WORDS_BYTES_MAX && text.chars().all(is_visible)
}

/// Words as members take them.
pub(super) fn plain(text: &str) -> String {
    let mut left = WORDS_BYTES_MAX;
    let fits = |c: &char| {
        let fits = c.len_utf8() <= left;
        left = left.saturating_sub(c.len_utf8());
        fits
    };
    let visible = text.chars().filter(|c| is_visible(*c));
    visible.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_and_are_none_of_the_others() {
        let tried = |said: &str| Tried {
            site: SiteId::from_bytes([7; 32]).to_string(),
            said: Some(said.to_owned()),
        };
        let take = |said: &str| {
            Message::Take(Take {
                ttl: 3,
                tried: vec![tried(said)],
                class: "thin".to_owned(),
                offer: ByteBuf::from(vec![1, 2]),
            })
        };
        let bytes = message(&take("full"));
        assert!(brings_job(&bytes));
        assert!(!brings_job(&message(&Message::Ends(Vec::new()))));
        assert_eq!(read_forward(&bytes), Some(take("full")));
        assert_eq!(read_forward(&bytes[..bytes.len() - 1]), None);
        assert_eq!(read_forward(&message(&take("\u{202e}"))), None, "it hides");
        let many = Message::Ends(vec![ContentHash::of(b"x"); ENDS_MAX + 1]);
        assert_eq!(read_forward(&message(&many)), None);
        let end = |words: &str| {
            let why = words.to_owned();
            let tried = vec![tried("no")];
            HandOffReply::Ends(vec![None, Some(End::Failed { why, tried })])
        };
        for good in [
            HandOffReply::Taken,
            HandOffReply::Later,
            HandOffReply::Declined("no".to_owned()),
            end("why"),
        ] {
            let bytes = reply_bytes(&good);
            assert_eq!(read_forward_reply(&bytes), Some(good));
            assert!(fairmesh_gossip::wire::Response::from_bytes(&bytes).is_err());
        }
        assert_eq!(
            read_forward_reply(&reply_bytes(&end(&"x".repeat(WORDS_BYTES_MAX + 1)))),
            None
        );
        let long = plain(&"a\nbé".repeat(WORDS_BYTES_MAX));
        assert_eq!((&long[..8], long.len()), ("abéabé", WORDS_BYTES_MAX));
        let end = end(&long);
        assert_eq!(read_forward_reply(&reply_bytes(&end)), Some(end));
        assert!(fairmesh_gossip::wire::Request::from_bytes(&bytes).is_err());
    }
}
