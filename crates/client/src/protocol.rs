//! The look-up protocol, version 1: what crosses `lookup.sock`.
//!
//! Invariant: these modules do no IO and never panic on input; what they accept is canonical, so
//! a frame has one encoding. They allocate nothing for what they refuse: decoded requests and
//! answers borrow from the bytes received.
//!
//! # Frame
//!
//! A connection is a Unix stream socket. Both directions carry frames:
//!
//! ```text
//! offset 0   4 bytes   length of the body, big-endian, 1 to FRAME_BYTES_MAX (4,194,304)
//! offset 4   length    body: one CBOR map (RFC 8949) in canonical form
//! ```
//!
//! Canonical (section 4.2.1): shortest heads, definite lengths, keys strictly ascending, no floats,
//! no `undefined`, text is UTF-8, nesting at most 16, nothing behind the end. Keys are unsigned
//! integers. A receiver skips keys that it does not know, so a later release may add some. The
//! server answers every request with one frame, in the order of the requests.
//!
//! # Request
//!
//! | key | type | meaning |
//! |---|---|---|
//! | 1 | uint | protocol version, 1 |
//! | 2 | uint | id, chosen by the client, repeated in the answer |
//! | 3 | uint | want: 0 = factors; 1 = factors and handles |
//! | 4 | bytes | name block: whose factors (this, or keys 5 and 6) |
//! | 5 | bytes | handle column: whose factors, by handle |
//! | 6 | uint | generation that the handles are of |
//!
//! **Name block** (all integers big-endian):
//!
//! ```text
//! u32             number of rows, 0 to LOOKUP_BATCH_MAX (65,536)
//! for each row:
//!   u8            mask: 1 user, 2 account, 4 group, 8 subject (one of these at least),
//!                 32 queue or partition, 64 quality of service;
//!                 or 16 alone: an account path
//!   for each bit set in the mask, lowest first:
//!     u16         length of the name in bytes, 1 to 512
//!     bytes       the name, UTF-8; a path begins with `/`
//! ```
//!
//! **Handle column**: one u32, big-endian, for each row; at most LOOKUP_BATCH_MAX rows.
//!
//! A scheduler asks for the same accounts again and again. It asks once by name with want = 1,
//! keeps the handles, and from then on sends four bytes a row. A handle is good on the connection
//! that it came on, and within one generation: when the node's share tree or its identity rules
//! change, the generation changes, requests with the old one get status 4, and the client asks by
//! name again. An empty request (no rows) asks for the view alone.
//!
//! # Answer
//!
//! | key | type | meaning |
//! |---|---|---|
//! | 1 | uint | protocol version, 1 |
//! | 2 | uint | id of the request; 0 if it could not be read |
//! | 3 | uint | status: 0 = answered, otherwise an error (below) |
//! | 4 | map | the view that the factors rest on (status 0 only) |
//! | 5 | bytes | factor column: a u32, big-endian, for each row (status 0 only) |
//! | 6 | bytes | handle column, as long as the factors (status 0 and want 1 only) |
//! | 7 | text | what was wrong, for people (status not 0 only) |
//!
//! A **factor** is 0 to 1,000,000,000: the higher, the sooner the account's jobs should run.
//! 0xffff_ffff stands for an account that is not known here, as factor and as handle. A handle
//! that no row has is unknown too.
//!
//! The **view** is a map:
//!
//! | key | type | meaning |
//! |---|---|---|
//! | 1 | uint | as of: the node's wall clock when the view was taken, Unix milliseconds |
//! | 2 | uint | age of the oldest contributing site's data, milliseconds |
//! | 3 | uint | sites whose usage is known |
//! | 4 | uint | sites that ought to contribute |
//! | 5 | uint | reference window: index of the window that usage is weighed from |
//! | 6 | bytes | digest of the view, 32 bytes: nodes that hold the same view have the same digest |
//! | 7 | uint | flags: 1 a policy has expired; 2 two documents claim one version; 4 a site has signed two heads with one number; 8 no other site can be reached |
//! | 8 | uint | generation of the handles |
//! | 9 | uint | number of the ranking that all factors are of; another one has another number |
//! | 10 | uint | step: how far apart two different factors of that ranking are at the least |
//!
//! All rows of one answer come from one view.
//!
//! # Errors
//!
//! | status | meaning | the connection |
//! |---|---|---|
//! | 1 | malformed or not canonical | is closed |
//! | 2 | version not spoken; the text names those that are | is closed |
//! | 3 | frame longer than FRAME_BYTES_MAX | is closed |
//! | 4 | the handles are of another generation: ask by name | stays |
//! | 5 | too many connections (in all, or of this user) | is closed |
//!
//! The server also closes, without an answer, a connection that leaves a frame half sent, does
//! not read its answers, or is idle for too long. A frame that is cut off by the end of the stream
//! was never a request. A client may send several requests before it reads the answers, but the
//! server does not read on while an answer does not fit in the socket: keep the answers waited for
//! below [`PIPELINE_BYTES_MAX`] (1,024 bytes for each, and its columns), or read while writing.
//!
//! # Example
//!
//! "The factor of user `alice` in account `physics`", id 7:
//!
//! ```text
//! 00 00 00 1e                         length of the body: 30
//! a4                                  map of 4
//!   01 01                             version 1
//!   02 07                             id 7
//!   03 00                             want factors
//!   04 55                             name block of 21 bytes
//!     00 00 00 01                     one row
//!     03                              user and account
//!     00 05 61 6c 69 63 65            "alice"
//!     00 07 70 68 79 73 69 63 73      "physics"
//! ```
//!
//! The answer, if the factor is 750,000,000:
//!
//! ```text
//! 00 00 00 56                         length of the body: 86
//! a5                                  map of 5
//!   01 01                             version 1
//!   02 07                             id 7
//!   03 00                             answered
//!   04 aa                             the view, a map of 10
//!     01 1b 00 00 01 93 4a 6d 8c 00   as of 1,732,120,513,536 ms
//!     02 19 11 94                     the oldest data are 4,500 ms old
//!     03 02                           2 sites whose usage is known
//!     04 03                           of 3
//!     05 1a 00 07 57 b0               window 481,200
//!     06 58 20 d1 (32 times)          digest
//!     07 00                           nothing to warn of
//!     08 05                           generation 5
//!     09 07                           ranking 7
//!     0a 1a 0e e6 b2 80               factors differ by 250,000,000 or more
//!   05 44 2c b4 17 80                 one factor
//! ```
//!
//! The test `the_documented_examples` holds these bytes against the code.

mod answer;
mod error;
mod names;
mod request;
mod wire;

pub use answer::{Answer, Reply, Status, View, decode_reply, encode_answer, encode_error};
pub use error::ProtocolError;
pub use names::{NameBlock, NameBlockBuf, Names, Row, Who};
pub use request::{Accounts, HandleColumn, Request, Want, decode_request, encode_request};
pub use wire::split_frame;

/// The version that this module speaks.
pub const PROTOCOL_VERSION: u64 = 1;

/// Longest frame body. Bounds the buffer of a connection. A full batch has 64 bytes a row, where a
/// user and an account together take about 20; batches of long certificate subjects are split.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// Most rows in one request. Bounds how long one request can keep a thread of the node (some ten
/// milliseconds); a large cluster has some ten thousand (user, account) pairs.
pub const LOOKUP_BATCH_MAX: usize = 65_536;

/// Rows that fit in one frame whatever they name: six names, each as long as names may be. Where users choose names, who
/// asks for more at once may ask for nothing.
pub const ROWS_OF_ANY_NAMES: usize = 1_350;

/// Most bytes of answers that a client should leave unread. Linux gives a Unix socket 208 KiB by
/// default; when a server cannot write its answer it reads no more, and both sides would wait.
pub const PIPELINE_BYTES_MAX: usize = 64 << 10;

/// The highest factor.
pub const FACTOR_MAX: u32 = 1_000_000_000;

/// Stands for "not known here" in the factor and handle columns.
pub const UNKNOWN: u32 = u32::MAX;

/// Longest text of an error, in bytes.
pub const ERROR_TEXT_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests;
