//! `GET /v1/usage[?vo=][&path=]` and `GET /v1/unmapped`: raw counters, exact.
//!
//! `vo` is an id, the beginning of one (eight digits or more), or a name; `local` means the site's
//! own accounts. Without it all are listed. `path` is a path in that VO's tree.

use std::collections::BTreeMap;

use axum::response::IntoResponse;
use fairmesh_model::{AccountPath, Counters, Now, VoId};
use fairmesh_site::{Account, Site};
use serde::Deserialize;

use super::State;
use super::answer::{
    CountersBody, LedgerBody, NamedCounters, OriginBody, UnmappedBody, UnmappedOrigin, UsageBody,
};
use super::error::ApiError;
use super::extract::{Nothing, Params, parse_path};
use super::rests_on::{answer, rests_on, site_name};
use super::text::clean;
use crate::privacy::{Sight, What};

/// Digits of an id that are enough to name it.
pub(super) const ID_DIGITS_MIN: usize = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: Option<String>,
    path: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    sight: Sight,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let path = query
        .path
        .as_deref()
        .map_or(Ok(AccountPath::root()), parse_path)?;
    let (rests_on, ledgers) = shared
        .node()
        .ask(move |site, now| {
            (
                rests_on(site, now),
                ledgers(site, now, query.vo.as_deref(), &path),
            )
        })
        .await?;
    // Written out, which takes the longest, beside the node's own task.
    let ledgers = ledgers?;
    let bodies = move || ledgers.into_iter().map(|of| of.body(&sight)).collect();
    let ledgers = tokio::task::spawn_blocking(bodies).await;
    let ledgers = ledgers.map_err(ApiError::internal)?;
    Ok(answer("usage", rests_on, UsageBody { ledgers }))
}

pub(super) async fn get_unmapped(
    axum::extract::State(shared): State,
    sight: Sight,
    Params(Nothing {}): Params<Nothing>,
) -> Result<impl IntoResponse, ApiError> {
    let (rests_on, mut origins) = shared
        .node()
        .ask(|site, now| (rests_on(site, now), unmapped(site)))
        .await?;
    if sight.hides(What::Usage) {
        let is_own =
            |of: &UnmappedOrigin| of.origin.user.as_deref().is_some_and(|user| sight.is(user));
        origins.retain(|(_, of)| is_own(of));
    }
    origins.sort_by_key(|(charge, _)| std::cmp::Reverse(*charge));
    let origins = origins.into_iter().map(|(_, origin)| origin).collect();
    Ok(answer("unmapped", rests_on, UnmappedBody { origins }))
}

fn unmapped(site: &Site) -> Vec<(u64, UnmappedOrigin)> {
    let row = |(origin, records, charge, last): (
        &fairmesh_model::Origin,
        u64,
        u64,
        fairmesh_model::WallTime,
    )| {
        let word = |word: &Option<String>| word.as_deref().map(clean);
        let origin = OriginBody {
            user: word(&origin.user),
            account: word(&origin.account),
            group: word(&origin.group),
            subject: word(&origin.subject),
        };
        let body = UnmappedOrigin {
            origin,
            records,
            charge_core_ms: charge.to_string(),
            last_ms: last.0,
        };
        (charge, body)
    };
    site.unmapped().map(row).collect()
}

/// The VOs that `wanted` names.
pub(super) fn find_vos(site: &Site, now: Now, wanted: &str) -> Result<Vec<VoId>, ApiError> {
    let matches = |id: &VoId, name: Option<&str>| {
        let by_id = wanted.len() >= ID_DIGITS_MIN && id.checked().starts_with(wanted);
        by_id || name == Some(wanted)
    };
    let known = site.vo_status(now);
    let found: Vec<VoId> = known
        .iter()
        .filter(|status| matches(&status.vo, status.name.as_deref()))
        .map(|status| status.vo)
        .collect();
    if found.is_empty() {
        let names: Vec<_> = known
            .iter()
            .map(|status| {
                status
                    .name
                    .as_deref()
                    .map_or_else(|| status.vo.to_string(), clean)
            })
            .collect();
        return Err(
            ApiError::not_found(format!("this site takes part in no VO `{wanted}`"))
                .hint(format!("known here: {}", names.join(", "))),
        );
    }
    Ok(found)
}

fn ledgers(
    site: &Site,
    now: Now,
    wanted: Option<&str>,
    below: &AccountPath,
) -> Result<Vec<Ledger>, ApiError> {
    let vos: Vec<Option<VoId>> = match wanted {
        Some("local") => vec![None],
        Some(wanted) => find_vos(site, now, wanted)?.into_iter().map(Some).collect(),
        None => {
            let all = site
                .vo_status(now)
                .into_iter()
                .map(|status| Some(status.vo));
            all.chain([None]).collect()
        }
    };
    let names: BTreeMap<VoId, Option<String>> = site
        .vo_status(now)
        .into_iter()
        .map(|status| (status.vo, status.name))
        .collect();
    let name = |vo: Option<VoId>| names.get(&vo?)?.as_deref().map(clean);
    let ledgers = vos.into_iter().map(|vo| ledger(site, vo, name(vo), below));
    Ok(ledgers.collect())
}

/// What was used in a VO at and below a path.
struct Ledger {
    account: Account,
    vo_name: Option<String>,
    accounts: BTreeMap<AccountPath, Counters>,
    by_site: Vec<NamedCounters>,
}

fn ledger(site: &Site, vo: Option<VoId>, vo_name: Option<String>, below: &AccountPath) -> Ledger {
    let mut accounts = site.usage_by_account(vo);
    accounts.retain(|path, counters| path.starts_with(below) && !counters.is_zero());
    let account = Account {
        vo,
        path: below.clone(),
    };
    let by_site = site.usage_by_site(&account).into_iter();
    let by_site = by_site.map(|(id, counters)| NamedCounters {
        id: id.to_string(),
        name: site_name(site, id),
        counters: counters_body(counters),
    });
    Ledger {
        by_site: by_site.collect(),
        account,
        vo_name,
        accounts,
    }
}

impl Ledger {
    /// What the reader sees of it. Where he does not see the whole, the sum is that of what he sees.
    fn body(mut self, sight: &Sight) -> LedgerBody {
        let vo = self.account.vo;
        // Of an account above his own he sees the sum, and not what others were charged right there.
        let sees = |path: &AccountPath| {
            let path = path.clone();
            sight.sees_alone(What::Usage, &Account { vo, path })
        };
        let sum = |accounts: &BTreeMap<AccountPath, Counters>| {
            let zero = Counters::default();
            accounts.values().fold(zero, |sum, more| sum.plus(*more))
        };
        let whole = sum(&self.accounts);
        self.accounts.retain(|path, _| sees(path));
        let sees_whole = sight.sees(What::Usage, &self.account);
        if !sees_whole {
            self.by_site.clear();
        }
        let total = if sees_whole {
            whole
        } else {
            sum(&self.accounts)
        };
        let named = |(path, counters): (AccountPath, Counters)| NamedCounters {
            id: path.to_string(),
            name: None,
            counters: counters_body(counters),
        };
        LedgerBody {
            vo: vo.map(|vo| vo.to_string()),
            vo_name: self.vo_name,
            by_account: self.accounts.into_iter().map(named).collect(),
            by_site: self.by_site,
            total: counters_body(total),
        }
    }
}

/// Counters, for the wire.
pub(super) fn counters_body(counters: Counters) -> CountersBody {
    CountersBody {
        charge_core_ms: counters.net().to_string(),
        refunds_core_ms: counters.refunds.to_string(),
        cpu_core_ms: counters.cpu_ms.to_string(),
        gpu_ms: counters.gpu_ms.to_string(),
        mem_mib_s: counters.mem_mib_s.to_string(),
        jobs: counters.jobs.to_string(),
    }
}
