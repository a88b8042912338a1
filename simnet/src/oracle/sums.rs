//! Weighted usage at each entry and account, from the rows that count.
//!
//! Invariant: usage counts where its account does ([`Tree::place`]) and at all entries above. Usage of a day before
//! an entry's period counts at the levels above that entry alone. Jobs that run count as usage of the reference
//! window's day, unless they are said to have used it in a span.
//! Deliberately not here: what each level is compared by.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, Counters, Date, SiteId, Span, VoId};

use super::AccountKey;
use super::given::{Given, Row, Rules};
use super::place::Place;
use super::weight::{age, weight};

const DAY_MS: u64 = 86_400_000;

/// Whose usage is summed up: this site's, or that of a VO's members.
pub(super) type Scope = Option<VoId>;

/// Weighted usage in core-ms × 2^-32.
#[derive(Debug, Default)]
pub(super) struct Sums {
    counted: BTreeMap<(AccountPath, Scope), u128>,
    /// Accounts without a line that have used something, and the `*` of each.
    pub(super) members: BTreeMap<AccountPath, AccountPath>,
    /// What counts at the root: at no level.
    root: BTreeMap<Scope, u128>,
}

/// Usage of a day at a place.
type Booking = (Place, Scope, u64);

impl Sums {
    /// Sums up what is given.
    pub(super) fn of(given: &Given<'_>) -> Self {
        let mut sums = Self::default();
        for ((place, scope, day), amount) in booked(given) {
            *sums.root.entry(scope).or_default() += amount;
            let way = place.way_up();
            for (up, path) in way.iter().enumerate() {
                if amount == 0 || day < begins(given, &way[up..]) {
                    continue;
                }
                *sums.counted.entry((path.clone(), scope)).or_default() += amount;
                if let (0, Place::Member { others, account }) = (up, &place) {
                    sums.members.insert(account.clone(), others.clone());
                }
            }
        }
        sums
    }

    /// What counts at an entry or account; at the root everything does.
    pub(super) fn at(&self, path: &AccountPath, scope: Scope) -> u128 {
        let sum = match path.is_root() {
            true => self.root.get(&scope),
            false => self.counted.get(&(path.clone(), scope)),
        };
        sum.copied().unwrap_or(0)
    }
}

/// The first day of which usage counts: the latest that an entry of these, or one above, says.
fn begins(given: &Given<'_>, way: &[AccountPath]) -> u64 {
    let since = |path| given.tree.targets.get(path).and_then(|entry| entry.since);
    let days = way.iter().filter_map(since).map(|Date(day)| u64::from(day));
    days.max().unwrap_or(0)
}

/// Everything that counts, by place, scope and day.
fn booked(given: &Given<'_>) -> BTreeMap<Booking, u128> {
    let mut booked: BTreeMap<Booking, u128> = BTreeMap::new();
    let mut add = |booking: Booking, amount: u128| *booked.entry(booking).or_default() += amount;
    let one = 1u128 << 32;
    let mut weights: BTreeMap<(Scope, Scope, Span), u128> = BTreeMap::new();
    let rules = |vo: Scope| {
        let of_vo = vo.and_then(|vo| given.vos.get(&vo));
        of_vo.unwrap_or(&given.local)
    };
    let mut weighed = |row: &Row, by: Scope| {
        let of = row.account.0;
        let weigh = || {
            let (of, by) = (rules(of), rules(by));
            let age = age(row.span, of.window, by.window, by.reference);
            u128::from(weight(by.history, age))
        };
        let weight = *weights.entry((by, of, row.span)).or_insert_with(weigh);
        // What counts is what was charged and not taken back, and never less than nothing.
        u128::from(row.counters.charge.saturating_sub(row.counters.refunds)) * weight
    };
    let is_known = |row: &&Row| row.account.0.is_none_or(|vo| given.vos.contains_key(&vo));
    let rows = whole(given.rows);
    let accounts: BTreeSet<&AccountKey> = rows.iter().map(|row| &row.account).collect();
    let place = |account| (account, given.tree.place(account));
    let places: BTreeMap<&AccountKey, Place> = accounts.into_iter().map(place).collect();
    for row in rows.iter().filter(is_known) {
        let place = &places[&row.account];
        let day = day_of(row.span, rules(row.account.0));
        if row.site == given.site {
            add((place.clone(), None, day), weighed(row, None));
        }
        let of = row.account.0;
        let mounted = of.filter(|vo| given.tree.mounts.contains_key(vo));
        if mounted.is_some() {
            add((place.clone(), mounted, day), weighed(row, mounted));
        }
    }
    for (vo, _, path, charge) in given.expected {
        let place = given.tree.place(&(Some(*vo), path.clone()));
        let today = today(rules(Some(*vo)));
        add((place, Some(*vo), today), u128::from(*charge) * one);
    }
    for (account, span, charge) in given.running {
        let (place, of) = (given.tree.place(account), rules(account.0));
        let (weight, day) = match span {
            None => (one, today(&given.local)),
            Some(span) => {
                let local = &given.local;
                let age = age(*span, of.window, local.window, local.reference);
                (u128::from(weight(local.history, age)), day_of(*span, of))
            }
        };
        add((place, None, day), u128::from(*charge) * weight);
    }
    booked
}

/// The day that a span of windows of these rules lies in.
fn day_of(span: Span, rules: &Rules) -> u64 {
    match span {
        Span::Day(day) => u64::from(day),
        Span::Window(window) => u64::from(window.0) * rules.window.millis().0 / DAY_MS,
    }
}

/// The day of the window that usage is seen from.
fn today(rules: &Rules) -> u64 {
    u64::from(rules.reference) * rules.window.millis().0 / DAY_MS
}

/// One row of an account at a site in a span, of those that come in parts.
fn whole(rows: &[Row]) -> Vec<Row> {
    let mut whole: BTreeMap<(SiteId, &AccountKey, Span), Counters> = BTreeMap::new();
    for row in rows {
        let sum = whole.entry((row.site, &row.account, row.span)).or_default();
        *sum = sum.plus(row.counters);
    }
    let row = |((site, account, span), counters): ((SiteId, &AccountKey, Span), Counters)| Row {
        site,
        account: account.clone(),
        span,
        counters,
    };
    whole.into_iter().map(row).collect()
}
