//! E2: half of the projects save their credit until the tenth month of a year has passed, and then want all of it.
//! Slices take back what can no longer be run: the more of them, the less can come at once.
//!
//! Three projects ask evenly for all that they were granted. Three others are idle for ten months and ask in the last
//! two for as much as they were granted for the year; what the live slices do not cover is refused.
//!
//! Invariant: all ways to cut a grant have the same load. The imbalance is `fairmesh_quota::fit`'s, of what the
//! ledgers say can still be held.
//! Source: Gardfjäll's thesis (Umeå University), sections 3.4.3 and 3.6.1.

use fairmesh_cluster::Seed;
use fairmesh_model::{AllocationSlice, CoreMillis, Factor, Millis, QuotaMode, Share};
use fairmesh_quota::fit::{Capacity, imbalance};
use fairmesh_quota::slices::{Period, expiring, windows};

use super::Extent;
use super::field::{FieldMeasures, FieldSpec, Seen, run_watched};
use super::load::Load;
use super::mesh::{Grant, Mesh};
use super::strictness::{CORES, SITES};
use crate::experiment::{Claim, Outcome, Row, Study, Table, each_with, listed};
use crate::figures::{Figure, Series, Texts};
use simnet::vo::{DAY, HOUR, START};

/// Twelve months.
const YEAR: Millis = Millis(360 * DAY.0);

/// Looks at the Grid in a year. Shortly before the end little time is left for anything, and the last does not count.
const LOOKS: u64 = 144;

/// Projects; the second half of them saves.
const PROJECTS: usize = 6;
const STEADY: usize = PROJECTS / 2;

/// Of the capacity, what is granted, and what the imbalance aims at.
const GRANTED_PERCENT: u32 = 90;

/// Ways to cut a grant, which are the same where there is one slice.
const WINDOWS: usize = 0;
const EXPIRING: usize = 1;

type Cut = fn(CoreMillis, Period) -> Vec<AllocationSlice>;
const KINDS: [(&str, Cut); 2] = [("windows", windows), ("expiring", expiring)];

/// Beside one.
const SLICES: [u32; 3] = [4, 12, 52];

/// How a grant is cut, and into how many slices.
type Case = (usize, u32);

fn name((kind, slices): &Case) -> String {
    format!("{slices} {}", KINDS[*kind].0)
}

/// A look at a run.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Millis,
    imbalance: f64,
    /// Mean wait of jobs that have started since the last look: of those who ask evenly, hours. None: not a number.
    wait_h: f64,
}

struct Measures {
    looks: Vec<Look>,
    end: FieldMeasures,
}

impl Measures {
    fn peak(&self, of: fn(&Look) -> f64) -> f64 {
        self.looks.iter().map(of).fold(0.0, f64::max)
    }

    /// The imbalance when ten months have passed.
    fn at_month_10(&self) -> f64 {
        let at = usize::try_from(LOOKS * 10 / 12).expect("few");
        self.looks[at].imbalance
    }

    fn peak_of_imbalance(&self) -> f64 {
        self.peak(|look| look.imbalance)
    }

    fn peak_of_waits(&self) -> f64 {
        self.peak(|look| look.wait_h)
    }

    /// Percent of all jobs.
    fn refused(&self) -> f64 {
        let refused = self.end.asked(|asked| asked.refused) as f64;
        100.0 * refused / self.end.asked(|asked| asked.all).max(1) as f64
    }

    /// What was delivered to some projects, percent of what they were granted.
    fn delivered(&self, projects: std::ops::Range<usize>) -> f64 {
        let of = &self.end.projects[projects];
        let delivered: u64 = of.iter().map(|of| of.delivered).sum();
        let granted: u128 = of.iter().map(|of| of.spent.granted).sum();
        100.0 * delivered as f64 / granted.max(1) as f64
    }
}

fn run_case(&(kind, slices): &Case, year: Millis, extent: &Extent, seed: u64) -> Measures {
    let month_10 = Millis(year.0 / 12 * 10);
    let cores = CORES / extent.divisor;
    let capacity = Capacity {
        cores: cores * SITES as u64,
        utilisation: Share::from_percent(GRANTED_PERCENT).expect("at most 100"),
    };
    let all = u64::try_from(capacity.core_ms(year)).expect("core-milliseconds of a year");
    let amount = all / PROJECTS as u64;
    let period = Period {
        from: START,
        until: START.after(year),
        slices,
        grace: Millis(0),
    };
    let grant = Grant {
        slices: KINDS[kind].1(CoreMillis(amount), period),
        ..Grant::whole(amount, year, QuotaMode::Strict)
    };
    let load = |project: usize| match project < STEADY {
        true => Load::even(amount / HOUR.0, year),
        false => Load {
            from: month_10,
            until: year,
            ..Load::even(amount / HOUR.0, Millis(year.0 - month_10.0))
        },
    };
    let loads = (0..PROJECTS).map(load).collect();
    let spec = FieldSpec::new(SITES, u32::try_from(cores).expect("few"), loads, year);
    let mut mesh = Mesh::new(&vec![grant; PROJECTS], &[CORES; SITES]);
    let (mut looks, mut before) = (Vec::new(), (0, 0));
    let mut look = |seen: &Seen<'_, Mesh>| {
        let steady = seen.measures.projects[..STEADY].iter();
        let waited = steady.fold((0, 0), |sum, of| (sum.0 + of.waited.0, sum.1 + of.waited.1));
        let (time, jobs) = (waited.0 - before.0, waited.1 - before.1);
        before = waited;
        let now = START.after(seen.at);
        let millionths = imbalance(seen.credit.unspent(), capacity, now, START.after(year));
        looks.push(Look {
            at: seen.at,
            imbalance: millionths as f64 / f64::from(Factor::UNITS),
            wait_h: time as f64 / jobs as f64 / HOUR.0 as f64,
        });
    };
    let every = Millis(year.0 / LOOKS);
    let end = run_watched(&spec, Seed(seed), &mut mesh, (every, &mut look));
    looks.pop();
    Measures { looks, end }
}

type Ways = Study<Case, Measures>;

#[rustfmt::skip]
fn table(ways: &Ways) -> Table {
    ways.table("hoarding", "E2: half of the projects save until month 10 has passed")
        .case("slices", name)
        .mean("imbalance after month 10", 2, Measures::at_month_10)
        .mean("peak of the imbalance", 2, Measures::peak_of_imbalance)
        .mean("peak of waits (h)", 1, Measures::peak_of_waits)
        .mean("delivered to those who ask evenly (% of grants)", 1, |of| of.delivered(0..STEADY))
        .mean("delivered to those who save (% of grants)", 1, |of| of.delivered(STEADY..PROJECTS))
        .mean("jobs refused (%)", 1, Measures::refused)
        .done()
}

fn picture(
    ways: &Ways,
    (file, what, y_label): (&str, &str, &str),
    value: fn(&Look) -> f64,
) -> Figure {
    let more = ways.rows.len() / 2;
    let line = |(at, row): (usize, &Row<Case, Measures>)| {
        let looks = row.runs[0].looks.iter().enumerate();
        let points = looks.map(|(look, first)| {
            let days = first.at.0 as f64 / DAY.0 as f64;
            (days, row.average(|of| value(&of.looks[look])))
        });
        Series::new(name(&row.case), at - row.case.0 * more, points)
    };
    let texts = Texts {
        name: &format!("hoarding-{file}"),
        title: &format!("E2: {what}"),
        caption: "Six sites and six projects, of which three save their credit until day 300 and then ask for all \
                  of the year's; 90 % of what the sites can run is granted. Means over the seeds.",
        x_label: "days",
        y_label,
    };
    texts.lines(ways.rows.iter().enumerate().map(line))
}

/// What must hold of one way to cut, by the number of slices.
fn claims(ways: &Ways, kind: usize) -> [Claim; 3] {
    let rows = ways.rows.iter();
    let rows = rows.filter(|row| row.case.1 == 1 || row.case.0 == kind);
    let rows: Vec<_> = rows.collect();
    let numbers = |rows: &[&Row<Case, Measures>]| {
        let numbers: Vec<String> = rows.iter().map(|row| row.case.1.to_string()).collect();
        numbers.join(", ")
    };
    let (all, more, kind) = (numbers(&rows), numbers(&rows[1..]), KINDS[kind].0);
    let means = |value: fn(&Measures) -> f64| -> Vec<f64> {
        rows.iter().map(|row| row.average(value)).collect()
    };
    let falls = |of: &[f64]| of.windows(2).all(|pair| pair[0] > pair[1]);
    let text = |of: &[f64]| listed(of, |peak| format!("{peak:.2}"));
    let imbalances = means(Measures::peak_of_imbalance);
    let waits = means(Measures::peak_of_waits);
    let most = means(|of| of.peak_of_imbalance() / of.looks[0].imbalance.max(1.0));
    let most = &most[1..];
    [
        Claim::new(
            format!("{kind}: the peak of the imbalance falls as slices grow in number ({all})"),
            text(&imbalances),
            falls(&imbalances),
        ),
        Claim::new(
            format!("{kind}: the peak of waits falls as slices grow in number ({all})"),
            format!("{} h", text(&waits)),
            falls(&waits),
        ),
        Claim::new(
            format!(
                "{kind}: with slices the imbalance is never above that of the beginning, or 1 ({more})"
            ),
            format!("{} times that", text(most)),
            most.iter().all(|most| *most <= 1.0),
        ),
    ]
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    run_of(extent, &SLICES, YEAR)
}

/// Runs it with one slice and with these numbers of slices, in a year of another length.
pub fn run_of(extent: &Extent, numbers: &[u32], year: Millis) -> Outcome {
    let cases = [vec![(WINDOWS, 1)], each_with(&[WINDOWS, EXPIRING], numbers)];
    let run_case = |case: &Case, extent: &Extent, seed| run_case(case, year, extent, seed);
    let ways = extent.study(cases.concat(), run_case);
    let whole = ways.rows[0].mean(Measures::at_month_10);
    let twice = Claim::new(
        "one slice: after month 10 twice as much is to be spent as can be run, at least",
        whole.text(2),
        whole.mean >= 2.0,
    );
    let imbalance = (
        "imbalance",
        "what is to be spent until the end, over what can be run",
        "imbalance",
    );
    let waits = ("waits", "waits of those who ask evenly", "mean wait (h)");
    Outcome {
        tables: vec![table(&ways)],
        figures: vec![
            picture(&ways, imbalance, |look| look.imbalance),
            picture(&ways, waits, |look| look.wait_h),
        ],
        claims: [
            &[twice][..],
            &claims(&ways, WINDOWS),
            &claims(&ways, EXPIRING),
        ]
        .concat(),
    }
}
