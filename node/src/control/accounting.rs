//! `POST /v1/accounting[?dry_run=true[&at_site=]]`: job records as batch systems wrote them, one JSON object a line,
//! and with `at_site` what that site charges for them by what it has signed; and `GET /v1/accounting`: those that are
//! kept, or what they come to.
//!
//! Invariant: a batch of records is in the record log before any of it is charged; a node
//! that is killed in between has logged what it has not counted, and the same batch, sent again, is counted
//! once and logged once. What is refused for good is not logged: it is listed as refused (`refused`). A dry run changes
//! nothing. Single records are given to writers only, sums to everybody who may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use fairmesh_api::{AccountCharge, AccountingBody};
use fairmesh_model::record::NAME_BYTES_MAX;
use fairmesh_model::{JobKey, SiteId, UsageRecord, clean};
use fairmesh_records::{BatchRecord, RECORD_BYTES_MAX, Skip};
use fairmesh_site::{Account, Estimate, QuotaCall, Site};
use serde::Deserialize;

use super::access::{Peer, check_writer};
use super::error::ApiError;
use super::extract::Params;
use super::feed::Feed;
use super::prices::find_site;
use super::unread::until_read;
use super::{Shared, State, log, refused};
use crate::privacy::PrivateData;
use crate::record_log::{LogError, Run};
use crate::refused::RefusedJob;
use crate::sockets::Slot;

mod list;
pub(super) mod retry;

pub(super) use list::get;

/// Records that are logged and charged at once: each batch costs a transaction of the log and a sync.
const BATCH_RECORDS: usize = 1_000;

/// Most accounts that a dry run lists: bounds its answer. The records of more are added up in one.
const ACCOUNTS_MAX: usize = 100_000;

/// The same of one who does not see all, and the longest record of his: he may have 32 bodies that trickle. A job on
/// ten thousand nodes names them in some 200 KB.
const OTHERS_ACCOUNTS_MAX: usize = 10_000;
const OTHERS_RECORD_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PostQuery {
    #[serde(default)]
    dry_run: bool,
    at_site: Option<String>,
}

/// What becomes of records.
#[derive(Clone, Copy)]
enum Purpose {
    /// They are kept and counted.
    Count,
    /// The answer says what they would count, and which are known, where the asker may know that.
    Estimate { tells_jobs: bool },
    /// The answer says what another site charges for them.
    Check(SiteId),
}

/// What was not charged, and what would be.
#[derive(Default)]
struct Outcome {
    skipped: BTreeMap<String, u64>,
    logged: u64,
    accounts_max: usize,
    accounts: BTreeMap<(Account, bool), (u64, u128)>,
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    Extension(slot): Extension<Arc<Slot>>,
    Params(query): Params<PostQuery>,
    body: Body,
) -> Result<Response, ApiError> {
    if !query.dry_run {
        check_writer(&shared, peer, "/v1/accounting")?;
    }
    let turn = slot.turn_after(shared.resolver.meet(peer.uid)).await;
    let purpose = purpose(&shared, peer, query).await?;
    drop(turn);
    let (record_bytes_max, accounts_max) = match shared
        .options
        .settings
        .borrow()
        .access
        .may_read_all(peer.uid)
    {
        true => (RECORD_BYTES_MAX, ACCOUNTS_MAX),
        false => (OTHERS_RECORD_BYTES_MAX, OTHERS_ACCOUNTS_MAX),
    };
    let mut feed = Feed::new(&shared, body, record_bytes_max);
    let mut outcome = Outcome {
        accounts_max,
        ..Outcome::default()
    };
    while let Some(records) = feed.next(BATCH_RECORDS).await? {
        let _turn = slot.turn().await;
        hand_over(&shared, purpose, records, &mut feed, &mut outcome).await?;
    }
    let turn = slot.turn().await;
    let body = AccountingBody {
        report: feed.into_report(),
        skipped: outcome.skipped,
        logged: outcome.logged,
        accounts: charges(&shared, outcome.accounts),
    };
    let answer = shared.answer("report", body).await?;
    Ok(until_read(answer.into_response(), turn.own()))
}

async fn purpose(shared: &Shared, peer: Peer, query: PostQuery) -> Result<Purpose, ApiError> {
    let Some(wanted) = query.at_site else {
        let tells_jobs = !shared.visibility(peer).await.hides(PrivateData::Jobs);
        let dry_run = query.dry_run.then_some(Purpose::Estimate { tells_jobs });
        return Ok(dry_run.unwrap_or(Purpose::Count));
    };
    if !query.dry_run {
        let why = "what another site charges can be looked at, not counted";
        let error = ApiError::new(StatusCode::BAD_REQUEST, why);
        return Err(error.hint("`at_site` needs `dry_run=true`"));
    }
    let found = shared.node().ask(move |site, _| find_site(site, &wanted));
    Ok(Purpose::Check(found.await??))
}

/// Records of a batch, by what becomes of them.
#[derive(Default)]
struct Batch {
    /// Each with its position in `usage`, if it is charged.
    kept: Vec<(BatchRecord, Option<usize>)>,
    usage: Vec<UsageRecord>,
    /// The lines of those.
    numbers: Vec<u64>,
    /// Jobs that have ended and are charged nothing.
    free: Vec<JobKey>,
    /// What is refused for good, with its lines.
    refused: (Vec<u64>, Vec<RefusedJob>),
}

impl Batch {
    fn take(
        &mut self,
        (number, record): (u64, BatchRecord),
        charged: Result<UsageRecord, Skip>,
        feed: &mut Feed<BatchRecord>,
        skipped: &mut BTreeMap<String, u64>,
    ) {
        let charged = charged.map_err(|skip| (has_good_key(&record), skip));
        match charged {
            Ok(charged) => {
                self.kept.push((record, Some(self.usage.len())));
                self.usage.push(charged);
                self.numbers.push(number);
            }
            Err((is_good, Skip::Invalid(why))) => {
                feed.refuse(number, &why.to_string());
                if is_good {
                    self.refuse(number, &record, why.to_string());
                }
            }
            Err((is_good, skip)) => {
                *skipped.entry(skip.name().to_owned()).or_default() += 1;
                // A job that waits has no record yet.
                if skip != Skip::NotStarted && is_good {
                    self.free.push(record.key.clone());
                    self.kept.push((record, None));
                }
            }
        }
    }

    fn refuse(&mut self, number: u64, record: &BatchRecord, why: String) {
        self.refused.0.push(number);
        self.refused.1.push(RefusedJob::new(record, why));
    }

    /// Takes those out of what is logged that are refused for good, by their positions in `usage`.
    fn set_aside(&mut self, reasons: &BTreeMap<usize, String>) {
        for (record, index) in std::mem::take(&mut self.kept) {
            let refused = index.and_then(|index| Some((self.numbers[index], reasons.get(&index)?)));
            match refused {
                Some((number, why)) => self.refuse(number, &record, why.clone()),
                None => self.kept.push((record, index)),
            }
        }
    }
}

async fn hand_over(
    shared: &Shared,
    purpose: Purpose,
    records: Vec<(u64, BatchRecord)>,
    feed: &mut Feed<BatchRecord>,
    outcome: &mut Outcome,
) -> Result<(), ApiError> {
    let now = shared.node().now().wall;
    let records = log::settle_keys(shared, records, |(_, record)| {
        Some(Run {
            key: &mut record.key,
            label: record.label.as_deref(),
            start: record.start?,
            end: record.end,
        })
    });
    let records = records.await?;
    let rule = shared.charge_rule();
    let mut batch = Batch::default();
    for (number, record) in records {
        let charged = rule.usage(&record, now);
        batch.take((number, record), charged, feed, &mut outcome.skipped);
    }
    let usage = std::mem::take(&mut batch.usage);
    let estimates = match purpose {
        Purpose::Count => {
            batch.usage = usage;
            return keep_and_count(shared, batch, feed, outcome).await;
        }
        Purpose::Estimate { tells_jobs: true } => shared.node().estimate(usage).await?,
        Purpose::Estimate { tells_jobs: false } => shared.node().estimate_unknown(usage).await?,
        Purpose::Check(at) => shared.node().estimate_at(usage, at).await?,
    };
    estimated(&batch.numbers, estimates, feed, outcome);
    Ok(())
}

/// Counts records that the node has kept, each with a number for the feed.
pub(super) async fn count(
    shared: &Shared,
    records: Vec<(u64, BatchRecord)>,
    feed: &mut Feed<BatchRecord>,
) -> Result<(), ApiError> {
    hand_over(
        shared,
        Purpose::Count,
        records,
        feed,
        &mut Outcome::default(),
    )
    .await
}

async fn keep_and_count(
    shared: &Shared,
    mut batch: Batch,
    feed: &mut Feed<BatchRecord>,
    outcome: &mut Outcome,
) -> Result<(), ApiError> {
    let usage = std::mem::take(&mut batch.usage);
    let (usage, reasons) = refused::reasons(shared, usage).await?;
    batch.set_aside(&reasons);
    refused::note(shared, batch.refused, feed).await?;
    let again = shared.node().counts_again(&usage).await?;
    let known = |index: Option<usize>| again.get(&index?).copied();
    let kept = batch.kept.into_iter();
    let kept = kept.map(|(record, index)| (record, known(index)));
    let logged = log::keep(shared, kept.collect(), true).await;
    outcome.logged += logged.map_err(unlogged)?;
    let listed = refused::listed(shared, &usage).await;
    let reported = shared.node().report(usage).await?;
    feed.add(&reported, &batch.numbers);
    if listed.is_some() {
        refused::forget(shared, batch.free.clone()).await;
    }
    refused::accepted(shared, listed, &reported).await;
    release(shared, batch.free).await
}

/// Frees what jobs hold that have ended and are charged nothing.
async fn release(shared: &Shared, jobs: Vec<JobKey>) -> Result<(), ApiError> {
    let held = move |site: &Site, _| {
        let held = jobs.into_iter().filter(|job| site.has_hold(job));
        held.collect::<Vec<_>>()
    };
    for job in shared.node().ask(held).await? {
        // One that is gone by now is free.
        let _ = shared.node().quota(QuotaCall::Release { job }).await?;
    }
    Ok(())
}

/// Whether a record that is not charged may be logged: what is charged was checked for that.
fn has_good_key(record: &BatchRecord) -> bool {
    let good = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len());
    good(&record.key.cluster) && good(&record.key.job)
}

fn estimated(
    numbers: &[u64],
    estimates: Vec<Estimate>,
    feed: &mut Feed<BatchRecord>,
    outcome: &mut Outcome,
) {
    for (number, estimate) in numbers.iter().zip(estimates) {
        let (account, mapped, counters, late) = match estimate {
            Estimate::Known => {
                feed.report.known += 1;
                continue;
            }
            Estimate::TakenBack(at) => {
                feed.report.known += 1;
                feed.not_again(at, 1);
                continue;
            }
            Estimate::Refused(why) => {
                feed.refuse(*number, &why);
                continue;
            }
            Estimate::Counted {
                account,
                mapped,
                counters,
                late,
            } => (account, mapped, counters, late),
        };
        feed.report.counted += 1;
        feed.report.late += u64::from(late);
        feed.report.unmapped += u64::from(!mapped);
        feed.charge = feed.charge.saturating_add(counters.charge);
        feed.credited = feed.credited.saturating_add(counters.refunds);
        let accounts = &mut outcome.accounts;
        let key = (account, mapped);
        let key = if accounts.len() < outcome.accounts_max || accounts.contains_key(&key) {
            key
        } else {
            (fairmesh_site::IdentityMap::nowhere(), true)
        };
        let (records, charge) = accounts.entry(key).or_default();
        *records += 1;
        *charge = charge.saturating_add(u128::from(counters.charge));
    }
}

fn charges(
    shared: &Shared,
    accounts: BTreeMap<(Account, bool), (u64, u128)>,
) -> Vec<AccountCharge> {
    let settings = shared.options.settings.borrow();
    let name = |vo: fairmesh_model::VoId| settings.vos.get(&vo).cloned().unwrap_or(vo.to_string());
    let rows = accounts.into_iter();
    rows.map(|((account, mapped), (records, charge))| AccountCharge {
        vo: account.vo.map(name),
        path: clean(&account.path.to_string()),
        mapped,
        records,
        charge_core_ms: charge.to_string(),
    })
    .collect()
}

fn unlogged(error: LogError) -> ApiError {
    tracing::error!(%error, "job records cannot be logged, so they were not counted either");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).hint(
        "nothing of this batch was counted: send it again when the disk has room, or do without the \
         log ([records] enabled = false)",
    )
}
