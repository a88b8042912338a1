//! `GET /v1/status[?digests=true]`: the node, its VOs, its peers, and what is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::response::IntoResponse;
use fairmesh_api::finding::Finding;
use fairmesh_api::{HeadBody, NodeBody, RestsOn, SnapshotBody, StatusBody, VoBody};
use fairmesh_model::{Now, WallTime, clean};
use fairmesh_policy::Vouched;
use fairmesh_site::{Site, Viewed, VoStatus};
use serde::Deserialize;

use super::access::Peer;
use super::error::ApiError;
use super::extract::Params;
use super::peers::{Found, elapsed};
use super::refused::stored;
use super::rests_on::{answer, rests_on};
use super::text::all_clean;
use super::without_line::without_line;
use super::{Shared, State, health, loop_states};
use crate::log;
use crate::privacy::{PrivateData, Visibility};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    digests: bool,
}

/// The part of the status that the site's task provides.
struct SiteStatus {
    rests_on: RestsOn,
    vos: Vec<VoBody>,
    /// The input for the digests of the VOs' views, in the same order; empty without `digests`.
    viewed: Vec<Option<Viewed>>,
    found: Found,
    notices: Vec<Finding>,
    records_counted: u64,
    unmapped: u64,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    visibility: Visibility,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let (rests_on, mut body) = status(&shared, query.digests).await?;
    let order = Arc::clone(&shared.options.serving.newest().order);
    let listed = tokio::task::spawn_blocking(move || without_line(order.snapshot(), &visibility));
    body.without_line = listed.await.map_err(ApiError::internal)?;
    let is_hidden = |what: &PrivateData| shared.resolver.hidden(peer.uid, *what).is_some();
    let hidden = PrivateData::ALL.into_iter().filter(is_hidden);
    body.hidden = Some(hidden.map(|what| what.name().to_owned()).collect());
    Ok(answer("status", rests_on, body))
}

/// What the node says of itself, with digests of views only if they are wanted.
pub(crate) async fn status(
    shared: &Shared,
    digests: bool,
) -> Result<(RestsOn, StatusBody), ApiError> {
    let own = (
        shared.options.site.short(),
        shared.options.settings.borrow().name.clone(),
    );
    let mut asked = shared
        .node()
        .ask(move |site, now| ask(site, now, digests, own))
        .await?;
    for (vo, viewed) in asked.vos.iter_mut().zip(asked.viewed) {
        let window = viewed.as_ref().and_then(Viewed::window_start);
        vo.view_window_ms = window.map(|start| start.0);
        let digest = tokio::task::spawn_blocking(move || viewed.as_ref().map(Viewed::digest));
        let digest = digest.await.map_err(ApiError::internal)?;
        vo.view_digest = digest.map(|hash| hash.to_string());
    }
    let now = WallTime(asked.rests_on.as_of_ms);
    let rejected = shared.options.settings.borrow().rejected.clone();
    let peers = asked.found.bodies(shared);
    let mut notices = asked.notices;
    notices.extend(health::of_mesh(&asked.vos, &peers, now));
    notices.extend(health::of_disk(&shared.node().disk()));
    notices.extend(health::of_log(&log::losses()));
    notices.extend(rejected.as_deref().map(health::of_reload));
    let waiting = stored(shared, |store| Ok((store.summary()?, store.rejects()?)));
    let (refused, rejects) = waiting.await.unwrap_or_else(|error| {
        tracing::warn!(?error, "what was refused is not known");
        Default::default()
    });
    notices.extend(refused.as_ref().map(health::of_refused));
    notices.extend(rejects.iter().map(health::of_rejects));
    notices.extend(loop_states::lost_logs(&shared.loops.heard()));
    let expected = shared.options.settings.borrow().feeds.clone();
    let up = elapsed(shared.started);
    let loops = shared.loops.facts(Instant::now());
    notices.extend(loop_states::findings(&loops, &expected, up));
    let (notices, healthy) = health::sorted(notices);
    let body = StatusBody {
        node: node_body(shared, asked.records_counted, asked.unmapped),
        vos: asked.vos,
        peers,
        healthy,
        notices,
        without_line: Vec::new(),
        refused,
        rejects,
        hidden: None,
    };
    Ok((asked.rests_on, body))
}

/// `own` is the beginning of this site's id, and its name.
fn ask(site: &Site, now: Now, digests: bool, own: (String, String)) -> SiteStatus {
    let now = site.by_members(now);
    let vos = site.vo_status(now);
    let mut names: BTreeMap<String, String> = BTreeMap::from([own]);
    let sites = site.peers().into_iter();
    names.extend(sites.filter_map(|peer| Some((peer.site.short(), peer.name?))));
    names.extend(
        vos.iter()
            .filter_map(|vo| Some((vo.vo.short(), vo.name.clone()?))),
    );
    // One copy for all VOs.
    let sums = digests.then(|| Arc::new(site.snapshot()));
    let viewed = sums
        .iter()
        .flat_map(|sums| vos.iter().map(move |of| site.viewed(of.vo, sums)));
    SiteStatus {
        rests_on: rests_on(site, now),
        viewed: viewed.collect(),
        vos: vos.into_iter().map(|vo| vo_body(site, vo)).collect(),
        found: Found::ask(site, now),
        notices: health::of_site(site, &names),
        records_counted: site.stats().records_counted,
        unmapped: u64::try_from(site.unmapped().count()).unwrap_or(u64::MAX),
    }
}

fn vo_body(site: &Site, status: VoStatus) -> VoBody {
    VoBody {
        vo: status.vo.to_string(),
        name: status.name.as_deref().map(clean),
        mount: site
            .view()
            .mounts()
            .get(&status.vo)
            .map(ToString::to_string),
        charter_version: status.held.charter_version,
        sites_known: status.coverage.sites_known,
        sites_total: status.coverage.sites_total,
        heads: status
            .held
            .heads
            .iter()
            .map(|(of, seq)| HeadBody {
                site: of.site.to_string(),
                incarnation: of.incarnation.0.to_string(),
                seq: seq.0,
            })
            .collect(),
        expires_ms: status.expires.as_ref().map(|(at, _)| at.0),
        expires_first: status.expires.map(|(_, document)| document.to_string()),
        view_digest: None,
        view_window_ms: None,
        warnings: all_clean(&status.warnings),
        snapshot: status.snapshot.as_ref().map(snapshot_body),
        snapshot_warnings: all_clean(&status.snapshot_warnings),
        cpus: status.cpus,
        past_known: status.past_known,
        recovered_until_ms: status.recovered_until.map(|until| until.0),
    }
}

fn snapshot_body(of: &Vouched) -> SnapshotBody {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    SnapshotBody {
        version: of.snapshot.version,
        issued_ms: of.issued.0,
        expires_ms: of.expires.0,
        missing: count(of.compared.missing),
        newer: count(of.compared.newer),
    }
}

fn node_body(shared: &Shared, records_counted: u64, unmapped: u64) -> NodeBody {
    let uptime = shared.started.elapsed().as_millis();
    let entries = shared.node().view().reader().entries();
    let network = shared.node().network_stats();
    NodeBody {
        site: shared.options.site.to_string(),
        name: shared.options.settings.borrow().name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
        listening: shared.options.listening.clone(),
        connections: network.connections,
        wire_received_bytes: network.wire_received_bytes,
        wire_sent_bytes: network.wire_sent_bytes,
        entries: u64::try_from(entries).unwrap_or(u64::MAX),
        records_counted,
        unmapped,
    }
}
