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
use crate::experiment::{Claim, Outcome, Row, each_with, listed};

/// What is held of what a job may cost, percent; 100 last.
const FACTORS: [u32; 4] = [60, 70, 80, 100];

/// By how many percent requests exceed run times: at least, at most.
const OVER_PERCENT: [(u64, u64); 2] = [(20, 40), (0, 300)];

/// By how much requests exceed run times, and what is held.
type Case = ((u64, u64), u32);

fn run_case(&(over_percent, factor): &Case, extent: &Extent, seed: u64) -> FieldMeasures {
    let mut of = grants(extent.divisor, QuotaMode::Strict, 0);
    for grant in &mut of {
        grant.hold_factor = Factor::from_millionths(factor * (Factor::UNITS / 100));
    }
    let mut spec: FieldSpec = field(extent.divisor, 100);
    for load in &mut spec.loads {
        load.over_percent = over_percent;
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

/// What must hold of one over-asking: rows in the order of [`FACTORS`].
fn claims(rows: &[Row<Case, FieldMeasures>]) -> [Claim; 3] {
    let means = |value: fn(&FieldMeasures) -> f64| -> Vec<f64> {
        rows.iter().map(|row| row.average(value)).collect()
    };
    let text = |means: &[f64]| format!("{} %", listed(means, |mean| format!("{mean:.4}")));
    let (early, owed) = (means(refused_early), means(overdraft));
    let whole = rows.last().expect("each factor was run");
    let worst = whole.greatest(overdraft);
    let asked = format!("asked {} too long", over_asking(&whole.case));
    [
        Claim::new(
            format!("{asked}: nothing is owed where all is held, with any seed"),
            format!("{worst:.4} % at worst"),
            worst == 0.0,
        ),
        Claim::new(
            format!("{asked}: the less is held, the more is owed (factors 0.6, 0.7, 0.8, 1)"),
            text(&owed),
            owed.windows(2).all(|pair| pair[0] >= pair[1]),
        ),
        Claim::new(
            format!("{asked}: the more is held, the more jobs are refused that the grant covers"),
            text(&early),
            early.windows(2).all(|pair| pair[0] <= pair[1]),
        ),
    ]
}

fn over_asking(((least, most), _): &Case) -> String {
    format!("{least} to {most} %")
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let study = extent.study(each_with(&OVER_PERCENT, &FACTORS), run_case);
    #[rustfmt::skip]
    let table = study.table("factor", "E7: how much is held of what a job may cost")
        .case("asked too long by", over_asking)
        .case("hold factor", |(_, factor)| format!("{:.1}", f64::from(*factor) / 100.0))
        .mean("refused though covered (% of jobs)", 3, refused_early)
        .mean("owed at the end (% of grants)", 4, overdraft)
        .mean("delivered of what it could have (%), worst project", 1, served)
        .done();
    Outcome {
        tables: vec![table],
        claims: study.rows.chunks(FACTORS.len()).flat_map(claims).collect(),
        ..Outcome::default()
    }
}
