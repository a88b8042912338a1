//! Name blocks: whose factors, in names, packed.
//!
//! Invariant: the number of rows of a [`NameBlock`] is within bounds; the rows themselves are
//! checked as they are read ([`NameBlock::rows`]), in one pass, and nothing that is read is copied.
//! A set of rows has one block. The layout is in the documentation of the module above.
//!
//! Deliberately not here: whether anybody is known by a name.

use fairmesh_model::path::PATH_BYTES_MAX;
use fairmesh_model::record::NAME_BYTES_MAX;

use super::{LOOKUP_BATCH_MAX, ProtocolError};

const PATH_MASK: u8 = 16;

/// Bit and place of each name in a row, lowest first: user, account, group, subject, queue, quality of service. A
/// queue or a quality of service alone is nobody.
const NAME_BITS: [u8; 6] = [1, 2, 4, 8, 32, 64];

/// The names of which one is given at least.
const WHOSE_MASK: u8 = 15;

/// Bytes of the number of rows at the start of a name block.
const COUNT_BYTES: usize = 4;

/// Names in the words of the local batch system. A user, an account, a group or a subject is given at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Names<'a> {
    /// Local user name.
    pub user: Option<&'a str>,
    /// Batch account or project.
    pub account: Option<&'a str>,
    /// Local group name.
    pub group: Option<&'a str>,
    /// Grid identity: a certificate subject or a token's subject.
    pub subject: Option<&'a str>,
    /// Queue or partition of the job, where it is known.
    pub queue: Option<&'a str>,
    /// Quality of service of the job, where it is known.
    pub qos: Option<&'a str>,
}

impl<'a> Names<'a> {
    fn all(&self) -> [Option<&'a str>; 6] {
        let Self {
            user,
            account,
            group,
            subject,
            queue,
            qos,
        } = *self;
        [user, account, group, subject, queue, qos]
    }
}

/// Whether a row of names may have this mask.
const fn is_of_names(mask: u8) -> bool {
    mask & WHOSE_MASK != 0 && mask & PATH_MASK == 0 && mask < 128
}

/// Whose factor is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who<'a> {
    /// An account path of the node's share tree, such as `/P-B1/U-B11`.
    Path(&'a str),
    /// Names that the node's identity rules map to a path.
    Names(Names<'a>),
}

impl<'a> Who<'a> {
    /// A user who submits under an account.
    pub const fn user_account(user: &'a str, account: &'a str) -> Self {
        Self::Names(Names {
            user: Some(user),
            account: Some(account),
            group: None,
            subject: None,
            queue: None,
            qos: None,
        })
    }
}

/// Packed names. The number of rows is checked; the rows are checked as they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameBlock<'a> {
    rows: usize,
    /// Count and rows, as they lie in the frame.
    block: &'a [u8],
}

impl<'a> NameBlock<'a> {
    /// Takes a block; refuses a number of rows that cannot be.
    pub fn new(block: &'a [u8]) -> Result<Self, ProtocolError> {
        let (count, body) = block
            .split_first_chunk::<COUNT_BYTES>()
            .ok_or(ProtocolError::Value("name block"))?;
        let rows = usize::try_from(u32::from_be_bytes(*count)).unwrap_or(usize::MAX);
        if rows > LOOKUP_BATCH_MAX {
            Err(ProtocolError::TooManyRows(rows))
        } else if rows > body.len() || (rows == 0 && !body.is_empty()) {
            Err(ProtocolError::Value("name block"))
        } else {
            Ok(Self { rows, block })
        }
    }

    /// The block as it lies in a frame.
    pub(super) const fn as_bytes(&self) -> &'a [u8] {
        self.block
    }

    /// How many rows it says to have.
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The rows, up to the first that is malformed. Bytes behind the last row make it malformed.
    pub fn rows(&self) -> impl Iterator<Item = Result<Who<'a>, ProtocolError>> + use<'a> {
        let mut failed = false;
        let sent = self.rows_as_sent().enumerate();
        sent.map_while(move |(row, sent)| {
            if failed {
                return None;
            }
            let read = |sent: Row<'a>| {
                let who = sent.who();
                who.map_err(|what| ProtocolError::Row { row, what })
            };
            let who = sent.and_then(read);
            failed = who.is_err();
            Some(who)
        })
    }

    /// As [`NameBlock::rows`], each as its bytes lie in the frame: taken apart, and not read.
    #[inline]
    pub fn rows_as_sent(&self) -> impl Iterator<Item = Result<Row<'a>, ProtocolError>> + use<'a> {
        let (rows, mut rest) = (self.rows, &self.block[COUNT_BYTES..]);
        let mut failed = false;
        (0..rows).map_while(move |row| {
            if failed {
                return None;
            }
            let sent = Row::take(&mut rest).and_then(|sent| {
                let last = row + 1 == rows;
                if last && !rest.is_empty() {
                    Err("bytes behind the last row")
                } else {
                    Ok(sent)
                }
            });
            failed = sent.is_err();
            Some(sent.map_err(|what| ProtocolError::Row { row, what }))
        })
    }
}

/// A row as it lies in a frame: a mask, and as many names as it says, each with a length within its bounds.
///
/// Two rows of the same bytes are the same names, so what a row came to can be kept by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a>(&'a [u8]);

impl<'a> Row<'a> {
    /// The encoded row, as it is in the frame.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Reads it; an error is a word on what is wrong.
    pub fn who(&self) -> Result<Who<'a>, &'static str> {
        let mut rest = self.0;
        take_who(&mut rest)
    }

    #[inline]
    fn take(rest: &mut &'a [u8]) -> Result<Self, &'static str> {
        let whole = *rest;
        let (&mask, mut behind) = whole.split_first().ok_or("cut off")?;
        let (names, bytes_max) = match mask {
            PATH_MASK => (1, PATH_BYTES_MAX),
            mask if is_of_names(mask) => (mask.count_ones(), NAME_BYTES_MAX),
            _ => return Err("unknown mask"),
        };
        for _ in 0..names {
            take_bytes(&mut behind, bytes_max)?;
        }
        *rest = behind;
        Ok(Self(&whole[..whole.len() - behind.len()]))
    }
}

/// A name block in the making; keeps its memory when it is cleared.
#[derive(Debug, Clone)]
pub struct NameBlockBuf {
    rows: usize,
    block: Vec<u8>,
}

impl NameBlockBuf {
    /// A block without rows.
    pub fn new() -> Self {
        Self {
            rows: 0,
            block: vec![0; COUNT_BYTES],
        }
    }

    /// The block of `accounts`.
    pub fn of(accounts: &[Who<'_>]) -> Result<Self, ProtocolError> {
        let mut block = Self::new();
        block.extend(accounts)?;
        Ok(block)
    }

    /// Takes all rows away.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.block.clear();
        self.block.resize(COUNT_BYTES, 0);
    }

    /// Appends rows, up to the first that cannot be sent.
    pub fn extend(&mut self, accounts: &[Who<'_>]) -> Result<(), ProtocolError> {
        accounts.iter().try_for_each(|who| self.push(who))
    }

    /// Appends a row. On an error the block is as it was.
    pub fn push(&mut self, who: &Who<'_>) -> Result<(), ProtocolError> {
        let (row, start) = (self.rows, self.block.len());
        let count = u32::try_from(row + 1).unwrap_or(u32::MAX);
        if row >= LOOKUP_BATCH_MAX {
            return Err(ProtocolError::TooManyRows(row + 1));
        }
        let pushed = match who {
            Who::Path(path) => push_path(&mut self.block, path),
            Who::Names(names) => push_names(&mut self.block, names),
        };
        pushed.map_err(|what| {
            self.block.truncate(start);
            ProtocolError::Row { row, what }
        })?;
        self.rows += 1;
        self.block[..COUNT_BYTES].copy_from_slice(&count.to_be_bytes());
        Ok(())
    }

    /// The block so far.
    pub fn as_block(&self) -> NameBlock<'_> {
        NameBlock {
            rows: self.rows,
            block: &self.block,
        }
    }
}

impl Default for NameBlockBuf {
    fn default() -> Self {
        Self::new()
    }
}

fn push_path(block: &mut Vec<u8>, path: &str) -> Result<(), &'static str> {
    block.push(PATH_MASK);
    push_name(block, path, PATH_BYTES_MAX)?;
    absolute(path)
}

fn push_names(block: &mut Vec<u8>, names: &Names<'_>) -> Result<(), &'static str> {
    let columns = names.all();
    let given = columns.iter().zip(NAME_BITS);
    let given = given.filter_map(|(name, bit)| name.is_some().then_some(bit));
    let mask = given.fold(0, |mask, bit| mask | bit);
    if !is_of_names(mask) {
        return Err("it names nobody");
    }
    block.push(mask);
    columns
        .into_iter()
        .flatten()
        .try_for_each(|name| push_name(block, name, NAME_BYTES_MAX))
}

fn push_name(block: &mut Vec<u8>, name: &str, bytes_max: usize) -> Result<(), &'static str> {
    let length = u16::try_from(name.len()).map_err(|_| "a name is too long")?;
    in_bounds(name.len(), bytes_max)?;
    block.extend_from_slice(&length.to_be_bytes());
    block.extend_from_slice(name.as_bytes());
    Ok(())
}

fn take_who<'a>(rest: &mut &'a [u8]) -> Result<Who<'a>, &'static str> {
    let (&mask, behind) = rest.split_first().ok_or("cut off")?;
    *rest = behind;
    match mask {
        PATH_MASK => {
            let path = take_name(rest, PATH_BYTES_MAX)?;
            absolute(path).map(|()| Who::Path(path))
        }
        mask if is_of_names(mask) => {
            let mut name = |bit: u8| {
                (mask & bit != 0)
                    .then(|| take_name(rest, NAME_BYTES_MAX))
                    .transpose()
            };
            Ok(Who::Names(Names {
                user: name(1)?,
                account: name(2)?,
                group: name(4)?,
                subject: name(8)?,
                queue: name(32)?,
                qos: name(64)?,
            }))
        }
        _ => Err("unknown mask"),
    }
}

#[inline]
fn take_name<'a>(rest: &mut &'a [u8], bytes_max: usize) -> Result<&'a str, &'static str> {
    std::str::from_utf8(take_bytes(rest, bytes_max)?).map_err(|_| "a name is not UTF-8")
}

#[inline]
fn take_bytes<'a>(rest: &mut &'a [u8], bytes_max: usize) -> Result<&'a [u8], &'static str> {
    let (length, behind) = rest.split_first_chunk::<2>().ok_or("cut off")?;
    let length = usize::from(u16::from_be_bytes(*length));
    in_bounds(length, bytes_max)?;
    let (name, behind) = behind.split_at_checked(length).ok_or("cut off")?;
    *rest = behind;
    Ok(name)
}

#[inline]
fn in_bounds(length: usize, bytes_max: usize) -> Result<(), &'static str> {
    match length {
        0 => Err("a name is empty"),
        _ if length > bytes_max => Err("a name is too long"),
        _ => Ok(()),
    }
}

#[inline]
fn absolute(path: &str) -> Result<(), &'static str> {
    if path.starts_with('/') {
        Ok(())
    } else {
        Err("a path does not begin with `/`")
    }
}
