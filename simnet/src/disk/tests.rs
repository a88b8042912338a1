//! The disk keeps what was synced, and loses what a disk may lose.

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

fn mark(job: u8, charged_until: u64) -> Write {
    let mark = JobMark::at(WallTime(charged_until));
    Write::set(Table::Jobs, vec![job], mark.to_bytes())
}

fn apply(disk: &mut Disk, number: u64, writes: Vec<Write>) -> Result<(), DiskError> {
    disk.carry_out(Op::Apply { number, writes })
}

#[test]
fn a_full_disk_takes_all_of_a_change_or_nothing_and_tears_a_write() {
    let mut disk = Disk::new(true);
    disk.fill(20);
    let both = vec![set(Table::Ledger, 1, 1), set(Table::Jobs, 1, 1)];
    assert_eq!(apply(&mut disk, 1, both.clone()), Err(DiskError::Full));
    assert_eq!(disk.get(Table::Ledger, &[1]), Ok(None));
    disk.make_room();
    assert_eq!(apply(&mut disk, 1, both), Ok(()));
    assert_eq!(disk.count_rows(Table::Jobs), 1);
    disk.fill(3);
    disk.carry_out(Op::Create(JOURNAL)).expect("no bytes yet");
    let (file, at, bytes) = (JOURNAL, 0, vec![7; 5]);
    let torn = disk.carry_out(Op::Write { file, at, bytes });
    assert_eq!((torn, disk.journal_bytes()), (Err(DiskError::Full), 3));
}

#[test]
fn power_takes_what_was_not_synced_and_nothing_else() {
    let mut random = Seed(1).stream("power");
    let mut lengths = BTreeSet::new();
    for _ in 0..200 {
        let mut disk = Disk::new(true);
        let write = |at, byte| Op::Write {
            file: JOURNAL,
            at,
            bytes: vec![byte; 4],
        };
        let to = JOURNAL_OLD;
        let from = JOURNAL;
        for op in [
            Op::Create(JOURNAL),
            write(0, 1),
            Op::Sync(JOURNAL),
            Op::SyncNames,
        ] {
            disk.carry_out(op).expect("room");
        }
        assert!(!disk.lose_power(&mut random), "all is synced");
        disk.carry_out(write(4, 2)).expect("room");
        disk.carry_out(Op::Rename { from, to }).expect("room");
        assert!(disk.lose_power(&mut random));
        let name = [JOURNAL, JOURNAL_OLD]
            .into_iter()
            .find(|name| disk.is_there(name));
        let FileRead::Bytes(bytes) = disk.read(&name.expect("one of them")) else {
            panic!("it is there");
        };
        assert_eq!(bytes[..4], [1; 4]);
        let is_written = |byte: &&u8| **byte == 2;
        lengths.insert(bytes[4..].iter().take_while(is_written).count());
    }
    assert_eq!(lengths.len(), 5, "every part of it was left once");
}

#[test]
fn a_damaged_store_is_set_aside() {
    let mut disk = Disk::new(true);
    apply(&mut disk, 1, vec![set(Table::Parts, 7, 1)]).expect("there is room");
    assert_eq!(disk.open().number, 1);
    assert!(disk.flip_bit(&mut Seed(1).stream("flip")));
    assert_eq!(disk.open().number, 0);
    assert_eq!((disk.set_aside(), disk.count_rows(Table::Parts)), (1, 0));
}

#[test]
fn a_mark_that_is_not_back_is_lost_though_another_one_has_come_back() {
    let mut disk = Disk::new(true);
    let marks = vec![mark(1, 10), mark(2, 10)];
    apply(&mut disk, 1, marks.clone()).expect("there is room");
    disk.wipe(true);
    apply(&mut disk, 1, marks.clone()).expect("there is room");
    disk.opened();
    assert_eq!(disk.losses().marks, 0);
    disk.wipe(true);
    let others = vec![mark(2, 10), mark(3, 10)];
    apply(&mut disk, 1, others).expect("there is room");
    disk.opened();
    assert_eq!(disk.losses().marks, 1);
}

/// Seeds 170007196 and 170008526: a job was suspended for so long that no journal had its mark any more.
#[test]
fn a_mark_that_a_backup_has_as_it_was_before_is_lost() {
    let mut disk = Disk::new(true);
    apply(&mut disk, 1, vec![mark(1, 10)]).expect("there is room");
    let backup = disk.snapshot();
    apply(&mut disk, 2, vec![mark(1, 30)]).expect("there is room");
    disk.restore(&backup, true);
    apply(&mut disk, 3, vec![mark(1, 30)]).expect("as the journal has it");
    disk.opened();
    assert_eq!(disk.losses().marks, 0);
    disk.restore(&backup, true);
    disk.opened();
    assert_eq!(disk.losses().marks, 1);
}

#[test]
fn a_backup_is_what_was_then() {
    let mut disk = Disk::new(true);
    apply(&mut disk, 1, vec![set(Table::Meta, 1, 1)]).expect("room");
    let backup = disk.snapshot();
    disk.carry_out(Op::Create(SIDE)).expect("room");
    apply(&mut disk, 2, vec![set(Table::Meta, 1, 2)]).expect("room");
    disk.restore(&backup, true);
    assert_eq!(disk.get(Table::Meta, &[1]), Ok(Some([1].as_slice())));
    assert!(disk.is_there(&SIDE) && disk.open().number == 1);
    disk.restore(&backup, false);
    assert!(!disk.is_there(&SIDE));
}
