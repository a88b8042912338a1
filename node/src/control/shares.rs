//! `GET /v1/shares[?path=][&depth=][&limit=][&after=]`: the tree in force, target against actual. With `user=` only the
//! entries that jobs of this user of the batch system count at, as `/v1/explain` finds them.
//!
//! Invariant: all numbers of an answer are of one moment, the one that look-ups are answered from, and
//! making it does not hold up the driver. Entries of which anything that is told here is hidden from the reader
//! are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use axum::http::StatusCode;
use axum::response::Response;
use fairmesh_api::{ShareBody, SharesBody};
use fairmesh_fairshare::explain::{LevelExplanation, levels};
use fairmesh_fairshare::{EntryId, EntryKind};
use fairmesh_model::{AccountPath, Origin, Share, VoId};
use serde::Deserialize;

use super::State;
use super::blocking::{BlockingAnswer, CancelFlag};
use super::error::ApiError;
use super::extract::{Page, Params, Wanted as Whom, parse_path};
use super::moment::{Moment, fraction};
use super::priority::places;
use crate::privacy::{PrivateData, Visibility};

/// Most entries of one answer: some 100 MB of JSON.
const ENTRIES_MAX: usize = 200_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    path: Option<String>,
    user: Option<String>,
    /// How many levels below `path` are listed; all where it is not given.
    depth: Option<usize>,
    /// At most so many entries, of what comes behind `after`.
    limit: Option<NonZeroUsize>,
    after: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let below = query
        .path
        .as_deref()
        .map_or(Ok(AccountPath::root()), parse_path)?;
    let page = Page::of(query.after.as_deref(), query.limit, ENTRIES_MAX)?;
    let is_whole = query.limit.is_none();
    let moment = Moment::take(&shared).await?;
    let rests_on = moment.rests_on.clone();
    let of_user = match query.user {
        Some(user) => Some(paths_of_user(&moment, user).await?),
        None => None,
    };
    let made = move |cancel: &CancelFlag| {
        let (entries, next) = moment.entries(&below, query.depth, &page, |path| {
            let is_meant = of_user.as_ref().is_none_or(|paths| paths.contains(path));
            is_meant
                && !cancel.is_set()
                && [PrivateData::Usage, PrivateData::Priority]
                    .iter()
                    .all(|what| visibility.sees_entry(*what, path))
        })?;
        if is_whole && next.is_some() {
            let error = format!("more than {ENTRIES_MAX} entries");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error).hint(
                "ask for a part of the tree, /v1/shares?path=/VO-A, or for pages: ?limit=10000",
            ));
        }
        Ok(SharesBody { entries, next })
    };
    blocking.answer("shares", rests_on, made).await
}

/// The entries that jobs of a user count at.
async fn paths_of_user(moment: &Moment, user: String) -> Result<BTreeSet<AccountPath>, ApiError> {
    let origin = Origin {
        user: Some(user),
        ..Origin::default()
    };
    let whom = Whom {
        origin,
        ..Whom::default()
    };
    let places = places(moment, &whom).await?;
    Ok(places.into_iter().map(|place| place.path).collect())
}

impl Moment {
    fn entries(
        &self,
        below: &AccountPath,
        depth: Option<usize>,
        page: &Page,
        is_seen: impl Fn(&AccountPath) -> bool,
    ) -> Result<(Vec<ShareBody>, Option<String>), ApiError> {
        let top = self.entry(below)?;
        // The tree's order is that of names, level by level, which the text of paths does not have.
        let is_before = |entry: &EntryId, after: &AccountPath| {
            let path = self.snapshot().path(*entry);
            path.names().le(after.names())
        };
        let is_after = |entry: &EntryId| {
            let after = page.after.as_ref();
            after.is_none_or(|after| !is_before(entry, after))
        };
        let mut wanted: Vec<EntryId> = self
            .in_path_order(top)
            .into_iter()
            .filter(is_after)
            .filter(|entry| *entry != EntryId::ROOT)
            .filter(|entry| {
                let levels = self.snapshot().path(*entry).depth() - below.depth();
                depth.is_none_or(|depth| levels <= depth)
            })
            .filter(|entry| is_seen(self.snapshot().path(*entry)))
            .take(page.most + 1)
            .collect();
        let next = page.cut(&mut wanted);
        let next = next.map(|last| self.snapshot().path(*last).to_string());
        let mounts: BTreeMap<&AccountPath, VoId> = self
            .view
            .mounts()
            .iter()
            .map(|(vo, path)| (path, *vo))
            .collect();
        let body = |entry: EntryId| self.share_body(entry, &mounts);
        Ok((wanted.into_iter().map(body).collect(), next))
    }

    /// The share of an entry as its author wrote it: the owner, or a VO.
    fn share_as_written(&self, entry: EntryId) -> Option<String> {
        let owners = self.view.share_of_owner(self.snapshot().path(entry));
        let written = owners.or_else(|| self.snapshot().written(entry));
        written.map(|share| share.to_string())
    }

    /// The entries at and below one, in the order of their names: accounts without a line, which the tree has behind
    /// all others, between those that have one.
    fn in_path_order(&self, top: EntryId) -> Vec<EntryId> {
        let snapshot = self.snapshot();
        let is_listed = |entry: &EntryId| snapshot.kind(*entry) != EntryKind::Unlisted;
        let (listed, mut unlisted): (Vec<_>, Vec<_>) = snapshot.subtree(top).partition(is_listed);
        let precedes =
            |a: EntryId, b: EntryId| snapshot.path(a).names().lt(snapshot.path(b).names());
        unlisted.sort_by(|a, b| snapshot.path(*a).names().cmp(snapshot.path(*b).names()));
        let mut unlisted = unlisted.into_iter().peekable();
        let mut merged = Vec::with_capacity(listed.len() + unlisted.len());
        for entry in listed {
            while let Some(account) = unlisted.next_if(|account| precedes(*account, entry)) {
                merged.push(account);
            }
            merged.push(entry);
        }
        merged.extend(unlisted);
        merged
    }

    fn share_body(&self, entry: EntryId, mounts: &BTreeMap<&AccountPath, VoId>) -> ShareBody {
        let path = self.snapshot().path(entry);
        let mut levels = levels(self.snapshot(), entry);
        let of_whole = levels.iter().fold(Share::WHOLE, |whole, level| {
            let units = u64::from(whole.units()) * u64::from(level.actual.units());
            Share::from_ratio(units / u64::from(Share::ONE), u64::from(Share::ONE))
        });
        // The last of an explanation's levels is the entry's own.
        let own = levels.pop().expect("only the root has no level");
        let above = self.snapshot().parent(entry);
        let weight = match above.filter(|_| own.kind == EntryKind::Unlisted) {
            Some(others) => (1, self.snapshot().accounts(others) as u64),
            None => own.weight,
        };
        let level_fs = level_fs(weight, &own);
        let is_others = self.snapshot().is_others(entry);
        let level = self.level_body(own);
        let vo = path
            .ancestors()
            .find_map(|above| mounts.get(&above).copied());
        let leaf = self.snapshot().is_leaf(entry);
        // Usage of an entry that has children, which is nobody's of that name.
        let is_itself = level.among.is_some() && path.as_str().ends_with("/*/=");
        ShareBody {
            leaf,
            user: path
                .name()
                .filter(|_| leaf && !is_itself)
                .map(str::to_owned),
            others: is_others.then(|| self.snapshot().accounts(entry)),
            among: level.among,
            since: level.since,
            share: self.share_as_written(entry),
            weight: weight.0,
            weights: weight.1,
            level_fs,
            path: level.path,
            global: level.global,
            vo: vo.map(|vo| vo.to_string()),
            divided_by: self.view.divided_by(path).map(|by| by.name.clone()),
            target: level.target,
            actual: level.actual,
            actual_of_whole: of_whole.to_string(),
            deviation: level.deviation,
            usage_core_ms: level.usage_core_ms,
            parent_usage_core_ms: level.parent_usage_core_ms,
            factor: fraction(self.order.factor(entry)),
            rank: self.order.ranking().rank(entry),
        }
    }
}

/// Target over actual share.
#[expect(clippy::cast_precision_loss, reason = "a ratio, for people")]
fn level_fs((part, whole): (u64, u64), level: &LevelExplanation) -> String {
    if part == 0 {
        return "0.000000".to_owned();
    }
    if level.usage == 0 {
        return "inf".to_owned();
    }
    let actual = level.usage as f64 / level.parent_usage.max(level.usage) as f64;
    format!("{:.6}", part as f64 / whole as f64 / actual)
}
