//! What a file of records has at a line: a job, or why there is none.

use fairmesh_model::UsageRecord;
use fairmesh_records::{BatchRecord, Format};

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ask) enum Kind {
    /// One of the formats of `fairmesh-records`.
    Records(Format),
    /// Standard Workload Format.
    Swf,
    /// The accounting archive of ARC's A-REX.
    Arc,
}

impl Kind {
    /// By its name on the command line; `None` for `auto`.
    pub(in crate::ask) fn parse(name: &str) -> anyhow::Result<Option<Self>> {
        Ok(match name {
            "auto" => None,
            "swf" => Some(Self::Swf),
            "arc" => Some(Self::Arc),
            name => Some(Self::Records(name.parse().map_err(|_| {
                anyhow::anyhow!("no format `{}`; there are {}", name.escape_debug(), names())
            })?)),
        })
    }

    pub(in crate::ask) fn name(self) -> &'static str {
        match self {
            Self::Records(format) => format.name(),
            Self::Swf => "swf",
            Self::Arc => "arc",
        }
    }
}

/// All formats.
pub(super) fn names() -> String {
    let formats = Format::all().map(Format::name);
    let all: Vec<&str> = ["auto"]
        .into_iter()
        .chain(formats)
        .chain(["swf", "arc"])
        .collect();
    all.join(", ")
}

/// A job, in the words that the node is to hear.
#[derive(Debug, Clone)]
pub(in crate::ask) struct Entry {
    pub(in crate::ask) record: BatchRecord,
    /// The usage record that it was read from, if it was one: sent as it is.
    pub(in crate::ask) usage: Option<UsageRecord>,
    /// As it was read, where that is asked for and there is such a text.
    pub(in crate::ask) text: Vec<u8>,
}

/// Why there is no job where one should be.
#[derive(Debug)]
pub(in crate::ask) struct Bad {
    pub(in crate::ask) why: String,
    /// What stands there.
    pub(in crate::ask) text: Vec<u8>,
    /// Whether the file cannot be read on.
    pub(in crate::ask) is_end: bool,
}

/// What was found at a line.
pub(in crate::ask) type Item = (u64, Result<Box<Entry>, Bad>);

/// Records, each with its line.
pub(super) type Batch = Vec<(u64, Box<Entry>)>;
