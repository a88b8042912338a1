//! The store and its journal as one: what is written is in both.
//!
//! Invariant: the journal is never behind the store in own counters and job marks. A round is synced
//! in the journal before the store's batch is applied, so whatever a crash leaves, the store is
//! brought up to its journal at the next start, round by round, and never the other way about.
//!
//! Which rounds a store has is told by their number, and by the store's *lineage*: a number that it
//! was given when it was made. A store of another lineage (a new one, after the last one was lost)
//! takes all that the journal holds.
//!
//! Deliberately not here: which counters a new journal begins with; the site says that.

use std::collections::BTreeMap;
use std::path::Path;

use fairmesh_model::WallTime;

use super::journal::{End, Found, Journal, JournalFiles, is_empty, open_frame};
use super::{Recovery, Store, StoreError, Table, Write};

/// Key of the store's lineage among the facts about it.
const LINEAGE_KEY: &[u8] = b"lineage";

/// The store, as far as it can be brought without the site: its rows can be read.
#[derive(Debug)]
pub struct OpenedStore {
    store: Store,
    files: JournalFiles,
    lineage: u64,
    plan: Plan,
    now: WallTime,
    /// What was found, and what was done about it.
    pub recovery: Recovery,
    /// Rows of own counters and job marks that the store lacked and the journal had.
    pub rows_replayed: usize,
    /// What is wrong with the journal, if something is.
    pub journal_damage: Option<String>,
}

/// What becomes of the journal's file.
#[derive(Debug)]
enum Plan {
    /// It is whole.
    GoOn { good_bytes: u64 },
    /// Its end is torn.
    Cut { good_bytes: u64 },
    /// There is none, or not one that can be gone on with. `marks` are those that it held.
    Begin { marks: Vec<Write> },
}

/// The store with its journal.
#[derive(Debug)]
pub struct JournaledStore {
    store: Store,
    journal: Journal,
}

impl OpenedStore {
    /// Opens or starts the store in the folder `store` of `data_dir` and the journal beside it, and
    /// gives the store what only the journal has. A store that is made takes `lineage`, which no
    /// other may ever have had.
    pub fn open(data_dir: &Path, now: WallTime, lineage: u64) -> Result<Self, StoreError> {
        let (store, recovery) = Store::open(&data_dir.join("store"), now)?;
        let files = JournalFiles::new(&data_dir.join("site.journal"));
        let of_store = lineage_of(&store)?;
        let found = match files.read() {
            Ok(found) => found,
            // Nothing but what the store has, too, is lost with it.
            Err(error) if of_store.is_some() => {
                let aside = files.set_aside(now)?;
                Found {
                    damage: Some(format!("{error}; it was set aside as {}", aside.display())),
                    ..Found::default()
                }
            }
            Err(error) => return Err(StoreError::JournalUnreadable(Box::new(error))),
        };
        let is_same = of_store.is_some() && of_store == found.lineage;
        let lacking = lacking(&found, is_same.then(|| store.number()));
        let rows_replayed = lacking.len();
        bring_up(&store, lacking, of_store.is_none().then_some(lineage))?;
        Ok(Self {
            lineage: of_store.unwrap_or(lineage),
            plan: plan(&found, is_same),
            journal_damage: found.damage,
            store,
            files,
            now,
            recovery,
            rows_replayed,
        })
    }

    /// The store, to read from.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Makes the journal ready. `rows` are the counters that nobody but this site holds.
    pub fn ready(self, rows: impl FnOnce() -> Vec<Write>) -> Result<JournaledStore, StoreError> {
        let (files, number) = (self.files, self.store.number());
        let journal = match self.plan {
            Plan::GoOn { good_bytes } => files.go_on(self.lineage, good_bytes)?,
            Plan::Cut { good_bytes } => {
                // A round that was being written, or the last one damaged: the site tells.
                let mut journal = files.go_on(self.lineage, good_bytes)?;
                journal.append(open_frame(&rows()), number)?;
                journal
            }
            Plan::Begin { marks } => {
                if self.journal_damage.is_some() {
                    files.copy_aside(self.now)?;
                }
                files.begin(self.lineage, number, &[rows(), marks].concat())?
            }
        };
        Ok(JournaledStore {
            store: self.store,
            journal,
        })
    }
}

impl JournaledStore {
    /// Applies all of `writes`, in order, as one change. When this returns without an error they are
    /// on disk; on an error none was acknowledged, and no more are taken.
    pub fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        let own = |write: &&Write| matches!(write.table, Table::Ledger | Table::Jobs);
        let frame = open_frame(writes.iter().filter(own));
        if is_empty(&frame) {
            return self.store.write(writes);
        }
        let journal = &mut self.journal;
        self.store
            .write_behind(writes, |number| journal.append(frame, number))
    }

    /// Whether the journal has grown so much that it should be begun anew.
    pub fn is_journal_full(&self) -> bool {
        self.journal.is_full()
    }

    /// Begins the journal anew. `rows` are the counters that nobody but this site holds, as of the
    /// last write.
    pub fn rotate_journal(&mut self, rows: &[Write]) -> Result<(), StoreError> {
        self.journal.rotate(self.store.number(), rows)
    }

    /// The value under a key. A damaged one is an error, never a value.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(table, key)
    }
}

fn lineage_of(store: &Store) -> Result<Option<u64>, StoreError> {
    let value = store.get(Table::Meta, LINEAGE_KEY)?;
    Ok(value
        .and_then(|value| value.try_into().ok())
        .map(u64::from_be_bytes))
}

/// The rows that a store lacks which has come as far as the batch `number`, or that knows none of
/// them. A later row replaces an earlier.
fn lacking(found: &Found, number: Option<u64>) -> Rows {
    found
        .rounds
        .iter()
        .filter(|round| number.is_none_or(|number| round.number > number))
        .flat_map(|round| &round.writes)
        .map(|write| ((write.table, write.key.clone()), write.value.clone()))
        .collect()
}

type Rows = BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>;

/// Writes what is lacking, and a lineage into a store without one, as one change.
fn bring_up(store: &Store, lacking: Rows, lineage: Option<u64>) -> Result<(), StoreError> {
    let lineage = lineage.map(|lineage| {
        let value = lineage.to_be_bytes();
        Write::set(Table::Meta, LINEAGE_KEY.to_vec(), value)
    });
    let rows = lacking
        .into_iter()
        .map(|((table, key), value)| Write { table, key, value });
    let writes: Vec<Write> = rows.chain(lineage).collect();
    if writes.is_empty() {
        return Ok(());
    }
    store.write(writes)
}

fn plan(found: &Found, is_same: bool) -> Plan {
    let good_bytes = found.good_bytes;
    match found.end {
        Some(End::Whole) if is_same && found.damage.is_none() => Plan::GoOn { good_bytes },
        Some(End::Torn) if is_same && found.damage.is_none() => Plan::Cut { good_bytes },
        _ => Plan::Begin {
            marks: lacking(found, None)
                .into_iter()
                .filter(|((table, _), value)| *table == Table::Jobs && value.is_some())
                .map(|((table, key), value)| Write { table, key, value })
                .collect(),
        },
    }
}
