//! A sample as text.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Sample;

/// Labels and their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Writes `sample` as OpenMetrics.
pub(super) fn render(sample: &Sample) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("fairmesh");
    site(&mut registry, sample);
    gossip(&mut registry, sample);
    network(&mut registry, sample);
    vos(&mut registry, sample);
    super::health::register(&mut registry, sample);
    super::shares::register(&mut registry, sample);
    super::quota::register(&mut registry, sample);
    super::forward::register(&mut registry, sample);
    super::loops::register(&mut registry, sample);
    super::record_log::register(&mut registry, sample);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn site(registry: &mut Registry, sample: &Sample) {
    let stats = &sample.site;
    let records = [
        ("counted", stats.records_counted),
        ("known", stats.records_known),
        ("refused", stats.records_refused),
    ];
    let records = counters("outcome", &records);
    registry.register(
        "records",
        "Usage records reported, by what became of them",
        records,
    );
    counter(
        registry,
        "records_unmapped",
        "Usage records that map nowhere",
        stats.records_unmapped,
    );
    counter(
        registry,
        "jobs_taken_back",
        "Jobs that were taken back by corrections",
        stats.jobs_corrected,
    );
    counter(
        registry,
        "heads_published",
        "Heads signed",
        stats.heads_published,
    );
    counter(
        registry,
        "heads_taken",
        "Heads of other sites taken",
        stats.heads_taken,
    );
    counter(
        registry,
        "cells_taken",
        "Sums of accounts changed by what other sites published",
        stats.cells_taken,
    );
    counter(
        registry,
        "refused",
        "Documents and heads of other sites refused",
        stats.refused,
    );
    gauge(
        registry,
        "origins_unmapped",
        "Origins that map nowhere",
        sample.unmapped,
    );
    gauge(
        registry,
        "tree_entries",
        "Entries of the share tree in force",
        sample.entries,
    );
    disk(registry, sample);
    lookups(registry, sample);
}

fn disk(registry: &mut Registry, sample: &Sample) {
    let free = "disk_free_bytes";
    if let Some(room) = sample.disk.room {
        gauge(
            registry,
            free,
            "Free on the disk of the data folder",
            room.free,
        );
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
    gauge(
        registry,
        "disk_refuses",
        "Whether reports are refused for want of room",
        refuses,
    );
}

fn lookups(registry: &mut Registry, sample: &Sample) {
    if let Some(lookups) = &sample.lookups {
        counter(
            registry,
            "lookups_answered",
            "Look-up requests answered",
            lookups.answered,
        );
        counter(registry, "lookup_rows", "Factors looked up", lookups.rows);
        counter(
            registry,
            "lookups_refused",
            "Look-up requests refused",
            lookups.refused,
        );
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
    let exchanges = counters("kind", &exchanges);
    registry.register("exchanges", "Anti-entropy exchanges, by kind", exchanges);
}

fn network(registry: &mut Registry, sample: &Sample) {
    let stats = &sample.network;
    let connected = stats.peers.values().filter(|peer| peer.connected).count();
    gauge(
        registry,
        "peers_connected",
        "Peers connected now",
        count(connected),
    );
    gauge(
        registry,
        "peers_known",
        "Peers that may speak",
        count(stats.peers.len()),
    );
    gauge(
        registry,
        "connections",
        "Connections with all peers",
        stats.connections,
    );
    counter(
        registry,
        "connections_refused",
        "Connections refused",
        stats.connections_refused,
    );
    counter(
        registry,
        "gossip_dropped",
        "Gossip dropped because the node was busy",
        stats.gossip_dropped,
    );
    counter(
        registry,
        "gossip_foreign",
        "Gossip of non-members refused",
        stats.gossip_foreign,
    );
    bytes_counter(
        registry,
        "wire_received",
        "Received by the TCP sockets, all protocols included",
        stats.wire_received_bytes,
    );
    bytes_counter(
        registry,
        "wire_sent",
        "Sent by the TCP sockets, all protocols included",
        stats.wire_sent_bytes,
    );
    peers(registry, sample);
}

fn peers(registry: &mut Registry, sample: &Sample) {
    let received = Family::<Labels, Counter>::default();
    let sent = Family::<Labels, Counter>::default();
    let failed = Family::<Labels, Counter>::default();
    let throttled = Family::<Labels, Counter>::default();
    let bars = Family::<Labels, Counter>::default();
    for (site, peer) in &sample.network.peers {
        let labels = vec![("site", site.short())];
        received.get_or_create(&labels).inc_by(peer.bytes_in);
        sent.get_or_create(&labels).inc_by(peer.bytes_out);
        failed.get_or_create(&labels).inc_by(peer.dials_failed);
        throttled.get_or_create(&labels).inc_by(peer.throttled);
        bars.get_or_create(&labels).inc_by(peer.bars);
    }
    let bytes = || Unit::Bytes;
    registry.register_with_unit("peer_received", "Payload received", bytes(), received);
    registry.register_with_unit("peer_sent", "Payload sent, without gossip", bytes(), sent);
    registry.register("peer_dials_failed", "Dials that failed", failed);
    let help = "What peers sent beyond their budgets, dropped unread";
    registry.register("peer_throttled", help, throttled);
    let help = "Times that peers were disconnected for sending too much";
    registry.register("peer_bars", help, bars);
}

fn vos(registry: &mut Registry, sample: &Sample) {
    let known = Family::<Labels, Gauge>::default();
    let total = Family::<Labels, Gauge>::default();
    let charter = Family::<Labels, Gauge>::default();
    let warnings = Family::<Labels, Gauge>::default();
    let oldest = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    for vo in &sample.vos {
        let labels = vec![("vo", vo.name.clone())];
        known
            .get_or_create(&labels)
            .set(i64::from(vo.coverage.sites_known));
        total
            .get_or_create(&labels)
            .set(i64::from(vo.coverage.sites_total));
        charter
            .get_or_create(&labels)
            .set(signed(vo.charter_version));
        warnings.get_or_create(&labels).set(signed(vo.warnings));
        oldest.get_or_create(&labels).set(vo.oldest_age_s);
    }
    registry.register(
        "sites_known",
        "Member sites of which anything is held",
        known,
    );
    registry.register("sites_members", "Member sites", total);
    registry.register(
        "charter_version",
        "Version of the charter in force",
        charter,
    );
    registry.register(
        "policy_warnings",
        "What is wrong with a VO's documents",
        warnings,
    );
    let help = "Age of the data of the site whose data are the oldest";
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

pub(super) fn counters(label: &'static str, values: &[(&str, u64)]) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for (name, value) in values {
        family
            .get_or_create(&vec![(label, (*name).to_owned())])
            .inc_by(*value);
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
