//! From the text of a file to a scenario.
//!
//! Invariant: what comes out is valid: every site, VO, path, length and share in it exists, steps are
//! in order of time and none lies behind the end. An error stands where the file is wrong.
//!
//! Deliberately not here: steps (`steps`), and running them.

use fairmesh_model::{AccountPath, HistoryRule, Millis, Share, UsageMode, Weight, WindowLength};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ScenarioError, Source};
use super::steps::Reader;
use super::{Grid, Load, Scenario, Step};
use crate::vo::VoSpec;

/// Most sites of a scenario: more are a measurement, not a story.
const SITES_MAX: usize = 200;

/// Longest duration: below the 90 days after which usage of a scenario is forgotten.
const DURATION_MAX: Millis = Millis(80 * 86_400_000);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    title: String,
    shows: String,
    #[serde(with = "crate::length")]
    duration: Millis,
    grid: Spanned<Grid>,
    #[serde(default)]
    vo: Vec<Spanned<RawVo>>,
    #[serde(default)]
    load: Vec<Spanned<Load>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVo {
    name: String,
    members: Option<Vec<usize>>,
    cores: Option<u32>,
    groups: Option<Vec<u32>>,
    users: Option<u32>,
    #[serde(default, with = "crate::length")]
    window: Option<Millis>,
    mode: Option<UsageMode>,
}

impl Scenario {
    /// Reads a scenario. `file` is the file's name, for errors and for the scenario's own name.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let source = Source { file, text };
        let parsed = DeTable::parse(text).map_err(|error| source.wrong(&error))?;
        let span = parsed.span();
        let mut table = parsed.into_inner();
        let written = table.remove("step").map(Spanned::into_inner);
        let whole = Spanned::new(span, DeValue::Table(table));
        let raw: RawScenario = source.value(whole)?;
        let duration = raw.duration;
        if duration > DURATION_MAX {
            return Err(source.error(0, "duration", "more than 80d: usage would be forgotten"));
        }
        let grid = checked_grid(source, raw.grid)?;
        let vos = read_vos(source, &raw.vo, grid.sites)?;
        let load = |load| checked_load(source, load, duration, &vos);
        let loads = raw.load.into_iter().map(load).collect::<Result<_, _>>()?;
        let reader = Reader {
            source,
            sites: grid.sites,
            vos: &vos,
            duration,
        };
        let mut steps = Vec::new();
        for step in written.into_iter().flat_map(elements) {
            steps.extend(reader.read(step)?);
        }
        // Stable: what stands first in the file happens first.
        steps.sort_by_key(|step: &Step| step.at);
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

fn elements(value: DeValue<'_>) -> Vec<Spanned<DeValue<'_>>> {
    match value {
        DeValue::Array(elements) => elements.into_iter().collect(),
        _ => Vec::new(),
    }
}

fn stem(file: &str) -> String {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name).to_owned()
}

fn checked_grid(source: Source<'_>, raw: Spanned<Grid>) -> Result<Grid, ScenarioError> {
    let (at, grid) = (raw.span().start, raw.into_inner());
    if !(1..=SITES_MAX).contains(&grid.sites) {
        return Err(source.error(at, "sites", format!("they are 1 to {SITES_MAX}")));
    }
    if grid.late.iter().any(|node| *node >= grid.sites) {
        return Err(source.error(at, "late", "there is no such site"));
    }
    Ok(grid)
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
    let mut vo = VoSpec::small(&raw.name, sites);
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
        vo.window = WindowLength::from_millis(window.0)
            .map_err(|error| source.error(at, "window", error.to_string()))?;
    }
    vo.usage_mode = raw.mode.unwrap_or(UsageMode::Active);
    Ok(long_remembering(vo))
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

fn shares(groups: &[u32], users: u32) -> Option<Vec<(String, Weight)>> {
    let mut shares = Vec::new();
    for (group, percent) in groups.iter().enumerate() {
        shares.push((format!("/g{group}"), Share::from_percent(*percent)?.into()));
        let user = |user| (format!("/g{group}/u{user}"), Weight::whole(1));
        shares.extend((0..users).map(user));
    }
    Some(shares)
}

/// The load, with what it leaves out filled in.
fn checked_load(
    source: Source<'_>,
    raw: Spanned<Load>,
    duration: Millis,
    vos: &[VoSpec],
) -> Result<Load, ScenarioError> {
    let (at, mut load) = (raw.span().start, raw.into_inner());
    if load.account.is_empty() {
        load.account.clone_from(&vos[0].name);
    }
    let vo = vos.iter().find(|vo| vo.name == load.account);
    if vo.is_none() && load.account != "local" {
        return Err(source.error(at, "account", "it is the name of a VO, or local"));
    }
    if load.sites.is_empty() {
        let members = vo.ok_or_else(|| source.error(at, "sites", "local jobs need sites"))?;
        load.sites = members.members.iter().map(|(site, _)| *site).collect();
    }
    if load.every == Millis(0) {
        return Err(source.error(at, "every", "it is zero"));
    }
    let (least, most) = load.cores;
    if least == 0 || least > most || load.shortest > load.longest {
        return Err(source.error(at, "cores", "the least comes first and is above zero"));
    }
    load.until.get_or_insert(duration);
    Ok(load)
}
