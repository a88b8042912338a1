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
use crate::experiment::{Claim, Mean, Outcome, Table, deviation, each, mean};
use crate::figures::{Bars, Summary};

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
const LOADS: [(u64, &str, Millis); 4] = [
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

/// Runs of all ways under one load, or of one setting of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    load: &'static str,
    way: String,
    runs: Vec<Measures>,
}

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
            mean(
                &served
                    .iter()
                    .map(|user| value(user) / user.completed)
                    .collect::<Vec<_>>(),
            )
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

/// PU, BU and MM under all loads.
pub fn rows(extent: &Extent) -> Vec<Row> {
    let keys = LOADS
        .into_iter()
        .flat_map(|load| WAYS.map(|way| (load, way)));
    let keys: Vec<_> = keys
        .map(|(load, (name, matching, forwards))| {
            (load, name.to_owned(), Rules::new(matching, forwards))
        })
        .collect();
    measure(keys, extent)
}

/// PU at a load above what there is, with each thing that the draft does not print moved by itself.
pub fn sweep(extent: &Extent) -> Vec<Row> {
    let base = Rules::new(Matching::Partial, true);
    let mut keys = Vec::new();
    let mut add = |what: String, rules: Rules| keys.push((LOADS[1], what, rules));
    for seconds in [5, 30, 120] {
        add(
            format!("T = {seconds} s"),
            Rules {
                timer: Millis::from_secs(seconds),
                ..base
            },
        );
    }
    for percent in [50, 80, 95] {
        add(
            format!("l_max = {percent} %"),
            Rules {
                load_max: percent,
                ..base
            },
        );
    }
    for assigned_max in [1, 5, 20] {
        add(
            format!("n_max = {assigned_max}"),
            Rules {
                assigned_max,
                ..base
            },
        );
    }
    for ttl in [0, 1, 2, 4, 8] {
        add(format!("TTL = {ttl}"), Rules { ttl, ..base });
    }
    for ms in [10, 100, 1_000] {
        add(
            format!("messages take {ms} ms"),
            Rules {
                delay: Millis(ms),
                ..base
            },
        );
    }
    for load in [60, 90, 150] {
        keys.push((
            (load, "seconds", Millis(1_000)),
            format!("load {load} %"),
            base,
        ));
    }
    measure(keys, extent)
}

type Key = ((u64, &'static str, Millis), String, Rules);

fn measure(keys: Vec<Key>, extent: &Extent) -> Vec<Row> {
    let runs = each(
        extent.threads,
        &extent.seeds,
        &keys,
        |((load, _, unit), _, rules), seed| {
            let drawn = Drawn::of(Seed(seed), *load, *unit);
            Measures::of(&drawn, &run(&drawn, *rules))
        },
    );
    let row = |(((_, load, _), way, _), runs): (Key, _)| Row { load, way, runs };
    keys.into_iter().zip(runs).map(row).collect()
}

/// Runs it.
pub(super) fn experiment(extent: &Extent) -> Outcome {
    let rows = rows(extent);
    let all = table(
        "utility-all",
        "Partial utility (PU), one option (BU), all or nothing (MM)",
        &rows,
    );
    let swept = table(
        "utility-sweep",
        "What is not printed, moved by itself",
        &sweep(extent),
    );
    Outcome {
        tables: vec![all, swept],
        bars: vec![figure(&rows)],
        claims: claims(&rows),
        ..Outcome::default()
    }
}

/// All rows, with 90 % intervals.
pub fn table(name: &str, title: &str, rows: &[Row]) -> Table {
    let head = ["load", ""]
        .into_iter()
        .chain(VALUES.iter().map(|(name, _)| *name));
    let mut table = Table::new(name, title, head);
    for row in rows {
        let cells = VALUES
            .iter()
            .map(|(_, of)| Mean::of(row.values(*of)).text_by(three));
        table.row(
            [row.load.to_owned(), row.way.clone()]
                .into_iter()
                .chain(cells),
        );
    }
    table
}

/// As many decimals as tell two ways apart.
fn three(number: f64) -> String {
    match number.abs() {
        1_000.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.3}"),
    }
}

/// Mean utility by load.
pub fn figure(rows: &[Row]) -> Summary {
    let bars = WAYS.map(|(name, ..)| Bars {
        name: name.to_owned(),
        spreads: LOADS
            .iter()
            .map(|(_, load, _)| {
                let row = rows
                    .iter()
                    .find(|row| row.load == *load && row.way == name)?;
                Some(Mean::of(row.values(|of| of.utility)).spread())
            })
            .collect(),
    });
    Summary {
        name: "utility".to_owned(),
        title: "Mean utility of a job; refused jobs are worth 0".to_owned(),
        caption: "Four clusters of 20 resources, 70 users with 20 jobs each. Every class is valued by all options of the job, whatever chose it. Whiskers: 90 % intervals.".to_owned(),
        x_label: "load while jobs come, and unit of the gaps".to_owned(),
        y_label: "utility".to_owned(),
        y_range: Some((0.0, 1.0)),
        groups: LOADS.iter().map(|(_, load, _)| (*load).to_owned()).collect(),
        bars: bars.to_vec(),
        reference: None,
    }
}

impl Row {
    fn values(&self, of: Value) -> Vec<f64> {
        self.runs.iter().map(of).collect()
    }
}

/// What must hold, and what the draft claims.
pub fn claims(rows: &[Row]) -> Vec<Claim> {
    LOADS
        .iter()
        .flat_map(|(_, load, _)| claims_at(rows, load))
        .collect()
}

fn claims_at(rows: &[Row], load: &'static str) -> Vec<Claim> {
    let row = |way: &str| {
        rows.iter()
            .find(|row| row.load == load && row.way == way)
            .expect("it was run")
    };
    let ways = ["PU", "BU", "MM"].map(row);
    let mut claims = required(ways, load);
    claims.extend(watched(ways, load));
    claims
}

fn required([pu, bu, mm]: [&Row; 3], load: &str) -> Vec<Claim> {
    let greatest = |row: &Row, value: Value| row.values(value).into_iter().fold(0.0, f64::max);
    let served = |row: &Row| {
        greatest(row, |of| of.refused) == 0.0 && greatest(row, |of| of.lost) <= LOST_MAX
    };
    let gains: Vec<f64> = pu
        .values(|of| of.utility)
        .iter()
        .zip(bu.values(|of| of.utility))
        .map(|(pu, bu)| pu - bu)
        .collect();
    let Mean { mean: gain, half } = Mean::of(gains);
    vec![
        Claim::new(
            format!("MM refuses jobs, {load}"),
            format!("{} % refused", three(mean(&mm.values(|of| of.refused)))),
            mm.runs.iter().all(|run| run.refused > 0.0),
        ),
        Claim::new(
            format!("PU and BU serve all but 1 % that are lost for want of hops, {load}"),
            format!(
                "at most {} and {} % lost",
                three(greatest(pu, |of| of.lost)),
                three(greatest(bu, |of| of.lost))
            ),
            served(pu) && served(bu),
        ),
        Claim::new(
            format!("utility of PU is not below that of BU, in pairs, 90 %, {load}"),
            format!("{gain:.4} ± {half:.4} more"),
            gain - half >= 0.0,
        ),
    ]
}

fn watched([pu, bu, mm]: [&Row; 3], load: &str) -> Vec<Claim> {
    let of = |row: &Row, value: Value| mean(&row.values(value));
    let three_of = |value: Value| {
        format!(
            "{}, {}, {}",
            three(of(pu, value)),
            three(of(bu, value)),
            three(of(mm, value))
        )
    };
    let ordered = |value: Value| of(pu, value) > of(bu, value) && of(bu, value) > of(mm, value);
    let success: Value = |of| of.success;
    let submission: Value = |of| of.submission_s;
    let execution: Value = |of| of.execution_s;
    let balance: Value = |of| of.balance;
    vec![
        Claim::watched(
            format!("success: PU = BU = 100 %, MM less, {load}"),
            three_of(success),
            of(pu, success) == 100.0 && of(bu, success) == 100.0 && of(mm, success) < 100.0,
        ),
        Claim::watched(
            format!("utility: PU > BU > MM, {load}"),
            three_of(|of| of.utility),
            ordered(|of| of.utility),
        ),
        Claim::watched(
            format!("submission takes longest by PU, {load}"),
            three_of(submission),
            of(pu, submission) > of(bu, submission).max(of(mm, submission)),
        ),
        Claim::watched(
            format!("execution takes less by PU than by BU, {load}"),
            three_of(execution),
            of(pu, execution) < of(bu, execution),
        ),
        Claim::watched(
            format!("execution takes far less by PU than by MM, half of it, {load}"),
            three_of(execution),
            of(pu, execution) < of(mm, execution) / 2.0,
        ),
        Claim::watched(
            format!("PU balances best, {load}"),
            three_of(balance),
            of(pu, balance) > of(bu, balance).max(of(mm, balance)),
        ),
    ]
}
