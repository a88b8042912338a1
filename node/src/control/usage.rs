//! `GET /v1/usage[?vo=][&path=][&limit=][&after=]` and `GET /v1/unmapped`: raw counters, exact.
//!
//! `vo` is an id, the beginning of one (eight digits or more), or a name; `local` means the site's
//! own accounts. Without it all are listed. `path` is a path in that VO's tree.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use fairmesh_api::words::is_id;
use fairmesh_api::{
    CountersBody, LedgerBody, NamedCounters, OriginBody, OthersCounters, UnmappedBody,
    UnmappedOrigin, UsageBody,
};
use fairmesh_model::{AccountPath, Counters, Now, SiteId, VoId, clean};
use fairmesh_site::{Account, KnownUsage, Site, View, VoStatus};
use serde::Deserialize;

use super::State;
use super::blocking::{BlockingAnswer, CancelFlag};
use super::error::ApiError;
use super::extract::{Nothing, Page, Params, parse_path};
use super::rests_on::{answer, site_names};
use crate::privacy::{PrivateData, Visibility};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: Option<String>,
    path: Option<String>,
    /// Of each VO at most so many accounts, of those that come behind `after`.
    limit: Option<NonZeroUsize>,
    after: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let path = query
        .path
        .as_deref()
        .map_or(Ok(AccountPath::root()), parse_path)?;
    let page = Page::of(query.after.as_deref(), query.limit, usize::MAX)?;
    let listed = move |site: &Site, now: Now| ledgers(site, now, query.vo.as_deref(), &path);
    let (rests_on, ledgers) = shared.ask(listed).await?;
    let written = move |cancel: &CancelFlag| {
        let bodies = ledgers
            .into_iter()
            .map(|of| of.body(&page, &visibility, cancel));
        Ok(UsageBody {
            ledgers: bodies.collect(),
        })
    };
    blocking.answer("usage", rests_on, written).await
}

pub(super) async fn get_unmapped(
    axum::extract::State(shared): State,
    visibility: Visibility,
    Params(Nothing {}): Params<Nothing>,
) -> Result<impl IntoResponse, ApiError> {
    let (rests_on, mut origins) = shared.ask(|site, _| Ok(unmapped(site))).await?;
    if visibility.hides(PrivateData::Usage) {
        let is_own = |of: &UnmappedOrigin| {
            of.origin
                .user
                .as_deref()
                .is_some_and(|user| visibility.is(user))
        };
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

/// The VOs that `wanted` names, each with its name; all where it names none.
pub(super) fn find_vos(
    site: &Site,
    now: Now,
    wanted: Option<&str>,
) -> Result<Vec<(VoId, Option<String>)>, ApiError> {
    let known = site.vo_status(now);
    let is_meant = |of: &&VoStatus| {
        wanted.is_none_or(|wanted| {
            is_id(&of.vo.checked(), wanted) || of.name.as_deref() == Some(wanted)
        })
    };
    let name = |of: &VoStatus| of.name.as_deref().map(clean);
    let found = known.iter().filter(is_meant).map(|of| (of.vo, name(of)));
    let found: Vec<_> = found.collect();
    if let Some(wanted) = wanted.filter(|_| found.is_empty()) {
        let names = known
            .iter()
            .map(|of| name(of).unwrap_or_else(|| of.vo.to_string()));
        let hint = format!("known here: {}", names.collect::<Vec<_>>().join(", "));
        let error = format!("this site takes part in no VO `{wanted}`");
        return Err(ApiError::not_found(error).hint(hint));
    }
    Ok(found)
}

/// The VO that `wanted` names; of several the first.
pub(super) fn find_vo(site: &Site, now: Now, wanted: &str) -> Result<VoId, ApiError> {
    Ok(find_vos(site, now, Some(wanted))?[0].0)
}

fn ledgers(
    site: &Site,
    now: Now,
    wanted: Option<&str>,
    below: &AccountPath,
) -> Result<Vec<Ledger>, ApiError> {
    let vos = match wanted {
        Some("local") => Vec::new(),
        _ => find_vos(site, now, wanted)?,
    };
    let own = matches!(wanted, None | Some("local")).then_some((None, None));
    let vos = vos
        .into_iter()
        .map(|(vo, name)| (Some(vo), name))
        .chain(own);
    let sites = Arc::new(site_names(site));
    let ledgers = vos.map(|(vo, vo_name)| Ledger {
        vo_name,
        known: site.known_usage(vo),
        account: Account {
            vo,
            path: below.clone(),
        },
        sites: Arc::clone(&sites),
        view: site.view(),
    });
    Ok(ledgers.collect())
}

/// What was used in a VO at and below a path: listed on the node's task, and worked out beside it.
struct Ledger {
    account: Account,
    vo_name: Option<String>,
    known: KnownUsage,
    sites: Arc<BTreeMap<SiteId, String>>,
    view: Arc<View>,
}

/// Sums, by whatever they are of.
type Sums<K> = BTreeMap<K, Counters>;

/// What a VO's accounts and its sites have used, at and below a path.
pub(super) fn sums(
    known: &KnownUsage,
    below: &AccountPath,
    cancel: &CancelFlag,
) -> (Sums<AccountPath>, Sums<SiteId>) {
    let (mut accounts, mut sites) = (Sums::new(), Sums::new());
    // Most cells are of others: that is seen before anything is made of their names.
    let is_below = |path: &str| {
        let rest = path.strip_prefix(below.as_str());
        below.is_root() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let name = |path: &str| {
        let is_wanted = is_below(path) && !cancel.is_set();
        is_wanted.then(|| AccountPath::parse(path).ok())?
    };
    known.each(name, |site, path, counters| {
        let add = |sum: &mut Counters| *sum = sum.plus(counters);
        add(accounts.entry(path).or_default());
        add(sites.entry(site).or_default());
    });
    (accounts, sites)
}

impl Ledger {
    /// What the reader sees of it, and of its accounts a page. Where he does not see the whole, the sum is that of what he
    /// sees.
    fn body(self, page: &Page, visibility: &Visibility, cancel: &CancelFlag) -> LedgerBody {
        let vo = self.account.vo;
        let (mut accounts, mut sites) = sums(&self.known, &self.account.path, cancel);
        // Of an account above his own he sees the sum, and not what others were charged right there.
        let sees = |path: &AccountPath| {
            let path = path.clone();
            !cancel.is_set() && visibility.sees_alone(PrivateData::Usage, &Account { vo, path })
        };
        let sum = |accounts: &Sums<AccountPath>| {
            let zero = Counters::default();
            accounts.values().fold(zero, |sum, more| sum.plus(*more))
        };
        let whole = sum(&accounts);
        accounts.retain(|path, counters| !counters.is_zero() && sees(path));
        let sees_whole = visibility.sees(PrivateData::Usage, &self.account);
        if !sees_whole {
            sites.clear();
        }
        let total = if sees_whole { whole } else { sum(&accounts) };
        let others = self.others(&accounts);
        let named = |id: String, name, counters| NamedCounters {
            id,
            name,
            counters: counters_body(counters),
        };
        let by_account = accounts
            .into_iter()
            .skip_while(|(path, _)| page.after.as_ref().is_some_and(|after| path <= after))
            .take(page.most.saturating_add(1));
        let mut by_account: Vec<_> = by_account
            .map(|(path, of)| named(path.to_string(), None, of))
            .collect();
        let next = page.cut(&mut by_account).map(|last| last.id.clone());
        let by_site = sites.into_iter();
        let by_site =
            by_site.map(|(id, of)| named(id.to_string(), self.sites.get(&id).cloned(), of));
        LedgerBody {
            vo: vo.map(|vo| vo.to_string()),
            vo_name: self.vo_name.clone(),
            by_account,
            next,
            others,
            by_site: by_site.collect(),
            total: counters_body(total),
        }
    }
}

impl Ledger {
    /// What those of the accounts that have no line were charged, by level. O(accounts × depth).
    fn others(&self, accounts: &Sums<AccountPath>) -> Vec<OthersCounters> {
        let vo = self.account.vo;
        let mount = match vo {
            None => Some(AccountPath::root()),
            Some(vo) => self.view.mounts().get(&vo).cloned(),
        };
        let Some(mount) = mount else {
            return Vec::new();
        };
        let mut others: BTreeMap<AccountPath, (usize, Counters)> = BTreeMap::new();
        for (path, counters) in accounts {
            let path = path.clone();
            let level = self.view.others_of(&Account { vo, path });
            let level = level.and_then(|level| level.relative_to(&mount));
            if let Some(level) = level {
                let sum = others.entry(level).or_default();
                *sum = (sum.0 + 1, sum.1.plus(*counters));
            }
        }
        let body = |(level, (accounts, sum)): (AccountPath, _)| OthersCounters {
            id: level.to_string(),
            accounts,
            counters: counters_body(sum),
        };
        others.into_iter().map(body).collect()
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
