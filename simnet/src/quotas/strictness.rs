//! E1: six projects that ask for less than, as much as, and more than they were granted, under modes from strict
//! to advisory; and again where all together ask for more than there is.
//!
//! Invariant: all modes have the same load.

use fairmesh_cluster::Seed;
use fairmesh_model::{CoreMillis, Millis, QuotaMode};

use super::Extent;
use super::field::{FieldMeasures, FieldSpec, run as run_field};
use super::load::Load;
use super::mesh::{Grant, Mesh};
use crate::experiment::{Claim, Mean, Outcome, Table, each};
use crate::figures::{Bars, Summary};
use crate::vo::HOUR;

/// Sites.
pub(super) const SITES: usize = 6;

/// Cores of each.
pub(super) const CORES: u64 = 100;

/// How long a grant lasts.
pub(super) const TIME: Millis = Millis(30 * 24 * HOUR.0);

/// Core-hours granted to each project.
pub(super) const GRANTS: [u64; 6] = [20_000, 40_000, 60_000, 70_000, 90_000, 110_000];

/// What each asks for, percent of its grant.
pub(super) const DEMAND_PERCENT: [u64; 6] = [50, 100, 150, 200, 100, 50];

/// A job beyond the quota may keep idle machines for so long: what the longest job here asks for.
const IDLE_MAX: Millis = Millis(2 * HOUR.0);

/// One way to run it.
struct Case {
    name: &'static str,
    mode: QuotaMode,
    /// Percent of the grant.
    overdraft: u64,
    has_idle: bool,
    has_bands: bool,
    /// All demand is multiplied by this, percent.
    load: u64,
}

const fn case(name: &'static str, mode: QuotaMode, overdraft: u64) -> Case {
    Case {
        name,
        mode,
        overdraft,
        has_idle: false,
        has_bands: false,
        load: 100,
    }
}

const STRICT: usize = 0;
const SOFT: std::ops::RangeInclusive<usize> = 1..=5;
const ADVISORY: usize = 6;
const IDLE: usize = 7;
const BANDS: usize = 8;

const CASES: [Case; 9] = [
    case("strict", QuotaMode::Strict, 0),
    case("soft 0 %", QuotaMode::Soft, 0),
    case("soft 10 %", QuotaMode::Soft, 10),
    case("soft 25 %", QuotaMode::Soft, 25),
    case("soft 50 %", QuotaMode::Soft, 50),
    case("soft 100 %", QuotaMode::Soft, 100),
    case("advisory", QuotaMode::Advisory, 0),
    Case {
        has_idle: true,
        ..case("strict, idle machines open", QuotaMode::Strict, 0)
    },
    Case {
        has_bands: true,
        ..case("soft 50 %, bands", QuotaMode::Soft, 50)
    },
];

/// What projects were granted, for a Grid that is smaller by a divisor.
pub(super) fn grants(divisor: u64, mode: QuotaMode, overdraft_percent: u64) -> Vec<Grant> {
    let grant = |hours: &u64| {
        let amount = hours * HOUR.0 / divisor;
        Grant {
            overdraft_max: CoreMillis(amount / 100 * overdraft_percent),
            ..Grant::whole(amount, TIME, mode)
        }
    };
    GRANTS.iter().map(grant).collect()
}

/// What they submit.
pub(super) fn field(divisor: u64, load_percent: u64) -> FieldSpec {
    let load = |(hours, percent): (&u64, &u64)| {
        let asked = hours * percent * load_percent / 10_000 / divisor;
        Load::even(asked, TIME)
    };
    let loads = GRANTS.iter().zip(&DEMAND_PERCENT).map(load).collect();
    let cores = u32::try_from(CORES / divisor).expect("few");
    FieldSpec::new(SITES, cores, loads, TIME)
}

fn run_case(case: &Case, extent: &Extent, seed: u64) -> FieldMeasures {
    let of = grants(extent.divisor, case.mode, case.overdraft);
    let mut mesh = Mesh::new(&of, &[CORES; SITES]);
    let spec = FieldSpec {
        has_bands: case.has_bands,
        idle_max: case.has_idle.then_some(IDLE_MAX),
        ..field(extent.divisor, case.load)
    };
    run_field(&spec, Seed(seed), &mut mesh)
}

/// Whether a project asks for no more than it was granted.
fn is_modest(project: usize, load: u64) -> bool {
    DEMAND_PERCENT[project] * load <= 100 * 100
}

/// What those within their grants got of what they could have: of the worst of them.
fn served(of: &FieldMeasures, load: u64) -> f64 {
    let modest = of.projects.iter().enumerate();
    let modest = modest.filter(|(project, _)| is_modest(*project, load));
    modest.map(|(_, of)| of.served()).fold(1.0, f64::min)
}

/// The rows of one load: what each mode gave, by seed.
struct Rows {
    load: u64,
    of: Vec<Vec<FieldMeasures>>,
}

impl Rows {
    fn mean(&self, case: usize, value: impl Fn(&FieldMeasures) -> f64) -> Mean {
        Mean::of(self.of[case].iter().map(value))
    }

    fn utilisation(&self, case: usize) -> Mean {
        self.mean(case, |of| 100.0 * of.utilisation())
    }

    fn over_use(&self, case: usize) -> Mean {
        self.mean(case, |of| 100.0 * of.over_use())
    }

    fn wait_min(&self, case: usize) -> Mean {
        let load = self.load;
        self.mean(case, |of| {
            of.mean_wait_s(|project| is_modest(project, load)) / 60.0
        })
    }

    fn served(&self, case: usize) -> Mean {
        self.mean(case, |of| 100.0 * served(of, self.load))
    }

    fn table(&self) -> Table {
        let row = |(case, of): (usize, &Case)| {
            let refused = self.mean(case, |of| of.asked(|asked| asked.refused) as f64);
            vec![
                of.name.to_owned(),
                self.utilisation(case).text(1),
                self.over_use(case).text(2),
                refused.text(0),
                self.wait_min(case).text(1),
                self.served(case).text(1),
            ]
        };
        Table {
            name: format!("strictness-{}", self.load),
            title: format!("E1: all ask for {} % of the usual demand", self.load),
            columns: [
                "mode",
                "cores in use (%)",
                "over-use (% of grants)",
                "jobs refused",
                "wait within grants (min)",
                "delivered within grants (%)",
            ]
            .map(str::to_owned)
            .into(),
            rows: CASES.iter().enumerate().map(row).collect(),
        }
    }

    fn picture(&self) -> Summary {
        type Value = fn(&Rows, usize) -> Mean;
        let bars = |name: &str, value: Value| Bars {
            name: name.to_owned(),
            spreads: (0..CASES.len())
                .map(|case| Some(value(self, case).spread()))
                .collect(),
        };
        Summary {
            name: format!("strictness-{}-bars", self.load),
            title: format!("E1: how strict quotas are, at {} % of the usual demand", self.load),
            caption: "Six sites, six projects, 30 days. Over-use is what projects ran beyond \
                      their grants; delivered is what the worst of those that asked for no more than they \
                      were granted got of it. Whiskers: 90 % of the mean over the seeds."
                .to_owned(),
            x_label: "mode".to_owned(),
            y_label: "percent".to_owned(),
            y_range: Some((0.0, 105.0)),
            groups: CASES.iter().map(|case| case.name.to_owned()).collect(),
            bars: vec![
                bars("cores in use", Rows::utilisation),
                bars("over-use", Rows::over_use),
                bars("delivered within grants", Rows::served),
            ],
            reference: None,
        }
    }
}

fn claims(rows: &Rows) -> Vec<Claim> {
    let worst = |case: usize, of: &dyn Fn(&FieldMeasures) -> f64| {
        rows.of[case].iter().map(of).fold(0.0, f64::max)
    };
    let charged_beyond = |of: &FieldMeasures| -> f64 {
        let beyond = of
            .projects
            .iter()
            .map(|of| of.spent.used.saturating_sub(of.spent.granted));
        beyond.sum::<u128>() as f64
    };
    let over = worst(STRICT, &|of| of.over_use() + charged_beyond(of));
    let rising: Vec<usize> = [STRICT].into_iter().chain(SOFT).chain([ADVISORY]).collect();
    let means: Vec<f64> = rising
        .iter()
        .map(|case| rows.utilisation(*case).mean)
        .collect();
    // Two ways to say strict give the same to the last digit but not to the last bit.
    let is_rising = means.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9);
    let texts: Vec<String> = means.iter().map(|mean| format!("{mean:.1}")).collect();
    let part = rows.utilisation(IDLE).mean / rows.utilisation(ADVISORY).mean;
    let (strict_wait, idle_wait) = (rows.wait_min(STRICT).mean, rows.wait_min(IDLE).mean);
    let mut claims = vec![
        Claim::new(
            "strict: nobody runs beyond his grant, with any seed",
            format!("{:.4} % at worst", 100.0 * over),
            over == 0.0,
        ),
        Claim::new(
            "cores in use: strict <= soft 0, 10, 25, 50, 100 % <= advisory",
            texts.join(" "),
            is_rising,
        ),
        Claim::new(
            "idle machines open: at least 95 % of what advisory uses",
            format!("{:.1} %", 100.0 * part),
            part >= 0.95,
        ),
        Claim::new(
            "idle machines open: those within grants wait at most 1.1 times as long as under strict",
            format!("{idle_wait:.2} min, strict {strict_wait:.2} min"),
            idle_wait <= 1.1 * strict_wait,
        ),
    ];
    for case in [STRICT, IDLE] {
        let least = rows.of[case].iter().map(|of| served(of, rows.load));
        let least = least.fold(1.0, f64::min);
        claims.push(Claim::new(
            format!(
                "{}: at least 98 % delivered to each within its grant",
                CASES[case].name
            ),
            format!("{:.1} % at worst", 100.0 * least),
            least >= 0.98,
        ));
    }
    claims
}

/// What soft modes do to those within their grants where there is too little for all.
fn hurt(rows: &Rows) -> Claim {
    let (strict, soft) = (rows.served(STRICT).mean, rows.served(*SOFT.end()).mean);
    Claim::new(
        "all ask for half as much again: soft 100 % without bands costs those within grants something",
        format!(
            "delivered {soft:.1} %, strict {strict:.1} %, soft 50 % with bands {:.1} %",
            rows.served(BANDS).mean
        ),
        soft < strict,
    )
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let rows = |load: u64| {
        let cases = CASES.map(|case| Case { load, ..case });
        let of = each(extent.threads, &extent.seeds, &cases, |case, seed| {
            run_case(case, extent, seed)
        });
        Rows { load, of }
    };
    let (usual, crowded) = (rows(100), rows(150));
    let mut claims = claims(&usual);
    claims.push(hurt(&crowded));
    Outcome {
        tables: vec![usual.table(), crowded.table()],
        bars: vec![usual.picture(), crowded.picture()],
        lines: Vec::new(),
        claims,
    }
}
