//! Journal and store after a crash at any operation and any byte, and after the loss of either.
//!
//! The disk here does what it is told and stops where a test says so; one that loses what was not
//! synced is in the simulator.

use std::collections::BTreeMap;

use fairmesh_model::WallTime;
use fairmesh_round::{
    FileName, FileRead, JOURNAL, JOURNAL_OLD, LINEAGE_KEY, Op, Opening, Round, Step, StoreState,
    Unopened, checksum, tidy,
};
use fairmesh_site::{Effect, Table, Write};

const NOW: WallTime = WallTime::from_unix_secs(1_700_000_000);

/// Small enough that a few rounds fill the journal.
const BYTES_MAX: u64 = 600;

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

#[derive(Debug, Clone, Default)]
struct Disk {
    files: BTreeMap<FileName, Vec<u8>>,
    /// The store's.
    rows: Rows,
    number: u64,
    /// What the site goes by: all that was acknowledged, wherever it lies.
    said: Rows,
}

impl Disk {
    fn carry_out(&mut self, op: &Op) {
        match op {
            Op::Create(file) => drop(self.files.insert(file.clone(), Vec::new())),
            Op::Write { file, at, bytes } => {
                let content = self.files.get_mut(file).expect("it was made");
                let end = usize::try_from(*at).expect("small") + bytes.len();
                content.resize(content.len().max(end), 0);
                content[end - bytes.len()..end].copy_from_slice(bytes);
            }
            Op::Rename { from, to } => {
                let content = self.files.remove(from).expect("there");
                self.files.insert(to.clone(), content);
            }
            Op::Copy { from, to } => {
                let content = self.files.get(from).cloned();
                self.files
                    .extend(content.map(|content| (to.clone(), content)));
            }
            Op::Remove(file) => drop(self.files.remove(file)),
            Op::Sync(_) | Op::SyncNames => {}
            Op::Apply { number, writes } => {
                assert!(*number > self.number, "batches are numbered upwards");
                self.number = *number;
                put(&mut self.rows, writes);
            }
        }
    }

    fn carry_out_all(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.carry_out(op));
    }

    fn lose_store(&mut self) {
        self.rows.clear();
        self.number = 0;
    }

    fn read(&self, file: &FileName) -> FileRead {
        let content = self.files.get(file).cloned();
        content.map_or(FileRead::Absent, FileRead::Bytes)
    }

    /// The first part of a start.
    fn open(&mut self, lineage: u64) -> Result<(Opening, Vec<Op>), Unopened> {
        let ops = tidy(|file| self.files.contains_key(file));
        self.carry_out_all(&ops);
        let of_store = self.rows.get(&(Table::Meta, LINEAGE_KEY.to_vec()));
        let state = StoreState::new(of_store.map(Vec::as_slice), self.number);
        let (old, current) = (self.read(&JOURNAL_OLD), self.read(&JOURNAL));
        Opening::new(state, lineage, &old, &current)
    }

    /// A whole start, of a site that has published nothing.
    fn start(&mut self, lineage: u64) -> Round {
        let (opening, ops) = self.open(lineage).expect("it can be read");
        self.carry_out_all(&ops);
        self.said = self.rows.clone();
        let (round, ops) = opening.ready(|held| self.begun_with(held), BYTES_MAX, NOW);
        self.carry_out_all(&ops);
        round
    }

    /// What a journal begins with that held so much: the marks as the store has them, and the site's counters.
    fn begun_with(&self, held: Vec<Write>) -> Vec<Write> {
        let marks = self
            .rows
            .iter()
            .filter(|((table, _), _)| *table == Table::Jobs);
        let marks =
            marks.map(|((table, key), value)| Write::set(*table, key.clone(), value.clone()));
        [held, marks.collect(), self.held_alone()].concat()
    }

    /// What a site holds that has come up from the store and gone on since.
    fn held_alone(&self) -> Vec<Write> {
        let own = self
            .said
            .iter()
            .filter(|((table, _), _)| matches!(table, Table::Ledger | Table::Reach));
        own.map(|((table, key), value)| Write::set(*table, key.clone(), value.clone()))
            .collect()
    }

    /// What the store has of what must not be lost: all of it, when a start has come to its end.
    fn own(&self) -> Rows {
        own_of(&self.rows)
    }

    /// What must not be lost.
    fn said(&self) -> Rows {
        own_of(&self.said)
    }
}

fn own_of(rows: &Rows) -> Rows {
    let of = |table| matches!(table, Table::Ledger | Table::Jobs);
    let own = rows.iter().filter(|((table, _), _)| of(*table));
    own.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn put(rows: &mut Rows, writes: &[Write]) {
    for Write { table, key, value } in writes.iter().cloned() {
        match value {
            Some(value) => rows.insert((table, key), value),
            None => rows.remove(&(table, key)),
        };
    }
}

fn count(user: &[u8], amount: u8) -> Write {
    Write::set(Table::Ledger, user.to_vec(), [amount; 48])
}

fn mark(job: &[u8]) -> Write {
    Write::set(Table::Jobs, job.to_vec(), [1; 9])
}

/// A counter that grows, its job's mark, and now and then one that goes, or only a peer's batch.
fn writes_of(number: u8) -> Vec<Write> {
    let batch = Write::set(Table::Parts, vec![number], [5; 100]);
    let bob = Write::delete(Table::Ledger, b"bob".to_vec());
    match number % 4 {
        0 => vec![count(b"ann", number), mark(&[number]), batch, bob],
        1 => vec![
            count(b"ann", number),
            mark(&[number]),
            count(b"bob", number),
        ],
        2 => vec![batch],
        _ => vec![count(b"eve", number), mark(&[number])],
    }
}

/// The operations of one round.
fn ops_of(round: &mut Round, disk: &Disk, writes: Vec<Write>) -> Vec<Op> {
    let mut after = Disk {
        said: disk.said.clone(),
        ..Disk::default()
    };
    put(&mut after.said, &writes);
    round.push_effects(vec![Effect::Persist(writes)]);
    let steps = round.finish(|| after.held_alone());
    let disk_op = |step| match step {
        Step::Disk(op) => op,
        Step::Do(effect) => panic!("nobody asked for {effect:?}"),
    };
    steps.into_iter().map(disk_op).collect()
}

fn write(round: &mut Round, disk: &mut Disk, writes: Vec<Write>) {
    let ops = ops_of(round, disk, writes.clone());
    disk.carry_out_all(&ops);
    put(&mut disk.said, &writes);
}

/// What a crash may leave of an operation that was under way.
fn parts_of(op: &Op) -> Vec<Op> {
    let Op::Write { file, at, bytes } = op else {
        return Vec::new();
    };
    let cut = |length: usize| (file.clone(), *at, bytes[..length].to_vec());
    // As far as it was written, and filled with zeros up to where it should end.
    let filled = |length: usize| {
        let mut part = bytes[..length].to_vec();
        part.resize(bytes.len(), 0);
        (file.clone(), *at, part)
    };
    (0..bytes.len())
        .flat_map(|length| [cut(length), filled(length)])
        .map(|(file, at, bytes)| Op::Write { file, at, bytes })
        .collect()
}

/// Whether the counters are those of `all`, and no mark is another's. Marks of long ago may be gone.
fn is_part(own: &Rows, all: &Rows) -> bool {
    let counters = |rows: &Rows| {
        let mut rows = rows.clone();
        rows.retain(|(table, _), _| *table == Table::Ledger);
        rows
    };
    counters(own) == counters(all) && own.iter().all(|(key, value)| all.get(key) == Some(value))
}

/// That a start on what a crash has left comes to `before` or `after`, with and without its store, and
/// once more after that.
fn assert_survives(left: &Disk, before: &Rows, after: &Rows, what: &str) {
    for loses_store in [false, true] {
        let mut disk = left.clone();
        let own = if loses_store {
            disk.lose_store();
            disk.start(8);
            disk.own()
        } else {
            disk.start(8);
            let own = disk.own();
            assert!(own == *before || own == *after, "{what}: {own:?}");
            own
        };
        let is_either = is_part(&own, before) || is_part(&own, after);
        assert!(is_either, "{what}, lost {loses_store}: {own:?}");
        let mut round = disk.start(9);
        write(
            &mut round,
            &mut disk,
            vec![count(b"eve", 200), mark(b"next")],
        );
        let next = disk.said();
        for lineage in [10, 11] {
            disk.lose_store();
            disk.start(lineage);
            let own = disk.own();
            assert!(
                is_part(&own, &next),
                "{what}, lost {loses_store}, lost again"
            );
            assert!(own.contains_key(&(Table::Jobs, b"next".to_vec())), "{what}");
        }
    }
}

#[test]
fn a_crash_at_any_operation_and_any_byte_costs_no_round_but_its_own() {
    let mut disk = Disk::default();
    let mut round = disk.start(7);
    let mut rotations = 0;
    for number in 0..12 {
        let before = disk.said();
        let ops = ops_of(&mut round, &disk, writes_of(number));
        let mut said = disk.said.clone();
        put(&mut said, &writes_of(number));
        let after = own_of(&said);
        for (at, op) in ops.iter().enumerate() {
            for part in parts_of(op) {
                let mut left = disk.clone();
                left.carry_out(&part);
                assert_survives(
                    &left,
                    &before,
                    &after,
                    &format!("round {number}, in {op:?}"),
                );
            }
            disk.carry_out(op);
            let what = format!("round {number}, behind its operation {at}");
            assert_survives(&disk, &before, &after, &what);
            rotations += usize::from(matches!(op, Op::Rename { .. }));
        }
        disk.said = said;
        let mut started = disk.clone();
        started.start(8);
        assert_eq!(started.own(), after);
    }
    assert!(rotations >= 2, "the journal was begun anew");
}

#[test]
fn a_start_that_is_cut_off_anywhere_comes_to_the_same() {
    (4..9).for_each(start_behind);
}

fn start_behind(rounds: u8) {
    let mut disk = Disk::default();
    let mut round = disk.start(7);
    // What the site went by behind each round, from the last on that the store has followed.
    let mut said = vec![disk.said()];
    for number in 0..rounds {
        write(&mut round, &mut disk, writes_of(number));
        said.push(disk.said());
    }
    let own = disk.said();
    let followed = said.iter().rposition(|said| *said == disk.own());
    let followed = said.split_off(followed.expect("it is as behind a round"));
    let torn = {
        let mut disk = disk.clone();
        disk.files
            .get_mut(&JOURNAL)
            .expect("there")
            .extend([0xf5; 9]);
        disk
    };
    let mut flipped = disk.clone();
    let content = flipped.files.get_mut(&JOURNAL).expect("there");
    *content.last_mut().expect("there") ^= 1;
    let mut lost = disk.clone();
    lost.lose_store();
    let mut damaged = disk.clone();
    damaged.files.get_mut(&JOURNAL).expect("there")[60] ^= 1;
    for (name, first) in [
        ("whole", disk),
        ("torn", torn),
        ("flipped", flipped),
        ("lost", lost),
        ("damaged", damaged),
    ] {
        let mut disk = first.clone();
        let (opening, mut ops) = disk.open(8).expect("it can be read");
        disk.carry_out_all(&ops);
        disk.said = disk.rows.clone();
        ops.extend(
            opening
                .ready(|held| disk.begun_with(held), BYTES_MAX, NOW)
                .1,
        );
        for cut_off in 0..=ops.len() {
            let mut disk = first.clone();
            disk.carry_out_all(&ops[..cut_off]);
            disk.start(9);
            let is_bad = ["flipped", "damaged"].contains(&name);
            let what = format!("{name}, cut off behind {cut_off}");
            let started = disk.own();
            // With what is bad of the journal goes what the store had not followed, whole rounds from the end.
            assert!(name == "flipped" || started == own, "{what}");
            assert!(followed.contains(&started), "{what}: {started:?}");
            // Marks may be gone with what is bad of the journal; counters never are.
            disk.lose_store();
            disk.start(10);
            assert!(is_part(&disk.own(), &started), "{what}, and lost");
            assert!(is_bad || disk.own() == own, "{what}, and lost");
        }
    }
}

#[test]
fn a_store_that_is_brought_up_from_far_behind_is_not_taken_back_later() {
    let mut disk = Disk::default();
    let mut round = disk.start(7);
    write(&mut round, &mut disk, writes_of(0));
    let older = disk.clone();
    (1..6).for_each(|number| write(&mut round, &mut disk, writes_of(number)));
    (disk.rows, disk.number) = (older.rows, older.number);
    let mut round = disk.start(8);
    for amount in 100..104 {
        write(&mut round, &mut disk, vec![count(b"ann", amount)]);
        let own = disk.said();
        disk.start(9);
        assert_eq!(
            disk.own(),
            own,
            "a row of an earlier day stands in its place"
        );
    }
}

/// Until when jobs had ended that counted, and those among them whose marks are lost.
fn reach_of(disk: &Disk) -> (u64, u64) {
    let row = &disk.rows[&(Table::Reach, Vec::new())];
    let at = |from: usize| u64::from_be_bytes(row[from..from + 8].try_into().expect("eight"));
    (at(0), at(16))
}

#[test]
fn a_start_says_of_which_jobs_neither_store_nor_journal_has_marks() {
    let mut disk = Disk::default();
    let mut round = disk.start(7);
    let mut stores = vec![Disk::default()];
    let mut lost_most = vec![0; 2];
    for number in 1..40 {
        let reach = [u64::from(number), 0, 0, 0].map(u64::to_be_bytes).concat();
        let reach = Write::set(Table::Reach, Vec::new(), reach);
        let writes = vec![count(b"ann", number), mark(&[number]), reach];
        write(&mut round, &mut disk, writes);
        for (store, most) in stores.iter().chain([&disk]).zip(&mut lost_most) {
            let mut left = disk.clone();
            (left.rows, left.number) = (store.rows.clone(), store.number);
            left.start(8);
            let (counted, lost) = reach_of(&left);
            let has = |job: &u8| left.rows.contains_key(&(Table::Jobs, vec![*job]));
            let lacks = (1..=number).rfind(|job| !has(job)).unwrap_or(0);
            assert_eq!((counted, lost), (number.into(), lacks.into()));
            *most = lost;
        }
        if number == 15 {
            stores.push(disk.clone());
            lost_most.push(0);
        }
    }
    assert!(
        lost_most[0] > 20 && lost_most[1] == lost_most[0],
        "both were lost"
    );
    assert_eq!(lost_most[2], 0, "its own store has all");
}

#[test]
fn a_flipped_bit_anywhere_costs_a_store_nothing_that_it_has_followed() {
    (0..3).for_each(flip_behind);
}

/// The store has followed three rounds, and none of so many more.
fn flip_behind(more: usize) {
    let mut disk = Disk::default();
    let mut round = disk.start(7);
    (0..3).for_each(|number| write(&mut round, &mut disk, writes_of(number)));
    // What the site goes by in front of each byte of the journal, and in front of those that the store has followed.
    let mut before = vec![(disk.files[&JOURNAL].len(), disk.own())];
    for number in (3..).step_by(4).take(more) {
        write(&mut round, &mut disk, writes_of(number));
        before.push((disk.files[&JOURNAL].len(), disk.said()));
    }
    assert_eq!(disk.own() == disk.said(), more == 0);
    for at in 0..disk.files[&JOURNAL].len() {
        let left = match before.iter().rfind(|(from, _)| *from <= at) {
            Some((_, left)) => left.clone(),
            None => disk.said(),
        };
        for bit in 0..8 {
            let mut flipped = disk.clone();
            flipped.files.get_mut(&JOURNAL).expect("there")[at] ^= 1 << bit;
            let mut without = flipped.clone();
            let mut round = flipped.start(8);
            assert_eq!(flipped.own(), left, "byte {at}, {more} behind");
            let mut gone = flipped.clone();
            gone.lose_store();
            gone.start(9);
            assert_eq!(gone.own(), left, "byte {at}, {more} behind, and lost");
            write(&mut round, &mut flipped, vec![count(b"eve", 200)]);
            // What is before the bad byte is used where the store is gone, and nothing is made up.
            without.lose_store();
            let Ok((_, ops)) = without.open(8) else {
                continue;
            };
            without.carry_out_all(&ops);
            for (key, value) in without
                .own()
                .iter()
                .filter(|((table, _), _)| *table == Table::Jobs)
            {
                assert_eq!(disk.said().get(key), Some(value), "byte {at}");
            }
        }
    }
}

#[test]
fn nothing_starts_beside_a_journal_of_which_it_cannot_tell_what_it_has() {
    for other in [b'1', b'3'] {
        let mut disk = Disk::default();
        let mut round = disk.start(7);
        write(&mut round, &mut disk, writes_of(1));
        let content = disk.files.get_mut(&JOURNAL).expect("there");
        let title = b"fairmesh journal ";
        content[title.len()] = other;
        let signed = title.len() + 2 + 8;
        let sum = checksum(title, &content[..signed]);
        content[signed..signed + sum.len()].copy_from_slice(&sum);
        for _ in 0..2 {
            let words = disk.open(8).expect_err("is another").to_string();
            let named = format!("site.journal is of version {}", char::from(other));
            assert!(words.contains(&named), "{words}");
            assert!(words.contains("move it away"), "{words}");
            disk.lose_store();
        }
    }
}
