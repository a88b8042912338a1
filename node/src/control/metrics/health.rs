//! What an operator should look at, as numbers: notices by code, documents' ends, the clock, and which program it is.
//!
//! Invariant: a code that a node has told of is at 0 when it is over, as far as it is listed in [`CODES`], so that an
//! alert clears and none is missed for want of a series.

use std::collections::BTreeMap;

use fairmesh_api::{PeerState, StatusBody};
use fairmesh_model::Now;
use fairmesh_site::Site;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use strum::VariantArray as _;

use super::Sample;
use super::registry::{FloatGauge, Labels, float_gauges, gauges, signed};

/// Codes that alerts are made of.
const CODES: [&str; 15] = [
    "alone",
    "disk-fills",
    "disk-full",
    "disk-low",
    "loop-behind",
    "loop-failing",
    "loop-silent",
    "loop-stopped",
    "peer-over-budget",
    "peer-silent",
    "peer-unreachable",
    "policy-snapshot",
    "policy-warning",
    "site-twice",
    "source-away",
];

/// What a node says of its health.
#[derive(Debug, Default)]
pub(crate) struct HealthSample {
    notices: BTreeMap<(String, String), u64>,
    /// How many peers are in each state.
    states: BTreeMap<&'static str, u64>,
    /// When the first document of a VO expires, in seconds since the Unix epoch.
    expires: Vec<(String, f64)>,
    /// When the snapshot of a VO was signed, likewise, and how many documents that it names are not here.
    snapshots: Vec<(String, f64, u64)>,
    clock_offset_s: Option<f64>,
}

impl HealthSample {
    #[expect(clippy::cast_precision_loss, reason = "times in seconds, for people")]
    pub(super) fn of(status: &StatusBody, clock_offset_s: Option<f64>) -> Self {
        let mut notices: BTreeMap<(String, String), u64> = BTreeMap::new();
        for notice in &status.notices {
            let key = (notice.code.clone(), notice.severity.clone());
            *notices.entry(key).or_default() += 1;
        }
        for code in CODES {
            if !notices.keys().any(|(of, _)| of == code) {
                notices.insert((code.to_owned(), "none".to_owned()), 0);
            }
        }
        let states = PeerState::VARIANTS.iter().map(|state| (state.name(), 0));
        let mut states: BTreeMap<&'static str, u64> = states.collect();
        for peer in &status.peers {
            *states.entry(peer.state.name()).or_default() += 1;
        }
        let vos = &status.vos;
        let names = super::vo_labels(vos.iter().map(|vo| (vo.vo.clone(), vo.name.as_deref())));
        let named = || names.iter().cloned().zip(vos);
        let expires =
            named().filter_map(|(name, vo)| Some((name, vo.expires_ms? as f64 / 1_000.0)));
        let snapshots = named().filter_map(|(name, vo)| {
            let of = vo.snapshot.as_ref()?;
            Some((name, of.issued_ms as f64 / 1_000.0, of.missing))
        });
        Self {
            notices,
            states,
            expires: expires.collect(),
            snapshots: snapshots.collect(),
            clock_offset_s,
        }
    }
}

/// By how much this clock is ahead of the median of the connected sites'.
#[expect(clippy::cast_precision_loss, reason = "offsets in seconds, for people")]
pub(super) fn clock_offset_s(site: &Site, now: Now) -> Option<f64> {
    let peers = site.peers().into_iter().filter(|peer| peer.connected);
    let mut clocks: Vec<u64> = peers
        .filter_map(|peer| Some(site.clock_of(peer.site, now.mono)?.0))
        .collect();
    clocks.sort_unstable();
    let median = *clocks.get(clocks.len() / 2)?;
    Some((i128::from(now.wall.0) - i128::from(median)) as f64 / 1_000.0)
}

/// Adds what was seen.
pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The program", build);
    let notices = Family::<Labels, Gauge>::default();
    for ((code, severity), count) in &sample.health.notices {
        let labels = vec![("code", code.clone()), ("severity", severity.clone())];
        notices.get_or_create(&labels).set(signed(*count));
    }
    let help = "What an operator should look at, by code";
    registry.register("notices", help, notices);
    let states = gauges("state", sample.health.states.clone());
    registry.register("peers", "Other sites, by state", states);
    let expires = sample.health.expires.iter().map(|(vo, at)| (vo, *at));
    let expires = float_gauges("vo", expires);
    let help = "When the first of a VO's documents in force expires, since the Unix epoch";
    registry.register_with_unit("documents_expire_timestamp", help, Unit::Seconds, expires);
    register_snapshots(registry, sample);
    if let Some(offset) = sample.health.clock_offset_s {
        let gauge = FloatGauge::default();
        gauge.set(offset);
        let help = "By how much this clock is ahead of the median of the connected sites'";
        registry.register_with_unit("clock_offset", help, Unit::Seconds, gauge);
    }
}

fn register_snapshots(registry: &mut Registry, sample: &Sample) {
    let snapshots = &sample.health.snapshots;
    let issued = float_gauges("vo", snapshots.iter().map(|(vo, at, _)| (vo, *at)));
    let help = "When a VO's snapshot was signed, since the Unix epoch";
    registry.register_with_unit("snapshot_issued_timestamp", help, Unit::Seconds, issued);
    let missing = gauges("vo", snapshots.iter().map(|(vo, _, of)| (vo, *of)));
    let help = "Documents that a VO's snapshot names and that are not here";
    registry.register("snapshot_missing_documents", help, missing);
}
