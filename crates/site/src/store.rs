//! What a site keeps, as rows of bytes: the only thing a driver has to know of its disk.
//!
//! Invariant: one [`Effect::Persist`](crate::Effect::Persist) is one atomic change, durable before
//! the effects behind it are carried out; and the rows alone are enough to go on after a crash.
//! Deliberately not here: checksums and files (the node), and which rows are still needed (each
//! module deletes its own).

use fairmesh_model::{
    AccountPath, ContentHash, Counters, Incarnation, JobKey, Origin, Seq, SiteId, Span, StreamId,
    VoId, WallTime, cbor,
};
use fairmesh_usage::Pruned;
use serde::{Deserialize, Serialize};

use crate::identity::Account;

/// What kind of row. The number is the first byte of the key on disk and never changes meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Facts about the store itself.
    Meta = 1,
    /// Charters and share policies, by VO and hash.
    Documents = 2,
    /// Batches, by VO, stream and seq.
    Batches = 3,
    /// The checkpoints retained of each stream.
    Checkpoints = 4,
    /// Seals, by VO and hash.
    Seals = 5,
    /// The newest in-flight sheet of each site.
    InFlight = 6,
    /// The site's own counters, published or not.
    Ledger = 7,
    /// What was charged of each job so far.
    Jobs = 8,
    /// Origins that map nowhere.
    Unmapped = 9,
    /// Proofs of forks.
    Forks = 10,
    /// Highest policy versions seen.
    Policy = 11,
    /// The newest description of each site, by VO.
    Descriptions = 12,
}

impl Table {
    /// All tables, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Meta,
        Self::Documents,
        Self::Batches,
        Self::Checkpoints,
        Self::Seals,
        Self::InFlight,
        Self::Ledger,
        Self::Jobs,
        Self::Unmapped,
        Self::Forks,
        Self::Policy,
        Self::Descriptions,
    ];
}

/// One row to set, or to delete where there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub table: Table,
    /// Which.
    pub key: Vec<u8>,
    /// What.
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// Sets a row.
    pub fn set(table: Table, key: Vec<u8>, value: impl Into<Vec<u8>>) -> Self {
        Self {
            table,
            key,
            value: Some(value.into()),
        }
    }

    /// Deletes a row.
    pub fn delete(table: Table, key: Vec<u8>) -> Self {
        Self {
            table,
            key,
            value: None,
        }
    }
}

/// Which batch a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// The VO.
    pub vo: VoId,
    /// The stream.
    pub stream: StreamId,
    /// The position in it.
    pub seq: Seq,
}

impl BatchId {
    /// The batch that `write` keeps; `None` if it keeps something else.
    pub fn of(write: &Write) -> Option<Self> {
        if write.table != Table::Batches || write.value.is_none() {
            return None;
        }
        let (vo, rest) = write.key.split_at_checked(32)?;
        let (site, rest) = rest.split_at_checked(32)?;
        let (incarnation, seq) = rest.split_at_checked(8)?;
        Some(Self {
            vo: VoId::from_bytes(vo.try_into().ok()?),
            stream: StreamId {
                site: SiteId::from_bytes(site.try_into().ok()?),
                incarnation: Incarnation(u64::from_be_bytes(incarnation.try_into().ok()?)),
            },
            seq: Seq(u64::from_be_bytes(seq.try_into().ok()?)),
        })
    }
}

/// How much of a job has been charged. Kept by job key, so that no report is counted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMark {
    /// Everything from the job's start to here is charged.
    pub charged_until: WallTime,
    /// Whether its last word has been heard.
    pub ended: bool,
}

impl JobMark {
    /// The row's value.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.charged_until.0.to_be_bytes().to_vec();
        bytes.push(u8::from(self.ended));
        bytes
    }

    /// Reads a row's value; `None` if it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ended, until) = bytes.split_last()?;
        let charged_until = WallTime(u64::from_be_bytes(until.try_into().ok()?));
        Some(Self {
            charged_until,
            ended: *ended == 1,
        })
    }
}

/// Key of a job's mark: what a driver looks up before it hands in a report. A hash, because names
/// may be longer than a store likes its keys.
pub fn job_key(job: &JobKey) -> Vec<u8> {
    ContentHash::of(&cbor::to_vec(&(&job.cluster, &job.job, job.instance)))
        .as_bytes()
        .to_vec()
}

/// Key of an origin that maps nowhere.
pub(crate) fn origin_key(origin: &Origin) -> Vec<u8> {
    ContentHash::of(&cbor::to_vec(origin)).as_bytes().to_vec()
}

/// Key of a document or a seal.
pub(crate) fn hash_key(vo: VoId, hash: &[u8; 32]) -> Vec<u8> {
    [vo.as_bytes().as_slice(), hash].concat()
}

/// Key of a stream's row: batches and checkpoints by seq, so that a scan is in order.
pub(crate) fn stream_key(vo: VoId, stream: StreamId, seq: Seq) -> Vec<u8> {
    [
        vo.as_bytes().as_slice(),
        stream.site.as_bytes(),
        &stream.incarnation.0.to_be_bytes(),
        &seq.0.to_be_bytes(),
    ]
    .concat()
}

/// The rows of what was let go of in a stream, to delete.
pub(crate) fn pruned_rows(
    vo: VoId,
    stream: StreamId,
    pruned: &Pruned,
) -> impl Iterator<Item = Write> {
    let by_hash =
        move |table, hash: &ContentHash| Write::delete(table, hash_key(vo, hash.as_bytes()));
    let batches = pruned
        .seqs
        .iter()
        .map(move |seq| Write::delete(Table::Batches, stream_key(vo, stream, *seq)));
    let checkpoints = pruned.checkpoints.iter();
    let checkpoints = checkpoints.map(move |hash| by_hash(Table::Checkpoints, hash));
    let seals = pruned.seals.iter();
    let seals = seals.map(move |hash| by_hash(Table::Seals, hash));
    batches.chain(checkpoints).chain(seals)
}

/// Key of a site's in-flight sheet, and of its description.
pub(crate) fn site_key(vo: VoId, site: SiteId) -> Vec<u8> {
    [vo.as_bytes().as_slice(), site.as_bytes()].concat()
}

/// Key of one of our own counters. The path is hashed, and kept in the row.
pub(crate) fn ledger_key(account: &Account, incarnation: Incarnation, span: Span) -> Vec<u8> {
    let vo = account.vo.map_or([0; 32], |vo| *vo.as_bytes());
    let path = ContentHash::of(account.path.as_str().as_bytes());
    [
        vo.as_slice(),
        &incarnation.0.to_be_bytes(),
        &span.code().to_be_bytes(),
        path.as_bytes(),
    ]
    .concat()
}

/// Marks the key of a counter that was counted before the time was known. No incarnation is as high.
const UNTIMED: u64 = 1 << 63;

/// Key of one of our own counters that was counted before the time was known.
pub(crate) fn untimed_key(account: &Account, incarnation: Incarnation, span: Span) -> Vec<u8> {
    ledger_key(account, Incarnation(incarnation.0 | UNTIMED), span)
}

/// A counter as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LedgerRow {
    pub(crate) account: Account,
    pub(crate) incarnation: Incarnation,
    /// Whether it was counted before the time was known.
    pub(crate) is_untimed: bool,
    pub(crate) span: Span,
    pub(crate) counters: Counters,
}

/// The value of a counter's row.
pub(crate) fn ledger_value(path: &AccountPath, counters: Counters) -> Vec<u8> {
    let columns = counters.to_columns();
    columns
        .iter()
        .flat_map(|column| column.to_be_bytes())
        .chain(path.as_str().bytes())
        .collect()
}

/// Reads a counter's row; `None` if it is not one.
pub(crate) fn parse_ledger_row(key: &[u8], value: &[u8]) -> Option<LedgerRow> {
    let (vo, rest) = key.split_at_checked(32)?;
    let (incarnation, rest) = rest.split_at_checked(8)?;
    let (span, path_hash) = rest.split_at_checked(8)?;
    let (columns, path) = value.split_at_checked(40)?;
    if ContentHash::of(path).as_bytes() != path_hash {
        return None;
    }
    let vo: [u8; 32] = vo.try_into().ok()?;
    let incarnation = u64::from_be_bytes(incarnation.try_into().ok()?);
    let mut counters = [0; 5];
    for (column, chunk) in counters.iter_mut().zip(columns.chunks_exact(8)) {
        *column = u64::from_be_bytes(chunk.try_into().ok()?);
    }
    Some(LedgerRow {
        account: Account {
            vo: (vo != [0; 32]).then(|| VoId::from_bytes(vo)),
            path: AccountPath::parse(std::str::from_utf8(path).ok()?).ok()?,
        },
        incarnation: Incarnation(incarnation & !UNTIMED),
        is_untimed: incarnation & UNTIMED != 0,
        span: Span::from_code(u64::from_be_bytes(span.try_into().ok()?))?,
        counters: Counters::from_columns(counters),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_model::Window;

    #[test]
    fn keys_and_rows_round_trip() {
        let path = AccountPath::parse("/P-B1/U-B11").expect("valid");
        let counters = Counters::from_columns([1, 2, 3, 4, u64::MAX]);
        for vo in [None, Some(VoId::from_bytes([9; 32]))] {
            let account = Account {
                vo,
                path: path.clone(),
            };
            let (incarnation, span) = (Incarnation(5), Span::Window(Window(7)));
            let key = ledger_key(&account, incarnation, span);
            let untimed = untimed_key(&account, incarnation, span);
            for (key, is_untimed) in [(&key, false), (&untimed, true)] {
                let row = LedgerRow {
                    account: account.clone(),
                    incarnation,
                    is_untimed,
                    span,
                    counters,
                };
                let value = ledger_value(&path, counters);
                assert_eq!(parse_ledger_row(key, &value), Some(row));
            }
            assert_eq!(
                parse_ledger_row(&key, &ledger_value(&AccountPath::root(), counters)),
                None
            );
        }
        let mark = JobMark {
            charged_until: WallTime(77),
            ended: true,
        };
        assert_eq!(JobMark::from_bytes(&mark.to_bytes()), Some(mark));
    }

    #[test]
    fn stream_rows_sort_by_seq() {
        let stream = StreamId {
            site: SiteId::from_bytes([1; 32]),
            incarnation: Incarnation(1),
        };
        let key = |seq| stream_key(VoId::from_bytes([1; 32]), stream, Seq(seq));
        assert!(key(255) < key(256));
    }
}
