//! The parts of a site. Handlers borrow those that they may touch; questions read all of them.

pub(crate) use crate::cx::Cx;
pub(crate) use crate::forward::table::Forwarding;
pub(crate) use crate::inbox::Inbox;
pub(crate) use crate::jobs::Jobs;
pub(crate) use crate::own::Own;
pub(crate) use crate::peers::Peers;
pub(crate) use crate::quota::Quotas;
pub(crate) use crate::shares::Shares;
pub(crate) use crate::vos::Vos;

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
