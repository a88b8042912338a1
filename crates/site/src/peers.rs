//! The part of a site that concerns other nodes: the anti-entropy, and who may speak.

use std::collections::VecDeque;

use fairmesh_gossip::Gossip;
use fairmesh_model::SiteId;

use crate::advert::confirm::Confirms;

/// What a site knows of other nodes.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) gossip: Gossip,
    /// Sites that called while a VO has no charter here: only the charter says which of them are members.
    pub(crate) callers: VecDeque<SiteId>,
    /// Whether the list of sites that may speak is to be announced again.
    pub(crate) are_stale: bool,
    /// Calls that wait for what other sites answer about their free CPUs.
    pub(crate) confirms: Confirms,
}
