//! A sample as text.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{Sample, VoSample};
use crate::network::PeerStats;

/// Labels and their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A time or a ratio.
pub(super) type FloatGauge = Gauge<f64, AtomicU64>;

/// Registers what the site, its gossip, the network and the VOs count.
pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    site(registry, sample);
    gossip(registry, sample);
    network(registry, sample);
    vos(registry, sample);
}

fn site(registry: &mut Registry, sample: &Sample) {
    let stats = &sample.site;
    let records = [
        ("counted", stats.records_counted),
        ("known", stats.records_known),
        ("refused", stats.records_refused),
    ];
    let records = counters("outcome", records);
    let help = "Usage records reported, by what became of them";
    registry.register("records", help, records);
    let help = "Usage records that map nowhere";
    counter(registry, "records_unmapped", help, stats.records_unmapped);
    let help = "Jobs that were taken back by corrections";
    counter(registry, "jobs_taken_back", help, stats.jobs_corrected);
    let help = "Heads signed";
    counter(registry, "heads_published", help, stats.heads_published);
    let help = "Heads of other sites taken";
    counter(registry, "heads_taken", help, stats.heads_taken);
    let help = "Sums of accounts changed by what other sites published";
    counter(registry, "cells_taken", help, stats.cells_taken);
    let help = "Documents and heads of other sites refused";
    counter(registry, "refused", help, stats.refused);
    let help = "Origins that map nowhere";
    gauge(registry, "origins_unmapped", help, sample.unmapped);
    let help = "Entries of the share tree in force";
    gauge(registry, "tree_entries", help, sample.entries);
    disk(registry, sample);
    let help = "Lines of the node's own log that could not be written";
    counter(registry, "log_lines_lost", help, sample.log_lines_lost);
    lookups(registry, sample);
}

fn disk(registry: &mut Registry, sample: &Sample) {
    let free = "disk_free_bytes";
    if let Some(room) = sample.disk.room {
        let help = "Free on the disk of the data folder";
        gauge(registry, free, help, room.free);
    }
    if let Some(bytes) = sample.disk.store_bytes {
        let help = "What the store takes of it";
        gauge(registry, "store_bytes", help, bytes);
    }
    let help = "Damaged records that were met in the store since it was opened";
    let damaged = sample.disk.damaged_reads;
    gauge(registry, "store_damaged_reads", help, damaged);
    if let Some(days) = sample.disk.days_left {
        let help = "Until that disk is full, by how it filled in the last day";
        gauge(registry, "disk_days_left", help, days);
    }
    let refuses = u64::from(sample.disk.refusal.is_some());
    let help = "Whether reports are refused for want of room";
    gauge(registry, "disk_refuses", help, refuses);
}

fn lookups(registry: &mut Registry, sample: &Sample) {
    if let Some(lookups) = &sample.lookups {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let help = "Look-up requests answered";
        counter(registry, "lookups_answered", help, load(&lookups.answered));
        let help = "Factors looked up";
        counter(registry, "lookup_rows", help, load(&lookups.rows));
        let help = "Look-up requests refused";
        counter(registry, "lookups_refused", help, load(&lookups.refused));
    }
}

fn gossip(registry: &mut Registry, sample: &Sample) {
    let stats = &sample.gossip;
    let exchanges = [
        ("probe", stats.probes),
        ("pull", stats.pulls),
        ("parts", stats.part_requests),
        ("answered", stats.answered),
        ("agreed", stats.agreements),
        ("failed", stats.failures),
    ];
    let exchanges = counters("kind", exchanges);
    registry.register("exchanges", "Anti-entropy exchanges, by kind", exchanges);
}

fn network(registry: &mut Registry, sample: &Sample) {
    let stats = &sample.network;
    let connected = stats.peers.values().filter(|peer| peer.connected).count();
    let help = "Peers connected now";
    gauge(registry, "peers_connected", help, count(connected));
    let help = "Peers that may speak";
    gauge(registry, "peers_known", help, count(stats.peers.len()));
    let help = "Connections with all peers";
    gauge(registry, "connections", help, stats.connections);
    let help = "Connections refused";
    counter(
        registry,
        "connections_refused",
        help,
        stats.connections_refused,
    );
    let help = "Gossip dropped because the node was busy";
    counter(registry, "gossip_dropped", help, stats.gossip_dropped);
    let help = "Gossip of non-members refused";
    counter(registry, "gossip_foreign", help, stats.gossip_foreign);
    let help = "Received by the TCP sockets, all protocols included";
    bytes_counter(registry, "wire_received", help, stats.wire_received_bytes);
    let help = "Sent by the TCP sockets, all protocols included";
    bytes_counter(registry, "wire_sent", help, stats.wire_sent_bytes);
    if sample.has_sites {
        peers(registry, sample);
    }
}

fn peers(registry: &mut Registry, sample: &Sample) {
    let of = |value: fn(&PeerStats) -> u64| {
        let peers = sample.network.peers.iter();
        counters(
            "site",
            peers.map(|(site, peer)| (site.short(), value(peer))),
        )
    };
    let help = "Payload received";
    registry.register_with_unit("peer_received", help, Unit::Bytes, of(|peer| peer.bytes_in));
    let help = "Payload sent, without gossip";
    registry.register_with_unit("peer_sent", help, Unit::Bytes, of(|peer| peer.bytes_out));
    let help = "Dials that failed";
    registry.register("peer_dials_failed", help, of(|peer| peer.dials_failed));
    let help = "What peers sent beyond their budgets, dropped unread";
    registry.register("peer_throttled", help, of(|peer| peer.throttled));
    let help = "Times that peers were disconnected for sending too much";
    registry.register("peer_bars", help, of(|peer| peer.bars));
}

fn vos(registry: &mut Registry, sample: &Sample) {
    let of = |value: fn(&VoSample) -> u64| {
        let vos = sample.vos.iter();
        gauges("vo", vos.map(|vo| (&vo.name, value(vo))))
    };
    let known = of(|vo| vo.coverage.sites_known.into());
    let help = "Member sites of which anything is held";
    registry.register("sites_known", help, known);
    let total = of(|vo| vo.coverage.sites_total.into());
    registry.register("sites_members", "Member sites", total);
    let help = "Version of the charter in force";
    registry.register("charter_version", help, of(|vo| vo.charter_version));
    let help = "What is wrong with a VO's documents";
    registry.register("policy_warnings", help, of(|vo| vo.warnings));
    let oldest = sample.vos.iter().map(|vo| (&vo.name, vo.oldest_age_s));
    let help = "Age of the data of the site whose data are the oldest";
    let oldest = float_gauges("vo", oldest);
    registry.register_with_unit("oldest_data_age", help, Unit::Seconds, oldest);
}

pub(super) fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn bytes_counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    registry.register_with_unit(name, help, Unit::Bytes, counter);
}

pub(super) fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge: Gauge = Gauge::default();
    gauge.set(signed(value));
    registry.register(name, help, gauge);
}

/// A counter for each value of a label.
pub(super) fn counters<N: Into<String>>(
    label: &'static str,
    values: impl IntoIterator<Item = (N, u64)>,
) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for (name, value) in values {
        let labels = vec![(label, name.into())];
        family.get_or_create(&labels).inc_by(value);
    }
    family
}

/// A gauge for each value of a label.
pub(super) fn gauges<N: Into<String>>(
    label: &'static str,
    values: impl IntoIterator<Item = (N, u64)>,
) -> Family<Labels, Gauge> {
    let family = Family::<Labels, Gauge>::default();
    for (name, value) in values {
        let labels = vec![(label, name.into())];
        family.get_or_create(&labels).set(signed(value));
    }
    family
}

/// The same of times and ratios.
pub(super) fn float_gauges<N: Into<String>>(
    label: &'static str,
    values: impl IntoIterator<Item = (N, f64)>,
) -> Family<Labels, FloatGauge> {
    let family = Family::<Labels, FloatGauge>::default();
    for (name, value) in values {
        let labels = vec![(label, name.into())];
        family.get_or_create(&labels).set(value);
    }
    family
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn count(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::render;
    use super::*;

    #[test]
    fn a_sample_is_open_metrics() {
        let mut sample = Sample::default();
        sample.site.records_counted = 7;
        sample.vos.push(super::super::VoSample {
            name: "a \"VO\"\n".to_owned(),
            ..Default::default()
        });
        let text = render(&sample).expect("renders");
        assert!(!text.contains("quota"), "no VO has allocations");
        sample.quota.refused = 3;
        sample.quotas.push(super::super::quota::QuotaSample {
            vo: "v".to_owned(),
            amounts: [
                ("here", 5),
                ("a", 0),
                ("b", 0),
                ("c", 0),
                ("d", 0),
                ("e", 0),
            ],
        });
        let text = render(&sample).expect("renders");
        for line in [
            "fairmesh_quota_holds_total{outcome=\"refused\"} 3",
            "fairmesh_quota_core_ms{vo=\"v\",state=\"here\"} 5",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            text.contains("fairmesh_records_total{outcome=\"counted\"} 7"),
            "{text}"
        );
        assert!(
            text.contains(r#"fairmesh_sites_known{vo="a \"VO\"\n"} 0"#),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }
}
