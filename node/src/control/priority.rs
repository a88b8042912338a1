//! `GET /v1/priority?user=&account=&group=&subject=` (or `?path=`): one factor, and its vector.
//!
//! Deliberately not here: thousands of them at once, which is what `lookup.sock` is for.

use axum::response::IntoResponse;
use fairmesh_api::PriorityBody;
use fairmesh_fairshare::{EntryId, EntryKind, Order};
use fairmesh_model::{AccountPath, Origin};
use fairmesh_site::{Account, View, Words};
use serde::Deserialize;

use super::State;
use super::access::hidden;
use super::error::ApiError;
use super::extract::{Params, Wanted, parse_path};
use super::moment::{Moment, fraction};
use super::rests_on::answer;
use crate::privacy::{PrivateData, Visibility, account_at};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
    subject: Option<String>,
    queue: Option<String>,
    qos: Option<String>,
    path: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let moment = Moment::take(&shared).await?;
    let wanted = Wanted {
        path: query.path,
        origin: Origin {
            user: query.user,
            account: query.account,
            group: query.group,
            subject: query.subject,
        },
        queue: query.queue,
        qos: query.qos,
    };
    let found = places(&moment, &wanted).await?;
    let place = only(seen(&visibility, &[PrivateData::Priority], &wanted, found)?)?;
    let sees_usage = visibility.sees_entry(PrivateData::Usage, &place.path);
    let body = PriorityBody {
        vo: place.account.vo.map(|vo| vo.to_string()),
        account: place.account.path.to_string(),
        entry: place.path.to_string(),
        exact: place.exact,
        factor: fraction(moment.order.factor(place.entry)),
        priority: moment.order.priority(place.entry).to_string(),
        projection: moment.order.projection().name().to_owned(),
        rank: moment.order.ranking().rank(place.entry),
        ranks: moment.order.ranking().count(),
        // They tell what each level has used.
        levels: match sees_usage {
            true => moment.levels(place.entry),
            false => Vec::new(),
        },
    };
    Ok(answer("priority", moment.rests_on, body))
}

/// Who was meant, and where that counts.
pub(super) struct Place {
    pub(super) path: AccountPath,
    pub(super) account: Account,
    pub(super) entry: EntryId,
    pub(super) exact: bool,
}

/// The places that are meant: one, or all of a user of whom nothing else is said, the one that is served
/// first first.
pub(super) async fn places(moment: &Moment, wanted: &Wanted) -> Result<Vec<Place>, ApiError> {
    let user = wanted.origin.user.clone();
    let alone = Words {
        user: user.as_deref(),
        ..Words::default()
    };
    let is_alone = wanted.path.is_none() && wanted.words() == alone;
    let mut places = Vec::new();
    if let Some(user) = user.filter(|_| is_alone) {
        let (view, order) = (moment.view.clone(), moment.order.clone());
        let search = tokio::task::spawn_blocking(move || of_user(&view, &order, &user));
        places = search.await.map_err(ApiError::internal)?;
    }
    if places.is_empty() {
        places.push(find(moment, wanted)?);
    }
    Ok(places)
}

/// Those of the places that the reader sees all this of, where he sees any. Where he sees none he is told what he has
/// asked for: which of their entries comes first shows how they stand.
pub(super) fn seen(
    visibility: &Visibility,
    whats: &[PrivateData],
    wanted: &Wanted,
    mut places: Vec<Place>,
) -> Result<Vec<Place>, ApiError> {
    places.retain(|place| {
        let mut whats = whats.iter();
        whats.all(|what| visibility.sees_entry(*what, &place.path))
    });
    if places.is_empty() {
        let path = wanted.path.as_ref();
        let whom = path.map_or_else(|| words(wanted.words()), |path| format!("`{path}`"));
        return Err(hidden(format!("where {whom} stands")));
    }
    Ok(places)
}

/// The one place that is meant, where only one can be explained.
pub(super) fn only(mut places: Vec<Place>) -> Result<Place, ApiError> {
    if places.len() > 1 {
        let paths = places.iter().map(|place| format!("`{}`", place.path));
        let paths = paths.collect::<Vec<_>>().join(", ");
        let error = format!("{} entries are meant: {paths}", places.len());
        return Err(ApiError::bad_request(error).hint("name the batch account (-A), or the path"));
    }
    Ok(places.remove(0))
}

/// All entries that jobs of `user` may be charged to.
fn of_user(view: &View, order: &Order, user: &str) -> Vec<Place> {
    let entries = view.entries_of(user).into_iter();
    let place = |(entry, account)| Place {
        path: view.reader().path(entry).clone(),
        account,
        entry,
        exact: order.snapshot().kind(entry) == EntryKind::Listed,
    };
    let mut places: Vec<Place> = entries.map(place).collect();
    places.sort_by_key(|place| order.ranking().rank(place.entry));
    places
}

/// The entry that is meant by a path, or by the batch system's words.
fn find(moment: &Moment, wanted: &Wanted) -> Result<Place, ApiError> {
    let (view, snapshot) = (&*moment.view, moment.snapshot());
    let account = match &wanted.path {
        Some(path) => account_at(view, &parse_path(path)?),
        None if wanted.origin == Origin::default() => {
            return Err(ApiError::bad_request("nobody was named")
                .hint("give user, account, group or subject, or the path of an entry"));
        }
        None => view.account(wanted.words()).ok_or_else(|| {
            ApiError::not_found(format!("no identity rule maps {}", words(wanted.words()))).hint(
                "name the batch account that the jobs run under (-A ACCOUNT); where that does not help, tell \
                 whoever runs this node: `fairmesh usage --unmapped` shows him whom no rule maps",
            )
        })?,
    };
    let (entry, exact) = if wanted.path.is_some() {
        let path = view.tree_path(&account);
        let entry = path.and_then(|path| snapshot.entry(&path)).ok_or_else(|| {
            let error = format!("the share tree has no entry `{}`", account.path);
            ApiError::not_found(error).hint("GET /v1/shares lists all entries")
        })?;
        (entry, true)
    } else {
        let resolved = view.locate_in(snapshot, &account);
        (resolved.entry, resolved.exact)
    };
    Ok(Place {
        path: snapshot.path(entry).clone(),
        account,
        entry,
        exact,
    })
}

fn words(words: Words<'_>) -> String {
    let parts = [
        ("user", words.user),
        ("account", words.account),
        ("group", words.group),
        ("subject", words.subject),
        ("queue", words.queue),
        ("QOS", words.qos),
    ];
    let given = parts
        .iter()
        .filter_map(|(name, word)| Some(format!("{name} `{}`", (*word)?)));
    given.collect::<Vec<_>>().join(", ")
}
