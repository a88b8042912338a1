//! The factors that a scheduler looks up, and how fresh they are.
//!
//! Invariant: nothing here does IO, and every lock is held for memory work of a bounded size only,
//! so a scheduler may look up under its own locks. A name that was not asked for before is noted, and
//! has a factor as soon as the node has answered.
//!
//! Deliberately not here: who asks the node (`refresh`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fairmesh_client::protocol::{NameBlockBuf, UNKNOWN};
use fairmesh_client::{Names, View, Who};

/// Most names in a table. Bounds its memory (some 20 MB) and a round's work (some 50 ms of the node)
/// where users may make account names up; a large cluster has some ten thousand.
pub const TABLE_NAMES_MAX: usize = 65_536;

/// A table that is more than half full forgets the names that nobody looked up in so many rounds.
const FORGOTTEN_AFTER_ROUNDS: u64 = 100;

/// Stands in a row for "the node has not been asked yet"; above every factor, below [`UNKNOWN`].
const NOT_YET: u32 = UNKNOWN - 1;

/// What a table says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The node's last word.
    Factor(u32),
    /// The node knows no such account.
    NotKnown,
    /// The node has not answered for this name yet.
    NotYet,
}

/// Why a name was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is empty or too long.
    Name,
    /// The table has [`TABLE_NAMES_MAX`] names.
    Full,
}

/// How fresh a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// Since the node last answered; `None` before its first answer.
    pub answered: Option<Duration>,
    /// Whether that is longer ago than the scheduler said is old.
    pub is_old: bool,
    /// What the last answer rests on.
    pub view: Option<View>,
    /// Grows whenever a factor changes, or how far apart they are.
    pub revision: u64,
    /// Names in the table.
    pub names: usize,
}

struct Row {
    /// As [`key`] makes it.
    key: Arc<str>,
    factor: AtomicU32,
    /// The last round in which it was looked up.
    looked_up: AtomicU64,
}

#[derive(Default)]
struct Rows {
    by_key: HashMap<Arc<str>, usize>,
    rows: Vec<Row>,
    /// Changes when rows are taken away, so that their numbers mean something else.
    epoch: u64,
}

/// What threads wait on.
#[derive(Default)]
struct Signals {
    revision: u64,
    /// A name was noted that the node has not been asked for.
    news: bool,
    /// Those in [`Table::wait`] go home.
    woken: bool,
    stop: bool,
    ended: bool,
    view: Option<View>,
    answered: Option<Instant>,
    error: String,
}

/// Factors by name, shared by the scheduler's threads and the one that refreshes it.
pub struct Table {
    rows: RwLock<Rows>,
    signals: Mutex<Signals>,
    changed: Condvar,
    round: AtomicU64,
    /// Of the last answer's ranking.
    step: AtomicU32,
    old_after: Duration,
}

impl Table {
    /// A table without names, whose answers are old after `old_after`.
    pub fn new(old_after: Duration) -> Self {
        Self {
            rows: RwLock::default(),
            signals: Mutex::default(),
            changed: Condvar::new(),
            round: AtomicU64::new(0),
            step: AtomicU32::new(0),
            old_after,
        }
    }

    /// What the node said of a user's jobs in an account, group, queue and quality of service (an empty word is none);
    /// notes the name where it is new.
    ///
    /// # Errors
    /// If a name cannot be asked for or holds a zero byte, or the table is full.
    pub fn look_up(&self, name: &Names<'_>) -> Result<Found, Refused> {
        let key = key(name);
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        // What the protocol would refuse must not come into a batch, which it would spoil for all.
        let asked = NameBlockBuf::new().push(&who_of(&key));
        let is_whole = name.user.is_some() && key.matches('\0').count() == WORDS - 1;
        if asked.is_err() || !is_whole {
            return Err(Refused::Name);
        }
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        if rows.rows.len() >= TABLE_NAMES_MAX {
            return Err(Refused::Full);
        }
        rows.push(key, self.round.load(Ordering::Relaxed));
        drop(rows);
        self.signals().news = true;
        self.changed.notify_all();
        Ok(Found::NotYet)
    }

    /// How far apart two different factors are at the least; 0 before the node has said.
    pub fn step(&self) -> u32 {
        self.step.load(Ordering::Relaxed)
    }

    /// Waits until the revision is another than `seen`, [`Table::wake`] is called, or the time is
    /// over; gives the revision.
    pub fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        let waiting = |signals: &mut Signals| signals.revision == seen && !signals.woken;
        let (mut signals, _) = self
            .changed
            .wait_timeout_while(self.signals(), timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        signals.woken = false;
        signals.revision
    }

    /// Ends a [`Table::wait`], now or the next.
    pub fn wake(&self) {
        self.signals().woken = true;
        self.changed.notify_all();
    }

    /// How fresh it is.
    pub fn freshness(&self) -> Freshness {
        let names = self.read().rows.len();
        let signals = self.signals();
        let answered = signals.answered.map(|at| at.elapsed());
        Freshness {
            answered,
            is_old: answered.is_some_and(|age| age > self.old_after),
            view: signals.view,
            revision: signals.revision,
            names,
        }
    }

    /// Why the node has not answered, in words; empty while it does.
    pub fn error(&self) -> String {
        self.signals().error.clone()
    }

    fn find(&self, key: &str) -> Option<Found> {
        let rows = self.read();
        let row = &rows.rows[*rows.by_key.get(key)?];
        row.looked_up
            .store(self.round.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(match row.factor.load(Ordering::Relaxed) {
            UNKNOWN => Found::NotKnown,
            NOT_YET => Found::NotYet,
            factor => Found::Factor(factor),
        })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ---- For the thread that refreshes it. ----

impl Table {
    /// How many names there are, and the epoch that their numbers are of. Begins a round.
    pub(crate) fn begin_round(&self) -> (usize, u64) {
        self.signals().news = false;
        let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
        if self.read().rows.len() > TABLE_NAMES_MAX / 2 {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            rows.forget_before(round.saturating_sub(FORGOTTEN_AFTER_ROUNDS));
        }
        let rows = self.read();
        (rows.rows.len(), rows.epoch)
    }

    /// Hands the names of some rows to `take`.
    pub(crate) fn with_names<T>(
        &self,
        range: std::ops::Range<usize>,
        take: impl FnOnce(&[Who<'_>]) -> T,
    ) -> T {
        let rows = self.read();
        let names: Vec<_> = rows.rows[range]
            .iter()
            .map(|row| who_of(&row.key))
            .collect();
        take(&names)
    }

    /// Takes the node's answer for the rows from `first` on, as the protocol gives it.
    pub(crate) fn store(&self, first: usize, factors: impl Iterator<Item = u32>, view: View) {
        let rows = self.read();
        let mut is_changed = self.step.swap(view.step, Ordering::Relaxed) != view.step;
        for (row, factor) in rows.rows[first..].iter().zip(factors) {
            is_changed |= row.factor.swap(factor, Ordering::Relaxed) != factor;
        }
        drop(rows);
        let mut signals = self.signals();
        signals.view = Some(view);
        signals.answered = Some(Instant::now());
        signals.error.clear();
        if is_changed {
            signals.revision += 1;
            drop(signals);
            self.changed.notify_all();
        }
    }

    pub(crate) fn fail(&self, error: String) {
        self.signals().error = error;
    }

    /// Waits until the time is over, a new name was noted (where `for_news`), or the end. Says
    /// whether to go on.
    pub(crate) fn rest(&self, timeout: Duration, for_news: bool) -> bool {
        let waiting = |signals: &mut Signals| !(signals.stop || for_news && signals.news);
        let (signals, _) = self
            .changed
            .wait_timeout_while(self.signals(), timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        !signals.stop
    }

    /// Says that the thread has ended.
    pub(crate) fn end(&self) {
        self.signals().ended = true;
        self.changed.notify_all();
    }

    /// Asks the thread to end, and waits for that, but no longer than `patience`.
    pub(crate) fn stop(&self, patience: Duration) -> bool {
        self.signals().stop = true;
        self.changed.notify_all();
        let (signals, _) = self
            .changed
            .wait_timeout_while(self.signals(), patience, |signals| !signals.ended)
            .unwrap_or_else(PoisonError::into_inner);
        signals.ended
    }
}

impl Rows {
    fn push(&mut self, key: String, round: u64) {
        let key: Arc<str> = key.into();
        // Two callers may have missed the same name; the first of them has made the row.
        let Entry::Vacant(place) = self.by_key.entry(key.clone()) else {
            return;
        };
        place.insert(self.rows.len());
        self.rows.push(Row {
            key,
            factor: AtomicU32::new(NOT_YET),
            looked_up: AtomicU64::new(round),
        });
    }

    fn forget_before(&mut self, round: u64) {
        let before = self.rows.len();
        self.rows
            .retain(|row| row.looked_up.load(Ordering::Relaxed) >= round);
        if self.rows.len() == before {
            return;
        }
        self.epoch += 1;
        let rows = self.rows.iter().enumerate();
        self.by_key = rows.map(|(index, row)| (row.key.clone(), index)).collect();
    }
}

/// Words of a name.
const WORDS: usize = 5;

/// What a row is found by: the names of C hold no zero byte.
fn key(name: &Names<'_>) -> String {
    let words = [name.user, name.account, name.group, name.queue, name.qos];
    words.map(Option::unwrap_or_default).join("\0")
}

/// The name as the protocol has it. An empty word is none.
fn who_of(key: &str) -> Who<'_> {
    let mut words = key.split('\0');
    let mut word = || words.next().filter(|word| !word.is_empty());
    Who::Names(Names {
        user: word(),
        account: word(),
        group: word(),
        queue: word(),
        qos: word(),
        subject: None,
    })
}

#[cfg(test)]
mod tests;
