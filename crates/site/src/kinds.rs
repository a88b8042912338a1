//! The kinds of parts that a site publishes, and how each is written as bytes.
//!
//! | kind | named by | bytes | written by | read by |
//! |---|---|---|---|---|
//! | usage | span and slice | a table of counters | `own` | `published` |
//! | running | slice | a table of what running jobs are still expected to be charged, or are in all | `own` | `published` |
//! | description | position | a piece of CBOR: machines and prices | `own` | `published` |
//! | audit | day and position | a piece of CBOR: what was taken back, by whom and why | `correct` | `audit` |
//! | rights | slice of an allocation | a row of counters of rights | `quota` | `quota` |
//! | advert | 0 | a piece of CBOR: CPUs that are free, and what the VO may have of them | `advert` | `published` |
//! | reach | | twice Unix milliseconds of 8 bytes: until when what it counts reaches | `recovered` | `recovered` |
//!
//! A kind that is not known here is kept and passed on as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_gossip::{PART_BYTES_MAX, PartKey};
use fairmesh_model::{
    AccountPath, CoreMillis, Counters, Factor, Incarnation, Millis, PriceList, Span, WallTime, cbor,
};
use fairmesh_usage::{Slice, cut};
use serde::{Deserialize, Serialize};

/// The kind of parts with tables of usage.
pub(crate) const USAGE: u8 = 1;
/// What running jobs are still expected to be charged.
pub(crate) const RUNNING: u8 = 2;
/// What the site's machines cost.
pub(crate) const DESCRIPTION: u8 = 3;
/// What the site has taken back.
pub(crate) const AUDIT: u8 = 4;

/// What the site has, had and sent of its rights to spend.
pub(crate) const RIGHTS: u8 = 5;

/// What the site says of its free CPUs.
pub(crate) const ADVERT: u8 = 6;

/// Until when the usage in a head reaches.
pub(crate) const REACH: u8 = 7;

/// How far behind its head's time of signing a span may begin, and ahead of this clock an offer: more than any
/// tolerance of clocks.
pub(crate) const AHEAD_MAX: Millis = Millis::from_secs(3_600);

/// Most pieces of a description: bounds it to 1 MiB, thousands of machine classes.
pub(crate) const DESCRIPTION_PIECES_MAX: u8 = 16;

/// The slice that a part of usage is, if it is one.
pub(crate) fn usage_slice(key: &PartKey) -> Option<Slice> {
    (key.kind() == USAGE).then(|| Slice::from_bytes(key.key()))?
}

/// Name of a table of usage.
pub(crate) fn usage_key(slice: Slice) -> PartKey {
    PartKey::new(USAGE, &slice.to_bytes())
}

/// The parts of a list of running jobs.
pub(crate) fn running_parts(
    expected: &BTreeMap<AccountPath, CoreMillis>,
) -> BTreeMap<PartKey, Vec<u8>> {
    let cells = expected.iter().map(|(path, amount)| {
        let counters = Counters {
            charge: amount.0,
            ..Counters::default()
        };
        (path, Incarnation(0), counters)
    });
    let tables = cut(Span::Day(0), cells, PART_BYTES_MAX).into_iter();
    tables
        .map(|(slice, bytes)| (PartKey::new(RUNNING, &slice.to_bytes()), bytes))
        .collect()
}

/// What a site says about its machines and queues.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Description {
    /// Machine classes and queue costs.
    #[serde(rename = "p")]
    pub prices: Arc<PriceList>,
    /// Which class a machine is of, by its name: the first pattern that holds.
    #[serde(rename = "h", default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<(String, String)>,
    /// What the owner asks of this VO's quotas, × the charge, and since when; where it is not always the usual price.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub price: Option<(Factor, WallTime)>,
}

impl Description {
    /// Reads what a site has written of its own, the pieces put together; `None` for anything else, and where
    /// machines or queues are not what an owner may declare: they are divided by, and printed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let most = usize::from(DESCRIPTION_PIECES_MAX) * PART_BYTES_MAX;
        let read: Self = cbor::from_slice(bytes, most).ok()?;
        let checked = read.prices.validate();
        let checked = checked.and(read.prices.validate_hosts(&read.hosts));
        checked.is_ok().then_some(read)
    }
}

/// The parts of a description; none where there is nothing to say, or too much.
pub(crate) fn description_parts(description: &Description) -> BTreeMap<PartKey, Vec<u8>> {
    if *description == Description::default() {
        return BTreeMap::new();
    }
    let bytes = cbor::to_vec(description);
    let pieces: Vec<&[u8]> = bytes.chunks(PART_BYTES_MAX).collect();
    if pieces.len() > usize::from(DESCRIPTION_PIECES_MAX) {
        return BTreeMap::new();
    }
    let named = (0..).zip(pieces);
    named
        .map(|(index, piece)| (PartKey::new(DESCRIPTION, &[index]), piece.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fairmesh_model::MachineClass;
    use fairmesh_model::documents::{HOSTS_MAX, LABELS_MAX, MACHINE_CLASSES_MAX, QUEUES_MAX};

    use super::*;

    const CLASS: MachineClass = MachineClass {
        count: u32::MAX,
        cpus: u32::MAX,
        mem_mib: u64::MAX,
        gpus: u32::MAX,
        disk_mib: u64::MAX,
        spec: Factor::MAX,
        properties: BTreeSet::new(),
        queues: BTreeSet::new(),
    };

    fn read(description: &Description) -> Option<Description> {
        let parts = description_parts(description);
        let pieces: Vec<&[u8]> = parts.values().map(Vec::as_slice).collect();
        Description::from_bytes(&pieces.concat())
    }

    #[test]
    fn the_fullest_description_fits_its_parts() {
        let named = |index: usize| format!("{index:0>64}");
        let class = || MachineClass {
            properties: (0..LABELS_MAX / MACHINE_CLASSES_MAX).map(named).collect(),
            ..CLASS
        };
        let full = Description {
            prices: Arc::new(PriceList {
                machines: (0..MACHINE_CLASSES_MAX)
                    .map(|index| (named(index), class()))
                    .collect(),
                queues: (0..QUEUES_MAX)
                    .map(|index| (named(index), Factor::MAX))
                    .collect(),
                qos: BTreeMap::new(),
            }),
            hosts: (0..HOSTS_MAX)
                .map(|index| (named(index), named(0)))
                .collect(),
            price: Some((Factor::MAX, WallTime(u64::MAX))),
        };
        assert_eq!(read(&full), Some(full));
    }

    #[test]
    fn a_description_that_no_owner_may_declare_is_none() {
        let of = |name: &str, class, hosts: &str| Description {
            prices: Arc::new(PriceList {
                machines: BTreeMap::from([(name.to_owned(), class)]),
                ..PriceList::default()
            }),
            hosts: vec![("n*".to_owned(), hosts.to_owned())],
            price: None,
        };
        assert!(read(&of("fat", CLASS, "fat")).is_some());
        assert!(read(&of("fat", MachineClass { cpus: 0, ..CLASS }, "fat")).is_none());
        assert!(read(&of("fat\u{1b}[2J", CLASS, "fat\u{1b}[2J")).is_none());
        assert!(read(&of("fat", CLASS, "thin")).is_none());
    }
}
