//! What a demonstration comes to: one page for people, one line for machines.

use std::collections::BTreeMap;

use serde::Serialize;

use super::broker::BrokerReport;
use super::measure::ShareLine;
use super::quota::QuotaReport;

/// The result. Field by field the schema `fairmesh.demo/1`; fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    /// Whether all nodes ended with the same view.
    pub(super) views_identical: bool,
    /// The digest of each node's views.
    pub(super) view_digests: Vec<String>,
    /// Promised and delivered, in percent of the parent.
    pub(super) shares: Vec<ShareLine>,
    /// Grid-wide usage of each account, core-milliseconds.
    pub(super) usage_core_ms: BTreeMap<String, u64>,
    /// Jobs that ended.
    pub(super) jobs: u64,
    /// From durable at one site to durable at all.
    pub(super) propagation_ms: Quantiles,
    /// From the heal to identical views; absent without a partition.
    pub(super) heal_to_identical_ms: Option<u64>,
    /// Different views just before the heal; absent without a partition.
    pub(super) views_while_cut: Option<usize>,
    /// Interval of the anti-entropy.
    pub(super) sync_interval_ms: u64,
    /// Payload bytes that a node received, on average.
    pub(super) bytes_per_node: u64,
    /// Heads that reached all nodes.
    pub(super) heads: usize,
    /// From the start of the command to a mesh that holds all documents.
    pub(super) start_ms: u64,
    /// Records of the log that are no load, by reason, with `--trace`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) left_out: BTreeMap<String, u64>,
    /// What became of a project's credit, with `--quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) quota: Option<QuotaReport>,
    /// What became of placed jobs, with `--broker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) broker: Option<BrokerReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

impl Report {
    /// The line for machines.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// The page for people.
    pub(super) fn words(&self) -> String {
        let views = match self.views_identical {
            true => format!(
                "All {} nodes ended with the identical view {}.",
                self.view_digests.len(),
                &self.view_digests[0][..16]
            ),
            false => "The nodes did NOT end with identical views.".to_owned(),
        };
        let heal = match (self.heal_to_identical_ms, self.views_while_cut) {
            (Some(ms), Some(views)) => format!(
                "While the mesh was cut there were {views} views; {ms} ms after the heal there was one (sync interval {} ms).\n",
                self.sync_interval_ms
            ),
            _ => String::new(),
        };
        let quota = self
            .quota
            .map_or_else(String::new, |quota| quota.words() + "\n");
        let broker = self.broker.as_ref();
        let broker = broker.map_or_else(String::new, |broker| broker.words() + "\n");
        format!(
            "{views}\n{heal}{quota}{broker}{} jobs ended. A change reached all nodes in {} ms (median), {} ms (99 %), {} ms (worst), over {} heads.\n\
             A node received {} kB. No server took part.",
            self.jobs,
            self.propagation_ms.p50,
            self.propagation_ms.p99,
            self.propagation_ms.max,
            self.heads,
            self.bytes_per_node / 1_000
        )
    }
}
