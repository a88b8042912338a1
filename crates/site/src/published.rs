//! What the sites of a VO have published, as it counts here.
//!
//! For each site its tables of usage, in every form that its uncovered heads have; what its running jobs
//! are still expected to be charged; and what its machines cost. The first is joined, clamped to the
//! site's capacity and summed up by span and account; what that changes is handed to the share tree.
//!
//! Invariant: what counts is a function of the site's uncovered heads, the charter and (for running
//! jobs) the time, once all that they changed is counted (`steps`); a head that comes touches the accounts of
//! the spans that it changed.

mod few;
mod large;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_broker::Machines;
use fairmesh_gossip::Replica;
use fairmesh_model::{
    AccountPath, CoreMillis, Counters, HashSecret, SiteId, Span, WindowLength, mutated,
};
use fairmesh_usage::{Capacity, Cell, PathId, Paths, Slice, Table, Total, join};

pub(crate) use large::{Step, Sum, Summed};

use crate::advert::part::{Advert, newest};
use crate::kinds::{DESCRIPTION, Description, RUNNING, usage_key, usage_slice};
use crate::moved::{Moved, moved};
use steps::Turns;

/// The longest, in days, that running jobs of a site are expected to go on using all of it: bounds what a list of
/// them can add to an account.
const RUN_EXPECTED_DAYS_MAX: u64 = 30;

/// Sums by span and account, in that order.
pub(crate) type Sums<P> = Vec<((Span, P), Counters)>;

/// Tables by their names, each in the forms that a site's heads have.
type Forms = BTreeMap<Slice, Vec<Table>>;

/// Something that heads changed, to be applied to the share tree.
#[derive(Debug, Default)]
pub(crate) struct Update {
    pub(crate) moved: Vec<Moved<(Span, PathId)>>,
    /// Charge that the site claims less than before.
    pub(crate) taken_back: u64,
    /// Tables that nobody uses any more: their accounts are released once the moves are applied.
    retired: Vec<Table>,
}

/// What is held of one site.
#[derive(Debug, Default)]
struct Member {
    /// Each slice in the forms that the heads have; one, at rest.
    tables: Forms,
    /// Slices that heads changed and that are not counted yet.
    behind: BTreeSet<Slice>,
    /// What all accounts sum up to in each span, unscaled, where that was summed up.
    totals: BTreeMap<Span, Total>,
    expected: Arc<[(AccountPath, u64)]>,
    /// Whether what is expected counts: not when it is old.
    counts: bool,
    described: Option<Description>,
    /// Its machines, as they are described.
    machines: Option<Arc<Machines>>,
    advert: Option<Advert>,
    /// What is free of each class of these, by the advert.
    free: Arc<[u64]>,
    /// Spans of which it claims more than its capacity.
    over: BTreeSet<Span>,
}

impl Member {
    /// What its advert says of classes by name is put beside its machines: once, and not for each job that is placed.
    fn lay_out(&mut self) {
        let told = self.machines.as_ref().zip(self.advert.as_ref());
        let free = told.map(|(machines, advert)| machines.lay_out(&advert.classes));
        self.free = free.unwrap_or_default();
    }
}

/// What all sites of a VO have published.
#[derive(Debug)]
pub(crate) struct Published {
    length: WindowLength,
    pub(crate) paths: Paths,
    sites: BTreeMap<SiteId, Member>,
    turns: Turns,
}

/// All charge of sums.
fn gross(sums: &Sums<PathId>) -> u64 {
    sums.iter()
        .fold(0, |sum, (_, counters)| sum.saturating_add(counters.charge))
}

/// The net charge of sums.
pub(crate) fn net<P: Clone>(sums: &Sums<P>) -> impl Iterator<Item = ((Span, P), u64)> {
    let rows = sums.iter();
    rows.map(|(cell, counters)| (cell.clone(), counters.net()))
}

impl Published {
    /// Nothing, of a VO with windows of `length`; accounts are hashed behind `secret`.
    pub(crate) fn new(length: WindowLength, secret: HashSecret) -> Self {
        Self {
            length,
            paths: Paths::new(secret),
            sites: BTreeMap::new(),
            turns: Turns::default(),
        }
    }

    /// Takes all usage of a site of which nothing is held yet, for a tree that is not built yet.
    pub(crate) fn read_new(&mut self, replica: &Replica, site: SiteId) {
        let parts = replica.part_keys(site);
        let tables = self.read_tables(replica, site, parts.iter().filter_map(usage_slice));
        self.put_tables(site, tables);
    }

    /// Reads tables in all forms that the site's heads have.
    fn read_tables(
        &mut self,
        replica: &Replica,
        site: SiteId,
        slices: impl IntoIterator<Item = Slice>,
    ) -> Forms {
        let read = |slice| {
            let forms = replica.variants(site, &usage_key(slice)).into_iter();
            let forms = forms.map(|bytes| Table::read(bytes.clone(), &mut self.paths));
            (slice, forms.collect())
        };
        slices.into_iter().map(read).collect()
    }

    /// Holds tables. Returns those in whose place they come.
    fn put_tables(&mut self, site: SiteId, tables: Forms) -> Vec<Table> {
        let mut retired = Vec::new();
        let of = self.sites.entry(site).or_default();
        for (slice, tables) in tables {
            let old = if tables.is_empty() {
                of.tables.remove(&slice)
            } else {
                of.tables.insert(slice, tables)
            };
            retired.extend(old.unwrap_or_default());
        }
        retired
    }

    /// The changes of an update were applied.
    pub(crate) fn finish(&mut self, update: Update) {
        for table in update.retired {
            table.release(&mut self.paths);
        }
    }

    /// The day of a span.
    pub(crate) fn day_of(&self, span: Span) -> Span {
        Span::Day(span.day(self.length))
    }

    /// The days in which a site has counted anything.
    pub(crate) fn days(&self, site: SiteId) -> BTreeSet<u32> {
        self.spans(site).map(|span| span.day(self.length)).collect()
    }

    /// What counts of a day of a site, by span and account.
    pub(crate) fn sums_of_day(
        &mut self,
        site: SiteId,
        day: u32,
        capacity: Capacity,
    ) -> Sums<PathId> {
        let of_day = |span: &Span| span.day(self.length) == day;
        let spans: BTreeSet<Span> = self.spans(site).filter(of_day).collect();
        let mut sums = sums_of(self.tables_in(site, &spans), self.length);
        let totals = totals(&sums);
        let over = capacity.clamp(&mut sums, self.length);
        self.set_totals(site, &spans, totals, over);
        sums
    }

    /// The raw counters of a site at and below an account, as they were published.
    pub(crate) fn below(
        &self,
        site: SiteId,
        account: &AccountPath,
    ) -> impl Iterator<Item = ((Span, PathId), Counters)> + use<> {
        let spans: BTreeSet<Span> = self.spans(site).collect();
        let counts = |id: PathId| account.is_root() || self.paths.path(id).starts_with(account);
        let length = self.length;
        let days = cells_of(self.tables_in(site, &spans), length, counts).into_values();
        days.flat_map(move |cells| join(cells, length))
    }

    /// What counts of a site, by span and account.
    pub(crate) fn clamped_sums(&self, site: SiteId, capacity: Capacity) -> Sums<PathId> {
        let spans: BTreeSet<Span> = self.spans(site).collect();
        let mut sums = sums_of(self.tables_in(site, &spans), self.length);
        capacity.clamp(&mut sums, self.length);
        sums
    }

    /// The sites of which tables are held.
    pub(crate) fn sites(&self) -> Vec<SiteId> {
        self.sites.keys().copied().collect()
    }

    /// Lets go of a site.
    pub(crate) fn drop_site(&mut self, site: SiteId) {
        let of = self.sites.remove(&site).unwrap_or_default();
        let come = self.forget_turn(site);
        for table in of.tables.into_values().chain(come).flatten() {
            table.release(&mut self.paths);
        }
    }

    /// Whether the site claims more than its capacity anywhere.
    pub(crate) fn is_over(&self, site: SiteId) -> bool {
        self.sites.get(&site).is_some_and(|of| !of.over.is_empty())
    }

    /// Takes what a site's newest head says of its machines.
    pub(crate) fn update_description(&mut self, replica: &Replica, site: SiteId) {
        let pieces = replica.newest_parts(site, DESCRIPTION);
        let pieces: Vec<&[u8]> = pieces.map(|(_, bytes)| &bytes[..]).collect();
        let described = Description::from_bytes(&pieces.concat());
        let member = self.sites.entry(site).or_default();
        let stays = described.is_none() && mutated!(DescriptionStays);
        if stays || member.described == described {
            return;
        }
        let prices = described.as_ref().map(|of| &of.prices);
        let machines = prices.filter(|prices| !prices.machines.is_empty());
        let machines = machines.map(|prices| Arc::new(Machines::new(Arc::clone(prices))));
        member.machines = machines;
        member.described = described;
        member.lay_out();
    }

    /// Takes what a site's newest head says of its free CPUs.
    pub(crate) fn update_advert(&mut self, replica: &Replica, site: SiteId) {
        let member = self.sites.entry(site).or_default();
        member.advert = newest(replica, site);
        member.lay_out();
    }

    /// What a site says of its free CPUs.
    pub(crate) fn advert(&self, site: SiteId) -> Option<&Advert> {
        self.sites.get(&site)?.advert.as_ref()
    }

    /// Takes what a site's newest head says of running jobs. Returns by how much the expected charge of
    /// each account changed.
    pub(crate) fn update_expected(
        &mut self,
        replica: &Replica,
        site: SiteId,
        capacity: Capacity,
        counts: bool,
    ) -> Vec<Moved<AccountPath>> {
        let mut sums: BTreeMap<AccountPath, CoreMillis> = BTreeMap::new();
        for (_, bytes) in replica.newest_parts(site, RUNNING) {
            let table = Table::read(bytes.clone(), &mut self.paths);
            for (_, id, counters) in table.cells() {
                let sum = sums.entry(self.paths.path(id).clone()).or_default();
                *sum = sum.plus(CoreMillis(counters.charge));
            }
            table.release(&mut self.paths);
        }
        self.expect(site, sums, capacity, counts)
    }

    /// Takes what running jobs of a site are still expected to be charged.
    pub(crate) fn expect(
        &mut self,
        site: SiteId,
        sums: BTreeMap<AccountPath, CoreMillis>,
        capacity: Capacity,
        counts: bool,
    ) -> Vec<Moved<AccountPath>> {
        let expected = clamp_expected(sums, capacity, self.length);
        self.set_expected(site, expected.into(), counts)
    }

    /// Says whether the running jobs of a site count. Returns by how much its expected charge changed.
    pub(crate) fn count_expected(&mut self, site: SiteId, counts: bool) -> Vec<Moved<AccountPath>> {
        let of = self.sites.entry(site).or_default();
        if of.counts == counts {
            return Vec::new();
        }
        let expected = Arc::clone(&of.expected);
        self.set_expected(site, expected, counts)
    }

    fn set_expected(
        &mut self,
        site: SiteId,
        expected: Arc<[(AccountPath, u64)]>,
        counts: bool,
    ) -> Vec<Moved<AccountPath>> {
        let before = self.expected_of(site).to_vec();
        let of = self.sites.entry(site).or_default();
        (of.expected, of.counts) = (expected, counts);
        moved(before, self.expected_of(site).iter().cloned())
    }

    /// What counts of the running jobs of a site.
    pub(crate) fn expected_of(&self, site: SiteId) -> &[(AccountPath, u64)] {
        let of = self.sites.get(&site).filter(|of| of.counts);
        of.map_or(&[], |of| &of.expected)
    }

    /// The same, not copied.
    pub(crate) fn expected_shared(&self, site: SiteId) -> Arc<[(AccountPath, u64)]> {
        let of = self.sites.get(&site).filter(|of| of.counts);
        of.map(|of| Arc::clone(&of.expected)).unwrap_or_default()
    }

    /// What a site says about its machines.
    pub(crate) fn description(&self, site: SiteId) -> Option<&Description> {
        self.sites.get(&site)?.described.as_ref()
    }

    /// Its machines, if it says what it has, and what is free of each class by an advert: laid out already where that
    /// is the one that is held.
    pub(crate) fn machines(
        &self,
        site: SiteId,
        advert: &Advert,
    ) -> Option<(Arc<Machines>, Arc<[u64]>)> {
        let member = self.sites.get(&site)?;
        let machines = member.machines.clone()?;
        let held = member.advert.as_ref().map(|of| &of.classes);
        let free = match held.is_some_and(|held| Arc::ptr_eq(held, &advert.classes)) {
            true => Arc::clone(&member.free),
            false => machines.lay_out(&advert.classes),
        };
        Some((machines, free))
    }

    fn spans(&self, site: SiteId) -> impl Iterator<Item = Span> {
        let tables = self
            .sites
            .get(&site)
            .into_iter()
            .flat_map(|of| of.tables.keys());
        tables.map(|slice| slice.span)
    }

    /// Spans that are joined together with `touched`: where a day is or becomes whole, all of it.
    fn with_days(&self, site: SiteId, touched: BTreeSet<Span>) -> BTreeSet<Span> {
        let length = self.length;
        let Some(of) = self.sites.get(&site) else {
            return touched;
        };
        let held = |span| of.tables.range(Slice::all_of(span)).next().is_some();
        let days: BTreeSet<u32> = touched.iter().map(|span| span.day(length)).collect();
        let whole = days
            .into_iter()
            .map(Span::Day)
            .filter(|day| touched.contains(day) || held(*day));
        let of_days = whole.flat_map(|day| {
            let window = |at| Slice::first_of(Span::Window(length.window_at(at)));
            let windows = window(day.start(length))..window(day.end(length));
            let windows = of.tables.range(windows).map(|(slice, _)| slice.span);
            windows.chain(held(day).then_some(day))
        });
        let of_days: Vec<Span> = of_days.collect();
        touched.into_iter().chain(of_days).collect()
    }

    fn tables_in<'a>(
        &'a self,
        site: SiteId,
        spans: &BTreeSet<Span>,
    ) -> impl Iterator<Item = (Slice, &'a Table)> {
        let tables = self.sites.get(&site).into_iter().flat_map(|of| {
            let spans = spans.iter();
            spans.flat_map(|span| of.tables.range(Slice::all_of(*span)))
        });
        tables.flat_map(|(slice, forms)| forms.iter().map(|table| (*slice, table)))
    }

    /// Keeps what whole spans sum up to, and of which the site claims more than its capacity.
    fn set_totals(
        &mut self,
        site: SiteId,
        spans: &BTreeSet<Span>,
        totals: BTreeMap<Span, Total>,
        over: BTreeSet<Span>,
    ) {
        // A site that a charter drops while a tree is fed stays dropped: it is read again if it is listed again.
        if let Some(of) = self.sites.get_mut(&site) {
            of.over.retain(|span| !spans.contains(span));
            of.over.extend(over);
            of.totals.retain(|span, _| !spans.contains(span));
            of.totals.extend(totals);
        }
    }
}

/// What tables of whole days, or of windows of days that no table has as a whole, join to.
fn sums_of<'a>(
    tables: impl Iterator<Item = (Slice, &'a Table)>,
    length: WindowLength,
) -> Sums<PathId> {
    let days = cells_of(tables, length, |_| true).into_values();
    let mut sums: Sums<PathId> = days.flat_map(|cells| join(cells, length)).collect();
    // They come day by day, and windows are before days.
    sums.sort_unstable_by_key(|(cell, _)| *cell);
    sums
}

/// The cells of those accounts that count, by days.
fn cells_of<'a>(
    tables: impl Iterator<Item = (Slice, &'a Table)>,
    length: WindowLength,
    counts: impl Fn(PathId) -> bool,
) -> BTreeMap<u32, Vec<Cell<PathId>>> {
    let mut days: BTreeMap<u32, Vec<Cell<PathId>>> = BTreeMap::new();
    for (slice, table) in tables {
        let cells = table.cells().filter(|(_, id, _)| counts(*id));
        let cells = cells.map(|(of, id, counters)| (of, slice.span, id, counters));
        let of_day = days.entry(slice.span.day(length)).or_default();
        of_day.extend(cells);
    }
    days
}

/// What all accounts sum up to in each span.
fn totals(sums: &Sums<PathId>) -> BTreeMap<Span, Total> {
    let mut totals: BTreeMap<Span, Total> = BTreeMap::new();
    for ((span, _), counters) in sums {
        totals.entry(*span).or_default().add(*counters);
    }
    totals
}

/// What is expected of running jobs, scaled down to what the site can run in the time that is allowed.
fn clamp_expected(
    sums: BTreeMap<AccountPath, CoreMillis>,
    capacity: Capacity,
    length: WindowLength,
) -> Vec<(AccountPath, u64)> {
    let total: u128 = sums.values().map(|amount| u128::from(amount.0)).sum();
    let limit = capacity.charge_limit(RUN_EXPECTED_DAYS_MAX * length.per_day(), length);
    let scaled = |amount: u64| {
        if total <= limit || mutated!(RunningUnbounded) {
            return amount;
        }
        u64::try_from(u128::from(amount) * limit / total).unwrap_or(amount)
    };
    sums.into_iter()
        .map(|(path, amount)| (path, scaled(amount.0)))
        .collect()
}
