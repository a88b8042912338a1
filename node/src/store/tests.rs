use std::fs;
use std::path::{Path, PathBuf};

use fairmesh_model::{ContentHash, WallTime};
use fairmesh_site::JobMark;

use super::*;

mod crash;
mod journal;

pub(super) const NOW: WallTime = WallTime::from_unix_secs(1_700_000_000);

pub(super) fn put(table: Table, key: &[u8], value: &[u8]) -> Write {
    Write {
        table,
        key: key.to_vec(),
        value: Some(value.to_vec()),
    }
}

/// A mark of a job of that name, which is charged up to some moment.
pub(super) fn mark_at(job: &[u8], charged_until: u64) -> Write {
    let mark = JobMark::at(WallTime(charged_until));
    let key = ContentHash::of(job);
    put(Table::Jobs, key.as_bytes(), &mark.to_bytes())
}

pub(super) fn mark(job: &[u8]) -> Write {
    mark_at(job, 1)
}

/// Up to when a job is charged.
pub(super) fn charged(store: &Store, job: &[u8]) -> Option<u64> {
    let key = ContentHash::of(job);
    let value = store.get(Table::Jobs, key.as_bytes()).expect("reads")?;
    JobMark::from_bytes(&value).map(|mark| mark.charged_until.0)
}

pub(super) fn open(dir: &Path) -> (Store, Recovery) {
    Store::open(dir, NOW).expect("the store opens")
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = dir.path().join("store");
    (dir, store)
}

fn all(store: &Store, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    store
        .scan(table)
        .collect::<Result<_, _>>()
        .expect("nothing is damaged")
}

/// A few hundred records, some of them in chunks, so that the log has more than one segment.
fn fill(dir: &Path) {
    let (store, _) = open(dir);
    for batch in 0..40_u8 {
        let writes = (0..20_u8)
            .map(|n| put(Table::Holds, &[batch, n], &vec![n; 2_000]))
            .collect();
        store.write(writes).expect("written");
        store
            .write(vec![put(Table::Parts, &[batch], &vec![batch; 20_000])])
            .expect("written");
    }
}

/// Whether all that `fill` has written is there and as it was.
fn is_full(store: &Store) -> bool {
    let small =
        (0..40_u8).flat_map(|batch| (0..20_u8).map(move |n| (vec![batch, n], vec![n; 2_000])));
    let large = (0..40_u8).map(|batch| (vec![batch], vec![batch; 20_000]));
    all(store, Table::Holds).into_iter().eq(small) && all(store, Table::Parts).into_iter().eq(large)
}

#[test]
fn tables_are_apart_and_batches_apply_in_order() {
    let (_dir, path) = folder();
    let (store, recovery) = open(&path);
    assert!(recovery.is_new && recovery.set_aside.is_none());
    let gone = Write {
        table: Table::Meta,
        key: b"b".to_vec(),
        value: None,
    };
    let writes = vec![
        put(Table::Meta, b"a", b"1"),
        put(Table::Meta, b"b", b"2"),
        mark_at(b"a", 3),
        put(Table::Holds, b"a", b"3"),
        put(Table::Meta, b"a", b"4"),
        gone,
    ];
    store.write(writes).expect("written");
    assert_eq!(all(&store, Table::Meta), [(b"a".to_vec(), b"4".to_vec())]);
    assert_eq!(
        store.get(Table::Holds, b"a").expect("reads"),
        Some(b"3".to_vec())
    );
    assert_eq!(store.get(Table::Holds, b"b").expect("reads"), None);
    assert_eq!(
        [b"a", b"b"].map(|job| charged(&store, job)),
        [Some(3), None]
    );
    drop(store);
    let (store, recovery) = open(&path);
    assert_eq!(recovery, Recovery::default());
    assert_eq!(all(&store, Table::Meta).len(), 1);
    // A start reads all but the marks of jobs, and says how far it is.
    let read = Table::ALL.into_iter().filter(|table| *table != Table::Jobs);
    let read = read.map(|table| all(&store, table).len()).sum::<usize>();
    assert_eq!(store.records_at_start(), read);
}

#[test]
fn large_values_are_kept_without_blob_files() {
    let (_dir, path) = folder();
    let values = [400_000, 4_097, 4_096, 0, 1_000_000].map(|length| vec![7_u8; length]);
    let (store, _) = open(&path);
    for value in &values {
        store
            .write(vec![
                put(Table::Parts, b"s", value),
                put(Table::Parts, b"t", value),
            ])
            .expect("written");
        assert_eq!(
            store.get(Table::Parts, b"s").expect("reads").as_ref(),
            Some(value)
        );
    }
    drop(store);
    let (store, _) = open(&path);
    assert_eq!(all(&store, Table::Parts).len(), 2);
    assert_eq!(
        store.get(Table::Parts, b"t").expect("reads").as_ref(),
        Some(&values[4])
    );
    let forget = [b"s", b"t"].map(|key| Write {
        table: Table::Parts,
        key: key.to_vec(),
        value: None,
    });
    store.write(forget.to_vec()).expect("written");
    drop(store);
    assert_eq!(fs::read_dir(path.join("blobs")).expect("there").count(), 0);
    let raw = super::recovery::open_sled(&path).expect("opens");
    assert_eq!(
        raw.len(),
        1,
        "chunks go with their record; the number of the batch stays"
    );
}

#[test]
fn many_long_keys_make_no_blob_files() {
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    for batch in 0..20_u32 {
        let record = |n: u32| {
            // Differing at the front, so that sled's prefix compression finds nothing.
            let mut key = (batch * 500 + n)
                .wrapping_mul(2_654_435_761)
                .to_be_bytes()
                .to_vec();
            key.resize(KEY_BYTES_MAX, 1);
            put(Table::Holds, &key, &[1; 4_096])
        };
        store
            .write((0..500).map(record).collect())
            .expect("written");
    }
    assert_eq!(store.scan(Table::Holds).count(), 10_000);
    drop(store);
    assert_eq!(fs::read_dir(path.join("blobs")).expect("there").count(), 0);
}

#[test]
fn what_is_too_long_is_refused_before_anything_is_written() {
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    let long_key = put(Table::Meta, &[0; KEY_BYTES_MAX + 1], b"");
    let long_value = put(Table::Meta, b"v", &vec![0; VALUE_BYTES_MAX + 1]);
    let good = put(Table::Meta, b"a", b"1");
    assert!(matches!(
        store.write(vec![good.clone(), long_key]),
        Err(StoreError::KeyTooLong(_))
    ));
    assert!(matches!(
        store.write(vec![good.clone(), long_value]),
        Err(StoreError::ValueTooLong(_))
    ));
    assert!(all(&store, Table::Meta).is_empty());
    store
        .write(vec![good])
        .expect("the store is not broken by it");
}

#[test]
fn two_nodes_cannot_share_a_store() {
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    assert!(matches!(
        Store::open(&path, NOW),
        Err(StoreError::Locked(_))
    ));
    store
        .write(vec![put(Table::Meta, b"a", b"1")])
        .expect("not disturbed");
    drop(store);
    open(&path);
}

#[test]
fn half_written_snapshots_are_removed() {
    let (_dir, path) = folder();
    fill(&path);
    for content in [&b""[..], &[1; 40]] {
        let leftover = path.join("snap.FFFFFFFFFFFFFF00.generating");
        fs::write(&leftover, content).expect("planted");
        assert!(sled::open(&path).is_err(), "sled still has the fault");
        let (store, recovery) = open(&path);
        assert_eq!(recovery.leftovers_removed, [leftover]);
        assert!(recovery.set_aside.is_none() && !recovery.is_new);
        assert_eq!(all(&store, Table::Holds).len(), 800);
    }
}

/// The folder once more, to be damaged.
fn copy_of(path: &Path, name: &str) -> PathBuf {
    let copy = path.with_file_name(name);
    fs::create_dir_all(copy.join("blobs")).expect("made");
    for entry in fs::read_dir(path).expect("there").flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
        }
    }
    copy
}

#[test]
fn a_truncated_store_is_set_aside() {
    let (dir, path) = folder();
    fill(&path);
    // What every store of these records must have room for: all that `fill` has written.
    let least = 800 * 2_000 + 40 * 20_000;
    for kib in [4, 64, 600, 1_000, 3_000] {
        let name = format!("cut-{kib}");
        let copy = copy_of(&path, &name);
        let data = fs::OpenOptions::new()
            .write(true)
            .open(copy.join("db"))
            .expect("there");
        let length = data.metadata().expect("there").len();
        let left = length.saturating_sub(kib << 10);
        data.set_len(left).expect("cut");
        let (store, recovery) = open(&copy);
        let aside = dir.path().join(format!("{name}.damaged-1700000000"));
        if recovery.set_aside.is_none() && left >= least {
            // sled does not always end its file with what it wrote last: nothing of ours was cut.
            assert!(is_full(&store), "{kib} KiB");
            continue;
        }
        assert_eq!(recovery.set_aside.as_ref(), Some(&aside), "{kib} KiB");
        assert!(recovery.is_new && recovery.damage.is_some());
        assert!(aside.join("db").exists(), "kept for whoever wants to look");
        assert!(all(&store, Table::Holds).is_empty());
        store
            .write(vec![put(Table::Meta, b"a", b"1")])
            .expect("the new one works");
        drop(store);
        let (store, recovery) = open(&copy);
        assert_eq!(recovery, Recovery::default());
        assert_eq!(all(&store, Table::Meta).len(), 1);
    }
}

#[test]
fn flipped_bits_are_never_served_nor_lost_without_a_word() {
    let (_dir, path) = folder();
    fill(&path);
    let good = fs::read(path.join("db")).expect("there");
    let step = good.len() / 24;
    for at in (step / 2..good.len()).step_by(step) {
        let copy = copy_of(&path, &format!("flipped-{at}"));
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(copy.join("db"), &bad).expect("written");
        let (store, recovery) = open(&copy);
        let records: Vec<_> = store.scan(Table::Holds).collect();
        assert!(
            recovery.set_aside.is_some() || records.len() == 800,
            "at {at}: {}",
            records.len()
        );
        for (key, value) in records.into_iter().flatten() {
            assert_eq!(value, vec![key[1]; 2_000], "bit flipped at {at}");
        }
    }
}

#[test]
fn damaged_records_are_named_and_not_served() {
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    let writes = [b"a", b"b"].map(|key| put(Table::Ledger, key, b"value"));
    store.write(writes.to_vec()).expect("written");
    store
        .write(vec![put(Table::Parts, b"s", &vec![1; 10_000])])
        .expect("written");
    drop(store);
    let raw = super::recovery::open_sled(&path).expect("opens");
    let mut value = raw.get(b"\x07b").expect("reads").expect("there").to_vec();
    *value.last_mut().expect("not empty") ^= 1;
    raw.insert(b"\x07b", value).expect("written");
    let (chunk, _) = raw
        .scan_prefix([0xff])
        .next()
        .expect("a chunk")
        .expect("reads");
    raw.remove(chunk).expect("removed");
    drop(raw);

    let (store, _) = open(&path);
    let error = store.get(Table::Ledger, b"b").expect_err("damaged");
    assert!(
        error
            .to_string()
            .contains("record 62 of table Ledger is damaged"),
        "{error}"
    );
    assert!(store.get(Table::Parts, b"s").is_err(), "a missing chunk");
    let scanned: Vec<bool> = store
        .scan(Table::Ledger)
        .map(|record| record.is_ok())
        .collect();
    assert_eq!(scanned, [true, false]);
    assert_eq!(store.damaged_reads(), 3);
    store
        .write(vec![put(Table::Ledger, b"b", b"again")])
        .expect("written");
    assert_eq!(
        store.get(Table::Ledger, b"b").expect("reads"),
        Some(b"again".to_vec())
    );
}

/// Puts records into sled's tree, as an earlier release did with marks of jobs.
fn put_into_sled(dir: &Path, writes: &[Write]) {
    let raw = super::recovery::open_sled(dir).expect("opens");
    let (mut tally, _) = tally::Tally::check(&raw).expect("reads").expect("whole");
    let number = tally.number;
    let batch = tally.batch(&raw, number, writes.iter(), None);
    raw.apply_batch(batch.expect("reads")).expect("written");
}

#[test]
fn marks_that_an_earlier_release_has_stored_are_moved_and_a_damaged_one_is_of_a_job_that_has_ended()
{
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    store.write(vec![mark_at(b"c", 7)]).expect("written");
    drop(store);
    let marks = [mark_at(b"a", 3), mark_at(b"b", 4)];
    put_into_sled(&path, &marks);
    let raw = super::recovery::open_sled(&path).expect("opens");
    let damaged = record::disk_key(Table::Jobs, &marks[1].key);
    let mut value = raw.get(&damaged).expect("reads").expect("there").to_vec();
    *value.last_mut().expect("not empty") ^= 1;
    raw.insert(&damaged, value).expect("written");
    drop(raw);
    for _ in 0..2 {
        let (store, recovery) = open(&path);
        assert_eq!(recovery, Recovery::default());
        assert_eq!(store.number(), 1, "the journal goes on from here");
        assert_eq!(charged(&store, b"a"), Some(3));
        assert_eq!(charged(&store, b"b"), Some(NOW.0));
        let of_b = store.get(Table::Jobs, &marks[1].key).expect("reads");
        let of_b = JobMark::from_bytes(&of_b.expect("there")).expect("a mark");
        assert!(of_b.ended);
        assert_eq!(store.marks(), 3);
    }
    let raw = super::recovery::open_sled(&path).expect("opens");
    assert_eq!(raw.scan_prefix([Table::Jobs as u8]).count(), 0);
}

#[test]
fn a_record_that_sled_lost_or_took_back_sets_the_store_aside() {
    let (_dir, path) = folder();
    let (store, _) = open(&path);
    for value in [b"1", b"2"] {
        let writes = [b"a", b"b"].map(|key| put(Table::Ledger, key, value));
        store.write(writes.to_vec()).expect("written");
    }
    drop(store);
    type Loss = fn(&sled::Db) -> sled::Result<()>;
    let losses: [(&str, Loss); 4] = [
        ("gone", |raw| raw.remove(b"\x07a").map(|_| ())),
        ("another's value", |raw| {
            let other = raw.get(b"\x07a")?.expect("there");
            raw.insert(b"\x07b", other).map(|_| ())
        }),
        ("its old value", |raw| {
            let old = record::disk_value(b"\x07a", b"1");
            raw.insert(b"\x07a", old).map(|_| ())
        }),
        ("no tally", |raw| raw.remove(tally::TALLY_KEY).map(|_| ())),
    ];
    for (name, lose) in losses {
        let copy = copy_of(&path, name);
        lose(&super::recovery::open_sled(&copy).expect("opens")).expect("done");
        let (_, recovery) = open(&copy);
        assert!(recovery.set_aside.is_some(), "{name}");
    }
    assert_eq!(open(&path).1, Recovery::default());
}

#[test]
fn whatever_sleds_own_configuration_says_a_store_comes_up() {
    let (_dir, path) = folder();
    let record = put(Table::Meta, b"a", b"1");
    open(&path).0.write(vec![record]).expect("written");
    let good = fs::read(path.join("conf")).expect("there");
    // Each fifth bit: over the bytes, all of their bits.
    for bit in (0..good.len() * 8).step_by(5) {
        let copy = copy_of(&path, &format!("conf-{bit}"));
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(copy.join("conf"), bytes).expect("written");
        let (store, recovery) = open(&copy);
        let is_there = all(&store, Table::Meta).len() == 1;
        assert!(is_there || recovery.set_aside.is_some(), "bit {bit}");
    }
    fs::write(path.join("conf"), [0xff; 70]).expect("written");
    let (store, recovery) = open(&path);
    assert_eq!(
        (all(&store, Table::Meta).len(), recovery.set_aside),
        (1, None)
    );
}
