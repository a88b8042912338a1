//! Charters as TOML, both ways.
//!
//! Invariant: the text of a charter reads back as that charter. Deliberately not here: whether the
//! charter makes sense (`Document::validate`).

use std::fmt::Write;

use fairmesh_api::words::timestamp;
use fairmesh_model::{
    Charter, Discounts, DistanceError, HistoryRule, MemberSite, Millis, SiteId, UsageMode,
    WindowLength,
};
use fairmesh_node::config::charging::{RawDiscounts, RawRule};
use fairmesh_node::config::history::RawHistory;
use fairmesh_node::config::quantity::{RawDuration, RawMoment, parse_mebibytes};
use fairmesh_node::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::fields::{EXPIRES, RawRole, optional, quoted, role_lines};

// What a draft says above its lines.
const WINDOW: &str = "# Windows in which usage is counted; fixed for as long as the VO exists.\n";
const USAGE_MODE: &str = "\
# historical: finished jobs; active: and running ones so far; predictive: to their end. Sites count running
# ones so far at their own levels in any case.
";
const HISTORY: &str = "
# How old usage counts; or running_only = true: whole jobs while they run, and nothing else.
[history]
";
const CHARGING: &str = "\
# \"cpu-time\"; or { normalised-time = { spec_max = 2 } }, which is × SPEC of the machine, by the sites'
# [[machine]] classes; or weights in thousandths of a core, such as
# { weights = { cpu = 1000, gpu = 8000, mem_gib = 250, max = true } }
# where the largest term counts alone, or the sum of all (max = false), × SPEC with spec_max = 2, and energy beside
# it with energy_kwh = 500 (half a core-hour for a kWh); or
# { penalty = { gpu = true, disk = true, factor_max = 4 } }
# for the part of a machine that a job asked for; SPEC times the cost of a queue may be up to factor_max,
# and with gpu_weight = 4000 GPUs are charged beside the machine.
";
const DISCOUNTS: &str = "# Percent of the full charge for use on other than the usual terms.\n";
const DISTANCE: &str = "# absolute, relative, or mix:K with K from 0 to 1.\n";
const READERS: &str = "\
# VOs that may mount this one's policies: their members may have its charters and policies, and nothing else.
";
const AUTHORITY: &str = "
# Who signs charters: ids from `fairmesh policy keygen`, and how many must.
[authority]
";
const SNAPSHOT: &str = "
# Who signs snapshots, each hour, by keys that are online and may do nothing else (docs/snapshot.md).
[snapshot]
";
const SITES: &str = "
# Who counts usage: at most its cpus at one moment, and its gpus and mem (\"4TiB\") where they are given. cpus are what
# its batch system counts: threads where it counts threads (Slurm: sinfo -a -h -o %C), slots in Grid Engine and LSF.
# Lines that `fairmesh init` leaves in member.toml; `fairmesh policy new charter --site member.toml` takes them.
";
const MEM_HELP: &str = "write whole GiB, such as \"512GiB\" or \"4TiB\"";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDraft {
    charter: RawCharter,
    authority: RawRole,
    policy: RawRole,
    snapshot: Option<RawRole>,
    #[serde(default)]
    history: RawHistory,
    #[serde(default)]
    site: Vec<RawSite>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCharter {
    name: String,
    version: u64,
    vo: Option<Spanned<String>>,
    previous: Option<Spanned<String>>,
    issued: RawMoment,
    expires: RawMoment,
    window: Option<RawDuration>,
    #[serde(default)]
    usage_mode: UsageMode,
    charging: Option<RawRule>,
    discounts: Option<RawDiscounts>,
    distance: Option<Spanned<String>>,
    #[serde(default)]
    readers: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    name: String,
    id: Spanned<String>,
    // Drafts of earlier releases.
    #[serde(alias = "cores")]
    cpus: u32,
    gpus: Option<u32>,
    mem: Option<Spanned<String>>,
    #[serde(default)]
    addresses: Vec<String>,
}

/// What a site's owner sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMember {
    site: Vec<RawSite>,
}

/// A site, by the lines that its owner sends: whatever else stands there is refused, as it would be part of the
/// charter.
pub(super) fn parse_member(source: Source<'_>) -> Result<MemberSite, FileError> {
    let raw: RawMember = source.parse()?;
    match &raw.site[..] {
        [site] => member(source, site),
        sites => {
            let problem = format!("{} sites, where its owner's one is wanted", sites.len());
            Err(source.error(None, None, problem))
        }
    }
}

pub(super) fn parse(source: Source<'_>) -> Result<Charter, FileError> {
    let raw: RawDraft = source.parse()?;
    let charter = &raw.charter;
    let window = window(source, &raw)?;
    let id_help = "`fairmesh policy new charter --from OLD.cbor` fills it in";
    let vo_help = "it is printed by `fairmesh policy show --id` of the other VO's charter";
    Ok(Charter {
        version: charter.version,
        vo: optional(&charter.vo, |id| source.parsed("charter.vo", id, id_help))?,
        previous: optional(&charter.previous, |id| {
            source.parsed("charter.previous", id, id_help)
        })?,
        name: charter.name.clone(),
        issued: source.moment("charter.issued", &charter.issued)?,
        expires: source.moment("charter.expires", &charter.expires)?,
        authority: raw.authority.role(source, "authority")?,
        policy: raw.policy.role(source, "policy")?,
        sites: raw
            .site
            .iter()
            .map(|site| member(source, site))
            .collect::<Result<_, _>>()?,
        window,
        history: raw.history.rule(source, window)?,
        usage_mode: charter.usage_mode,
        charging: optional(&charter.charging, |raw| {
            raw.rule(source, "charter.charging")
        })?
        .unwrap_or_default(),
        discounts: optional(&charter.discounts, |raw| {
            raw.discounts(source, "charter.discounts")
        })?
        .unwrap_or_default(),
        distance: optional(&charter.distance, |text| {
            let distance = text.get_ref().parse();
            distance.map_err(|help: DistanceError| {
                source.error(
                    Some(text.span()),
                    Some("charter.distance"),
                    help.to_string(),
                )
            })
        })?
        .unwrap_or_default(),
        readers: charter
            .readers
            .iter()
            .map(|id| source.parsed("charter.readers", id, vo_help))
            .collect::<Result<_, _>>()?,
        snapshot: optional(&raw.snapshot, |role| role.role(source, "snapshot"))?,
    })
}

/// The length of windows, which either of two tables may say.
fn window(source: Source<'_>, raw: &RawDraft) -> Result<WindowLength, FileError> {
    let in_history = "history.window";
    match (&raw.charter.window, &raw.history.window) {
        (Some(_), Some(again)) => Err(source
            .wrong(in_history, again, "[charter] has a `window`, too")
            .with_help("keep one of the two")),
        (Some(own), None) => source.window("charter.window", own),
        (None, Some(own)) => source.window(in_history, own),
        (None, None) => Ok(WindowLength::HOUR),
    }
}

fn member(source: Source<'_>, raw: &RawSite) -> Result<MemberSite, FileError> {
    let help = "a site's id is printed by `fairmesh init`";
    Ok(MemberSite {
        site: source.parsed::<SiteId>("site.id", &raw.id, help)?,
        name: raw.name.clone(),
        cores: raw.cpus,
        gpus: raw.gpus,
        mem_gib: optional(&raw.mem, |size| {
            let gib = whole_gib(size.get_ref());
            gib.ok_or_else(|| source.error(Some(size.span()), Some("site.mem"), MEM_HELP))
        })?,
        addresses: raw.addresses.clone(),
    })
}

/// Memory in whole GiB.
fn whole_gib(text: &str) -> Option<u32> {
    let mib = parse_mebibytes(text)?;
    mib.is_multiple_of(1_024)
        .then(|| u32::try_from(mib / 1_024).ok())?
}

/// A charter as a draft, with comments.
pub fn charter_toml(charter: &Charter) -> String {
    let mut text = String::new();
    write_charter(&mut text, charter).expect("a string takes all text");
    text
}

fn write_charter(text: &mut String, charter: &Charter) -> std::fmt::Result {
    write_head(text, charter)?;
    write_rules(text, charter)?;
    text.push_str(AUTHORITY);
    role_lines(text, &charter.authority);
    text.push_str("\n# Who signs the share policy of `/`.\n[policy]\n");
    role_lines(text, &charter.policy);
    if let Some(snapshot) = &charter.snapshot {
        text.push_str(SNAPSHOT);
        role_lines(text, snapshot);
    }
    text.push_str(HISTORY);
    write_history(text, charter)?;
    text.push_str(SITES);
    for site in &charter.sites {
        let (name, id) = (quoted(&site.name), site.site);
        let addresses: Vec<String> = site.addresses.iter().map(|text| quoted(text)).collect();
        let (cpus, addresses) = (site.cores, addresses.join(", "));
        writeln!(text, "[[site]]\nname = {name}\nid = \"{id}\"")?;
        writeln!(text, "cpus = {cpus}")?;
        if let Some(gpus) = site.gpus {
            writeln!(text, "gpus = {gpus}")?;
        }
        if let Some(gib) = site.mem_gib {
            writeln!(text, "mem = \"{gib}GiB\"")?;
        }
        writeln!(text, "addresses = [{addresses}]\n")?;
    }
    Ok(())
}

fn write_head(text: &mut String, charter: &Charter) -> std::fmt::Result {
    let (name, version) = (quoted(&charter.name), charter.version);
    writeln!(text, "[charter]\nname = {name}\nversion = {version}")?;
    if let Some(vo) = charter.vo {
        writeln!(text, "vo = \"{vo}\"")?;
    }
    if let Some(previous) = charter.previous {
        writeln!(text, "previous = \"{previous}\"")?;
    }
    let (issued, expires) = (timestamp(charter.issued), timestamp(charter.expires));
    let window = length(charter.window.millis().0);
    writeln!(text, "issued = {issued}\n{EXPIRES}expires = {expires}")?;
    writeln!(text, "{WINDOW}window = \"{window}\"")
}

fn write_rules(text: &mut String, charter: &Charter) -> std::fmt::Result {
    let mode = match charter.usage_mode {
        UsageMode::Historical => "historical",
        UsageMode::Active => "active",
        UsageMode::Predictive => "predictive",
    };
    let charging = RawRule::text(&charter.charging);
    let distance = charter.distance;
    writeln!(text, "{USAGE_MODE}usage_mode = \"{mode}\"")?;
    writeln!(text, "{CHARGING}charging = {charging}")?;
    if charter.discounts != Discounts::NONE {
        let Discounts { preemptible, idle } = charter.discounts;
        let discounts = format!("preemptible = {preemptible}, idle = {idle}");
        writeln!(text, "{DISCOUNTS}discounts = {{ {discounts} }}")?;
    }
    writeln!(text, "{DISTANCE}distance = \"{distance}\"")?;
    if charter.readers.is_empty() {
        return Ok(());
    }
    let readers: Vec<String> = charter
        .readers
        .iter()
        .map(|vo| format!("\"{vo}\""))
        .collect();
    writeln!(text, "{READERS}readers = [{}]", readers.join(", "))
}

fn write_history(text: &mut String, charter: &Charter) -> std::fmt::Result {
    let span = |windows: u32| length(charter.window.millis().times(u64::from(windows)).0);
    match charter.history {
        HistoryRule::Windows {
            length,
            count,
            factor,
        } => writeln!(
            text,
            "windows = {{ length = \"{}\", count = {count}, factor = {factor} }}",
            span(length)
        ),
        HistoryRule::HalfLife { windows, horizon } => {
            writeln!(
                text,
                "half_life = \"{}\"\nhorizon = \"{}\"",
                span(windows),
                span(horizon)
            )
        }
        HistoryRule::None { horizon } => {
            writeln!(
                text,
                "half_life = \"none\"\nhorizon = \"{}\"",
                span(horizon)
            )
        }
        HistoryRule::RunningOnly => writeln!(text, "running_only = true"),
    }
}

/// A length of time, exactly, in the largest unit that divides it.
fn length(millis: u64) -> String {
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let unit = units.iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    unit.map_or_else(
        || format!("{}ms", Millis(millis).0),
        |(unit, name)| format!("{}{name}", millis / unit),
    )
}
