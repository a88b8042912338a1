//! `POST /v1/slurm`: what the loops with Slurm have done, for `/v1/metrics`.
//!
//! They may be processes of their own, and have no port to be scraped at. Invariant: what one loop
//! says replaces what it said before, and leaves the other's word alone.

use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::response::IntoResponse;

use super::State;
use super::answer::{SlurmHeard, SlurmReport};
use super::error::ApiError;
use super::extract::whole;
use super::rests_on::{answer, rests_on};
use super::text::not_a_record;

/// Largest report: some dozen numbers.
const REPORT_BYTES_MAX: usize = 16 << 10;

/// What was heard of the loops since the node was started.
#[derive(Debug, Default)]
pub(crate) struct SlurmLoops(Mutex<SlurmReport>);

impl SlurmLoops {
    /// Takes a loop's word.
    fn hear(&self, report: &SlurmReport) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.sync = report.sync.or(heard.sync);
        heard.feed = report.feed.or(heard.feed);
    }

    /// The last word of each.
    pub(crate) fn heard(&self) -> SlurmReport {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let idle_max = shared.options.limits.body_idle_max;
    let body = whole(body, REPORT_BYTES_MAX, idle_max).await?;
    let report = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request(not_a_record(&error)))?;
    shared.slurm.hear(&report);
    let rests_on = shared.node().ask(rests_on).await?;
    Ok(answer("slurm", rests_on, SlurmHeard {}))
}
