//! The data of one page: the tree at one moment, and the node's report about itself.

use std::sync::Arc;
use std::time::Instant;

use fairmesh_api::finding::Finding;
use fairmesh_api::{RestsOn, StatusBody};

use super::document::Document;
use crate::control::Moment;

/// The node's report about itself, shared by all pages of a short time.
pub(super) struct Gathered {
    pub(super) taken: Instant,
    pub(super) rests_on: RestsOn,
    pub(super) status: StatusBody,
    pub(super) documents: Arc<Vec<Document>>,
    /// The documents of `documents`, to see whether they have changed.
    pub(super) held: Vec<Option<String>>,
}

/// The data that one page shows.
pub(super) struct PageData {
    pub(super) moment: Moment,
    pub(super) said: Arc<Gathered>,
    /// A finding about users with one name, which needs all usage and so is not made by the node itself.
    pub(super) namesakes: Option<Finding>,
}
