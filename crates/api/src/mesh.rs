//! Answers about the node, its peers and its documents.

use serde::{Deserialize, Serialize};

use super::{PeerState, RejectsBody, WaitingBody};
use crate::finding::Finding;

/// `fairmesh.status/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatusBody {
    /// This node.
    pub node: NodeBody,
    /// The VOs that it takes part in.
    pub vos: Vec<VoBody>,
    /// The other sites.
    pub peers: Vec<PeerBody>,
    /// Whether there is no warning and no error below.
    pub healthy: bool,
    /// What an operator should know, the worst first.
    pub notices: Vec<Finding>,
    /// Levels of the share tree where accounts without a line have weighted usage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_line: Vec<WithoutLineBody>,
    /// Jobs that the node refused for good and does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<WaitingBody>,
    /// Files with lines that `fairmesh report` could not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejects: Vec<RejectsBody>,
    /// What of others is hidden from whoever asks, as `privacy.hide` has it; empty where he sees all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Vec<String>>,
}

/// Usage of accounts that have no line in the share tree, at one level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WithoutLineBody {
    /// The entry of all of them, such as `/cms/*`.
    pub path: String,
    /// Whether that entry has a line. Without one its share is 0.
    pub has_line: bool,
    /// Their weighted usage, core-milliseconds.
    pub usage_core_ms: String,
    /// That of the level's usage, percent, rounded down.
    pub of_level: String,
    /// How many accounts have weighted usage.
    pub accounts: usize,
    /// The largest of them that the reader may see.
    pub largest: Vec<AccountUsageBody>,
}

/// An account and its weighted usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AccountUsageBody {
    /// Where it is in the site's tree. Usage of an entry that has children is named `=`.
    pub path: String,
    /// Core-milliseconds.
    pub usage_core_ms: String,
}

/// This node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeBody {
    /// Its site id.
    pub site: String,
    /// What people call it.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// How long it has run.
    pub uptime_ms: u64,
    /// Where it listens.
    pub listening: Vec<String>,
    /// Connections with all peers.
    pub connections: u64,
    /// Bytes that the TCP sockets gave, since the start, whatever was spoken in them.
    pub wire_received_bytes: u64,
    /// Bytes that they took.
    pub wire_sent_bytes: u64,
    /// Entries of the share tree in force.
    pub entries: u64,
    /// Records that counted, since the start.
    pub records_counted: u64,
    /// Origins that map nowhere.
    pub unmapped: u64,
}

/// A VO.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VoBody {
    /// Its id.
    pub vo: String,
    /// Its name, once its charter has come.
    pub name: Option<String>,
    /// Where it is mounted.
    pub mount: Option<String>,
    /// Version of the charter in force; 0 for none.
    pub charter_version: u64,
    /// Member sites whose usage is known.
    pub sites_known: u32,
    /// Member sites.
    pub sites_total: u32,
    /// The uncovered heads that are held.
    pub heads: Vec<HeadBody>,
    /// Digest of documents and weighted sums; only if asked for with `digests=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_digest: Option<String>,
    /// When the window begins that the digest is of, with `view_digest`. Compare digests of the same window only: near the
    /// full hour sites whose clocks differ are in different windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_window_ms: Option<u64>,
    /// When the first of the documents in force expires; answers say so then, and it stays in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Which one that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_first: Option<String>,
    /// CPUs that the charter gives this site: the most that it may report as used at one moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// What is not as it should be.
    pub warnings: Vec<String>,
    /// The VO's snapshot, where it has somebody who signs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotBody>,
    /// Why nobody vouches that the documents in force are the newest, and which ones are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshot_warnings: Vec<String>,
    /// Whether members have told what they hold of this site's earlier starts, all that are connected, or there is no other.
    #[serde(default)]
    pub past_known: bool,
    /// Where a data folder or a store was lost: until when counters reach that other sites gave back, or that the journal
    /// has of before it began. Jobs that had ended by then are among them, and what was charged of each is not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_until_ms: Option<u64>,
}

/// Which documents should be in force, by who signs that every hour or so.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotBody {
    /// Its version.
    pub version: u64,
    /// When it was signed, by the signer's clock.
    pub issued_ms: u64,
    /// When there should have been another.
    pub expires_ms: u64,
    /// How many documents it names that are not here.
    pub missing: u64,
    /// How many documents are here that are newer.
    pub newer: u64,
}

/// A head that is held.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeadBody {
    /// Who counts.
    pub site: String,
    /// Which start of its node.
    pub incarnation: String,
    /// Its number in that incarnation.
    pub seq: u64,
}

/// `fairmesh.peers/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeersBody {
    /// Where this node listens.
    pub listening: Vec<String>,
    /// The other sites.
    pub peers: Vec<PeerBody>,
}

/// Another site: reachable now, how old its data are, in sync.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerBody {
    /// Its id.
    pub site: String,
    /// Its name in a charter.
    pub name: Option<String>,
    /// Its state: docs/reference/peers.md has all of them.
    #[serde(default)]
    pub state: PeerState,
    /// Whether it is connected now.
    pub reachable: bool,
    /// How long ago it signed the last thing that is held of it; absent where nothing is.
    pub data_age_ms: Option<u64>,
    /// The age of the newest moment of a job in its published usage: since its last report of running jobs, or since
    /// the last job ended. Absent where it published none.
    #[serde(default)]
    pub usage_age_ms: Option<u64>,
    /// Whether it is connected and the last comparison found that both hold the same.
    pub in_sync: bool,
    /// How long ago that was; absent where there was none.
    pub agreed_age_ms: Option<u64>,
    /// Where the charters say it is.
    pub addresses: Vec<String>,
    /// Connections with it.
    pub connections: u32,
    /// Round-trip time of the last ping.
    pub round_trip_us: Option<u64>,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent, without gossip.
    pub bytes_out: u64,
    /// Dials that failed.
    pub dials_failed: u64,
    /// Why the last one did.
    pub dial_failure: Option<String>,
    /// What it sent and was dropped unread, because it sends too much.
    #[serde(default)]
    pub throttled: u64,
    /// What it sends too much of, and what is done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<String>,
    /// Whether it is kept out for that now.
    #[serde(default)]
    pub barred: bool,
    /// Where two machines are that run with its key; empty of a site that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
}

/// `fairmesh.documents/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DocumentsBody {
    /// The signed documents.
    pub documents: Vec<DocumentBody>,
}

/// A signed document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DocumentBody {
    /// The VO.
    pub vo: String,
    /// `charter`, `share-policy`, `allocation` or `snapshot`.
    pub kind: String,
    /// The path that it divides.
    pub path: String,
    /// Its version.
    pub version: u64,
    /// Hash of its payload.
    pub hash: String,
    /// The exact signed bytes, hexadecimal.
    pub bytes: String,
}

/// `fairmesh.published/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PublishedBody {
    /// What became of the document.
    pub message: String,
}
