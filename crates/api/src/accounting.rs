//! Answers about job records: what became of those that were handed in, and what those of the log
//! come to.

use std::collections::BTreeMap;

use fairmesh_model::record::fitting;
use fairmesh_records::summary::{Totals, hours, kwh};
use serde::{Deserialize, Serialize};

use super::ReportBody;

/// `fairmesh.report/1` for job records: what became of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AccountingBody {
    /// As for usage records. With `dry_run` it says what would have become of them.
    #[serde(flatten)]
    pub report: ReportBody,
    /// Records that are not charged, by reason.
    #[serde(default)]
    pub skipped: BTreeMap<String, u64>,
    /// Records that were written to the record log; those that it had already are among them.
    #[serde(default)]
    pub logged: u64,
    /// With `dry_run`: what would be charged to whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountCharge>,
}

/// What would be charged to an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AccountCharge {
    /// The VO, by the owner's alias or else by its id; `None` for the site's own accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<String>,
    /// The account's path in its tree.
    pub path: String,
    /// Whether a rule maps the jobs here; otherwise they are counted here for want of one.
    pub mapped: bool,
    /// Records.
    pub records: u64,
    /// What they would be charged.
    pub charge_core_ms: String,
}

/// `fairmesh.accounting/1`: sums of the record log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SummaryBody {
    /// What the groups are of.
    pub by: Vec<String>,
    /// All together.
    pub totals: TotalsBody,
    /// One for each combination of names that there is, in order.
    pub groups: Vec<GroupBody>,
}

/// A group.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupBody {
    /// One for each of `by`; empty where it is not known.
    pub names: Vec<String>,
    /// Its sums.
    #[serde(flatten)]
    pub totals: TotalsBody,
}

/// Sums over jobs; hours with four decimals, rounded half up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TotalsBody {
    /// Jobs that ran and have ended.
    pub jobs: u64,
    /// Jobs that started.
    pub started: u64,
    /// Jobs that were submitted on the day on which they started.
    #[serde(default, alias = "submitted")]
    pub submitted_same_day: u64,
    /// CPUs held times wall-clock time.
    pub cpu_hours: String,
    /// Wall-clock time.
    pub wall_hours: String,
    /// Nodes held times wall-clock time.
    pub node_hours: String,
    /// GPUs held times wall-clock time.
    pub gpu_hours: String,
    /// Energy used, kWh.
    #[serde(default)]
    pub energy_kwh: String,
    /// From submission to start.
    pub wait_hours: String,
}

impl From<Totals> for TotalsBody {
    fn from(totals: Totals) -> Self {
        Self {
            jobs: totals.jobs,
            started: totals.started,
            submitted_same_day: totals.submitted,
            cpu_hours: hours(totals.cpu_ms),
            wall_hours: hours(totals.wall_ms),
            node_hours: hours(totals.node_ms),
            gpu_hours: hours(totals.gpu_ms),
            energy_kwh: kwh(totals.energy_j),
            wait_hours: hours(totals.wait_ms),
        }
    }
}

impl From<&fairmesh_records::Summary> for SummaryBody {
    fn from(summary: &fairmesh_records::Summary) -> Self {
        let by = summary.dimensions().iter();
        Self {
            by: by.map(ToString::to_string).collect(),
            totals: summary.whole().into(),
            groups: summary
                .groups()
                .map(|(names, totals)| GroupBody {
                    names: names.iter().map(|name| fitting(name.as_str())).collect(),
                    totals: (*totals).into(),
                })
                .collect(),
        }
    }
}
