//! What is remembered of a job that is passed on, as a row of the store.
//!
//! Invariant: a row holds all that a start needs: to go on, to know a repeat, and to say what became of the job.

use std::collections::BTreeSet;

use fairmesh_broker::forward::{Failure, Kept, State};
use fairmesh_model::{ContentHash, Signed, SiteId, VoId, WallTime, cbor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::offer::Offer;
use super::wire::End;
use crate::store::{Table, Write};

/// Largest row: an offer, what was tried, and what became of it.
const ROW_BYTES_MAX: usize = 256 << 10;

/// What a place in the table is meant for, in bytes.
const PLACE_BYTES: usize = 512;

/// What is remembered of a job beside what the state machine keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(super) vo: VoId,
    /// Its user's name for it, and whose it is.
    pub(super) key: String,
    pub(super) user: String,
    /// CPUs that it asks for.
    pub(super) cpus: u32,
    /// Nobody takes it after this.
    pub(super) until: WallTime,
    /// From whom it was taken; nobody, where it was handed in here.
    pub(super) from: BTreeSet<SiteId>,
    /// Who sent it first: whose room it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first: Option<SiteId>,
    /// Of one that was handed in here: what was asked for.
    pub(super) errand: Option<ContentHash>,
    /// The signed offer, while anything is to be done for it.
    pub(super) offer: Option<ByteBuf>,
    /// Who has taken it from this site.
    pub(super) passed: Option<SiteId>,
    /// What became of it, where that is known.
    pub(super) end: Option<End>,
    /// Whether its user takes it back.
    #[serde(default, skip_serializing_if = "Withdrawal::is_none")]
    pub(super) withdrawal: Withdrawal,
    /// How many places of its sender's room it takes.
    #[serde(skip)]
    pub(super) places: usize,
}

/// Whether the user of a job takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Withdrawal {
    /// He has not said so.
    #[default]
    None,
    /// He has, and it is not known yet what comes of it.
    Wanted,
    /// It is: the job's end stays as it is.
    Answered,
}

impl Withdrawal {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Where a job is, as far as a site knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Here, to be handed to the batch system.
    Here {
        /// For which class of machines.
        class: String,
    },
    /// Sent to a site that has not acknowledged it yet.
    Sent(SiteId),
    /// A site has taken it, and has not said yet what became of it.
    Passed(SiteId),
    /// It has ended, or certainly will not run.
    Ended(End),
}

impl Entry {
    /// Of an offer, before anything is done with it.
    pub(super) fn of(offer: &Offer) -> Self {
        Self {
            vo: offer.job.vo,
            key: offer.job.key.clone(),
            user: offer.job.user.clone(),
            cpus: offer.job.cpus,
            until: offer.until,
            from: BTreeSet::new(),
            first: None,
            errand: None,
            offer: None,
            passed: None,
            end: None,
            withdrawal: Withdrawal::None,
            places: 0,
        }
    }

    /// Whether its user has taken it back, and nobody has said yet what came of that.
    pub(super) fn is_wanted_back(&self) -> bool {
        self.withdrawal == Withdrawal::Wanted
    }

    /// How many places of its sender's room it takes: of one of another member one more for each [`PLACE_BYTES`] of
    /// what was tried, which that one may have made up.
    pub(super) fn places(&self, kept: &Kept) -> usize {
        let tried = match (&kept.state, &self.end) {
            (State::Here(job, _) | State::Failed(job, _), _) => &job.tried[..],
            (State::Sent(sending), _) => &sending.job.tried,
            (State::Gone, Some(End::Failed { tried, .. })) => tried,
            (State::Gone, _) => &[],
        };
        let bytes = tried
            .iter()
            .map(|of| of.site.len() + of.said.as_ref().map_or(0, String::len));
        match self.errand {
            Some(_) => 1,
            None => 1 + bytes.sum::<usize>() / PLACE_BYTES,
        }
    }

    /// The offer, where it is still held.
    pub(super) fn offer(&self) -> Option<Signed<Offer>> {
        Signed::parse(self.offer.as_ref()?).ok()
    }

    /// What became of the job, where that is known.
    pub(super) fn end(&self, kept: &Kept) -> Option<End> {
        match &kept.state {
            // Of one that is taken back no place is looked for.
            State::Failed(job, Failure::Nowhere) if self.withdrawal != Withdrawal::None => {
                Some(End::withdrawn(job.tried.clone()))
            }
            State::Failed(job, why) => Some(End::Failed {
                why: why.to_string(),
                tried: job.tried.clone(),
            }),
            _ => self.end.clone(),
        }
    }

    /// Where it is; `None` of one that was declined here and is elsewhere.
    pub(super) fn stage(&self, kept: &Kept) -> Option<Stage> {
        match &kept.state {
            State::Here(_, class) => Some(Stage::Here {
                class: class.clone(),
            }),
            State::Sent(sending) => Some(Stage::Sent(sending.to.parse().ok()?)),
            State::Failed(..) | State::Gone => {
                let end = self.end(kept).map(Stage::Ended);
                end.or(self.passed.map(Stage::Passed))
            }
        }
    }
}

/// Whether anything is still to be done for a job here.
pub(super) fn is_open(kept: &Kept) -> bool {
    matches!(kept.state, State::Here(..) | State::Sent(_))
}

/// The row of a job, which goes where nothing is known of it.
pub(super) fn row(job: ContentHash, of: Option<(&Kept, &Entry)>) -> Write {
    let key = job.as_bytes().to_vec();
    match of {
        Some(of) => Write::set(Table::Forwarded, key, cbor::to_vec(&of)),
        None => Write::delete(Table::Forwarded, key),
    }
}

/// Reads what [`row`] has written; `None` if it is no such row.
pub(crate) fn parse(key: &[u8], value: &[u8]) -> Option<(ContentHash, Kept, Entry)> {
    let job = ContentHash::from_bytes(key.try_into().ok()?);
    let (kept, entry) = cbor::from_slice(value, ROW_BYTES_MAX).ok()?;
    Some((job, kept, entry))
}
