//! Parts: the pieces of what a site publishes, and the manifest that lists them.
//!
//! A part is a name and at most 64 KiB of bytes, known by their hash. The name's first byte is the
//! kind of the part; what a kind means, only the site that writes it and the reader of that kind know.
//!
//! Invariant: the root is a function of the names, hashes and lengths of the parts, so whoever holds
//! parts that come to a signed root holds exactly what was signed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{ContentHash, Seq, mutated};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Largest part in bytes: bounds one unit of transfer and of rewriting. Below gossipsub's message
/// limit, so that a part that changed wholly can still be pushed.
pub const PART_BYTES_MAX: usize = 64 * 1024;

/// Longest name of a part in bytes: bounds manifests. A span, a slice and some room.
pub const KEY_BYTES_MAX: usize = 24;

/// Most parts that one head may name: bounds its manifest to 600 KB. A year of days, three days of
/// hours and room for slices take 500. The same for all members, so that refusing is unanimous.
pub const PARTS_MAX: usize = 8_192;

/// Most bytes of the parts of one head: what a member can make every other one keep. Some 600,000
/// cells; 1,000 active accounts over 90 days take a fifth of it.
pub const HEAD_BYTES_MAX: u64 = 16 << 20;

/// Most rows in the parts of one head, as their kinds count them: bounds the memory of what is made of them. A row
/// with a path of its own takes some 100 bytes and the path; usage counts a row for each 128 bytes of paths, too, so
/// a head takes 120 MB at most. Paths of up to 128 bytes leave room for 5,800 accounts a day over 90 days;
/// certificates' subjects of 200 for 335,000 cells, 3,700 accounts a day: as many as fit [`HEAD_BYTES_MAX`], where
/// they differ in 40 bytes.
pub const HEAD_ROWS_MAX: u64 = 1 << 19;

/// Name of a part: its kind, and a key that the kind gives it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartKey(
    #[serde(
        serialize_with = "serde_bytes::serialize",
        deserialize_with = "read_name"
    )]
    Vec<u8>,
);

/// Names come from peers in manifests, deltas and lists of parts: none that is too long gets further.
fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let bytes: Vec<u8> = serde_bytes::deserialize(from)?;
    match PartKey::from_bytes(&bytes) {
        Some(name) => Ok(name.0),
        None => Err(D::Error::custom("bad name of a part")),
    }
}

impl PartKey {
    /// The part of `kind` that its kind calls `key`.
    ///
    /// # Panics
    /// If the key is longer than [`KEY_BYTES_MAX`]: a bug of the kind.
    pub fn new(kind: u8, key: &[u8]) -> Self {
        assert!(key.len() < KEY_BYTES_MAX, "a kind's keys are short");
        Self([&[kind], key].concat())
    }

    /// A name from a peer or from the store; `None` if it has no kind or is longer than [`KEY_BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let fits = (1..=KEY_BYTES_MAX).contains(&bytes.len());
        fits.then(|| Self(bytes.to_vec()))
    }

    /// The kind: the first byte.
    pub fn kind(&self) -> u8 {
        self.0.first().copied().unwrap_or_default()
    }

    /// The key within the kind, at most [`KEY_BYTES_MAX`] - 1 bytes.
    pub fn key(&self) -> &[u8] {
        self.0.get(1..).unwrap_or_default()
    }

    /// Kind and key, as in manifests.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One line of a manifest: name, hash and length of a part.
pub type ManifestRow = (PartKey, ContentHash, u32);

/// A part in a replica.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) hash: ContentHash,
    pub(crate) bytes: Arc<[u8]>,
    /// How many rows its kind counts in it; 0 where it is not checked yet.
    pub(crate) rows: u32,
    /// The seq of the head with which it was learnt: what a peer that holds an older head lacks.
    pub(crate) since: Seq,
}

/// Parts by name.
pub(crate) type Parts = BTreeMap<PartKey, Part>;

/// What a delta makes of some parts; `None` where one goes.
pub(crate) type Changes = BTreeMap<PartKey, Option<Part>>;

/// The root of a manifest whose rows come in the order of their names.
pub(crate) fn root_of<'a>(
    rows: impl Iterator<Item = (&'a PartKey, &'a ContentHash, u32)>,
) -> ContentHash {
    let mut bytes = Vec::with_capacity(8_192);
    // The length before each name makes the encoding unambiguous: two manifests never have the same bytes.
    for (key, hash, len) in rows {
        bytes.push(u8::try_from(key.0.len()).expect("names are short"));
        bytes.extend_from_slice(&key.0);
        bytes.extend_from_slice(hash.as_bytes());
        bytes.extend_from_slice(&len.to_be_bytes());
    }
    ContentHash::of(&bytes)
}

/// The length of a part, which is far below 2^32.
pub(crate) fn length(part: &Part) -> u32 {
    u32::try_from(part.bytes.len()).expect("parts are short")
}

/// The parts as they are after `changes`.
pub(crate) fn overlaid<'a>(
    parts: &'a Parts,
    changes: &'a Changes,
) -> impl Iterator<Item = (&'a PartKey, &'a Part)> {
    let mut old = parts.iter().peekable();
    let mut new = changes.iter().peekable();
    std::iter::from_fn(move || {
        loop {
            let (kept, changed) = (
                old.peek().map(|(key, _)| *key),
                new.peek().map(|(key, _)| *key),
            );
            // Both maps are sorted by name: a merge, without a copy of the parts that stay.
            let is_new = match (kept, changed) {
                (None, None) => return None,
                (kept, Some(changed)) => kept.is_none_or(|kept| kept >= changed),
                (Some(_), None) => false,
            };
            if is_new && kept == changed {
                old.next();
            }
            if !is_new {
                return old.next();
            }
            if let Some((key, Some(part))) = new.next() {
                return Some((key, part));
            }
        }
    })
}

/// Checks a manifest from a peer against the limits of a head.
///
/// # Errors
/// What exceeds a limit or is out of order.
pub(crate) fn check_manifest(rows: &[ManifestRow]) -> Result<(), String> {
    if rows.len() > PARTS_MAX && !mutated!(HeadLimitsUnchecked) {
        return Err(format!("{} parts are more than {PARTS_MAX}", rows.len()));
    }
    // Strictly ascending: with a name that occurs twice, the fetched parts could never come to the root.
    if !rows.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("its manifest is not in order".to_owned());
    }
    // The declared lengths bound what a fetch takes in before anything is fetched.
    let too_long = |len: u32| len as usize > PART_BYTES_MAX;
    if rows.iter().any(|(_, _, len)| too_long(*len)) {
        return Err(format!("a part is longer than {PART_BYTES_MAX} bytes"));
    }
    let bytes: u64 = rows.iter().map(|(_, _, len)| u64::from(*len)).sum();
    if bytes > HEAD_BYTES_MAX {
        return Err(format!("{bytes} bytes are more than {HEAD_BYTES_MAX}"));
    }
    Ok(())
}
