//! `GET /v1/accounting`: job records of the log, or what they come to.
//!
//! Parameters: `since` and `until` (`2026-11-01`, `2026-11-01T12:00:00Z`), `user`, `account`, `group`,
//! `vo`, `state`, `queue`, `cluster`; `by` (`day,user`) or `totals=true` for sums; `limit`.
//!
//! Invariant: records are streamed as they are read, and never held all at once; the newest `limit` of
//! them are given, and `more` at the end says whether there were others. A job that was taken back is
//! listed as such and is in no sum. Single records are shown to those who see all; to others their own, and those of
//! accounts that they coordinate, as many as are held at once ([`OWN_BYTES_MAX`]).

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use fairmesh_api::{Answer, SummaryBody};
use fairmesh_model::{VoId, WallTime};
use fairmesh_records::{Dimension, JobState};
use serde::Deserialize;

use crate::config::quantity::parse_moment;
use crate::control::access::{Peer, hidden};
use crate::control::blocking::{BlockingAnswer, CancelFlag, Pieces};
use crate::control::error::ApiError;
use crate::control::extract::Params;
use crate::control::rests_on::rests_on;
use crate::control::unread::until_read;
use crate::control::{Shared, State};
use crate::privacy::{PrivateData, Visibility};
use crate::record_log::{Filter, LogError, Only, RecordLog, find, summarise};
use crate::sockets::Slot;

/// Records that are given unless `limit` says otherwise.
const RECORDS_DEFAULT: u32 = 1_000;

/// Most records of one answer, some 300 MB: more are asked for period by period.
const RECORDS_MAX: u32 = 500_000;

/// Most records of an answer to one who does not see all.
const OWN_MAX: u32 = 1_000;

/// Bytes that are sent at once, and how many such pieces may wait for a slow reader.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 4;

/// The same for [`OWN_MAX`] records: all of them, so that the thread has ended before they are read. Of records with the
/// longest names fewer are given.
const OWN_PIECES_MAX: usize = 64;

/// Bytes of records that fit into these, beside the head and the end.
const OWN_BYTES_MAX: usize = (OWN_PIECES_MAX - 2) * PIECE_BYTES;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::control) struct Query {
    since: Option<String>,
    until: Option<String>,
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
    vo: Option<String>,
    state: Option<String>,
    queue: Option<String>,
    cluster: Option<String>,
    by: Option<String>,
    #[serde(default)]
    totals: bool,
    limit: Option<u32>,
}

pub(in crate::control) async fn get(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    Extension(slot): Extension<Arc<Slot>>,
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let log = shared.options.records.clone().ok_or_else(|| {
        ApiError::not_found("this node keeps no job records")
            .hint("set `enabled = true` in [records] of its configuration, and start it again")
    })?;
    let mut filter = filter(&query)?;
    let turn = slot.turn_after(shared.resolver.meet(peer.uid)).await;
    filter.corrected = shared.node().taken_back().await?;
    let own = turn.own();
    let blocking = blocking.with(turn, shared.options.limits.sums_deadline);
    let visibility = shared.own_sight(peer).await;
    if query.totals || query.by.is_some() {
        if visibility.hides(PrivateData::Usage) || visibility.hides(PrivateData::Jobs) {
            filter.only = Some(only(&shared, &visibility, query.user.as_deref())?);
        }
        let answer = sums(&shared, (log, blocking), filter, query.by.as_deref()).await?;
        return Ok(until_read(answer, own));
    }
    let mut most = query.limit.unwrap_or(RECORDS_DEFAULT).min(RECORDS_MAX);
    if !visibility.is_all() {
        let only = only(&shared, &visibility, query.user.as_deref()).map_err(|error| {
            error.hint(
                "single jobs of others are shown to those who may write (sockets.writers) or see all \
                 (privacy.readers); sums, where the owner does not hide them: add totals=true or by=",
            )
        })?;
        filter.only = Some(only);
        most = most.min(OWN_MAX);
    }
    let answer = records(&shared, (log, blocking), filter, most).await?;
    Ok(until_read(answer, own))
}

/// The records that a reader sees of those that he asks for.
fn only(shared: &Shared, visibility: &Visibility, wanted: Option<&str>) -> Result<Only, ApiError> {
    let user = visibility.user();
    let user = user.ok_or_else(|| hidden("what belongs to users, of whom you are none"))?;
    let accounts = visibility.coordinates();
    if let Some(other) = wanted.filter(|wanted| *wanted != user && accounts.is_empty()) {
        return Err(hidden(format!("what belongs to {other}")));
    }
    let settings = shared.options.settings.borrow();
    let name = |vo: VoId| settings.vos.get(&vo).cloned().unwrap_or(vo.to_string());
    let accounts = accounts.into_iter().map(|of| (of.vo.map(name), of.path));
    Ok(Only {
        user: user.to_owned(),
        accounts: accounts.collect(),
    })
}

fn filter(query: &Query) -> Result<Filter, ApiError> {
    let time = |text: &Option<String>| -> Result<Option<WallTime>, ApiError> {
        let Some(text) = text else { return Ok(None) };
        let moment = parse_moment(text);
        moment.map(Some).ok_or_else(|| {
            ApiError::bad_request(format!("`{text}` is no moment since 1970"))
                .hint("write 2026-11-01, or 2026-11-01T12:00:00Z")
        })
    };
    let state = query.state.as_deref().map(|state| {
        let known = JobState::parse(state).map(|state| state.name().to_owned());
        known.ok_or_else(|| ApiError::bad_request(format!("there is no state `{state}`")))
    });
    Ok(Filter {
        since: time(&query.since)?,
        until: time(&query.until)?,
        user: query.user.clone(),
        account: query.account.clone(),
        group: query.group.clone(),
        vo: query.vo.clone(),
        state: state.transpose()?,
        queue: query.queue.clone(),
        cluster: query.cluster.clone(),
        only: None,
        corrected: HashSet::new(),
    })
}

async fn sums(
    shared: &Shared,
    (log, blocking): (Arc<RecordLog>, BlockingAnswer),
    filter: Filter,
    by: Option<&str>,
) -> Result<Response, ApiError> {
    let by = dimensions(by.unwrap_or_default())?;
    let rests_on = shared.node().ask(rests_on).await?;
    let summed = move |cancel: &CancelFlag| {
        let summary = reader(&log, cancel).and_then(|reader| summarise(&reader, &filter, &by));
        let summary = summary.map_err(|error| match error {
            LogError::GaveWay if !cancel.is_set() => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error)
            }
            error => cancel.fault(error),
        })?;
        Ok(SummaryBody::from(&summary))
    };
    blocking.answer("accounting", rests_on, summed).await
}

/// What sums are by, each once: every group holds a name for each.
fn dimensions(names: &str) -> Result<Vec<Dimension>, ApiError> {
    let mut by = Vec::new();
    let names = names.split(',').map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        let of: Dimension = name.parse().map_err(ApiError::bad_request)?;
        if by.contains(&of) {
            let error = format!("`{of}` is named twice in by=");
            return Err(ApiError::bad_request(error).hint("name each once: by=day,user"));
        }
        by.push(of);
    }
    Ok(by)
}

/// Reads for as long as somebody wants it.
fn reader(log: &RecordLog, cancel: &CancelFlag) -> Result<rusqlite::Connection, LogError> {
    let cancel = cancel.clone();
    log.reader_while(move || !cancel.is_set())
}

async fn records(
    shared: &Shared,
    (log, blocking): (Arc<RecordLog>, BlockingAnswer),
    filter: Filter,
    most: u32,
) -> Result<Response, ApiError> {
    #[derive(serde::Serialize)]
    struct Nothing {}
    let head = Answer {
        schema: "fairmesh.records/1".to_owned(),
        rests_on: shared.node().ask(rests_on).await?,
        body: Nothing {},
    };
    let head = serde_json::to_string(&head).map_err(ApiError::internal)?;
    let waiting_max = match filter.only {
        Some(_) => OWN_PIECES_MAX,
        None => PIECES_MAX,
    };
    Ok(blocking.streamed(waiting_max, move |cancel, pieces| {
        let read =
            reader(&log, cancel).and_then(|reader| write(&reader, &filter, most, &head, pieces));
        if let Err(error) = read.map_err(|error| error.to_string())
            && !cancel.is_set()
        {
            tracing::error!(error, "job records could not be listed");
            // The reader sees that the answer broke off.
            let _ = pieces.blocking_send(Err(io::Error::other(error)));
        }
    }))
}

fn write(
    reader: &rusqlite::Connection,
    filter: &Filter,
    most: u32,
    head: &str,
    pieces: &Pieces,
) -> Result<(), LogError> {
    let mut piece = head.strip_suffix('}').unwrap_or(head).to_owned();
    piece.push_str(",\"records\":[");
    let mut first = true;
    let mut put = |found: &str| {
        if !std::mem::take(&mut first) {
            piece.push(',');
        }
        piece.push_str(found);
        piece.len() < PIECE_BYTES || send(&mut piece, pieces)
    };
    let more = match filter.only {
        None => find(reader, filter, most, |found| put(&found))?,
        Some(_) => {
            let mut newest = Newest::default();
            let more = find(reader, filter, most, |found| newest.push(found))?;
            let _ = newest.records.iter().all(|found| put(found));
            more || newest.are_fewer
        }
    };
    piece.push_str(&format!("],\"more\":{more}}}"));
    send(&mut piece, pieces);
    Ok(())
}

/// The newest records of a list that [`OWN_BYTES_MAX`] has room for.
#[derive(Default)]
struct Newest {
    records: VecDeque<String>,
    bytes: usize,
    are_fewer: bool,
}

impl Newest {
    /// Takes the next record; those before it go where there is no room for it.
    fn push(&mut self, record: String) -> bool {
        self.bytes += record.len() + 1;
        self.records.push_back(record);
        while self.bytes > OWN_BYTES_MAX
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.len() + 1;
            self.are_fewer = true;
        }
        true
    }
}

/// Waits until the reader has room; false where it has gone.
fn send(piece: &mut String, pieces: &Pieces) -> bool {
    let bytes = Bytes::from(std::mem::take(piece));
    pieces.blocking_send(Ok(bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairmesh_model::{JobKey, Millis};
    use fairmesh_records::{BatchRecord, Format};
    use serde_json::Value;

    use super::*;
    use crate::record_log::{Entry, Keep};

    fn entry(job: u64) -> Entry {
        let key = JobKey {
            cluster: "c".to_owned(),
            job: job.to_string(),
            instance: 1,
        };
        let mut record = BatchRecord::new(Format::SlurmSacct, key, JobState::Completed);
        record.origin.user = Some("ann".to_owned());
        record.name = Some("x".repeat(8_000));
        record.end = Some(WallTime(job));
        Entry {
            record,
            vo: None,
            path: None,
            full: true,
            replaces: false,
        }
    }

    #[tokio::test]
    async fn ones_own_records_are_listed_before_they_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let keep = Keep {
            age: Millis(u64::MAX),
            ..Keep::default()
        };
        let log = RecordLog::open(folder.path(), keep).expect("opens");
        let most = u64::from(OWN_MAX);
        let entries = (1..=most).map(entry).collect();
        log.append(entries).await.expect("written");
        let only = Only {
            user: "ann".to_owned(),
            accounts: Vec::new(),
        };
        let filter = Filter {
            only: Some(only),
            ..Filter::default()
        };
        let (pieces, mut sent) = tokio::sync::mpsc::channel(OWN_PIECES_MAX);
        let reader = log.reader().expect("a reader");
        let written = tokio::task::spawn_blocking(move || {
            write(&reader, &filter, OWN_MAX, "{\"a\":1}", &pieces)
        });
        let written = tokio::time::timeout(Duration::from_secs(30), written).await;
        let written = written.expect("it waits for no reader");
        written.expect("no panic").expect("written");
        let mut text = Vec::new();
        while let Some(piece) = sent.recv().await {
            text.extend_from_slice(&piece.expect("a piece"));
        }
        let list: Value = serde_json::from_slice(&text).expect("JSON");
        let records = list["records"].as_array().expect("records");
        assert!(
            records.len() > 400 && list["more"] == true,
            "{}",
            records.len()
        );
        let newest = records.last().expect("one");
        assert_eq!(newest["job"], most.to_string(), "the newest are given");
    }
}
