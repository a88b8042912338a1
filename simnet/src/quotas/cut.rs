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
use crate::experiment::{Claim, Mean, Outcome, Table, each};
use crate::figures::{Bars, Summary};
use crate::vo::{DAY, HOUR};

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

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    keeper: Keeper,
    shape: usize,
    /// Nothing: no cut, and the sites and the time of the longest are watched.
    length: Option<usize>,
}

fn run_case(case: &Case, extent: &Extent, seed: u64) -> FieldMeasures {
    let (_, groups) = SHAPES[case.shape];
    let length = LENGTHS[case.length.unwrap_or(LENGTHS.len() - 1)].1;
    let until = Millis(CUT_AT.0 + length.0);
    let cuts = match case.length {
        None => Vec::new(),
        Some(_) => vec![(CUT_AT, groups.to_vec()), (until, vec![0; SITES])],
    };
    let away: Vec<usize> = (0..SITES).filter(|site| groups[*site] != 0).collect();
    let spec = FieldSpec {
        cuts,
        watched: Some((CUT_AT, until, away)),
        ..field(extent.divisor, 100)
    };
    match case.keeper {
        Keeper::Mesh | Keeper::Few => {
            let of = grants(extent.divisor, QuotaMode::Strict, 0);
            let mut split = [CORES; SITES];
            if case.keeper == Keeper::Few {
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

/// What all cases gave, by seed.
struct Rows {
    cases: Vec<Case>,
    of: Vec<Vec<FieldMeasures>>,
}

impl Rows {
    fn at(&self, keeper: Keeper, shape: usize, length: Option<usize>) -> &[FieldMeasures] {
        let is_it = Case {
            keeper,
            shape,
            length,
        };
        let at = self.cases.iter().position(|case| *case == is_it);
        let at = at.expect("every case was run");
        &self.of[at]
    }

    fn table(&self) -> Table {
        let row = |(case, of): (&Case, &Vec<FieldMeasures>)| {
            let watched = |value: fn(&FieldMeasures) -> f64| Mean::of(of.iter().map(value));
            let keeper = KEEPERS.iter().find(|(_, keeper)| *keeper == case.keeper);
            let length = case.length.map_or("no cut", |length| LENGTHS[length].0);
            vec![
                keeper.expect("each is listed").0.to_owned(),
                SHAPES[case.shape].0.to_owned(),
                length.to_owned(),
                watched(granted_percent).text(1),
                watched(|of| 100.0 * of.watched.at_once_part()).text(2),
                watched(|of| 100.0 * of.over_use()).text(3),
            ]
        };
        Table {
            name: "cut".to_owned(),
            title: "E3: jobs that ask at the sites that are cut off, while they are".to_owned(),
            columns: [
                "who keeps accounts",
                "cut off",
                "for",
                "granted (%)",
                "at once (% of these)",
                "over-spent (% of grants)",
            ]
            .map(str::to_owned)
            .into(),
            rows: self
                .cases
                .iter()
                .zip(&self.of)
                .filter(|(case, _)| KEEPERS.iter().any(|(_, keeper)| *keeper == case.keeper))
                .map(row)
                .collect(),
        }
    }

    /// What it takes to be answered, and what a cut costs, by how far away accounts are kept.
    fn distances(&self) -> Table {
        let columns = [
            "who keeps accounts",
            "answered after (ms)",
            "granted, no cut (%)",
            "granted, 3 | 3 for a day (%)",
            "over-spent, 3 | 3 for a day (% of grants)",
        ];
        let mut table = Table::new(
            "cut-distances",
            "E3: banks near and far, jobs that ask at the sites that will be cut off",
            columns,
        );
        let (shape, length) = COMPARED;
        for keeper in distant() {
            let mean = |length, value: &dyn Fn(&FieldMeasures) -> f64| {
                Mean::of(self.at(keeper, shape, length).iter().map(value))
            };
            // Without a cut it does not matter what a bank does in one.
            let uncut = match keeper {
                Keeper::Bank(_, Away::RunAndCorrect) => None,
                _ => Some((
                    mean(None, &|of| of.watched.mean_answer_ms()).text(2),
                    mean(None, &granted_percent).text(1),
                )),
            };
            let (answered, granted) = uncut.unwrap_or_default();
            let cut = Some(length);
            table.row([
                name_of(keeper),
                answered,
                granted,
                mean(cut, &granted_percent).text(1),
                mean(cut, &|of| 100.0 * of.over_use()).text(3),
            ]);
        }
        table
    }

    /// What distance costs is time alone.
    fn distance_claims(&self) -> Vec<Claim> {
        let mean = |keeper, value: &dyn Fn(&FieldMeasures) -> f64| {
            Mean::of(self.at(keeper, COMPARED.0, None).iter().map(value)).mean
        };
        let answers = |keeper| mean(keeper, &|of| of.watched.mean_answer_ms());
        let banks = ROUND_TRIPS_MS.map(|ms| Keeper::Bank(ms, Away::Refuse));
        let times = banks.map(answers);
        let granted = banks.map(|keeper| mean(keeper, &granted_percent));
        let spread = granted
            .iter()
            .fold(0.0_f64, |most, of| most.max((of - granted[0]).abs()));
        vec![
            Claim::new(
                "rights at sites answer sooner than any bank, as a mean over all that ask",
                format!("{:.2} ms; banks {times:.1?} ms", answers(Keeper::Mesh)),
                times.windows(2).all(|pair| pair[0] < pair[1]) && answers(Keeper::Mesh) < times[0],
            ),
            Claim::new(
                "a bank's distance changes what is granted by less than a point",
                format!("{granted:.1?} %"),
                spread < 1.0,
            ),
        ]
    }

    fn picture(&self, name: &str, says: &str, value: fn(&FieldMeasures) -> f64) -> Summary {
        let groups =
            || (0..SHAPES.len()).flat_map(|shape| (0..LENGTHS.len()).map(move |at| (shape, at)));
        let bars = |(name, keeper): &(&str, Keeper)| Bars {
            name: (*name).to_owned(),
            spreads: groups()
                .map(|(shape, length)| {
                    let of = self.at(*keeper, shape, Some(length));
                    Some(Mean::of(of.iter().map(value)).spread())
                })
                .collect(),
        };
        let group =
            |(shape, length): (usize, usize)| format!("{}, {}", SHAPES[shape].0, LENGTHS[length].0);
        Summary {
            name: format!("cut-{name}"),
            title: format!("E3: {says}"),
            caption: "Six sites, six projects, 30 days, strict. The cut begins when one project \
                      has spent its grant. Whiskers: 90 % of the mean over the seeds."
                .to_owned(),
            x_label: "who is cut off, and for how long".to_owned(),
            y_label: "percent".to_owned(),
            y_range: None,
            groups: groups().map(group).collect(),
            bars: KEEPERS.iter().map(bars).collect(),
            reference: None,
        }
    }

    fn claims(&self) -> Vec<Claim> {
        let [(_, mesh), (_, few), (_, refuses), (_, runs)] = KEEPERS;
        let of = |keeper: Keeper| {
            let of = self.cases.iter().zip(&self.of);
            of.filter(move |(case, _)| case.keeper == keeper)
        };
        let worst = |keeper: Keeper| {
            let all = of(keeper).flat_map(|(_, of)| of);
            all.map(|of| 100.0 * of.over_use()).fold(0.0, f64::max)
        };
        let mut claims = vec![
            Claim::new(
                "rights at sites: nothing is over-spent, in any cut, with any seed",
                format!("{:.4} % at worst", worst(mesh).max(worst(few))),
                worst(mesh) == 0.0 && worst(few) == 0.0,
            ),
            Claim::new(
                "bank, refuse: nothing is over-spent",
                format!("{:.4} % at worst", worst(refuses)),
                worst(refuses) == 0.0,
            ),
        ];
        for (shape, (name, _)) in SHAPES.iter().enumerate() {
            let mean = |keeper, length, value: fn(&FieldMeasures) -> f64| {
                Mean::of(self.at(keeper, shape, Some(length)).iter().map(value)).mean
            };
            let over: Vec<f64> = (0..LENGTHS.len())
                .map(|length| mean(runs, length, |of| 100.0 * of.over_use()))
                .collect();
            claims.push(Claim::new(
                format!("bank, run and correct: over-spending grows with the cut ({name})"),
                over.iter()
                    .map(|over| format!("{over:.3} %"))
                    .collect::<Vec<_>>()
                    .join(" "),
                over.windows(2).all(|pair| pair[0] < pair[1]),
            ));
            let granted = |keeper| mean(keeper, LENGTHS.len() - 1, granted_percent);
            let (ours, refused) = (granted(mesh), granted(refuses));
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
}

/// Those whose distances are compared.
fn distant() -> Vec<Keeper> {
    let bank = |away| ROUND_TRIPS_MS.map(|ms| Keeper::Bank(ms, away));
    let banks = [bank(Away::Refuse), bank(Away::RunAndCorrect)].concat();
    [vec![Keeper::Mesh, Keeper::Few], banks].concat()
}

fn name_of(keeper: Keeper) -> String {
    match keeper {
        Keeper::Bank(ms, Away::Refuse) => format!("bank at {ms} ms, refuse"),
        Keeper::Bank(ms, Away::RunAndCorrect) => format!("bank at {ms} ms, run and correct"),
        _ => {
            let named = KEEPERS.iter().find(|(_, of)| *of == keeper);
            named.expect("it is listed").0.to_owned()
        }
    }
}

fn granted_percent(of: &FieldMeasures) -> f64 {
    100.0 * of.watched.granted_part()
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let mut cases = Vec::new();
    for (_, keeper) in KEEPERS {
        for shape in 0..SHAPES.len() {
            // Without a cut it does not matter what a bank does in one.
            let lengths = (0..LENGTHS.len()).map(Some);
            let uncut = (keeper != KEEPERS[3].1).then_some(None);
            cases.extend(uncut.into_iter().chain(lengths).map(|length| Case {
                keeper,
                shape,
                length,
            }));
        }
    }
    for keeper in distant() {
        let lengths = [None, Some(COMPARED.1)];
        let compared = lengths.map(|length| Case {
            keeper,
            shape: COMPARED.0,
            length,
        });
        let is_needed = |case: &Case| {
            case.length.is_some() || !matches!(keeper, Keeper::Bank(_, Away::RunAndCorrect))
        };
        let new = compared.into_iter().filter(is_needed);
        let new: Vec<Case> = new.filter(|case| !cases.contains(case)).collect();
        cases.extend(new);
    }
    let of = each(extent.threads, &extent.seeds, &cases, |case, seed| {
        run_case(case, extent, seed)
    });
    let rows = Rows { cases, of };
    Outcome {
        tables: vec![rows.table(), rows.distances()],
        bars: vec![
            rows.picture(
                "granted",
                "what is granted while sites are cut off",
                granted_percent,
            ),
            rows.picture("over-spent", "what is over-spent", |of| {
                100.0 * of.over_use()
            }),
        ],
        lines: Vec::new(),
        claims: [rows.claims(), rows.distance_claims()].concat(),
    }
}
