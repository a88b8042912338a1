//! One blocking look-up of any number of names, on a connection of its own.
//!
//! Invariant: all names are answered for, or none: the factors are handed out at the end. It takes no
//! longer than a timeout, and two for each [`ROWS_OF_ANY_NAMES`] names.
//!
//! Deliberately not here: keeping anything for the next call. A scheduler that asks every second
//! wants a [`crate::refresh::FreshTable`].

use std::path::Path;
use std::time::Duration;

use fairmesh_client::{Client, ClientError, Names, ROWS_OF_ANY_NAMES, Who};

use crate::refresh::raw_factors;

/// The factors of names, in their order;
/// [`fairmesh_client::protocol::UNKNOWN`] where the node knows no such account.
pub fn look_up(
    socket: &Path,
    names: &[Names<'_>],
    timeout: Duration,
) -> Result<Vec<u32>, ClientError> {
    let mut client = Client::connect(socket, timeout)?;
    let mut factors = Vec::with_capacity(names.len());
    for chunk in names.chunks(ROWS_OF_ANY_NAMES) {
        let accounts: Vec<_> = chunk.iter().map(|name| Who::Names(*name)).collect();
        let before = factors.len();
        factors.extend(raw_factors(&client.lookup(&accounts)?));
        // The protocol holds an answer to be whole, but not to be of the length that was asked for.
        factors.resize(before + chunk.len(), fairmesh_client::protocol::UNKNOWN);
    }
    Ok(factors)
}
