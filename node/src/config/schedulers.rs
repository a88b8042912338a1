//! What the tables of all batch systems in the configuration have in common.
//!
//! Invariant: valid [`LoopSettings`] have intervals above zero, a range that 32 bits can hold, and paths relative to
//! the configuration resolved.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use fairmesh_client::Scale;
use fairmesh_client::points::IMPORTANCE_POINTS_MAX;
use fairmesh_model::Millis;
use fairmesh_records::ChargeRule;
use fairmesh_schedulers::{LoopSettings, Settings, granularity_of};
use toml::Spanned;

use crate::config::quantity::RawDuration;
use crate::config::{FileError, Source};

/// Largest range: Slurm adds the site factor as a number around 2^31, so there is no room for more.
const RANGE_MAX: u64 = 2_000_000_000;

/// A table as it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table<T> {
    /// Whether `fairmesh run` does the work of the system's `run`.
    pub with_node: bool,
    /// How the node and the batch system work together.
    pub system: T,
}

impl<T: Settings> Table<T> {
    /// What holds where the configuration says nothing.
    pub fn defaults(data_dir: &Path) -> Self {
        Self {
            with_node: true,
            system: T::defaults(data_dir),
        }
    }
}

/// Where a table stands, and what else of the configuration it rests on.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) source: Source<'a>,
    /// The configuration's folder.
    pub(crate) base: &'a Path,
    pub(crate) data_dir: &'a Path,
    pub(crate) charge_rule: &'a ChargeRule,
}

impl Place<'_> {
    /// A path as it is written, if it is.
    pub(crate) fn path(&self, given: &Option<String>) -> Option<PathBuf> {
        given.as_ref().map(|given| self.base.join(given))
    }
}

/// A table as it is written: the keys that every one has, and its own. A struct within a struct would do if the reader
/// could still say where in the file a key stands, and which key it does not know.
macro_rules! raw_table {
    ($(#[$about:meta])* $name:ident of $table:literal { $($key:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            with_node: Option<bool>,
            cluster: Option<String>,
            bin_dir: Option<String>,
            interval: Option<$crate::config::quantity::RawDuration>,
            range: Option<toml::Spanned<u64>>,
            importance: Option<toml::Spanned<u64>>,
            granularity: Option<toml::Spanned<u64>>,
            rate: Option<toml::Spanned<u64>>,
            feed_interval: Option<$crate::config::quantity::RawDuration>,
            state_file: Option<String>,
            $($key: Option<$type>,)*
        }

        impl $name {
            fn given(&self) -> $crate::config::schedulers::Given<'_> {
                $crate::config::schedulers::Given {
                    table: $table,
                    with_node: self.with_node,
                    cluster: &self.cluster,
                    bin_dir: &self.bin_dir,
                    interval: &self.interval,
                    range: &self.range,
                    importance: &self.importance,
                    granularity: &self.granularity,
                    rate: &self.rate,
                    feed_interval: &self.feed_interval,
                    state_file: &self.state_file,
                }
            }
        }
    };
}
pub(crate) use raw_table;

/// The keys that every such table may have.
pub(crate) struct Given<'a> {
    pub(crate) table: &'static str,
    pub(crate) with_node: Option<bool>,
    pub(crate) cluster: &'a Option<String>,
    pub(crate) bin_dir: &'a Option<String>,
    pub(crate) interval: &'a Option<RawDuration>,
    pub(crate) range: &'a Option<Spanned<u64>>,
    pub(crate) importance: &'a Option<Spanned<u64>>,
    pub(crate) granularity: &'a Option<Spanned<u64>>,
    pub(crate) rate: &'a Option<Spanned<u64>>,
    pub(crate) feed_interval: &'a Option<RawDuration>,
    pub(crate) state_file: &'a Option<String>,
}

impl Given<'_> {
    /// The valid table; `own` sets what no other system has.
    pub(crate) fn table<T: Settings>(
        &self,
        place: Place<'_>,
        own: impl FnOnce(&mut T),
    ) -> Result<Table<T>, FileError> {
        let mut table = Table::<T>::defaults(place.data_dir);
        let common = table.system.common();
        *common = self.checked(place, common.clone())?;
        table.with_node = self.with_node.unwrap_or(true);
        own(&mut table.system);
        Ok(table)
    }

    /// An error where a key is given that means nothing to the system.
    pub(crate) fn without_importance(&self, place: Place<'_>, why: &str) -> Result<(), FileError> {
        let key = format!("{}.importance", self.table);
        self.importance
            .as_ref()
            .map_or(Ok(()), |given| Err(place.source.wrong(&key, given, why)))
    }

    /// Checks what all systems have.
    pub(crate) fn checked(
        &self,
        place: Place<'_>,
        default: LoopSettings,
    ) -> Result<LoopSettings, FileError> {
        let source = place.source;
        let range = self.number(source, "range", self.range, 1..=RANGE_MAX)?;
        let range = range.unwrap_or(default.scale.range);
        let points = 0..=u64::from(IMPORTANCE_POINTS_MAX);
        let importance = self.number(source, "importance", self.importance, points)?;
        let importance = importance.unwrap_or(default.scale.importance);
        let most = 0..=u64::from(range);
        let granularity = self.number(source, "granularity", self.granularity, most)?;
        let usual = match range == default.scale.range {
            true => default.granularity,
            false => granularity_of(range),
        };
        let rate = self.number(source, "rate", self.rate, 1..=10_000)?;
        let (interval, feed_interval) = (self.interval, self.feed_interval);
        Ok(LoopSettings {
            cluster: self.cluster.clone(),
            bin_dir: place.path(self.bin_dir),
            interval: self.length(source, "interval", interval, default.interval)?,
            scale: Scale { range, importance },
            granularity: granularity.unwrap_or(usual),
            rate: rate.unwrap_or(default.rate),
            feed_interval: self.length(
                source,
                "feed_interval",
                feed_interval,
                default.feed_interval,
            )?,
            state_file: place.path(self.state_file).unwrap_or(default.state_file),
            charge_rule: place.charge_rule.clone(),
        })
    }

    /// A length of time.
    pub(crate) fn length(
        &self,
        source: Source<'_>,
        name: &str,
        given: &Option<RawDuration>,
        default: Millis,
    ) -> Result<Millis, FileError> {
        let key = format!("{}.{name}", self.table);
        let given = given.as_ref();
        given.map_or(Ok(default), |given| source.duration(&key, given))
    }

    fn number(
        &self,
        source: Source<'_>,
        name: &str,
        given: &Option<Spanned<u64>>,
        allowed: RangeInclusive<u64>,
    ) -> Result<Option<u32>, FileError> {
        let Some(given) = given else { return Ok(None) };
        let value = *given.get_ref();
        let fits = allowed.contains(&value).then(|| u32::try_from(value).ok());
        fits.flatten().map(Some).ok_or_else(|| {
            let (least, most) = (allowed.start(), allowed.end());
            let problem = format!("{value} is not between {least} and {most}");
            let key = format!("{}.{name}", self.table);
            source.wrong(&key, given, problem)
        })
    }
}
