//! Requests: whose factors, by name or by handle.
//!
//! Invariant: a decoded [`Request`] has exactly one kind of accounts and a known version. The rows
//! of its name block are still to be checked, as they are read (`names`). The layout is in the
//! documentation of the module above.
//!
//! Deliberately not here: whether anybody knows the account.

use super::wire::{Map, begin_frame, end_frame, push_bytes_head, push_map, push_uint};
use super::{LOOKUP_BATCH_MAX, NameBlock, PROTOCOL_VERSION, ProtocolError};

/// What the client wants beside the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// A factor for each account.
    Factors,
    /// Factors, and the handles to ask by from now on.
    FactorsAndHandles,
}

/// A decoded request; it borrows from the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Chosen by the client.
    pub id: u64,
    /// What each row of the answer contains.
    pub want: Want,
    /// The accounts asked about, in the order of the answer.
    pub accounts: Accounts<'a>,
}

/// The rows of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accounts<'a> {
    /// Accounts by their names, resolved for each request.
    Names(NameBlock<'a>),
    /// Accounts by handles of an earlier answer, without a look-up by name.
    Handles {
        /// The generation that the handles are of.
        generation: u64,
        /// The handles, four bytes each.
        handles: HandleColumn<'a>,
    },
}

/// Packed handles: four bytes each, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleColumn<'a>(&'a [u8]);

impl<'a> HandleColumn<'a> {
    /// Takes a column; refuses one that is no whole number of handles, or too many.
    pub fn new(column: &'a [u8]) -> Result<Self, ProtocolError> {
        if !column.len().is_multiple_of(4) {
            Err(ProtocolError::Value("handle column"))
        } else if column.len() / 4 > LOOKUP_BATCH_MAX {
            Err(ProtocolError::TooManyRows(column.len() / 4))
        } else {
            Ok(Self(column))
        }
    }

    /// The handles in the order of the request.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.0.chunks_exact(4).map(u32_of)
    }
}

/// The four bytes of a column's row as a number.
pub(super) fn u32_of(row: &[u8]) -> u32 {
    row.iter()
        .fold(0, |value, byte| (value << 8) | u32::from(*byte))
}

/// Appends a request frame to `out`. On an error `out` is as it was.
pub fn encode_request(out: &mut Vec<u8>, request: &Request<'_>) -> Result<(), ProtocolError> {
    let start = begin_frame(out);
    let by_handle = matches!(request.accounts, Accounts::Handles { .. });
    push_map(out, if by_handle { 5 } else { 4 });
    push_uint(out, 1, PROTOCOL_VERSION);
    push_uint(out, 2, request.id);
    push_uint(out, 3, u64::from(request.want == Want::FactorsAndHandles));
    match request.accounts {
        Accounts::Names(names) => {
            push_bytes_head(out, 4, names.as_bytes().len());
            out.extend_from_slice(names.as_bytes());
        }
        Accounts::Handles {
            generation,
            handles,
        } => {
            push_bytes_head(out, 5, handles.0.len());
            out.extend_from_slice(handles.0);
            push_uint(out, 6, generation);
        }
    }
    end_frame(out, start)
}

/// Decodes the body of a request frame. With the error comes the id, or 0 if it was not reached.
pub fn decode_request(body: &[u8]) -> Result<Request<'_>, (u64, ProtocolError)> {
    let mut id = 0;
    read_request(body, &mut id).map_err(|error| (id, error))
}

fn read_request<'a>(body: &'a [u8], id_out: &mut u64) -> Result<Request<'a>, ProtocolError> {
    let mut map = Map::of_body(body, "request")?;
    let (mut version, mut id, mut want) = (None, None, None);
    let (mut names, mut handles, mut generation) = (None, None, None);
    while let Some(key) = map.next_key()? {
        match key {
            1 => version = Some(map.uint("version")?),
            2 => {
                *id_out = map.uint("id")?;
                id = Some(*id_out);
            }
            3 => want = Some(map.uint("want")?),
            4 => names = Some(map.bytes("name block")?),
            5 => handles = Some(map.bytes("handle column")?),
            6 => generation = Some(map.uint("generation")?),
            _ => map.skip()?,
        }
        // Another version may give the other keys another meaning; its id has the same.
        if let (Some(version), Some(_)) = (version, id)
            && version != PROTOCOL_VERSION
        {
            return Err(ProtocolError::Version(version));
        }
    }
    map.end()?;
    match version {
        Some(PROTOCOL_VERSION) => {}
        Some(version) => return Err(ProtocolError::Version(version)),
        None => return Err(ProtocolError::Missing("version")),
    }
    let want = match want.ok_or(ProtocolError::Missing("want"))? {
        0 => Want::Factors,
        1 => Want::FactorsAndHandles,
        _ => return Err(ProtocolError::Value("want")),
    };
    let accounts = match (names, handles, generation) {
        (Some(block), None, None) => Accounts::Names(NameBlock::new(block)?),
        (None, Some(column), Some(generation)) => Accounts::Handles {
            generation,
            handles: HandleColumn::new(column)?,
        },
        _ => {
            return Err(ProtocolError::Missing(
                "name block, or handles and generation,",
            ));
        }
    };
    let id = id.ok_or(ProtocolError::Missing("id"))?;
    Ok(Request { id, want, accounts })
}
