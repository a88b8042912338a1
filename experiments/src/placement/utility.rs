//! Vasques' experiment: partial utility (PU), one option a requirement (BU), and all or nothing (MM).
//!
//! Whatever chose a class, it is valued by equation 1 with all options: what the user gets, not what the matching
//! thinks of itself. Jobs that were refused are worth nothing.
//!
//! Invariant: all ways meet the same draws, so differences are taken in pairs.
//! Source: Vasques (draft), equations 1 to 6 and its evaluation.

use fairmesh_broker::forward::Failure;
use fairmesh_broker::utility::{Matching, ONE};
use fairmesh_cluster::Seed;
use fairmesh_model::Millis;

use super::Extent;
use super::clusters::{Fate, Fates, Rules, run};
use super::wishes::{Drawn, USERS};
use crate::experiment::{Claim, Mean, Outcome, Row, Study, Table, deviation, mean};
use crate::figures::{Bars, Figure, Texts};

/// Ways of choosing, with and without forwarding.
const WAYS: [(&str, Matching, bool); 6] = [
    ("PU", Matching::Partial, true),
    ("BU", Matching::Binary, true),
    ("MM", Matching::All, true),
    ("PU alone", Matching::Partial, false),
    ("BU alone", Matching::Binary, false),
    ("MM alone", Matching::All, false),
];

/// Percent of all cores that the jobs ask for while they come, and the unit of gaps.
type Load = (u64, &'static str, Millis);
const LOADS: [Load; 4] = [
    (30, "30 %, seconds", Millis(1_000)),
    (120, "120 %, seconds", Millis(1_000)),
    (30, "30 %, minutes", Millis(60_000)),
    (120, "120 %, minutes", Millis(60_000)),
];

/// Percent of the jobs that may be lost for want of hops.
const LOST_MAX: f64 = 1.0;

/// What is measured of one run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measures {
    /// Equation 2: jobs completed of those submitted, percent, in the mean of the users.
    pub success: f64,
    /// Mean utility; refused jobs are worth 0.
    pub utility: f64,
    /// Of completed jobs only.
    pub utility_completed: f64,
    /// Equation 3 as printed: it falls where utility rises.
    pub eq3_as_printed: f64,
    /// Equation 4: from submission to assignment, seconds.
    pub submission_s: f64,
    /// Equation 5 as a formula: from assignment to the end.
    pub execution_s: f64,
    /// Equation 5 by its text: from submission to the end.
    pub total_s: f64,
    /// Equation 6: 1 less the deviation of load between resources over its mean.
    pub balance: f64,
    /// Jobs that had no hops left, percent.
    pub lost: f64,
    /// Jobs that nothing was met for, percent.
    pub refused: f64,
    /// Jobs that were sent on, of all, percent.
    pub forwards: f64,
    /// Tellings a job.
    pub told: f64,
}

type Value = fn(&Measures) -> f64;

const VALUES: [(&str, Value); 12] = [
    ("success %", |of| of.success),
    ("utility", |of| of.utility),
    ("utility, completed only", |of| of.utility_completed),
    ("eq3_as_printed", |of| of.eq3_as_printed),
    ("submission s", |of| of.submission_s),
    ("execution s, formula", |of| of.execution_s),
    ("execution s, text", |of| of.total_s),
    ("balance", |of| of.balance),
    ("lost %", |of| of.lost),
    ("refused %", |of| of.refused),
    ("sent on %", |of| of.forwards),
    ("tellings a job", |of| of.told),
];

/// One way under one load, or one setting of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    load: Load,
    way: String,
    rules: Rules,
}

type Ways = Study<Case, Measures>;
type Way = Row<Case, Measures>;

impl Measures {
    /// Of what became of the jobs.
    pub fn of(drawn: &Drawn, fates: &Fates) -> Self {
        let mut users = vec![User::default(); USERS];
        let (mut lost, mut refused) = (0, 0);
        for (job, fate) in drawn.jobs.iter().zip(&fates.jobs) {
            let user = &mut users[job.user];
            user.jobs += 1.0;
            match fate.expect("the run went to its end") {
                // Nobody is silent here, so none is in doubt.
                Fate::Failed(Failure::TooFar | Failure::InDoubt) => lost += 1,
                Fate::Failed(Failure::Nowhere) => refused += 1,
                Fate::Ran {
                    cluster,
                    resource,
                    assigned,
                    ended,
                } => {
                    let class = &drawn.clusters[cluster][resource];
                    let worth = job.wishes.utility(class, Matching::Partial, false);
                    let worth = worth.map_or(0, |worth| worth.millionths);
                    user.utility += f64::from(worth) / f64::from(ONE);
                    user.completed += 1.0;
                    user.submission += seconds(assigned.0 - job.at.0);
                    user.execution += seconds(ended.0 - assigned.0);
                }
            }
        }
        // Of users, and those without a completed job have no times.
        let of_users =
            |value: &dyn Fn(&User) -> f64| mean(&users.iter().map(value).collect::<Vec<_>>());
        let served: Vec<User> = users
            .iter()
            .copied()
            .filter(|user| user.completed > 0.0)
            .collect();
        let of_served = |value: &dyn Fn(&User) -> f64| {
            let each = served.iter().map(|user| value(user) / user.completed);
            mean(&each.collect::<Vec<_>>())
        };
        let percent = |part: f64| 100.0 * part / drawn.jobs.len() as f64;
        let utility = of_users(&|user| user.utility / user.jobs);
        Self {
            success: of_users(&|user| 100.0 * user.completed / user.jobs),
            utility,
            utility_completed: of_served(&|user| user.utility),
            eq3_as_printed: 1.0 - utility.sqrt(),
            submission_s: of_served(&|user| user.submission),
            execution_s: of_served(&|user| user.execution),
            total_s: of_served(&|user| user.submission + user.execution),
            balance: balance(drawn, fates),
            lost: percent(f64::from(lost)),
            refused: percent(f64::from(refused)),
            forwards: percent(fates.forwards as f64),
            told: fates.told as f64 / drawn.jobs.len() as f64,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct User {
    jobs: f64,
    completed: f64,
    utility: f64,
    submission: f64,
    execution: f64,
}

fn balance(drawn: &Drawn, fates: &Fates) -> f64 {
    let pairs = drawn
        .clusters
        .iter()
        .flatten()
        .zip(fates.busy.iter().flatten());
    let loads: Vec<f64> = pairs
        .map(|(class, busy)| *busy as f64 / class.cpus as f64)
        .collect();
    1.0 - deviation(&loads) / mean(&loads).max(f64::MIN_POSITIVE)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

fn run_case(case: &Case, _: &Extent, seed: u64) -> Measures {
    let (load, _, unit) = case.load;
    let drawn = Drawn::of(Seed(seed), load, unit);
    Measures::of(&drawn, &run(&drawn, case.rules))
}

/// PU, BU and MM under all loads.
pub fn study(extent: &Extent) -> Ways {
    let cases = LOADS.map(|load| {
        WAYS.map(|(name, matching, forwards)| Case {
            load,
            way: name.to_owned(),
            rules: Rules::new(matching, forwards),
        })
    });
    extent.study(cases.concat(), run_case)
}

/// PU at a load above what there is, with each thing that the draft does not print moved by itself.
#[rustfmt::skip]
pub fn sweep(extent: &Extent) -> Ways {
    let base = Rules::new(Matching::Partial, true);
    let case = |way: String, rules: Rules| Case { load: LOADS[1], way, rules };
    let timers = [5, 30, 120].map(|s| case(format!("T = {s} s"), Rules { timer: Millis::from_secs(s), ..base }));
    let limits = [50, 80, 95].map(|of| case(format!("l_max = {of} %"), Rules { load_max: of, ..base }));
    let counts = [1, 5, 20].map(|of| case(format!("n_max = {of}"), Rules { assigned_max: of, ..base }));
    let hops = [0, 1, 2, 4, 8].map(|ttl| case(format!("TTL = {ttl}"), Rules { ttl, ..base }));
    let delays = [10, 100, 1_000].map(|ms| case(format!("messages take {ms} ms"), Rules { delay: Millis(ms), ..base }));
    let loads = [60, 90, 150].map(|of| Case {
        load: (of, "seconds", Millis(1_000)),
        ..case(format!("load {of} %"), base)
    });
    let cases = [&timers[..], &limits, &counts, &hops, &delays, &loads];
    extent.study(cases.concat(), run_case)
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> Outcome {
    let ways = study(extent);
    let all = table(
        "utility-all",
        "Partial utility (PU), one option (BU), all or nothing (MM)",
        &ways,
    );
    let swept = table(
        "utility-sweep",
        "What is not printed, moved by itself",
        &sweep(extent),
    );
    Outcome {
        tables: vec![all, swept],
        figures: vec![figure(&ways)],
        claims: claims(&ways),
    }
}

/// All rows, with 90 % intervals.
pub fn table(name: &str, title: &str, ways: &Ways) -> Table {
    let table = ways.table(name, title);
    let table = table
        .case("load", |case| case.load.1)
        .case("", |case| case.way.clone());
    let named = |(head, of)| (head, move |way: &Way| way.mean(of).text_by(three));
    table.columns(VALUES.map(named)).done()
}

/// As many decimals as tell two ways apart.
fn three(number: f64) -> String {
    match number.abs() {
        1_000.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.3}"),
    }
}

fn row<'a>(ways: &'a Ways, load: &str, way: &str) -> &'a Way {
    ways.row(|case| case.load.1 == load && case.way == way)
}

/// Mean utility by load.
pub fn figure(ways: &Ways) -> Figure {
    let loads = LOADS.map(|(_, load, _)| load);
    let bars = WAYS.map(|(way, ..)| {
        Bars::new(
            way,
            loads.map(|load| row(ways, load, way).mean(|of| of.utility)),
        )
    });
    let texts = Texts {
        name: "utility",
        title: "Mean utility of a job; refused jobs are worth 0",
        caption: "Four clusters of 20 resources, 70 users with 20 jobs each. Every class is valued by all options of the job, whatever chose it. Whiskers: 90 % intervals.",
        x_label: "load while jobs come, and unit of the gaps",
        y_label: "utility",
    };
    texts.bars(loads, bars).within(0.0, 1.0)
}

/// What must hold, and what the draft claims.
pub fn claims(ways: &Ways) -> Vec<Claim> {
    let at = |(_, load, _): Load| {
        let three = ["PU", "BU", "MM"].map(|way| row(ways, load, way));
        [required(three, load), watched(three, load)].concat()
    };
    LOADS.into_iter().flat_map(at).collect()
}

fn required([pu, bu, mm]: [&Way; 3], load: &str) -> Vec<Claim> {
    let served =
        |way: &Way| way.greatest(|of| of.refused) == 0.0 && way.greatest(|of| of.lost) <= LOST_MAX;
    let gains = pu
        .runs
        .iter()
        .zip(&bu.runs)
        .map(|(pu, bu)| pu.utility - bu.utility);
    let Mean { mean: gain, half } = Mean::of(gains);
    let [lost, bu_lost] = [pu, bu].map(|way| three(way.greatest(|of| of.lost)));
    vec![
        Claim::new(
            format!("MM refuses jobs, {load}"),
            format!("{} % refused", three(mm.average(|of| of.refused))),
            mm.runs.iter().all(|run| run.refused > 0.0),
        ),
        Claim::new(
            format!("PU and BU serve all but 1 % that are lost for want of hops, {load}"),
            format!("at most {lost} and {bu_lost} % lost"),
            served(pu) && served(bu),
        ),
        Claim::new(
            format!("utility of PU is not below that of BU, in pairs, 90 %, {load}"),
            format!("{gain:.4} ± {half:.4} more"),
            gain - half >= 0.0,
        ),
    ]
}

fn watched(ways: [&Way; 3], load: &str) -> Vec<Claim> {
    let watch = |what: &str, value: Value, holds: fn(pu: f64, bu: f64, mm: f64) -> bool| {
        let means = ways.map(|way| way.average(value));
        let [pu, bu, mm] = means;
        let measured = means.map(three).join(", ");
        Claim::watched(format!("{what}, {load}"), measured, holds(pu, bu, mm))
    };
    let all: fn(f64, f64, f64) -> bool = |pu, bu, mm| pu == 100.0 && bu == 100.0 && mm < 100.0;
    let most: fn(f64, f64, f64) -> bool = |pu, bu, mm| pu > bu.max(mm);
    let execution: Value = |of| of.execution_s;
    vec![
        watch("success: PU = BU = 100 %, MM less", |of| of.success, all),
        watch(
            "utility: PU > BU > MM",
            |of| of.utility,
            |pu, bu, mm| pu > bu && bu > mm,
        ),
        watch("submission takes longest by PU", |of| of.submission_s, most),
        watch(
            "execution takes less by PU than by BU",
            execution,
            |pu, bu, _| pu < bu,
        ),
        watch(
            "execution takes far less by PU than by MM, half of it",
            execution,
            |pu, _, mm| pu < mm / 2.0,
        ),
        watch("PU balances best", |of| of.balance, most),
    ]
}
