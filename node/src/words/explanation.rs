//! The words of `fairmesh explain`: where jobs count and why they stand there.
//!
//! Invariant: what a group has used is said of the group. A user is named as the one who used it only where the entry
//! is the user's own. Deliberately not here: what Slurm's queue says of a job.

use std::io::{self, Write};

use fairmesh_api::words::name_or_id;
use fairmesh_api::{CauseBody, ComparisonBody, ExplainBody, LevelBody};
use fairmesh_model::clean;

use super::number::{amount, core_hours, number, percent};
use crate::projection::ProjectionName;

/// What the top entries share.
const THIS_SITE: &str = "this site";

/// A deviation below this, in percent, prints as 0.00.
const ON_TARGET: f64 = 0.005;

/// How an entry is spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// To the user of this name, who counts there.
    Yours(&'a str),
    /// For another reader: the user of this name counts there.
    Of(&'a str),
    /// As an entry of the tree.
    Nobody,
}

/// Writes all that there is to say of an entry.
pub fn write(body: &ExplainBody, whose: Whose<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", place_sentence(body, whose))?;
    for level in &body.levels {
        writeln!(out, "  {}", level_words(level))?;
    }
    if whose != Whose::Nobody {
        writeln!(out, "{}", reason(body, whose))?;
    }
    if let Some(comparison) = &body.comparison {
        comparison_words(body, comparison, out)?;
    }
    let versus = body.comparison.iter();
    let versus = versus.flat_map(|comparison| &comparison.versus_levels);
    let levels: Vec<&LevelBody> = body.levels.iter().chain(versus).collect();
    for cause in &body.causes {
        let level = levels.iter().find(|level| level.path == cause.path);
        cause_words(cause, level.and_then(|level| level.since.as_deref()), out)?;
    }
    Ok(())
}

/// Where jobs count. If their account has no entry, that comes first: the entry is then that of everybody without one.
pub fn place_sentence(body: &ExplainBody, whose: Whose<'_>) -> String {
    // An account without a line counts among all of them: that is the place to name.
    let others = body
        .levels
        .iter()
        .rev()
        .find(|level| level.path.ends_with("/*"));
    let others = others.filter(|_| !body.exact);
    let path = clean(others.map_or(&body.path, |others| &others.path));
    let rank = format!("rank {} of {}", body.rank, body.ranks);
    let (who, have) = match whose {
        Whose::Nobody => return format!("{path}, {rank}, from the root down:"),
        Whose::Yours(_) if body.exact => return format!("Your jobs count at {path}, {rank}."),
        Whose::Of(user) if body.exact => {
            return format!("Jobs of {} count at {path}, {rank}.", clean(user));
        }
        Whose::Yours(_) => (
            "You".to_owned(),
            "have no line of your own in the share tree: your",
        ),
        Whose::Of(user) => (
            clean(user),
            "has no line of their own in the share tree: their",
        ),
    };
    let account = match body.account.is_empty() || body.account == body.path {
        true => String::new(),
        false => format!(" ({} has none)", clean(&body.account)),
    };
    format!(
        "{who} {have} jobs count at {path}{account}, together with those of everybody there without a line, {rank}."
    )
}

/// Why a user has this place. The highest level that is not on target decides, unless the projection compares all
/// levels at once.
pub fn reason(body: &ExplainBody, whose: Whose<'_>) -> String {
    if body.projection == ProjectionName::OF_PRODUCTS {
        return format!(
            "The projection `{}` compares what all levels together promise and have: rank {} of {}.",
            clean(&body.projection),
            body.rank,
            body.ranks
        );
    }
    let levels = &body.levels;
    // An entry with the only share of a level competes with nobody there.
    let is_alone = |level: &LevelBody| level.target == "100" && level.among.is_none();
    let is_off = |level: &&LevelBody| {
        level.over || level.last || !is_alone(level) && number(&level.deviation).abs() >= ON_TARGET
    };
    let Some(level) = levels.iter().find(is_off) else {
        return "All of it is on target.".to_owned();
    };
    let (path, parent) = (clean(&level.path), parent_words(level));
    let order = if level.among.is_some() {
        format!("after those of {parent} that have used less")
    } else if level.last || level.over {
        format!("after all others of {parent} that have a share")
    } else {
        let order = match number(&level.deviation) < 0.0 {
            true => "after",
            false => "before",
        };
        format!("{order} others of {parent}")
    };
    let promised = match level.at_most.as_deref() {
        _ if level.among.is_some() => String::new(),
        Some(most) if level.over => format!(", limited to {most} %"),
        _ => format!(", promised {} %", level.target),
    };
    let used = format!("used {} % of {parent}{promised}", percent(&level.actual));
    let jobs = match whose {
        Whose::Yours(_) => "your jobs".to_owned(),
        Whose::Of(user) => format!("jobs of {}", clean(user)),
        Whose::Nobody => format!("jobs of {}", clean(&levels[levels.len() - 1].path)),
    };
    if level.path != levels[levels.len() - 1].path {
        return format!(
            "{path} decides first: it has {used}, so {jobs} are served {order}, whatever each of its users has used."
        );
    }
    // Several users may count at one entry, and its name is then a group's.
    let name = level.path.rsplit('/').next();
    let who = match whose {
        Whose::Yours(user) if name == Some(user) => "You have".to_owned(),
        Whose::Of(user) if name == Some(user) => format!("{} has", clean(user)),
        _ => format!("{path} has"),
    };
    format!("{who} {used}: {jobs} are served {order}.")
}

/// What an entry should have at a level, what it has, and what follows.
pub fn level_words(level: &LevelBody) -> String {
    let parent = parent_words(level);
    let whose = match (level.global, parent == THIS_SITE) {
        (true, _) => " on all sites",
        (false, true) => "",
        (false, false) => " at this site",
    };
    let since = level.since.as_deref();
    let since = since.map(|since| format!(" since {}", clean(since)));
    let used = format!(
        "has {} %{whose}{} ({} of {} core-hours)",
        percent(&level.actual),
        since.unwrap_or_default(),
        core_hours(&level.usage_core_ms),
        core_hours(&level.parent_usage_core_ms),
    );
    let path = clean(&level.path);
    if level.among.is_some() {
        return format!(
            "{path}: has no line, {used} of {parent}: the account that has used less goes first"
        );
    }
    let deviation = number(&level.deviation);
    let limit = level.at_most.as_deref().unwrap_or("100");
    let over =
        format!("over its limit of {limit} %, so all others here that have a share go first");
    let standing = match deviation {
        _ if level.last => "its share is 0, so all others here that have one go first",
        _ if level.over => &over,
        d if d >= ON_TARGET => "below its target, so it is favoured",
        d if d <= -ON_TARGET => "above its target, so it waits",
        _ => "on target",
    };
    let measured = match level.distance.as_str() {
        _ if level.last => String::new(),
        "absolute" => String::new(),
        other => format!(", measured by the distance `{}`", clean(other)),
    };
    let divided = level.by_policy_of.as_deref();
    let divided = divided.map(|name| format!(" (as the policy of VO {} says)", clean(name)));
    let divided = divided.unwrap_or_default();
    format!(
        "{path}: should have {} % of {parent}, {used}: {standing}{measured}{divided}",
        level.target,
    )
}

/// What an entry's share is a share of.
fn parent_words(level: &LevelBody) -> String {
    if let Some(others) = &level.among {
        return clean(others);
    }
    match level.path.rsplit_once('/') {
        None | Some(("", _)) => THIS_SITE.to_owned(),
        Some((parent, _)) => clean(parent),
    }
}

/// Which of two entries is served first, and at which level that is decided.
pub fn comparison_words(
    body: &ExplainBody,
    comparison: &ComparisonBody,
    out: &mut dyn Write,
) -> io::Result<()> {
    // The entry of all accounts without a line stands where a new one of them does.
    let name = |path: &str| match path.ends_with("/*") {
        true => format!("a new account of {}", clean(path)),
        false => clean(path),
    };
    let (mine, theirs) = (name(&body.path), name(&comparison.versus));
    let is_exact = body.projection == ProjectionName::EXACT;
    let by = match is_exact {
        true => String::new(),
        false => format!(" by the projection `{}`", clean(&body.projection)),
    };
    let ancestor = clean(&comparison.common_ancestor);
    writeln!(out, "Against {theirs}: both lie below {ancestor}.")?;
    let (winner, loser) = match comparison.standing.as_str() {
        "before" => (&mine, &theirs),
        "after" => (&theirs, &mine),
        _ => return writeln!(out, "They are tied exactly{by}: neither is served first."),
    };
    let Some(level) = comparison.level else {
        return writeln!(out, "{winner} is served first{by}.");
    };
    let decides = if is_exact {
        "It is decided"
    } else {
        "They first differ"
    };
    let number = level + 1;
    writeln!(
        out,
        "{winner} is served first{by}. {decides} at level {number}:"
    )?;
    for levels in [&body.levels, &comparison.versus_levels] {
        if let Some(level) = levels.get(level) {
            let (path, actual) = (clean(&level.path), percent(&level.actual));
            if level.among.is_some() {
                writeln!(out, "  {path}: {actual} % of {}", parent_words(level))?;
                continue;
            }
            writeln!(
                out,
                "  {path}: {actual} % instead of {} %, deviation {}{}",
                level.target,
                level.deviation,
                match (level.last, level.over) {
                    (true, _) => ", with a share of 0",
                    (false, true) => ", over its limit",
                    (false, false) => "",
                }
            )?;
        }
    }
    match &comparison.parity_core_ms {
        None if !is_exact => Ok(()),
        Some(parity) => writeln!(
            out,
            "For parity, {winner} would have to use {} more, while {loser} uses none.",
            amount(parity)
        ),
        None => writeln!(out, "No usage of {winner} alone would bring {loser} level."),
    }
}

fn cause_words(cause: &CauseBody, since: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let path = clean(&cause.path);
    if cause.sites.is_empty() {
        let since = since.map(|since| format!(" since {}", clean(since)));
        return writeln!(
            out,
            "No usage of {path}{} is held.",
            since.unwrap_or_default()
        );
    }
    let whole = number(&cause.usage_core_ms);
    writeln!(
        out,
        "The {} core-hours of {path} by site, weighted and clamped as in this sum; raw: as the site published it, unweighted:",
        core_hours(&cause.usage_core_ms)
    )?;
    for site in &cause.sites {
        let name = name_or_id(site.name.as_deref(), &site.id);
        let share = 100.0 * number(&site.weighted_core_ms) / whole.max(1.0);
        writeln!(
            out,
            "  {name}: {} core-hours ({share:.1} %); raw {}",
            core_hours(&site.weighted_core_ms),
            core_hours(&site.counters.charge_core_ms)
        )?;
    }
    Ok(())
}
