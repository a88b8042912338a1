//! What a scheduler reports: who held what from when to when.
//!
//! Invariant: a report names its job by a key that never means another job, and its end is not
//! before its start. Reports of one job may come in any number and order; the site charges each
//! moment of a job once (see `fairmesh-site`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::ContentHash;
use crate::time::{Millis, WallTime};
use crate::visible::is_visible;

/// Longest name (user, account, cluster, job id …) in a report, in bytes. Bounds what one record
/// can make the store keep; certificate subjects are the longest names seen, at about 200.
pub const NAME_BYTES_MAX: usize = 512;

/// What stands before the number of a byte that a name cannot have.
const REPLACED: char = char::REPLACEMENT_CHARACTER;

/// Bytes of the digest that stands for the end of a name that is too long.
const CUT_BYTES: usize = 8;

/// Longest run of one job that is believed: ten years. Bounds how many windows one record fills.
pub const RUN_MAX: Millis = Millis(10 * 366 * 86_400_000);

/// Most properties of one job: bounds the work of one charge.
pub const PROPERTIES_MAX: usize = 64;

/// Most chunks of one job: bounds the work of one charge. A chunk is a kind of node in a job, of which there are
/// a few; a job of more kinds adds alike ones up.
pub const CHUNKS_MAX: usize = 256;

/// The identity of a job that is never reused: a cluster's job id may wrap around or be requeued.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// The scheduler's own name of the cluster.
    pub cluster: String,
    /// The job id as the scheduler prints it.
    pub job: String,
    /// Restart count, or submit time in Unix seconds: what tells two jobs of one id apart.
    #[serde(default)]
    pub instance: u64,
}

/// On which terms a job ran.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Terms {
    /// The usual terms: neither preemptible nor on idle machines.
    #[default]
    Regular,
    /// It could be stopped for others' sake, or was started in a gap before their turn.
    Preemptible,
    /// On machines that would have stood idle.
    Idle,
}

impl Terms {
    /// Whether these are the usual terms.
    pub fn is_regular(&self) -> bool {
        *self == Self::Regular
    }
}

/// Who a job belongs to, in the words of the local batch system. At least one is given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Local user name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Batch account or project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Local group name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Grid identity: a certificate subject or a token's subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Origin {
    /// The same, each name as [`fitting`] has it.
    pub fn fitting(self) -> Self {
        Self {
            user: self.user.map(fitting),
            account: self.account.map(fitting),
            group: self.group.map(fitting),
            subject: self.subject.map(fitting),
        }
    }
}

/// Stands for a byte from 0x80 on that is no UTF-8, and is followed by those for the others: of Unicode's private use.
const MARKED_BYTE: u32 = 0xf700;

/// The byte that a character stands for, if it does.
fn marked_byte(c: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(c).checked_sub(MARKED_BYTE)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

/// Bytes of a batch system as text. Each byte that is no UTF-8 becomes a character that stands for it, so that two
/// names stay two; [`numbered`] shows it.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    let is_marked = |c| marked_byte(c).is_some();
    if let Ok(text) = std::str::from_utf8(bytes)
        && (text.is_ascii() || !text.contains(is_marked))
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    let mark = |bytes: &[u8], text: &mut String| {
        let marks = bytes.iter().map(|byte| MARKED_BYTE + u32::from(*byte));
        text.extend(marks.filter_map(char::from_u32));
    };
    for chunk in bytes.utf8_chunks() {
        // What looks like such a character is no UTF-8 of a name either.
        for c in chunk.valid().chars() {
            match marked_byte(c) {
                None => text.push(c),
                Some(_) => mark(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
            }
        }
        mark(chunk.invalid(), &mut text);
    }
    Cow::Owned(text)
}

/// The same with U+FFFD and the number of each byte that is no UTF-8, as names are shown.
pub fn numbered(name: String) -> String {
    if !name.contains(|c| marked_byte(c).is_some()) {
        return name;
    }
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        match marked_byte(c) {
            None => shown.push(c),
            Some(byte) => push_numbers(&mut shown, &[byte]),
        }
    }
    shown
}

fn push_numbers(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.extend([REPLACED].into_iter().chain(format!("{byte:02x}").chars()));
    }
}

/// A name that users choose, as a report may bear it, so that none makes a job free: of what is not visible each byte
/// becomes U+FFFD and its number, and what is behind [`NAME_BYTES_MAX`] bytes becomes U+FFFD and a digest. No account
/// is called so, hence none is charged for another's name; and two names stay two.
pub fn fitting(name: impl Into<String>) -> String {
    let name = name.into();
    if let Cow::Owned(changed) = fit(&name) {
        return changed;
    }
    name
}

/// As [`fitting`], of a name that is not one's own.
pub fn fit(name: &str) -> Cow<'_, str> {
    if is_fitting(name) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        match marked_byte(c) {
            Some(byte) => push_numbers(&mut shown, &[byte]),
            None if is_visible(c) => shown.push(c),
            None => push_numbers(&mut shown, c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(cut(shown, NAME_BYTES_MAX))
}

/// The same, of `most` bytes at most: all that is behind them becomes U+FFFD and a digest of the whole.
pub fn cut(mut name: String, most: usize) -> String {
    if name.len() > most {
        let hash = ContentHash::of(name.as_bytes());
        let kept = most.saturating_sub(REPLACED.len_utf8() + 2 * CUT_BYTES);
        let end = (0..=kept).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or(0));
        name.push(REPLACED);
        let digest = hash.as_bytes().iter().take(CUT_BYTES);
        name.extend(digest.map(|byte| format!("{byte:02x}")));
    }
    name
}

/// A word of a batch system as (a part of) one name of a path. A slash, of which a certificate's subject is full,
/// becomes `|`, and `|` becomes U+FFFD and its number.
pub fn element(word: &str) -> String {
    word.replace('|', "\u{fffd}7c").replace('/', "|")
}

/// The word of which [`element`] made a name of a path.
pub fn word_of(element: &str) -> String {
    let word = element.replace('|', "/");
    word.replace("\u{fffd}7c", "|")
}

fn is_fitting(name: &str) -> bool {
    let shows = |c| is_visible(c) && marked_byte(c).is_none();
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(shows)
}

/// One report about one job. A key that is not among these is refused: a misspelt one would charge somebody
/// else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageRecord {
    /// Cluster, id and submit time: they identify the job for ever.
    #[serde(flatten)]
    pub key: JobKey,
    /// The names by which rules map it to an account.
    #[serde(flatten)]
    pub origin: Origin,
    /// When it started, by the batch system's clock.
    #[serde(rename = "start_ms")]
    pub start: WallTime,
    /// Until when it has run: its end, or the moment of this report if it still runs.
    #[serde(rename = "end_ms")]
    pub end: WallTime,
    /// Cores held.
    pub cores: u32,
    /// GPUs held.
    #[serde(default)]
    pub gpus: u32,
    /// Memory held, MiB, of all nodes together.
    #[serde(default)]
    pub mem_mib: u64,
    /// Where and on which terms it ran.
    #[serde(flatten)]
    pub placement: Placement,
    /// Whether the job still runs, so that this is an instalment and not the last word.
    #[serde(default)]
    pub running: bool,
}

/// Where and on which terms a job ran: what charging by machines and queues asks for. All of it may
/// be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Placement {
    /// Nodes that its cores, GPUs, memory and disk are spread over, evenly unless `chunks` say how; 0 is
    /// read as 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nodes: u32,
    /// Scratch disk held, MiB, of all nodes together.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_mib: u64,
    /// Energy that it used, joules.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub energy_j: u64,
    /// Its queue or partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its quality of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// The machine that it ran on, or the class of it, as the site's price list names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The terms that the job ran on.
    #[serde(default, skip_serializing_if = "Terms::is_regular")]
    pub terms: Terms,
    /// What it asked of machines by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
    /// What groups of its nodes held, where they were not alike. They add up to the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Chunk>,
    /// Where the job was resized and goes on as another run: that run's instance. What is still held for it goes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_instance: Option<u64>,
}

/// Nodes of a job that held alike, and what they held together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    /// How many, at least 1.
    pub nodes: u32,
    /// Cores held.
    #[serde(default)]
    pub cores: u32,
    /// GPUs held.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus: u32,
    /// Memory held, MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mem_mib: u64,
    /// Scratch disk held, MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_mib: u64,
    /// The machine that they are, or the class of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl Chunk {
    /// What all of them come to: nodes, cores, GPUs, MiB of memory, MiB of disk.
    pub fn totals(chunks: &[Self]) -> [u64; 5] {
        chunks.iter().fold([0; 5], |totals: [u64; 5], of| {
            let [nodes, cores, gpus] = [of.nodes, of.cores, of.gpus].map(u64::from);
            let of = [nodes, cores, gpus, of.mem_mib, of.disk_mib];
            std::array::from_fn(|at| totals[at].saturating_add(of[at]))
        })
    }
}

/// Why a report was refused. Nothing was counted; the feed is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A name is empty, too long, or has characters that are not visible.
    #[error(
        "job `{job}`: the {field} is empty, longer than {NAME_BYTES_MAX} bytes or has characters that are not visible"
    )]
    Name {
        /// Job id, for the message.
        job: String,
        /// The name of the field.
        field: &'static str,
    },
    /// No user, account, group or subject.
    #[error("job `{0}` names no user, account, group or subject")]
    Nobody(String),
    /// It ends before it starts.
    #[error("job `{job}` ends at {end} before it starts at {start}")]
    Backwards {
        /// The job's id.
        job: String,
        /// The reported start.
        start: WallTime,
        /// The reported end.
        end: WallTime,
    },
    /// It ran longer than [`RUN_MAX`].
    #[error("job `{0}` ran for more than ten years")]
    TooLong(String),
    /// More properties or chunks than a job may have.
    #[error("job `{job}` has more than {most} {what}")]
    TooMany {
        /// The job's id.
        job: String,
        /// What there are too many of: properties or chunks.
        what: &'static str,
        /// How many it may have.
        most: usize,
    },
    /// A chunk without nodes, or chunks that are not the job.
    #[error("job `{job}`: the {what} of its chunks are not those of the job")]
    Chunks {
        /// The job's id.
        job: String,
        /// What does not add up.
        what: &'static str,
    },
}

impl UsageRecord {
    /// Checks what every report must satisfy.
    pub fn validate(&self) -> Result<(), RecordError> {
        let job = || {
            self.key
                .job
                .chars()
                .take(64)
                .collect::<String>()
                .escape_debug()
                .to_string()
        };
        let placement = &self.placement;
        // Before what is in them is looked at.
        let lists = [
            ("properties", placement.properties.len(), PROPERTIES_MAX),
            ("chunks", placement.chunks.len(), CHUNKS_MAX),
        ];
        if let Some((what, _, most)) = lists.into_iter().find(|(_, has, most)| has > most) {
            let job = job();
            return Err(RecordError::TooMany { job, what, most });
        }
        let named = [
            ("cluster", Some(&self.key.cluster)),
            ("job id", Some(&self.key.job)),
            ("user", self.origin.user.as_ref()),
            ("account", self.origin.account.as_ref()),
            ("group", self.origin.group.as_ref()),
            ("subject", self.origin.subject.as_ref()),
            ("queue", self.placement.queue.as_ref()),
            ("QOS", self.placement.qos.as_ref()),
            ("machine", self.placement.machine.as_ref()),
        ];
        let properties = placement.properties.iter().map(|name| ("property", name));
        let machines = placement.chunks.iter();
        let machines = machines.filter_map(|chunk| Some(("machine", chunk.machine.as_ref()?)));
        let listed = properties.chain(machines);
        let named = named
            .into_iter()
            .chain(listed.map(|(field, name)| (field, Some(name))));
        for (field, name) in named {
            if name.is_some_and(|name| !is_fitting(name)) {
                return Err(RecordError::Name { job: job(), field });
            }
        }
        if self.origin == Origin::default() {
            return Err(RecordError::Nobody(job()));
        }
        if self.end < self.start {
            return Err(RecordError::Backwards {
                job: job(),
                start: self.start,
                end: self.end,
            });
        }
        if self.end.since(self.start) > RUN_MAX {
            return Err(RecordError::TooLong(job()));
        }
        match self.misfit_of_chunks() {
            Some(what) => Err(RecordError::Chunks { job: job(), what }),
            None => Ok(()),
        }
    }

    /// What of the job is not what its chunks add up to, if it has any.
    fn misfit_of_chunks(&self) -> Option<&'static str> {
        let Placement {
            nodes,
            disk_mib,
            chunks,
            ..
        } = &self.placement;
        if chunks.is_empty() {
            return None;
        }
        let [cores, gpus] = [self.cores, self.gpus].map(u64::from);
        let of_job = [(*nodes).into(), cores, gpus, self.mem_mib, *disk_mib];
        let names = ["nodes", "cores", "GPUs", "MiB of memory", "MiB of disk"];
        let totals = Chunk::totals(chunks).into_iter().zip(of_job);
        let mut wrong = names
            .into_iter()
            .zip(totals)
            .filter(|(_, (sum, of_job))| sum != of_job);
        let empty = chunks.iter().any(|chunk| chunk.nodes == 0);
        empty.then_some("nodes").or_else(|| Some(wrong.next()?.0))
    }
}

/// One line of the list of running jobs: what predictive usage is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningJob {
    /// Which job, whose, since when, until now.
    #[serde(flatten)]
    pub record: UsageRecord,
    /// When it is expected to end (its start plus the requested wall-clock time).
    #[serde(rename = "expected_end_ms")]
    pub expected_end: WallTime,
}

fn is_zero<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
}

#[cfg(test)]
mod tests;
