//! Refused jobs, reported once more: after a change of the charters or the configuration they may count.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use fairmesh_model::{JobKey, VoId};
use fairmesh_records::{BatchRecord, RECORD_BYTES_MAX};

use super::super::Shared;
use super::super::error::ApiError;
use super::super::feed::Feed;
use super::super::refused::{forget, stored};
use super::count;
use crate::refused::Refused;

/// Between two checks whether the charters or the configuration have changed, or files of rejects were removed.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Records that are tried again at once.
const RETRIED: u32 = 500;

/// Tries what was refused again whenever a charter or the configuration has changed, and takes files of rejects out of
/// the list that were removed, for as long as it is polled.
pub(in super::super) async fn retry(shared: Arc<Shared>) {
    let mut settings = shared.options.settings.clone();
    let mut tried = None;
    loop {
        tokio::time::sleep(RETRY_PAUSE).await;
        if let Err(error) = stored(&shared, Refused::forget_removed).await {
            tracing::warn!(
                ?error,
                "files of rejects that were removed are still listed"
            );
        }
        let charters = shared.node().ask(|site, now| {
            let versions = site.vo_status(now).into_iter();
            versions
                .map(|vo| (vo.vo, vo.held.charter_version))
                .collect::<Vec<(VoId, u64)>>()
        });
        let Ok(charters) = charters.await else { return };
        let is_other = settings.has_changed().unwrap_or(false) || tried.as_ref() != Some(&charters);
        if !is_other {
            continue;
        }
        settings.mark_unchanged();
        match again(&shared).await {
            Ok(0) => tried = Some(charters),
            Ok(counted) => {
                tracing::info!(
                    counted,
                    "jobs that were refused before count by the new charter or configuration"
                );
                tried = Some(charters);
            }
            Err(error) => tracing::warn!(?error, "refused jobs could not be tried again"),
        }
    }
}

/// Tries all of them; gives how many count now.
pub(in super::super) async fn again(shared: &Shared) -> Result<u64, ApiError> {
    let (mut counted, mut after) = (0, 0);
    loop {
        let records = stored(shared, move |store| store.records(after, RETRIED)).await?;
        let Some((last, _)) = records.last() else {
            return Ok(counted);
        };
        after = *last;
        let records = records
            .iter()
            .filter_map(|(_, text)| serde_json::from_str::<BatchRecord>(text).ok());
        let records: Vec<(u64, BatchRecord)> = (1..).zip(records).collect();
        // A run that two sources name differently is listed twice, and counts under one of the keys.
        let listed: Vec<(u64, JobKey)> = records
            .iter()
            .map(|(line, record)| (*line, record.key.clone()))
            .collect();
        let mut feed = Feed::<BatchRecord>::new(shared, Body::empty(), RECORD_BYTES_MAX);
        count(shared, records, &mut feed).await?;
        counted += feed.report.counted;
        let refusals = feed.report.refusals.iter();
        let refused: BTreeSet<u64> = refusals.map(|refusal| refusal.line).collect();
        let gone = listed
            .into_iter()
            .filter(|(line, _)| !refused.contains(line));
        forget(shared, gone.map(|(_, job)| job).collect()).await;
    }
}
