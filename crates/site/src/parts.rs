//! The parts of a site. Handlers borrow those that they may touch; questions read all of them.

use crate::cx::Cx;
use crate::forward::table::Forwarding;
use crate::inbox::Inbox;
use crate::jobs::Jobs;
use crate::own::Own;
use crate::peers::Peers;
use crate::quota::Quotas;
use crate::shares::Shares;
use crate::vos::Vos;

/// What a site consists of.
#[derive(Debug)]
pub struct Parts {
    pub(crate) cx: Cx,
    pub(crate) own: Own,
    pub(crate) vos: Vos,
    pub(crate) shares: Shares,
    pub(crate) jobs: Jobs,
    pub(crate) quotas: Quotas,
    /// Jobs that members pass on to each other.
    pub(crate) forward: Forwarding,
    pub(crate) inbox: Inbox,
    pub(crate) peers: Peers,
}
