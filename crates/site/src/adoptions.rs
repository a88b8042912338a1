//! Which documents came into force here, who brought each, and when: for whoever asks afterwards who published
//! what.
//!
//! Invariant: an entry is one durable change with the document that it tells of, so none is lost and none is told
//! of in vain; of each VO the newest [`KEPT_MAX`] are kept. Snapshots are left out: one comes every hour, by a
//! program, and puts nothing into force.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, ContentHash, Now, SiteId, VoId, WallTime, cbor};
use fairmesh_policy::DocumentKind;
use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::store::{Table, Write};

/// Most entries of one VO: a document a week for twenty years, or one a day for three.
const KEPT_MAX: u64 = 1_000;

/// Longest word on who handed a document in: bounds what an entry takes.
const BY_BYTES_MAX: usize = 128;

/// Who brought a document here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BroughtBy {
    /// Another site. Who handed it in there, that site knows.
    Peer(SiteId),
    /// Somebody here, by the name that the system gives him.
    User(String),
}

/// A document that came into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adoption {
    /// The kind of the adopted document.
    pub kind: DocumentKind,
    /// What it divides or grants; `/` for a charter.
    pub path: AccountPath,
    /// The version of the adopted document.
    pub version: u64,
    /// Hash of its payload.
    pub hash: ContentHash,
    /// When it came into force here, by this site's clock.
    pub at: WallTime,
    /// The peer or the user of the machine that brought it.
    pub by: BroughtBy,
}

/// By VO and number, which counts up.
pub(crate) type Adoptions = BTreeMap<(VoId, u64), Adoption>;

/// Notes that a document comes into force. The rows that keep it.
pub(crate) fn note_adoption(
    adoptions: &mut Adoptions,
    now: Now,
    document: &Document,
    by: BroughtBy,
) -> Vec<Write> {
    let Some((kind, path, version)) = document.subject() else {
        return Vec::new();
    };
    let vo = document.vo();
    let last = adoptions.range((vo, 0)..=(vo, u64::MAX)).next_back();
    let number = last.map_or(0, |((_, last), _)| last.saturating_add(1));
    let adoption = Adoption {
        kind,
        path,
        version,
        hash: document.hash(),
        at: now.wall,
        by,
    };
    let row = Write::set(Table::Adoptions, key(vo, number), cbor::to_vec(&adoption));
    adoptions.insert((vo, number), adoption);
    let gone = number.checked_sub(KEPT_MAX);
    let gone = gone.filter(|gone| adoptions.remove(&(vo, *gone)).is_some());
    let gone = gone.map(|gone| Write::delete(Table::Adoptions, key(vo, gone)));
    std::iter::once(row).chain(gone).collect()
}

impl BroughtBy {
    /// Somebody here, by so much of his name as is kept.
    pub(crate) fn user(name: &str) -> Self {
        let fits = name.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = fits.take_while(|end| *end <= BY_BYTES_MAX).last();
        Self::User(name[..end.unwrap_or(0)].to_owned())
    }
}

fn key(vo: VoId, number: u64) -> Vec<u8> {
    [vo.as_bytes().as_slice(), &number.to_be_bytes()].concat()
}

/// Reads a row; `None` if it is not one.
pub(crate) fn parse_adoption(key: &[u8], value: &[u8]) -> Option<((VoId, u64), Adoption)> {
    let (vo, number) = key.split_first_chunk::<32>()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    let adoption = cbor::from_slice(value, 4_096).ok()?;
    Some(((VoId::from_bytes(*vo), number), adoption))
}
