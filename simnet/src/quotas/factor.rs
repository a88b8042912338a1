//! E7: how much is held of what a job may cost. Users ask for more than they use, so that live jobs lock more than
//! they will be charged; whoever holds less lets more jobs run, and some of them are charged beyond the rights
//! that there are.
//!
//! The load is E1's under the strict mode, with requests that exceed run times by as much as users' do (Elmroth &
//! Gardfjäll 2005, section 5), and by anything up to three times the run time beside it.
//!
//! Invariant: all factors have the same load.
//! Deliberately not here: run times that exceed what was asked for; schedulers end such jobs.

use fairmesh_cluster::Seed;
use fairmesh_model::{Factor, QuotaMode};

use super::Extent;
use super::field::{FieldMeasures, FieldSpec, run as run_field};
use super::mesh::Mesh;
use super::strictness::{CORES, SITES, field, grants};
use crate::experiment::{Claim, Mean, Outcome, Table, each};

/// What is held of what a job may cost, percent; 100 last.
const FACTORS: [u32; 4] = [60, 70, 80, 100];

/// By how many percent requests exceed run times: at least, at most.
const OVER_PERCENT: [(u64, u64); 2] = [(20, 40), (0, 300)];

/// One run.
#[derive(Debug, Clone, Copy)]
struct Case {
    factor: u32,
    over_percent: (u64, u64),
}

fn run_case(case: &Case, extent: &Extent, seed: u64) -> FieldMeasures {
    let mut of = grants(extent.divisor, QuotaMode::Strict, 0);
    for grant in &mut of {
        grant.hold_factor = Factor::from_millionths(case.factor * (Factor::UNITS / 100));
    }
    let mut spec: FieldSpec = field(extent.divisor, 100);
    for load in &mut spec.loads {
        load.over_percent = case.over_percent;
    }
    run_field(&spec, Seed(seed), &mut Mesh::new(&of, &[CORES; SITES]))
}

/// Jobs refused although the grant would have covered them, percent of all that asked.
fn refused_early(of: &FieldMeasures) -> f64 {
    let early: u64 = of.projects.iter().map(|of| of.refused_early).sum();
    100.0 * early as f64 / of.asked(|asked| asked.all).max(1) as f64
}

/// What is owed at the end, percent of all grants.
fn overdraft(of: &FieldMeasures) -> f64 {
    let owed: u128 = of.projects.iter().map(|of| of.spent.overdraft).sum();
    let granted: u128 = of.projects.iter().map(|of| of.spent.granted).sum();
    100.0 * owed as f64 / granted.max(1) as f64
}

/// What was delivered of what the project could have that got least of it, percent.
fn served(of: &FieldMeasures) -> f64 {
    let of = of.projects.iter().map(|of| 100.0 * of.served());
    of.fold(f64::INFINITY, f64::min)
}

fn row(case: &Case, of: &[FieldMeasures]) -> Vec<String> {
    let mean = |value: fn(&FieldMeasures) -> f64| Mean::of(of.iter().map(value));
    let (least, most) = case.over_percent;
    vec![
        format!("{least} to {most} %"),
        format!("{:.1}", f64::from(case.factor) / 100.0),
        mean(refused_early).text(3),
        mean(overdraft).text(4),
        mean(served).text(1),
    ]
}

/// What must hold of the cases of one over-asking: in the order of [`FACTORS`].
fn claims((least, most): (u64, u64), of: &[Vec<FieldMeasures>]) -> [Claim; 3] {
    let means = |value: fn(&FieldMeasures) -> f64| -> Vec<f64> {
        let mean = |of: &Vec<FieldMeasures>| Mean::of(of.iter().map(value)).mean;
        of.iter().map(mean).collect()
    };
    let text = |of: &[f64]| {
        let of = of.iter().map(|mean| format!("{mean:.4}"));
        of.collect::<Vec<_>>().join(" ")
    };
    let (early, owed) = (means(refused_early), means(overdraft));
    let whole = of.last().expect("each factor was run");
    let worst = whole.iter().map(overdraft).fold(0.0, f64::max);
    let asked = format!("asked {least} to {most} % too long");
    [
        Claim::new(
            format!("{asked}: nothing is owed where all is held, with any seed"),
            format!("{worst:.4} % at worst"),
            worst == 0.0,
        ),
        Claim::new(
            format!("{asked}: the less is held, the more is owed (factors 0.6, 0.7, 0.8, 1)"),
            format!("{} %", text(&owed)),
            owed.windows(2).all(|pair| pair[0] >= pair[1]),
        ),
        Claim::new(
            format!("{asked}: the more is held, the more jobs are refused that the grant covers"),
            format!("{} %", text(&early)),
            early.windows(2).all(|pair| pair[0] <= pair[1]),
        ),
    ]
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let of = |over_percent| {
        FACTORS.map(|factor| Case {
            factor,
            over_percent,
        })
    };
    let cases = OVER_PERCENT.map(of).concat();
    let of = each(extent.threads, &extent.seeds, &cases, |case, seed| {
        run_case(case, extent, seed)
    });
    let table = Table {
        name: "factor".to_owned(),
        title: "E7: how much is held of what a job may cost".to_owned(),
        columns: [
            "asked too long by",
            "hold factor",
            "refused though covered (% of jobs)",
            "owed at the end (% of grants)",
            "delivered of what it could have (%), worst project",
        ]
        .map(str::to_owned)
        .into(),
        rows: cases
            .iter()
            .zip(&of)
            .map(|(case, of)| row(case, of))
            .collect(),
    };
    let parts = OVER_PERCENT.iter().zip(of.chunks(FACTORS.len()));
    Outcome {
        tables: vec![table],
        claims: parts.flat_map(|(over, of)| claims(*over, of)).collect(),
        ..Outcome::default()
    }
}
