//! `GET
//! /v1/explain?user=[&account=][&group=][&subject=][&versus=][&versus_account=][&versus_group=][&versus_subject=]`:
//! why somebody stands there.
//!
//! `user` and `versus` are users of the batch system, or paths of the share tree (`/VO-A/P-A1`). A user
//! without his account is explained at each entry that his jobs may be charged to.
//! Invariant: usage behind an entry is that of the scope in which it is compared: this site's at a
//! local level, all sites' at a global one. It is weighted and clamped as the sum that it explains, and of the same
//! moment.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::Response;
use fairmesh_api::{CauseBody, CauseOfSite, ComparisonBody, ExplainBody, LevelBody};
use fairmesh_fairshare::explain::{Comparison, Standing, explain};
use fairmesh_fairshare::{EntryId, history};
use fairmesh_model::{AccountPath, Origin, SiteId};
use fairmesh_site::{Site, SiteUsage, WeighedUsage};
use serde::Deserialize;

use super::blocking::{BlockingAnswer, CancelFlag};
use super::error::ApiError;
use super::extract::{Params, Wanted as Whom};
use super::moment::Moment;
use super::priority::{Place, only, places, seen};
use super::rests_on::site_names;
use super::usage::counters_body;
use super::{Shared, State};
use crate::privacy::{PrivateData, Visibility};

/// How often an answer is begun again where usage was counted while it was gathered.
const ATTEMPTS_MAX: u32 = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
    subject: Option<String>,
    versus: Option<String>,
    versus_account: Option<String>,
    versus_group: Option<String>,
    versus_subject: Option<String>,
}

/// An entry with the accounts that decide, each with whether usage of all sites counts there.
type Explained = (ExplainBody, Vec<(AccountPath, bool)>);

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let who = wanted(query.user, query.account, query.group, query.subject);
    let versus = wanted(
        query.versus,
        query.versus_account,
        query.versus_group,
        query.versus_subject,
    );
    let is_compared = versus.path.is_some() || versus.origin != Origin::default();
    let versus = is_compared.then_some(versus);
    let mut attempt = 1;
    let (moment, explained, known) = loop {
        let moment = Moment::take(&shared).await?;
        let explained = explain_all(&moment, &visibility, &who, versus.as_ref()).await?;
        let known = Known::of(&shared, &explained).await?;
        if attempt == ATTEMPTS_MAX || known.is_of(&moment, &explained) {
            break (moment, explained, known);
        }
        attempt += 1;
    };
    let made = move |cancel: &CancelFlag| {
        let mut bodies = explained.into_iter().map(|(mut body, decisive)| {
            let causes = decisive.into_iter();
            body.causes = causes.map(|entry| known.cause(entry, cancel)).collect();
            body
        });
        let mut first = bodies.next().expect("somebody is meant");
        first.others = bodies.collect();
        Ok(first)
    };
    blocking.answer("explain", moment.rests_on, made).await
}

/// Each entry that is meant, at one moment.
async fn explain_all(
    moment: &Moment,
    visibility: &Visibility,
    who: &Whom,
    versus: Option<&Whom>,
) -> Result<Vec<Explained>, ApiError> {
    let whats = [PrivateData::Usage, PrivateData::Priority];
    let meant = seen(visibility, &whats, who, places(moment, who).await?)?;
    let versus = match versus {
        Some(versus) => {
            let found = places(moment, versus).await?;
            Some(only(seen(visibility, &whats, versus, found)?)?.entry)
        }
        None => None,
    };
    let explained = meant.into_iter().map(|place| {
        let (mut body, decisive) = explained(moment, place.entry, versus);
        body.account = account_words(moment, &place);
        body.exact = place.exact;
        (body, decisive)
    });
    Ok(explained.collect())
}

/// The account that jobs are charged to, as a path of the site's tree; as its VO calls it, where that is not mounted.
fn account_words(moment: &Moment, place: &Place) -> String {
    let path = moment.view.tree_path(&place.account);
    path.unwrap_or_else(|| place.account.path.clone())
        .to_string()
}

/// One entry, alone or against `versus`, without whose usage it is; and the entries that this is of, each with
/// whether usage of all sites counts there.
pub(crate) fn explained(moment: &Moment, entry: EntryId, versus: Option<EntryId>) -> Explained {
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
        account: explained.path.to_string(),
        exact: true,
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

fn wanted(
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
    subject: Option<String>,
) -> Whom {
    if user.as_ref().is_some_and(|user| user.starts_with('/')) {
        return Whom {
            path: user,
            ..Whom::default()
        };
    }
    Whom {
        path: None,
        origin: Origin {
            user,
            account,
            group,
            subject,
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
    usage: WeighedUsage,
    names: BTreeMap<SiteId, String>,
}

impl Known {
    async fn of(shared: &Shared, explained: &[Explained]) -> Result<Self, ApiError> {
        let entries = explained.iter().flat_map(|(_, decisive)| decisive);
        let entries: Vec<AccountPath> = entries.map(|(path, _)| path.clone()).collect();
        let asked = move |site: &Site, _| Self {
            usage: site.weighed_usage(&entries),
            names: site_names(site),
        };
        Ok(shared.node().ask(asked).await?)
    }

    /// Whether it is of the same moment as the levels.
    fn is_of(&self, moment: &Moment, explained: &[Explained]) -> bool {
        let snapshot = moment.snapshot();
        let mut decisive = explained.iter().flat_map(|(_, decisive)| decisive);
        Arc::ptr_eq(self.usage.view(), &moment.view)
            && decisive.all(|(path, _)| {
                let entry = moment.view.reader().entry(path);
                entry.map(|entry| snapshot.sums(entry)) == self.usage.sums(path)
            })
    }

    fn cause(&self, (path, global): (AccountPath, bool), cancel: &CancelFlag) -> CauseBody {
        let sites = self.usage.by_site(&path, global, || !cancel.is_set());
        let mut sites: Vec<(SiteId, SiteUsage)> = sites.into_iter().collect();
        sites.retain(|(_, of)| of.weighted > 0 || !of.raw.is_zero());
        sites.sort_by_key(|(id, of)| (Reverse((of.weighted, of.raw.net())), *id));
        let sums = self.usage.sums(&path).unwrap_or_default();
        let sum = if global { sums.global } else { sums.local };
        let of_site = |(id, of): (SiteId, SiteUsage)| CauseOfSite {
            id: id.to_string(),
            name: self.names.get(&id).cloned(),
            weighted_core_ms: core_ms(of.weighted),
            counters: counters_body(of.raw),
        };
        CauseBody {
            path: path.to_string(),
            usage_core_ms: core_ms(sum),
            sites: sites.into_iter().map(of_site).collect(),
        }
    }
}

/// Weighted usage in core-milliseconds, rounded down.
fn core_ms(weighted: u128) -> String {
    (weighted / u128::from(history::ONE)).to_string()
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
