//! `POST /v1/records` and `POST /v1/running`: what feeds report, one JSON object a line.
//!
//! Records are taken in batches while the body still comes. Invariant: a bad line is refused with
//! its number and reason and stops nothing; what the answer says was counted is durable. If the body
//! breaks off, what was read stays counted, and sending it again counts nothing twice.
//! The list of running jobs replaces the one before, so it is taken whole or not at all.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use fairmesh_model::{RunningJob, UsageRecord};
use fairmesh_records::BatchRecord;

use super::error::ApiError;
use super::feed::Feed;
use super::lines::LINE_BYTES_MAX;
use super::{Shared, State, log};
use crate::record_log::Run;

/// Records handed to the site at once: one durable write each, so enough to share its cost, and few
/// enough that the driver is soon free again.
const REPORT_RECORDS: usize = 500;

/// Records logged at once: the more, the fewer pages of the log's indexes are written for each.
const BATCH_RECORDS: usize = 4 * REPORT_RECORDS;

/// Most running jobs of a site: bounds the memory of one request. The largest machines run some
/// tens of thousands.
const RUNNING_MAX: usize = 500_000;

pub(super) async fn post_records(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let mut feed = Feed::new(&shared, body, LINE_BYTES_MAX);
    while let Some(records) = feed.next(BATCH_RECORDS).await? {
        hand_over(&shared, &mut feed, records).await?;
    }
    shared.answer("report", feed.into_report()).await
}

pub(super) async fn post_running(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let mut feed = Feed::<RunningJob>::new(&shared, body, LINE_BYTES_MAX);
    let mut jobs = Vec::new();
    while let Some(more) = feed.next(RUNNING_MAX + 1).await? {
        jobs.extend(more);
        if jobs.len() > RUNNING_MAX {
            let error = format!("more than {RUNNING_MAX} running jobs; nothing was changed");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error));
        }
    }
    let rule = shared.charge_rule();
    let (numbers, jobs): (Vec<u64>, Vec<_>) = jobs
        .into_iter()
        .map(|(number, job)| {
            let record = rule.reported(job.record);
            (number, RunningJob { record, ..job })
        })
        .unzip();
    let reported = shared.node().running(jobs).await?;
    feed.add(&reported, &numbers);
    shared.answer("report", feed.into_report()).await
}

async fn hand_over(
    shared: &Shared,
    feed: &mut Feed<UsageRecord>,
    records: Vec<(u64, UsageRecord)>,
) -> Result<(), ApiError> {
    let records = log::settle_keys(shared, records, |(_, record)| {
        Some(Run {
            key: &mut record.key,
            label: None,
            start: record.start,
        })
    });
    let records = records.await?;
    let (numbers, records): (Vec<u64>, Vec<UsageRecord>) = records.into_iter().unzip();
    let again = shared.node().counts_again(&records).await?;
    let said = records.iter().map(BatchRecord::of_usage).enumerate();
    let said = said.map(|(index, record)| (record, again.get(&index).copied()));
    let said = said.collect();
    let rule = shared.charge_rule();
    let counted = async {
        let mut records = records.into_iter().map(|record| rule.reported(record));
        for numbers in numbers.chunks(REPORT_RECORDS) {
            let part = records.by_ref().take(numbers.len()).collect();
            feed.add(&shared.node().report(part).await?, numbers);
        }
        Ok::<_, ApiError>(())
    };
    // Usage counts whether or not it can be logged: priorities do not wait for the books.
    let (logged, counted) = tokio::join!(log::keep(shared, said, false), counted);
    if let Err(error) = logged {
        tracing::warn!(%error, "what was reported is not in the record log");
    }
    counted
}
