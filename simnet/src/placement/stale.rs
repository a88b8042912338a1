//! Views of different ages: what old knowledge costs, and whether it makes a herd.
//!
//! Here sites do not keep the VO's burst limit themselves, so that every start beyond it is one that the broker let
//! happen.
//!
//! The last rows are those of groups that have at each site only their part of what the VO may have there.
//!
//! Invariant: a row differs from the next in the views' age alone.

use fairmesh_broker::Selector;
use fairmesh_model::Millis;

use super::Extent;
use super::gruber::short;
use super::hosts::{HOSTS_MAX, Setup, run};
use super::measure::{Measure, RunMeasures};
use super::site::Faults;
use crate::experiment::{Claim, Mean, Outcome, Table, each, mean};
use crate::figures::{Figure, Series};

/// Seconds between two views of a site.
pub const AGES_S: [u64; 5] = [1, 10, 60, 300, 900];

/// At which age least-used must not make a herd.
const HERD_AGE_S: u64 = 300;

const SELECTORS: [Selector; 2] = [Selector::LeastUsed, Selector::Random];
const HOSTS: [usize; 2] = [1, HOSTS_MAX];

/// Runs of one selector, number of hosts and age.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    hosts: usize,
    selector: Selector,
    by_site: bool,
    age_s: u64,
    runs: Vec<RunMeasures>,
}

/// What is shown of a row.
type Value = fn(&RunMeasures) -> f64;

const VALUES: [(&str, &str, Value); 4] = [
    ("staleness-delay", "mean seconds in a site's queue", |run| {
        Measure::Delay.of(run)
    }),
    ("staleness-util", "Util %", |run| Measure::Util.of(run)),
    ("staleness-beyond", "starts beyond a burst limit", |run| {
        run.beyond as f64
    }),
    (
        "staleness-variance",
        "variance of load between sites",
        RunMeasures::load_variance,
    ),
];

/// Runs all of it.
pub fn rows(extent: &Extent) -> Vec<Row> {
    let mut keys = Vec::new();
    for hosts in HOSTS {
        for selector in SELECTORS {
            keys.extend(AGES_S.map(|age_s| (hosts, selector, false, age_s)));
        }
    }
    keys.extend(AGES_S.map(|age_s| (HOSTS_MAX, Selector::LeastUsed, true, age_s)));
    let runs = each(
        extent.threads,
        &extent.seeds,
        &keys,
        |(hosts, selector, by_site, age_s), seed| {
            run(Setup {
                view: Millis::from_secs(*age_s),
                sites_enforce: false,
                by_site: *by_site,
                jobs: extent.jobs,
                ..Setup::new(seed, Faults::Benign, *selector, *hosts)
            })
        },
    );
    let row = |((hosts, selector, by_site, age_s), runs)| Row {
        hosts,
        selector,
        by_site,
        age_s,
        runs,
    };
    keys.into_iter().zip(runs).map(row).collect()
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> Outcome {
    let rows = rows(extent);
    Outcome {
        tables: vec![table(&rows)],
        lines: figures(&rows),
        claims: claims(&rows),
        ..Outcome::default()
    }
}

impl Row {
    /// Its runs.
    pub fn runs(&self) -> &[RunMeasures] {
        &self.runs
    }

    fn named(&self) -> String {
        let by_site = if self.by_site { " by site" } else { "" };
        format!("{}{by_site}", self.selector.to_string().to_uppercase())
    }

    fn values(&self, of: Value) -> Vec<f64> {
        self.runs.iter().map(of).collect()
    }
}

/// All rows, with 90 % intervals.
pub fn table(rows: &[Row]) -> Table {
    let head = [
        "hosts",
        "selector",
        "views, s",
        "Delay s",
        "Util %",
        "starts beyond",
        "late",
        "variance of load",
    ];
    let mut table = Table::new("staleness", "Old views", head);
    for row in rows {
        let cell = |of: Value, decimals: usize| Mean::of(row.values(of)).text(decimals);
        table.row([
            row.hosts.to_string(),
            row.named(),
            row.age_s.to_string(),
            cell(VALUES[0].2, 1),
            cell(VALUES[1].2, 2),
            cell(VALUES[2].2, 1),
            cell(|run| run.late() as f64, 1),
            cell(VALUES[3].2, 4),
        ]);
    }
    table
}

/// Delay, utilisation, starts beyond limits and unevenness against the views' age.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let series = |hosts: usize, selector: Selector, of: Value| Series {
        name: format!("{} {hosts}x1K", selector.to_string().to_uppercase()),
        points: rows
            .iter()
            .filter(|row| (row.hosts, row.selector, row.by_site) == (hosts, selector, false))
            .map(|row| (row.age_s as f64, mean(&row.values(of))))
            .collect(),
        target: None,
        colour_group: usize::from(selector == Selector::Random),
    };
    VALUES.into_iter().map(|(name, y_label, of)| Figure {
        name: name.to_owned(),
        title: format!("Old views: {y_label}"),
        caption: "A thousand jobs at once from one host and from each of four, benign Grid, sites that do not keep the VO's limits themselves; the mean of all seeds.".to_owned(),
        x_label: "seconds between two views of a site".to_owned(),
        y_label: y_label.to_owned(),
        y_range: None,
        series: HOSTS.into_iter().flat_map(|hosts| SELECTORS.map(|selector| series(hosts, selector, of))).collect(),
    }).collect()
}

/// That a part of each site keeps its limit, and that least-used makes no herd.
pub fn claims(rows: &[Row]) -> Vec<Claim> {
    let by_site = rows.iter().filter(|row| row.by_site);
    let runs: Vec<&RunMeasures> = by_site.flat_map(|row| &row.runs).collect();
    let beyond: u64 = runs.iter().map(|run| run.beyond).sum();
    let kept = Claim::new(
        "four hosts pass no site's limit where groups have their part of each site, whatever the views' age",
        format!("{beyond} starts beyond it in {} runs", runs.len()),
        beyond == 0,
    );
    let herds = HOSTS.into_iter().map(|hosts| {
        let of = |selector: Selector| {
            let row = rows.iter().find(|row| {
                (row.hosts, row.selector, row.age_s) == (hosts, selector, HERD_AGE_S)
                    && !row.by_site
            });
            mean(&row.expect("it was run").values(RunMeasures::load_variance))
        };
        let (lu, ra) = (of(Selector::LeastUsed), of(Selector::Random));
        let what =
            format!("LU loads sites no less evenly than RA, views of {HERD_AGE_S} s, {hosts}x1K");
        let numbers = format!(
            "variance {lu:.4} against {ra:.4} ({} %)",
            short(100.0 * lu / ra.max(f64::MIN_POSITIVE))
        );
        match hosts {
            1 => Claim::new(what, numbers, lu <= ra),
            _ => Claim::watched(what, numbers, lu <= ra),
        }
    });
    std::iter::once(kept).chain(herds).collect()
}
