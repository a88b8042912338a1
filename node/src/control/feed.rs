//! The lines of a feed: read while the body still comes, and what became of each.
//!
//! Invariant: a bad line is refused with its number and reason and stops nothing; a body has limits of
//! time and size, and one that breaks off says what was counted before that. Of long lines fewer are held at once
//! ([`HELD_BYTES_MAX`]).
//! Deliberately not here: what is done with the items.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::StatusCode;
use fairmesh_api::{Refusal, ReportBody};
use fairmesh_model::{WallTime, clean};
use fairmesh_site::Reported;
use futures::StreamExt as _;
use serde::de::DeserializeOwned;

use super::Shared;
use super::error::ApiError;
use super::lines::{Line, Lines};
use super::text::not_a_record;

/// Largest body of records: some two million. Larger feeds come in several requests.
const RECORDS_BYTES_MAX: u64 = 512 << 20;

/// Text of lines that are held as items, beside that of the last piece: a thousand usual records. An item takes up to
/// eight times as much as its text, and 32 connections of one user may each be filled without his turn.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Refused lines that are listed; more are counted.
const REFUSALS_MAX: usize = 1_000;

/// The lines of a body: what was read and not yet handed over, and what became of the rest.
pub(super) struct Feed<T> {
    body: BodyDataStream,
    idle_max: Duration,
    bytes: u64,
    has_ended: bool,
    lines: Lines,
    /// Each with the number of its line.
    items: Vec<(u64, T)>,
    /// The text of those.
    held_bytes: usize,
    pub(super) report: ReportBody,
    pub(super) charge: u64,
    pub(super) credited: u64,
    /// Lines of jobs that had been refused before.
    pub(super) again: BTreeSet<u64>,
}

impl<T: DeserializeOwned> Feed<T> {
    /// What comes in lines of up to so many bytes.
    pub(super) fn new(shared: &Shared, body: Body, line_bytes_max: usize) -> Self {
        Self::of(body, line_bytes_max, shared.options.limits.body_idle_max)
    }

    fn of(body: Body, line_bytes_max: usize, idle_max: Duration) -> Self {
        Self {
            body: body.into_data_stream(),
            idle_max,
            bytes: 0,
            has_ended: false,
            lines: Lines::of(line_bytes_max),
            items: Vec::new(),
            held_bytes: 0,
            report: ReportBody::default(),
            charge: 0,
            credited: 0,
            again: BTreeSet::new(),
        }
    }

    /// The next items, each with the number of its line: `most`, or fewer where their lines are long or there are no
    /// more; `None` behind the last.
    pub(super) async fn next(&mut self, most: usize) -> Result<Option<Vec<(u64, T)>>, ApiError> {
        let is_full = |of: &Self| of.items.len() >= most || of.held_bytes >= HELD_BYTES_MAX;
        while !is_full(self) && !self.has_ended {
            let piece = self.piece().await?;
            self.has_ended = piece.is_none();
            let (items, report) = (&mut self.items, &mut self.report);
            let (bytes_max, held_bytes) = (self.lines.bytes_max(), &mut self.held_bytes);
            let each = |line: Line<'_>| {
                *held_bytes += line.text.map_or(0, <[u8]>::len);
                take_line(line, bytes_max, items, report);
            };
            match piece {
                Some(piece) => self.lines.push(&piece, each),
                None => self.lines.finish(each),
            }
        }
        let end = self.items.len().min(most);
        // Any that stay came in one piece.
        self.held_bytes = 0;
        Ok((end > 0).then(|| self.items.drain(..end).collect()))
    }

    /// The next piece of the body, within limits of time and size.
    async fn piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let (counted, known) = (self.report.counted, self.report.known);
        let hint = || {
            format!(
                "before that, records counted: {counted}, known: {known}; \
                 send the rest, or all again: nothing counts twice"
            )
        };
        let piece = tokio::time::timeout(self.idle_max, self.body.next()).await;
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

impl<T> Feed<T> {
    pub(super) fn add(&mut self, reported: &Reported, numbers: &[u64]) {
        self.report.counted += reported.counted;
        self.report.known += reported.known;
        self.report.left_out += reported.left_out;
        for (at, jobs) in &reported.not_again {
            self.not_again(*at, *jobs);
        }
        self.report.unmapped += reported.unmapped;
        self.report.late += reported.late;
        self.report.for_now += reported.for_now;
        self.charge = self.charge.saturating_add(reported.charge);
        self.credited = self.credited.saturating_add(reported.credited);
        for (index, why) in &reported.refused {
            self.refuse(numbers.get(*index).copied().unwrap_or(0), why);
        }
    }

    /// Jobs were taken back then, and do not count again.
    pub(super) fn not_again(&mut self, at: Option<WallTime>, jobs: u64) {
        let day = at.map_or_else(|| "unknown".to_owned(), WallTime::utc_date);
        *self.report.taken_back_on.entry(day).or_default() += jobs;
    }

    /// Refuses what stood on a line.
    pub(super) fn refuse(&mut self, line: u64, why: &str) {
        refuse(&mut self.report, line, why);
    }

    /// What became of it all.
    pub(super) fn into_report(mut self) -> ReportBody {
        self.report.charge_core_ms = self.charge.to_string();
        self.report.credited_core_ms = self.credited.to_string();
        self.report.refusals.sort_by_key(|refusal| refusal.line);
        let lines = self.report.refusals.iter().map(|refusal| refusal.line);
        self.report.refused_again = lines.filter(|line| self.again.contains(line)).collect();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn of_long_lines_few_are_held_at_once() {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let lines = futures::stream::iter(0..10).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let line = format!("\"{}\"\n", "x".repeat(900_000));
            Ok::<_, std::io::Error>(Bytes::from(line))
        });
        let minute = Duration::from_secs(60);
        let mut feed = Feed::<String>::of(Body::from_stream(lines), 1 << 20, minute);
        let mut numbers = Vec::new();
        while let Some(items) = feed.next(1_000).await.expect("a good body") {
            assert_eq!(
                items.len(),
                2,
                "{} lines are read",
                read.load(Ordering::Relaxed)
            );
            numbers.extend(items.into_iter().map(|(number, _)| number));
            assert_eq!(read.load(Ordering::Relaxed), numbers.len());
        }
        assert!(numbers.into_iter().eq(1..=10));
    }
}
