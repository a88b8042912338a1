//! `GET /v1/metrics`: OpenMetrics, for Prometheus and its kin.
//!
//! Invariant: no label holds a user or anything else that grows with the load: labels are outcomes, notices' codes,
//! VOs and member sites, all bounded by charters, and the largest entries of the two upper levels of the share tree
//! that have others below them. Counters are copies of the node's own, taken at each scrape.
//! Deliberately not here: alerts and dashboards (`configs/prometheus`, `configs/grafana`).

mod forward;
mod health;
mod loops;
mod quota;
mod record_log;
mod registry;
mod shares;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use fairmesh_api::loops::LoopsReport;
use fairmesh_gossip::GossipStats;
use fairmesh_model::{Now, VoId};
use fairmesh_site::{Coverage, ForwardStats, QuotaStats, Site, SiteStats};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::Deserialize;

use crate::control::{ApiError, Params, Shared};
use crate::driver::Disk;
use crate::lookup::LookupStats;
use crate::network::NetworkStats;
use crate::privacy::{PrivateData, Visibility};
use crate::record_log::LogStats;
use quota::QuotaSample;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All that is measured, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) site: SiteStats,
    pub(crate) gossip: GossipStats,
    pub(crate) network: Arc<NetworkStats>,
    pub(crate) vos: Vec<VoSample>,
    pub(crate) quota: QuotaStats,
    pub(crate) forward: ForwardStats,
    /// Of VOs with allocations.
    pub(crate) quotas: Vec<QuotaSample>,
    pub(crate) unmapped: u64,
    pub(crate) entries: u64,
    pub(crate) lookups: Option<Arc<LookupStats>>,
    /// Reports of the loops, by batch system.
    pub(crate) loops: BTreeMap<&'static str, LoopsReport>,
    /// None where no log is kept.
    pub(crate) record_log: Option<LogStats>,
    /// What is to be looked at.
    pub(crate) health: health::HealthSample,
    pub(crate) shares: Vec<shares::ShareSample>,
    /// The disk of the data folder.
    pub(crate) disk: Disk,
    /// Lines of the node's own log that could not be written, since its start.
    pub(crate) log_lines_lost: u64,
    /// Whether the counters of each peer are wanted.
    pub(crate) has_sites: bool,
    /// When the sample was taken, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct VoSample {
    pub(crate) name: String,
    pub(crate) charter_version: u64,
    pub(crate) warnings: u64,
    pub(crate) coverage: Coverage,
    pub(crate) oldest_age_s: f64,
}

/// What a scrape may ask for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// The counters of each peer, too.
    #[serde(default)]
    pub(crate) sites: bool,
}

/// Answers a scrape over `control.sock`.
pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    visibility: Visibility,
    Params(wanted): Params<Wanted>,
) -> Result<impl IntoResponse, ApiError> {
    let text = text(&shared, visibility.hides(PrivateData::Usage), wanted.sites).await?;
    Ok(answer(text))
}

/// The answer to a scrape.
pub(crate) fn answer(text: impl IntoResponse) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

/// Writes `sample` as OpenMetrics.
fn render(sample: &Sample) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("fairmesh");
    for register in [
        registry::register,
        health::register,
        shares::register,
        quota::register,
        forward::register,
        loops::register,
        record_log::register,
    ] {
        register(&mut registry, sample);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// All that is measured, without entries of the share tree where usage is hidden; with `sites` the counters of each peer.
pub(crate) async fn text(
    shared: &Shared,
    hides_usage: bool,
    sites: bool,
) -> Result<String, ApiError> {
    let (mut sample, labels, clock_offset_s) = shared.options.node.ask(take).await?;
    sample.quotas = quota::sample(&shared.options.node, labels).await?;
    let (_, status) = crate::control::status(shared, false).await?;
    sample.health = health::HealthSample::of(&status, clock_offset_s);
    if !hides_usage {
        let served = shared.options.serving.newest();
        let largest = tokio::task::spawn_blocking(move || shares::largest(&served)).await;
        sample.shares = largest.map_err(ApiError::internal)?;
    }
    sample.log_lines_lost = crate::log::losses().all;
    sample.disk = shared.options.node.disk();
    sample.network = shared.options.node.network_stats();
    sample.has_sites = sites;
    sample.lookups.clone_from(&shared.options.lookups);
    sample.loops = shared.loops.heard();
    sample.record_log = shared.options.records.as_ref().map(|log| log.stats());
    render(&sample).map_err(ApiError::internal)
}

/// What VOs of these ids and names are called in labels, in their order: by their names, with the beginning of the id
/// where several have one name, and by that alone where they have none yet.
fn vo_labels<'a>(vos: impl Iterator<Item = (String, Option<&'a str>)>) -> Vec<String> {
    let vos: Vec<_> = vos.collect();
    let label = |(id, name): &(String, Option<&str>)| {
        let short: String = id.chars().take(8).collect();
        let same = vos.iter().filter(|(_, other)| other == name).count();
        match name {
            Some(name) if same > 1 => format!("{name} {short}"),
            Some(name) => (*name).to_owned(),
            None => short,
        }
    };
    vos.iter().map(label).collect()
}

#[expect(clippy::cast_precision_loss, reason = "ages in seconds, for people")]
fn take(site: &Site, now: Now) -> (Sample, BTreeMap<VoId, String>, Option<f64>) {
    let statuses = site.vo_status(now);
    let names = vo_labels(
        statuses
            .iter()
            .map(|of| (of.vo.to_string(), of.name.as_deref())),
    );
    let vos = statuses.iter().map(|of| of.vo);
    let labels = vos.zip(names.iter().cloned()).collect();
    let vo = |(status, name): (fairmesh_site::VoStatus, String)| VoSample {
        oldest_age_s: status
            .coverage
            .oldest()
            .map_or(0.0, |(_, at)| now.wall.since(at).0 as f64 / 1_000.0),
        name,
        charter_version: status.held.charter_version,
        warnings: u64::try_from(status.warnings.len()).unwrap_or(u64::MAX),
        coverage: status.coverage,
    };
    let sample = Sample {
        site: site.stats(),
        gossip: site.gossip_stats(),
        vos: statuses.into_iter().zip(names).map(vo).collect(),
        quota: site.quota_stats(),
        forward: site.forward_stats(),
        unmapped: u64::try_from(site.unmapped().count()).unwrap_or(u64::MAX),
        now_ms: now.wall.0,
        entries: u64::try_from(site.view().reader().entries()).unwrap_or(u64::MAX),
        ..Sample::default()
    };
    (sample, labels, health::clock_offset_s(site, now))
}

#[cfg(test)]
mod tests {
    use super::vo_labels;

    #[test]
    fn two_vos_of_one_name_have_series_of_their_own() {
        let vos = [
            ("0123456789", Some("cms")),
            ("ab", None),
            ("9876543210", Some("cms")),
            ("cd", Some("atlas")),
        ];
        let labels = vo_labels(vos.into_iter().map(|(id, name)| (id.to_owned(), name)));
        assert_eq!(labels, ["cms 01234567", "ab", "cms 98765432", "atlas"]);
    }
}
