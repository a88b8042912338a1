//! What happened last, and one hash of everything that ever happened.
//!
//! Invariant: two runs with one seed have the same [`EventLog::trace_hash`] after every step; a run
//! that differs in a single byte that reached a site, or in its time, has another one.
//!
//! Entries are small numbers until somebody reads them: a run that goes well never formats a line.
//! The hash is fast and not made against an adversary. Deliberately not here: the payloads.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// No node, or no peer.
pub(crate) const NOBODY: u32 = u32::MAX;

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// Time had passed for a site.
    Tick,
    /// A session began.
    Connected,
    /// A session ended.
    Disconnected,
    /// A push arrived.
    Pushed,
    /// A request arrived.
    Requested,
    /// An answer arrived.
    Answered,
    /// A request found no answer.
    Failed,
    /// A feed reported usage.
    Report,
    /// A feed listed running jobs.
    Running,
    /// Somebody handed a document in.
    Publish,
    /// Work that a site had handed out was done.
    Done,
    /// A configuration was read again.
    Reconfigured,
    /// A node was told to stop.
    Stopping,
    /// A node was started.
    Started,
    /// A node has ended, for whatever reason.
    Ended,
    /// A damaged store was set aside.
    SetAside,
    /// A planned action was done.
    Action,
    /// A batch system asked about a quota.
    Quota,
    /// A scheduler said what is free, or a broker asked.
    Advert,
}

impl StepKind {
    /// The word for it in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Pushed => "pushed",
            Self::Requested => "asked",
            Self::Answered => "answered",
            Self::Failed => "no answer",
            Self::Report => "report",
            Self::Running => "running jobs",
            Self::Publish => "document",
            Self::Done => "work done",
            Self::Reconfigured => "reconfigured",
            Self::Stopping => "told to stop",
            Self::Started => "started",
            Self::Ended => "ended",
            Self::SetAside => "store set aside",
            Self::Action => "action",
            Self::Quota => "quota",
            Self::Advert => "advert",
        }
    }
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// True time, milliseconds.
    pub at_ms: u64,
    /// What.
    pub kind: StepKind,
    /// At which node; `u32::MAX` where it concerns none.
    pub node: u32,
    /// Which other node had a part in it; `u32::MAX` for none.
    pub peer: u32,
    /// Length of what came with it.
    pub bytes: u32,
    /// Hash of what came with it.
    pub hash: u64,
}

/// The last entries, and the hash of all.
#[derive(Debug)]
pub struct EventLog {
    last: VecDeque<Entry>,
    entries_max: usize,
    written: u64,
    state: (u64, u64),
}

impl EventLog {
    /// A log that remembers `entries_max` entries.
    pub fn new(entries_max: usize) -> Self {
        Self {
            last: VecDeque::with_capacity(entries_max.min(65_536)),
            entries_max,
            written: 0,
            state: (0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344),
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.written += 1;
        self.mix(entry.at_ms ^ (entry.kind as u64) << 56);
        self.mix(u64::from(entry.node) << 32 | u64::from(entry.peer));
        self.mix(entry.hash ^ u64::from(entry.bytes) << 40);
        if self.entries_max == 0 {
            return;
        }
        if self.last.len() == self.entries_max {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    /// Takes something into the hash that is no entry of its own.
    pub(crate) fn mix(&mut self, word: u64) {
        self.state = mixed(self.state, word);
    }

    /// How many entries were ever written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The hash of everything so far.
    pub fn trace_hash(&self) -> u128 {
        u128::from(self.state.0) << 64 | u128::from(self.state.1)
    }

    /// The last entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.last.iter()
    }

    /// The last entries as lines for people.
    pub fn lines(&self) -> Vec<String> {
        self.last.iter().map(line).collect()
    }
}

/// A true time as people read it: `2d 03:04:05.678`.
pub fn clock_text(at_ms: u64) -> String {
    let (seconds, millis) = (at_ms / 1_000, at_ms % 1_000);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!(
        "{days}d {hours:02}:{minutes:02}:{:02}.{millis:03}",
        seconds % 60
    )
}

impl Entry {
    /// The entry as a line for people.
    pub fn line(&self) -> String {
        line(self)
    }
}

fn line(entry: &Entry) -> String {
    let mut line = clock_text(entry.at_ms);
    // Writing to a string cannot fail.
    if entry.node != NOBODY {
        let _ = write!(line, "  site {:<4}", entry.node);
    }
    let _ = write!(line, "  {}", entry.kind.word());
    if entry.peer != NOBODY {
        let _ = write!(line, " (site {})", entry.peer);
    }
    if entry.bytes > 0 {
        let _ = write!(line, "  {} bytes, {:016x}", entry.bytes, entry.hash);
    }
    line
}

pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NOBODY)
}

/// A fast hash of bytes, the same on every machine.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u128 {
    let mut state = (0x4528_21e6_38d0_1377, bytes.len() as u64);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        state = mixed(state, u64::from_le_bytes(word.try_into().expect("eight")));
    }
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    let (high, low) = mixed(mixed(state, u64::from_le_bytes(rest)), 0x9e37);
    u128::from(high) << 64 | u128::from(low)
}

/// One round: both halves take the word in, and each takes in what the other was. A product of 128
/// bits, folded, is what wyhash (Wang Yi, 2019) mixes with.
fn mixed((high, low): (u64, u64), word: u64) -> (u64, u64) {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        u64::try_from(product >> 64).expect("64 bits are left") ^ low_half(product)
    };
    (
        fold(low ^ word, 0xa076_1d64_78bd_642f) ^ high.rotate_left(23),
        fold(high ^ word.rotate_left(32), 0xe703_7ed1_a0b4_28db).wrapping_add(low),
    )
}

fn low_half(product: u128) -> u64 {
    u64::try_from(product & u128::from(u64::MAX)).expect("64 bits are kept")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn entry(at_ms: u64, hash: u64) -> Entry {
        Entry {
            at_ms,
            kind: StepKind::Tick,
            node: 1,
            peer: NOBODY,
            bytes: 3,
            hash,
        }
    }

    #[test]
    fn only_the_last_entries_are_kept_and_all_are_hashed() {
        let mut long = EventLog::new(2);
        let mut short = EventLog::new(0);
        for at in 0..5 {
            long.push(entry(at, 9));
            short.push(entry(at, 9));
        }
        assert_eq!(long.lines().len(), 2);
        assert_eq!(long.trace_hash(), short.trace_hash());
        long.push(entry(6, 9));
        short.push(entry(6, 8));
        assert_ne!(long.trace_hash(), short.trace_hash());
        assert!(long.lines()[1].contains("site 1"), "{:?}", long.lines());
    }

    #[test]
    fn one_byte_makes_another_hash() {
        let mut seen = BTreeSet::new();
        for length in 0..40 {
            let mut bytes = vec![0_u8; length];
            assert!(seen.insert(hash_bytes(&bytes)));
            for at in 0..length {
                bytes[at] = 1;
                assert!(seen.insert(hash_bytes(&bytes)));
                bytes[at] = 0;
            }
        }
    }
}
