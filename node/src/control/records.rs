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
use super::{Shared, State, log, refused};
use crate::record_log::Run;
use crate::refused::RefusedJob;

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
    let (lines, jobs): (Vec<u64>, Vec<_>) = jobs
        .into_iter()
        .map(|(number, job)| {
            let record = rule.reported(job.record);
            (number, RunningJob { record, ..job })
        })
        .unzip();
    let records: Vec<UsageRecord> = jobs.iter().map(|job| job.record.clone()).collect();
    let reported = shared.node().running(jobs).await?;
    feed.add(&reported, &lines);
    let refused = reported
        .refused
        .iter()
        .map(|(at, _)| (lines[*at], records[*at].clone()));
    note_running(&shared, refused.unzip(), &mut feed).await?;
    shared.answer("report", feed.into_report()).await
}

/// Lists running jobs as refused, of those with these lines that were refused; those that were before and are not now
/// are no longer listed.
async fn note_running(
    shared: &Shared,
    (lines, refused): (Vec<u64>, Vec<UsageRecord>),
    feed: &mut Feed<RunningJob>,
) -> Result<(), ApiError> {
    let (records, reasons) = refused::reasons(shared, refused).await?;
    let job = |(at, why): (usize, String)| {
        let record = BatchRecord::of_usage(&records[at]);
        let job = RefusedJob::new(&record, why);
        (
            lines[at],
            RefusedJob {
                record: None,
                ..job
            },
        )
    };
    let (lines, jobs): (Vec<u64>, Vec<RefusedJob>) = reasons.into_iter().map(job).unzip();
    let of_now = jobs.clone();
    let kept = refused::stored(shared, move |store| store.keep_running(&of_now));
    if let Err(error) = kept.await {
        tracing::warn!(
            ?error,
            "running jobs that count are still listed as refused"
        );
    }
    refused::note(shared, (lines, jobs), feed).await
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
            end: (!record.running).then_some(record.end),
        })
    });
    let records = records.await?;
    let (numbers, records): (Vec<u64>, Vec<UsageRecord>) = records.into_iter().unzip();
    let rule = shared.charge_rule();
    let records = records.into_iter().map(|record| rule.reported(record));
    let (records, reasons) = refused::reasons(shared, records.collect()).await?;
    let again = shared.node().counts_again(&records).await?;
    let (mut said, mut refused) = (Vec::new(), (Vec::new(), Vec::new()));
    for (at, record) in records.iter().map(BatchRecord::of_usage).enumerate() {
        match reasons.get(&at) {
            None => said.push((record, again.get(&at).copied())),
            Some(why) => {
                refused.0.push(numbers[at]);
                refused.1.push(RefusedJob::new(&record, why.clone()));
            }
        }
    }
    refused::note(shared, refused, feed).await?;
    let mut listed = refused::listed(shared, &records).await.map(Vec::into_iter);
    let counted = async {
        let mut records = records.into_iter();
        for numbers in numbers.chunks(REPORT_RECORDS) {
            let part = records.by_ref().take(numbers.len()).collect();
            let reported = shared.node().report(part).await?;
            feed.add(&reported, numbers);
            let part = listed.as_mut();
            let part = part.map(|jobs| jobs.by_ref().take(numbers.len()).collect());
            refused::accepted(shared, part, &reported).await;
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
