//! `POST /v1/records` and `POST /v1/running`: what feeds report, one JSON object a line.
//!
//! Records are taken in batches while the body still comes. Invariant: a bad line is refused with
//! its number and reason and stops nothing; what the answer says was counted is durable. If the body
//! breaks off, what was read stays counted, and sending it again counts nothing twice.
//! The list of running jobs replaces the one before, so it is taken whole or not at all.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use fairmesh_model::{RunningJob, UsageRecord};
use fairmesh_site::Reported;
use futures::StreamExt as _;
use serde::de::DeserializeOwned;

use super::answer::{Refusal, ReportBody};
use super::error::ApiError;
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::rests_on::{answer, rests_on};
use super::text::{clean, not_a_record};
use super::{Shared, State};

/// Records handed to the site at once: one durable write each, so enough to share its cost, and few
/// enough that the driver is soon free again.
const BATCH_RECORDS: usize = 500;

/// Largest body of records: some two million. Larger feeds come in several requests.
const RECORDS_BYTES_MAX: u64 = 512 << 20;

/// Most running jobs of a site: bounds the memory of one request. The largest machines run some
/// tens of thousands.
const RUNNING_MAX: usize = 500_000;

/// Refused lines that are listed; more are counted.
const REFUSALS_MAX: usize = 1_000;

pub(super) async fn post_records(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let mut feed = Feed::<UsageRecord>::default();
    let mut pieces = Pieces::new(body, shared.options.limits.body_idle_max);
    while let Some(piece) = pieces.next(&feed.report).await? {
        feed.take(&piece);
        while feed.items.len() >= BATCH_RECORDS {
            hand_over(&shared, &mut feed).await?;
        }
    }
    feed.finish();
    while !feed.items.is_empty() {
        hand_over(&shared, &mut feed).await?;
    }
    respond(&shared, feed).await
}

pub(super) async fn post_running(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let mut feed = Feed::<RunningJob>::default();
    let mut pieces = Pieces::new(body, shared.options.limits.body_idle_max);
    while let Some(piece) = pieces.next(&feed.report).await? {
        feed.take(&piece);
        if feed.items.len() > RUNNING_MAX {
            let error = format!("more than {RUNNING_MAX} running jobs; nothing was changed");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error));
        }
    }
    feed.finish();
    let (numbers, jobs): (Vec<u64>, Vec<RunningJob>) = feed.items.drain(..).unzip();
    let reported = shared.node().running(jobs).await?;
    feed.add(&reported, &numbers);
    respond(&shared, feed).await
}

async fn hand_over(shared: &Shared, feed: &mut Feed<UsageRecord>) -> Result<(), ApiError> {
    let end = feed.items.len().min(BATCH_RECORDS);
    let (numbers, records): (Vec<u64>, Vec<UsageRecord>) = feed.items.drain(..end).unzip();
    let reported = shared.node().report(records).await?;
    feed.add(&reported, &numbers);
    Ok(())
}

async fn respond<T>(
    shared: &Shared,
    mut feed: Feed<T>,
) -> Result<impl IntoResponse + use<T>, ApiError> {
    feed.report.charge_core_ms = feed.charge.to_string();
    feed.report.refusals.sort_by_key(|refusal| refusal.line);
    let rests_on = shared.node().ask(rests_on).await?;
    Ok(answer("report", rests_on, feed.report))
}

/// The pieces of a body, within limits of time and size.
struct Pieces {
    stream: axum::body::BodyDataStream,
    idle_max: Duration,
    bytes: u64,
}

impl Pieces {
    fn new(body: Body, idle_max: Duration) -> Self {
        Self {
            stream: body.into_data_stream(),
            idle_max,
            bytes: 0,
        }
    }

    async fn next(&mut self, so_far: &ReportBody) -> Result<Option<Bytes>, ApiError> {
        let hint = || {
            let (counted, known) = (so_far.counted, so_far.known);
            format!(
                "{counted} records were counted and {known} were known before that; \
                 send the rest, or all again: nothing counts twice"
            )
        };
        let piece = tokio::time::timeout(self.idle_max, self.stream.next()).await;
        let piece = piece.map_err(|_| {
            let error = format!("the body stood still for {:?}", self.idle_max);
            ApiError::new(StatusCode::REQUEST_TIMEOUT, error).hint(hint())
        })?;
        let Some(piece) = piece else { return Ok(None) };
        let piece = piece.map_err(|error| {
            ApiError::bad_request(format!("the body broke off: {error}")).hint(hint())
        })?;
        self.bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if self.bytes > RECORDS_BYTES_MAX {
            let error = format!("the body is larger than {RECORDS_BYTES_MAX} bytes");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error).hint(hint()));
        }
        Ok(Some(piece))
    }
}

/// What was read and not yet handed over, and what became of the rest.
struct Feed<T> {
    lines: Lines,
    items: Vec<(u64, T)>,
    report: ReportBody,
    charge: u64,
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self {
            lines: Lines::default(),
            items: Vec::new(),
            report: ReportBody::default(),
            charge: 0,
        }
    }
}

impl<T: DeserializeOwned> Feed<T> {
    fn take(&mut self, piece: &[u8]) {
        let (items, report) = (&mut self.items, &mut self.report);
        self.lines
            .push(piece, |line| take_line(line, items, report));
    }

    fn finish(&mut self) {
        let (items, report) = (&mut self.items, &mut self.report);
        self.lines.finish(|line| take_line(line, items, report));
    }
}

impl<T> Feed<T> {
    fn add(&mut self, reported: &Reported, numbers: &[u64]) {
        self.report.counted += reported.counted;
        self.report.known += reported.known;
        self.report.unmapped += reported.unmapped;
        self.report.late += reported.late;
        self.charge = self.charge.saturating_add(reported.charge);
        for (index, why) in &reported.refused {
            refuse(
                &mut self.report,
                numbers.get(*index).copied().unwrap_or(0),
                why,
            );
        }
    }
}

fn take_line<T: DeserializeOwned>(
    line: Line<'_>,
    items: &mut Vec<(u64, T)>,
    report: &mut ReportBody,
) {
    report.read += 1;
    let Some(text) = line.text else {
        let why = format!("longer than {LINE_BYTES_MAX} bytes");
        return refuse(report, line.number, &why);
    };
    match serde_json::from_slice(text) {
        Ok(item) => items.push((line.number, item)),
        Err(error) => refuse(report, line.number, &not_a_record(&error)),
    }
}

fn refuse(report: &mut ReportBody, line: u64, why: &str) {
    report.refused += 1;
    if report.refusals.len() < REFUSALS_MAX {
        report.refusals.push(Refusal {
            line,
            reason: clean(why),
        });
    }
}
