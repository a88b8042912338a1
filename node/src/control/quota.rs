//! `POST /v1/quota/hold`, `commit`, `release` and `drain`; `POST /v1/quota/check` and `quote`; and `GET
//! /v1/quota[?vo=][&path=]`: what a batch system asks about a job's quota, what a job would cost, and what is
//! left of an account's credit.
//!
//! Invariant: what the answer says is held, charged or free is durable; a call that is repeated gets the same
//! answer. Only writers hold and charge: whoever reads sees sums, and no single job.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use fairmesh_api::{
    HoldBody, QuotaAccountBody, QuotaBody, QuotaPartBody, QuotaSliceBody, QuoteBody, QuotesBody,
    RestsOn, SettledBody,
};
use fairmesh_model::record::RUN_MAX;
use fairmesh_model::{
    AccountPath, Allocation, AllocationId, CoreMillis, Importance, JobKey, Millis, Now, Origin,
    Placement, SiteId, UsageRecord, VoId, WallTime, clean,
};
use fairmesh_quota::burn::runs_out;
use fairmesh_quota::{Decider, Part, Totals};
use fairmesh_records::ChargeRule;
use fairmesh_site::{Account, HoldCall, QuotaAnswer, QuotaCall, QuotaReply, Site};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::State;
use super::access::hidden;
use super::error::ApiError;
use super::extract::{Params, parse_path, whole};
use super::rests_on::{answer, rests_on, site_name};
use super::usage::find_vos;
use crate::privacy::{PrivateData, Visibility};

/// Largest call: one job.
const CALL_BYTES_MAX: usize = 64 << 10;

/// A job that asks.
#[derive(Debug, Deserialize)]
struct Asking {
    #[serde(flatten)]
    key: JobKey,
    #[serde(flatten)]
    origin: Origin,
    cores: u32,
    #[serde(default)]
    gpus: u32,
    #[serde(default)]
    mem_mib: u64,
    #[serde(flatten)]
    placement: Placement,
    /// How long it may run.
    wall_s: u64,
    /// The account whose credit it is to spend.
    credit: Option<AccountPath>,
    /// Whether the caller can wait a moment for rights of other members.
    #[serde(default = "yes")]
    wait: bool,
    /// Whether the owner exempts it.
    #[serde(default)]
    exempt: bool,
    /// How important it is, from 0 to 200; what that costs is the allocation's to say.
    #[serde(default)]
    importance: Importance,
    /// Of a check: what others are about to hold of the same account, core-milliseconds.
    #[serde(default)]
    ahead_core_ms: u64,
}

fn yes() -> bool {
    true
}

impl Asking {
    fn call(self, now: WallTime, rule: &ChargeRule) -> Result<HoldCall, ApiError> {
        Ok(HoldCall {
            record: self.record(now, rule)?,
            account: self.credit,
            is_exempt: self.exempt,
            may_wait: self.wait,
            importance: self.importance,
        })
    }

    /// As a record of the job, had it run as long as it may up to now.
    fn record(&self, now: WallTime, rule: &ChargeRule) -> Result<UsageRecord, ApiError> {
        if self.wall_s == 0 || Millis::from_secs(self.wall_s) > RUN_MAX {
            let error = format!(
                "wall_s is {}, and a job runs for 1 s to ten years",
                self.wall_s
            );
            return Err(ApiError::bad_request(error));
        }
        Ok(UsageRecord {
            key: self.key.clone(),
            origin: self.origin.clone(),
            start: WallTime(now.0.saturating_sub(self.wall_s * 1_000)),
            end: now,
            cores: self.cores,
            gpus: self.gpus,
            mem_mib: self.mem_mib,
            // As of the record by which it will be charged.
            placement: rule.placed(self.placement.clone()),
            running: false,
        })
    }
}

/// A job that has ended, by hand.
#[derive(Debug, Deserialize)]
struct Committing {
    #[serde(flatten)]
    key: JobKey,
    /// What it is charged, core-milliseconds.
    charge_core_ms: u64,
}

pub(super) async fn hold(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let asking: Asking = read(&shared, body).await?;
    let call = asking.call(shared.node().now().wall, &shared.charge_rule())?;
    let (rests_on, held) = called(&shared, QuotaCall::Hold(Box::new(call))).await?;
    Ok(answer("hold", rests_on, hold_body(held)))
}

/// Whether the reader sees what is left of the credit that the job would spend: that of the entry where its usage counts,
/// which may be a group's, and of the account that pays.
fn check_seen(
    visibility: &Visibility,
    site: &Site,
    origin: &Origin,
    reply: &QuotaReply,
) -> Result<(), ApiError> {
    let view = site.view();
    let sees_place = view.account(origin).is_none_or(|account| {
        let entry = view.locate(&account).entry;
        visibility.sees_entry(PrivateData::Usage, view.reader().path(entry))
    });
    let sees_payer = match reply {
        Ok(QuotaAnswer::Held { vo, answer }) => answer.account.as_ref().is_none_or(|path| {
            let (vo, path) = (*vo, path.clone());
            visibility.sees(PrivateData::Usage, &Account { vo, path })
        }),
        _ => true,
    };
    let whose = || origin.user.clone().unwrap_or_default();
    (sees_place && sees_payer)
        .then_some(())
        .ok_or_else(|| hidden(format!("the credit of {}", whose())))
}

pub(super) async fn check(
    axum::extract::State(shared): State,
    visibility: Visibility,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let asking: Asking = read(&shared, body).await?;
    let ahead = CoreMillis(asking.ahead_core_ms);
    let rule = shared.charge_rule();
    let checked = move |site: &Site, now: Now| {
        let origin = asking.origin.clone();
        let call = asking.call(now.wall, &rule)?;
        // Short of all of it, where others take everything that there is.
        let alone = site.check_quota(now, call.clone(), CoreMillis(u64::MAX));
        let reply = site.check_quota(now, call, ahead);
        check_seen(&visibility, site, &origin, &reply)?;
        Ok((reply, alone))
    };
    let (rests_on, (reply, alone)) = shared.ask(checked).await?;
    let alone = hold_body(understood(alone)?);
    let body = HoldBody {
        needs_core_ms: Some(alone.short_core_ms),
        ..hold_body(understood(reply)?)
    };
    Ok(answer("hold", rests_on, body))
}

fn hold_body(held: QuotaAnswer) -> HoldBody {
    let QuotaAnswer::Held { vo, answer: held } = held else {
        unreachable!("a hold is answered by a hold")
    };
    HoldBody {
        verdict: word(&held.verdict),
        runs: held.verdict.runs(),
        by: held.by.map(decider),
        vo: vo.map(|vo| vo.to_string()),
        account: held.account.map(|account| clean(account.as_str())),
        held_core_ms: total(&held.parts).0.to_string(),
        parts: held.parts.iter().map(part_body).collect(),
        short_core_ms: held.short.0.to_string(),
        needs_core_ms: None,
        price: held.price.to_string(),
        message: held.message.as_deref().map(clean),
    }
}

pub(super) async fn commit(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let Committing {
        key,
        charge_core_ms,
    } = read(&shared, body).await?;
    let charge = CoreMillis(charge_core_ms);
    settled(&shared, QuotaCall::Commit { job: key, charge }).await
}

pub(super) async fn release(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let job: JobKey = read(&shared, body).await?;
    settled(&shared, QuotaCall::Release { job }).await
}

pub(super) async fn drain(
    axum::extract::State(shared): State,
) -> Result<impl IntoResponse, ApiError> {
    settled(&shared, QuotaCall::Drain).await
}

async fn settled(
    shared: &super::Shared,
    call: QuotaCall,
) -> Result<impl IntoResponse + use<>, ApiError> {
    let mut body = SettledBody::default();
    let (rests_on, settled) = called(shared, call).await?;
    match settled {
        QuotaAnswer::Committed(committed) => {
            body.used_core_ms = total(&committed.used).0.to_string();
            body.overdraft_core_ms = committed.overdraft.0.to_string();
            body.pending_core_ms = committed.pending.0.to_string();
            body.unasked = committed.is_unasked;
        }
        QuotaAnswer::Drained(gone) => body.sent_core_ms = gone.0.to_string(),
        QuotaAnswer::Released | QuotaAnswer::Held { .. } => {}
    }
    Ok(answer("settled", rests_on, body))
}

/// Makes a call, in one trip to the node's task with what its answer rests on.
async fn called(
    shared: &super::Shared,
    call: QuotaCall,
) -> Result<(RestsOn, QuotaAnswer), ApiError> {
    let (reply, rests_on) = shared.node().quota_with(call, rests_on).await?;
    Ok((rests_on, understood(reply)?))
}

fn understood(reply: QuotaReply) -> Result<QuotaAnswer, ApiError> {
    reply.map_err(|why| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, why))
}

async fn read<T: DeserializeOwned>(shared: &super::Shared, body: Body) -> Result<T, ApiError> {
    let bytes = whole(body, CALL_BYTES_MAX, shared.options.limits.body_idle_max).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(format!("no call: {error}")).hint(
            "one JSON object: cluster, job, instance; of a hold user, account, cores, wall_s, too",
        )
    })
}

pub(super) async fn quote(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let asking: Asking = read(&shared, body).await?;
    let rule = shared.charge_rule();
    let quoted = move |site: &Site, now: Now| {
        let record = asking.record(now.wall, &rule)?;
        Ok(quotes(site, now, &record, asking.importance))
    };
    let (rests_on, quotes) = shared.ask(quoted).await?;
    Ok(answer("quotes", rests_on, QuotesBody { quotes }))
}

/// What the job would cost at each site that says what its machines cost, the cheapest first; those that
/// could not run it last.
fn quotes(site: &Site, now: Now, record: &UsageRecord, importance: Importance) -> Vec<QuoteBody> {
    let vo = site.view().account(record).and_then(|of| of.vo);
    let others = vo.into_iter().flat_map(|vo| site.descriptions(vo));
    let others: Vec<SiteId> = others
        .map(|(id, _)| id)
        .filter(|id| *id != site.id())
        .collect();
    let mut quotes: Vec<(u64, QuoteBody)> = [site.id()]
        .into_iter()
        .chain(others)
        .map(|id| {
            let quote = site.quote(now, record, importance, id);
            let of = quote.as_ref().ok();
            let body = QuoteBody {
                site: id.to_string(),
                name: site_name(site, id),
                charge_core_ms: of.map(|quote| quote.cost.0.to_string()),
                price: of.map_or_else(|| "1".to_owned(), |quote| quote.price.to_string()),
                price_age_ms: of
                    .and_then(|quote| quote.since)
                    .map(|since| now.wall.since(since).0),
                why_not: quote.as_ref().err().map(|why| clean(why)),
            };
            (quote.map_or(u64::MAX, |quote| quote.cost.0), body)
        })
        .collect();
    quotes.sort_by(|(a, of_a), (b, of_b)| (a, &of_a.site).cmp(&(b, &of_b.site)));
    quotes.into_iter().map(|(_, body)| body).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: Option<String>,
    path: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let listed = move |site: &Site, now: Now| {
        let (vo, path) = (query.vo.as_deref(), query.path.as_deref());
        let asked = QuotaQuery::of(site, now, visibility, (vo, path))?;
        let vos = asked.vos.iter().map(|(vo, _)| *vo);
        Ok((accounts_with_credit(site, vos), asked))
    };
    let (rests_on, (accounts, asked)) = shared.ask(listed).await?;
    let asked = Arc::new(asked);
    let bodies = move |site: &Site, now, some: &mut dyn Iterator<Item = (VoId, AccountPath)>| {
        let wanted = some.filter(|(vo, path)| asked.wants(*vo, path));
        let body = |(vo, path)| account_body(site, now, (vo, asked.name(vo)), &path);
        wanted.filter_map(body).collect()
    };
    let accounts = shared.node().ask_of_each(accounts, bodies).await?;
    Ok(answer("quota", rests_on, QuotaBody { accounts }))
}

/// The accounts that a request about quotas names, and what its reader may see.
pub(super) struct QuotaQuery {
    pub(super) visibility: Visibility,
    /// The VOs, each with its name.
    pub(super) vos: Vec<(VoId, Option<String>)>,
    /// Only accounts at, above and below this path; `None` for all.
    path: Option<AccountPath>,
}

impl QuotaQuery {
    /// From the parameters `vo` and `path`; each may be absent, for all.
    pub(super) fn of(
        site: &Site,
        now: Now,
        visibility: Visibility,
        (vo, path): (Option<&str>, Option<&str>),
    ) -> Result<Self, ApiError> {
        // As the message to a user names it, too.
        let path = path.map(|path| parse_path(&format!("/{}", path.trim_start_matches('/'))));
        Ok(Self {
            visibility,
            vos: find_vos(site, now, vo)?,
            path: path.transpose()?,
        })
    }

    pub(super) fn name(&self, vo: VoId) -> Option<String> {
        let mut vos = self.vos.iter();
        vos.find(|(of, _)| *of == vo)
            .and_then(|(_, name)| name.clone())
    }

    /// Whether the query covers an account and its reader may see it.
    pub(super) fn wants(&self, vo: VoId, path: &AccountPath) -> bool {
        let wanted = self.path.as_ref();
        wanted.is_none_or(|wanted| path.starts_with(wanted) || wanted.starts_with(path))
            && self.visibility.sees(PrivateData::Usage, &account(vo, path))
    }
}

/// An account of a VO.
pub(super) fn account(vo: VoId, path: &AccountPath) -> Account {
    let (vo, path) = (Some(vo), path.clone());
    Account { vo, path }
}

/// The accounts of these VOs with credit of their own.
pub(crate) fn accounts_with_credit(
    site: &Site,
    vos: impl Iterator<Item = VoId>,
) -> Vec<(VoId, AccountPath)> {
    let ledgers = vos.filter_map(|vo| Some((vo, site.ledger(vo)?)));
    let accounts = ledgers.flat_map(|(vo, ledger)| {
        let paths = ledger.grants().paths();
        paths.map(move |path| (vo, path.clone()))
    });
    accounts.collect()
}

/// What is left of an account's credit.
fn account_body(
    site: &Site,
    now: Now,
    (vo, vo_name): (VoId, Option<String>),
    path: &AccountPath,
) -> Option<QuotaAccountBody> {
    let ledger = site.ledger(vo)?;
    let unheard = ledger
        .unheard()
        .map(|id| site_name(site, id).unwrap_or_else(|| id.to_string()));
    let slices = ledger.grants().slices_of(path).into_iter();
    let slices: Vec<_> = slices
        .map(|(id, slice)| (id, slice, ledger.slice_totals(id, now.wall)))
        .collect();
    let totals = slices
        .iter()
        .fold(Totals::default(), |sum, (_, _, of)| sum.plus(*of));
    let burn = site.burn(vo, path);
    let left = slices.iter().map(|(_, slice, totals)| {
        let left = totals.spendable + totals.to_come + totals.on_the_way;
        (left, *slice)
    });
    let runs_out = burn.and_then(|per_day| runs_out(now.wall, per_day, left));
    let slices = slices.iter().map(|(id, slice, totals)| QuotaSliceBody {
        allocation: id.allocation.to_string(),
        slice: id.index,
        start_ms: slice.start.0,
        end_ms: slice.end.0,
        totals: totals_body(totals),
    });
    Some(QuotaAccountBody {
        vo: vo.to_string(),
        vo_name,
        path: clean(path.as_str()),
        mode: mode(site, vo, ledger.grants().terms(path, now.wall)),
        mode_by_owner: mode_by_owner(site, vo),
        price: site.price_of(vo, path, now).to_string(),
        totals: totals_body(&totals),
        burn_core_ms_per_day: burn.map(|per_day| per_day.to_string()),
        runs_out_ms: runs_out.map(|at| at.0),
        unheard: unheard.collect(),
        slices: slices.collect(),
    })
}

/// What becomes of jobs beyond an account's credit at this site.
fn mode(site: &Site, vo: VoId, terms: Option<(AllocationId, &Allocation)>) -> String {
    let owner = site.owner_quota(vo);
    if owner.is_some_and(|owner| owner.is_off) {
        return "off".to_owned();
    }
    let of_owner = owner.and_then(|owner| owner.mode);
    terms.map_or_else(String::new, |(_, terms)| {
        word(&of_owner.or(terms.mode).unwrap_or_default())
    })
}

fn mode_by_owner(site: &Site, vo: VoId) -> bool {
    let owner = site.owner_quota(vo);
    owner.is_some_and(|owner| owner.is_off || owner.mode.is_some())
}

pub(super) fn totals_body(totals: &Totals) -> fairmesh_api::QuotaTotalsBody {
    fairmesh_api::QuotaTotalsBody {
        granted_core_ms: totals.granted.to_string(),
        passed_on_core_ms: totals.passed_on.to_string(),
        lacking_core_ms: totals.lacking.to_string(),
        used_core_ms: totals.used.to_string(),
        held_core_ms: totals.held.to_string(),
        spendable_core_ms: totals.spendable.to_string(),
        here_core_ms: totals.here.to_string(),
        to_come_core_ms: totals.to_come.to_string(),
        perished_core_ms: totals.perished.to_string(),
        on_the_way_core_ms: totals.on_the_way.to_string(),
        overdraft_core_ms: totals.overdraft.to_string(),
    }
}

fn part_body(part: &Part) -> QuotaPartBody {
    QuotaPartBody {
        allocation: part.slice.allocation.to_string(),
        slice: part.slice.index,
        core_ms: part.amount.0.to_string(),
    }
}

pub(super) fn total(parts: &[Part]) -> CoreMillis {
    parts.iter().map(|part| part.amount).sum()
}

pub(super) fn decider(by: Decider) -> String {
    match by {
        Decider::Owner => "owner".to_owned(),
        Decider::Allocation(id) => format!("allocation {id}"),
        Decider::Vo => "vo".to_owned(),
    }
}

/// The word of a value that is written as one.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
