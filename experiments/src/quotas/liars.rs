//! E5: members that show rights which they do not have, or the same rights to several, and what the others spend.
//!
//! Sites are whole here: real nodes' `Site`s in a [`simnet::World`]. The first of them lie: their nodes are honest until
//! everybody has met; then they are gone, and heads that they never signed are pushed to the others with their keys.
//! From then on all others are asked for more than there is, and hold what they can.
//!
//! Invariant: what is counted are the rows of the honest; a liar's own words count nothing.
//! Deliberately not here: what a liar runs on its own machines, which nobody else can bound; its lies about usage
//! (`simnet check`).

use fairmesh_cluster::Seed;
use fairmesh_model::{Allocation, AllocationSlice, CoreMillis, Millis, Signed, VoId, WallTime};
use fairmesh_quota::{Cell, Ledger, Row, SliceId};
use fairmesh_site::{HoldCall, QuotaCall};

use super::Extent;
use super::strictness::SITES;
use crate::experiment::{self, Claim, Mean, Outcome, Study, Table};
use crate::figures::Texts;
use simnet::liar::Forgers;
use simnet::vo::{
    DAY, HOUR, OwnerSpec, START, Vo, VoSpec, allocation, authority_key, job, key, path, site_id,
};
use simnet::world::{World, WorldSpec};

/// Core-hours that are granted: of each site a sixth.
const GRANTED: u64 = 600;

/// Cores of a job that asks for an hour.
const CORES: u32 = 4;

/// Each honest site is asked so often.
const ASKED: Millis = Millis::from_secs(10);

/// How long they are asked, and cut off from each other where they are.
const TIME: Millis = HOUR;

/// How finely it is seen when a lie is found out.
const LOOK: Millis = Millis(10);

/// Nobody looks for longer.
const FOUND_MAX: Millis = Millis::from_secs(600);

/// By then a lie should be found out.
const FOUND_WITHIN: Millis = Millis::from_secs(60);

/// What liars show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Ten times what they have, sent to everybody.
    Invented,
    /// The same, of which each says that the other has sent it.
    Vouched,
    /// To each of two halves that cannot hear each other, that all they have was sent there.
    Sides,
    /// To each member, at one moment, that all they have was sent to it.
    Each,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    name: &'static str,
    lie: Lie,
    liars: usize,
}

const CASES: [Case; 7] = [
    case("rights that they do not have", Lie::Invented, 1),
    case("rights that they do not have", Lie::Invented, 2),
    case("the same, each vouching for the other", Lie::Vouched, 2),
    case("the same rights to both sides of a cut", Lie::Sides, 1),
    case("the same rights to both sides of a cut", Lie::Sides, 2),
    case("the same rights to each member at once", Lie::Each, 1),
    case("the same rights to each member at once", Lie::Each, 2),
];

const fn case(name: &'static str, lie: Lie, liars: usize) -> Case {
    Case { name, lie, liars }
}

impl Case {
    fn is_contradiction(self) -> bool {
        matches!(self.lie, Lie::Sides | Lie::Each)
    }
}

/// What a run gave; core-hours.
struct Measures {
    /// What the liars had when they lied.
    had: f64,
    /// Spent by the honest beyond what was granted.
    over: f64,
    /// From when all could know to when all of them did, seconds; nothing where they did not.
    found_s: Option<f64>,
}

/// A Grid with a grant, in which everybody has met.
struct Play {
    world: World,
    vo: VoId,
    slice: SliceId,
    forgers: Forgers,
    liars: usize,
    jobs: u64,
}

impl Play {
    fn new(seed: Seed, liars: usize) -> Self {
        let vo = Vo::found(0, VoSpec::small("grid", SITES)).expect("a valid VO");
        let spec = WorldSpec::of_vos(SITES, std::slice::from_ref(&vo), &OwnerSpec::default());
        let mut world = World::founded(seed, spec, std::slice::from_ref(&vo));
        let forgers = Forgers::new(0..liars);
        world.set_tamper(Some(Box::new(forgers.clone())));
        let slice = AllocationSlice {
            amount: CoreMillis(GRANTED * HOUR.0),
            start: START,
            end: START.after(DAY.times(2)),
        };
        let body: Allocation = allocation(vo.id, path("/g0"), vec![slice], SITES);
        let keys = [authority_key(0), key("second authority", 0)];
        let signed = Signed::sign(body, &keys.each_ref()).expect("a valid allocation");
        world
            .publish(0, signed.bytes())
            .expect("its authority has signed it");
        let slice = SliceId {
            allocation: signed.hash().into(),
            index: 0,
        };
        let mut play = Self {
            world,
            vo: vo.id,
            slice,
            forgers,
            liars,
            jobs: 0,
        };
        while (0..SITES).any(|node| play.ledger(node).is_none_or(Ledger::is_frozen)) {
            play.world.run_for(Millis::from_secs(10));
        }
        // Heads that say so.
        play.world.run_for(Millis::from_secs(60));
        play
    }

    fn ledger(&self, node: usize) -> Option<&Ledger> {
        self.world.site(node)?.ledger(self.vo)
    }

    fn honest(&self) -> std::ops::Range<usize> {
        self.liars..SITES
    }

    /// What a site could hold, core-milliseconds.
    fn left(&self, node: usize) -> u64 {
        self.ledger(node)
            .map_or(0, |ledger| ledger.spendable(self.slice))
    }

    /// Nodes of liars stop; those who lie by `rows` show one row to each of the honest.
    fn lie(&mut self, lie: Lie) {
        let honest: Vec<usize> = self.honest().collect();
        let half = honest.len() / 2;
        for liar in 0..self.liars {
            let (left, partner) = (self.left(liar), (liar + 1) % self.liars);
            let own = self
                .ledger(liar)
                .and_then(|ledger| ledger.own_row(self.slice));
            let own = own.cloned().unwrap_or_default();
            for (at, to) in honest.iter().enumerate() {
                let shown: Vec<(Cell, u64)> = match lie {
                    Lie::Invented => sent(&honest, 10 * left),
                    Lie::Vouched => {
                        let partner = site_id(partner);
                        let vouched = [Cell::Sent(partner), Cell::Taken(partner)];
                        let vouched = vouched.map(|cell| (cell, 10 * left * honest.len() as u64));
                        [sent(&honest, 10 * left), vouched.to_vec()].concat()
                    }
                    // All of one side are shown one head.
                    Lie::Sides if at < half => sent(&honest[..1], left),
                    Lie::Sides => sent(&honest[half..=half], left),
                    Lie::Each => sent(&[*to], left),
                };
                let mut row: Row = own.clone();
                shown
                    .iter()
                    .for_each(|(cell, amount)| row.add(*cell, *amount));
                let push = self.forgers.head(liar, self.vo, self.slice, &row);
                self.world.push_to(liar, *to, self.vo, &push);
            }
        }
    }

    fn stop_liars(&mut self) {
        (0..self.liars).for_each(|node| self.world.crash(node));
    }

    /// Whether every honest site knows of every liar.
    fn is_found(&self) -> bool {
        let knows = |node: usize| {
            let ledger = self.ledger(node);
            ledger.is_some_and(|ledger| {
                (0..self.liars).all(|liar| ledger.is_distrusted(site_id(liar)))
            })
        };
        self.honest().all(knows)
    }

    fn find(&mut self) -> Option<f64> {
        let began = self.world.now();
        loop {
            let passed = self.world.now().since(began);
            if self.is_found() {
                return Some(passed.0 as f64 / 1_000.0);
            }
            if passed >= FOUND_MAX {
                return None;
            }
            self.world.run_for(LOOK);
        }
    }

    /// All honest sites hold what they can.
    fn spend(&mut self, time: Millis) {
        let end = self.world.now().after(time);
        while self.world.now() < end {
            for node in self.honest() {
                self.jobs += 1;
                let now = WallTime(START.0 + self.world.now().0);
                let whose = ("g0", format!("u{}", self.jobs % 4));
                let record = job(
                    self.jobs.to_string(),
                    "grid",
                    (whose.0, &whose.1),
                    (now.before(HOUR), now),
                    CORES,
                );
                let call = QuotaCall::Hold(Box::new(HoldCall {
                    record,
                    account: None,
                    is_exempt: false,
                    may_wait: false,
                    importance: Default::default(),
                }));
                let reply = self.world.quota(node, call);
                reply.expect("it runs").expect("the call is sound");
            }
            self.world.run_for(ASKED);
        }
    }

    /// What the honest have spent, core-milliseconds.
    fn spent(&self) -> u64 {
        let rows = self
            .honest()
            .filter_map(|node| self.ledger(node)?.own_row(self.slice));
        rows.map(|row| row.used() + row.held()).sum()
    }
}

/// So much sent to each of some.
fn sent(to: &[usize], amount: u64) -> Vec<(Cell, u64)> {
    to.iter()
        .map(|node| (Cell::Sent(site_id(*node)), amount))
        .collect()
}

fn run_case(case: &Case, _: &Extent, seed: u64) -> Measures {
    let mut play = Play::new(Seed(seed), case.liars);
    let had: u64 = (0..case.liars).map(|node| play.left(node)).sum();
    let honest: Vec<usize> = play.honest().collect();
    let sides = honest.split_at(honest.len() / 2);
    if case.lie == Lie::Sides {
        play.world.partition(&[sides.0.to_vec(), sides.1.to_vec()]);
    }
    play.lie(case.lie);
    play.stop_liars();
    let mut found_s = None;
    if case.lie == Lie::Each {
        found_s = play.find();
    }
    play.spend(TIME);
    if case.lie == Lie::Sides {
        play.world.heal_network();
        found_s = play.find();
        play.spend(Millis(TIME.0 / 6));
    }
    let hours = |core_ms: u64| core_ms as f64 / HOUR.0 as f64;
    Measures {
        had: hours(had),
        over: hours(play.spent().saturating_sub(GRANTED * HOUR.0)),
        found_s,
    }
}

/// Over-spent as a part of what the liars had.
fn part(of: &Measures) -> f64 {
    of.over / of.had.max(f64::MIN_POSITIVE)
}

#[rustfmt::skip]
fn table(study: &Study<Case, Measures>) -> Table {
    study.table("liars", "E5: members that lie about rights")
        .case("what liars show", |case| case.name)
        .case("liars", |case| case.liars)
        .mean("they had (core-hours)", 1, |of| of.had)
        .mean("over-spent by the others (core-hours)", 1, |of| of.over)
        .mean("as a part of what they had", 2, part)
        .column("found out by all after (s)", |row| {
            let found: Option<Vec<f64>> = row.runs.iter().map(|of| of.found_s).collect();
            match (row.case.is_contradiction(), found) {
                (false, _) => "-".to_owned(),
                (true, Some(found)) => Mean::of(found).text(2),
                (true, None) => "not by all".to_owned(),
            }
        })
        .done()
}

fn claims(row: &experiment::Row<Case, Measures>) -> Vec<Claim> {
    let worst = row.greatest(part);
    let what = format!("{}, {} of 6", row.case.name, row.case.liars);
    let measured = format!("{worst:.2} times that at worst");
    if !row.case.is_contradiction() {
        return vec![Claim::new(
            format!("{what}: nothing is over-spent"),
            measured,
            worst == 0.0,
        )];
    }
    let latest = row.greatest(|of| of.found_s.unwrap_or(f64::INFINITY));
    vec![
        Claim::new(
            format!("{what}: no more is over-spent than the liars had"),
            measured,
            worst <= 1.0,
        ),
        Claim::new(
            format!("{what}: every honest site knows within a minute of hearing the others"),
            format!("{latest:.2} s at worst"),
            latest <= FOUND_WITHIN.0 as f64 / 1_000.0,
        ),
    ]
}

/// Runs it. Sites are of one size, whatever the divisor.
pub fn run(extent: &Extent) -> Outcome {
    let study = extent.study(CASES, run_case);
    let texts = Texts {
        name: "liars-over-spent",
        title: "E5: what honest sites spend too much where members lie about rights",
        caption: "Six real sites, of which one or two lie; whoever is honest is asked for more than there is. As a part \
                  of the rights that the liars had. Whiskers: 90 % of the mean over the seeds.",
        x_label: "what is shown, and by how many",
        y_label: "over-spent / rights of the liars",
    };
    let names = CASES.map(|case| format!("{}, {}", case.name, case.liars));
    let picture = texts.bars(names, [study.bars("over-spent", part)]);
    Outcome {
        tables: vec![table(&study)],
        figures: vec![picture.against(1.0)],
        claims: study.rows.iter().flat_map(claims).collect(),
    }
}
