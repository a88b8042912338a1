//! What the node's store is compared with: a bare file, bare sled, bare SQLite, on the same disk.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use rusqlite::Connection;

/// A file that is appended to, each time to the disk.
pub(crate) struct Bare(File);

impl Bare {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(File::create(folder.join("bare")).expect("made"))
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("written");
        self.0.sync_data().expect("synced");
    }
}

/// One row of what a record comes to: the hash that names its job, and a mark.
pub(crate) fn row(number: u64) -> ([u8; 32], [u8; 24]) {
    let key = std::array::from_fn(|at| {
        let mixed = number
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(u32::try_from(at).expect("small") * 7);
        mixed.to_le_bytes()[at % 8]
    });
    (key, [7; 24])
}

/// sled, synced by a handle of our own, as its flush does not sync.
pub(crate) struct Sled {
    tree: sled::Db,
    data: File,
}

impl Sled {
    pub(crate) fn new(folder: &Path) -> Self {
        let folder = folder.join("sled");
        let tree = sled::Config::new()
            .path(&folder)
            .flush_every_ms(None)
            .open()
            .expect("opens");
        let data = File::open(folder.join("db")).expect("there");
        Self { tree, data }
    }

    pub(crate) fn write(&self, numbers: std::ops::Range<u64>) {
        let mut batch = sled::Batch::default();
        for (key, value) in numbers.map(row) {
            batch.insert(&key, &value);
        }
        self.tree.apply_batch(batch).expect("applied");
        self.tree.flush().expect("flushed");
        self.data.sync_data().expect("synced");
    }
}

/// SQLite, durable at each commit.
pub(crate) struct Sqlite(Connection);

impl Sqlite {
    pub(crate) fn new(folder: &Path) -> Self {
        let connection = Connection::open(folder.join("bare.sqlite")).expect("opens");
        let made = connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE marks (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;",
        );
        made.expect("made");
        Self(connection)
    }

    pub(crate) fn write(&mut self, numbers: std::ops::Range<u64>) {
        let transaction = self.0.transaction().expect("begins");
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO marks VALUES (?1, ?2)")
                .expect("prepared");
            for (key, value) in numbers.map(row) {
                insert
                    .execute((key.as_slice(), value.as_slice()))
                    .expect("inserted");
            }
        }
        transaction.commit().expect("committed");
    }
}

/// CPU seconds that this process has taken.
pub(crate) fn own_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .expect("a name")
        .1
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}
