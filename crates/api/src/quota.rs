//! Answers about quotas.

use serde::{Deserialize, Serialize};

/// `fairmesh.hold/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HoldBody {
    /// `granted`, `over_quota`, `idle`, `exempt`, `refused`, or `ended` of a job that has.
    pub verdict: String,
    /// Whether it may run.
    pub runs: bool,
    /// Whose rule said so: `owner`, `vo`, or an allocation's.
    pub by: Option<String>,
    /// Whose rights; none of an account of the site's own.
    pub vo: Option<String>,
    /// Whose credit.
    pub account: Option<String>,
    /// What is held for it, in all.
    pub held_core_ms: String,
    /// By slice.
    pub parts: Vec<QuotaPartBody>,
    /// What it is short of.
    pub short_core_ms: String,
    /// Of a check: what a hold of it takes, wherever that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_core_ms: Option<String>,
    /// Its price.
    pub price: String,
    /// For its user, where it does not run.
    pub message: Option<String>,
}

/// An amount of one slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaPartBody {
    /// Of which allocation.
    pub allocation: String,
    /// Its place in it, from 0.
    pub slice: u32,
    /// How much.
    pub core_ms: String,
}

/// `fairmesh.settled/1`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettledBody {
    /// Charged out of rights.
    pub used_core_ms: String,
    /// Charged beyond them.
    pub overdraft_core_ms: String,
    /// Charged once every other member has been heard since the node's start.
    pub pending_core_ms: String,
    /// The job had run without asking, or after its hold had ended.
    pub unasked: bool,
    /// Sent to other members.
    pub sent_core_ms: String,
}

/// `fairmesh.quotes/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotesBody {
    /// The cheapest first; those that could not run it last.
    pub quotes: Vec<QuoteBody>,
}

/// What a job would cost at one site.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuoteBody {
    /// The site.
    pub site: String,
    /// Its name in a charter.
    pub name: Option<String>,
    /// At this price, if it runs as long as it asks to.
    pub charge_core_ms: Option<String>,
    /// The site's price, with the fee for the job's importance.
    pub price: String,
    /// For how long the site has asked this, by its own clock; none where it is the usual price.
    #[serde(default)]
    pub price_age_ms: Option<u64>,
    /// Why there is no charge.
    pub why_not: Option<String>,
}

/// `fairmesh.quota/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaBody {
    /// The accounts with credit of their own.
    pub accounts: Vec<QuotaAccountBody>,
}

/// The credit of one account.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaAccountBody {
    /// The VO.
    pub vo: String,
    /// Its name.
    pub vo_name: Option<String>,
    /// The account.
    pub path: String,
    /// What happens to jobs beyond it at this site: `strict`, `soft` or `advisory`; `off` where none is held to it.
    pub mode: String,
    /// Whether the site's owner says so, and not the VO.
    #[serde(default)]
    pub mode_by_owner: bool,
    /// What a job of usual importance costs at this site now, × its charge.
    #[serde(default)]
    pub price: String,
    /// What became of it, as this site knows it.
    #[serde(flatten)]
    pub totals: QuotaTotalsBody,
    /// What is charged to it a day at all sites: a mean since this node's start in which the last week weighs most. None
    /// in its first hour.
    #[serde(default)]
    pub burn_core_ms_per_day: Option<String>,
    /// When nothing will be left at that rate, slices to come included; none where it lasts to the end of the last.
    #[serde(default)]
    pub runs_out_ms: Option<u64>,
    /// Members that are to be heard before this site spends anything after its start.
    pub unheard: Vec<String>,
    /// By slice, those that end first first.
    pub slices: Vec<QuotaSliceBody>,
}

/// What became of one slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaSliceBody {
    /// Of which allocation.
    pub allocation: String,
    /// Its place in it, from 0.
    pub slice: u32,
    /// From when it can be spent.
    pub start_ms: u64,
    /// Before when.
    pub end_ms: u64,
    /// What became of it.
    #[serde(flatten)]
    pub totals: QuotaTotalsBody,
}

/// Core-milliseconds: granted = used + held + spendable (to come, perished) + on the way + passed on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaTotalsBody {
    /// By the authority; of a part that leaders have passed on, what sites have made of the whole.
    pub granted_core_ms: String,
    /// Passed on by its leaders to parts of it.
    #[serde(default)]
    pub passed_on_core_ms: String,
    /// Of a part: what sites have not made of the whole yet, because they have too little of it left.
    #[serde(default)]
    pub lacking_core_ms: String,
    /// Charged.
    pub used_core_ms: String,
    /// For jobs.
    pub held_core_ms: String,
    /// Left at all sites, of slices that live.
    pub spendable_core_ms: String,
    /// Of that, at this site.
    pub here_core_ms: String,
    /// Of slices that have not begun.
    pub to_come_core_ms: String,
    /// Left when its slice ended.
    pub perished_core_ms: String,
    /// Sent from site to site, and not taken yet.
    pub on_the_way_core_ms: String,
    /// Charged beyond all this.
    pub overdraft_core_ms: String,
}

/// `fairmesh.quota_history/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaHistoryBody {
    /// Each allocation as it was granted, and its later version in force, in the order in which they were signed.
    pub documents: Vec<QuotaDocumentBody>,
    /// Rights of this site that went to other sites and came from them, the newest first.
    #[serde(default)]
    pub transfers: Vec<QuotaTransferBody>,
    /// Jobs of this site that ran beyond their quota, or beside it, the newest first; none where the caller may only
    /// read.
    pub jobs: Option<Vec<QuotaJobBody>>,
}

/// Who granted, or took back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaDocumentBody {
    /// The VO.
    pub vo: String,
    /// Its name.
    pub vo_name: Option<String>,
    /// Whose credit.
    pub path: String,
    /// Which allocation.
    pub allocation: String,
    /// 1 as it was granted; later ones end slices sooner, or change terms.
    pub version: u64,
    /// When it was signed, by the signer's clock.
    pub issued_ms: u64,
    /// The keys that have signed it.
    pub signers: Vec<String>,
    /// Of all slices.
    pub granted_core_ms: String,
    /// When the last slice ends.
    pub ends_ms: u64,
}

/// Rights that went to another site, or came from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaTransferBody {
    /// When this site counted it.
    pub at_ms: u64,
    /// The VO.
    pub vo: String,
    /// Its name.
    pub vo_name: Option<String>,
    /// Whose credit.
    pub path: String,
    /// Of which allocation.
    pub allocation: String,
    /// Which of its slices, from 0.
    pub slice: u32,
    /// `to` another site, or `from` it; `passed_on` to a part of the allocation.
    pub way: String,
    /// Which, or this one.
    pub site: String,
    /// Its name in a charter.
    pub site_name: Option<String>,
    /// The account of the part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// How much.
    pub core_ms: String,
    /// What was left of the slice here before.
    pub before_core_ms: String,
    /// And afterwards.
    pub after_core_ms: String,
}

/// What became of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaJobBody {
    /// When it first asked, or was charged without asking; 0 where an earlier release wrote it.
    pub at_ms: u64,
    /// Whose credit.
    pub account: String,
    /// Whose job.
    pub user: Option<String>,
    /// The batch system's name.
    pub cluster: String,
    /// Its name of the job.
    pub job: String,
    /// Which run of it.
    pub instance: u64,
    /// `held`, `committed`, `released` or `expired`.
    pub state: String,
    /// As in `fairmesh.hold/1`.
    pub verdict: String,
    /// Whose rule said so; none of a job that ran without asking.
    pub by: Option<String>,
    /// Its price.
    pub price: String,
    /// What is held for it.
    pub held_core_ms: String,
    /// What it was charged out of rights.
    pub used_core_ms: String,
    /// What it was charged beyond them.
    pub overdraft_core_ms: String,
}

/// `fairmesh.quota_summary/1`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaSummaryBody {
    /// `2026-11`.
    pub month: String,
    /// By VO, account, user and site.
    pub users: Vec<QuotaUserBody>,
}

/// What a user was charged at a site.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaUserBody {
    /// The VO.
    pub vo: String,
    /// Its name.
    pub vo_name: Option<String>,
    /// Whose credit.
    pub account: String,
    /// Who, as a path of the VO.
    pub user: String,
    /// Where.
    pub site: String,
    /// Its name in a charter.
    pub site_name: Option<String>,
    /// Jobs that ended.
    pub jobs: u64,
    /// At the usual price, less what was taken back.
    pub charge_core_ms: String,
}
