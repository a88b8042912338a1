//! What an answer rests on, asked of the site in the same breath as the answer itself.

use std::collections::BTreeMap;

use axum::Json;
use fairmesh_api::words::timestamp;
use fairmesh_api::{Answer, CoverageBody, OldestBody, RestsOn, ViewBody};
use fairmesh_model::{Millis, Now, Share, SiteId, clean};
use fairmesh_site::{Coverage, Site};

use super::Shared;
use super::error::ApiError;

/// A JSON answer of schema `fairmesh.<what>/1`.
pub(super) fn answer<T>(what: &str, rests_on: RestsOn, body: T) -> Json<Answer<T>> {
    Json(Answer {
        schema: format!("fairmesh.{what}/1"),
        rests_on,
        body,
    })
}

impl Shared {
    /// Asks the site; gives what it says, and what that rests on.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Site, Now) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(RestsOn, T), ApiError> {
        let asked = move |site: &Site, now: Now| (rests_on(site, now), question(site, now));
        let (rests_on, said) = self.node().ask(asked).await?;
        Ok((rests_on, said?))
    }

    /// An answer that rests on what the site says when all is done.
    pub(super) async fn answer<T>(&self, what: &str, body: T) -> Result<Json<Answer<T>>, ApiError> {
        let rests_on = self.node().ask(rests_on).await?;
        Ok(answer(what, rests_on, body))
    }
}

/// What anything that the site says now rests on.
pub fn rests_on(site: &Site, now: Now) -> RestsOn {
    let now = site.by_members(now);
    let views = site.vo_status(now).into_iter().map(|status| ViewBody {
        vo: status.vo.to_string(),
        name: status.name.as_deref().map(clean),
        charter_version: status.held.charter_version,
        is_member: status.cpus.is_some() || status.held.charter_version == 0,
        documents: status.held.documents.map(|hash| hash.to_string()),
        counters: status.held.counters.map(|hash| hash.to_string()),
        expires_ms: status.expires.map(|(at, _)| at.0),
        snapshot: (status.snapshot_warnings.into_iter().next()).map(|warning| clean(&warning)),
    });
    RestsOn {
        as_of: timestamp(now.wall),
        as_of_ms: now.wall.0,
        coverage: coverage_body(site, &site.coverage(), now),
        views: views.collect(),
    }
}

fn coverage_body(site: &Site, coverage: &Coverage, now: Now) -> CoverageBody {
    // What is known of this site itself is never old, however long it has had nothing to say.
    let others = coverage
        .signed_at
        .iter()
        .filter(|(id, _)| **id != site.id());
    let oldest = others.clone().min_by_key(|(_, at)| **at);
    // What a peer confirmed a second ago is a second old, however long ago it was signed.
    let confirmed: BTreeMap<SiteId, Millis> = site
        .peers()
        .into_iter()
        .filter(|peer| peer.connected)
        .filter_map(|peer| Some((peer.site, now.mono.since(peer.agreed?))))
        .collect();
    let body = |id: SiteId, age: Millis| OldestBody {
        site: id.to_string(),
        name: site_name(site, id),
        age_ms: age.0,
    };
    let ages = others.clone().map(|(id, at)| {
        let signed = now.wall.since(*at);
        (
            confirmed.get(id).map_or(signed, |age| signed.min(*age)),
            *id,
        )
    });
    let stalest = ages.max_by_key(|(age, _)| *age);
    CoverageBody {
        stalest: stalest.map(|(age, id)| body(id, age)),
        sites_known: coverage.sites_known,
        sites_total: coverage.sites_total,
        oldest: oldest.map(|(id, at)| body(*id, now.wall.since(*at))),
        capacity_known: Share::from_ratio(coverage.cores_known, coverage.cores_total).to_string(),
    }
}

/// The names of the sites of which anything is held, this one too, safe to print.
pub(super) fn site_names(site: &Site) -> BTreeMap<SiteId, String> {
    let held = site.coverage().signed_at.into_keys().chain([site.id()]);
    held.filter_map(|id| Some((id, site_name(site, id)?)))
        .collect()
}

/// The name of a site in any charter, safe to print.
pub(super) fn site_name(site: &Site, id: SiteId) -> Option<String> {
    site.site_name(id).map(clean)
}
