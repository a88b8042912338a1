//! Numbers by which a driver knows its callers and its peers' messages again.

/// Names a caller that waits for a reply.
pub type Ticket = u64;

/// Names a pushed message until it has been judged.
pub type PushToken = u64;

/// Names a peer's request until it has been answered.
pub type Channel = u64;
