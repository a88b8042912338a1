//! What a driver and its store give a site: rows that survive, and the ways in which they do not.
//!
//! Invariant: [`Disk::persist`] is one atomic change; no fault ever leaves half of one. A damaged row
//! is never served: it is found by its checksum, at the latest when the store is opened again, and
//! then the whole store is set aside and an empty one is filled by peers and by the side file, as the
//! node's `store::recovery` does.
//!
//! Deliberately not here: pages, logs and syncs (the real engine's tests kill real processes), and
//! when faults happen (the world's part).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_cluster::Stream;
use fairmesh_model::Incarnation;
use fairmesh_site::{Row, Table, Write};

/// Bytes that a row takes beside its key and value: tag and checksum.
const ROW_OVERHEAD_BYTES: u64 = 10;

/// Rows of the side file's journal beyond which older changes of one row are dropped.
const JOURNAL_COMPACT_AT: usize = 4_096;

type Rows = BTreeMap<RowKey, Vec<u8>>;

/// A key in four numbers, and what does not fit into them: keys that are hashes, as those of jobs
/// are, need no look at bytes that are somewhere else. The order is that of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    head: [u64; 4],
    rest: Box<[u8]>,
    length: usize,
}

impl RowKey {
    const HEAD_BYTES: usize = 32;

    fn new(key: &[u8]) -> Self {
        let (head, rest) = key.split_at(key.len().min(Self::HEAD_BYTES));
        let mut bytes = [0; Self::HEAD_BYTES];
        bytes[..head.len()].copy_from_slice(head);
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_be_bytes(bytes.try_into().expect("eight"));
        }
        Self {
            head: words,
            rest: rest.into(),
            length: key.len(),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let head = self.head.iter().flat_map(|word| word.to_be_bytes());
        let mut bytes: Vec<u8> = head.collect();
        bytes.truncate(self.length);
        bytes.extend_from_slice(&self.rest);
        bytes
    }
}

/// Why a disk refused. Nothing of what was asked for was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// No room is left.
    #[error("no space left on the device")]
    Full,
    /// The row does not match its checksum.
    #[error("the row is damaged")]
    Damaged,
}

/// The small file beside the store, which survives the store's loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideFile {
    /// No incarnation below this one is ever taken again.
    pub floor: Incarnation,
    /// Changes of the ledger and of job marks since the last compaction, oldest first.
    pub journal: Vec<Write>,
    /// Whether the journal is kept at all.
    pub keeps_journal: bool,
    compact_at: usize,
}

impl SideFile {
    /// An empty file.
    pub fn new(keeps_journal: bool) -> Self {
        Self {
            floor: Incarnation(0),
            journal: Vec::new(),
            keeps_journal,
            compact_at: 0,
        }
    }

    fn record(&mut self, writes: &[Write]) {
        if !self.keeps_journal {
            return;
        }
        let kept = writes
            .iter()
            .filter(|write| matches!(write.table, Table::Ledger | Table::Jobs));
        self.journal.extend(kept.cloned());
        if self.journal.len() > self.compact_at.max(JOURNAL_COMPACT_AT) {
            self.compact(|_| true);
            // Twice what is needed, so that compacting costs little however much that is.
            self.compact_at = self.journal.len() * 2;
        }
    }

    /// Keeps the last change of each row that `is_wanted` still wants.
    pub fn compact(&mut self, is_wanted: impl Fn(&Write) -> bool) {
        let mut seen = BTreeSet::new();
        let mut kept: Vec<Write> = Vec::new();
        for write in std::mem::take(&mut self.journal).into_iter().rev() {
            if is_wanted(&write) && seen.insert((write.table, write.key.clone())) {
                kept.push(write);
            }
        }
        kept.reverse();
        self.journal = kept;
    }
}

/// A store as it was at one moment. Cheap to hold: rows are shared until they change.
#[derive(Debug, Clone)]
pub struct Snapshot {
    tables: Arc<BTreeMap<Table, Rows>>,
    side: SideFile,
}

/// The disk of one site.
#[derive(Debug)]
pub struct Disk {
    tables: Arc<BTreeMap<Table, Rows>>,
    /// The file beside the store.
    pub side: SideFile,
    damaged: BTreeSet<(Table, Vec<u8>)>,
    room_bytes: Option<u64>,
    set_aside: u32,
}

impl Disk {
    /// An empty disk.
    pub fn new(keeps_journal: bool) -> Self {
        Self {
            tables: Arc::default(),
            side: SideFile::new(keeps_journal),
            damaged: BTreeSet::new(),
            room_bytes: None,
            set_aside: 0,
        }
    }

    /// Makes all of `writes` durable, or none.
    pub fn persist(&mut self, writes: Vec<Write>) -> Result<(), DiskError> {
        self.take_room(&writes)?;
        self.side.record(&writes);
        let tables = Arc::make_mut(&mut self.tables);
        for Write { table, key, value } in writes {
            if !self.damaged.is_empty() {
                self.damaged.remove(&(table, key.clone()));
            }
            let rows = tables.entry(table).or_default();
            match value {
                Some(value) => rows.insert(RowKey::new(&key), value),
                None => rows.remove(&RowKey::new(&key)),
            };
        }
        Ok(())
    }

    /// The value under a key.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, DiskError> {
        if !self.damaged.is_empty() && self.damaged.contains(&(table, key.to_vec())) {
            return Err(DiskError::Damaged);
        }
        let value = self
            .tables
            .get(&table)
            .and_then(|rows| rows.get(&RowKey::new(key)));
        Ok(value.map(Vec::as_slice))
    }

    /// Opens the store as a starting node does: a damaged one is set aside. True if it was.
    pub fn open(&mut self) -> bool {
        if self.damaged.is_empty() {
            return false;
        }
        self.wipe_store();
        self.set_aside += 1;
        self.fill_from_journal();
        true
    }

    /// What a starting node reads: everything but the marks of jobs, which are looked up singly.
    pub fn rows(&self) -> Vec<Row> {
        let tables = self.tables.iter().filter(|(of, _)| **of != Table::Jobs);
        tables
            .flat_map(|(of, rows)| {
                rows.iter()
                    .map(|(key, value)| (*of, key.to_bytes(), value.clone()))
            })
            .collect()
    }

    /// How many rows a table has.
    pub fn count_rows(&self, table: Table) -> usize {
        self.tables.get(&table).map_or(0, Rows::len)
    }

    /// How many stores were set aside.
    pub fn set_aside(&self) -> u32 {
        self.set_aside
    }

    /// Raises the floor of incarnations, durably.
    pub fn raise_floor(&mut self, used: Incarnation) -> Result<(), DiskError> {
        if self.room_bytes.is_some_and(|room| room < 64) {
            return Err(DiskError::Full);
        }
        self.side.floor = Incarnation(used.0.saturating_add(1));
        Ok(())
    }

    /// Flips a bit in one row, which `random` picks. False where there is no row.
    pub fn flip_bit(&mut self, random: &mut Stream) -> bool {
        let total: usize = self.tables.values().map(Rows::len).sum();
        if total == 0 {
            return false;
        }
        let index = random.index(total);
        let mut keys = self
            .tables
            .iter()
            .flat_map(|(of, rows)| rows.keys().map(|key| (*of, key)));
        if let Some((table, key)) = keys.nth(index) {
            self.damaged.insert((table, key.to_bytes()));
        }
        true
    }

    /// Lets only `room_bytes` more be written.
    pub fn fill(&mut self, room_bytes: u64) {
        self.room_bytes = Some(room_bytes);
    }

    /// The operator makes room.
    pub fn make_room(&mut self) {
        self.room_bytes = None;
    }

    /// Whether room is limited.
    pub fn is_filling(&self) -> bool {
        self.room_bytes.is_some()
    }

    /// Everything in the store is gone, and the side file too unless it `keeps_side`; what the side
    /// file has of the ledger is put into the new store.
    pub fn wipe(&mut self, keeps_side: bool) {
        self.wipe_store();
        if keeps_side {
            self.fill_from_journal();
        } else {
            self.side = SideFile::new(self.side.keeps_journal);
        }
    }

    /// A backup.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            tables: Arc::clone(&self.tables),
            side: self.side.clone(),
        }
    }

    /// Puts a backup in the place of the store, and of the side file unless it `keeps_side`.
    pub fn restore(&mut self, backup: &Snapshot, keeps_side: bool) {
        self.tables = Arc::clone(&backup.tables);
        self.damaged.clear();
        if !keeps_side {
            self.side = backup.side.clone();
        }
    }

    fn wipe_store(&mut self) {
        self.tables = Arc::default();
        self.damaged.clear();
    }

    fn fill_from_journal(&mut self) {
        let tables = Arc::make_mut(&mut self.tables);
        for write in &self.side.journal {
            let rows = tables.entry(write.table).or_default();
            match &write.value {
                Some(value) => rows.insert(RowKey::new(&write.key), value.clone()),
                None => rows.remove(&RowKey::new(&write.key)),
            };
        }
    }

    fn take_room(&mut self, writes: &[Write]) -> Result<(), DiskError> {
        let Some(room) = &mut self.room_bytes else {
            return Ok(());
        };
        let bytes = |write: &Write| {
            let value = write.value.as_ref().map_or(0, Vec::len);
            (write.key.len() + value) as u64 + ROW_OVERHEAD_BYTES
        };
        let needed: u64 = writes.iter().map(bytes).sum();
        *room = room.checked_sub(needed).ok_or(DiskError::Full)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_cluster::Seed;

    fn set(table: Table, key: u8, value: u8) -> Write {
        Write::set(table, vec![key], vec![value])
    }

    #[test]
    fn keys_come_back_and_sort_as_their_bytes() {
        let lengths = [0, 1, 2, 8, 31, 32, 33, 72];
        let key = |length: usize, last: u8| {
            let mut key = vec![0; length];
            key.last_mut().into_iter().for_each(|byte| *byte = last);
            key
        };
        let mut keys: Vec<Vec<u8>> = lengths
            .into_iter()
            .flat_map(|length| [0, 1, 255].map(|last| key(length, last)))
            .collect();
        let mut rows: Vec<RowKey> = keys.iter().map(|key| RowKey::new(key)).collect();
        keys.sort();
        rows.sort();
        let back: Vec<Vec<u8>> = rows.iter().map(RowKey::to_bytes).collect();
        assert_eq!(back, keys);
    }

    #[test]
    fn a_full_disk_takes_all_of_a_change_or_nothing() {
        let mut disk = Disk::new(false);
        disk.fill(20);
        let both = vec![set(Table::Ledger, 1, 1), set(Table::Jobs, 1, 1)];
        assert_eq!(disk.persist(both.clone()), Err(DiskError::Full));
        assert_eq!(disk.get(Table::Ledger, &[1]), Ok(None));
        disk.make_room();
        assert_eq!(disk.persist(both), Ok(()));
        assert_eq!(disk.count_rows(Table::Jobs), 1);
    }

    #[test]
    fn a_damaged_store_is_set_aside_and_the_journal_fills_the_next() {
        for keeps_journal in [false, true] {
            let mut disk = Disk::new(keeps_journal);
            for value in 0..3 {
                disk.persist(vec![set(Table::Ledger, 7, value), set(Table::Parts, 7, 1)])
                    .expect("there is room");
            }
            assert!(!disk.open());
            assert!(disk.flip_bit(&mut Seed(1).stream("flip")));
            assert!(disk.open());
            assert_eq!((disk.set_aside(), disk.count_rows(Table::Parts)), (1, 0));
            let expected = keeps_journal.then_some([2_u8].as_slice());
            assert_eq!(disk.get(Table::Ledger, &[7]), Ok(expected));
        }
    }

    #[test]
    fn a_backup_is_what_was_then() {
        let mut disk = Disk::new(false);
        disk.persist(vec![set(Table::Meta, 1, 1)]).expect("room");
        let backup = disk.snapshot();
        disk.raise_floor(Incarnation(9)).expect("room");
        disk.persist(vec![set(Table::Meta, 1, 2)]).expect("room");
        disk.restore(&backup, true);
        assert_eq!(disk.get(Table::Meta, &[1]), Ok(Some([1].as_slice())));
        assert_eq!(disk.side.floor, Incarnation(10));
        disk.restore(&backup, false);
        assert_eq!(disk.side.floor, Incarnation(0));
    }
}
