//! `POST /v1/slurm` and its like: what the loops with a batch system have done, for `/v1/metrics`.
//!
//! They may be processes of their own, and have no port to be scraped at. Invariant: what one loop
//! says replaces what it said before, and leaves the other's word alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::response::IntoResponse;
use fairmesh_schedulers::report::LoopsReport;

use super::State;
use super::answer::LoopsHeard;
use super::error::ApiError;
use super::extract::whole;
use super::text::not_a_record;

/// Largest report: some dozen numbers.
const REPORT_BYTES_MAX: usize = 16 << 10;

/// What was heard of the loops since the node was started, by batch system.
#[derive(Debug, Default)]
pub(crate) struct Loops(Mutex<BTreeMap<&'static str, LoopsReport>>);

impl Loops {
    /// Takes a loop's word.
    fn hear(&self, system: &'static str, report: &LoopsReport) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = heard.entry(system).or_default();
        heard.sync = report.sync.or(heard.sync);
        let lost = heard.feed.map_or(0, |feed| feed.lost);
        heard.feed = report.feed.or(heard.feed);
        // Also when the loop was started again since.
        if let Some(feed) = &mut heard.feed {
            feed.lost = feed.lost.max(lost);
        }
    }

    /// The last word of each.
    pub(crate) fn heard(&self) -> BTreeMap<&'static str, LoopsReport> {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

pub(super) async fn post(
    system: &'static str,
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let idle_max = shared.options.limits.body_idle_max;
    let body = whole(body, REPORT_BYTES_MAX, idle_max).await?;
    let report = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(not_a_record(&error)))?;
    shared.loops.hear(system, &report);
    shared.answer(system, LoopsHeard {}).await
}
