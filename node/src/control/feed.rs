//! The lines of a feed: read while the body still comes, and what became of each.
//!
//! Invariant: a bad line is refused with its number and reason and stops nothing; a body has limits of
//! time and size, and one that breaks off says what was counted before that.
//! Deliberately not here: what is done with the items.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use fairmesh_site::Reported;
use futures::StreamExt as _;
use serde::de::DeserializeOwned;

use super::answer::{Refusal, ReportBody};
use super::error::ApiError;
use super::lines::{Line, Lines};
use super::text::{clean, not_a_record};

/// Largest body of records: some two million. Larger feeds come in several requests.
const RECORDS_BYTES_MAX: u64 = 512 << 20;

/// Refused lines that are listed; more are counted.
const REFUSALS_MAX: usize = 1_000;

/// The pieces of a body, within limits of time and size.
pub(super) struct Pieces {
    stream: axum::body::BodyDataStream,
    idle_max: Duration,
    bytes: u64,
}

impl Pieces {
    pub(super) fn new(body: Body, idle_max: Duration) -> Self {
        Self {
            stream: body.into_data_stream(),
            idle_max,
            bytes: 0,
        }
    }

    pub(super) async fn next(&mut self, so_far: &ReportBody) -> Result<Option<Bytes>, ApiError> {
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
pub(super) struct Feed<T> {
    lines: Lines,
    /// Each with the number of its line.
    pub(super) items: Vec<(u64, T)>,
    pub(super) report: ReportBody,
    pub(super) charge: u64,
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self::of(Lines::default())
    }
}

impl<T> Feed<T> {
    /// What comes in these lines.
    pub(super) fn of(lines: Lines) -> Self {
        Self {
            lines,
            items: Vec::new(),
            report: ReportBody::default(),
            charge: 0,
        }
    }
}

impl<T: DeserializeOwned> Feed<T> {
    pub(super) fn take(&mut self, piece: &[u8]) {
        let (items, report) = (&mut self.items, &mut self.report);
        let longest = self.lines.bytes_max();
        self.lines
            .push(piece, |line| take_line(line, longest, items, report));
    }

    pub(super) fn finish(&mut self) {
        let (items, report) = (&mut self.items, &mut self.report);
        let longest = self.lines.bytes_max();
        self.lines
            .finish(|line| take_line(line, longest, items, report));
    }
}

impl<T> Feed<T> {
    pub(super) fn add(&mut self, reported: &Reported, numbers: &[u64]) {
        self.report.counted += reported.counted;
        self.report.known += reported.known;
        self.report.unmapped += reported.unmapped;
        self.report.late += reported.late;
        self.charge = self.charge.saturating_add(reported.charge);
        for (index, why) in &reported.refused {
            self.refuse(numbers.get(*index).copied().unwrap_or(0), why);
        }
    }

    /// Refuses what stood on a line.
    pub(super) fn refuse(&mut self, line: u64, why: &str) {
        refuse(&mut self.report, line, why);
    }

    /// What became of it all.
    pub(super) fn into_report(mut self) -> ReportBody {
        self.report.charge_core_ms = self.charge.to_string();
        self.report.refusals.sort_by_key(|refusal| refusal.line);
        self.report
    }
}

fn take_line<T: DeserializeOwned>(
    line: Line<'_>,
    bytes_max: usize,
    items: &mut Vec<(u64, T)>,
    report: &mut ReportBody,
) {
    report.read += 1;
    let Some(text) = line.text else {
        let why = format!("longer than {bytes_max} bytes");
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
