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
use crate::experiment::{Claim, Mean, Outcome, Table, each};
use crate::figures::{Figure, Series};
use crate::vo::{DAY, HOUR, START};

/// Twelve months.
const YEAR: Millis = Millis(360 * DAY.0);

/// Looks at the Grid in a year. Shortly before the end little time is left for anything, and the last does not count.
const LOOKS: u64 = 144;

/// Projects; the second half of them saves.
const PROJECTS: usize = 6;
const STEADY: usize = PROJECTS / 2;

/// Of the capacity, what is granted, and what the imbalance aims at.
const GRANTED_PERCENT: u32 = 90;

/// How a grant is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    is_expiring: bool,
    slices: u32,
}

/// Beside one.
const SLICES: [u32; 3] = [4, 12, 52];

impl Case {
    /// One slice, and more of both kinds, which are the same where there is one.
    fn all(more: &[u32]) -> Vec<Self> {
        let of = |is_expiring| {
            move |slices: &u32| Self {
                is_expiring,
                slices: *slices,
            }
        };
        let windows = more.iter().map(of(false));
        let one = of(false)(&1);
        [one]
            .into_iter()
            .chain(windows)
            .chain(more.iter().map(of(true)))
            .collect()
    }

    fn cut(self, amount: u64, year: Millis) -> Vec<AllocationSlice> {
        let period = Period {
            from: START,
            until: START.after(year),
            slices: self.slices,
            grace: Millis(0),
        };
        let cut = if self.is_expiring { expiring } else { windows };
        cut(CoreMillis(amount), period)
    }

    fn name(self) -> String {
        let kind = if self.is_expiring {
            "expiring"
        } else {
            "windows"
        };
        format!("{} {kind}", self.slices)
    }
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

    /// What was delivered to some projects, percent of what they were granted.
    fn delivered(&self, projects: std::ops::Range<usize>) -> f64 {
        let of = &self.end.projects[projects];
        let delivered: u64 = of.iter().map(|of| of.delivered).sum();
        let granted: u128 = of.iter().map(|of| of.spent.granted).sum();
        100.0 * delivered as f64 / granted.max(1) as f64
    }
}

fn run_case(case: Case, year: Millis, extent: &Extent, seed: u64) -> Measures {
    let month_10 = Millis(year.0 / 12 * 10);
    let cores = CORES / extent.divisor;
    let capacity = Capacity {
        cores: cores * SITES as u64,
        utilisation: Share::from_percent(GRANTED_PERCENT).expect("at most 100"),
    };
    let all = u64::try_from(capacity.core_ms(year)).expect("core-milliseconds of a year");
    let amount = all / PROJECTS as u64;
    let grant = Grant {
        slices: case.cut(amount, year),
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
    let end = run_watched(
        &spec,
        Seed(seed),
        &mut mesh,
        (Millis(year.0 / LOOKS), &mut look),
    );
    looks.pop();
    Measures { looks, end }
}

struct Rows {
    cases: Vec<Case>,
    of: Vec<Vec<Measures>>,
}

impl Rows {
    fn mean(&self, case: usize, value: impl Fn(&Measures) -> f64) -> Mean {
        Mean::of(self.of[case].iter().map(value))
    }

    fn table(&self) -> Table {
        let columns = [
            "slices",
            "imbalance after month 10",
            "peak of the imbalance",
            "peak of waits (h)",
            "delivered to those who ask evenly (% of grants)",
            "delivered to those who save (% of grants)",
            "jobs refused (%)",
        ];
        let mut table = Table::new(
            "hoarding",
            "E2: half of the projects save until month 10 has passed",
            columns,
        );
        for (at, case) in self.cases.iter().enumerate() {
            let refused = |of: &Measures| {
                let refused = of.end.asked(|asked| asked.refused) as f64;
                100.0 * refused / of.end.asked(|asked| asked.all).max(1) as f64
            };
            table.row([
                case.name(),
                self.mean(at, Measures::at_month_10).text(2),
                self.mean(at, |of| of.peak(|look| look.imbalance)).text(2),
                self.mean(at, |of| of.peak(|look| look.wait_h)).text(1),
                self.mean(at, |of| of.delivered(0..STEADY)).text(1),
                self.mean(at, |of| of.delivered(STEADY..PROJECTS)).text(1),
                self.mean(at, refused).text(1),
            ]);
        }
        table
    }

    fn picture(&self, name: &str, what: &str, y_label: &str, value: fn(&Look) -> f64) -> Figure {
        let line = |(at, case): (usize, &Case)| Series {
            name: case.name(),
            points: (0..self.of[at][0].looks.len())
                .map(|look| {
                    let days = self.of[at][0].looks[look].at.0 as f64 / DAY.0 as f64;
                    (days, self.mean(at, |of| value(&of.looks[look])).mean)
                })
                .collect(),
            target: None,
            colour_group: match case.is_expiring {
                true => at - self.cases.len() / 2,
                false => at,
            },
        };
        Figure {
            name: format!("hoarding-{name}"),
            title: format!("E2: {what}"),
            caption: "Six sites and six projects, of which three save their credit until day 300 and then ask for all \
                      of the year's; 90 % of what the sites can run is granted. Means over the seeds."
                .to_owned(),
            x_label: "days".to_owned(),
            y_label: y_label.to_owned(),
            y_range: None,
            series: self.cases.iter().enumerate().map(line).collect(),
        }
    }

    /// What must hold of one way to cut, by the number of slices.
    fn claims(&self, is_expiring: bool) -> Vec<Claim> {
        let kind = if is_expiring { "expiring" } else { "windows" };
        let all = self.cases.iter().enumerate();
        let of_kind = all.filter(|(_, case)| case.slices == 1 || case.is_expiring == is_expiring);
        let cases: Vec<usize> = of_kind.map(|(at, _)| at).collect();
        let numbers = |of: &[usize]| {
            let of = of.iter().map(|case| self.cases[*case].slices.to_string());
            of.collect::<Vec<_>>().join(", ")
        };
        let (all, more) = (numbers(&cases), numbers(&cases[1..]));
        let peaks = |value: fn(&Look) -> f64| -> Vec<f64> {
            let peak = |case: &usize| self.mean(*case, |of| of.peak(value)).mean;
            cases.iter().map(peak).collect()
        };
        let falls = |of: &[f64]| of.windows(2).all(|pair| pair[0] > pair[1]);
        let text = |of: &[f64]| {
            of.iter()
                .map(|peak| format!("{peak:.2}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (imbalances, waits) = (peaks(|look| look.imbalance), peaks(|look| look.wait_h));
        let most = cases[1..].iter().map(|case| {
            let most =
                |of: &Measures| of.peak(|look| look.imbalance) / of.looks[0].imbalance.max(1.0);
            self.mean(*case, most).mean
        });
        let most: Vec<f64> = most.collect();
        vec![
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
                format!("{} times that", text(&most)),
                most.iter().all(|most| *most <= 1.0),
            ),
        ]
    }
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    run_of(extent, &SLICES, YEAR)
}

/// Runs it with one slice and with these numbers of slices, in a year of another length.
pub fn run_of(extent: &Extent, numbers: &[u32], year: Millis) -> Outcome {
    let cases = Case::all(numbers);
    let of = each(extent.threads, &extent.seeds, &cases, |case, seed| {
        run_case(*case, year, extent, seed)
    });
    let rows = Rows { cases, of };
    let whole = rows.mean(0, Measures::at_month_10);
    let mut claims = vec![Claim::new(
        "one slice: after month 10 twice as much is to be spent as can be run, at least",
        whole.text(2),
        whole.mean >= 2.0,
    )];
    claims.extend(
        [false, true]
            .into_iter()
            .flat_map(|is_expiring| rows.claims(is_expiring)),
    );
    let lines = vec![
        rows.picture(
            "imbalance",
            "what is to be spent until the end, over what can be run",
            "imbalance",
            |look| look.imbalance,
        ),
        rows.picture(
            "waits",
            "waits of those who ask evenly",
            "mean wait (h)",
            |look| look.wait_h,
        ),
    ];
    Outcome {
        tables: vec![rows.table()],
        lines,
        claims,
        ..Outcome::default()
    }
}
