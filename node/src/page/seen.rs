//! What one page is made of: the tree at one moment, and what the node reported of itself.

use std::sync::Arc;
use std::time::Instant;

use fairmesh_api::finding::Finding;
use fairmesh_api::{RestsOn, StatusBody};

use super::document::Document;
use crate::control::Moment;

/// What the node said of itself.
pub(super) struct Gathered {
    pub(super) taken: Instant,
    pub(super) rests_on: RestsOn,
    pub(super) status: StatusBody,
    pub(super) documents: Arc<Vec<Document>>,
    /// What documents these are of.
    pub(super) held: Vec<Option<String>>,
}

/// What one page shows.
pub(super) struct Seen {
    pub(super) moment: Moment,
    pub(super) said: Arc<Gathered>,
    /// What the node does not find of itself, because it takes a look at all usage.
    pub(super) namesakes: Option<Finding>,
}
