//! E9: two equal sites, of which one may be used more, and prices that follow load: half of the users submit where it is
//! cheaper at the moment, the others where they are used to.
//!
//! Invariant: fixed prices and those by load have the same jobs; with fixed ones nobody has a reason to go elsewhere.
//! Source: prices that follow load, and the incentive to spread work: Gardfjäll's thesis (Umeå University), sections
//! 3.5 and 3.6.2. The formula is `fairmesh_quota::price`'s.

use fairmesh_cluster::Seed;
use fairmesh_model::{Factor, Millis, QuotaMode};
use fairmesh_quota::price::{LOAD_PRICE_EVERY, LoadPrice, Pricing};

use super::Extent;
use super::field::{FieldMeasures, FieldSpec, Seen, run_watched};
use super::load::Load;
use super::mesh::{Grant, Mesh};
use super::strictness::CORES;
use crate::experiment::{Claim, Outcome, Row, Study, Table, each_with};
use crate::figures::{Figure, Series, Texts};
use simnet::vo::{DAY, HOUR};

/// How long a run is.
const TIME: Millis = Millis(10 * DAY.0);

/// Projects; the users of the second half follow prices.
const PROJECTS: usize = 6;
const FAITHFUL: usize = PROJECTS / 2;

/// No price swings to and fro in less.
const PERIOD_MIN: Millis = HOUR;

/// Who submits where, who does not go by prices.
#[derive(Debug, Clone, Copy)]
struct Used {
    name: &'static str,
    /// Stem of the picture's file.
    file: &'static str,
    /// Jobs as a part of what both sites can run, percent.
    load: u64,
    weights: fn(u64, usize) -> Vec<u32>,
}

#[rustfmt::skip]
const USED: [Used; 3] = [
    used("60 % used to one site, jobs for 80 %", "prices-60", 80, |_, _| vec![60, 40]),
    used("75 % used to one site, jobs for 80 %", "prices-75", 80, |_, _| vec![75, 25]),
    used("half used to each site, jobs for 95 %", "prices-50", 95, |_, _| vec![50, 50]),
];

const fn used(
    name: &'static str,
    file: &'static str,
    load: u64,
    weights: fn(u64, usize) -> Vec<u32>,
) -> Used {
    Used {
        name,
        file,
        load,
        weights,
    }
}

/// Who submits where, and whether prices follow load; else they are fixed.
type Case = (Used, bool);

/// Prices of both sites at a moment.
type Look = (Millis, [f64; 2]);

struct Measures {
    end: FieldMeasures,
    looks: Vec<Look>,
    /// Times from one moment at which the first site became the dearer one to the next.
    periods: Vec<Millis>,
}

impl Measures {
    /// Charged for what was run, of some projects: what a core-hour cost on average.
    fn paid(&self, projects: std::ops::Range<usize>) -> f64 {
        let of = &self.end.projects[projects];
        let used: u128 = of.iter().map(|of| of.spent.used).sum();
        let delivered: u64 = of.iter().map(|of| of.delivered).sum();
        used as f64 / delivered.max(1) as f64
    }

    fn shortest_h(&self) -> f64 {
        let shortest = self.periods.iter().min();
        shortest.map_or(f64::INFINITY, |period| period.0 as f64 / HOUR.0 as f64)
    }

    /// Between the dearer and the cheaper site, on average.
    fn gap(&self) -> f64 {
        let gaps = self
            .looks
            .iter()
            .map(|(_, prices)| (prices[0] - prices[1]).abs());
        gaps.sum::<f64>() / self.looks.len().max(1) as f64
    }
}

/// From a swing to the next like it: the first site becomes the dearer one, having been the cheaper one before.
fn periods(looks: &[Look]) -> Vec<Millis> {
    let (mut was_cheaper, mut last, mut periods) = (false, None, Vec::new());
    for (at, [first, second]) in looks {
        if first < second {
            was_cheaper = true;
        } else if first > second && was_cheaper {
            was_cheaper = false;
            periods.extend(last.map(|last: Millis| Millis(at.0 - last.0)));
            last = Some(*at);
        }
    }
    periods
}

fn run_case(&(used, by_load): &Case, extent: &Extent, seed: u64) -> Measures {
    let cores = CORES / extent.divisor;
    let hours = 2 * cores * TIME.0 / HOUR.0 * used.load / 100 / PROJECTS as u64;
    // At twice the usual price it would do, too.
    let grant = Grant::whole(3 * hours * HOUR.0, TIME, QuotaMode::Strict);
    let load = |project| Load {
        weights: used.weights,
        follows_price: project >= FAITHFUL,
        ..Load::even(hours, TIME)
    };
    let loads = (0..PROJECTS).map(load).collect();
    let spec = FieldSpec {
        pricing: match by_load {
            true => Pricing::Load(LoadPrice::default()),
            false => Pricing::Fixed,
        },
        ..FieldSpec::new(2, u32::try_from(cores).expect("few"), loads, TIME)
    };
    let mut mesh = Mesh::new(&vec![grant; PROJECTS], &[CORES; 2]);
    let mut looks = Vec::new();
    let price = |factor: &Factor| f64::from(factor.millionths()) / f64::from(Factor::UNITS);
    let mut look = |seen: &Seen<'_, Mesh>| {
        looks.push((seen.at, [price(&seen.prices[0]), price(&seen.prices[1])]));
    };
    let every = Millis(LOAD_PRICE_EVERY.0 / 3);
    let end = run_watched(&spec, Seed(seed), &mut mesh, (every, &mut look));
    let periods = periods(&looks);
    Measures {
        end,
        looks,
        periods,
    }
}

fn wait_min(of: &Measures) -> f64 {
    of.end.mean_wait_s(|_| true) / 60.0
}

fn utilisation(of: &Measures) -> f64 {
    of.end.utilisation()
}

type Pairs = Study<Case, Measures>;
type Pricings = Row<Case, Measures>;

#[rustfmt::skip]
fn table(pairs: &Pairs) -> Table {
    pairs.table("prices", "E9: half of the users go where it is cheaper")
        .case("users and jobs", |(used, _)| used.name)
        .case("prices", |(_, by_load)| if *by_load { "by load" } else { "fixed" })
        .mean("cores in use (%)", 1, utilisation)
        .mean("mean wait (min)", 1, wait_min)
        .mean("mean wait of those who do not follow (min)", 1, |of| of.end.mean_wait_s(|project| project < FAITHFUL) / 60.0)
        .mean("paid for a core-hour, following", 3, |of| of.paid(FAITHFUL..PROJECTS))
        .mean("not following", 3, |of| of.paid(0..FAITHFUL))
        .mean("between both prices", 3, Measures::gap)
        .mean("swings per day", 1, |of| of.periods.len() as f64 / (TIME.0 / DAY.0) as f64)
        .column("shortest swing (h)", |row| match row.least(Measures::shortest_h) {
            shortest if shortest.is_finite() => format!("{shortest:.2}"),
            _ => "none".to_owned(),
        })
        .done()
}

/// Two days of prices of the first seed.
fn picture(by_load: &Pricings) -> Figure {
    let (used, looks) = (by_load.case.0, &by_load.runs[0].looks);
    let shown = looks.iter();
    let shown = shown.filter(|(at, _)| DAY.times(4) <= *at && *at <= DAY.times(6));
    let line = |(site, name)| {
        let point = |(at, prices): &Look| (at.0 as f64 / DAY.0 as f64, prices[site]);
        Series::new(name, site, shown.clone().map(point))
    };
    let texts = Texts {
        name: used.file,
        title: &format!("E9: prices by load, {}", used.name),
        caption: "Two sites of the same size; half of the users submit where it is cheaper at the moment, the others \
                  where they are used to. One seed.",
        x_label: "days",
        y_label: "price",
    };
    texts.lines([(0, "the first site"), (1, "the second")].map(line))
}

/// What must hold of a load: fixed prices, and those by load.
fn claims(fixed: &Pricings, by_load: &Pricings) -> [Claim; 3] {
    let pair = |value: fn(&Measures) -> f64| [fixed, by_load].map(|row| row.average(value));
    let ([run, run_by_load], [wait, wait_by_load]) = (pair(utilisation), pair(wait_min));
    let shortest = by_load.least(Measures::shortest_h);
    let least_h = PERIOD_MIN.0 as f64 / HOUR.0 as f64;
    let name = fixed.case.0.name;
    [
        Claim::new(
            format!("{name}: with prices by load no less is run"),
            format!("{run_by_load:.1} %, fixed {run:.1} %"),
            run_by_load >= run,
        ),
        Claim::new(
            format!("{name}: with prices by load jobs wait less"),
            format!("{wait_by_load:.1} min, fixed {wait:.1} min"),
            wait_by_load < wait,
        ),
        Claim::new(
            format!("{name}: no price swings to and fro in less than an hour, with any seed"),
            format!("{shortest:.2} h at least"),
            shortest >= least_h,
        ),
    ]
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let pairs = extent.study(each_with(&USED, &[false, true]), run_case);
    let of_load = || pairs.rows.chunks(2);
    Outcome {
        tables: vec![table(&pairs)],
        figures: of_load().map(|pair| picture(&pair[1])).collect(),
        claims: of_load()
            .flat_map(|pair| claims(&pair[0], &pair[1]))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swing_lasts_until_the_next_like_it() {
        let looks = |firsts: &[f64]| -> Vec<Look> {
            let looks = (0..).zip(firsts);
            looks
                .map(|(at, first)| (Millis(at), [*first, 1.0]))
                .collect()
        };
        assert_eq!(periods(&looks(&[1.1, 1.0, 1.1, 1.0, 1.1])), []);
        assert_eq!(
            periods(&looks(&[0.9, 1.1, 1.0, 0.9, 1.1, 1.1, 0.9, 1.1])),
            [Millis(3), Millis(3)]
        );
    }
}
