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
use super::gruber::{short, upper};
use super::hosts::{HOSTS_MAX, Setup, run};
use super::measure::{Measure, RunMeasures};
use super::site::Faults;
use crate::experiment::{Claim, Outcome, Study, Table, each_with};
use crate::figures::{Figure, Series, Texts};

/// Seconds between two views of a site.
pub const AGES_S: [u64; 5] = [1, 10, 60, 300, 900];

/// At which age least-used must not make a herd.
const HERD_AGE_S: u64 = 300;

const SELECTORS: [Selector; 2] = [Selector::LeastUsed, Selector::Random];
const HOSTS: [usize; 2] = [1, HOSTS_MAX];

/// Submit hosts, who chooses sites, whether groups have at each site only their part, and seconds between views.
type Case = ((usize, Selector, bool), u64);

type Ages = Study<Case, RunMeasures>;

/// What is shown of a row.
type Value = fn(&RunMeasures) -> f64;

const DELAY: Value = |run| Measure::Delay.of(run);
const UTIL: Value = |run| Measure::Util.of(run);
const BEYOND: Value = |run| run.beyond as f64;
const VARIANCE: Value = RunMeasures::load_variance;

const PICTURES: [(&str, &str, Value); 4] = [
    ("staleness-delay", "mean seconds in a site's queue", DELAY),
    ("staleness-util", "Util %", UTIL),
    ("staleness-beyond", "starts beyond a burst limit", BEYOND),
    (
        "staleness-variance",
        "variance of load between sites",
        VARIANCE,
    ),
];

/// Runs all of it.
pub fn study(extent: &Extent) -> Ages {
    let ways = each_with(&HOSTS, &SELECTORS).into_iter();
    let ways = ways.map(|(hosts, selector)| (hosts, selector, false));
    let by_site = (HOSTS_MAX, Selector::LeastUsed, true);
    let ways: Vec<_> = ways.chain([by_site]).collect();
    let cases = each_with(&ways, &AGES_S);
    extent.study(
        cases,
        |&((hosts, selector, by_site), age_s), extent, seed| {
            run(Setup {
                view: Millis::from_secs(age_s),
                sites_enforce: false,
                by_site,
                jobs: extent.jobs,
                ..Setup::new(seed, Faults::Benign, selector, hosts)
            })
        },
    )
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> Outcome {
    let ages = study(extent);
    Outcome {
        tables: vec![table(&ages)],
        figures: figures(&ages),
        claims: claims(&ages),
    }
}

/// All rows, with 90 % intervals.
#[rustfmt::skip]
pub fn table(ages: &Ages) -> Table {
    ages.table("staleness", "Old views")
        .case("hosts", |(way, _)| way.0)
        .case("selector", |(way, _)| upper(&way.1) + if way.2 { " by site" } else { "" })
        .case("views, s", |(_, age_s)| *age_s)
        .mean("Delay s", 1, DELAY)
        .mean("Util %", 2, UTIL)
        .mean("starts beyond", 1, BEYOND)
        .mean("late", 1, |run| run.late() as f64)
        .mean("variance of load", 4, VARIANCE)
        .done()
}

/// Delay, utilisation, starts beyond limits and unevenness against the views' age.
pub fn figures(ages: &Ages) -> Vec<Figure> {
    let line = |(hosts, selector): (usize, Selector), of: Value| {
        let point = |age_s| {
            (
                age_s as f64,
                ages.at(((hosts, selector, false), age_s)).average(of),
            )
        };
        let name = format!("{} {hosts}x1K", upper(&selector));
        Series::new(
            name,
            usize::from(selector == Selector::Random),
            AGES_S.map(point),
        )
    };
    let figure = |(name, y_label, of): (&str, &str, Value)| {
        let texts = Texts {
            name,
            title: &format!("Old views: {y_label}"),
            caption: "A thousand jobs at once from one host and from each of four, benign Grid, sites that do not keep the VO's limits themselves; the mean of all seeds.",
            x_label: "seconds between two views of a site",
            y_label,
        };
        texts.lines(
            each_with(&HOSTS, &SELECTORS)
                .into_iter()
                .map(|way| line(way, of)),
        )
    };
    PICTURES.map(figure).into()
}

/// That a part of each site keeps its limit, and that least-used makes no herd.
pub fn claims(ages: &Ages) -> Vec<Claim> {
    let by_site = ages.rows.iter().filter(|row| row.case.0.2);
    let runs: Vec<&RunMeasures> = by_site.flat_map(|row| &row.runs).collect();
    let beyond: u64 = runs.iter().map(|run| run.beyond).sum();
    let kept = Claim::new(
        "four hosts pass no site's limit where groups have their part of each site, whatever the views' age",
        format!("{beyond} starts beyond it in {} runs", runs.len()),
        beyond == 0,
    );
    let herds = HOSTS.map(|hosts| {
        let variance = |selector| {
            ages.at(((hosts, selector, false), HERD_AGE_S))
                .average(VARIANCE)
        };
        let (lu, ra) = (variance(Selector::LeastUsed), variance(Selector::Random));
        let percent = short(100.0 * lu / ra.max(f64::MIN_POSITIVE));
        let claim = Claim::new(
            format!("LU loads sites no less evenly than RA, views of {HERD_AGE_S} s, {hosts}x1K"),
            format!("variance {lu:.4} against {ra:.4} ({percent} %)"),
            lu <= ra,
        );
        Claim {
            required: hosts == 1,
            ..claim
        }
    });
    std::iter::once(kept).chain(herds).collect()
}
