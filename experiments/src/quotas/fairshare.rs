//! E6: FSGrid's policy with a quota beside it. P-A1's quota is spent on day 3; on day 5 it has a new slice.
//!
//! Here the sites are whole: real nodes' `Site`s in a [`simnet::World`], which gossip usage and rights, answer
//! what their schedulers ask, and hold and charge every job of VO-A. P-A2 and P-A3 have credit that does not end.
//!
//! Invariant: whether a job is queued is what its own site's node has answered.
//! Source of the policy and the load: Elmroth & Gardfjäll (2005), section 5.

use std::collections::BTreeMap;

use fairmesh_cluster::{AccountKey, Cluster, Finished, Job, Seed};
use fairmesh_model::{AllocationSlice, CoreMillis, Millis, Signed, UsageMode, WallTime};
use fairmesh_quota::Verdict;
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaCall};

use super::Extent;
use crate::experiment::{Claim, Outcome, Row, Table};
use crate::figures::{Figure, Series, Texts};
use crate::grid::{
    Gossip, GridSpec, Sample, UsageSeries, UsageSource, UsageTable, run as run_grid,
};
use simnet::vo::{DAY, HOUR, START, allocation, authority_key, key, path};

/// When P-A1 has spent its first slice, at its share of the Grid.
const SPENT_DAYS: u64 = 3;

/// When it has another one.
const AGAIN_DAYS: u64 = 5;

/// When the run ends.
const END_DAYS: u64 = 9;

/// The projects of VO-A, in the policy's order, with what each is to have of VO-A in the last half day before the
/// new slice: P-A1's 50 % go in equal parts to its siblings (absolute distance).
const PROJECTS: [(&str, f64, f64); 3] = [
    ("P-A1", 0.0, 50.0),
    ("P-A2", 55.0, 30.0),
    ("P-A3", 45.0, 20.0),
];

/// How old usage gets before schedulers see what came after it.
const AGE: Millis = Millis::from_secs(60);

/// Sites whose jobs of VO-A need credit.
struct WithQuotas {
    gossip: Gossip,
    /// Jobs that asked, and those that were refused, by project of VO-A.
    asked: BTreeMap<AccountKey, (u64, u64)>,
}

impl WithQuotas {
    fn new(spec: &GridSpec, seed: Seed) -> Self {
        let mut gossip = Gossip::new(spec, seed);
        let vo = gossip.world().founded_vos()[0].id;
        let share = u64::from(spec.cores) * spec.sites as u64 * 15 / 100;
        let slice = |amount: u64, from: u64, until: u64| AllocationSlice {
            amount: CoreMillis(amount * HOUR.0),
            start: START.after(DAY.times(from)),
            end: START.after(DAY.times(until)),
        };
        let plenty = slice(
            u64::from(spec.cores) * spec.sites as u64 * 24 * 30,
            0,
            2 * END_DAYS,
        );
        let first = slice(share * 24 * SPENT_DAYS, 0, AGAIN_DAYS);
        let second = slice(plenty.amount.0 / HOUR.0, AGAIN_DAYS, 2 * END_DAYS);
        for (name, slices) in [
            ("/P-A1", vec![first, second]),
            ("/P-A2", vec![plenty]),
            ("/P-A3", vec![plenty]),
        ] {
            let body = allocation(vo, path(name), slices, spec.sites);
            let keys = [authority_key(0), key("second authority", 0)];
            let signed = Signed::sign(body, &keys.each_ref()).expect("valid");
            let published = gossip.world_mut().publish(0, signed.bytes());
            published.expect("its authority has signed it");
        }
        Self {
            gossip,
            asked: BTreeMap::new(),
        }
    }
}

impl UsageSource for WithQuotas {
    fn advance(&mut self, now: WallTime) {
        self.gossip.advance(now);
    }

    fn finished(&mut self, site: usize, job: &Finished) {
        self.gossip.finished(site, job);
    }

    fn refresh(&mut self, now: WallTime, used: &UsageTable, clusters: &[Cluster]) {
        self.gossip.refresh(now, used, clusters);
    }

    fn order(
        &mut self,
        site: usize,
        now: WallTime,
        used: &UsageTable,
        accounts: &[AccountKey],
    ) -> BTreeMap<AccountKey, u64> {
        self.gossip.order(site, now, used, accounts)
    }

    fn admits(&mut self, site: usize, now: WallTime, job: &Job) -> bool {
        if job.account.vo != 0 {
            return true;
        }
        let call = QuotaCall::Hold(Box::new(HoldCall {
            record: Gossip::asks(site, now, job),
            account: None,
            is_exempt: false,
            may_wait: false,
            importance: Default::default(),
        }));
        let reply = self.gossip.world_mut().quota(site, call);
        let reply = reply.expect("no node ever stops here, and nothing waits");
        let QuotaAnswer::Held { answer, .. } = reply.expect("the call is sound") else {
            unreachable!("a hold is answered as one");
        };
        let is_refused = answer.verdict == Verdict::Refused;
        let asked = self.asked.entry(job.account.clone()).or_default();
        asked.0 += 1;
        asked.1 += u64::from(is_refused);
        !is_refused
    }
}

/// What a run gave.
struct Measures {
    series: UsageSeries,
    /// Of P-A1: asked, refused.
    asked: (u64, u64),
    /// By project of VO-A, of VO-A's use in the last half day before the new slice, percent.
    without: [f64; 3],
    /// VO-A's part of the Grid's use then.
    vo: f64,
    /// The same of all use until the end.
    in_all: [f64; 3],
}

fn sample_at(series: &UsageSeries, at: Millis) -> &Sample {
    let samples = series.samples.iter();
    samples
        .rev()
        .find(|sample| sample.at <= at)
        .expect("the first is at 0")
}

/// What the projects of VO-A have of its use between two moments, and VO-A of the Grid's; percent.
fn shares(series: &UsageSeries, from: Millis, until: Millis) -> ([f64; 3], f64) {
    let (first, last) = (sample_at(series, from), sample_at(series, until));
    let used = |leaf: usize| (last.used[leaf] - first.used[leaf]) as f64;
    let of_vo = |vo: usize| {
        let leaves = series.leaves.iter().enumerate();
        leaves
            .filter(move |(_, leaf)| leaf.vo == vo)
            .map(|(at, _)| at)
    };
    let sum = |vo: usize| of_vo(vo).map(used).sum::<f64>();
    let all = sum(0) + sum(1);
    let part = |leaf: usize| 100.0 * used(leaf) / sum(0).max(1.0);
    ([part(0), part(1), part(2)], 100.0 * sum(0) / all.max(1.0))
}

fn run_once((): &(), extent: &Extent, seed: u64) -> Measures {
    let mut spec = GridSpec::paper(UsageMode::Active, AGE, DAY.times(END_DAYS));
    spec.cores /= u32::try_from(extent.divisor).expect("few");
    let mut source = WithQuotas::new(&spec, Seed(seed));
    let series = run_grid(&spec, Seed(seed), &mut source, &|| {});
    let series = series.expect("the paper's load can be drawn");
    let again = DAY.times(AGAIN_DAYS);
    let (without, vo) = shares(&series, Millis(again.0 - 12 * HOUR.0), again);
    let (in_all, _) = shares(&series, Millis(0), DAY.times(END_DAYS));
    Measures {
        asked: source.asked[&series.leaves[0]],
        series,
        without,
        vo,
        in_all,
    }
}

fn claims(row: &Row<(), Measures>) -> Vec<Claim> {
    let near = |what: String, value: &dyn Fn(&Measures) -> f64, expected: f64| {
        let worst = row.greatest(|of| (value(of) - expected).abs());
        let mean = row.mean(value).text(2);
        Claim::new(
            what,
            format!("{mean}, {worst:.2} off at worst"),
            worst <= 1.0,
        )
    };
    let mut claims = Vec::new();
    for (at, (name, without, in_all)) in PROJECTS.into_iter().enumerate() {
        let what = format!("day 4.5 to 5: {name} has {without} % of VO-A's use, within 1");
        claims.push(near(what, &|of| of.without[at], without));
        let what = format!("day 0 to 9: {name} has {in_all} % of VO-A's use, within 1");
        claims.push(near(what, &|of| of.in_all[at], in_all));
    }
    let what = "day 4.5 to 5: VO-A has 30 % of the Grid, within 1".to_owned();
    claims.push(near(what, &|of| of.vo, 30.0));
    claims
}

/// VO-A's use by project, six hours each, of the first seed.
fn picture(of: &Measures) -> Figure {
    const STEP: Millis = Millis(6 * HOUR.0);
    let steps = DAY.0 * END_DAYS / STEP.0;
    let line = |(at, (name, ..)): (usize, (&str, f64, f64))| {
        let point = |step| {
            let (from, until) = (STEP.times(step), STEP.times(step + 1));
            let (parts, _) = shares(&of.series, from, until);
            (until.0 as f64 / DAY.0 as f64, parts[at])
        };
        Series::new(name, at, (0..steps).map(point))
    };
    let texts = Texts {
        name: "fairshare",
        title: "E6: P-A1's quota is spent on day 3, and it has a new slice on day 5",
        caption: "Of what VO-A used in each six hours, the parts of its projects, whose shares are 50, 30 and \
                  20 %. FSGrid's six sites of 100 cores, real nodes' sites, all usage weighs the same, one seed.",
        x_label: "days",
        y_label: "of VO-A's use (percent)",
    };
    let lines = PROJECTS.into_iter().enumerate().map(line);
    texts.lines(lines).within(0.0, 105.0)
}

/// Runs it.
pub fn run(extent: &Extent) -> Outcome {
    let study = extent.study([()], run_once);
    let row = &study.rows[0];
    let columns = [
        "project",
        "day 4.5 to 5 (%)",
        "day 0 to 9 (%)",
        "jobs that asked",
        "refused",
    ];
    let mut table = Table::new("fairshare-shares", "E6: of VO-A's use", columns);
    for (at, (name, ..)) in PROJECTS.into_iter().enumerate() {
        let mean = |value: &dyn Fn(&Measures) -> f64| row.mean(value).text(2);
        // Credit of the others does not end: nobody asks whether they are refused.
        let asked =
            |value: &dyn Fn(&Measures) -> f64| if at == 0 { mean(value) } else { String::new() };
        table.row([
            name.to_owned(),
            mean(&|of| of.without[at]),
            mean(&|of| of.in_all[at]),
            asked(&|of| of.asked.0 as f64),
            asked(&|of| of.asked.1 as f64),
        ]);
    }
    Outcome {
        tables: vec![table],
        figures: row.runs.first().map(picture).into_iter().collect(),
        claims: claims(row),
    }
}
