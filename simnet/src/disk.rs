//! The disk of one site: files that tear and are forgotten, and a store that takes changes whole.
//!
//! Invariant: a change of the store is there whole or not at all, and behind its operation whatever
//! happens. A damaged row is never served: it is found by its checksum, at the latest when the store is
//! opened again, and then the whole store is set aside, as the node's `store::recovery` does.
//!
//! Deliberately not here: what is written when (`fairmesh-round`), pages and logs of the real engine
//! (its tests kill real processes), and when faults happen (the world's part).

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_cluster::Stream;
use fairmesh_model::WallTime;
use fairmesh_round::{
    FileName, FileRead, JOURNAL, JOURNAL_NEW, JOURNAL_OLD, LINEAGE_KEY, Op, SIDE, SideState,
    StoreState,
};
use fairmesh_site::{JobMark, Row, Table, Write};

use files::Files;

/// Bytes that a row takes beside its key and value: tag and checksum.
const ROW_OVERHEAD_BYTES: u64 = 10;

/// Bytes of the journal's head.
const JOURNAL_HEAD_BYTES: usize = 35;

/// What becomes of the journal with its store.
const JOURNALS: [FileName; 3] = [JOURNAL, JOURNAL_OLD, JOURNAL_NEW];

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

/// A data folder as it was at one moment. Cheap to hold: rows are shared until they change.
#[derive(Debug, Clone)]
pub struct Snapshot {
    tables: Arc<BTreeMap<Table, Rows>>,
    number: u64,
    files: Files,
    is_flipped: bool,
    is_side_flipped: bool,
    followed: Option<u64>,
}

/// The disk of one site.
#[derive(Debug)]
pub struct Disk {
    tables: Arc<BTreeMap<Table, Rows>>,
    /// Number of the store's newest change.
    number: u64,
    files: Files,
    keeps_journal: bool,
    damaged: BTreeSet<(Table, Vec<u8>)>,
    room_bytes: Option<u64>,
    losses: Losses,
    /// Whether a bit of the journal was flipped since it was begun.
    is_flipped: bool,
    /// Whether a bit of the side file was.
    is_side_flipped: bool,
    /// How far the store has followed the journal's file; `None` for one of another day.
    followed: Option<u64>,
    /// Whether a start, up to one that came to its end, met a journal that was damaged behind that.
    is_tail_lost: bool,
    /// The marks of jobs that the store had when it was lost.
    marks_due: Option<BTreeMap<RowKey, Vec<u8>>>,
}

/// How often something was found to be lost when a node was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// A damaged store was set aside.
    pub set_aside: u32,
    /// A store that was lost, or of another day, met a journal that was damaged; or one that was damaged behind what the
    /// store had followed.
    pub journals: u32,
    /// A journal had not all marks of jobs that a lost store had.
    pub marks: u32,
    /// A side file with a flipped bit was put aside.
    pub sides: u32,
    /// A side file was put aside of which no bit was flipped: it was not whole when it got its name.
    pub half_sides: u32,
}

impl Disk {
    /// An empty disk. Where it does not keep the journal, that goes with its store.
    pub fn new(keeps_journal: bool) -> Self {
        Self {
            tables: Arc::default(),
            number: 0,
            files: Files::default(),
            keeps_journal,
            damaged: BTreeSet::new(),
            room_bytes: None,
            losses: Losses::default(),
            is_flipped: false,
            is_side_flipped: false,
            followed: Some(0),
            is_tail_lost: false,
            marks_due: None,
        }
    }

    /// Does one operation. Where there is no room a write is torn, and a change is not made.
    pub fn carry_out(&mut self, op: Op) -> Result<(), DiskError> {
        match op {
            Op::Create(file) => self.files.create(&file),
            Op::Write { file, at, bytes } => {
                let room = self.take_room(bytes.len() as u64);
                let room = room.unwrap_or_else(|room| usize::try_from(room).unwrap_or(bytes.len()));
                self.files.write(&file, at, &bytes[..room]);
                if room < bytes.len() {
                    self.files.cut_short(&file);
                    return Err(DiskError::Full);
                }
            }
            Op::Sync(file) => self.files.sync(&file),
            Op::Rename { from, to } => {
                self.files.rename(&from, &to);
                if to == JOURNAL {
                    // It begins with what the store has.
                    self.followed = Some(self.journal_bytes());
                }
            }
            Op::Copy { from, to } => self.files.copy(&from, &to),
            Op::Remove(file) => self.files.remove(&file),
            Op::SyncNames => self.files.sync_names(),
            Op::Apply { number, writes } => return self.apply(number, writes),
        }
        Ok(())
    }

    /// Does a part of an operation, because the process ends in the middle of it. Tells of a change of
    /// the store whether it was made.
    pub fn carry_out_partly(&mut self, op: Op, random: &mut Stream) -> Option<bool> {
        match op {
            Op::Write { file, at, bytes } => {
                let written = random.index(bytes.len() + 1);
                self.files.write(&file, at, &bytes[..written]);
                self.files.cut_short(&file);
                None
            }
            op => {
                let is_change = matches!(op, Op::Apply { .. });
                let is_done = random.below(2) == 1 && self.carry_out(op).is_ok();
                is_change.then_some(is_done)
            }
        }
    }

    /// The machine loses its power: what was not synced is gone, or a part of it.
    pub fn lose_power(&mut self, random: &mut Stream) -> bool {
        self.files.lose_power(random)
    }

    fn apply(&mut self, number: u64, writes: Vec<Write>) -> Result<(), DiskError> {
        assert!(number > self.number, "changes are numbered upwards");
        let bytes = |write: &Write| {
            let value = write.value.as_ref().map_or(0, Vec::len);
            (write.key.len() + value) as u64 + ROW_OVERHEAD_BYTES
        };
        let needed = writes.iter().map(bytes).sum();
        self.take_room(needed).map_err(|_| DiskError::Full)?;
        self.number = number;
        self.followed = Some(self.journal_bytes());
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

    /// What a file holds.
    pub fn read(&self, file: &FileName) -> FileRead {
        self.files.read(file)
    }

    /// Whether there is such a file.
    pub fn is_there(&self, file: &FileName) -> bool {
        self.files.is_there(file)
    }

    /// Bytes of the journal, without its older part.
    pub fn journal_bytes(&self) -> u64 {
        self.files.length(&JOURNAL)
    }

    /// The state in the side file, if it is a good one.
    pub fn side(&self) -> Option<SideState> {
        match self.files.read(&SIDE) {
            FileRead::Bytes(bytes) => SideState::from_bytes(&bytes).ok(),
            _ => None,
        }
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

    /// What a journal is begun anew with that `held` so much: the rows as they stand here, and the latest marks.
    pub fn newest(&self, mut held: Vec<Write>) -> Vec<Write> {
        for write in &mut held {
            if let Ok(Some(value)) = self.get(write.table, &write.key) {
                write.value = Some(value.to_vec());
            }
        }
        let marks = self.tables.get(&Table::Jobs).into_iter().flatten();
        held.extend(
            marks.map(|(key, value)| Write::set(Table::Jobs, key.to_bytes(), value.clone())),
        );
        held
    }

    /// Opens the store as a starting node does: a damaged one is set aside.
    pub fn open(&mut self) -> StoreState {
        if !self.damaged.is_empty() {
            self.lose_store();
            self.losses.set_aside += 1;
        }
        self.is_tail_lost |= self.is_damaged_behind_the_store();
        let lineage = self.get(Table::Meta, LINEAGE_KEY);
        StoreState::new(lineage.expect("nothing is damaged"), self.number)
    }

    /// A start has come to its end: what it could not bring back is lost.
    pub fn opened(&mut self) {
        if let Some(due) = self.marks_due.take() {
            let marks = self.tables.get(&Table::Jobs);
            let mark = |key: &RowKey| JobMark::from_bytes(marks?.get(key)?);
            // A backup may have an older one, of when the job ran.
            let is_back = |(key, had): (&RowKey, &Vec<u8>)| {
                let both = JobMark::from_bytes(had).zip(mark(key));
                both.is_some_and(|(had, has)| {
                    has.charged_until >= had.charged_until
                        && has.ended >= had.ended
                        && has.corrected >= had.corrected
                })
            };
            let are_back = due.iter().all(is_back);
            self.losses.journals += u32::from(self.is_flipped);
            self.losses.marks += u32::from(!are_back);
        } else {
            self.losses.journals += u32::from(self.is_tail_lost);
        }
        self.is_tail_lost = false;
        self.is_flipped = false;
    }

    /// Whether what only the journal has may be damaged. One bit of its head can be told from the others.
    fn is_damaged_behind_the_store(&self) -> bool {
        let Some(followed) = self.followed else {
            return self.is_flipped;
        };
        let flipped = self.files.flipped(&JOURNAL);
        let of_head = flipped.iter().filter(|at| **at < JOURNAL_HEAD_BYTES);
        let is_headless = of_head.count() > 1 && followed < self.journal_bytes();
        is_headless
            || flipped
                .iter()
                .any(|at| *at as u64 >= followed.max(JOURNAL_HEAD_BYTES as u64))
    }

    /// Whether the journal is damaged where no crash can have cut it short.
    pub fn is_journal_damaged(&self) -> bool {
        self.files.is_damaged_within(&JOURNAL)
    }

    /// The operator puts a damaged side file aside.
    pub fn put_side_aside(&mut self) {
        self.remove_durably(&[SIDE]);
        self.losses.sides += u32::from(self.is_side_flipped);
        self.losses.half_sides += u32::from(!self.is_side_flipped);
        self.is_side_flipped = false;
    }

    /// The operator puts a journal aside that cannot be read.
    pub fn put_journal_aside(&mut self) {
        self.is_tail_lost |= self.followed != Some(self.journal_bytes());
        self.remove_durably(&JOURNALS);
        self.is_flipped = true;
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
        self.losses.set_aside
    }

    /// What starts have found to be lost.
    pub fn losses(&self) -> Losses {
        self.losses
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

    /// Flips a bit of each mark of a job that has ended. False where there is none.
    pub fn flip_marks(&mut self) -> bool {
        let has_ended = |mark: &[u8]| JobMark::from_bytes(mark).is_some_and(|mark| mark.ended);
        let marks = self.tables.get(&Table::Jobs).into_iter().flatten();
        let ended = marks.filter(|(_, mark)| has_ended(mark));
        let ended: Vec<_> = ended
            .map(|(key, _)| (Table::Jobs, key.to_bytes()))
            .collect();
        self.damaged.extend(ended.iter().cloned());
        !ended.is_empty()
    }

    /// Lets go of the marks of jobs that are charged up to some moment before this one.
    pub fn forget_marks(&mut self, before: WallTime) {
        let is_past =
            |mark: &[u8]| JobMark::from_bytes(mark).is_some_and(|mark| mark.charged_until < before);
        let marks = self.tables.get(&Table::Jobs).into_iter().flatten();
        let past = marks.filter(|(_, mark)| is_past(mark));
        let past: Vec<RowKey> = past.map(|(key, _)| key.clone()).collect();
        if !past.is_empty()
            && let Some(marks) = Arc::make_mut(&mut self.tables).get_mut(&Table::Jobs)
        {
            past.iter().for_each(|key| drop(marks.remove(key)));
        }
    }

    /// Flips a bit of a file. False where it holds none.
    pub fn flip_bit_of(&mut self, file: &FileName, random: &mut Stream) -> bool {
        let is_flipped = self.files.flip_bit(file, random);
        self.is_flipped |= is_flipped && JOURNALS.contains(file);
        self.is_side_flipped |= is_flipped && *file == SIDE;
        is_flipped
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

    /// Everything in the store is gone, and the files beside it too unless it `keeps_side`.
    pub fn wipe(&mut self, keeps_side: bool) {
        self.lose_store();
        if !keeps_side {
            self.files = Files::default();
            self.is_flipped = false;
            self.is_side_flipped = false;
            self.marks_due = None;
        }
    }

    /// A backup.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            tables: Arc::clone(&self.tables),
            number: self.number,
            files: self.files.clone(),
            is_flipped: self.is_flipped,
            is_side_flipped: self.is_side_flipped,
            followed: self.followed,
        }
    }

    /// Puts a backup in the place of the store, and of the files beside it unless it `keeps_side`.
    pub fn restore(&mut self, backup: &Snapshot, keeps_side: bool) {
        self.lose_store();
        self.tables = Arc::clone(&backup.tables);
        self.number = backup.number;
        // A journal that stays goes on from any earlier store; one that goes with its store comes with it, too.
        self.followed = None;
        if keeps_side && !self.keeps_journal {
            for file in &JOURNALS {
                if let FileRead::Bytes(bytes) = backup.files.read(file) {
                    self.files.create(file);
                    self.files.write(file, 0, &bytes);
                    self.files.sync(file);
                }
            }
            self.files.sync_names();
            self.is_flipped |= backup.is_flipped;
        }
        if !keeps_side {
            self.followed = backup.followed;
            self.files = backup.files.clone();
            self.is_flipped = backup.is_flipped;
            self.is_side_flipped = backup.is_side_flipped;
            self.marks_due = None;
        }
    }

    /// The store is gone, and where the disk does not keep it the journal, too.
    fn lose_store(&mut self) {
        let marks = self.tables.get(&Table::Jobs).into_iter().flatten();
        let due = self.marks_due.get_or_insert_default();
        // What is put back and lost again before a start has come to its end may be older.
        for (key, mark) in marks {
            due.entry(key.clone()).or_insert_with(|| mark.clone());
        }
        self.tables = Arc::default();
        self.number = 0;
        self.damaged.clear();
        if !self.keeps_journal {
            self.remove_durably(&JOURNALS);
            self.marks_due = None;
        }
    }

    fn remove_durably(&mut self, files: &[FileName]) {
        files.iter().for_each(|file| self.files.remove(file));
        self.files.sync_names();
    }

    /// Takes room, all that is needed; else what there is.
    fn take_room(&mut self, needed: u64) -> Result<usize, u64> {
        let bytes = usize::try_from(needed).unwrap_or(usize::MAX);
        let Some(room) = &mut self.room_bytes else {
            return Ok(bytes);
        };
        match room.checked_sub(needed) {
            Some(left) => {
                *room = left;
                Ok(bytes)
            }
            None => Err(std::mem::take(room)),
        }
    }
}

#[cfg(test)]
mod tests;
