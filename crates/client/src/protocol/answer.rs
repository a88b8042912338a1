//! Answers: the view, and a factor for each row.
//!
//! Invariant: the columns of a decoded [`Answer`] are equally long, and every factor in it is
//! within [`FACTOR_MAX`] or [`UNKNOWN`]. An [`Answer`] borrows the frame that it came in.

use fairmesh_model::{ContentHash, Millis, WallTime, Window};

use super::request::u32_of;
use super::wire::{
    Map, begin_frame, end_frame, push_bytes_head, push_map, push_map_head, push_text, push_uint,
};
use super::{
    ERROR_TEXT_BYTES_MAX, FACTOR_MAX, LOOKUP_BATCH_MAX, PROTOCOL_VERSION, ProtocolError, UNKNOWN,
};

/// What the factors of an answer rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The node's wall clock when the view was taken.
    pub as_of: WallTime,
    /// Age of the oldest contributing site's data.
    pub age: Millis,
    /// Member sites whose usage the node knows.
    pub sites_known: u32,
    /// Sites that ought to contribute.
    pub sites_total: u32,
    /// The window that usage is weighed from.
    pub reference_window: Window,
    /// Equal for nodes that hold the same view.
    pub digest: ContentHash,
    /// What the reader should be warned of: the constants of this type, added up.
    pub flags: u64,
    /// Changes whenever a handle may have come to mean something else.
    pub generation: u64,
    /// The ranking that all factors are of: another one has another number.
    pub ranking: u64,
    /// How far apart two different factors of that ranking are at the least; 0 where the node does not say.
    pub step: u32,
}

impl View {
    /// A policy has expired and is still in force.
    pub const POLICY_EXPIRED: u64 = 1;
    /// Two valid documents claim one version.
    pub const DOCUMENT_CONFLICT: u64 = 2;
    /// A site has signed two heads with one number.
    pub const SITE_FORKED: u64 = 4;
    /// No other site can be reached.
    pub const ALONE: u64 = 8;
    /// A VO's snapshot has expired, is missing, or names documents that are not here.
    pub const UNVOUCHED: u64 = 16;
}

/// Why a request got no factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Malformed or not canonical.
    Malformed,
    /// The version is not spoken.
    Version,
    /// The frame is too long.
    TooLarge,
    /// The handles are of another generation: ask by name.
    StaleHandles,
    /// Too many connections, in all or of this user.
    Busy,
    /// A status that a later release may have added.
    Other(u64),
}

impl Status {
    /// The number on the wire.
    pub const fn code(self) -> u64 {
        match self {
            Self::Malformed => 1,
            Self::Version => 2,
            Self::TooLarge => 3,
            Self::StaleHandles => 4,
            Self::Busy => 5,
            Self::Other(code) => code,
        }
    }

    /// Whether the server closes the connection behind it.
    pub const fn closes(self) -> bool {
        !matches!(self, Self::StaleHandles)
    }

    const fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Malformed,
            2 => Self::Version,
            3 => Self::TooLarge,
            4 => Self::StaleHandles,
            5 => Self::Busy,
            _ => Self::Other(code),
        }
    }
}

impl From<&ProtocolError> for Status {
    fn from(error: &ProtocolError) -> Self {
        match error {
            ProtocolError::FrameTooLarge(_) => Self::TooLarge,
            ProtocolError::Version(_) => Self::Version,
            _ => Self::Malformed,
        }
    }
}

/// Factors, row by row, and the view that they rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Generation, age and freshness of the view that the factors are from.
    pub view: View,
    factors: &'a [u8],
    handles: Option<&'a [u8]>,
}

impl<'a> Answer<'a> {
    /// Number of rows.
    pub const fn len(&self) -> usize {
        self.factors.len() / 4
    }

    /// Whether there are no rows.
    pub const fn is_empty(&self) -> bool {
        self.factors.is_empty()
    }

    /// The factor of one row, 0 to [`FACTOR_MAX`]; `None` if the account is not known to the node
    /// or there is no such row.
    pub fn factor(&self, row: usize) -> Option<u32> {
        let at = row.checked_mul(4)?;
        known(u32_of(self.factors.get(at..at.checked_add(4)?)?))
    }

    /// The factors of all rows, `None` where the account is not known to the node.
    pub fn factors(&self) -> impl ExactSizeIterator<Item = Option<u32>> + use<'a> {
        self.factors.chunks_exact(4).map(|row| known(u32_of(row)))
    }

    /// The handle column, if it was asked for.
    pub const fn handles(&self) -> Option<&'a [u8]> {
        self.handles
    }
}

/// A decoded answer frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The id of the request; 0 if the server could not read it.
    pub id: u64,
    /// Factors, or the reason why not.
    pub outcome: Result<Answer<'a>, (Status, &'a str)>,
}

/// Appends an answer frame. `entries` are the rows ([`UNKNOWN`] where nobody is known by that
/// name), also sent as handles if `with_handles`; `factor` gives each known row's factor.
pub fn encode_answer(
    out: &mut Vec<u8>,
    id: u64,
    view: &View,
    entries: &[u32],
    with_handles: bool,
    factor: impl Fn(u32) -> Option<u32>,
) -> Result<(), ProtocolError> {
    let start = begin_frame(out);
    push_map(out, if with_handles { 6 } else { 5 });
    push_uint(out, 1, PROTOCOL_VERSION);
    push_uint(out, 2, id);
    push_uint(out, 3, 0);
    push_view(out, 4, view);
    push_bytes_head(out, 5, entries.len() * 4);
    push_column(out, entries, |entry| match entry {
        UNKNOWN => UNKNOWN,
        entry => factor(entry).map_or(UNKNOWN, |factor| factor.min(FACTOR_MAX)),
    });
    if with_handles {
        push_bytes_head(out, 6, entries.len() * 4);
        push_column(out, entries, |entry| entry);
    }
    end_frame(out, start)
}

fn push_column(out: &mut Vec<u8>, entries: &[u32], number: impl Fn(u32) -> u32) {
    let start = out.len();
    out.resize(start + entries.len() * 4, 0);
    for (row, entry) in out[start..].chunks_exact_mut(4).zip(entries) {
        row.copy_from_slice(&number(*entry).to_be_bytes());
    }
}

/// Appends an error frame. Text beyond [`ERROR_TEXT_BYTES_MAX`] is cut.
pub fn encode_error(out: &mut Vec<u8>, id: u64, status: Status, text: &str) {
    let start = begin_frame(out);
    push_map(out, 4);
    push_uint(out, 1, PROTOCOL_VERSION);
    push_uint(out, 2, id);
    push_uint(out, 3, status.code());
    let end = (0..=text.len().min(ERROR_TEXT_BYTES_MAX))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    push_text(out, 7, &text[..end]);
    end_frame(out, start).expect("an error is far smaller than a frame may be");
}

/// Decodes the body of an answer frame.
pub fn decode_reply(body: &[u8]) -> Result<Reply<'_>, ProtocolError> {
    let mut map = Map::of_body(body, "answer")?;
    let (mut version, mut id, mut status, mut view) = (None, None, None, None);
    let (mut factors, mut handles, mut text) = (None, None, "");
    while let Some(key) = map.next_key()? {
        match key {
            1 => version = Some(map.uint("version")?),
            2 => id = Some(map.uint("id")?),
            3 => status = Some(map.uint("status")?),
            4 => view = Some(map.map("view", read_view)?),
            5 => factors = Some(map.bytes("factor column")?),
            6 => handles = Some(map.bytes("handle column")?),
            7 => text = map.text("error text")?,
            _ => map.skip()?,
        }
    }
    map.end()?;
    match version.ok_or(ProtocolError::Missing("version"))? {
        PROTOCOL_VERSION => {}
        version => return Err(ProtocolError::Version(version)),
    }
    let id = id.ok_or(ProtocolError::Missing("id"))?;
    let outcome = match status.ok_or(ProtocolError::Missing("status"))? {
        0 => Ok(checked_answer(view, factors, handles)?),
        code => Err((Status::from_code(code), text)),
    };
    Ok(Reply { id, outcome })
}

fn checked_answer<'a>(
    view: Option<View>,
    factors: Option<&'a [u8]>,
    handles: Option<&'a [u8]>,
) -> Result<Answer<'a>, ProtocolError> {
    let view = view.ok_or(ProtocolError::Missing("view"))?;
    let factors = factors.ok_or(ProtocolError::Missing("factor column"))?;
    let good = |row: &[u8]| matches!(u32_of(row), 0..=FACTOR_MAX | UNKNOWN);
    if !factors.len().is_multiple_of(4) || !factors.chunks_exact(4).all(good) {
        return Err(ProtocolError::Value("factor column"));
    }
    if factors.len() / 4 > LOOKUP_BATCH_MAX {
        return Err(ProtocolError::TooManyRows(factors.len() / 4));
    }
    if handles.is_some_and(|handles| handles.len() != factors.len()) {
        return Err(ProtocolError::Value("handle column"));
    }
    Ok(Answer {
        view,
        factors,
        handles,
    })
}

fn push_view(out: &mut Vec<u8>, key: u64, view: &View) {
    push_map_head(out, key, 10);
    push_uint(out, 1, view.as_of.0);
    push_uint(out, 2, view.age.0);
    push_uint(out, 3, u64::from(view.sites_known));
    push_uint(out, 4, u64::from(view.sites_total));
    push_uint(out, 5, u64::from(view.reference_window.0));
    push_bytes_head(out, 6, 32);
    out.extend_from_slice(view.digest.as_bytes());
    push_uint(out, 7, view.flags);
    push_uint(out, 8, view.generation);
    push_uint(out, 9, view.ranking);
    push_uint(out, 10, u64::from(view.step));
}

fn read_view(map: &mut Map<'_>) -> Result<View, ProtocolError> {
    let mut numbers = [None; 11];
    let mut digest = None;
    while let Some(key) = map.next_key()? {
        match key {
            6 => {
                let bytes = map.bytes("digest")?;
                let bytes = bytes
                    .try_into()
                    .map_err(|_| ProtocolError::Value("digest"))?;
                digest = Some(ContentHash::from_bytes(bytes));
            }
            1..=10 => {
                let slot = usize::try_from(key).map_err(|_| ProtocolError::Value("view"))?;
                numbers[slot] = Some(map.uint("view")?);
            }
            _ => map.skip()?,
        }
    }
    let number = |key: usize| numbers[key].ok_or(ProtocolError::Missing("a number of the view"));
    let small =
        |key| number(key).and_then(|n| u32::try_from(n).map_err(|_| ProtocolError::Value("view")));
    Ok(View {
        as_of: WallTime(number(1)?),
        age: Millis(number(2)?),
        sites_known: small(3)?,
        sites_total: small(4)?,
        reference_window: Window(small(5)?),
        digest: digest.ok_or(ProtocolError::Missing("digest"))?,
        flags: number(7)?,
        generation: number(8)?,
        // Earlier nodes have none.
        ranking: numbers[9].unwrap_or(0),
        step: match numbers[10] {
            Some(_) => small(10)?,
            None => 0,
        },
    })
}

const fn known(number: u32) -> Option<u32> {
    match number {
        UNKNOWN => None,
        number => Some(number),
    }
}
