//! `POST /v1/corrections?why=[&by=]`: jobs that were reported in error are taken back; and `GET /v1/audit`:
//! what was taken back, by whom and why, and which documents came into force, when, and who brought them.
//!
//! A line of the body names a job that the record log has (`{"job": "4711"}`, with `cluster` and
//! `instance` where there are several), or is its record as it was reported. Both are for writers only:
//! they show single jobs.
//!
//! Invariant: what the answer says was taken back is durable, and is never taken back again; who did it
//! is the user whom the system names, whatever he calls himself.

use axum::Extension;
use axum::body::Body;
use axum::response::IntoResponse;
use fairmesh_api::{
    AccountBody, AdoptionBody, AuditBody, CorrectionsBody, RefundBody, TakenBackBody,
};
use fairmesh_model::{JobKey, SiteId, UsageRecord, VoId, WallTime, clean};
use fairmesh_policy::DocumentRef;
use fairmesh_records::{BatchRecord, ChargeRule, RECORD_BYTES_MAX};
use fairmesh_site::{Adoption, AuditEntry, BroughtBy, Refund, Relocation, Site};
use serde::Deserialize;

use super::access::Peer;
use super::error::ApiError;
use super::extract::Params;
use super::feed::Feed;
use super::rests_on::{answer, site_name};
use super::{Shared, State};
use crate::record_log::{LogError, RecordLog, find_job};

/// Jobs that are taken back at once: one durable write each time.
const BATCH_JOBS: usize = 500;

/// Most entries that one answer lists: the newest.
const AUDIT_MAX: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    why: String,
    by: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    job: Option<String>,
    by: Option<String>,
    limit: Option<usize>,
}

/// Which job.
#[derive(Debug, Deserialize)]
#[serde(try_from = "serde_json::Value")]
enum Line {
    Named(Named),
    Usage(Box<UsageRecord>),
    Batch(Box<BatchRecord>),
}

/// A job of the record log. Of any cluster and run, where there is only one such job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    job: String,
    cluster: Option<String>,
    instance: Option<u64>,
}

impl TryFrom<serde_json::Value> for Line {
    type Error = serde_json::Error;

    fn try_from(value: serde_json::Value) -> Result<Self, serde_json::Error> {
        if value.get("start_ms").is_some() {
            serde_json::from_value(value).map(Self::Usage)
        } else if value.get("state").is_some() {
            serde_json::from_value(value).map(Self::Batch)
        } else {
            serde_json::from_value(value).map(Self::Named)
        }
    }
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    Params(query): Params<Query>,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    if query.why.trim().is_empty() {
        return Err(ApiError::bad_request("a correction needs a reason").hint("why=…"));
    }
    let by = attributed(query.by.as_deref(), peer);
    let mut feed = Feed::new(&shared, body, RECORD_BYTES_MAX);
    let mut taken_back = Vec::new();
    while let Some(lines) = feed.next(BATCH_JOBS).await? {
        let words = (by.clone(), query.why.clone());
        hand_over(&shared, lines, &mut feed, &mut taken_back, words).await?;
    }
    let report = feed.into_report();
    let body = CorrectionsBody {
        read: report.read,
        taken_back,
        charge_core_ms: report.charge_core_ms,
        refused: report.refused,
        refusals: report.refusals,
    };
    shared.answer("corrections", body).await
}

/// Who does it: what he calls himself, and whom the system says he is.
pub(super) fn attributed(by: Option<&str>, peer: Peer) -> String {
    let user = peer.uid.map_or("unknown".to_owned(), |uid| uid.to_string());
    match by.map(str::trim).filter(|by| !by.is_empty()) {
        Some(by) => format!("{} (uid {user})", clean(by)),
        None => format!("uid {user}"),
    }
}

async fn hand_over(
    shared: &Shared,
    lines: Vec<(u64, Line)>,
    feed: &mut Feed<Line>,
    taken_back: &mut Vec<TakenBackBody>,
    (by, why): (String, String),
) -> Result<(), ApiError> {
    let (rule, log) = {
        let settings = shared.options.settings.borrow();
        (settings.charge_rule.clone(), shared.options.records.clone())
    };
    let now = shared.node().now().wall;
    let read = tokio::task::spawn_blocking(move || {
        let records = lines.into_iter().map(|(number, line)| {
            let record = record_of(line, log.as_deref(), (&rule, now));
            (number, record)
        });
        records.collect::<Vec<_>>()
    });
    let (mut numbers, mut records) = (Vec::new(), Vec::new());
    for (number, record) in read.await.map_err(ApiError::internal)? {
        match record {
            Ok(record) => {
                numbers.push(number);
                records.push(record);
            }
            Err(why) => feed.refuse(number, &why),
        }
    }
    let keys: Vec<JobKey> = records.iter().map(|record| record.key.clone()).collect();
    let reported = shared.node().correct(records, by, why).await?;
    let bodies = reported.taken_back.iter().filter_map(|(index, charge)| {
        let key = keys.get(*index)?;
        Some(TakenBackBody {
            cluster: clean(&key.cluster),
            job: clean(&key.job),
            instance: key.instance,
            charge_core_ms: charge.to_string(),
        })
    });
    taken_back.extend(bodies);
    feed.add(&reported, &numbers);
    Ok(())
}

/// The record of a job, as it was reported. Blocks on the disk.
fn record_of(
    line: Line,
    log: Option<&RecordLog>,
    (rule, now): (&ChargeRule, WallTime),
) -> Result<UsageRecord, String> {
    let batch = match line {
        Line::Usage(record) => return Ok(rule.reported(*record)),
        Line::Batch(record) => *record,
        Line::Named(named) => {
            let log = log.ok_or_else(|| {
                "this node keeps no job records: hand in the job's record as it was reported"
                    .to_owned()
            })?;
            let unread = |error: LogError| error.to_string();
            let connection = log.reader().map_err(unread)?;
            let wanted = (named.cluster.as_deref(), &*named.job, named.instance);
            find_job(&connection, wanted).map_err(unread)??
        }
    };
    rule.usage(&batch, now)
        .map_err(|skip| format!("job `{}` was not charged: {skip}", clean(&batch.key.job)))
}

pub(super) async fn get_audit(
    axum::extract::State(shared): State,
    Params(query): Params<AuditQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let most = query.limit.unwrap_or(AUDIT_MAX).min(AUDIT_MAX);
    let told = move |site: &Site, _| Ok((listed(site, &query), adopted(site, &query)));
    let (rests_on, (mut refunds, mut documents)) = shared.ask(told).await?;
    documents.sort_by_key(|document| document.at_ms);
    refunds.sort_by_key(|refund| refund.at_ms);
    let more = refunds.len() > most || documents.len() > most;
    refunds.drain(..refunds.len().saturating_sub(most));
    documents.drain(..documents.len().saturating_sub(most));
    let body = AuditBody {
        refunds,
        documents,
        more,
    };
    Ok(answer("audit", rests_on, body))
}

/// The documents that came into force here. No job is one.
fn adopted(site: &Site, query: &AuditQuery) -> Vec<AdoptionBody> {
    let all = site.adoptions().filter(|_| query.job.is_none());
    let all = all.map(|(vo, adoption)| adoption_body(site, vo, adoption));
    let by = query.by.as_deref();
    all.filter(|body| by.is_none_or(|by| body.by.contains(by)))
        .collect()
}

fn adoption_body(site: &Site, vo: VoId, adoption: &Adoption) -> AdoptionBody {
    let document = DocumentRef {
        kind: adoption.kind,
        path: adoption.path.clone(),
        version: adoption.version,
        hash: adoption.hash,
    };
    let by = match &adoption.by {
        BroughtBy::Peer(from) => {
            let name = site_name(site, *from).unwrap_or_else(|| from.short());
            format!("site {name}")
        }
        BroughtBy::User(name) => clean(name),
    };
    AdoptionBody {
        at_ms: adoption.at.0,
        vo: vo.to_string(),
        document: clean(&document.to_string()),
        hash: adoption.hash.to_string(),
        by,
    }
}

fn listed(site: &Site, query: &AuditQuery) -> Vec<RefundBody> {
    let own = site.refunds().map(|refund| own_body(site, refund));
    let vos = site.vectors().into_keys();
    let others = vos.flat_map(|vo| {
        let members = site.audit_of_members(vo);
        members.flat_map(move |(of, entries)| {
            let entries = entries.into_iter();
            entries.map(move |entry| member_body(site, (vo, of), &entry))
        })
    });
    let is_wanted = |body: &RefundBody| {
        let of_job = query.job.is_none() || body.job == query.job;
        let by = query.by.as_deref();
        of_job && by.is_none_or(|by| body.by.contains(by))
    };
    let moves = site.relocations().map(|moved| move_body(site, moved));
    own.chain(moves).chain(others).filter(is_wanted).collect()
}

fn member_body(site: &Site, (vo, of): (VoId, SiteId), entry: &AuditEntry) -> RefundBody {
    RefundBody {
        site: of.to_string(),
        site_name: site_name(site, of),
        at_ms: entry.at.0,
        vo: Some(vo.to_string()),
        path: clean(&entry.path.to_string()),
        jobs: entry.jobs,
        cluster: None,
        job: None,
        instance: None,
        moved_to: None,
        charge_core_ms: entry.charge.to_string(),
        by: clean(&entry.by),
        why: clean(&entry.why),
    }
}

fn own_body(site: &Site, refund: &Refund) -> RefundBody {
    RefundBody {
        site: site.id().to_string(),
        site_name: site_name(site, site.id()),
        at_ms: refund.at.0,
        vo: refund.vo.map(|vo| vo.to_string()),
        path: clean(&refund.path.to_string()),
        jobs: 1,
        cluster: Some(clean(&refund.job.cluster)),
        job: Some(clean(&refund.job.job)),
        instance: Some(refund.job.instance),
        moved_to: None,
        charge_core_ms: refund.charge.to_string(),
        by: clean(&refund.by),
        why: clean(&refund.why),
    }
}

fn move_body(site: &Site, moved: &Relocation) -> RefundBody {
    RefundBody {
        site: site.id().to_string(),
        site_name: site_name(site, site.id()),
        at_ms: moved.at.0,
        vo: moved.from_vo.map(|vo| vo.to_string()),
        path: clean(&moved.from.to_string()),
        jobs: moved.jobs,
        cluster: None,
        job: None,
        instance: None,
        moved_to: Some(AccountBody {
            vo: moved.to_vo.map(|vo| vo.to_string()),
            path: clean(&moved.to.to_string()),
        }),
        charge_core_ms: moved.credit.to_string(),
        by: clean(&moved.by),
        why: clean(&moved.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_job_or_is_its_record() {
        let named: Line = serde_json::from_str("{\"job\": \"4711\"}").expect("a name");
        assert!(matches!(named, Line::Named(Named { cluster: None, .. })));
        let usage = "{\"cluster\":\"c\",\"job\":\"1\",\"user\":\"u\",\"start_ms\":1,\"end_ms\":2,\"cores\":1}";
        assert!(matches!(serde_json::from_str(usage), Ok(Line::Usage(_))));
        for bad in ["{}", "{\"job\": 1}", "{\"job\": \"1\", \"rank\": 2}", "[]"] {
            assert!(serde_json::from_str::<Line>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_does_it_is_whom_the_system_names() {
        let peer = Peer { uid: Some(1_000) };
        assert_eq!(attributed(Some(" ann\n"), peer), "ann (uid 1000)");
        assert_eq!(attributed(None, peer), "uid 1000");
        assert_eq!(attributed(Some(""), Peer { uid: None }), "uid unknown");
    }
}
