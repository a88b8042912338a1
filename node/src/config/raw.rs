//! `fairmesh.toml` as it is written: one struct a table, unknown keys refused.
//!
//! The keys are documented for people in the file that `fairmesh init` writes and in `configs/`.
//! Invariant: everything that can be wrong beyond its type keeps its place in the text.
//! Deliberately not here: what the values mean and their defaults (`sections`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::advert::RawAdvert;
use super::charging::{RawCharging, RawMachine};
use super::forward::RawForward;
use super::history::RawHistory;
use super::identity::RawRule;
use super::names::RawWriter;
use super::privacy::RawPrivacy;
use super::quantity::RawDuration;
use super::quota::RawQuota;
use super::records::RawRecords;
use crate::config::condor::RawCondor;
use crate::config::gridengine::RawGridEngine;
use crate::config::lsf::RawLsf;
use crate::config::pbs::RawPbs;
use crate::config::slurm::RawSlurm;
use crate::projection::ProjectionName;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    /// File of the share tree, relative to this file.
    pub(super) policy_file: Option<Spanned<String>>,
    /// File of the people map, relative to this file.
    pub(super) people: Option<Spanned<String>>,
    pub(super) site: RawSite,
    #[serde(default)]
    pub(super) network: RawNetwork,
    #[serde(default)]
    pub(super) sockets: RawSockets,
    /// What users see of each other.
    #[serde(default)]
    pub(super) privacy: RawPrivacy,
    /// The share page; none where the table is not there.
    pub(super) page: Option<RawPage>,
    /// VO ids by the owner's alias.
    #[serde(default)]
    pub(super) vos: BTreeMap<String, Spanned<String>>,
    /// The share tree, if it has no file of its own; read by `fairmesh_policy::parse_tree`.
    pub(super) shares: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    pub(super) identity: Vec<RawRule>,
    #[serde(default)]
    pub(super) history: RawHistory,
    /// What jobs cost, and which are charged.
    #[serde(default)]
    pub(super) charging: RawCharging,
    /// Machine classes.
    #[serde(default)]
    pub(super) machine: Vec<RawMachine>,
    /// What VOs are told of free CPUs.
    pub(super) advert: Option<RawAdvert>,
    /// What is promised to VOs; read by `fairmesh_broker::Sla::parse`.
    pub(super) sla: Option<Spanned<IgnoredAny>>,
    /// Which jobs are passed on to and from other members.
    pub(super) forward: Option<RawForward>,
    /// The owner's word about VOs' quotas, by alias.
    #[serde(default)]
    pub(super) quota: BTreeMap<Spanned<String>, RawQuota>,
    #[serde(default)]
    pub(super) timing: RawTiming,
    /// In what order entries are served.
    #[serde(default)]
    pub(super) order: RawOrder,
    /// How much of the jobs' own records is kept.
    #[serde(default)]
    pub(super) records: RawRecords,
    /// Whether and how the node and a Slurm beside it work together.
    pub(super) slurm: Option<RawSlurm>,
    pub(super) gridengine: Option<RawGridEngine>,
    pub(super) condor: Option<RawCondor>,
    pub(super) pbs: Option<RawPbs>,
    pub(super) lsf: Option<RawLsf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSite {
    pub(super) name: Spanned<String>,
    pub(super) data_dir: Option<String>,
    pub(super) key_file: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNetwork {
    pub(super) listen: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) peers: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSockets {
    pub(super) lookup: Option<String>,
    pub(super) control: Option<String>,
    pub(super) lookup_mode: Option<Spanned<String>>,
    pub(super) writers: Option<Vec<Spanned<RawWriter>>>,
    pub(super) lookup_connections: Option<Spanned<i64>>,
    pub(super) control_connections: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPage {
    pub(super) listen: Spanned<String>,
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOrder {
    #[serde(default)]
    pub(super) projection: ProjectionName,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTiming {
    pub(super) publish: Option<RawDuration>,
    pub(super) heartbeat: Option<RawDuration>,
    pub(super) sync: Option<RawDuration>,
    pub(super) request_timeout: Option<RawDuration>,
    pub(super) clock_tolerance: Option<RawDuration>,
    pub(super) silence: Option<RawDuration>,
    pub(super) sweep_entries: Option<Spanned<u64>>,
}
