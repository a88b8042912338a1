//! `GET /v1/quota/history[?vo=][&path=][&all=true]`: who granted what, which rights went to other sites and came from
//! them, and which jobs ran beyond their quota or beside it; and `GET /v1/quota/summary[?month=][&vo=][&path=]`: what
//! each account's users were charged in a month, at each site.
//!
//! The summary is of what members have signed of usage in their heads, so any node of the VO has it of all sites.
//! Invariant: what one job did is told to its user and to those who see all, and it is this site's alone; sums are told to
//! whoever may see them.
//! Deliberately not here: jobs whose marks the store has let go of, as the VO's history passes over them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use fairmesh_api::{
    QuotaDocumentBody, QuotaHistoryBody, QuotaJobBody, QuotaSummaryBody, QuotaTransferBody,
    QuotaUserBody,
};
use fairmesh_model::{
    AccountPath, Allocation, CoreMillis, Counters, JobKey, Now, Signed, SiteId, VoId, WallTime,
    clean,
};
use fairmesh_quota::{Cell, Mark, Verdict};
use fairmesh_site::{KnownUsage, Moved, Site};
use jiff::{ToSpan as _, civil::Date};
use serde::Deserialize;

use super::State;
use super::access::Peer;
use super::blocking::{BlockingAnswer, CancelFlag};
use super::error::ApiError;
use super::extract::Params;
use super::quota::{QuotaQuery, account, decider, total, word};
use super::rests_on::{site_name, site_names};
use crate::driver::{Gone, NodeHandle};
use crate::privacy::{PrivateData, Visibility};

/// Jobs that are told of at most, the newest.
const JOBS_MAX: usize = 10_000;

/// Jobs that the node's task goes through at once: a few milliseconds.
const MARKS_AT_ONCE: usize = 4_096;

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
    fn asked(&self, site: &Site, now: Now, visibility: Visibility) -> Result<QuotaQuery, ApiError> {
        let named = (self.vo.as_deref(), self.path.as_deref());
        QuotaQuery::of(site, now, visibility, named)
    }
}

pub(super) async fn history(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let visibility = shared.own_sight(peer).await;
    let all = query.all;
    let found = move |site: &Site, now: Now| {
        let asked = query.asked(site, now, visibility)?;
        let signed = asked.vos.iter().map(|(vo, _)| site.allocations(*vo));
        Ok((signed.collect::<Vec<_>>(), transfers(site, &asked), asked))
    };
    let (rests_on, (signed, transfers, asked)) = shared.ask(found).await?;
    let asked = Arc::new(asked);
    let is_known = asked.visibility.is_all() || asked.visibility.user().is_some();
    let jobs = match is_known {
        true => Some(jobs(shared.node(), &asked, all).await?),
        false => None,
    };
    let made = move |_: &CancelFlag| {
        let job_body = |(job, mark)| job_body(&job, &mark);
        Ok(QuotaHistoryBody {
            documents: documents(&signed, &asked),
            transfers,
            jobs: jobs.map(|jobs| jobs.into_iter().map(job_body).collect()),
        })
    };
    blocking.answer("quota_history", rests_on, made).await
}

/// What authorities of each VO have signed, in that order.
fn documents(signed: &[Vec<Arc<[u8]>>], asked: &QuotaQuery) -> Vec<QuotaDocumentBody> {
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
fn transfers(site: &Site, asked: &QuotaQuery) -> Vec<QuotaTransferBody> {
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

/// The jobs of this site, the newest first. The node's task goes through some of them at a time.
async fn jobs(
    node: &NodeHandle,
    asked: &Arc<QuotaQuery>,
    all: bool,
) -> Result<Vec<(JobKey, Mark)>, Gone> {
    let mut newest = Vec::new();
    for (vo, _) in &asked.vos {
        let (vo, mut after) = (*vo, None);
        loop {
            let asked = Arc::clone(asked);
            let slice = move |site: &Site, _| jobs_after(site, (&asked, vo), all, after.as_ref());
            let (found, last) = node.ask(slice).await?;
            newest.extend(found);
            if newest.len() > 2 * JOBS_MAX || last.is_none() {
                keep_newest(&mut newest);
            }
            after = match last {
                Some(last) => Some(last),
                None => break,
            };
        }
    }
    Ok(newest)
}

fn keep_newest(jobs: &mut Vec<(JobKey, Mark)>) {
    jobs.sort_unstable_by(|(a, of_a), (b, of_b)| (of_b.at, b).cmp(&(of_a.at, a)));
    jobs.truncate(JOBS_MAX);
}

/// Of the next [`MARKS_AT_ONCE`] jobs of a VO those that are asked for, and the last one where there are more.
fn jobs_after(
    site: &Site,
    (asked, vo): (&QuotaQuery, VoId),
    all: bool,
    after: Option<&JobKey>,
) -> (Vec<(JobKey, Mark)>, Option<JobKey>) {
    let Some(ledger) = site.ledger(vo) else {
        return (Vec::new(), None);
    };
    // Of many jobs few are odd, and all are of a few accounts and users: what each may see is worked out once.
    let (mut wanted, mut own) = (BTreeMap::new(), BTreeMap::new());
    let (mut found, mut last, mut count) = (Vec::new(), None, 0);
    for (job, mark) in ledger.marks_after(after).take(MARKS_AT_ONCE) {
        (last, count) = (Some(job), count + 1);
        let of = &mark.account;
        let is_wanted = (all || is_odd(mark))
            && *wanted.entry(of).or_insert_with(|| asked.wants(vo, of))
            && *own
                .entry(&mark.user)
                .or_insert_with(|| is_own(site, asked, vo, mark));
        if is_wanted {
            found.push((job.clone(), mark.clone()));
        }
    }
    let more = last.filter(|_| count == MARKS_AT_ONCE).cloned();
    (found, more)
}

fn job_body(job: &JobKey, mark: &Mark) -> QuotaJobBody {
    QuotaJobBody {
        at_ms: mark.at.0,
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
    }
}

/// Whether the job is the reader's, or he sees all.
fn is_own(site: &Site, asked: &QuotaQuery, vo: VoId, mark: &Mark) -> bool {
    let may_charge =
        |(user, path): (&str, &AccountPath)| site.view().may_charge(user, &account(vo, path));
    let both = asked.visibility.user().zip(mark.user.as_ref());
    asked.visibility.is_all() || both.is_some_and(may_charge)
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
    visibility: Visibility,
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let listed = move |site: &Site, now: Now| {
        let asked = query.asked(site, now, visibility)?;
        let (month, days) = month(query.month.as_deref(), now.wall)?;
        Ok((month, Listed::of(site, asked, &days)))
    };
    let (rests_on, (month, listed)) = shared.ask(listed).await?;
    let summed = move |cancel: &CancelFlag| {
        let users = listed.users(cancel);
        Ok(QuotaSummaryBody { month, users })
    };
    blocking.answer("quota_summary", rests_on, summed).await
}

/// A month, and its days since the epoch, the last excluded.
fn month(wanted: Option<&str>, now: WallTime) -> Result<(String, Range<u32>), ApiError> {
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

/// What some days' usage of each VO is summed from: listed on the node's task, and worked out beside it.
struct Listed {
    asked: QuotaQuery,
    vos: Vec<(VoId, KnownUsage, Payers)>,
    names: BTreeMap<SiteId, String>,
}

/// The accounts with credit, each with who may spend it; everybody below where nobody is named.
type Payers = BTreeMap<AccountPath, BTreeSet<AccountPath>>;

impl Listed {
    fn of(site: &Site, asked: QuotaQuery, days: &Range<u32>) -> Self {
        let of_vo = |(vo, _): &(VoId, Option<String>)| {
            let grants = site.ledger(*vo)?.grants();
            let payers = grants.members_of(grants.iter().map(|(id, _)| id));
            Some((*vo, site.known_usage_in(*vo, days), payers))
        };
        Self {
            vos: asked.vos.iter().filter_map(of_vo).collect(),
            names: site_names(site),
            asked,
        }
    }

    /// What users of accounts with credit were charged, by account, user and site.
    fn users(&self, cancel: &CancelFlag) -> Vec<QuotaUserBody> {
        let mut found = Vec::new();
        for (vo, known, payers) in &self.vos {
            let mut sums: BTreeMap<(AccountPath, SiteId), Counters> = BTreeMap::new();
            let name = |path: &str| (!cancel.is_set()).then(|| AccountPath::parse(path).ok())?;
            known.each(name, |site, path, counters| {
                let sum = sums.entry((path, site)).or_default();
                *sum = sum.plus(counters);
            });
            let mut paid = BTreeMap::new();
            for ((path, site), sum) in sums {
                if let Some(payer) = self.payer(*vo, payers, &path, cancel) {
                    paid.insert((payer, path, site), sum);
                }
            }
            let vo_name = self.asked.name(*vo);
            found.extend(
                paid.into_iter()
                    .map(|((account, user, at), sum)| QuotaUserBody {
                        vo: vo.to_string(),
                        vo_name: vo_name.clone(),
                        account: clean(account.as_str()),
                        user: clean(user.as_str()),
                        site: at.to_string(),
                        site_name: self.names.get(&at).cloned(),
                        jobs: sum.jobs,
                        charge_core_ms: sum.net().to_string(),
                    }),
            );
        }
        found
    }

    /// The deepest account that pays for what was charged at a path, where the reader is told of both.
    fn payer(
        &self,
        vo: VoId,
        payers: &Payers,
        path: &AccountPath,
        cancel: &CancelFlag,
    ) -> Option<AccountPath> {
        let pays = |of: &AccountPath| {
            let members = payers.get(of);
            members.is_some_and(|members| {
                members.is_empty() || members.iter().any(|member| path.starts_with(member))
            })
        };
        let payer = path.ancestors().find(pays);
        let payer = payer.filter(|payer| !cancel.is_set() && self.asked.wants(vo, payer))?;
        // What was charged at this account alone.
        let is_seen = self
            .asked
            .visibility
            .sees_alone(PrivateData::Usage, &account(vo, path));
        is_seen.then_some(payer)
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
