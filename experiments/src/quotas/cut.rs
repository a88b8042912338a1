//! E3: sites that are cut off from the others for an hour, a day and two weeks, beside a bank that is cut off from
//! its sites.
//!
//! The load is E1's under the strict mode. The cut begins half a day after the project that asks for twice its
//! grant has spent it, so that whoever lets jobs run unasked lets its jobs run, too.
//!
//! Invariant: the mesh and the banks have the same load and the same cuts.
//! Deliberately not here: crashes and lies (`simnet check`).

use fairmesh_cluster::Seed;
use fairmesh_model::{Millis, QuotaMode};

use super::Extent;
use super::bank::{Away, Bank};
use super::field::{FieldMeasures, FieldSpec, run as run_field};
use super::mesh::Mesh;
use super::strictness::{CORES, GRANTS, SITES, field, grants};
use crate::experiment::{Claim, Columns, Outcome, Row, Study, Table, each_with, listed};
use crate::figures::{Bars, Figure, Texts};
use simnet::vo::{DAY, HOUR};

/// When the cut begins.
const CUT_AT: Millis = Millis(15 * DAY.0 + 12 * HOUR.0);

const LENGTHS: [(&str, Millis); 3] = [
    ("1 hour", HOUR),
    ("1 day", DAY),
    ("14 days", Millis(14 * DAY.0)),
];

/// Who is cut off: the group of each site. A bank stands in group 0.
const SHAPES: [(&str, [usize; SITES]); 3] = [
    ("site 5 alone", [0, 0, 0, 0, 0, 1]),
    ("3 | 3", [0, 0, 0, 1, 1, 1]),
    ("each alone, bank away", [1, 2, 3, 4, 5, 6]),
];

/// Who keeps the accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    /// Rights at the sites, split by their cores.
    Mesh,
    /// The same, but site 5 was granted a fifth of what the others were: the rest of what it spends comes to it.
    Few,
    Bank(u64, Away),
}

const KEEPERS: [(&str, Keeper); 4] = [
    ("rights at sites", Keeper::Mesh),
    ("rights at sites, few at site 5", Keeper::Few),
    ("bank, refuse", Keeper::Bank(50, Away::Refuse)),
    (
        "bank, run and correct",
        Keeper::Bank(50, Away::RunAndCorrect),
    ),
];

/// How far away the bank is, from a question to its answer.
const ROUND_TRIPS_MS: [u64; 3] = [1, 50, 200];

/// The cut in which distances are compared: 3 | 3 for a day.
const COMPARED: (usize, usize) = (1, 1);

/// Who keeps accounts, what is cut off, and for how long. Nothing: no cut, and the sites and the time of the longest are
/// watched.
type Case = (Keeper, usize, Option<usize>);

type Cuts = Study<Case, FieldMeasures>;
type Cut = Row<Case, FieldMeasures>;

/// All cuts of all keepers, and one cut of banks that are nearer or farther.
fn cases() -> Vec<Case> {
    let keepers = KEEPERS.map(|(_, keeper)| keeper);
    let lengths = [None, Some(0), Some(1), Some(2)];
    let all = each_with(&each_with(&keepers, &[0, 1, 2]), &lengths);
    let banks =
        [Away::Refuse, Away::RunAndCorrect].map(|away| [1, 200].map(|ms| Keeper::Bank(ms, away)));
    let compared = each_with(
        &each_with(&banks.concat(), &[COMPARED.0]),
        &[None, Some(COMPARED.1)],
    );
    let cases = all.into_iter().chain(compared);
    let cases = cases.map(|((keeper, shape), length)| (keeper, shape, length));
    // Without a cut it does not matter what a bank does in one.
    let is_twin = |keeper, length: Option<usize>| {
        length.is_none() && matches!(keeper, Keeper::Bank(_, Away::RunAndCorrect))
    };
    cases
        .filter(|(keeper, _, length)| !is_twin(*keeper, *length))
        .collect()
}

fn run_case(&(keeper, shape, length): &Case, extent: &Extent, seed: u64) -> FieldMeasures {
    let (_, groups) = SHAPES[shape];
    let until = LENGTHS[length.unwrap_or(LENGTHS.len() - 1)].1;
    let until = Millis(CUT_AT.0 + until.0);
    let cuts = match length {
        None => Vec::new(),
        Some(_) => vec![(CUT_AT, groups.to_vec()), (until, vec![0; SITES])],
    };
    let away: Vec<usize> = (0..SITES).filter(|site| groups[*site] != 0).collect();
    let spec = FieldSpec {
        cuts,
        watched: Some((CUT_AT, until, away)),
        ..field(extent.divisor, 100)
    };
    match keeper {
        Keeper::Mesh | Keeper::Few => {
            let of = grants(extent.divisor, QuotaMode::Strict, 0);
            let mut split = [CORES; SITES];
            if keeper == Keeper::Few {
                split[SITES - 1] /= 5;
            }
            run_field(&spec, Seed(seed), &mut Mesh::new(&of, &split))
        }
        Keeper::Bank(round_trip_ms, away) => {
            let of = GRANTS.map(|hours| hours * HOUR.0 / extent.divisor);
            let mut bank = Bank::new(&of, SITES, Millis(round_trip_ms), away);
            run_field(&spec, Seed(seed), &mut bank)
        }
    }
}

fn granted(of: &FieldMeasures) -> f64 {
    100.0 * of.watched.granted_part()
}

fn answer_ms(of: &FieldMeasures) -> f64 {
    of.watched.mean_answer_ms()
}

/// The name in the main table.
fn listed_name(keeper: Keeper) -> Option<&'static str> {
    let named = KEEPERS.iter().find(|(_, of)| *of == keeper);
    named.map(|(name, _)| *name)
}

#[rustfmt::skip]
fn table(cuts: &Cuts) -> Table {
    let rows = cuts.rows.iter().filter(|row| listed_name(row.case.0).is_some());
    Columns::new(rows.collect(), "cut", "E3: jobs that ask at the sites that are cut off, while they are")
        .case("who keeps accounts", |case| listed_name(case.0).unwrap_or_default())
        .case("cut off", |case| SHAPES[case.1].0)
        .case("for", |case| case.2.map_or("no cut", |length| LENGTHS[length].0))
        .mean("granted (%)", 1, granted)
        .mean("at once (% of these)", 2, |of| 100.0 * of.watched.at_once_part())
        .mean("over-spent (% of grants)", 3, FieldMeasures::over_use)
        .done()
}

/// What it takes to be answered, and what a cut costs, by how far away accounts are kept.
#[rustfmt::skip]
fn distances(cuts: &Cuts) -> Table {
    let (shape, length) = COMPARED;
    let banks = each_with(&[Away::Refuse, Away::RunAndCorrect], &ROUND_TRIPS_MS);
    let banks = banks.into_iter().map(|(away, ms)| Keeper::Bank(ms, away));
    let rows = [Keeper::Mesh, Keeper::Few].into_iter().chain(banks);
    let rows = rows.map(|keeper| cuts.at((keeper, shape, Some(length))));
    let uncut = |row: &Cut, decimals: usize, of: fn(&FieldMeasures) -> f64| {
        let uncut = cuts.rows.iter().find(|uncut| uncut.case == (row.case.0, shape, None));
        uncut.map_or_else(String::new, |row| row.mean(of).text(decimals))
    };
    let title = "E3: banks near and far, jobs that ask at the sites that will be cut off";
    Columns::new(rows.collect(), "cut-distances", title)
        .case("who keeps accounts", |case| match case.0 {
            Keeper::Bank(ms, Away::Refuse) => format!("bank at {ms} ms, refuse"),
            Keeper::Bank(ms, Away::RunAndCorrect) => format!("bank at {ms} ms, run and correct"),
            keeper => listed_name(keeper).unwrap_or_default().to_owned(),
        })
        .column("answered after (ms)", |row| uncut(row, 2, answer_ms))
        .column("granted, no cut (%)", |row| uncut(row, 1, granted))
        .mean("granted, 3 | 3 for a day (%)", 1, granted)
        .mean("over-spent, 3 | 3 for a day (% of grants)", 3, FieldMeasures::over_use)
        .done()
}

/// What distance costs is time alone.
fn distance_claims(cuts: &Cuts) -> [Claim; 2] {
    let uncut = |keeper| cuts.at((keeper, COMPARED.0, None));
    let banks = ROUND_TRIPS_MS.map(|ms| uncut(Keeper::Bank(ms, Away::Refuse)));
    let times = banks.map(|bank| bank.average(answer_ms));
    let ours = uncut(Keeper::Mesh).average(answer_ms);
    let granted = banks.map(|bank| bank.average(granted));
    let apart = granted.iter().map(|of| (of - granted[0]).abs());
    [
        Claim::new(
            "rights at sites answer sooner than any bank, as a mean over all that ask",
            format!("{ours:.2} ms; banks {times:.1?} ms"),
            times.windows(2).all(|pair| pair[0] < pair[1]) && ours < times[0],
        ),
        Claim::new(
            "a bank's distance changes what is granted by less than a point",
            format!("{granted:.1?} %"),
            apart.fold(0.0, f64::max) < 1.0,
        ),
    ]
}

fn picture(cuts: &Cuts, name: &str, says: &str, value: fn(&FieldMeasures) -> f64) -> Figure {
    let groups = each_with(&[0, 1, 2], &[0, 1, 2]);
    let bars = KEEPERS.map(|(name, keeper)| {
        let of = |(shape, length): &(usize, usize)| cuts.at((keeper, *shape, Some(*length)));
        Bars::new(name, groups.iter().map(|group| of(group).mean(value)))
    });
    let texts = Texts {
        name: &format!("cut-{name}"),
        title: &format!("E3: {says}"),
        caption: "Six sites, six projects, 30 days, strict. The cut begins when one project \
                  has spent its grant. Whiskers: 90 % of the mean over the seeds.",
        x_label: "who is cut off, and for how long",
        y_label: "percent",
    };
    let name =
        |(shape, length): &(usize, usize)| format!("{}, {}", SHAPES[*shape].0, LENGTHS[*length].0);
    texts.bars(groups.iter().map(name), bars)
}

fn claims(cuts: &Cuts) -> Vec<Claim> {
    let [mesh, few, refuses, runs] = KEEPERS.map(|(_, keeper)| keeper);
    let worst = |keeper: Keeper| {
        let rows = cuts.rows.iter().filter(|row| row.case.0 == keeper);
        rows.map(|row| row.greatest(FieldMeasures::over_use))
            .fold(0.0, f64::max)
    };
    let ours = worst(mesh).max(worst(few));
    let mut claims = vec![
        Claim::new(
            "rights at sites: nothing is over-spent, in any cut, with any seed",
            format!("{ours:.4} % at worst"),
            ours == 0.0,
        ),
        Claim::new(
            "bank, refuse: nothing is over-spent",
            format!("{:.4} % at worst", worst(refuses)),
            worst(refuses) == 0.0,
        ),
    ];
    for (shape, (name, _)) in SHAPES.iter().enumerate() {
        let mean = |keeper, length: usize, of: fn(&FieldMeasures) -> f64| {
            cuts.at((keeper, shape, Some(length))).average(of)
        };
        let over = [0, 1, 2].map(|length| mean(runs, length, FieldMeasures::over_use));
        claims.push(Claim::new(
            format!("bank, run and correct: over-spending grows with the cut ({name})"),
            listed(&over, |over| format!("{over:.3} %")),
            over.windows(2).all(|pair| pair[0] < pair[1]),
        ));
        let [ours, refused] = [mesh, refuses].map(|keeper| mean(keeper, 2, granted));
        claims.push(Claim::new(
            format!(
                "two weeks: rights at sites grant where a bank that is missed refuses ({name})"
            ),
            format!("{ours:.1} % and {refused:.1} %"),
            refused == 0.0 && ours > 0.0,
        ));
    }
    claims
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let cuts = extent.study(cases(), run_case);
    let says = "what is granted while sites are cut off";
    Outcome {
        tables: vec![table(&cuts), distances(&cuts)],
        figures: vec![
            picture(&cuts, "granted", says, granted),
            picture(
                &cuts,
                "over-spent",
                "what is over-spent",
                FieldMeasures::over_use,
            ),
        ],
        claims: [claims(&cuts), distance_claims(&cuts).into()].concat(),
    }
}
