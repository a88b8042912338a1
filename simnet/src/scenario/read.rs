//! From the text of a file to a scenario.
//!
//! Invariant: what comes out is valid: every site, VO, path, length and share in it exists, steps are
//! in order of time and none lies behind the end. Deliberately not here: running it.

use fairmesh_model::{AccountPath, HistoryRule, Millis, Share, UsageMode, WindowLength};
use fairmesh_site::Timing;
use toml::Spanned;

use super::args::{Args, RawStep};
use super::error::{ScenarioError, Source};
use super::length::Length;
use super::raw::{RawGrid, RawLoad, RawMode, RawScenario, RawVo};
use super::{Grid, Load, Scenario, Step, What, words};
use crate::network::NetworkSpec;
use crate::vo::VoSpec;

/// Most sites of a scenario: more are a measurement, not a story.
const SITES_MAX: usize = 200;

/// Longest duration: below the 90 days after which usage of a scenario is forgotten.
const DURATION_MAX: Millis = Millis(80 * 86_400_000);

/// Most times that a step is repeated.
const TIMES_MAX: usize = 10_000;

impl Scenario {
    /// Reads a scenario. `file` is the file's name, for errors and for the scenario's own name.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let source = Source { file, text };
        let raw: RawScenario = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            source.error(at, None, error.message())
        })?;
        let at = raw.duration.span().start;
        let duration = positive(source, at, "duration", *raw.duration.get_ref())?;
        if duration > DURATION_MAX {
            return Err(source.error(at, "duration", "more than 80d: usage would be forgotten"));
        }
        let grid = read_grid(source, &raw.grid)?;
        let vos = read_vos(source, &raw.vo, grid.sites)?;
        let loads = raw.load.iter();
        let loads = loads
            .map(|load| read_load(source, load, duration, &vos))
            .collect::<Result<_, _>>()?;
        let mut steps = Vec::new();
        for step in raw.step {
            steps.extend(read_step(source, step, grid.sites, &vos)?);
        }
        // Stable: what stands first in the file happens first.
        steps.sort_by_key(|step: &Step| step.at);
        if let Some(late) = steps.iter().find(|step| step.at > duration) {
            let mut error = source.error(0, "at", "it lies behind the end of the scenario");
            error.line = late.line;
            return Err(error);
        }
        Ok(Self {
            name: stem(file),
            title: raw.title,
            shows: raw.shows,
            duration,
            grid,
            vos,
            loads,
            steps,
        })
    }
}

fn stem(file: &str) -> String {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name).to_owned()
}

fn positive(
    source: Source<'_>,
    at: usize,
    key: &'static str,
    length: Length,
) -> Result<Millis, ScenarioError> {
    let below = || source.error(at, key, "it is below zero");
    length.millis().ok_or_else(below)
}

fn read_grid(source: Source<'_>, raw: &Spanned<RawGrid>) -> Result<Grid, ScenarioError> {
    let (at, raw) = (raw.span().start, raw.get_ref());
    if !(1..=SITES_MAX).contains(&raw.sites) {
        return Err(source.error(at, "sites", format!("they are 1 to {SITES_MAX}")));
    }
    if raw.late.iter().any(|node| *node >= raw.sites) {
        return Err(source.error(at, "late", "there is no such site"));
    }
    let usual = Timing::default();
    let length = |key, length: Option<Length>, default: Millis| match length {
        Some(length) => positive(source, at, key, length),
        None => Ok(default),
    };
    let timing = Timing {
        publish: length("publish", raw.publish, usual.publish)?,
        heartbeat: length("heartbeat", raw.heartbeat, usual.heartbeat)?,
        sync: length("sync", raw.sync, usual.sync)?,
        clock_tolerance: length(
            "clock_tolerance",
            raw.clock_tolerance,
            usual.clock_tolerance,
        )?,
        checkpoint_batches: raw.checkpoint_batches.unwrap_or(usual.checkpoint_batches),
        ..usual
    };
    let mut network = NetworkSpec {
        degree: raw.degree,
        ..NetworkSpec::default()
    };
    network.mesh_degree = raw.mesh_degree.unwrap_or(network.mesh_degree);
    if let Some(link) = &raw.link {
        network.link = link
            .spec()
            .map_err(|problem| source.error(at, "link", problem))?;
    }
    Ok(Grid {
        sites: raw.sites,
        late: raw.late.clone(),
        timing,
        tick: length("tick", raw.tick, Millis(1_000))?,
        keeps_journal: raw.keeps_journal,
        network,
    })
}

fn read_vos(
    source: Source<'_>,
    raw: &[Spanned<RawVo>],
    sites: usize,
) -> Result<Vec<VoSpec>, ScenarioError> {
    if raw.is_empty() {
        return Ok(vec![long_remembering(VoSpec::small("grid", sites))]);
    }
    let mut vos: Vec<VoSpec> = Vec::new();
    for vo in raw {
        let read = read_vo(source, vo, sites)?;
        if vos.iter().any(|other| other.name == read.name) {
            return Err(source.error(vo.span().start, "name", "two VOs have this name"));
        }
        vos.push(read);
    }
    Ok(vos)
}

fn read_vo(
    source: Source<'_>,
    raw: &Spanned<RawVo>,
    sites: usize,
) -> Result<VoSpec, ScenarioError> {
    let (at, raw) = (raw.span().start, raw.get_ref());
    if AccountPath::parse(&format!("/{}", raw.name)).is_err() || raw.name == "local" {
        return Err(source.error(at, "name", "it is no name of a VO"));
    }
    let mut vo = long_remembering(VoSpec::small(&raw.name, sites));
    let members = raw.members.clone().unwrap_or_else(|| (0..sites).collect());
    if members.iter().any(|member| *member >= sites) {
        return Err(source.error(at, "members", "there is no such site"));
    }
    let cores = raw.cores.unwrap_or(1_000);
    vo.members = members.into_iter().map(|site| (site, cores)).collect();
    if raw.groups.is_some() || raw.users.is_some() {
        let groups = raw.groups.clone().unwrap_or_else(|| vec![50, 30, 20]);
        vo.shares = shares(&groups, raw.users.unwrap_or(4))
            .ok_or_else(|| source.error(at, "groups", "they are percent of the VO, 0 to 100"))?;
    }
    if let Some(window) = raw.window {
        let millis = positive(source, at, "window", window)?;
        vo.window = WindowLength::from_millis(millis.0)
            .map_err(|error| source.error(at, "window", error.to_string()))?;
        vo = long_remembering(vo);
    }
    vo.usage_mode = match raw.mode {
        Some(RawMode::Historical) => UsageMode::Historical,
        Some(RawMode::Predictive) => UsageMode::Predictive,
        Some(RawMode::Active) | None => UsageMode::Active,
    };
    Ok(vo)
}

/// Nothing is forgotten while a scenario lasts, so that totals can be counted to its end.
fn long_remembering(mut vo: VoSpec) -> VoSpec {
    let per_day = u32::try_from(vo.window.per_day()).unwrap_or(24);
    vo.history = HistoryRule::HalfLife {
        windows: 7 * per_day,
        horizon: 90 * per_day,
    };
    vo
}

fn shares(groups: &[u32], users: u32) -> Option<Vec<(String, Share)>> {
    let mut shares = Vec::new();
    for (group, percent) in groups.iter().enumerate() {
        shares.push((format!("/g{group}"), Share::from_percent(*percent)?));
        let part = Share::from_ratio(1, u64::from(users.max(1)));
        shares.extend((0..users).map(|user| (format!("/g{group}/u{user}"), part)));
    }
    Some(shares)
}

fn read_load(
    source: Source<'_>,
    raw: &Spanned<RawLoad>,
    duration: Millis,
    vos: &[VoSpec],
) -> Result<Load, ScenarioError> {
    let (at, raw) = (raw.span().start, raw.get_ref());
    let account = raw.account.clone().unwrap_or_else(|| vos[0].name.clone());
    let vo = vos.iter().find(|vo| vo.name == account);
    if vo.is_none() && account != "local" {
        return Err(source.error(at, "account", "it is the name of a VO, or local"));
    }
    let members = || vo.map(|vo| vo.members.iter().map(|(site, _)| *site).collect());
    let sites: Option<Vec<usize>> = raw.sites.clone().or_else(members);
    let Some(sites) = sites else {
        return Err(source.error(at, "sites", "local jobs need sites"));
    };
    let every = positive(source, at, "every", raw.every)?;
    if every == Millis(0) {
        return Err(source.error(at, "every", "it is zero"));
    }
    let run = raw
        .run
        .unwrap_or((Length(10 * 60_000), Length(4 * 3_600_000)));
    let run = (
        positive(source, at, "run", run.0)?,
        positive(source, at, "run", run.1)?,
    );
    let cores = raw.cores.unwrap_or((1, 16));
    if cores.0 == 0 || cores.0 > cores.1 || run.0 > run.1 {
        return Err(source.error(at, "cores", "the least comes first and is above zero"));
    }
    let or = |key, length: Option<Length>, default| match length {
        Some(length) => positive(source, at, key, length),
        None => Ok(default),
    };
    Ok(Load {
        sites,
        account,
        every,
        cores,
        run,
        from: or("from", raw.from, Millis(0))?,
        until: or("until", raw.until, duration)?,
        by_own_clock: raw.by_own_clock,
    })
}

/// One step of the file is several where it is repeated, or where nodes have their turns.
fn read_step(
    source: Source<'_>,
    step: Spanned<RawStep>,
    sites: usize,
    vos: &[VoSpec],
) -> Result<Vec<Step>, ScenarioError> {
    let args = Args::new(source, step, sites, vos);
    let at = args.length("at")?;
    let every = args.length_or("every", Millis(0))?;
    let times: usize = args.maybe("times")?.unwrap_or(1);
    if times > TIMES_MAX || (times > 1 && every == Millis(0)) {
        let problem = format!("`times` (at most {TIMES_MAX}) needs `every`");
        return Err(args.error("times", problem));
    }
    let what = words::read(&args)?;
    let line = args.line();
    let step = |number: usize| Step {
        at: Millis(at.0 + every.0 * number as u64),
        line,
        what: what.clone(),
    };
    match &what {
        What::Do(task) if task.takes_turns() && times == 1 && every > Millis(0) => {
            let turns = task.turns().into_iter().enumerate();
            let turn = |(number, task)| Step {
                what: What::Do(task),
                ..step(number)
            };
            Ok(turns.map(turn).collect())
        }
        _ => Ok((0..times).map(step).collect()),
    }
}
