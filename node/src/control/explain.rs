//! `GET /v1/explain?user=[&account=][&group=][&versus=][&versus_account=][&versus_group=]`: why
//! somebody stands there.
//!
//! `user` and `versus` are users of the batch system, or paths of the share tree (`/VO-A/P-A1`). A user
//! without his account is explained at each entry that his jobs may be charged to.
//! Invariant: usage behind an entry is that of the scope in which it is compared: this site's at a
//! local level, all sites' at a global one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use axum::response::Response;
use fairmesh_fairshare::EntryId;
use fairmesh_fairshare::explain::{Comparison, Standing, explain};
use fairmesh_model::{AccountPath, Counters, Origin, SiteId, VoId};
use fairmesh_site::{Account, KnownUsage, Site};
use serde::Deserialize;

use super::answer::{CauseBody, ComparisonBody, ExplainBody, LevelBody, NamedCounters};
use super::beside::{Beside, Wanted};
use super::error::ApiError;
use super::extract::{Params, Wanted as Whom};
use super::priority::{only, places, seen};
use super::rests_on::site_names;
use super::shares::Moment;
use super::usage::{counters_body, sums};
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
    beside: Beside,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let moment = Moment::take(&shared).await?;
    let who = wanted(query.user, query.account, query.group);
    let whats = [What::Usage, What::Priority];
    let explained = seen(&sight, &whats, &who, places(&moment, &who).await?)?;
    let versus = match query.versus {
        Some(versus) => {
            let versus = wanted(versus, query.versus_account, query.versus_group);
            let found = places(&moment, &versus).await?;
            Some(only(seen(&sight, &whats, &versus, found)?)?.entry)
        }
        None => None,
    };
    let entries = explained.iter().map(|place| place.entry);
    let explained: Vec<_> = entries
        .map(|entry| self::explained(&moment, entry, versus))
        .collect();
    let known = Known::of(&shared, &moment, &explained).await?;
    let made = move |wanted: &Wanted| {
        let mut bodies = explained.into_iter().map(|(mut body, decisive)| {
            let causes = decisive.into_iter();
            body.causes = causes.map(|entry| known.cause(entry, wanted)).collect();
            body
        });
        let mut first = bodies.next().expect("somebody is meant");
        first.others = bodies.collect();
        Ok(first)
    };
    beside.answer("explain", moment.rests_on, made).await
}

/// One entry, alone or against `versus`, without whose usage it is; and the entries that this is of, each with whether usage of
/// all sites counts there.
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

fn wanted(user: String, account: Option<String>, group: Option<String>) -> Whom {
    if user.starts_with('/') {
        return Whom {
            path: Some(user),
            ..Whom::default()
        };
    }
    Whom {
        path: None,
        origin: Origin {
            user: Some(user),
            account,
            group,
            ..Origin::default()
        },
        ..Whom::default()
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

/// What is known of usage behind some entries.
struct Known {
    accounts: BTreeMap<AccountPath, Account>,
    usage: BTreeMap<Option<VoId>, KnownUsage>,
    names: BTreeMap<SiteId, String>,
    own: SiteId,
}

impl Known {
    async fn of(
        shared: &Shared,
        moment: &Moment,
        explained: &[(ExplainBody, Vec<(AccountPath, bool)>)],
    ) -> Result<Self, ApiError> {
        let entries = explained.iter().flat_map(|(_, decisive)| decisive);
        let accounts: BTreeMap<_, _> = entries
            .map(|(path, _)| (path.clone(), account_at(&moment.view, path)))
            .collect();
        let asked = move |site: &Site, _| {
            let vos: BTreeSet<_> = accounts.values().map(|account| account.vo).collect();
            Self {
                usage: vos
                    .into_iter()
                    .map(|vo| (vo, site.known_usage(vo)))
                    .collect(),
                names: site_names(site),
                own: site.id(),
                accounts,
            }
        };
        Ok(shared.node().ask(asked).await?)
    }

    fn cause(&self, (path, global): (AccountPath, bool), wanted: &Wanted) -> CauseBody {
        let account = &self.accounts[&path];
        let (_, sites) = sums(&self.usage[&account.vo], &account.path, wanted);
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.retain(|(id, counters)| (global || *id == self.own) && !counters.is_zero());
        sites.sort_by_key(|(id, counters)| (Reverse(counters.net()), *id));
        let named = |(id, counters): (SiteId, Counters)| NamedCounters {
            id: id.to_string(),
            name: self.names.get(&id).cloned(),
            counters: counters_body(counters),
        };
        CauseBody {
            path: path.to_string(),
            sites: sites.into_iter().map(named).collect(),
        }
    }
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
