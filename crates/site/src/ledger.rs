//! The site's own counters: what it has counted itself, published or not.
//!
//! Invariant: a counter only grows within one incarnation, and every value that was ever published
//! is at most the value kept here. What an earlier incarnation counted and did not publish is
//! *carried*: it is settled into the current incarnation once a peer has said how far the earlier
//! one really got, so that a restored backup counts nothing twice. What was counted before the time
//! was known is carried, too: a life signs nothing before it has been given its place in time, so
//! where that life has signed anything it is no longer carried. What was published is *afloat* until
//! a peer is known to hold it.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, Counters, Incarnation, MonoTime, SiteId, Span, VoId, WallTime, Window,
    WindowLength, mutant, mutated,
};

use crate::identity::Account;
use crate::rise::weighs_as_one;
use crate::site::Site;
use crate::store::{LedgerRow, Table, Write, ledger_key, ledger_value, untimed_key};

/// A cell of the ledger.
pub(crate) type CellKey = (Span, AccountPath);

/// A cell of a life, and whether it was counted before the time was known.
type CarriedKey = (Incarnation, bool, CellKey);

/// Own counters of all VOs and of the local accounts.
#[derive(Debug)]
pub(crate) struct Ledger {
    incarnation: Incarnation,
    counted: BTreeMap<Option<VoId>, BTreeMap<CellKey, Counters>>,
    unpublished: BTreeMap<VoId, BTreeSet<CellKey>>,
    held_back: BTreeMap<VoId, BTreeSet<CellKey>>,
    carried: BTreeMap<VoId, BTreeMap<CarriedKey, Carried>>,
    afloat: BTreeMap<VoId, BTreeSet<CellKey>>,
}

/// What counting did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    /// The rows to persist.
    pub(crate) writes: Vec<Write>,
    /// Where it was counted.
    pub(crate) span: Span,
    /// The day that took in its windows, if one did.
    pub(crate) merged: Option<u32>,
}

/// What settling did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The rows to persist.
    pub(crate) writes: Vec<Write>,
    /// Days that took in windows.
    pub(crate) merged: Vec<u32>,
    /// Whether anything was counted in another span than before.
    pub(crate) moved: bool,
}

/// A cell of an earlier incarnation.
#[derive(Debug, Clone, Copy, Default)]
struct Carried {
    /// The counters of its row.
    counted: Counters,
    /// What of them is not known to have been published.
    left: Counters,
}

impl Ledger {
    /// An empty ledger that counts under `incarnation`.
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            counted: BTreeMap::new(),
            unpublished: BTreeMap::new(),
            held_back: BTreeMap::new(),
            carried: BTreeMap::new(),
            afloat: BTreeMap::new(),
        }
    }

    /// The incarnation that counts now.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Counts.
    ///
    /// An account's day is counted either by the window or as a whole: what comes for a window of a
    /// merged day goes to the day, and a whole day takes in the windows that are left of it. Peers
    /// would otherwise see one absorb the other.
    pub(crate) fn add(
        &mut self,
        account: &Account,
        span: Span,
        amount: Counters,
        window: WindowLength,
    ) -> Added {
        let asked = span;
        let day = Span::Day(span.day(window));
        let cells = self.counted.entry(account.vo).or_default();
        let is_merged = cells.contains_key(&(day, account.path.clone()));
        let span = if is_merged { day } else { span };
        let mut amount = amount;
        let mut gone = Vec::new();
        if span == day && !is_merged {
            for hour in windows_of(day, window, cells) {
                if let Some(counters) = cells.remove(&(hour, account.path.clone())) {
                    amount = amount.plus(counters);
                    gone.push(hour);
                }
            }
        }
        let key = (span, account.path.clone());
        let cell = cells.entry(key.clone()).or_default();
        *cell = cell.plus(amount);
        let row = ledger_value(&account.path, mutant!(LedgerKeepsLast, *cell, amount));
        // Local counters live in one incarnation for ever: nobody else holds a copy.
        let incarnation = if let Some(vo) = account.vo {
            let unpublished = self.unpublished.entry(vo).or_default();
            for hour in &gone {
                unpublished.remove(&(*hour, account.path.clone()));
            }
            if *cell == amount || !mutated!(GrowthUnpublished) {
                unpublished.insert(key);
            }
            self.incarnation
        } else {
            Incarnation(0)
        };
        let merged = (!gone.is_empty() || span != asked).then(|| span.day(window));
        let deleted = gone
            .into_iter()
            .map(|hour| Write::delete(Table::Ledger, ledger_key(account, incarnation, hour)));
        let set = Write::set(Table::Ledger, ledger_key(account, incarnation, span), row);
        Added {
            writes: deleted.chain([set]).collect(),
            span,
            merged,
        }
    }

    /// Counts while nobody has said what time it is. Returns the row to persist.
    pub(crate) fn add_untimed(
        &mut self,
        vo: VoId,
        path: &AccountPath,
        span: Span,
        amount: Counters,
    ) -> Write {
        let key = (self.incarnation, true, (span, path.clone()));
        let carried = self.carried.entry(vo).or_default().entry(key).or_default();
        carried.counted = carried.counted.plus(amount);
        carried.left = carried.left.plus(amount);
        let account = Account {
            vo: Some(vo),
            path: path.clone(),
        };
        let row = untimed_key(&account, self.incarnation, span);
        Write::set(Table::Ledger, row, ledger_value(path, carried.counted))
    }

    /// Takes a row of the store. `published` is what the stream of that row's incarnation is known
    /// to have said of the cell.
    pub(crate) fn restore(&mut self, row: LedgerRow, published: Counters) {
        let key = (row.span, row.account.path);
        match row.account.vo {
            None if mutated!(LocalUnread) => {}
            None => {
                self.counted
                    .entry(None)
                    .or_default()
                    .insert(key, row.counters);
            }
            Some(vo) => {
                let carried = Carried {
                    counted: row.counters,
                    left: row.counters.minus(published),
                };
                self.carried
                    .entry(vo)
                    .or_default()
                    .insert((row.incarnation, row.is_untimed, key), carried);
            }
        }
    }

    /// Cells of the VO that changed since they were last taken, with their absolute counters.
    pub(crate) fn take_unpublished(&mut self, vo: VoId) -> Vec<(Span, AccountPath, Counters)> {
        let keys = self.unpublished.remove(&vo).unwrap_or_default();
        let counted = self.counted.get(&Some(vo));
        let afloat = self.afloat.entry(vo).or_default();
        afloat.extend(keys.iter().cloned());
        keys.into_iter()
            .filter_map(|(span, path)| {
                let counters = counted?.get(&(span, path.clone())).copied()?;
                Some((span, path, counters))
            })
            .collect()
    }

    /// Puts a cell back that could not be published. It waits for the next batch.
    pub(crate) fn hold_back(&mut self, vo: VoId, key: CellKey) {
        self.held_back.entry(vo).or_default().insert(key);
    }

    /// Lets everything that was held back try again: the charter may allow more now.
    pub(crate) fn retry_held_back(&mut self, vo: VoId) {
        if mutated!(HeldBackForEver) {
            return;
        }
        let held = self.held_back.remove(&vo).unwrap_or_default();
        self.unpublished.entry(vo).or_default().extend(held);
    }

    /// Whether anything of the VO waits to be published.
    pub(crate) fn has_unpublished(&self, vo: VoId) -> bool {
        self.unpublished
            .get(&vo)
            .is_some_and(|cells| !cells.is_empty())
    }

    /// Whether an earlier incarnation's counters wait to be settled.
    pub(crate) fn has_carried(&self, vo: VoId) -> bool {
        self.carried.contains_key(&vo)
    }

    /// An earlier incarnation of ours is found to have published `amount` more of a cell. Returns
    /// how much of it was carried here, and is not carried any more. A day stands for its windows.
    pub(crate) fn found_published(
        &mut self,
        vo: VoId,
        incarnation: Incarnation,
        key: &CellKey,
        amount: Counters,
        window: WindowLength,
    ) -> Counters {
        let Some(cells) = self.carried.get_mut(&vo) else {
            return Counters::default();
        };
        let amount = mutant!(PublishedCarriedToo, amount, Counters::default());
        let (mut left, mut found) = (amount, Counters::default());
        let mut take = |carried: &mut Carried| {
            let rest = carried.left.minus(left);
            let taken = carried.left.minus(rest);
            (carried.left, left, found) = (rest, left.minus(taken), found.plus(taken));
        };
        match key.0 {
            Span::Window(_) => {
                let day = Span::Day(key.0.day(window));
                for span in [key.0, day] {
                    cells
                        .get_mut(&(incarnation, false, (span, key.1.clone())))
                        .into_iter()
                        .for_each(&mut take);
                }
            }
            Span::Day(day) => cells
                .iter_mut()
                .filter(|((of, is_untimed, (span, path)), _)| {
                    let is_his = *of == incarnation && !is_untimed && *path == key.1;
                    is_his && span.day(window) == day
                })
                .for_each(|(_, carried)| take(carried)),
        }
        found
    }

    /// That life of ours has signed something, so what it had counted before it knew the time found
    /// its place. Returns whether that was carried.
    pub(crate) fn placed(&mut self, vo: VoId, incarnation: Incarnation) -> bool {
        self.let_go(vo, |(of, is_untimed, _)| *of == incarnation && *is_untimed)
    }

    /// A later life of ours has taken over what the lives below `below` had left. Returns whether
    /// that was carried.
    pub(crate) fn settled_elsewhere(&mut self, vo: VoId, below: Incarnation) -> bool {
        self.let_go(vo, |(of, ..)| *of < below)
    }

    fn let_go(&mut self, vo: VoId, which: impl Fn(&CarriedKey) -> bool) -> bool {
        let cells = self.carried.get_mut(&vo).into_iter().flatten();
        let gone = cells.filter(|(key, _)| which(key));
        gone.fold(false, |was_carried, (_, carried)| {
            let left = std::mem::take(&mut carried.left);
            was_carried || !left.is_zero()
        })
    }

    /// Whether this life has counted anything before it knew the time, and not placed it yet.
    pub(crate) fn has_untimed(&self, vo: VoId) -> bool {
        let first = (Span::Window(Window(0)), AccountPath::root());
        let first = (self.incarnation, true, first);
        let cells = self.carried.get(&vo);
        let next = cells.and_then(|cells| cells.range(first..).next());
        next.is_some_and(|((of, ..), _)| *of == self.incarnation)
    }

    /// Gives what this life has counted before it knew the time its place: in its span, or in the
    /// last one that begins by `latest`. To be persisted as one change.
    pub(crate) fn place(&mut self, vo: VoId, latest: WallTime, window: WindowLength) -> Settled {
        let current = self.incarnation;
        self.move_carried(vo, latest, window, |(of, is_untimed, _)| {
            *of == current && *is_untimed
        })
    }

    /// Moves what is carried into the current incarnation, as [`Ledger::place`] does.
    pub(crate) fn settle(&mut self, vo: VoId, latest: WallTime, window: WindowLength) -> Settled {
        self.move_carried(vo, latest, window, |_| true)
    }

    fn move_carried(
        &mut self,
        vo: VoId,
        latest: WallTime,
        window: WindowLength,
        which: impl Fn(&CarriedKey) -> bool,
    ) -> Settled {
        let mut settled = Settled::default();
        let Some(cells) = self.carried.remove(&vo) else {
            return settled;
        };
        let (moves, stays): (BTreeMap<_, _>, _) =
            cells.into_iter().partition(|(key, _)| which(key));
        if !stays.is_empty() {
            self.carried.insert(vo, stays);
        }
        for ((incarnation, is_untimed, (span, path)), carried) in moves {
            let account = Account { vo: Some(vo), path };
            let row = if is_untimed {
                untimed_key(&account, incarnation, span)
            } else {
                ledger_key(&account, incarnation, span)
            };
            settled.writes.push(Write::delete(Table::Ledger, row));
            if !carried.left.is_zero() && !mutated!(CarriedDropped) {
                let is_ahead = span.start(window) > latest;
                let place = if is_ahead {
                    Span::Window(window.window_at(latest))
                } else {
                    span
                };
                let added = self.add(&account, place, carried.left, window);
                settled.writes.extend(added.writes);
                settled.merged.extend(added.merged);
                settled.moved |= is_ahead;
            }
        }
        settled
    }

    /// Everything that is counted here and that no earlier incarnation is known to have published.
    pub(crate) fn cells(
        &self,
    ) -> impl Iterator<Item = (Option<VoId>, Span, &AccountPath, Counters)> {
        let current = self.counted.iter().flat_map(|(vo, cells)| {
            cells
                .iter()
                .map(|((span, path), counters)| (*vo, *span, path, *counters))
        });
        let carried = self.carried.iter().flat_map(|(vo, cells)| {
            cells
                .iter()
                .map(|((_, _, (span, path)), carried)| (Some(*vo), *span, path, carried.left))
        });
        current.chain(carried)
    }

    /// A peer holds all that was published of the VO.
    pub(crate) fn landed(&mut self, vo: VoId) {
        self.afloat.remove(&vo);
    }

    /// The rows, as the store has them, of all counters that nobody but this site is known to hold:
    /// those that are not published, are afloat or carried, and the local ones.
    pub(crate) fn rows_held_alone(&self) -> Vec<Write> {
        let row = |vo: Option<VoId>, incarnation, (span, path): &CellKey, counters| {
            let path = path.clone();
            let value = ledger_value(&path, counters);
            let key = ledger_key(&Account { vo, path }, incarnation, *span);
            Write::set(Table::Ledger, key, value)
        };
        let untimed = |vo: VoId, incarnation, (span, path): &CellKey, counters| {
            let (vo, path) = (Some(vo), path.clone());
            let value = ledger_value(&path, counters);
            let key = untimed_key(&Account { vo, path }, incarnation, *span);
            Write::set(Table::Ledger, key, value)
        };
        let local = self.counted.get(&None).into_iter().flatten();
        let local = local.map(|(key, counters)| row(None, Incarnation(0), key, *counters));
        let alone = [&self.unpublished, &self.held_back, &self.afloat];
        let alone: BTreeSet<(VoId, &CellKey)> = alone
            .into_iter()
            .flatten()
            .flat_map(|(vo, keys)| keys.iter().map(|key| (*vo, key)))
            .collect();
        let current = alone.into_iter().filter_map(|(vo, key)| {
            // A cell may have moved into its day since, or have been forgotten.
            let counters = self.counted.get(&Some(vo))?.get(key)?;
            Some(row(Some(vo), self.incarnation, key, *counters))
        });
        let carried = self.carried.iter().flat_map(|(vo, cells)| {
            cells
                .iter()
                .map(|((incarnation, is_untimed, key), carried)| {
                    if *is_untimed {
                        untimed(*vo, *incarnation, key, carried.counted)
                    } else {
                        row(Some(*vo), *incarnation, key, carried.counted)
                    }
                })
        });
        local.chain(current).chain(carried).collect()
    }

    /// Moves the windows of whole days into day cells: `rows` are the days' absolute counters, as
    /// they are published next. Returns the rows to persist.
    pub(crate) fn compact(
        &mut self,
        vo: VoId,
        rows: &[(Span, AccountPath, Counters)],
        window: WindowLength,
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        let cells = self.counted.entry(Some(vo)).or_default();
        let days: BTreeSet<u32> = rows.iter().map(|(span, ..)| span.day(window)).collect();
        let gone: Vec<CellKey> = cells
            .keys()
            .filter(|(span, _)| matches!(span, Span::Window(_)) && days.contains(&span.day(window)))
            .cloned()
            .collect();
        for (span, path) in gone {
            cells.remove(&(span, path.clone()));
            let account = Account { vo: Some(vo), path };
            writes.push(Write::delete(
                Table::Ledger,
                ledger_key(&account, self.incarnation, span),
            ));
        }
        let afloat = self.afloat.entry(vo).or_default();
        for (span, path, counters) in rows {
            cells.insert((*span, path.clone()), *counters);
            afloat.insert((*span, path.clone()));
            let account = Account {
                vo: Some(vo),
                path: path.clone(),
            };
            writes.push(Write::set(
                Table::Ledger,
                ledger_key(&account, self.incarnation, *span),
                ledger_value(path, *counters),
            ));
        }
        writes
    }

    /// Drops cells that ended before the horizon. Returns the rows to delete.
    pub(crate) fn forget(&mut self, vo: Option<VoId>, ended: impl Fn(Span) -> bool) -> Vec<Write> {
        let incarnation = if vo.is_some() {
            self.incarnation
        } else {
            Incarnation(0)
        };
        let Some(cells) = self.counted.get_mut(&vo) else {
            return Vec::new();
        };
        let gone: Vec<CellKey> = cells
            .keys()
            .filter(|(span, _)| ended(*span))
            .cloned()
            .collect();
        gone.into_iter()
            .map(|key| {
                cells.remove(&key);
                let account = Account { vo, path: key.1 };
                Write::delete(Table::Ledger, ledger_key(&account, incarnation, key.0))
            })
            .collect()
    }
}

impl Site {
    /// Own windows were counted into their days: where they do not weigh alike yet, sum up anew.
    pub(crate) fn note_merged<'a>(
        &mut self,
        now: WallTime,
        days: impl IntoIterator<Item = &'a u32>,
    ) {
        if days.into_iter().any(|day| !weighs_as_one(*day, now)) && !mutated!(TreeOutlivesMerge) {
            self.tree_is_stale = true;
        }
    }

    /// Notes which of our published counters `peer` has just been found to hold, too.
    pub(crate) fn note_landed(&mut self, now: MonoTime, peer: SiteId) {
        if self.gossip.agreed_at(peer) != Some(now) {
            return;
        }
        for vo in self.streams.keys() {
            if self.gossip.agreed_on(peer, *vo) {
                self.ledger.landed(*vo);
            }
        }
    }
}

/// The windows of a day, if there is any cell in them at all.
fn windows_of(day: Span, window: WindowLength, cells: &BTreeMap<CellKey, Counters>) -> Vec<Span> {
    let first = window.window_at(day.start(window)).0;
    let last = window.window_at(day.end(window)).0;
    let bound = |index| (Span::Window(Window(index)), AccountPath::root());
    if cells.range(bound(first)..bound(last)).next().is_none() {
        return Vec::new();
    }
    (first..last)
        .map(|index| Span::Window(Window(index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::parse_ledger_row;

    const HOUR: WindowLength = WindowLength::HOUR;

    fn account(vo: Option<VoId>, path: &str) -> Account {
        let path = AccountPath::parse(path).expect("valid");
        Account { vo, path }
    }

    fn amount(cpu_ms: u64) -> Counters {
        Counters::from_columns([cpu_ms, 0, 0, 0, 0])
    }

    /// Incarnation, path and first column of the rows that nobody else holds.
    fn alone(ledger: &Ledger) -> Vec<(u64, String, u64)> {
        let rows = ledger.rows_held_alone();
        let parsed = rows.iter().map(|write| {
            let value = write.value.as_ref().expect("is set");
            let row = parse_ledger_row(&write.key, value).expect("is a row");
            let path = row.account.path.as_str().to_owned();
            (row.incarnation.0, path, row.counters.to_columns()[0])
        });
        parsed.collect()
    }

    fn row(incarnation: u64, path: &str, cpu_ms: u64) -> (u64, String, u64) {
        (incarnation, path.to_owned(), cpu_ms)
    }

    #[test]
    fn a_counter_is_held_alone_until_a_peer_has_it() {
        let vo = VoId::from_bytes([1; 32]);
        let span = Span::Window(Window(500_000));
        let mut ledger = Ledger::new(Incarnation(9));
        ledger.add(&account(Some(vo), "/ann"), span, amount(5), HOUR);
        ledger.add(&account(None, "/local"), span, amount(7), HOUR);
        let both = [row(0, "/local", 7), row(9, "/ann", 5)];
        assert_eq!(alone(&ledger), both);
        ledger.take_unpublished(vo);
        assert_eq!(
            alone(&ledger),
            both,
            "published, but nobody is known to have it"
        );
        ledger.landed(vo);
        assert_eq!(alone(&ledger), both[..1], "local counters stay");
        ledger.add(&account(Some(vo), "/ann"), span, amount(1), HOUR);
        assert_eq!(alone(&ledger), [row(0, "/local", 7), row(9, "/ann", 6)]);
    }

    #[test]
    fn a_carried_counter_is_held_alone_as_its_row_says_until_it_is_settled() {
        let vo = VoId::from_bytes([1; 32]);
        let mut ledger = Ledger::new(Incarnation(9));
        let old = LedgerRow {
            account: account(Some(vo), "/ann"),
            incarnation: Incarnation(3),
            is_untimed: false,
            span: Span::Window(Window(500_000)),
            counters: amount(5),
        };
        ledger.restore(old, amount(4));
        assert_eq!(alone(&ledger), [row(3, "/ann", 5)]);
        ledger.settle(vo, WallTime(u64::MAX), HOUR);
        assert_eq!(alone(&ledger), [row(9, "/ann", 1)]);
    }
}
