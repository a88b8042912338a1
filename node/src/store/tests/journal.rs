//! The journal: what is left of it after a crash at any byte, and what it gives a store that was
//! lost. Files are cut, flipped and swapped by hand; real kills are in the tests of whole nodes.

use super::super::journal::{End, Found, JournalFiles, open_frame};
use super::*;

const LINEAGE: u64 = 77;

fn count(user: &[u8], amount: u8) -> Write {
    put(Table::Ledger, user, &[amount; 48])
}

fn mark(job: &[u8]) -> Write {
    put(Table::Jobs, job, &[1; 9])
}

fn delete(table: Table, key: &[u8]) -> Write {
    Write::delete(table, key.to_vec())
}

/// Three rounds: a counter and a mark each, and one that deletes.
fn rounds() -> Vec<Vec<Write>> {
    vec![
        vec![count(b"ann", 1), mark(b"1")],
        vec![count(b"bob", 2), delete(Table::Ledger, b"ann"), mark(b"2")],
        vec![count(b"bob", 3), mark(b"3")],
    ]
}

fn read(path: &Path) -> Found {
    JournalFiles::new(path).read().expect("is read")
}

/// What was found, as the rounds that went in.
fn written(found: &Found) -> Vec<Vec<Write>> {
    let rounds = found.rounds.iter().map(|round| round.writes.clone());
    rounds.collect()
}

/// A journal of those rounds; where each of its frames ends.
fn journal(path: &Path) -> Vec<usize> {
    let mut journal = JournalFiles::new(path)
        .begin(LINEAGE, 0, &[])
        .expect("begins");
    let length = || usize::try_from(fs::metadata(path).expect("there").len()).expect("small");
    let mut ends = vec![length()];
    for (number, writes) in (1..).zip(rounds()) {
        let frame = open_frame(&writes);
        journal.append(frame, number).expect("appended");
        ends.push(length());
    }
    ends
}

#[test]
fn a_tail_that_is_torn_at_any_byte_costs_its_own_round_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("site.journal");
    let ends = journal(&path);
    let good = fs::read(&path).expect("there");
    for cut in ends[0]..=good.len() {
        // Cut short, or as long as it should be and never filled.
        for filled in [cut, good.len()] {
            let mut bytes = good[..cut].to_vec();
            bytes.resize(filled, 0);
            fs::write(&path, &bytes).expect("written");
            let found = read(&path);
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(written(&found), rounds()[..whole], "cut at {cut}");
            let is_whole = ends[whole] == filled;
            let end = if is_whole { End::Whole } else { End::Torn };
            assert_eq!(found.end, Some(end), "cut at {cut}");
            assert_eq!((found.lineage, found.damage), (Some(LINEAGE), None));
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_what_is_before_it_is_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("site.journal");
    let ends = journal(&path);
    let good = fs::read(&path).expect("there");
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).expect("written");
            let Ok(found) = JournalFiles::new(&path).read() else {
                assert!(at < ends[0], "only a head can be of a newer release");
                continue;
            };
            if at < ends[0] {
                assert!(found.rounds.is_empty() && found.damage.is_some(), "at {at}");
                continue;
            }
            let whole = ends.iter().filter(|end| **end <= at).count() - 1;
            assert_eq!(written(&found), rounds()[..whole], "flipped at {at}");
            // In the last round it could as well have been torn.
            let end = if whole == 2 { End::Torn } else { End::Damaged };
            assert_eq!(found.end, Some(end), "flipped at {at}");
            assert_eq!(found.damage.is_some(), end == End::Damaged);
        }
    }
}

#[test]
fn a_crash_in_the_middle_of_a_rotation_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let names = ["site.journal", "site.journal.old", "site.journal.new"];
    let [path, old, new] = names.map(|name| dir.path().join(name));
    journal(&path);
    let before = fs::read(&path).expect("there");
    let held = [count(b"bob", 3)];
    let files = JournalFiles::new(&path);
    let found = files.read().expect("is read");
    let mut journal = files.go_on(LINEAGE, found.good_bytes).expect("opens");
    journal.rotate(3, &held).expect("rotated");
    journal
        .append(open_frame(&[mark(b"4")]), 4)
        .expect("appended");
    let after = fs::read(&path).expect("there");
    let mut all = rounds();
    all.extend([held.to_vec(), vec![mark(b"4")]]);
    assert_eq!(written(&read(&path)), all);

    // While the new one is written it is no part of the log, whole or not.
    fs::remove_file(&old).expect("was there");
    fs::write(&path, &before).expect("written");
    for length in 0..=after.len() {
        fs::write(&new, &after[..length]).expect("written");
        assert_eq!(written(&read(&path)), rounds(), "{length} bytes");
        assert!(!new.exists());
    }
    // Between the renames there is none of the current name.
    fs::rename(&path, &old).expect("renamed");
    fs::write(&new, &after).expect("written");
    assert_eq!(written(&read(&path)), all);
    assert!(path.exists() && !new.exists());
    // A second rotation drops what the first one had moved away.
    let files = JournalFiles::new(&path);
    let mut journal = files.go_on(LINEAGE, after.len() as u64).expect("opens");
    journal.rotate(4, &held).expect("rotated");
    assert_eq!(
        written(&read(&path)),
        [&all[3..], &[held.to_vec()]].concat()
    );
}

#[test]
fn the_older_part_gives_its_marks_only_if_it_is_damaged() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("site.journal");
    let ends = journal(&path);
    let found = read(&path);
    let mut journal = JournalFiles::new(&path)
        .go_on(LINEAGE, found.good_bytes)
        .expect("opens");
    journal.rotate(3, &[count(b"bob", 3)]).expect("rotated");
    let old = dir.path().join("site.journal.old");
    let mut bytes = fs::read(&old).expect("there");
    bytes[ends[2] + 1] ^= 1;
    fs::write(&old, bytes).expect("written");
    let found = read(&path);
    assert_eq!(
        written(&found),
        [vec![mark(b"1")], vec![mark(b"2")], vec![count(b"bob", 3)]]
    );
    assert!(found.damage.expect("said").contains("site.journal.old"));
}

/// A data folder with three rounds in store and journal, and other rows in the store alone.
fn data_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = ready(dir.path());
    for mut writes in rounds() {
        writes.push(put(Table::Batches, b"a batch", &[5; 100]));
        store.write(writes).expect("written");
    }
    store
        .write(vec![put(Table::Seals, b"a seal", &[6; 100])])
        .expect("written");
    dir
}

fn opened(data_dir: &Path) -> OpenedStore {
    OpenedStore::open(data_dir, NOW, LINEAGE).expect("opens")
}

fn ready(data_dir: &Path) -> JournaledStore {
    opened(data_dir).ready(Vec::new).expect("is ready")
}

/// That the store has what the three rounds come to.
fn assert_all_there(store: &Store) {
    let ledger = vec![(b"bob".to_vec(), vec![3; 48])];
    assert_eq!(all(store, Table::Ledger), ledger);
    assert_eq!(all(store, Table::Jobs).len(), 3);
}

#[test]
fn a_whole_store_takes_nothing_from_its_journal() {
    let dir = data_folder();
    for _ in 0..2 {
        let opened = opened(dir.path());
        assert_eq!((opened.rows_replayed, &opened.journal_damage), (0, &None));
        assert_all_there(opened.store());
        opened.ready(|| unreachable!("it is whole")).expect("ready");
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
            let opened = OpenedStore::open(dir.path(), NOW, 78).expect("opens");
            assert!(opened.rows_replayed > 0, "{name}");
            assert_all_there(opened.store());
            assert!(all(opened.store(), Table::Batches).is_empty(), "{name}");
        }
        let opened = OpenedStore::open(dir.path(), NOW, 79).expect("opens");
        let held = vec![count(b"bob", 3)];
        let mut store = opened.ready(|| held).expect("is ready");
        store.write(vec![mark(b"4")]).expect("written");
        drop(store);
        // And once more, with the journal that was begun for the store in between.
        fs::remove_dir_all(dir.path().join("store")).expect("removed");
        let opened = OpenedStore::open(dir.path(), NOW, 80).expect("opens");
        assert_eq!(all(opened.store(), Table::Jobs).len(), 4, "{name}");
        assert_eq!(all(opened.store(), Table::Ledger).len(), 1, "{name}");
    }
}

#[test]
fn a_store_that_is_older_than_its_journal_is_brought_up_to_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("store");
    let mut store = ready(dir.path());
    store.write(rounds().swap_remove(0)).expect("written");
    drop(store);
    let older = copy_of(&path, "older");
    let mut store = ready(dir.path());
    rounds()
        .into_iter()
        .skip(1)
        .for_each(|round| store.write(round).expect("written"));
    drop(store);
    fs::remove_dir_all(&path).expect("removed");
    fs::rename(older, &path).expect("renamed");
    let opened = opened(dir.path());
    assert_eq!(
        opened.rows_replayed, 4,
        "a deletion, a counter and two marks"
    );
    assert_all_there(opened.store());
}

#[test]
fn a_torn_tail_is_cut_off_and_the_site_says_what_it_holds() {
    let dir = data_folder();
    let path = dir.path().join("site.journal");
    let bytes = fs::read(&path).expect("there");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
    let opened = opened(dir.path());
    assert_eq!(opened.rows_replayed, 0);
    let mut store = opened.ready(|| vec![count(b"bob", 3)]).expect("ready");
    store.write(vec![mark(b"4")]).expect("written");
    drop(store);
    fs::remove_dir_all(dir.path().join("store")).expect("removed");
    let opened = OpenedStore::open(dir.path(), NOW, 78).expect("opens");
    assert_eq!(
        all(opened.store(), Table::Ledger),
        [(b"bob".to_vec(), vec![3; 48])]
    );
}

#[test]
fn a_journal_that_is_damaged_or_unreadable_does_not_stop_a_whole_store() {
    let dir = data_folder();
    let path = dir.path().join("site.journal");
    let aside = dir.path().join("site.journal.damaged-1700000000");
    let mut bytes = fs::read(&path).expect("there");
    bytes[60] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let opened_once = opened(dir.path());
    let damage = opened_once.journal_damage.clone().expect("said");
    assert!(
        damage.contains("site.journal is damaged at byte"),
        "{damage}"
    );
    assert_all_there(opened_once.store());
    drop(opened_once.ready(Vec::new).expect("is ready"));
    assert_eq!(fs::read(&aside).expect("kept"), bytes);
    assert_eq!(opened(dir.path()).journal_damage, None);

    fs::remove_file(&aside).expect("was there");
    fs::remove_file(&path).expect("was there");
    fs::create_dir(&path).expect("made");
    let again = opened(dir.path());
    assert!(
        again
            .journal_damage
            .as_ref()
            .expect("said")
            .contains("set aside")
    );
    assert_all_there(again.store());
    drop(again.ready(Vec::new).expect("is ready"));
    assert_eq!(opened(dir.path()).journal_damage, None);
}

#[test]
fn a_new_store_does_not_start_beside_a_journal_that_it_cannot_read() {
    let dir = data_folder();
    let path = dir.path().join("site.journal");
    fs::remove_dir_all(dir.path().join("store")).expect("removed");
    let mut bytes = fs::read(&path).expect("there");
    let version = bytes.iter().position(|byte| *byte == b'1').expect("there");
    bytes[version] = b'2';
    fs::write(&path, &bytes).expect("written");
    for _ in 0..2 {
        let error = OpenedStore::open(dir.path(), NOW, 78).expect_err("is newer");
        let words = error.to_string();
        assert!(words.contains("site.journal is of version 2"), "{words}");
        assert!(words.contains("move it away"), "{words}");
    }
    fs::rename(&path, dir.path().join("away")).expect("renamed");
    drop(ready(dir.path()));
}

#[test]
fn a_journal_that_fails_fails_the_store_before_anything_is_applied() {
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    let full = || StoreError::Io {
        doing: "writing",
        path: "site.journal".into(),
        source: std::io::ErrorKind::StorageFull.into(),
    };
    store
        .write_behind(vec![mark(b"1")], |_| Err(full()))
        .expect_err("the disk is full");
    assert!(store.is_failed() && all(&store, Table::Jobs).is_empty());
    let next = store.write(vec![mark(b"1")]);
    assert!(matches!(next, Err(StoreError::Failed(_))));
}

#[test]
fn a_journal_that_has_grown_begins_anew_with_what_nobody_else_holds() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = ready(dir.path());
    let mut written: u16 = 0;
    while !store.is_journal_full() {
        let jobs = (0..500_u16).map(|job| {
            mark(
                &[written.to_be_bytes(), job.to_be_bytes()]
                    .concat()
                    .repeat(8),
            )
        });
        let counters = (0..200_u8).map(|user| put(Table::Ledger, &[user; 80], &[1; 1_000]));
        store
            .write(jobs.chain(counters).collect())
            .expect("written");
        written += 1;
    }
    store.rotate_journal(&[count(b"bob", 3)]).expect("rotated");
    assert!(!store.is_journal_full());
    let length = fs::metadata(dir.path().join("site.journal"))
        .expect("there")
        .len();
    assert!(length < 1_000, "{length} bytes");
    drop(store);
    fs::remove_dir_all(dir.path().join("store")).expect("removed");
    let opened = OpenedStore::open(dir.path(), NOW, 78).expect("opens");
    let jobs = all(opened.store(), Table::Jobs).len();
    assert_eq!(jobs, usize::from(written) * 500);
    let bob = opened.store().get(Table::Ledger, b"bob").expect("reads");
    assert_eq!(bob, Some(vec![3; 48]));
}
