//! What was refused for good: `GET /v1/refused[?limit=]` lists the jobs, and `POST /v1/rejects` takes how many lines
//! of a file `fairmesh report` could not read.
//!
//! A charter or a configuration that changes may make right what was refused: then the node tries the jobs again, by
//! the records that it has kept, and nobody has to report them again.
//!
//! Invariant: a job is in the list from before its report is answered until it is counted.
//! Deliberately not here: keeping the list (`crate::refused`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use fairmesh_api::{RefusedJobBody, RefusedJobsBody, RejectsBody};
use fairmesh_model::{JobKey, UsageRecord, WallTime, clean};
use fairmesh_records::BatchRecord;
use fairmesh_site::Reported;
use serde::Deserialize;

use super::error::ApiError;
use super::extract::{Params, json};
use super::feed::Feed;
use super::{Shared, State};
use crate::refused::{Refused, RefusedJob};

/// Jobs that are listed unless `limit` says otherwise, and at most.
const LIMIT: (u32, u32) = (1_000, 100_000);

/// A path and a reason.
const REJECTS_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    limit: Option<u32>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let most = query.limit.unwrap_or(LIMIT.0).min(LIMIT.1);
    let listed = stored(&shared, move |store| {
        Ok((store.summary()?, store.list(most)?, store.rejects()?))
    });
    let (all, jobs, rejects) = listed.await?;
    let word = |word: Option<String>| word.as_deref().map(clean);
    let job = |job: RefusedJob| RefusedJobBody {
        cluster: clean(&job.key.cluster),
        job: clean(&job.key.job),
        instance: job.key.instance,
        user: word(job.user),
        account: word(job.account),
        reason: clean(&job.reason),
        since_ms: job.since.0,
    };
    let body = RefusedJobsBody {
        all,
        jobs: jobs.into_iter().map(job).collect(),
        rejects,
    };
    shared.answer("refused", body).await
}

pub(super) async fn post_rejects(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let rejects: RejectsBody = json(&shared, body, REJECTS_BYTES_MAX).await?;
    if !rejects.file.starts_with('/') {
        return Err(ApiError::bad_request(
            "`file` is no whole path: it begins with `/`",
        ));
    }
    let wanted = rejects.clone();
    let is_listed = stored(&shared, move |store| store.set_rejects(&wanted));
    if !is_listed.await? {
        let error = ApiError::bad_request("the node lists no more files with rejects");
        return Err(
            error.hint("`fairmesh records --refused` lists them: report some again, once fixed")
        );
    }
    shared.answer("rejects", rejects).await
}

/// Asks the list of what was refused, on a thread that may block.
pub(super) async fn stored<T: Send + 'static>(
    shared: &Shared,
    ask: impl FnOnce(&Refused) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let store = Arc::clone(&shared.options.refused);
    let answered =
        tokio::task::spawn_blocking(move || ask(&store).inspect_err(|error| store.mend(error)));
    let answered = answered.await;
    let failed = |error| {
        let error = format!("the list of refused jobs failed: {error}");
        ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, error)
    };
    answered.map_err(ApiError::internal)?.map_err(failed)
}

impl RefusedJob {
    /// One with its record.
    pub(super) fn new(record: &BatchRecord, reason: String) -> Self {
        Self {
            key: record.key.clone(),
            user: record.origin.user.clone(),
            account: record.origin.account.clone(),
            reason,
            since: WallTime(0),
            record: serde_json::to_string(record).ok(),
        }
    }
}

/// Why records are going to be refused for good, by their positions; those that count already are left out. Gives the
/// records back.
pub(super) async fn reasons(
    shared: &Shared,
    records: Vec<UsageRecord>,
) -> Result<(Vec<UsageRecord>, BTreeMap<usize, String>), ApiError> {
    let (records, mut reasons) = shared.node().refusals(records).await?;
    if !reasons.is_empty() {
        let refused = reasons.keys().map(|at| records[*at].clone()).collect();
        let marked = shared.node().marked(refused).await?;
        let mut counted = marked
            .iter()
            .map(|(mark, _)| mark.is_some_and(|mark| mark.ended));
        reasons.retain(|_, _| counted.next() != Some(true));
    }
    Ok((records, reasons))
}

/// Lists jobs as refused, each with the number of its line; the answer says which of them were before. A list that
/// cannot be written stops nothing: the answer has the refusals.
pub(super) async fn note<T>(
    shared: &Shared,
    (lines, jobs): (Vec<u64>, Vec<RefusedJob>),
    feed: &mut Feed<T>,
) -> Result<(), ApiError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let now = shared.node().now().wall;
    match stored(shared, move |store| store.note(now, &jobs)).await {
        Ok(again) => {
            let lines = lines.into_iter().zip(again);
            feed.again
                .extend(lines.filter_map(|(line, again)| again.then_some(line)));
        }
        Err(error) => tracing::warn!(?error, "refused jobs are not listed"),
    }
    Ok(())
}

/// The jobs of these records, where any job is listed as refused. A list that cannot be read stops no report.
pub(super) async fn listed(shared: &Shared, records: &[UsageRecord]) -> Option<Vec<JobKey>> {
    let is_empty = stored(shared, Refused::is_empty)
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(?error, "whether jobs are listed as refused is not known");
            true
        });
    (!is_empty).then(|| records.iter().map(|record| record.key.clone()).collect())
}

/// Takes jobs out of the list that are refused no more.
pub(super) async fn forget(shared: &Shared, jobs: Vec<JobKey>) {
    let forgotten = stored(shared, move |store| store.forget(jobs.iter()));
    if let Err(error) = forgotten.await {
        tracing::warn!(?error, "jobs that count are still listed as refused");
    }
}

/// Takes those of these jobs out of the list that a report did not refuse.
pub(super) async fn accepted(shared: &Shared, jobs: Option<Vec<JobKey>>, reported: &Reported) {
    let refused: BTreeSet<usize> = reported.refused.iter().map(|(index, _)| *index).collect();
    let jobs = jobs.into_iter().flatten().enumerate();
    let jobs: Vec<JobKey> = jobs
        .filter(|(at, _)| !refused.contains(at))
        .map(|(_, job)| job)
        .collect();
    if !jobs.is_empty() {
        forget(shared, jobs).await;
    }
}
