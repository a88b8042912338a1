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
use crate::experiment::{Claim, Mean, Outcome, Row, Study, Table, listed};
use crate::figures::{Bars, Figure, Texts};
use simnet::vo::HOUR;

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

/// The usual demand, and half as much again; percent.
const LOADS: [u64; 2] = [100, 150];

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
const SOFT_100: usize = 5;
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

/// What each mode gave under one load.
type Modes = Study<Case, FieldMeasures>;
type Mode = Row<Case, FieldMeasures>;

fn wait_min(mode: &Mode) -> Mean {
    let counts = |project| is_modest(project, mode.case.load);
    mode.mean(|of| of.mean_wait_s(counts) / 60.0)
}

fn served_percent(mode: &Mode) -> Mean {
    mode.mean(|of| 100.0 * served(of, mode.case.load))
}

#[rustfmt::skip]
fn table(modes: &Modes, load: u64) -> Table {
    let title = format!("E1: all ask for {load} % of the usual demand");
    modes.table(&format!("strictness-{load}"), title)
        .case("mode", |case| case.name)
        .mean("cores in use (%)", 1, FieldMeasures::utilisation)
        .mean("over-use (% of grants)", 2, FieldMeasures::over_use)
        .mean("jobs refused", 0, |of| of.asked(|asked| asked.refused) as f64)
        .column("wait within grants (min)", |mode| wait_min(mode).text(1))
        .column("delivered within grants (%)", |mode| served_percent(mode).text(1))
        .done()
}

fn picture(modes: &Modes, load: u64) -> Figure {
    let texts = Texts {
        name: &format!("strictness-{load}-bars"),
        title: &format!("E1: how strict quotas are, at {load} % of the usual demand"),
        caption: "Six sites, six projects, 30 days. Over-use is what projects ran beyond \
                  their grants; delivered is what the worst of those that asked for no more than they \
                  were granted got of it. Whiskers: 90 % of the mean over the seeds.",
        x_label: "mode",
        y_label: "percent",
    };
    let bars = [
        modes.bars("cores in use", FieldMeasures::utilisation),
        modes.bars("over-use", FieldMeasures::over_use),
        Bars::new(
            "delivered within grants",
            modes.rows.iter().map(served_percent),
        ),
    ];
    texts
        .bars(CASES.map(|case| case.name), bars)
        .within(0.0, 105.0)
}

fn claims(modes: &Modes) -> Vec<Claim> {
    let mode = |case: usize| &modes.rows[case];
    let charged_beyond = |of: &FieldMeasures| -> f64 {
        let projects = of.projects.iter();
        let beyond = projects.map(|of| of.spent.used.saturating_sub(of.spent.granted));
        beyond.sum::<u128>() as f64
    };
    let over = mode(STRICT).greatest(|of| of.over_use() + charged_beyond(of));
    let used = |case: usize| mode(case).average(FieldMeasures::utilisation);
    let rising: Vec<f64> = (STRICT..=ADVISORY).map(used).collect();
    let part = used(IDLE) / used(ADVISORY);
    let [strict_wait, idle_wait] = [STRICT, IDLE].map(|case| wait_min(mode(case)).mean);
    let mut claims = vec![
        Claim::new(
            "strict: nobody runs beyond his grant, with any seed",
            format!("{over:.4} % at worst"),
            over == 0.0,
        ),
        Claim::new(
            "cores in use: strict <= soft 0, 10, 25, 50, 100 % <= advisory",
            listed(&rising, |mean| format!("{mean:.1}")),
            // Two ways to say strict give the same to the last digit but not to the last bit.
            rising.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9),
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
    claims.extend([STRICT, IDLE].map(|case| {
        let Case { name, load, .. } = CASES[case];
        let least = mode(case).least(|of| served(of, load));
        Claim::new(
            format!("{name}: at least 98 % delivered to each within its grant"),
            format!("{:.1} % at worst", 100.0 * least),
            least >= 0.98,
        )
    }));
    claims
}

/// What soft modes do to those within their grants where there is too little for all.
fn hurt(modes: &Modes) -> Claim {
    let served = |case: usize| served_percent(&modes.rows[case]).mean;
    let (strict, soft, bands) = (served(STRICT), served(SOFT_100), served(BANDS));
    Claim::new(
        "all ask for half as much again: soft 100 % without bands costs those within grants something",
        format!("delivered {soft:.1} %, strict {strict:.1} %, soft 50 % with bands {bands:.1} %"),
        soft < strict,
    )
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let [usual, crowded] =
        LOADS.map(|load| extent.study(CASES.map(|case| Case { load, ..case }), run_case));
    Outcome {
        tables: vec![table(&usual, LOADS[0]), table(&crowded, LOADS[1])],
        figures: vec![picture(&usual, LOADS[0]), picture(&crowded, LOADS[1])],
        claims: [claims(&usual), vec![hurt(&crowded)]].concat(),
    }
}
