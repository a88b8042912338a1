//! The table `[slurm]` of the configuration: as it is written, and as it is valid.
//!
//! Invariant: a [`SlurmSettings`] has intervals above zero, a range that Slurm's 32 bits can hold, and
//! absolute or configuration-relative paths resolved. Deliberately not here: whether Slurm is there,
//! and what it says of itself (`cluster`).

use std::path::{Path, PathBuf};

use fairmesh_client::Scale;
use fairmesh_client::points::IMPORTANCE_POINTS_MAX;
use fairmesh_model::Millis;
use fairmesh_records::ChargeRule;
use serde::Deserialize;
use toml::Spanned;

use crate::config::quantity::RawDuration;
use crate::config::{FileError, Source};
use crate::quota_cmd::callout::OnSilence;

/// Where the hook leaves records, unless told otherwise.
pub const SPOOL_DEFAULT: &str = "/var/spool/fairmesh";

/// Largest range: Slurm adds the site factor as a number around 2^31, so there is no room for more.
const RANGE_MAX: u64 = 2_000_000_000;

/// A range that keeps every digit of a factor. Sites that let age or size weigh beside it take less.
const RANGE_DEFAULT: u32 = 1_000_000_000;

/// One point for each of the 200 steps of importance. It is to order one user's jobs, age beside it.
const IMPORTANCE_DEFAULT: u32 = 200;

/// One part in so many of the range is the granularity unless told otherwise.
const GRANULARITY_PART: u32 = 1_000;

/// Where finished jobs are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageSource {
    /// Whatever the cluster is set up for: slurmdbd, else what `JobCompType` writes.
    Auto,
    /// `sacct`, which needs slurmdbd.
    Sacct,
    /// The file of `jobcomp/filetxt`.
    Filetxt,
    /// The spool of `fairmesh slurm hook`.
    Hook,
}

/// `[slurm]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSlurm {
    with_node: Option<bool>,
    cluster: Option<String>,
    slurm_conf: Option<String>,
    bin_dir: Option<String>,
    interval: Option<RawDuration>,
    range: Option<Spanned<u64>>,
    importance: Option<Spanned<u64>>,
    granularity: Option<Spanned<u64>>,
    rate: Option<Spanned<u64>>,
    usage: Option<UsageSource>,
    feed_interval: Option<RawDuration>,
    overlap: Option<RawDuration>,
    jobcomp_file: Option<String>,
    spool: Option<String>,
    state_file: Option<String>,
    quota: Option<bool>,
    on_silence: Option<OnSilence>,
}

/// How the node and Slurm work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmSettings {
    /// Whether `fairmesh run` does the work of `fairmesh slurm run`.
    pub with_node: bool,
    /// The cluster's name in records; Slurm's own name of it if not given.
    pub cluster: Option<String>,
    /// Slurm's configuration, if it is not at the usual place.
    pub slurm_conf: Option<PathBuf>,
    /// Folder of Slurm's commands, if they are not in the path.
    pub bin_dir: Option<PathBuf>,
    /// Between two looks at the queue.
    pub interval: Millis,
    /// What a factor and a job's own importance come to in site factor: the best possible factor has
    /// the range, the worst 0.
    pub scale: Scale,
    /// A site factor that is wrong by no more than this may stay, while the order is right.
    pub granularity: u32,
    /// Most updates a second.
    pub rate: u32,
    /// Where finished jobs are read from.
    pub usage: UsageSource,
    /// Between two reports to the node.
    pub feed_interval: Millis,
    /// How far behind the newest known end `sacct` is asked again.
    pub overlap: Millis,
    /// The file of `jobcomp/filetxt`; what Slurm says if not given.
    pub jobcomp_file: Option<PathBuf>,
    /// The folder of the hook's records.
    pub spool: PathBuf,
    /// The feed's cursor.
    pub state_file: PathBuf,
    /// Whether jobs are held to quotas: at submission, and before they start.
    pub quota: bool,
    /// What becomes of them while the node does not answer.
    pub on_silence: OnSilence,
    /// Which jobs are charged: `[charging]` says so.
    pub charge_rule: ChargeRule,
}

impl SlurmSettings {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            with_node: true,
            cluster: None,
            slurm_conf: None,
            bin_dir: None,
            interval: Millis::from_secs(30),
            scale: Scale {
                range: RANGE_DEFAULT,
                importance: IMPORTANCE_DEFAULT,
            },
            granularity: RANGE_DEFAULT / GRANULARITY_PART,
            rate: 200,
            usage: UsageSource::Auto,
            feed_interval: Millis::from_secs(60),
            overlap: Millis::from_secs(3_600),
            jobcomp_file: None,
            spool: PathBuf::from(SPOOL_DEFAULT),
            state_file: data_dir.join("slurm-feed.json"),
            quota: false,
            on_silence: OnSilence::default(),
            charge_rule: ChargeRule::default(),
        }
    }
}

/// Checks the table; `base` is the configuration's folder.
pub(crate) fn checked(
    source: Source<'_>,
    raw: &RawSlurm,
    base: &Path,
    data_dir: &Path,
    charge_rule: &ChargeRule,
) -> Result<SlurmSettings, FileError> {
    let default = SlurmSettings::defaults(data_dir);
    let length = |name: &str, given: &Option<RawDuration>, default: Millis| {
        let key = format!("slurm.{name}");
        given
            .as_ref()
            .map_or(Ok(default), |given| source.duration(&key, given))
    };
    let path = |given: &Option<String>| given.as_ref().map(|given| base.join(given));
    let range = number(source, "range", raw.range.as_ref(), 1..=RANGE_MAX)?;
    let range = range.unwrap_or(default.scale.range);
    let points = 0..=u64::from(IMPORTANCE_POINTS_MAX);
    let importance = number(source, "importance", raw.importance.as_ref(), points)?;
    let importance = importance.unwrap_or(default.scale.importance);
    let granularity = raw.granularity.as_ref();
    let granularity = number(source, "granularity", granularity, 0..=u64::from(range))?;
    let rate = number(source, "rate", raw.rate.as_ref(), 1..=10_000)?;
    Ok(SlurmSettings {
        with_node: raw.with_node.unwrap_or(default.with_node),
        cluster: raw.cluster.clone(),
        slurm_conf: path(&raw.slurm_conf),
        bin_dir: path(&raw.bin_dir),
        interval: length("interval", &raw.interval, default.interval)?,
        scale: Scale { range, importance },
        granularity: granularity.unwrap_or(range / GRANULARITY_PART),
        rate: rate.unwrap_or(default.rate),
        usage: raw.usage.unwrap_or(default.usage),
        feed_interval: length("feed_interval", &raw.feed_interval, default.feed_interval)?,
        overlap: length("overlap", &raw.overlap, default.overlap)?,
        jobcomp_file: path(&raw.jobcomp_file),
        spool: path(&raw.spool).unwrap_or(default.spool),
        state_file: path(&raw.state_file).unwrap_or(default.state_file),
        quota: raw.quota.unwrap_or(default.quota),
        on_silence: raw.on_silence.unwrap_or(default.on_silence),
        charge_rule: charge_rule.clone(),
    })
}

fn number(
    source: Source<'_>,
    name: &str,
    given: Option<&Spanned<u64>>,
    allowed: std::ops::RangeInclusive<u64>,
) -> Result<Option<u32>, FileError> {
    let Some(given) = given else { return Ok(None) };
    let value = *given.get_ref();
    let fits = allowed.contains(&value).then(|| u32::try_from(value).ok());
    fits.flatten().map(Some).ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        let problem = format!("{value} is not between {least} and {most}");
        let key = format!("slurm.{name}");
        source.error(Some(given.span()), Some(&key), problem)
    })
}
