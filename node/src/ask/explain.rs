//! `fairmesh explain USER [--vs USER2]`: in words, why somebody is served when he is; and
//! `fairmesh explain --job ID`, why a job of Slurm's waits.

use std::io::Write;
use std::path::{Path, PathBuf};

use fairmesh_schedulers::slurm::standing::{self, InQueue};

use super::number::{amount, core_hours, number, percent};
use super::{AskArgs, heading, name_or_id, unless_refused};
use crate::config::Config;
use crate::control::answer::{CauseBody, ComparisonBody, ExplainBody, LevelBody};
use crate::control::clean;
use crate::emulate::ProjectionName;
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
    /// The user, or the path of an entry of the share tree [default: you]
    pub user: Option<String>,
    /// The user's batch account [default: all that he has in the share tree]
    #[arg(short = 'A', long)]
    pub account: Option<String>,
    /// Compare with this user or path
    #[arg(long = "vs", value_name = "USER")]
    pub versus: Option<String>,
    /// That user's batch account
    #[arg(long, value_name = "ACCOUNT", requires = "versus")]
    pub vs_account: Option<String>,
    /// Explain why this job of Slurm's waits, against the next one of others before it
    #[arg(long, value_name = "ID", conflicts_with_all = ["user", "account", "versus"])]
    pub job: Option<String>,
    /// The configuration of the node beside that Slurm
    #[arg(
        long,
        value_name = "FILE",
        requires = "job",
        default_value = "/etc/fairmesh/fairmesh.toml"
    )]
    pub config: PathBuf,
}

/// Who is explained, or against whom.
#[derive(Debug, Default)]
struct Person {
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
}

/// How an entry is spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose<'a> {
    /// To the user whose it is.
    Yours,
    /// To somebody else.
    Of(&'a str),
    /// As an entry of the tree.
    Nobody,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or knows nobody by that name.
pub async fn run(args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Some(job) = &args.job else {
        let person = |user, account: &Option<String>| Person {
            user,
            account: account.clone(),
            group: None,
        };
        let who = person(args.user.clone().or_else(me), &args.account);
        let versus = person(args.versus.clone(), &args.vs_account);
        return explain(&args.ask, (who, versus), None, out).await;
    };
    let found = standing::find(&crate::slurm::beside(&args.config)?, job).await?;
    let Some(found) = found else {
        eprintln!("fairmesh: Slurm has no job {}", clean(job));
        return Ok(Exit::Failure);
    };
    let mut ask = args.ask.clone();
    ask.node.socket = Some(socket(args.ask.node.socket.as_deref(), &args.config)?);
    let person = |job: &standing::Standing| Person {
        user: Some(job.user.clone()),
        account: job.account.clone(),
        group: job.group.clone(),
    };
    let versus = found.before().map(person).unwrap_or_default();
    explain(&ask, (person(&found.job), versus), Some(&found), out).await
}

/// Where the node answers: as it is told, or as its configuration says.
fn socket(told: Option<&Path>, config: &Path) -> anyhow::Result<PathBuf> {
    match told {
        Some(socket) => Ok(socket.to_owned()),
        None => Ok(Config::load(config)?.sockets.control),
    }
}

/// Who asks, as the shell knows him.
pub(crate) fn me() -> Option<String> {
    let name = |variable| std::env::var(variable).ok();
    name("LOGNAME").or_else(|| name("USER"))
}

async fn explain(
    ask: &AskArgs,
    (who, versus): (Person, Person),
    job: Option<&InQueue>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let parameters = [
        ("user", who.user.as_deref()),
        ("account", who.account.as_deref()),
        ("group", who.group.as_deref()),
        ("versus", versus.user.as_deref()),
        ("versus_account", versus.account.as_deref()),
        ("versus_group", versus.group.as_deref()),
    ];
    let asked = ask.get::<ExplainBody>("/v1/explain", &parameters, out);
    let asked = asked.await;
    if !ask.output.json
        && let Some(job) = job
    {
        // Slurm's half is worth having, whatever the node says.
        job.words(out)?;
    }
    let Some((answer, done)) = unless_refused(asked)? else {
        return Ok(Exit::Failure);
    };
    if !done {
        if !ask.output.noheader {
            writeln!(out, "{}", heading(&answer.rests_on))?;
        }
        let whose = match who.user.as_deref() {
            Some(user) if user.starts_with('/') => Whose::Nobody,
            user if user == me().as_deref() => Whose::Yours,
            Some(user) => Whose::Of(user),
            None => Whose::Nobody,
        };
        for body in std::iter::once(&answer.body).chain(&answer.body.others) {
            words(body, whose, out)?;
        }
        let standing = answer.body.comparison.map(|it| it.standing);
        if let Some(job) = job.filter(|_| standing.as_deref() == Some("before")) {
            writeln!(out, "{}", job.why_against_the_node())?;
        }
    }
    Ok(Exit::Success)
}

fn words(body: &ExplainBody, whose: Whose<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    let path = clean(&body.path);
    let rank = format!("rank {} of {}", body.rank, body.ranks);
    match whose {
        Whose::Yours => writeln!(out, "Your jobs count at {path}, {rank}.")?,
        Whose::Of(user) => writeln!(out, "Jobs of {} count at {path}, {rank}.", clean(user))?,
        Whose::Nobody => writeln!(out, "{path}, {rank}, from the root down:")?,
    }
    for level in &body.levels {
        writeln!(out, "  {}", level_words(level))?;
    }
    if whose != Whose::Nobody {
        writeln!(out, "{}", reason(&body.levels, whose))?;
    }
    if let Some(comparison) = &body.comparison {
        comparison_words(body, comparison, out)?;
    }
    for cause in &body.causes {
        cause_words(cause, out)?;
    }
    Ok(())
}

/// Why a user stands where he stands: the uppermost level that is not on target decides first.
pub(crate) fn reason(levels: &[LevelBody], whose: Whose<'_>) -> String {
    let is_off = |level: &&LevelBody| level.over || number(&level.deviation).abs() >= ON_TARGET;
    let Some(level) = levels.iter().find(is_off) else {
        return "All of it is on target.".to_owned();
    };
    let (path, parent) = (clean(&level.path), parent_words(&level.path));
    let is_above = number(&level.deviation) < 0.0;
    let (more, order) = match (level.over, is_above) {
        (true, _) => ("more", "behind all"),
        (false, true) => ("more", "behind"),
        (false, false) => ("less", "before"),
    };
    if level.path == levels[levels.len() - 1].path {
        let (who, jobs) = match whose {
            Whose::Yours => ("You have".to_owned(), "your jobs"),
            Whose::Of(user) => (format!("{} has", clean(user)), "those jobs"),
            Whose::Nobody => (format!("{path} has"), "its jobs"),
        };
        return format!(
            "{who} used {more} than promised: {jobs} are served {order} others of {parent}."
        );
    }
    format!(
        "{path} decides first: together its users have used {more} than promised, so each of them is \
         served {order} others of {parent}, whatever he has used himself."
    )
}

pub(crate) fn level_words(level: &LevelBody) -> String {
    let parent = parent_words(&level.path);
    let whose = match (level.global, parent == THIS_SITE) {
        (true, _) => " on all sites",
        (false, true) => "",
        (false, false) => " at this site",
    };
    let deviation = number(&level.deviation);
    let limit = level.at_most.as_deref().unwrap_or("100");
    let over = format!("over its limit of {limit} %, so all others here go first");
    let standing = match deviation {
        _ if level.over => &over,
        d if d >= ON_TARGET => "below its target, so it is favoured",
        d if d <= -ON_TARGET => "above its target, so it waits",
        _ => "on target",
    };
    let measured = match level.distance.as_str() {
        "absolute" => String::new(),
        other => format!(", measured by the distance `{}`", clean(other)),
    };
    let divided = level.by_policy_of.as_deref();
    let divided = divided.map(|name| format!(" (as the policy of VO {} says)", clean(name)));
    let divided = divided.unwrap_or_default();
    format!(
        "{}: should have {} % of {}, has {} %{whose} ({} of {} core-hours): {standing}{measured}{divided}",
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

pub(crate) fn comparison_words(
    body: &ExplainBody,
    comparison: &ComparisonBody,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (mine, theirs) = (clean(&body.path), clean(&comparison.versus));
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
            writeln!(
                out,
                "  {}: {} % instead of {} %, deviation {}{}",
                clean(&level.path),
                percent(&level.actual),
                level.target,
                level.deviation,
                if level.over { ", over its limit" } else { "" }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_over_his_limit_is_told() {
        let level = |actual: &str, over| LevelBody {
            path: "/cms/ann".to_owned(),
            global: true,
            distance: "absolute".to_owned(),
            by_policy_of: None,
            target: "30".to_owned(),
            actual: actual.to_owned(),
            at_most: Some("45".to_owned()),
            over,
            deviation: "-20.0000000".to_owned(),
            usage_core_ms: "0".to_owned(),
            parent_usage_core_ms: "0".to_owned(),
        };
        let over = level_words(&level("50", true));
        assert!(over.ends_with(": over its limit of 45 %, so all others here go first"));
        assert!(level_words(&level("40", false)).ends_with("above its target, so it waits"));
        let told = reason(&[level("50", true)], Whose::Yours);
        assert!(told.contains("served behind all others of /cms"), "{told}");
    }
}
