//! What a site signs about its usage: batches, checkpoints and in-flight sheets; and the seals
//! that a checkpoint names by their hash.
//!
//! Invariant: cells are absolute counters, so a batch can be applied twice or late. A checkpoint
//! at `seq` and the seals that it names hold all that the stream said up to `seq`.

use serde::{Deserialize, Serialize};

use crate::cbor::{self, CborError};
use crate::cells::{self, Cell};
use crate::ids::{ContentHash, Incarnation, Seq, SiteId, StreamId, VoId};
use crate::path::AccountPath;
use crate::signed::Document;
use crate::time::WallTime;
use crate::units::{CoreMillis, Counters};
use crate::window::Span;

/// Largest batch in bytes. Below gossipsub's default message limit of 64 KiB with room for
/// framing; a publisher with more to say sends several batches.
pub const BATCH_BYTES_MAX: usize = 60 * 1024;

/// Largest seal in bytes: bounds one answer's unit of resumption. A larger sheet is cut into
/// several seals by ranges of paths.
pub const SEAL_BYTES_MAX: usize = 256 * 1024;

/// Most seals that one checkpoint may name: bounds what one signature can make a newcomer ask for.
const CHECKPOINT_SEALS_MAX: usize = 16_384;

/// Most rows of an in-flight sheet: one for each account that has jobs running at one site.
const IN_FLIGHT_ROWS_MAX: usize = 65_536;

/// Cells with the paths that they speak of: a path table, sorted and without unused entries, and
/// a column block over it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "RawCells", into = "RawCells")]
pub struct PathCells {
    paths: Vec<AccountPath>,
    cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
struct RawCells {
    paths: Vec<AccountPath>,
    #[serde(with = "serde_bytes")]
    block: Vec<u8>,
}

impl PathCells {
    /// Collects rows in any order. Two rows of one (span, path) are joined.
    pub fn from_rows(rows: impl IntoIterator<Item = (Span, AccountPath, Counters)>) -> Self {
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        rows.dedup_by(|later, first| {
            let same = (later.0, &later.1) == (first.0, &first.1);
            if same {
                first.2 = first.2.join(later.2);
            }
            same
        });
        let mut paths: Vec<AccountPath> = rows.iter().map(|(_, path, _)| path.clone()).collect();
        paths.sort();
        paths.dedup();
        let index = |path: &AccountPath| {
            paths
                .binary_search(path)
                .expect("every path is in the table")
        };
        let cells = rows
            .iter()
            .map(|(span, path, counters)| Cell {
                span: *span,
                path: u32::try_from(index(path)).expect("fewer than 2^32 paths"),
                counters: *counters,
            })
            .collect();
        Self { paths, cells }
    }

    /// The rows, ascending by (span, path).
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (Span, &AccountPath, Counters)> {
        self.cells
            .iter()
            .map(|cell| (cell.span, &self.paths[cell.path as usize], cell.counters))
    }

    /// The path table.
    pub fn paths(&self) -> &[AccountPath] {
        &self.paths
    }

    /// The cells; `path` is an index into [`PathCells::paths`].
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

impl From<PathCells> for RawCells {
    fn from(cells: PathCells) -> Self {
        Self {
            block: cells::encode_block(&cells.cells),
            paths: cells.paths,
        }
    }
}

impl TryFrom<RawCells> for PathCells {
    type Error = String;

    fn try_from(raw: RawCells) -> Result<Self, String> {
        if !raw.paths.is_sorted_by(|a, b| a < b) {
            return Err("path table is not ascending".to_owned());
        }
        let cells =
            cells::decode_block(&raw.block, raw.paths.len()).map_err(|error| error.to_string())?;
        let mut used = vec![false; raw.paths.len()];
        cells
            .iter()
            .for_each(|cell| used[cell.path as usize] = true);
        if used.contains(&false) {
            return Err("path table has an unused entry".to_owned());
        }
        Ok(Self {
            paths: raw.paths,
            cells,
        })
    }
}

/// A site's next changes, in a chain without gaps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageBatch {
    /// The VO.
    pub vo: VoId,
    /// Who counts.
    pub site: SiteId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// Position in the stream, from 1 without gaps.
    pub seq: Seq,
    /// Payload hash of the batch before; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<ContentHash>,
    /// When it was signed, by the site's clock. Shown to people as the age of what is known, and
    /// used to name a clock that is off; never used for ordering.
    pub at: WallTime,
    /// The site's lives below this one are over for good: nothing they counted weighs any more, and
    /// whoever holds their streams lets go of them. Never above the batch's own life.
    #[serde(default, skip_serializing_if = "Incarnation::is_first")]
    pub retired_below: Incarnation,
    /// What the site's lives below this one had counted and not published was taken over by this
    /// life. A backup of theirs must not count it again. Never above the batch's own life.
    #[serde(default, skip_serializing_if = "Incarnation::is_first")]
    pub settled_below: Incarnation,
    /// Changed cells, absolute. None in a heartbeat.
    pub cells: PathCells,
}

impl UsageBatch {
    /// The stream that it belongs to.
    pub fn stream(&self) -> StreamId {
        StreamId {
            site: self.site,
            incarnation: self.incarnation,
        }
    }
}

impl Document for UsageBatch {
    const TYPE: &'static str = "usage-batch";
    const BYTES_MAX: usize = BATCH_BYTES_MAX;

    fn vo(&self) -> Option<VoId> {
        Some(self.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.seq == Seq(0) || self.previous.is_none() != (self.seq == Seq(1)) {
            return Err(format!(
                "batch {} with{} predecessor",
                self.seq.0,
                if self.previous.is_some() { "" } else { "out" }
            ));
        }
        check_lives(self.retired_below.max(self.settled_below), self.incarnation)
    }
}

/// All cells of one span (or of a range of its paths) as they stood at a checkpoint. Unsigned:
/// a checkpoint names it by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The span.
    pub span: Span,
    /// Its cells; all of them in `span`.
    pub cells: PathCells,
}

impl Seal {
    /// The exact bytes that are hashed, stored and sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        cbor::to_vec(self)
    }

    /// Decodes bytes and checks that they are what `reference` names.
    pub fn from_bytes(bytes: &[u8], reference: &SealRef) -> Result<Self, CborError> {
        if ContentHash::of(bytes) != reference.hash {
            return Err(CborError::Unexpected(format!(
                "seal does not have the hash {}",
                reference.hash
            )));
        }
        let seal: Self = cbor::from_slice(bytes, SEAL_BYTES_MAX)?;
        if seal.span != reference.span
            || seal.cells.cells().iter().any(|cell| cell.span != seal.span)
        {
            return Err(CborError::Unexpected(format!(
                "seal {} holds another span",
                reference.hash
            )));
        }
        Ok(seal)
    }
}

/// The name of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SealRef {
    /// Its span.
    pub span: Span,
    /// Hash of its bytes.
    pub hash: ContentHash,
}

/// All that a stream said up to `seq`, as hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The VO.
    pub vo: VoId,
    /// Who counts.
    pub site: SiteId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// The last batch that it covers.
    pub seq: Seq,
    /// Payload hash of that batch: the next one names it.
    pub head: ContentHash,
    /// When it was signed, by the site's clock.
    pub at: WallTime,
    /// The highest [`UsageBatch::retired_below`] that the stream has said.
    #[serde(default, skip_serializing_if = "Incarnation::is_first")]
    pub retired_below: Incarnation,
    /// The highest [`UsageBatch::settled_below`] that the site has said.
    #[serde(default, skip_serializing_if = "Incarnation::is_first")]
    pub settled_below: Incarnation,
    /// Seals of all live spans, ascending.
    pub seals: Vec<SealRef>,
}

impl Checkpoint {
    /// The stream that it belongs to.
    pub fn stream(&self) -> StreamId {
        StreamId {
            site: self.site,
            incarnation: self.incarnation,
        }
    }
}

impl Document for Checkpoint {
    const TYPE: &'static str = "checkpoint";
    const BYTES_MAX: usize = 2 << 20;

    fn vo(&self) -> Option<VoId> {
        Some(self.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.seq == Seq(0) {
            return Err("checkpoint of nothing".to_owned());
        }
        if self.seals.len() > CHECKPOINT_SEALS_MAX || !self.seals.is_sorted_by(|a, b| a < b) {
            return Err(format!(
                "more than {CHECKPOINT_SEALS_MAX} seals, or not ascending"
            ));
        }
        check_lives(self.retired_below.max(self.settled_below), self.incarnation)
    }
}

/// A life speaks of earlier ones only.
fn check_lives(below: Incarnation, own: Incarnation) -> Result<(), String> {
    if below > own {
        return Err(format!("life {} speaks of lives below {}", own.0, below.0));
    }
    Ok(())
}

/// What a site's running jobs are still expected to use. May shrink, so it is no counter: the
/// newest version of the newest incarnation replaces all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightSheet {
    /// The VO.
    pub vo: VoId,
    /// Whose jobs run.
    pub site: SiteId,
    /// In which of its lives.
    pub incarnation: Incarnation,
    /// Rises with every sheet of one incarnation.
    pub version: u64,
    /// When it was signed, by the site's clock.
    pub at: WallTime,
    /// Expected remaining charge by account, ascending by path.
    pub rows: Vec<(AccountPath, CoreMillis)>,
}

impl Document for InFlightSheet {
    const TYPE: &'static str = "in-flight";
    const BYTES_MAX: usize = 1 << 20;

    fn vo(&self) -> Option<VoId> {
        Some(self.vo)
    }

    fn validate(&self) -> Result<(), String> {
        if self.rows.len() > IN_FLIGHT_ROWS_MAX || !self.rows.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(format!(
                "more than {IN_FLIGHT_ROWS_MAX} rows, or not ascending"
            ));
        }
        Ok(())
    }
}
