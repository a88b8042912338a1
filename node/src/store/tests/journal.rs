//! The whole folder: what its journal gives a store that was lost, on real files. Every byte at which
//! a crash may cut is tried in `fairmesh-round`; real kills are in the tests of whole nodes.

use std::collections::VecDeque;

use fairmesh_round::{JOURNAL_BYTES_MAX, LINEAGE_KEY, Op, Opening, Round, Step};
use fairmesh_site::Effect;

use super::*;

const LINEAGE: u64 = 77;

fn count(user: &[u8], amount: u8) -> Write {
    put(Table::Ledger, user, &[amount; 48])
}

/// Three rounds: a counter and a mark each, and one that deletes.
fn rounds() -> Vec<Vec<Write>> {
    let gone = Write::delete(Table::Ledger, b"ann".to_vec());
    vec![
        vec![count(b"ann", 1), mark(b"1")],
        vec![count(b"bob", 2), gone, mark(b"2")],
        vec![count(b"bob", 3), mark(b"3")],
    ]
}

/// A folder that is ready.
struct Ready {
    data: DataDir,
    round: Round,
}

impl Ready {
    fn write(&mut self, writes: Vec<Write>) {
        self.write_of(writes, Vec::new);
    }

    fn ops_of(&mut self, writes: Vec<Write>, rows: impl FnOnce() -> Vec<Write>) -> Vec<Op> {
        self.round.push_effects(vec![Effect::Persist(writes)]);
        let disk_op = |step| match step {
            Step::Disk(op) => op,
            Step::Do(effect) => panic!("nobody asked for {effect:?}"),
        };
        self.round.finish(rows).into_iter().map(disk_op).collect()
    }

    /// True if the journal was begun anew with `rows`.
    fn write_of(&mut self, writes: Vec<Write>, rows: impl FnOnce() -> Vec<Write>) -> bool {
        let ops = self.ops_of(writes, rows);
        let is_begun = ops.iter().any(|op| matches!(op, Op::Rename { .. }));
        self.data.carry_out(&mut ops.into()).expect("written");
        is_begun
    }
}

/// A data folder with three rounds in store and journal, and other rows in the store alone.
fn data_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = ready(dir.path());
    for mut writes in rounds() {
        writes.push(put(Table::Heads, b"a head", &[5; 100]));
        folder.write(writes);
    }
    folder.write(vec![put(Table::Parts, b"a part", &[6; 100])]);
    dir
}

#[test]
fn a_store_of_the_first_edition_is_refused_by_name_though_nothing_beside_it_tells() {
    let dir = tempfile::tempdir().expect("a folder");
    let store_dir = dir.path().join("store");
    let lineage = put(Table::Meta, LINEAGE_KEY, &LINEAGE.to_be_bytes());
    let rows = vec![lineage, count(b"ann", 1)];
    let (store, _) = Store::open(&store_dir, NOW).expect("opens");
    store.write(rows).expect("written");
    drop(store);
    let refused = DataDir::open(Files::new(dir.path()), NOW, 78).expect_err("another form");
    let words = refused.to_string();
    assert!(words.contains(&store_dir.display().to_string()), "{words}");
    assert!(words.contains("first edition"), "{words}");
    let (store, _) = Store::open(&store_dir, NOW).expect("opens");
    assert!(store.get(Table::Ledger, b"ann").expect("whole").is_some());
    // One of this edition says so from its first change on.
    opened(data_folder().path(), LINEAGE);
}

fn opened(data_dir: &Path, lineage: u64) -> (DataDir, Opening) {
    let (data, _, opening) = DataDir::open(Files::new(data_dir), NOW, lineage).expect("opens");
    (data, opening)
}

fn ready_with(data_dir: &Path, lineage: u64, rows: Vec<Write>) -> Ready {
    let (mut data, opening) = opened(data_dir, lineage);
    let begun_with = |held| [data.store().expect("open").newest(held), rows].concat();
    let (round, ops) = opening.ready(begun_with, JOURNAL_BYTES_MAX, NOW);
    data.carry_out(&mut ops.into()).expect("is ready");
    Ready { data, round }
}

fn ready(data_dir: &Path) -> Ready {
    ready_with(data_dir, LINEAGE, Vec::new())
}

/// That the store has what the three rounds come to.
fn assert_all_there(data: &DataDir) {
    let ledger = vec![(b"bob".to_vec(), vec![3; 48])];
    assert_eq!(all(data.store().expect("open"), Table::Ledger), ledger);
    assert_eq!(data.store().expect("open").marks(), 3);
}

#[test]
fn a_whole_store_takes_nothing_from_its_journal() {
    let dir = data_folder();
    for _ in 0..2 {
        let (data, opening) = opened(dir.path(), LINEAGE);
        assert_eq!((opening.rows_replayed, &opening.journal_damage), (0, &None));
        assert_all_there(&data);
        let (_, ops) = opening.ready(|_| unreachable!("it is whole"), JOURNAL_BYTES_MAX, NOW);
        assert_eq!(ops, []);
    }
}

#[test]
fn a_store_that_is_lost_gets_its_own_counters_back() {
    type Loss = fn(&Path);
    let losses: [(&str, Loss); 4] = [
        ("removed", |store| {
            fs::remove_dir_all(store).expect("removed");
        }),
        ("emptied", |store| {
            fs::remove_dir_all(store).expect("removed");
            fs::create_dir(store).expect("made");
        }),
        ("cut", |store| {
            let data = fs::File::options().write(true).open(store.join("db"));
            let data = data.expect("there");
            let length = data.metadata().expect("there").len();
            data.set_len(length / 2).expect("cut");
        }),
        ("flipped", |store| {
            let mut bytes = fs::read(store.join("db")).expect("there");
            bytes
                .iter_mut()
                .skip(600)
                .step_by(50)
                .for_each(|byte| *byte ^= 0x10);
            fs::write(store.join("db"), bytes).expect("written");
        }),
    ];
    for (name, lose) in losses {
        let dir = data_folder();
        lose(&dir.path().join("store"));
        // A crash right behind the opening, before the journal is ready, changes nothing.
        for _ in 0..2 {
            let (data, opening) = opened(dir.path(), 78);
            assert!(opening.rows_replayed > 0, "{name}");
            assert_all_there(&data);
            assert!(
                all(data.store().expect("open"), Table::Heads).is_empty(),
                "{name}"
            );
        }
        ready_with(dir.path(), 79, vec![count(b"bob", 3)]).write(vec![mark(b"4")]);
        // And once more, with the journal that was begun for the store in between.
        fs::remove_dir_all(dir.path().join("store")).expect("removed");
        let (data, _) = opened(dir.path(), 80);
        assert_eq!(data.store().expect("open").marks(), 4, "{name}");
        assert_eq!(
            all(data.store().expect("open"), Table::Ledger).len(),
            1,
            "{name}"
        );
    }
}

#[test]
fn a_store_that_is_older_than_its_journal_is_brought_up_to_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("store");
    let mut first = rounds().swap_remove(0);
    first.push(put(Table::Heads, b"a head", &[5; 100]));
    ready(dir.path()).write(first);
    let older = copy_of(&path, "older");
    let mut folder = ready(dir.path());
    rounds()
        .into_iter()
        .skip(1)
        .for_each(|round| folder.write(round));
    drop(folder);
    fs::remove_dir_all(&path).expect("removed");
    fs::rename(older, &path).expect("renamed");
    let (data, opening) = opened(dir.path(), LINEAGE);
    let rows = opening.rows_replayed;
    assert_eq!(rows, 4, "a deletion, a counter and two marks");
    assert_all_there(&data);
}

#[test]
fn a_journal_with_a_torn_tail_is_replaced_by_what_the_site_holds() {
    let dir = data_folder();
    let path = dir.path().join("site.journal");
    let bytes = fs::read(&path).expect("there");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
    let mut folder = ready_with(dir.path(), LINEAGE, vec![count(b"bob", 3)]);
    folder.write(vec![mark(b"4")]);
    drop(folder);
    fs::remove_dir_all(dir.path().join("store")).expect("removed");
    let (data, opening) = opened(dir.path(), 78);
    assert_eq!(opening.journal_damage, None);
    let ledger = all(data.store().expect("open"), Table::Ledger);
    assert_eq!(ledger, [(b"bob".to_vec(), vec![3; 48])]);
}

#[test]
fn a_journal_that_is_damaged_stops_no_store_and_one_that_is_unreadable_any() {
    let dir = data_folder();
    let path = dir.path().join("site.journal");
    let aside = dir.path().join("site.journal.damaged-1700000000");
    let mut bytes = fs::read(&path).expect("there");
    bytes[60] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let damage = opened(dir.path(), LINEAGE).1.journal_damage;
    let damage = damage.expect("said");
    assert!(
        damage.contains("site.journal is damaged at byte"),
        "{damage}"
    );
    assert_all_there(&ready(dir.path()).data);
    assert_eq!(fs::read(&aside).expect("kept"), bytes);
    assert_eq!(opened(dir.path(), LINEAGE).1.journal_damage, None);

    // Nobody knows what one that cannot be read has that the store has not.
    fs::remove_file(&path).expect("was there");
    fs::create_dir(&path).expect("made");
    let refused = DataDir::open(Files::new(dir.path()), NOW, LINEAGE).expect_err("it is unread");
    let words = refused.to_string();
    assert!(words.contains("site.journal: "), "{words}");
    assert!(words.contains("move it away"), "{words}");
    fs::remove_dir(&path).expect("moved away");
    assert_all_there(&ready(dir.path()).data);
}

#[test]
fn nothing_is_applied_behind_a_journal_that_fails() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = ready(dir.path());
    fs::remove_file(dir.path().join("site.journal")).expect("there");
    let head = put(Table::Heads, b"a head", &[5; 100]);
    let mut ops = folder.ops_of(vec![mark(b"1"), head], Vec::new).into();
    let refused = folder
        .data
        .carry_out(&mut ops)
        .expect_err("it cannot be written");
    assert!(refused.to_string().contains("site.journal"), "{refused}");
    assert!(folder.data.store().expect("open").marks() == 0);
    assert_eq!(ops.len(), 3, "all of it can be tried again");
}

#[test]
fn what_could_not_be_synced_is_written_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = ready(dir.path());
    let path = dir.path().join("site.journal");
    // This takes all that is written, and cannot be synced.
    fs::rename(&path, dir.path().join("whole")).expect("there");
    std::os::unix::fs::symlink("/dev/null", &path).expect("made");
    let mut ops: VecDeque<Op> = folder.ops_of(vec![mark(b"1")], Vec::new).into();
    let refused = folder.data.carry_out(&mut ops).expect_err("not synced");
    assert!(refused.to_string().contains("syncing"), "{refused}");
    let left = (ops.len(), ops.front());
    assert!(
        matches!(left, (2, Some(Op::Write { .. }))),
        "it may be gone: {ops:?}"
    );
}

#[test]
fn the_store_follows_the_journal_in_bulk() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = ready(dir.path());
    for job in 0..100_u8 {
        let ops = folder.ops_of(vec![mark(&[job]), count(b"bob", job)], Vec::new);
        assert!(
            matches!(ops[..], [Op::Write { .. }, Op::Sync(_)]),
            "{ops:?}"
        );
        folder.data.carry_out(&mut ops.into()).expect("written");
    }
    assert!(folder.data.store().expect("open").marks() == 0);
    let (jobs, bob) = {
        // A start without a word of stopping, as after kill -9.
        drop(folder);
        let (data, opening) = opened(dir.path(), LINEAGE);
        assert_eq!(opening.rows_replayed, 101, "each once, as it stands");
        let store = data.store().expect("open");
        (store.marks(), all(store, Table::Ledger))
    };
    assert_eq!((jobs, bob), (100, vec![(b"bob".to_vec(), vec![99; 48])]));
    let mut folder = ready(dir.path());
    folder.write(vec![mark(b"next")]);
    folder.write(vec![put(Table::Heads, b"a head", &[5; 100])]);
    let jobs = folder.data.store().expect("open").marks();
    assert_eq!(jobs, 101, "with a row that the journal does not hold");
    folder.round.end_with_store();
    folder.write(vec![mark(b"last")]);
    assert_eq!(folder.data.store().expect("open").marks(), 102);
}

#[test]
fn a_journal_that_has_grown_begins_anew_with_what_nobody_else_holds() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = ready(dir.path());
    let mut written: u16 = 0;
    let mut is_begun = false;
    while !is_begun {
        let jobs = (0..500_u16).map(|job| {
            let key = [written.to_be_bytes(), job.to_be_bytes()].concat();
            mark(&key.repeat(8))
        });
        let counters = (0..200_u8).map(|user| put(Table::Ledger, &[user; 80], &[1; 1_000]));
        let writes = jobs.chain(counters).collect();
        is_begun = folder.write_of(writes, || vec![count(b"bob", 3)]);
        written += 1;
    }
    let length = fs::metadata(dir.path().join("site.journal")).expect("there");
    assert!(length.len() < 1_000, "{} bytes", length.len());
    drop(folder);
    fs::remove_dir_all(dir.path().join("store")).expect("removed");
    let (data, _) = opened(dir.path(), 78);
    let jobs = data.store().expect("open").marks();
    assert_eq!(jobs, usize::from(written) * 500);
    let bob = data
        .store()
        .expect("open")
        .get(Table::Ledger, b"bob")
        .expect("reads");
    assert_eq!(bob, Some(vec![3; 48]));
}

#[test]
fn a_store_that_is_lost_behind_a_flipped_bit_of_its_journal_gets_its_marks_back() {
    let bytes = fs::read(data_folder().path().join("site.journal")).expect("there");
    for at in (40..bytes.len()).step_by(7) {
        let dir = data_folder();
        let mut bytes = fs::read(dir.path().join("site.journal")).expect("there");
        bytes[at] ^= 1;
        fs::write(dir.path().join("site.journal"), bytes).expect("written");
        assert_all_there(&ready(dir.path()).data);
        fs::remove_dir_all(dir.path().join("store")).expect("removed");
        let (data, _) = opened(dir.path(), 78);
        assert_eq!(
            data.store().expect("open").marks(),
            3,
            "bit flipped at {at}"
        );
    }
}

#[test]
fn a_copy_of_a_folder_needs_room_for_what_is_copied_alone() {
    let dir = data_folder();
    let aside = fs::File::create(dir.path().join("records.sqlite.unreadable-1"));
    aside.expect("made").set_len(1 << 42).expect("sparse");
    let place = tempfile::tempdir().expect("a folder");
    let (data, ..) = DataDir::open_copy(dir.path(), place.path(), NOW, LINEAGE).expect("there is");
    assert_all_there(&data);
}
