//! Restarts, restored backups, wiped disks, two machines with one key, late usage and merged days, at
//! random, on the real own usage and replicas: at rest all views are equal, no cell is above the truth,
//! and nothing is lost that a surviving disk held.

use std::collections::BTreeSet;

use fairmesh_gossip::wire::{HeadContent, HeadItem};
use fairmesh_gossip::{Absorbed, ReceivedAt, Replica};
use fairmesh_model::{HashSecret, Millis, MonoTime, Now, SigningKey, SiteId, Window};
use fairmesh_usage::{Paths, Table as UsageTable};
use serde_bytes::ByteBuf;

use super::*;
use crate::checks::SiteKinds;
use crate::kinds::usage_slice;
use crate::store::parse_ledger_row;

/// Four windows a day.
const QUARTER: WindowLength = match WindowLength::from_millis(6 * 3_600_000) {
    Ok(length) => length,
    Err(_) => panic!("it divides a day"),
};
const KINDS: SiteKinds = SiteKinds { length: QUARTER };

/// Site, incarnation, account, day.
type Place = (usize, u64, String, u32);
type View = BTreeMap<Place, u64>;

fn key(site: usize) -> SigningKey {
    SigningKey::from_secret(&[u8::try_from(site).expect("few") + 1; 32])
}

/// What a machine's disk has: the ledger's rows, and every head with its parts.
#[derive(Clone, Default)]
struct Disk {
    ledger: BTreeMap<Vec<u8>, Vec<u8>>,
    heads: Vec<(usize, HeadItem)>,
}

struct Machine {
    site: usize,
    sites: usize,
    own: Own,
    replica: Replica,
    disk: Disk,
}

fn received() -> ReceivedAt {
    ReceivedAt {
        now: Now {
            mono: MonoTime(0),
            wall: WallTime(1 << 50),
        },
        tolerance: Millis(0),
    }
}

impl Machine {
    fn start(site: usize, sites: usize, incarnation: u64, disk: Disk) -> Self {
        let mut replica = Replica::new(VO, key(site).site_id());
        let members: BTreeSet<SiteId> = (0..sites).map(|site| key(site).site_id()).collect();
        replica.set_members(members, Millis(1 << 60));
        let mut machine = Self {
            site,
            sites,
            own: Own::new(Incarnation(incarnation), QUARTER),
            replica,
            disk: Disk::default(),
        };
        for (key, value) in &disk.ledger {
            machine
                .own
                .restore(parse_ledger_row(key, value).expect("a row"));
        }
        machine.disk.ledger = disk.ledger;
        disk.heads.iter().for_each(|(_, item)| machine.take(item));
        machine
    }

    fn keep(&mut self, writes: Vec<Write>) {
        for Write { key, value, .. } in writes {
            match value {
                Some(value) => self.disk.ledger.insert(key, value),
                None => self.disk.ledger.remove(&key),
            };
        }
        self.disk.heads = self.items();
    }

    fn items(&self) -> Vec<(usize, HeadItem)> {
        let of = |site: usize| {
            let rows = self.replica.rows_of_site(key(site).site_id());
            let (heads, parts): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| row.part.is_none());
            heads.into_iter().map(move |head| {
                let of = parts
                    .iter()
                    .filter(|part| part.incarnation == head.incarnation);
                let of = of.filter_map(|part| {
                    Some((
                        part.part.clone()?,
                        ByteBuf::from(part.bytes.as_ref()?.to_vec()),
                    ))
                });
                let item = HeadItem {
                    head: ByteBuf::from(head.bytes.as_ref().expect("a head").to_vec()),
                    content: HeadContent::Whole(of.collect()),
                };
                (site, item)
            })
        };
        (0..self.sites).flat_map(of).collect()
    }

    fn take(&mut self, item: &HeadItem) {
        let own = key(self.site).site_id();
        let taken = self
            .replica
            .take_item(&KINDS, received(), own, item.clone());
        let mut counted = Counted::default();
        if let Absorbed::Changed(change) = taken.expect("an honest head")
            && change.head.body().site == own
        {
            let cells = cells_of_site(&self.replica, own);
            counted = self.own.absorb(VO, cells, QUARTER);
        }
        self.keep(counted.writes);
    }

    fn count(&mut self, account: &str, window: u32, truth: &mut View) {
        let span = Span::Window(Window(window));
        let one = amount(1);
        let account_of = super::account(Some(VO), account);
        let place = self.own.place(Some(VO), span, QUARTER);
        let write = self.own.add(&account_of, place, one);
        self.keep(write.into_iter().collect());
        let place = (
            self.site,
            self.own.incarnation().0,
            account.to_owned(),
            span.day(QUARTER),
        );
        *truth.entry(place).or_default() += 1;
    }

    fn publish(&mut self, today: u32) {
        let merged = self
            .own
            .merge_days(Some(VO), QUARTER, |day| day.day(QUARTER) + 2 <= today);
        let incarnation = self.own.incarnation();
        let own = key(self.site).site_id();
        let is_own = |head: &std::sync::Arc<fairmesh_model::Verified<fairmesh_gossip::Head>>| {
            head.body().incarnation == incarnation
        };
        let is_first = !self.replica.heads_of(own).any(is_own);
        let changes = self
            .own
            .take_changes(VO, is_first, WallTime(1 << 50), QUARTER);
        self.replica.publish(
            &KINDS,
            &key(self.site),
            incarnation,
            WallTime(1 << 49),
            changes,
        );
        self.keep(merged.writes);
    }

    fn pull(&mut self, items: &[(usize, HeadItem)]) {
        items.iter().for_each(|(_, item)| self.take(item));
    }

    fn view(&self) -> View {
        let mut view = View::new();
        for site in 0..self.sites {
            let cells = cells_of_site(&self.replica, key(site).site_id());
            let days: BTreeSet<u32> = cells.iter().map(|cell| cell.1.day(QUARTER)).collect();
            for day in days {
                let of_day = cells
                    .iter()
                    .filter(|cell| cell.1.day(QUARTER) == day)
                    .cloned();
                for ((incarnation, _, path), counters) in join_cells(of_day, QUARTER) {
                    let place = (site, incarnation.0, path.as_str().to_owned(), day);
                    *view.entry(place).or_default() += counters.charge;
                }
            }
        }
        view
    }

    fn ledger(&self) -> View {
        let mut view = View::new();
        for (incarnation, span, path, counters) in self.own.cells(Some(VO)) {
            let place = (
                self.site,
                incarnation.0,
                path.as_str().to_owned(),
                span.day(QUARTER),
            );
            *view.entry(place).or_default() += counters.charge;
        }
        view
    }
}

/// All that a site's uncovered heads say, in every form.
fn cells_of_site(replica: &Replica, site: SiteId) -> Vec<Cell<AccountPath>> {
    let mut paths = Paths::new(HashSecret::new(7));
    let mut cells = Vec::new();
    for key in replica.part_keys(site) {
        let slice = usage_slice(&key).expect("only usage");
        for bytes in replica.variants(site, &key) {
            let table = UsageTable::read(bytes.clone(), &mut paths);
            let of_table = table.cells().map(|(incarnation, id, counters)| {
                (incarnation, slice.span, paths.path(id).clone(), counters)
            });
            cells.extend(of_table);
        }
    }
    cells
}

/// SplitMix64 (Steele and others, 2014): small, portable, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).expect("31 bits fit") % end
    }

    fn permille(&mut self) -> usize {
        self.below(1_000)
    }
}

/// All machines, and what happened to them.
struct Grid {
    dice: Dice,
    sites: usize,
    incarnation: u64,
    machines: Vec<Machine>,
    backups: BTreeMap<usize, Disk>,
    truth: View,
    window: u32,
}

impl Grid {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let sites = 2 + dice.below(4);
        let mut grid = Self {
            dice,
            sites,
            incarnation: 0,
            machines: Vec::new(),
            backups: BTreeMap::new(),
            truth: View::new(),
            window: 40,
        };
        for site in 0..sites {
            let machine = grid.started(site, Disk::default());
            grid.machines.push(machine);
        }
        grid
    }

    fn started(&mut self, site: usize, disk: Disk) -> Machine {
        self.incarnation += 1;
        Machine::start(site, self.sites, self.incarnation, disk)
    }

    fn today(&self) -> u32 {
        QUARTER.day_of(Window(self.window))
    }

    fn step(&mut self) {
        self.window += u32::from(self.dice.permille() < 100);
        let place = self.dice.below(self.machines.len());
        let (site, disk) = (self.machines[place].site, self.machines[place].disk.clone());
        match self.dice.permille() {
            0..350 => {
                let is_late = self.dice.permille() < 100;
                let late = if is_late { self.dice.below(12) } else { 0 };
                let account = ["/a", "/b", "/c"][self.dice.below(3)];
                let window = self.window - u32::try_from(late).expect("small");
                self.machines[place].count(account, window, &mut self.truth);
            }
            350..550 => {
                let today = self.today();
                self.machines[place].publish(today);
            }
            550..850 => {
                let items = self.machines[self.dice.below(self.sites)].items();
                self.machines[place].pull(&items);
            }
            850..900 => self.machines[place] = self.started(site, disk),
            900..930 => drop(self.backups.insert(site, disk)),
            930..950 => {
                if let Some(backup) = self.backups.get(&site).cloned() {
                    self.machines[place] = self.started(site, backup);
                }
            }
            950..960 => self.machines[place] = self.started(site, Disk::default()),
            960..965 if self.machines.len() == self.sites => {
                let twin = self.started(site, disk);
                self.machines.push(twin);
            }
            _ => {}
        }
    }

    /// What the disks have, the most of each place.
    fn held(&self) -> View {
        let mut held = View::new();
        for machine in &self.machines {
            for (place, charge) in machine.ledger().into_iter().chain(machine.view()) {
                let most = held.entry(place).or_default();
                *most = (*most).max(charge);
            }
        }
        held
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            let today = self.today();
            self.machines
                .iter_mut()
                .for_each(|machine| machine.publish(today));
            for from in 0..self.machines.len() {
                let items = self.machines[from].items();
                self.machines
                    .iter_mut()
                    .for_each(|machine| machine.pull(&items));
            }
        }
    }
}

/// One random history; the most heads of a site at rest.
fn play(seed: u64) -> usize {
    let mut grid = Grid::new(seed);
    for _ in 0..40 + grid.dice.below(120) {
        grid.step();
    }
    let held = grid.held();
    grid.settle();
    let view = grid.machines[0].view();
    for machine in &grid.machines {
        assert_eq!(machine.view(), view, "seed {seed}: views differ");
    }
    for (place, charge) in &view {
        let most = grid.truth.get(place).copied().unwrap_or_default();
        assert!(
            *charge <= most,
            "seed {seed}: {place:?} has {charge}, above the truth {most}"
        );
    }
    for (place, charge) in &held {
        let left = view.get(place).copied().unwrap_or_default();
        assert!(
            left >= *charge,
            "seed {seed}: {place:?} lost: {left} of {charge}"
        );
    }
    let heads = |site: usize| {
        grid.machines[0]
            .replica
            .heads_of(key(site).site_id())
            .count()
    };
    (0..grid.sites).map(heads).max().unwrap_or_default()
}

#[test]
fn random_histories_end_equal_true_and_whole() {
    let most = (0..150).map(play).max();
    assert!(
        most <= Some(2),
        "{most:?} uncovered heads of a site at rest"
    );
}
