//! Files that lose what was not synced.
//!
//! Invariant: behind [`Files::lose_power`] a file has all that it had when it was last synced, and of
//! what was written since a first part, or that length with zeros at the end; a name means what it
//! meant when the names were last synced, or behind any one of the changes since.
//!
//! Deliberately not here: the store (`disk`), and when power is lost.

use std::collections::BTreeMap;

use fairmesh_cluster::Stream;
use fairmesh_round::{FileName, FileRead};

type Names = BTreeMap<FileName, u32>;

#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// What of them no crash takes away.
    synced: usize,
    /// Where the last of it begins that was written at once, and is whole.
    last: Option<usize>,
    /// Where bits were flipped.
    flipped: Vec<usize>,
}

/// The files of one folder.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    contents: BTreeMap<u32, Content>,
    next: u32,
    names: Names,
    durable: Names,
    /// What the names were behind each change since they were last synced.
    since: Vec<Names>,
}

impl Files {
    pub(super) fn read(&self, name: &FileName) -> FileRead {
        let content = self.names.get(name).map(|content| &self.contents[content]);
        content.map_or(FileRead::Absent, |content| {
            FileRead::Bytes(content.bytes.clone())
        })
    }

    pub(super) fn is_there(&self, name: &FileName) -> bool {
        self.names.contains_key(name)
    }

    pub(super) fn length(&self, name: &FileName) -> u64 {
        let content = self.names.get(name).map(|content| &self.contents[content]);
        content.map_or(0, |content| content.bytes.len() as u64)
    }

    pub(super) fn create(&mut self, name: &FileName) {
        self.next += 1;
        self.contents.insert(self.next, Content::default());
        let next = self.next;
        self.rename_with(|names| {
            names.insert(name.clone(), next);
        });
    }

    pub(super) fn write(&mut self, name: &FileName, at: u64, bytes: &[u8]) {
        let content = self.content(name);
        let end = content.bytes.len() as u64;
        assert_eq!(at, end, "{name} is written to at its end only");
        content.last = Some(content.bytes.len());
        content.bytes.extend_from_slice(bytes);
    }

    /// What was just written is not all that was to be.
    pub(super) fn cut_short(&mut self, name: &FileName) {
        self.content(name).last = None;
    }

    pub(super) fn sync(&mut self, name: &FileName) {
        let content = self.content(name);
        content.synced = content.bytes.len();
    }

    pub(super) fn rename(&mut self, from: &FileName, to: &FileName) {
        self.rename_with(|names| {
            let content = names.remove(from).expect("what is renamed is there");
            names.insert(to.clone(), content);
        });
    }

    pub(super) fn copy(&mut self, from: &FileName, to: &FileName) {
        if let FileRead::Bytes(bytes) = self.read(from) {
            self.create(to);
            self.write(to, 0, &bytes);
        }
    }

    pub(super) fn remove(&mut self, name: &FileName) {
        self.rename_with(|names| {
            names.remove(name);
        });
    }

    pub(super) fn sync_names(&mut self) {
        self.durable = self.names.clone();
        self.since.clear();
        let named = &self.durable;
        self.contents
            .retain(|content, _| named.values().any(|of| of == content));
    }

    /// Flips a bit of a file that is there and not empty.
    pub(super) fn flip_bit(&mut self, name: &FileName, random: &mut Stream) -> bool {
        if self.length(name) == 0 {
            return false;
        }
        let content = self.content(name);
        let at = random.index(content.bytes.len());
        content.bytes[at] ^= 1 << random.below(8);
        content.flipped.push(at);
        true
    }

    /// Where bits of a file were flipped.
    pub(super) fn flipped(&self, name: &FileName) -> &[usize] {
        let content = self.names.get(name).map(|content| &self.contents[content]);
        content.map_or(&[], |content| &content.flipped)
    }

    /// Whether bits were flipped of what lies before the last that was written, so that nobody can take the
    /// damage for a write that was cut short.
    pub(super) fn is_damaged_within(&self, name: &FileName) -> bool {
        let content = self.names.get(name).map(|content| &self.contents[content]);
        content.is_some_and(|content| {
            let is_within = |at: &usize| content.last.is_some_and(|last| *at < last);
            !content.flipped.is_empty() && content.flipped.iter().all(is_within)
        })
    }

    /// What was not synced is gone, or a part of it. True if anything was.
    pub(super) fn lose_power(&mut self, random: &mut Stream) -> bool {
        let mut is_lost = !self.since.is_empty();
        if is_lost {
            let kept = random.index(self.since.len() + 1);
            let kept = kept.checked_sub(1).map(|kept| self.since.swap_remove(kept));
            self.names = kept.unwrap_or_else(|| self.durable.clone());
        }
        for content in self.contents.values_mut() {
            if content.synced < content.bytes.len() {
                is_lost = true;
                let length = content.bytes.len();
                let kept = content.synced + random.index(length - content.synced + 1);
                content.bytes.truncate(kept);
                if random.below(4) == 0 {
                    content.bytes.resize(length, 0);
                }
                content.synced = content.bytes.len();
                content.last = None;
            }
        }
        self.sync_names();
        is_lost
    }

    fn content(&mut self, name: &FileName) -> &mut Content {
        let content = self.names.get(name).expect("the file is there");
        self.contents.get_mut(content).expect("it is named")
    }

    fn rename_with(&mut self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names);
        self.since.push(self.names.clone());
    }
}
