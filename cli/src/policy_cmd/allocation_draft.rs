//! Allocations as TOML, both ways: a header `[allocation]`, its slices, and how these are split among sites.
//!
//! Invariant: the text of an allocation reads back as that allocation. Deliberately not here: cutting an amount
//! into slices (`start`), and whether the allocation makes sense (`Document::validate`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fairmesh_api::words::timestamp;
use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, CoreMillis, Factor, PartOf, QuotaMode, Settlement,
};
use fairmesh_node::config::quantity::{RawFactor, RawMoment, RawPercent};
use fairmesh_node::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::fields::{RawRole, by_key, optional, quoted, role_lines};

/// Core-milliseconds of a core-hour.
pub(crate) const CORE_HOUR_MS: u64 = 3_600_000;

// What a draft says above its lines.
const PATH: &str = "# Whose credit: jobs of this account and below.\n";
const ID: &str = "# A later version may end slices sooner, and change the terms.\n";
const PART_OF: &str = "# What leaders pass this on from; each slice says which of its slices.\n";
const EXPIRES: &str =
    "# Expiry degrades answers, it does not stop them; slices end by themselves.\n";
const MEMBERS: &str = "# Only these accounts below `path`; everybody there, if none is named.\n";
const MODE: &str = "\
# Beyond it: strict refuses, soft lets jobs run up to `overdraft` core-hours, advisory counts.
";
const SETTLE: &str = "# next: the next slice pays what is owed; manual: nothing does.\n";
const HOLD_MAX: &str = "# The most that one job may hold, core-hours.\n";
const HOLD_FACTOR: &str =
    "# What a job holds, of what it costs if it runs as long as it asks to.\n";
const FEE: &str = "# What the greatest importance costs beyond the price, of the price.\n";
const PRICE_MAX: &str = "# The highest price that a site's owner may ask.\n";
const IDLE_CHARGE: &str = "\
# Of its price, what a job on machines that would stand idle is charged; 0 is nothing.
";
const SPLIT: &str = "# How every slice is divided among the sites to begin with, by weight.\n";
const AT_MOST: &str = "
# The most of each slice that a site may have at a time, percent, by its id; it stays as it is.
";
const LEADERS: &str = "\n# Who may pass parts of it on to accounts below its path.\n";

const AMOUNT_HELP: &str = "write core-hours with at most six decimals, such as \"1200\" or \"0.5\"";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDraft {
    allocation: RawAllocation,
    slice: Vec<RawSlice>,
    split: BTreeMap<Spanned<String>, u64>,
    #[serde(default)]
    at_most: BTreeMap<Spanned<String>, RawPercent>,
    leaders: Option<RawRole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAllocation {
    vo: Spanned<String>,
    path: Spanned<String>,
    version: u64,
    id: Option<Spanned<String>>,
    issued: RawMoment,
    expires: RawMoment,
    #[serde(default)]
    members: Vec<Spanned<String>>,
    mode: Option<QuotaMode>,
    overdraft: Option<Spanned<String>>,
    #[serde(default)]
    settle: Settlement,
    hold_max: Option<Spanned<String>>,
    hold_factor: Option<RawFactor>,
    fee: Option<RawFactor>,
    price_max: Option<RawFactor>,
    idle_charge: Option<RawFactor>,
    part_of: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSlice {
    core_hours: Spanned<String>,
    start: RawMoment,
    end: RawMoment,
    part_of: Option<u32>,
}

pub(super) fn parse(source: Source<'_>) -> Result<Allocation, FileError> {
    let raw: RawDraft = source.parse()?;
    let head = &raw.allocation;
    let vo_help = "it is printed by `fairmesh policy show` of the VO's charter";
    let id_help = "`fairmesh policy new allocation --from OLD.cbor` fills it in";
    let path_help = "write the account whose credit it is, such as \"/P-A1\"";
    let path = |key: &str, raw| source.parsed::<AccountPath>(key, raw, path_help);
    let members = head.members.iter();
    let members = members.map(|member| path("allocation.members", member));
    let factor = |key: &str, raw: &Option<RawFactor>| optional(raw, |raw| source.factor(key, raw));
    let amount =
        |key: &str, raw: &Option<Spanned<String>>| optional(raw, |raw| amount(source, key, raw));
    let weights = "write the ids of sites, as in the charter, and their weights";
    let percents = "write the ids of sites, as in the charter, and percents";
    Ok(Allocation {
        vo: source.parsed("allocation.vo", &head.vo, vo_help)?,
        path: path("allocation.path", &head.path)?,
        version: head.version,
        id: optional(&head.id, |id| source.parsed("allocation.id", id, id_help))?,
        issued: source.moment("allocation.issued", &head.issued)?,
        expires: source.moment("allocation.expires", &head.expires)?,
        slices: slices(source, &raw.slice)?,
        split: by_key(source, "split", weights, &raw.split, |weight| Ok(*weight))?,
        members: members.collect::<Result<BTreeSet<_>, _>>()?,
        mode: head.mode,
        overdraft_max: amount("allocation.overdraft", &head.overdraft)?.unwrap_or_default(),
        settle: head.settle,
        hold_max: amount("allocation.hold_max", &head.hold_max)?,
        hold_factor: factor("allocation.hold_factor", &head.hold_factor)?.unwrap_or(Factor::ONE),
        fee: factor("allocation.fee", &head.fee)?.unwrap_or(Factor::from_millionths(0)),
        price_max: factor("allocation.price_max", &head.price_max)?,
        idle_charge: factor("allocation.idle_charge", &head.idle_charge)?.unwrap_or(Factor::ONE),
        part_of: part_of(source, &raw)?,
        leaders: optional(&raw.leaders, |leaders| leaders.role(source, "leaders"))?,
        at_most: by_key(source, "at_most", percents, &raw.at_most, |most| {
            source.percent("at_most", most)
        })?,
    })
}

fn slices(source: Source<'_>, raw: &[RawSlice]) -> Result<Vec<AllocationSlice>, FileError> {
    let slice = |raw: &RawSlice| {
        Ok(AllocationSlice {
            amount: amount(source, "slice.core_hours", &raw.core_hours)?,
            start: source.moment("slice.start", &raw.start)?,
            end: source.moment("slice.end", &raw.end)?,
        })
    };
    raw.iter().map(slice).collect()
}

/// What it is a part of: the whole in the header, and with each slice which one of the whole.
fn part_of(source: Source<'_>, raw: &RawDraft) -> Result<Option<PartOf>, FileError> {
    let help = "`fairmesh quota pass` fills it in";
    let places = raw.slice.iter().map(|slice| slice.part_of);
    let wrong = |problem| {
        let error = source.error(None, Some("slice.part_of"), problem);
        Err(error.with_help(help))
    };
    let Some(whole) = &raw.allocation.part_of else {
        return match places.flatten().next() {
            Some(_) => wrong("a slice is a part of one, and the allocation of none"),
            None => Ok(None),
        };
    };
    let Some(slices) = places.collect() else {
        return wrong("each slice of a part says which slice of the whole it is a part of");
    };
    let allocation = source.parsed("allocation.part_of", whole, help)?;
    Ok(Some(PartOf { allocation, slices }))
}

fn amount(source: Source<'_>, key: &str, raw: &Spanned<String>) -> Result<CoreMillis, FileError> {
    parse_core_hours(raw.get_ref()).ok_or_else(|| {
        let problem = format!("`{}` is no amount of core-hours", raw.get_ref());
        source
            .error(Some(raw.span()), Some(key), problem)
            .with_help(AMOUNT_HELP)
    })
}

/// Core-hours as a decimal number that is a whole number of core-milliseconds, such as `1200` or `0.5`.
pub(crate) fn parse_core_hours(text: &str) -> Option<CoreMillis> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(CORE_HOUR_MS)?;
    let part: u64 = format!("{part:0<9}").parse().ok()?;
    // Up to the next whole core-millisecond: what was written by `exact_core_hours` was cut.
    let part = (u128::from(part) * u128::from(CORE_HOUR_MS)).div_ceil(1_000_000_000);
    whole.checked_add(u64::try_from(part).ok()?).map(CoreMillis)
}

/// The inverse of [`parse_core_hours`].
pub(crate) fn exact_core_hours(amount: CoreMillis) -> String {
    let (whole, rest) = (amount.0 / CORE_HOUR_MS, amount.0 % CORE_HOUR_MS);
    let part = u128::from(rest) * 1_000_000_000 / u128::from(CORE_HOUR_MS);
    let part = format!("{part:09}");
    match part.trim_end_matches('0') {
        "" => whole.to_string(),
        part => format!("{whole}.{part}"),
    }
}

/// An allocation as a draft, with comments.
pub fn allocation_toml(allocation: &Allocation) -> String {
    let mut text = String::new();
    write_header(&mut text, allocation).expect("a string takes all text");
    write_grants(&mut text, allocation).expect("a string takes all text");
    text
}

fn write_header(text: &mut String, of: &Allocation) -> std::fmt::Result {
    let (vo, path, version) = (of.vo, quoted(of.path.as_str()), of.version);
    writeln!(text, "[allocation]\nvo = \"{vo}\"")?;
    writeln!(text, "{PATH}path = {path}\nversion = {version}")?;
    if let Some(id) = of.id {
        writeln!(text, "{ID}id = \"{id}\"")?;
    }
    if let Some(PartOf { allocation, .. }) = &of.part_of {
        writeln!(text, "{PART_OF}part_of = \"{allocation}\"")?;
    }
    let (issued, expires) = (timestamp(of.issued), timestamp(of.expires));
    writeln!(text, "issued = {issued}\n{EXPIRES}expires = {expires}")?;
    let members = of.members.iter().map(|member| quoted(member.as_str()));
    let members: Vec<String> = members.collect();
    writeln!(text, "{MEMBERS}members = [{}]", members.join(", "))?;
    let mode = match of.mode {
        None => "# mode = \"strict\"",
        Some(QuotaMode::Strict) => "mode = \"strict\"",
        Some(QuotaMode::Soft) => "mode = \"soft\"",
        Some(QuotaMode::Advisory) => "mode = \"advisory\"",
    };
    let overdraft = exact_core_hours(of.overdraft_max);
    writeln!(text, "{MODE}{mode}\noverdraft = \"{overdraft}\"")?;
    let settle = match of.settle {
        Settlement::Next => "next",
        Settlement::Manual => "manual",
    };
    writeln!(text, "{SETTLE}settle = \"{settle}\"")?;
    write_prices(text, of)
}

/// What jobs hold and cost.
fn write_prices(text: &mut String, of: &Allocation) -> std::fmt::Result {
    if let Some(most) = of.hold_max {
        writeln!(text, "{HOLD_MAX}hold_max = \"{}\"", exact_core_hours(most))?;
    }
    writeln!(text, "{HOLD_FACTOR}hold_factor = {}", of.hold_factor)?;
    writeln!(text, "{FEE}fee = {}", of.fee)?;
    match of.price_max {
        Some(most) => writeln!(text, "{PRICE_MAX}price_max = {most}")?,
        None => writeln!(text, "{PRICE_MAX}# price_max = 2")?,
    }
    writeln!(text, "{IDLE_CHARGE}idle_charge = {}\n", of.idle_charge)
}

fn write_grants(text: &mut String, of: &Allocation) -> std::fmt::Result {
    let places = of.part_of.iter().flat_map(|part_of| &part_of.slices);
    let mut places = places.copied();
    for slice in &of.slices {
        let hours = exact_core_hours(slice.amount);
        let (start, end) = (timestamp(slice.start), timestamp(slice.end));
        writeln!(text, "[[slice]]\ncore_hours = \"{hours}\"")?;
        writeln!(text, "start = {start}\nend = {end}")?;
        if let Some(place) = places.next() {
            writeln!(text, "part_of = {place}")?;
        }
        writeln!(text)?;
    }
    writeln!(text, "{SPLIT}[split]")?;
    for (site, weight) in &of.split {
        writeln!(text, "\"{site}\" = {weight}")?;
    }
    writeln!(text, "{AT_MOST}[at_most]")?;
    for (site, most) in &of.at_most {
        writeln!(text, "\"{site}\" = {most}")?;
    }
    match &of.leaders {
        Some(leaders) => {
            writeln!(text, "{LEADERS}[leaders]")?;
            role_lines(text, leaders);
            Ok(())
        }
        None if of.part_of.is_some() => Ok(()),
        None => writeln!(text, "{LEADERS}# [leaders]\n# keys = [\"KEY-ID\"]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_back_to_the_millisecond() {
        for amount in [0, 1, 7, 333, 3_599_999, 3_600_000, 1_198_800_001, 1 << 56] {
            let amount = CoreMillis(amount);
            let text = exact_core_hours(amount);
            assert_eq!(parse_core_hours(&text), Some(amount), "{text}");
        }
        assert_eq!(parse_core_hours("0.5"), Some(CoreMillis(1_800_000)));
        for bad in [
            "",
            ".5",
            "1e3",
            "-1",
            "1.0000000001",
            "18446744073709551615",
        ] {
            assert_eq!(parse_core_hours(bad), None, "{bad}");
        }
    }
}
