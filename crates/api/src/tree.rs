//! Answers about shares, usage and what feeds reported.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// `fairmesh.shares/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SharesBody {
    /// In path order, parents before children, without the root.
    pub entries: Vec<ShareBody>,
    /// Where there are more than `limit`: the last path of this page, for `after` of the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One entry of the share tree in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareBody {
    /// Where it is in the site's tree.
    pub path: String,
    /// Whether nothing is below it.
    pub leaf: bool,
    /// The last name of its path, where nothing is below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// For the row of all accounts of a level that have no line: how many of them have used something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<usize>,
    /// For an account without a line: the entry that it shares with all such accounts of its level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<String>,
    /// Its share as it is written; absent for an account without a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The date (UTC) from which on usage counts here, if its line or one above it states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Its weight among its siblings, divided by what divides all of them.
    #[serde(default)]
    pub weight: u64,
    /// The sum of its siblings' weights and its own: the target is exactly `weight` of that.
    #[serde(default)]
    pub weights: u64,
    /// Whether usage of all sites counts at this level, or only of this one.
    pub global: bool,
    /// The VO that it belongs to.
    pub vo: Option<String>,
    /// The other VO whose policy divides it, or is what it is a part of, where its own VO mounts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divided_by: Option<String>,
    /// What it should have of its parent, percent.
    pub target: String,
    /// What it has of its parent, percent, rounded down.
    pub actual: String,
    /// What it has of the whole, level by level, percent.
    pub actual_of_whole: String,
    /// Target over actual share, as Slurm's Fair Tree has it: above 1 is under-served; `inf` where nothing
    /// was used, and 0 for a share of zero. Accounts without a line have one share each.
    #[serde(default)]
    pub level_fs: String,
    /// The exact deviation, percent, cut to seven decimals.
    pub deviation: String,
    /// Its weighted usage, core-milliseconds.
    pub usage_core_ms: String,
    /// Its parent's.
    pub parent_usage_core_ms: String,
    /// What schedulers get: between 0 and 1, the higher is served first.
    pub factor: String,
    /// 1 is served first; entries that tie have one rank.
    pub rank: u32,
}

/// `fairmesh.priority/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PriorityBody {
    /// The VO that is charged; absent for the site's own accounts.
    pub vo: Option<String>,
    /// The account that is charged, in the VO's tree or the site's.
    pub account: String,
    /// The entry of the site's tree that counts for it.
    pub entry: String,
    /// Whether that is the account's own entry, or only the deepest one above.
    pub exact: bool,
    /// What schedulers get: between 0 and 1, the higher is served first.
    pub factor: String,
    /// The number that the projection makes of the vector; the greater is served first.
    pub priority: String,
    /// The projection.
    pub projection: String,
    /// 1 is served first; entries that tie have one rank.
    pub rank: u32,
    /// How many different ranks there are.
    pub ranks: u32,
    /// From the root down.
    pub levels: Vec<LevelBody>,
}

/// One level of an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LevelBody {
    /// The entry at this level.
    pub path: String,
    /// Whether usage of all sites counts at this level.
    pub global: bool,
    /// How its distance from the target is measured: `absolute`, `relative` or `mix:K`.
    #[serde(default = "absolute")]
    pub distance: String,
    /// The other VO whose policy says the target, where the entry's own VO mounts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_policy_of: Option<String>,
    /// What it should have of its parent, percent.
    pub target: String,
    /// What it has, percent.
    pub actual: String,
    /// The most that it may have before its siblings all go first, percent; none where there is no limit.
    #[serde(default)]
    pub at_most: Option<String>,
    /// Whether it has more than that.
    #[serde(default)]
    pub over: bool,
    /// Whether all its siblings that have a share go first, because its own is zero.
    #[serde(default)]
    pub last: bool,
    /// For an account without a line: the entry that it shares with all such accounts of its level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<String>,
    /// The date (UTC) from which on usage counts at this level, if a line states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The exact deviation, percent.
    pub deviation: String,
    /// Its weighted usage, core-milliseconds.
    pub usage_core_ms: String,
    /// Its parent's.
    pub parent_usage_core_ms: String,
}

/// What nodes measured by that did not say it.
fn absolute() -> String {
    fairmesh_model::Distance::Absolute.to_string()
}

/// Nodes that do not report `exact` named nobody without an entry.
fn yes() -> bool {
    true
}

/// `fairmesh.explain/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainBody {
    /// The entry.
    pub path: String,
    /// The account that jobs are charged to: the entry's path, or one below it that has no entry of its own.
    #[serde(default)]
    pub account: String,
    /// Whether the account has an entry of its own.
    #[serde(default = "yes")]
    pub exact: bool,
    /// Its rank among all entries, from 1; equal ones share one.
    pub rank: u32,
    /// How many different ranks there are.
    pub ranks: u32,
    /// The projection by which entries are served; `rank` is the exact order of the levels.
    pub projection: String,
    /// From the root down.
    pub levels: Vec<LevelBody>,
    /// How it compares, if asked.
    pub comparison: Option<ComparisonBody>,
    /// Whose usage stands behind the entries that decide.
    pub causes: Vec<CauseBody>,
    /// The user's other entries, where he was named without his account; served later, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ExplainBody>,
}

/// How an entry compares with another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparisonBody {
    /// The other entry.
    pub versus: String,
    /// Its levels.
    pub versus_levels: Vec<LevelBody>,
    /// The deepest entry that both lie below (or are).
    pub common_ancestor: String,
    /// `before`, `tied` or `after`.
    pub standing: String,
    /// The first level at which they differ (0 is below the root).
    pub level: Option<usize>,
    /// The entry's deviation there, percent.
    pub deviation: Option<String>,
    /// The other's.
    pub versus_deviation: Option<String>,
    /// What would have to be charged to the one served first, until the other stands no worse.
    pub parity_core_ms: Option<String>,
}

/// The usage behind an entry, by site.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CauseBody {
    /// The entry.
    pub path: String,
    /// Its weighted usage, core-milliseconds: the sum of what counts of the sites. Each number is rounded down, so the
    /// sites' amount to less by fewer milliseconds than there are sites.
    #[serde(default)]
    pub usage_core_ms: String,
    /// Site by site, the one of which the most counts first.
    pub sites: Vec<CauseOfSite>,
}

/// What a site's usage counts for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CauseOfSite {
    /// The site's id.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What counts: weighted by age and clamped to the site's capacity, core-milliseconds.
    #[serde(default)]
    pub weighted_core_ms: String,
    /// The raw counters: as the site published them, unweighted and not clamped, over all windows that are held.
    #[serde(flatten)]
    pub counters: CountersBody,
}

/// `fairmesh.usage/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageBody {
    /// One for each VO, and one for the site's own accounts.
    pub ledgers: Vec<LedgerBody>,
}

/// Usage of a VO, or of the site's own accounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerBody {
    /// The VO; absent for the site's own accounts, which never leave it.
    pub vo: Option<String>,
    /// Its name.
    pub vo_name: Option<String>,
    /// By account that was charged.
    pub by_account: Vec<NamedCounters>,
    /// Where there are more accounts than `limit`: the last path of this page, for `after` of the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Of that, what accounts without a line in the share tree were charged, by the entry `*` of their level; on each
    /// page for all pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OthersCounters>,
    /// By site.
    pub by_site: Vec<NamedCounters>,
    /// All of it.
    pub total: CountersBody,
}

/// Counters of all accounts of one level that have no line in the share tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OthersCounters {
    /// The entry `*` of the level, as a path in the ledger's tree.
    pub id: String,
    /// How many accounts.
    pub accounts: usize,
    /// The counters.
    #[serde(flatten)]
    pub counters: CountersBody,
}

/// Counters with a name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NamedCounters {
    /// An account's path or a site's id.
    pub id: String,
    /// The site's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The counters.
    #[serde(flatten)]
    pub counters: CountersBody,
}

/// Raw counters, exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CountersBody {
    /// Normalised usage, without what was taken back.
    pub charge_core_ms: String,
    /// What was taken back of it by corrections.
    #[serde(default)]
    pub refunds_core_ms: String,
    /// Cores held.
    pub cpu_core_ms: String,
    /// GPUs held.
    pub gpu_ms: String,
    /// Memory held.
    pub mem_mib_s: String,
    /// Jobs that ended.
    pub jobs: String,
}

/// `fairmesh.unmapped/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnmappedBody {
    /// Whom no rule maps; the most charged first.
    pub origins: Vec<UnmappedOrigin>,
}

/// The batch system's words for somebody.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OriginBody {
    /// Local user.
    pub user: Option<String>,
    /// Batch account.
    pub account: Option<String>,
    /// Local group.
    pub group: Option<String>,
    /// Grid identity.
    pub subject: Option<String>,
}

/// Somebody whom no rule maps.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnmappedOrigin {
    /// Who.
    #[serde(flatten)]
    pub origin: OriginBody,
    /// Records.
    pub records: u64,
    /// What they were charged, against the root.
    pub charge_core_ms: String,
    /// When the last of them ended.
    pub last_ms: u64,
}

/// `fairmesh.namesakes/1`: accounts that several sites charge usage to, and nothing here states that each is one person's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NamesakesBody {
    /// How many there are.
    pub count: u64,
    /// Those whose usage the reader may see, 1,000 at the most.
    pub accounts: Vec<NamesakeBody>,
}

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NamesakeBody {
    /// The VO.
    pub vo: String,
    /// Its name, once its charter has come.
    pub vo_name: Option<String>,
    /// The account, in the VO's tree.
    pub account: String,
    /// The sites that charge usage to it, by name.
    pub sites: Vec<String>,
}

/// `fairmesh.report/1`: what became of a report. What it says was counted is durable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReportBody {
    /// Lines that were not blank.
    pub read: u64,
    /// Records that counted something new.
    pub counted: u64,
    /// Records that said nothing new.
    pub known: u64,
    /// Of these, jobs that were taken back as they are reported, by the day (UTC) on which that was done; `unknown` where
    /// nobody knows it. They count again only if something else is reported of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taken_back_on: BTreeMap<String, u64>,
    /// Of those known, jobs that had ended before a loss of this site's data folder: the usage of that time came back from
    /// other sites.
    #[serde(default)]
    pub left_out: u64,
    /// Records that map nowhere: counted against the root.
    pub unmapped: u64,
    /// Records older than any history: counted nowhere.
    pub late: u64,
    /// Lines that were refused.
    pub refused: u64,
    /// Of these, what is refused for now only, as without room on the disk or before a VO's charter has come: report it again.
    #[serde(default)]
    pub for_now: u64,
    /// What was charged.
    pub charge_core_ms: String,
    /// What instalments had charged beyond the final records of their jobs: it was refunded.
    #[serde(default)]
    pub credited_core_ms: String,
    /// The first refused lines.
    pub refusals: Vec<Refusal>,
    /// Those of them whose jobs the node had refused before, for the like reason.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused_again: BTreeSet<u64>,
}

/// A line that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Counted from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}
