//! `fairmesh explain USER [--vs USER2]`: in words, why somebody is served when he is.

use std::io::Write;

use super::number::{amount, core_hours, number, percent};
use super::{AskArgs, heading, name_or_id, unless_refused};
use crate::control::answer::{CauseBody, ComparisonBody, ExplainBody, LevelBody};
use crate::control::clean;
use crate::output::Exit;

/// What the top entries share.
const THIS_SITE: &str = "this site";

/// A deviation below this, in percent, prints as 0.00.
const ON_TARGET: f64 = 0.005;

/// Explain a priority in words, alone or against somebody else's
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ExplainArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The user, or the path of an entry of the share tree
    pub user: String,
    /// The user's batch account
    #[arg(short = 'A', long)]
    pub account: Option<String>,
    /// Compare with this user or path
    #[arg(long = "vs", value_name = "USER")]
    pub versus: Option<String>,
    /// That user's batch account
    #[arg(long, value_name = "ACCOUNT", requires = "versus")]
    pub vs_account: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or knows nobody by that name.
pub async fn run(args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let parameters = [
        ("user", Some(args.user.as_str())),
        ("account", args.account.as_deref()),
        ("versus", args.versus.as_deref()),
        ("versus_account", args.vs_account.as_deref()),
    ];
    let asked = args
        .ask
        .get::<ExplainBody>("/v1/explain", &parameters, out)
        .await;
    let Some((answer, done)) = unless_refused(asked)? else {
        return Ok(Exit::Failure);
    };
    if !done {
        if !args.ask.output.noheader {
            writeln!(out, "{}", heading(&answer.rests_on))?;
        }
        words(&answer.body, out)?;
    }
    Ok(Exit::Success)
}

fn words(body: &ExplainBody, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}, from the root down:", clean(&body.path))?;
    for level in &body.levels {
        writeln!(out, "  {}", level_words(level))?;
    }
    if let Some(comparison) = &body.comparison {
        comparison_words(body, comparison, out)?;
    }
    for cause in &body.causes {
        cause_words(cause, out)?;
    }
    Ok(())
}

fn level_words(level: &LevelBody) -> String {
    let parent = parent_words(&level.path);
    let whose = match (level.global, parent == THIS_SITE) {
        (true, _) => " on all sites",
        (false, true) => "",
        (false, false) => " at this site",
    };
    let deviation = number(&level.deviation);
    let standing = match deviation {
        d if d >= ON_TARGET => "below its target, so it is favoured",
        d if d <= -ON_TARGET => "above its target, so it waits",
        _ => "on target",
    };
    format!(
        "{}: should have {} % of {}, has {} %{whose} ({} of {} core-hours): {standing}",
        clean(&level.path),
        level.target,
        parent,
        percent(&level.actual),
        core_hours(&level.usage_core_ms),
        core_hours(&level.parent_usage_core_ms),
    )
}

/// What an entry's share is a share of.
fn parent_words(path: &str) -> String {
    match path.rsplit_once('/') {
        None | Some(("", _)) => THIS_SITE.to_owned(),
        Some((parent, _)) => clean(parent),
    }
}

fn comparison_words(
    body: &ExplainBody,
    comparison: &ComparisonBody,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (mine, theirs) = (clean(&body.path), clean(&comparison.versus));
    let ancestor = clean(&comparison.common_ancestor);
    writeln!(out, "Against {theirs}: both lie below {ancestor}.")?;
    let (winner, loser) = match comparison.standing.as_str() {
        "before" => (&mine, &theirs),
        "after" => (&theirs, &mine),
        _ => return writeln!(out, "They are tied exactly: neither is served first."),
    };
    let level = comparison.level.unwrap_or(0);
    writeln!(
        out,
        "{winner} is served first. It is decided at level {}:",
        level + 1
    )?;
    for levels in [&body.levels, &comparison.versus_levels] {
        if let Some(level) = levels.get(level) {
            writeln!(
                out,
                "  {}: {} % instead of {} %, deviation {}",
                clean(&level.path),
                percent(&level.actual),
                level.target,
                level.deviation
            )?;
        }
    }
    match &comparison.parity_core_ms {
        Some(parity) => writeln!(
            out,
            "For parity, {winner} would have to use {} more, while {loser} uses none.",
            amount(parity)
        ),
        None => writeln!(out, "No usage of {winner} alone would bring {loser} level."),
    }
}

fn cause_words(cause: &CauseBody, out: &mut dyn Write) -> std::io::Result<()> {
    let path = clean(&cause.path);
    if cause.sites.is_empty() {
        return writeln!(out, "No usage of {path} is held.");
    }
    writeln!(out, "Usage of {path}, unweighted, by site:")?;
    let total: f64 = cause
        .sites
        .iter()
        .map(|site| number(&site.counters.charge_core_ms))
        .sum();
    for site in &cause.sites {
        let name = name_or_id(site.name.as_deref(), &site.id);
        let charge = &site.counters.charge_core_ms;
        let share = 100.0 * number(charge) / total.max(1.0);
        writeln!(
            out,
            "  {name}: {} core-hours ({share:.1} %)",
            core_hours(charge)
        )?;
    }
    Ok(())
}
