//! What a site keeps, as rows of bytes: the only thing a driver has to know of its disk.
//!
//! Invariant: one [`Effect::Persist`](crate::Effect::Persist) is one atomic change, durable before
//! the effects behind it are carried out; and the rows alone are enough to go on after a crash.
//! Deliberately not here: checksums and files (the node), and which rows are still needed (each
//! module deletes its own).

use fairmesh_gossip::{Head, HeldRow, PartKey};
use fairmesh_model::units::COLUMNS;
use fairmesh_model::{
    AccountPath, ContentHash, Counters, Incarnation, JobKey, Origin, Seq, Signed, SiteId, Span,
    VoId, WallTime, cbor,
};
use fairmesh_usage::Cell;

/// What kind of row. The number is the first byte of the key on disk and never changes meaning; 3 to 6,
/// 10 and 12 were kinds of the first edition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Facts about the store itself.
    Meta = 1,
    /// Charters and share policies, by VO and hash.
    Documents = 2,
    /// The site's own counters, published or not.
    Ledger = 7,
    /// What was charged of each job so far.
    Jobs = 8,
    /// Origins that map nowhere.
    Unmapped = 9,
    /// Highest policy versions seen.
    Policy = 11,
    /// Heads, by VO, site and incarnation.
    Heads = 13,
    /// Parts of heads, by these and their names.
    Parts = 14,
    /// Proofs that a site signed two heads with one seq, by VO and site.
    Proofs = 15,
    /// Corrections: what was taken back, by job, with who did it and why.
    Audit = 16,
    /// The site's own rights, by VO and slice.
    Rights = 17,
    /// What is held for jobs, and what became of them, by VO and job.
    Holds = 18,
    /// Rights that went to other sites or came from them, by VO and number.
    Transfers = 19,
    /// Jobs that members pass on to each other, by their names: where each is, and what became of it.
    Forwarded = 20,
    /// Documents that came into force here, by VO and number: which, when, and who brought each.
    Adoptions = 21,
    /// Until when own counters reach, and those whose jobs' marks are lost, by VO; of the site's own accounts without
    /// a key.
    Reach = 22,
    /// What jobs are charged for that run, by the keys of their marks.
    Instalments = 23,
}

impl Table {
    /// All tables, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Meta,
        Self::Documents,
        Self::Ledger,
        Self::Jobs,
        Self::Unmapped,
        Self::Policy,
        Self::Heads,
        Self::Parts,
        Self::Proofs,
        Self::Audit,
        Self::Rights,
        Self::Holds,
        Self::Transfers,
        Self::Forwarded,
        Self::Adoptions,
        Self::Reach,
        Self::Instalments,
    ];
}

/// Key of the id of the site that the rows belong to in [`Table::Meta`]: its 32 bytes.
pub const SITE_KEY: &[u8] = b"site";

/// One row to set, or to delete where there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The table of the row.
    pub table: Table,
    /// The key of the row in the table.
    pub key: Vec<u8>,
    /// The row's value; `None` to delete the row.
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// A write that sets a row.
    pub fn set(table: Table, key: Vec<u8>, value: impl Into<Vec<u8>>) -> Self {
        Self {
            table,
            key,
            value: Some(value.into()),
        }
    }

    /// A write that deletes a row.
    pub fn delete(table: Table, key: Vec<u8>) -> Self {
        Self {
            table,
            key,
            value: None,
        }
    }
}

/// Which head a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeadId {
    /// The VO of the head.
    pub vo: VoId,
    /// The site that signed the head.
    pub site: SiteId,
    /// The head's incarnation.
    pub incarnation: Incarnation,
}

impl HeadId {
    /// The head that a row's key names, or whose part it names, and the name of the part.
    pub fn of_key(key: &[u8]) -> Option<(Self, &[u8])> {
        let (vo, rest) = key.split_first_chunk()?;
        let (site, rest) = rest.split_first_chunk()?;
        let (incarnation, part) = rest.split_first_chunk()?;
        let id = Self {
            vo: VoId::from_bytes(*vo),
            site: SiteId::from_bytes(*site),
            incarnation: Incarnation(u64::from_be_bytes(*incarnation)),
        };
        Some((id, part))
    }

    /// The head that `write` keeps, with its number; `None` if it keeps something else.
    pub fn numbered(write: &Write) -> Option<(Self, Seq)> {
        let value = write.value.as_ref().filter(|_| write.table == Table::Heads);
        let signed = Signed::<Head>::parse(value?).ok()?;
        let (id, _) = Self::of_key(&write.key)?;
        Some((id, signed.claimed().seq))
    }
}

/// A change of what is held of a VO's heads, as a row.
pub(crate) fn head_row(vo: VoId, row: &HeldRow) -> Write {
    let part = row.part.as_ref().map_or(&[][..], PartKey::as_bytes);
    let incarnation = row.incarnation.0.to_be_bytes();
    let key = [
        vo.as_bytes().as_slice(),
        row.site.as_bytes(),
        &incarnation,
        part,
    ]
    .concat();
    Write {
        table: if row.part.is_some() {
            Table::Parts
        } else {
            Table::Heads
        },
        key,
        value: row.bytes.as_ref().map(|bytes| bytes.to_vec()),
    }
}

/// How much of a job has been charged. Kept by job key, so that no report is counted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobMark {
    /// Everything from the job's start to here is charged.
    pub charged_until: WallTime,
    /// Whether its last record has come.
    pub ended: bool,
    /// Whether it was taken back, which is done at most once.
    pub corrected: bool,
    /// What all of that is charged, core-milliseconds, whether or not it was too old to count.
    pub charge: u64,
    /// Whom: [`Account::digest`](crate::Account::digest); 0 where it was more than one.
    pub payer: u64,
}

impl JobMark {
    /// Of a job of which nothing is charged, up to a moment.
    pub const fn at(charged_until: WallTime) -> Self {
        Self {
            charged_until,
            ended: false,
            corrected: false,
            charge: 0,
            payer: 0,
        }
    }

    /// The value of the row in [`Table::Jobs`].
    pub fn to_bytes(self) -> Vec<u8> {
        let flags = u8::from(self.ended) | u8::from(self.corrected) << 1;
        let numbers = [self.charged_until.0, self.charge, self.payer].map(u64::to_be_bytes);
        numbers.into_iter().flatten().chain([flags]).collect()
    }

    /// Reads a row's value; `None` if it is not one. Rows of earlier releases have neither charge nor
    /// payer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (flags, numbers) = bytes.split_last()?;
        let numbers: Vec<u64> = numbers
            .chunks(8)
            .map(|number| Some(u64::from_be_bytes(number.try_into().ok()?)))
            .collect::<Option<_>>()?;
        let (charged_until, charge, payer) = match *numbers {
            [until] => (until, 0, 0),
            [until, charge, payer] => (until, charge, payer),
            _ => return None,
        };
        Some(Self {
            charged_until: WallTime(charged_until),
            ended: flags & 1 != 0,
            corrected: flags & 2 != 0,
            charge,
            payer,
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

/// Key of a row in a VO: of a document by its hash, of a site by its id.
pub(crate) fn vo_key(vo: VoId, of: &[u8; 32]) -> Vec<u8> {
    [vo.as_bytes().as_slice(), of].concat()
}

/// The row of one of our own counters, which goes where nothing is counted. Its key has a hash of the
/// path, its value the path.
pub(crate) fn ledger_row(
    vo: Option<VoId>,
    span: Span,
    (path, incarnation): &(AccountPath, Incarnation),
    counters: Counters,
) -> Write {
    let vo = vo.map_or([0; 32], |vo| *vo.as_bytes());
    let path_hash = ContentHash::of(path.as_str().as_bytes());
    let key = [
        vo.as_slice(),
        &incarnation.0.to_be_bytes(),
        &span.code().to_be_bytes(),
        path_hash.as_bytes(),
    ];
    let columns = counters.to_columns().map(u64::to_be_bytes);
    let value = [columns.as_flattened(), path.as_str().as_bytes()];
    Write {
        table: Table::Ledger,
        key: key.concat(),
        value: (!counters.is_zero()).then(|| value.concat()),
    }
}

/// Reads a counter's row: whose it is, and the cell. `None` if it is not one.
pub(crate) fn parse_ledger_row(
    key: &[u8],
    value: &[u8],
) -> Option<(Option<VoId>, Cell<AccountPath>)> {
    let (vo, rest) = key.split_first_chunk::<32>()?;
    let (incarnation, rest) = rest.split_first_chunk()?;
    let (span, path_hash) = rest.split_first_chunk()?;
    let (columns, path) = value.split_first_chunk::<{ 8 * COLUMNS }>()?;
    if ContentHash::of(path).as_bytes() != path_hash {
        return None;
    }
    let mut counters = [0; COLUMNS];
    for (column, chunk) in counters.iter_mut().zip(columns.chunks_exact(8)) {
        *column = u64::from_be_bytes(chunk.try_into().ok()?);
    }
    let cell = (
        Incarnation(u64::from_be_bytes(*incarnation)),
        Span::from_code(u64::from_be_bytes(*span))?,
        AccountPath::parse(std::str::from_utf8(path).ok()?).ok()?,
        Counters::from_columns(counters),
    );
    let vo = (*vo != [0; 32]).then(|| VoId::from_bytes(*vo));
    Some((vo, cell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_model::Window;

    #[test]
    fn keys_and_rows_round_trip() {
        let path = AccountPath::parse("/P-B1/U-B11").expect("valid");
        let counters = Counters::from_columns([1, 2, 3, 4, u64::MAX, 6]);
        for vo in [None, Some(VoId::from_bytes([9; 32]))] {
            let (incarnation, span) = (Incarnation(5), Span::Window(Window(7)));
            let row = |path| ledger_row(vo, span, &(path, incarnation), counters);
            let (of_path, of_root) = (row(path.clone()), row(AccountPath::root()));
            let (key, value) = (of_path.key, of_path.value.expect("is set"));
            let cell = (incarnation, span, path.clone(), counters);
            assert_eq!(parse_ledger_row(&key, &value), Some((vo, cell)));
            let other = of_root.value.expect("is set");
            assert_eq!(parse_ledger_row(&key, &other), None);
        }
        for (ended, corrected) in [(false, false), (true, false), (true, true)] {
            let mark = JobMark {
                charged_until: WallTime(77),
                ended,
                corrected,
                charge: 5,
                payer: u64::MAX,
            };
            let bytes = mark.to_bytes();
            assert_eq!(JobMark::from_bytes(&bytes), Some(mark));
            assert_eq!(JobMark::from_bytes(&bytes[1..]), None);
        }
        let earlier = [0, 0, 0, 0, 0, 0, 0, 77, 1];
        let mark = JobMark {
            ended: true,
            ..JobMark::at(WallTime(77))
        };
        assert_eq!(JobMark::from_bytes(&earlier), Some(mark));
    }
}
