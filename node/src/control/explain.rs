//! `GET /v1/explain?user=[&account=][&group=][&versus=][&versus_account=][&versus_group=]`: why
//! somebody stands there.
//!
//! `user` and `versus` are users of the batch system, or paths of the share tree (`/VO-A/P-A1`). A user
//! without his account is explained at each entry that his jobs may be charged to.
//! Invariant: usage behind an entry is that of the scope in which it is compared: this site's at a
//! local level, all sites' at a global one.

use axum::response::IntoResponse;
use fairmesh_fairshare::EntryId;
use fairmesh_fairshare::explain::{Comparison, Standing, explain};
use fairmesh_model::{AccountPath, Origin};
use fairmesh_site::{Account, Site};
use serde::Deserialize;

use super::access::hidden;
use super::answer::{CauseBody, ComparisonBody, ExplainBody, LevelBody, NamedCounters};
use super::error::ApiError;
use super::extract::{Params, Wanted};
use super::priority::{Place, only, places};
use super::rests_on::{answer, site_name};
use super::shares::Moment;
use super::usage::counters_body;
use super::{Shared, State};
use crate::privacy::{Sight, What, account_at};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    user: String,
    account: Option<String>,
    group: Option<String>,
    versus: Option<String>,
    versus_account: Option<String>,
    versus_group: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    sight: Sight,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let moment = Moment::take(&shared).await?;
    let who = wanted(query.user, query.account, query.group);
    let explained = seen(&sight, places(&moment, &who).await?)?;
    let versus = match query.versus {
        Some(versus) => {
            let versus = wanted(versus, query.versus_account, query.versus_group);
            Some(only(seen(&sight, places(&moment, &versus).await?)?)?.entry)
        }
        None => None,
    };
    let mut bodies = Vec::new();
    for place in explained {
        bodies.push(body(&shared, &moment, place.entry, versus).await?);
    }
    let mut first = bodies.remove(0);
    first.others = bodies;
    Ok(answer("explain", moment.rests_on, first))
}

/// Those of the places that the reader sees, where he sees any.
fn seen(sight: &Sight, places: Vec<Place>) -> Result<Vec<Place>, ApiError> {
    let refused = places
        .first()
        .map(|place| hidden(format!("`{}`", place.path)));
    let is_seen = |place: &Place| {
        let path = &place.path;
        sight.sees_entry(What::Usage, path) && sight.sees_entry(What::Priority, path)
    };
    let seen: Vec<Place> = places.into_iter().filter(is_seen).collect();
    match (seen.is_empty(), refused) {
        (true, Some(refused)) => Err(refused),
        _ => Ok(seen),
    }
}

/// One entry, alone or against `versus`.
async fn body(
    shared: &Shared,
    moment: &Moment,
    entry: EntryId,
    versus: Option<EntryId>,
) -> Result<ExplainBody, ApiError> {
    let (mut body, decisive) = explained(moment, entry, versus);
    body.causes = causes(shared, moment, decisive).await?;
    Ok(body)
}

/// The same without whose usage it is, which the site has to be asked, and the entries that this is of.
pub(crate) fn explained(
    moment: &Moment,
    entry: EntryId,
    versus: Option<EntryId>,
) -> (ExplainBody, Vec<(AccountPath, bool)>) {
    let explained = explain(&moment.order, entry, versus);
    let levels = moment.level_bodies(explained.levels);
    let versus_levels = versus
        .map(|versus| moment.levels(versus))
        .unwrap_or_default();
    let decisive = decisive(&levels, &versus_levels, explained.comparison.as_ref());
    let comparison = explained
        .comparison
        .map(|comparison| comparison_body(comparison, versus_levels));
    let body = ExplainBody {
        path: explained.path.to_string(),
        rank: moment.order.ranking().rank(entry),
        ranks: moment.order.ranking().count(),
        projection: moment.order.projection().name().to_owned(),
        levels,
        comparison,
        causes: Vec::new(),
        others: Vec::new(),
    };
    (body, decisive)
}

fn wanted(user: String, account: Option<String>, group: Option<String>) -> Wanted {
    if user.starts_with('/') {
        return Wanted {
            path: Some(user),
            ..Wanted::default()
        };
    }
    Wanted {
        path: None,
        origin: Origin {
            user: Some(user),
            account,
            group,
            ..Origin::default()
        },
    }
}

/// The entries whose usage decides: both sides' at the level where they differ, or the entry itself.
fn decisive(
    levels: &[LevelBody],
    versus: &[LevelBody],
    comparison: Option<&Comparison>,
) -> Vec<(AccountPath, bool)> {
    let chosen = match comparison.map(|comparison| comparison.level) {
        Some(Some(level)) => vec![levels.get(level), versus.get(level)],
        Some(None) => vec![levels.last(), versus.last()],
        None => vec![levels.last()],
    };
    let path = |level: &LevelBody| Some((AccountPath::parse(&level.path).ok()?, level.global));
    chosen.into_iter().flatten().filter_map(path).collect()
}

async fn causes(
    shared: &Shared,
    moment: &Moment,
    entries: Vec<(AccountPath, bool)>,
) -> Result<Vec<CauseBody>, ApiError> {
    let accounts: Vec<(AccountPath, Account, bool)> = entries
        .into_iter()
        .map(|(path, global)| (path.clone(), account_at(&moment.view, &path), global))
        .collect();
    let causes = shared.node().ask(move |site, _| {
        let cause = |(path, account, global): (AccountPath, Account, bool)| CauseBody {
            path: path.to_string(),
            sites: by_site(site, &account, global),
        };
        accounts.into_iter().map(cause).collect()
    });
    Ok(causes.await?)
}

fn by_site(site: &Site, account: &Account, global: bool) -> Vec<NamedCounters> {
    let mut sites: Vec<_> = site.usage_by_site(account).into_iter().collect();
    sites.retain(|(id, counters)| (global || *id == site.id()) && !counters.is_zero());
    sites.sort_by_key(|(id, counters)| (std::cmp::Reverse(counters.net()), *id));
    let named = |(id, counters)| NamedCounters {
        id: fairmesh_model::SiteId::to_string(&id),
        name: site_name(site, id),
        counters: counters_body(counters),
    };
    sites.into_iter().map(named).collect()
}

fn comparison_body(comparison: Comparison, versus_levels: Vec<LevelBody>) -> ComparisonBody {
    let standing = match comparison.standing {
        Standing::Before => "before",
        Standing::Tied => "tied",
        Standing::After => "after",
    };
    ComparisonBody {
        versus: comparison.versus.to_string(),
        versus_levels,
        common_ancestor: comparison.common_ancestor.to_string(),
        standing: standing.to_owned(),
        level: comparison.level,
        deviation: comparison.deviation.map(|deviation| deviation.to_string()),
        versus_deviation: comparison
            .versus_deviation
            .map(|deviation| deviation.to_string()),
        parity_core_ms: comparison.parity.map(|parity| parity.0.to_string()),
    }
}
