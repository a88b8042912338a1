//! `GET /v1/quota/history[?vo=][&path=][&all=true]`: who granted what, which rights went to other sites and came from
//! them, and which jobs ran beyond their quota or beside it; and `GET /v1/quota/summary[?month=][&vo=][&path=]`: what
//! each account's users were charged in a month, at each site.
//!
//! The summary is of what members have signed of usage in their heads, so any node of the VO has it of all sites.
//! Invariant: what one job did is told to its user and to those who see all, and it is this site's alone; sums are told to
//! whoever may see them.
//! Deliberately not here: jobs whose marks the store has let go of, as the VO's history passes over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::response::IntoResponse;
use fairmesh_model::{
    AccountPath, Allocation, CoreMillis, Counters, JobKey, Now, Signed, SiteId, VoId, WallTime,
};
use fairmesh_site::rights::{Cell, Mark, Verdict};
use fairmesh_site::{Moved, Site};
use jiff::{ToSpan as _, civil::Date};
use serde::Deserialize;

use super::State;
use super::access::Peer;
use super::answer::{
    QuotaDocumentBody, QuotaHistoryBody, QuotaJobBody, QuotaSummaryBody, QuotaTransferBody,
    QuotaUserBody,
};
use super::error::ApiError;
use super::extract::Params;
use super::quota::{Asked, account, decider, total, word};
use super::rests_on::{answer, site_name};
use super::text::clean;
use crate::privacy::{Sight, What};

/// Jobs that are told of at most, the newest.
const JOBS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: Option<String>,
    path: Option<String>,
    /// Those that ran within their quota, too.
    #[serde(default)]
    all: bool,
    /// `2026-11`; this month where none is named.
    month: Option<String>,
}

impl Query {
    fn asked(&self, site: &Site, now: Now, sight: Sight) -> Result<Asked, ApiError> {
        let named = (self.vo.as_deref(), self.path.as_deref());
        Asked::of(site, now, sight, named)
    }
}

pub(super) async fn history(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let sight = shared.own_sight(peer).await;
    let found = move |site: &Site, now: Now| {
        let asked = query.asked(site, now, sight)?;
        let is_known = asked.sight.is_known();
        let jobs = is_known.then(|| jobs(site, &asked, query.all));
        let signed = asked.vos.iter().map(|(vo, _)| site.allocations(*vo));
        let moved = (transfers(site, &asked), jobs);
        Ok((signed.collect::<Vec<_>>(), moved, asked))
    };
    let (rests_on, (signed, (transfers, jobs), asked)) = shared.ask(found).await?;
    // They are read here and not on the node's own task.
    let documents = documents(&signed, &asked);
    let body = QuotaHistoryBody {
        documents,
        transfers,
        jobs,
    };
    Ok(answer("quota_history", rests_on, body))
}

/// What authorities of each VO have signed, in that order.
fn documents(signed: &[Vec<Arc<[u8]>>], asked: &Asked) -> Vec<QuotaDocumentBody> {
    let mut found = Vec::new();
    for ((vo, name), of_vo) in asked.vos.iter().zip(signed) {
        for bytes in of_vo {
            let Ok(signed) = Signed::<Allocation>::parse(bytes) else {
                continue;
            };
            let of = signed.claimed();
            if !asked.wants(*vo, &of.path) {
                continue;
            }
            let granted: u128 = of
                .slices
                .iter()
                .map(|slice| u128::from(slice.amount.0))
                .sum();
            let ends = of.slices.iter().map(|slice| slice.end.0).max();
            let id = of.id.unwrap_or_else(|| signed.hash().into());
            found.push(QuotaDocumentBody {
                vo: vo.to_string(),
                vo_name: name.clone(),
                path: clean(of.path.as_str()),
                allocation: id.to_string(),
                version: of.version,
                issued_ms: of.issued.0,
                signers: signed.signers().map(|key| key.to_string()).collect(),
                granted_core_ms: granted.to_string(),
                ends_ms: ends.unwrap_or(0),
            });
        }
    }
    found.sort_by(|a, b| (a.issued_ms, &a.allocation).cmp(&(b.issued_ms, &b.allocation)));
    found
}

/// The rights that went and came, the newest first.
fn transfers(site: &Site, asked: &Asked) -> Vec<QuotaTransferBody> {
    let mut found = Vec::new();
    for (vo, vo_name) in &asked.vos {
        let Some(ledger) = site.ledger(*vo) else {
            continue;
        };
        for Moved { at, transfer } in site.transfers(*vo) {
            let part = |id| {
                ledger
                    .grants()
                    .get(id)
                    .map(|part| clean(part.path.as_str()))
            };
            let (way, other, part) = match transfer.cell {
                Cell::Sent(to) => ("to", to, None),
                Cell::Taken(from) => ("from", from, None),
                Cell::Passed(id) => ("passed_on", site.id(), part(id)),
                _ => continue,
            };
            let id = transfer.slice;
            let granted = ledger.grants().get(id.allocation);
            let Some(of) = granted.filter(|of| asked.wants(*vo, &of.path)) else {
                continue;
            };
            found.push(QuotaTransferBody {
                at_ms: at.0,
                vo: vo.to_string(),
                vo_name: vo_name.clone(),
                path: clean(of.path.as_str()),
                allocation: id.allocation.to_string(),
                slice: id.index,
                way: way.to_owned(),
                site: other.to_string(),
                site_name: site_name(site, other),
                part,
                core_ms: transfer.amount.0.to_string(),
                before_core_ms: transfer.before.0.to_string(),
                after_core_ms: transfer.after.0.to_string(),
            });
        }
    }
    found.reverse();
    found.sort_by_key(|of| std::cmp::Reverse(of.at_ms));
    found
}

/// The jobs of this site, the newest first.
fn jobs(site: &Site, asked: &Asked, all: bool) -> Vec<QuotaJobBody> {
    let mut found: Vec<(WallTime, &JobKey, &Mark)> = Vec::new();
    for (vo, _) in &asked.vos {
        let marks = site
            .ledger(*vo)
            .into_iter()
            .flat_map(|ledger| ledger.marks());
        // Of many jobs few are odd, and all are of a few accounts and users: what each may see is worked out once.
        let (mut wanted, mut own) = (BTreeMap::new(), BTreeMap::new());
        let marks = marks.filter(|(_, mark)| {
            let of = &mark.account;
            (all || is_odd(mark))
                && *wanted.entry(of).or_insert_with(|| asked.wants(*vo, of))
                && *own
                    .entry(&mark.user)
                    .or_insert_with(|| is_own(site, asked, *vo, mark))
        });
        found.extend(marks.map(|(job, mark)| (mark.at, job, mark)));
    }
    found.sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)));
    found.truncate(JOBS_MAX);
    let body = |(at, job, mark): (WallTime, &JobKey, &Mark)| QuotaJobBody {
        at_ms: at.0,
        account: clean(mark.account.as_str()),
        user: mark.user.as_ref().map(|user| clean(user.as_str())),
        cluster: clean(&job.cluster),
        job: clean(&job.job),
        instance: job.instance,
        state: word(&mark.state),
        verdict: word(&mark.verdict),
        by: mark.by.map(decider),
        price: mark.price.to_string(),
        held_core_ms: total(&mark.parts).0.to_string(),
        used_core_ms: total(&mark.used).0.to_string(),
        overdraft_core_ms: overdraft(mark).0.to_string(),
    };
    found.into_iter().map(body).collect()
}

/// Whether the job is the reader's, or he sees all.
fn is_own(site: &Site, asked: &Asked, vo: VoId, mark: &Mark) -> bool {
    let may_charge =
        |(user, path): (&str, &AccountPath)| site.view().may_charge(user, &account(vo, path));
    let both = asked.sight.user().zip(mark.user.as_ref());
    asked.sight.is_all() || both.is_some_and(may_charge)
}

fn overdraft(mark: &Mark) -> CoreMillis {
    mark.overdraft.map_or(CoreMillis(0), |part| part.amount)
}

/// Whether a job ran beyond its quota, or beside it.
fn is_odd(mark: &Mark) -> bool {
    mark.verdict != Verdict::Granted || mark.by.is_none() || overdraft(mark).0 > 0
}

pub(super) async fn summary(
    axum::extract::State(shared): State,
    sight: Sight,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let summed = move |site: &Site, now: Now| {
        let asked = query.asked(site, now, sight)?;
        let days = month(query.month.as_deref(), now.wall)?;
        Ok(users(site, &asked, days))
    };
    let (rests_on, body) = shared.ask(summed).await?;
    Ok(answer("quota_summary", rests_on, body))
}

/// A month, and its days since the epoch, the last excluded.
fn month(wanted: Option<&str>, now: WallTime) -> Result<(String, std::ops::Range<u32>), ApiError> {
    let epoch = Date::constant(1970, 1, 1);
    let today = i64::try_from(now.0 / 86_400_000).unwrap_or(0);
    let today = epoch.saturating_add(today.days());
    let wrong = |text: &str| {
        let error = format!("`{text}` is no month");
        ApiError::bad_request(error).hint("write it as 2026-11")
    };
    let first = match wanted {
        None => today.first_of_month(),
        Some(text) => format!("{text}-01").parse().map_err(|_| wrong(text))?,
    };
    let day = |date: Date| {
        let days = date.duration_since(epoch).as_secs() / 86_400;
        u32::try_from(days).map_err(|_| wrong(wanted.unwrap_or_default()))
    };
    let next = first.saturating_add(1.month());
    Ok((first.strftime("%Y-%m").to_string(), day(first)?..day(next)?))
}

/// What users of accounts with credit were charged in these days, by account, user and site.
fn users(
    site: &Site,
    asked: &Asked,
    (month, days): (String, std::ops::Range<u32>),
) -> QuotaSummaryBody {
    let mut sums: BTreeMap<(VoId, AccountPath, AccountPath, SiteId), Counters> = BTreeMap::new();
    for (vo, _) in &asked.vos {
        let Some(ledger) = site.ledger(*vo) else {
            continue;
        };
        for cell in site.usage_cells_in(*vo, days.clone()) {
            let payer = ledger.grants().accounts(&cell.path).next();
            let payer = payer.filter(|payer| asked.wants(*vo, payer));
            // What was charged at this account alone.
            let is_seen = || {
                asked
                    .sight
                    .sees_alone(What::Usage, &account(*vo, &cell.path))
            };
            if let Some(payer) = payer.filter(|_| is_seen()) {
                let sum = sums.entry((*vo, payer, cell.path, cell.site)).or_default();
                *sum = sum.plus(cell.counters);
            }
        }
    }
    let name = |vo: VoId| {
        let mut vos = asked.vos.iter();
        vos.find(|(of, _)| *of == vo)
            .and_then(|(_, name)| name.clone())
    };
    let users = sums
        .into_iter()
        .map(|((vo, account, user, at), sum)| QuotaUserBody {
            vo: vo.to_string(),
            vo_name: name(vo),
            account: clean(account.as_str()),
            user: clean(user.as_str()),
            site: at.to_string(),
            site_name: site_name(site, at),
            jobs: sum.jobs,
            charge_core_ms: sum.net().to_string(),
        });
    QuotaSummaryBody {
        month,
        users: users.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_has_its_days() {
        let now = WallTime(1_767_615_600_000);
        for (wanted, name, days) in [
            (None, "2026-01", 20_454..20_485),
            (Some("2024-02"), "2024-02", 19_754..19_783),
            (Some("2025-12"), "2025-12", 20_423..20_454),
        ] {
            let found = month(wanted, now).ok();
            assert_eq!(found, Some((name.to_owned(), days)), "{wanted:?}");
        }
        for wrong in ["2025-13", "1969-01", "", "nov"] {
            assert!(month(Some(wrong), now).is_err(), "{wrong}");
        }
    }
}
