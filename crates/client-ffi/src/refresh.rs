//! The thread that keeps a table fresh over `lookup.sock`.
//!
//! Invariant: it alone does IO for a table. A node that is away or refuses is asked again after a
//! pause that doubles up to ten seconds; the factors stay meanwhile, and their age grows. A
//! panic costs one round.
//!
//! Deliberately not here: what a scheduler does about old factors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairmesh_client::{Client, ClientError, ROWS_OF_ANY_NAMES, Roster};

use crate::table::Table;

/// The first pause after a failure.
const RETRY_MIN: Duration = Duration::from_millis(200);

/// The longest pause after a failure. Bounds how long a node is up before it is noticed.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How long new names are gathered, so that a burst of submissions makes one request.
const GATHER: Duration = Duration::from_millis(50);

/// Where and how often to ask.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path of `lookup.sock`.
    pub socket: PathBuf,
    /// Between two rounds without new names.
    pub interval: Duration,
    /// Longest time for one answer.
    pub timeout: Duration,
}

/// A table and its thread.
pub struct FreshTable {
    table: Arc<Table>,
    patience: Duration,
}

impl FreshTable {
    /// Starts the thread. The node need not be there. Fails where the system gives no thread.
    pub fn open(source: Source, old_after: Duration) -> std::io::Result<Self> {
        let table = Arc::new(Table::new(old_after));
        // To connect takes one timeout, and an answer that trickles in two.
        let patience = source.timeout * 3;
        let shared = table.clone();
        std::thread::Builder::new()
            .name("fairmesh".to_owned())
            .spawn(move || {
                run(&shared, &source);
                shared.end();
            })?;
        Ok(Self { table, patience })
    }

    /// The table of factors, updated in place.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

impl Drop for FreshTable {
    /// Ends the thread. One that is slower, as it waits for many answers, is left behind with its own
    /// hold on the table, because a scheduler must be able to stop.
    fn drop(&mut self) {
        self.table.stop(self.patience);
    }
}

fn run(table: &Table, source: &Source) {
    let mut asker = Asker::default();
    let mut retry = RETRY_MIN;
    loop {
        let round = catch_unwind(AssertUnwindSafe(|| asker.round(table, source)));
        let error = match round {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("a bug: the look-up panicked".to_owned()),
        };
        let goes_on = if let Some(error) = error {
            table.fail(error);
            asker = Asker::default();
            let pause = retry;
            retry = (retry * 2).min(RETRY_MAX);
            table.rest(pause, false)
        } else {
            retry = RETRY_MIN;
            table.rest(source.interval, true) && table.rest(GATHER.min(source.interval), false)
        };
        if !goes_on {
            return;
        }
    }
}

/// The connection, and what the node was told on it.
#[derive(Default)]
struct Asker {
    client: Option<Client>,
    rosters: Vec<Roster>,
    epoch: u64,
}

impl Asker {
    fn round(&mut self, table: &Table, source: &Source) -> Result<(), ClientError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&source.socket, source.timeout)?),
        };
        let (rows, epoch) = table.begin_round();
        if epoch != self.epoch {
            self.rosters.clear();
            self.epoch = epoch;
        }
        if rows == 0 {
            let view = client.lookup(&[])?.view;
            table.store(0, std::iter::empty(), view);
        }
        for (chunk, first) in (0..rows).step_by(ROWS_OF_ANY_NAMES).enumerate() {
            let end = rows.min(first + ROWS_OF_ANY_NAMES);
            if self
                .rosters
                .get(chunk)
                .is_none_or(|roster| roster.len() != end - first)
            {
                self.rosters.truncate(chunk);
                self.rosters
                    .push(table.with_names(first..end, Roster::new)?);
            }
            let answer = client.lookup_roster(&mut self.rosters[chunk])?;
            table.store(first, raw_factors(&answer), answer.view);
        }
        Ok(())
    }
}

/// The factor column, with [`fairmesh_client::protocol::UNKNOWN`] where the node knows none.
pub(crate) fn raw_factors(answer: &fairmesh_client::Answer<'_>) -> impl Iterator<Item = u32> {
    answer
        .factors()
        .map(|factor| factor.unwrap_or(fairmesh_client::protocol::UNKNOWN))
}
