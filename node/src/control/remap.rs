//! `POST /v1/remap?since=&dry_run=true` or `&why=[&by=]`: usage of jobs that today's identity rules map to another account
//! moves there, or the answer says what would. For writers only.
//!
//! The record log is read in pages and compared with the rules on a thread beside the driver; the site takes what moves in
//! changes of [`MOVES_MAX`] jobs or a page more.
//!
//! Invariants: each change is durable, whole, before the next is begun; a job that moved is charged to the account that it
//! maps to, so whoever asks again moves the rest, and nothing twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use fairmesh_api::{AccountBody, LeftBody, MoveBody, RemapBody, UncoveredBody};
use fairmesh_model::{AccountPath, JobKey, UsageRecord, VoId, WallTime, clean};
use fairmesh_records::ChargeRule;
use fairmesh_site::{Account, Fate, JobMark, MOVES_MAX, MovedSums, Remap, Remapper, Site};
use serde::Deserialize;

use super::access::Peer;
use super::corrections::attributed;
use super::error::ApiError;
use super::extract::Params;
use super::{Shared, State};
use crate::config::quantity::parse_moment;
use crate::record_log::{Entry, Logged, Place, RecordLog, page};

/// Records that are read at once.
const PAGE_RECORDS: usize = 2_000;

/// Most pairs of accounts, and reasons, that an answer lists.
const PAIRS_MAX: usize = 100_000;
const REASONS_MAX: usize = 100;

const QUOTA: &str = "charged to a quota, which does not move: take them back (`fairmesh correct`), and report them again";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    since: String,
    #[serde(default)]
    dry_run: bool,
    why: Option<String>,
    by: Option<String>,
}

/// What is compared, and what has come of it.
struct Run {
    log: Arc<RecordLog>,
    rule: ChargeRule,
    now: WallTime,
    since: WallTime,
    vos: BTreeMap<VoId, String>,
    words: (String, String),
    dry_run: bool,
    change: Remap,
    /// What the log is to say of jobs that move, once they have.
    entries: Vec<Entry>,
    moved: BTreeMap<(Account, Account), MovedSums>,
    left: BTreeMap<String, u64>,
    read: u64,
    past: u64,
    changes: u64,
}

/// A job of a page, and what becomes of it.
struct Judged {
    job: JobKey,
    fate: Fate,
    /// What the log is to say of it, if that is something else.
    entry: Option<Entry>,
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let since = parse_moment(&query.since).ok_or_else(|| {
        ApiError::bad_request(format!("`{}` is no moment since 1970", query.since))
            .hint("write 2026-11-01, or 2026-11-01T12:00:00Z")
    })?;
    let why = query.why.unwrap_or_default();
    if why.trim().is_empty() && !query.dry_run {
        let error = ApiError::bad_request("usage that moves needs a reason");
        return Err(error.hint("why=…, or dry_run=true"));
    }
    let words = (attributed(query.by.as_deref(), peer), why);
    let (mut run, mut remapper) = Run::begin(&shared, since, words, query.dry_run).await?;
    let mut after = None;
    loop {
        let end;
        (remapper, end) = run.take_page(&shared, remapper, after).await?;
        if end.is_none() || run.change.jobs() >= MOVES_MAX {
            run.apply(&shared, &mut remapper).await?;
        }
        if end.is_none() {
            break;
        }
        after = end;
    }
    shared.answer("remap", run.into_body(&remapper)).await
}

impl Run {
    async fn begin(
        shared: &Shared,
        since: WallTime,
        words: (String, String),
        dry_run: bool,
    ) -> Result<(Self, Remapper), ApiError> {
        let log = shared.options.records.clone().ok_or_else(|| {
            ApiError::not_found(
                "this node keeps no job records, so nobody knows whose usage it was",
            )
            .hint("set `enabled = true` in [records] of its configuration, and start it again")
        })?;
        let begun = move |site: &Site, now| (site.remapper(now, since), now.wall);
        let (mut remapper, now) = shared.node().ask(begun).await?;
        let indexed = tokio::task::spawn_blocking(move || {
            remapper.index();
            remapper
        });
        let remapper = indexed.await.map_err(ApiError::internal)?;
        let settings = shared.options.settings.borrow();
        let run = Self {
            log,
            rule: settings.charge_rule.clone(),
            now,
            since,
            vos: settings.vos.clone(),
            change: remapper.change(&words.0, &words.1),
            words,
            dry_run,
            entries: Vec::new(),
            moved: BTreeMap::new(),
            left: BTreeMap::new(),
            read: 0,
            past: 0,
            changes: 0,
        };
        drop(settings);
        Ok((run, remapper))
    }

    /// Compares the next page. Gives where it ends, if there may be another.
    async fn take_page(
        &mut self,
        shared: &Shared,
        remapper: Remapper,
        after: Option<Place>,
    ) -> Result<(Remapper, Option<Place>), ApiError> {
        let (log, since) = (Arc::clone(&self.log), self.since);
        let read =
            tokio::task::spawn_blocking(move || page(&log.reader()?, since, after, PAGE_RECORDS));
        let read = read.await.map_err(ApiError::internal)?;
        let (logged, end) = read.map_err(|error| {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error)
                .hint("ask again: nothing moves twice")
        })?;
        // What is not charged stands in the log, too.
        let charged = logged.into_iter().filter_map(|logged| {
            let usage = self.rule.usage(&logged.record, self.now).ok()?;
            Some((logged, usage))
        });
        let (logged, usage): (Vec<Logged>, Vec<UsageRecord>) = charged.unzip();
        self.read += logged.len() as u64;
        let marked = shared.node().marked(usage).await?;
        let names = self.vos.clone();
        let judged = tokio::task::spawn_blocking(move || judge(remapper, &names, logged, marked));
        let (remapper, judged) = judged.await.map_err(ApiError::internal)?;
        self.take(shared, judged).await?;
        Ok((remapper, end))
    }

    async fn take(&mut self, shared: &Shared, judged: Vec<Judged>) -> Result<(), ApiError> {
        let moves = |of: &Judged| matches!(of.fate, Fate::Moves(_));
        let jobs: Vec<JobKey> = judged
            .iter()
            .filter(|of| moves(of))
            .map(|of| of.job.clone())
            .collect();
        let asked = shared.node().ask_of_each(jobs, |site, _, jobs| {
            jobs.map(|job| site.is_quota_charged(&job)).collect()
        });
        let mut of_quotas = asked.await?.into_iter();
        for Judged { fate, entry, .. } in judged {
            match fate {
                Fate::Stays => self.entries.extend(entry),
                Fate::Past => self.past += 1,
                Fate::Left(why) => self.leave(&why),
                Fate::Moves(_) if of_quotas.next() == Some(true) => self.leave(QUOTA),
                Fate::Moves(job) => {
                    self.change.add(*job);
                    self.entries.extend(entry);
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, why: &str) {
        let is_listed = self.left.len() < REASONS_MAX || self.left.contains_key(why);
        let why = if is_listed { why } else { "for other reasons" };
        *self.left.entry(why.to_owned()).or_default() += 1;
    }

    /// Moves what was gathered, in one change.
    async fn apply(&mut self, shared: &Shared, remapper: &mut Remapper) -> Result<(), ApiError> {
        let next = Remap::default();
        let change = std::mem::replace(&mut self.change, next);
        let jobs = change.jobs();
        for (pair, sums) in change.moved() {
            self.moved.entry(pair.clone()).or_default().join(*sums);
        }
        let entries = std::mem::take(&mut self.entries);
        if !self.dry_run {
            if jobs > 0 {
                let reported = shared.node().remap(change).await?;
                if let Some((_, why)) = reported.refused.into_iter().next() {
                    return Err(self.refused(&why));
                }
                self.changes += 1;
                remapper.applied();
            }
            // Usage counts where it is now whether or not the books say so: the next run writes it down.
            if let Err(error) = self.log.append(entries).await {
                tracing::warn!(%error, "the record log does not say where usage has moved");
            }
        }
        self.change = remapper.change(&self.words.0, &self.words.1);
        Ok(())
    }

    fn refused(&self, why: &str) -> ApiError {
        let hint = format!(
            "{} durable changes were made before that; ask again for the rest: nothing moves twice",
            self.changes
        );
        ApiError::new(StatusCode::CONFLICT, why).hint(hint)
    }

    fn into_body(self, remapper: &Remapper) -> RemapBody {
        let account = |account: &Account| AccountBody {
            vo: account.vo.map(|vo| name(&self.vos, vo)),
            path: clean(account.path.as_str()),
        };
        let mut all = MovedSums::default();
        self.moved.values().for_each(|sums| all.join(*sums));
        let moves = self.moved.iter().take(PAIRS_MAX);
        let moves = moves.map(|((from, to), sums)| MoveBody {
            from: account(from),
            to: account(to),
            jobs: sums.jobs,
            credit_core_ms: sums.credit.to_string(),
            charge_core_ms: sums.charge.to_string(),
        });
        let uncovered = remapper.uncovered().into_iter().take(PAIRS_MAX);
        let uncovered = uncovered.map(|of| UncoveredBody {
            account: account(&of.account),
            first_day: of.first_day.utc_date(),
            last_day: of.last_day.utc_date(),
            charge_core_ms: of.charge.to_string(),
        });
        let left = self.left.iter().map(|(reason, jobs)| LeftBody {
            reason: clean(reason),
            jobs: *jobs,
        });
        RemapBody {
            dry_run: self.dry_run,
            since_ms: self.since.0,
            read: self.read,
            jobs: all.jobs,
            credit_core_ms: all.credit.to_string(),
            charge_core_ms: all.charge.to_string(),
            changes: self.changes,
            moves: moves.collect(),
            past: self.past,
            left: left.collect(),
            uncovered: uncovered.collect(),
        }
    }
}

fn name(names: &BTreeMap<VoId, String>, vo: VoId) -> String {
    names.get(&vo).cloned().unwrap_or(vo.to_string())
}

/// Compares jobs with the rules. Takes a while.
fn judge(
    mut remapper: Remapper,
    names: &BTreeMap<VoId, String>,
    logged: Vec<Logged>,
    marked: Vec<(Option<JobMark>, UsageRecord)>,
) -> (Remapper, Vec<Judged>) {
    let ids: BTreeMap<String, VoId> = names.keys().map(|vo| (name(names, *vo), *vo)).collect();
    let jobs = logged.into_iter().zip(marked);
    let judged = jobs.map(|(logged, (mark, usage))| {
        let of_log = account_of_log(&ids, &logged);
        let fate = remapper.judge(&usage, mark, of_log.as_ref());
        let (to, is_mapped) = remapper.account_of(&usage);
        let vo = to.vo.map(|vo| name(names, vo));
        let path = is_mapped.then(|| to.path.to_string());
        let is_counted = mark.is_some_and(|mark| !mark.corrected);
        let is_news = is_counted && (&vo, &path) != (&logged.vo, &logged.path);
        Judged {
            job: usage.key,
            fate,
            entry: is_news.then_some(Entry {
                record: logged.record,
                vo,
                path,
                full: logged.full,
                replaces: false,
            }),
        }
    });
    let judged = judged.collect();
    (remapper, judged)
}

/// The account that the log has of a job.
fn account_of_log(ids: &BTreeMap<String, VoId>, logged: &Logged) -> Option<Account> {
    let path = AccountPath::parse(logged.path.as_deref()?).ok()?;
    let vo = match &logged.vo {
        Some(name) => Some(*ids.get(name)?),
        None => None,
    };
    Some(Account { vo, path })
}
