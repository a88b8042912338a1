//! `fairmesh explain USER [--vs USER2]`: in words, why somebody is served when he is; and
//! `fairmesh explain --job ID`, why a job of Slurm's waits.

use std::io::Write;
use std::path::{Path, PathBuf};

use fairmesh_api::ExplainBody;
use fairmesh_model::{Origin, clean};
use fairmesh_node::config::Config;
use fairmesh_node::words::explanation;
use fairmesh_node::words::explanation::Whose;
use fairmesh_schedulers::slurm::standing::{self, InQueue};

use super::{AskArgs, heading, unless_refused};
use crate::output::Exit;

/// Explain a priority in words, alone or against somebody else's
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ExplainArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The user, the path of an entry of the share tree, or the id of a job of Slurm's [default: you]
    pub user: Option<String>,
    /// The batch account [default: all that the user has in the share tree]
    #[arg(short = 'A', long)]
    pub account: Option<String>,
    /// The group
    #[arg(short = 'g', long)]
    pub group: Option<String>,
    /// The Grid identity
    #[arg(long)]
    pub subject: Option<String>,
    /// Compare with this user or path
    #[arg(long = "vs", value_name = "USER")]
    pub versus: Option<String>,
    /// That user's batch account
    #[arg(long, value_name = "ACCOUNT")]
    pub vs_account: Option<String>,
    /// That user's group
    #[arg(long, value_name = "GROUP")]
    pub vs_group: Option<String>,
    /// Compare with this Grid identity
    #[arg(long, value_name = "SUBJECT")]
    pub vs_subject: Option<String>,
    /// Explain why this job of Slurm's waits, against the next one of others before it
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["user", "account", "group", "subject", "versus", "vs_account", "vs_group", "vs_subject"]
    )]
    pub job: Option<String>,
    /// Of a job: the configuration of the node beside that Slurm
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/fairmesh/fairmesh.toml"
    )]
    pub config: PathBuf,
}

/// Whose jobs these are, in words: the user, or what else was given.
fn label(who: &Origin) -> Option<String> {
    let named = |what, name: &Option<String>| Some(format!("{what} {}", name.as_ref()?));
    let user = who.user.clone();
    user.or_else(|| who.subject.clone())
        .or_else(|| named("the group", &who.group))
        .or_else(|| named("the account", &who.account))
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or knows nobody by that name.
pub async fn run(args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Some(job) = job(args) else {
        return explain(&args.ask, persons(args), None, out).await;
    };
    let found = standing::find(&crate::slurm::beside(&args.config)?, job).await?;
    let Some(found) = found else {
        note!("fairmesh: Slurm has no job {}", clean(job));
        return Ok(Exit::Failure);
    };
    let mut ask = args.ask.clone();
    ask.node.socket = Some(socket(args.ask.node.socket.as_deref(), &args.config)?);
    let person = |job: &standing::Standing| Origin {
        user: Some(job.user.clone()),
        account: job.account.clone(),
        group: job.group.clone(),
        subject: None,
    };
    let versus = found.before().map(person).unwrap_or_default();
    explain(&ask, (person(&found.job), versus), Some(&found), out).await
}

/// The job that is explained, by `--job` or in the place of a user.
fn job(args: &ExplainArgs) -> Option<&str> {
    let is_more = [&args.account, &args.group, &args.subject, &args.versus];
    let is_alone = is_more.iter().all(|more| more.is_none());
    let in_place = args
        .user
        .as_deref()
        .filter(|user| is_alone && is_job_id(user));
    args.job.as_deref().or(in_place)
}

/// Who is meant, and against whom. Without a word it is the user who runs this command.
fn persons(args: &ExplainArgs) -> (Origin, Origin) {
    let is_named = args.group.is_some() || args.subject.is_some();
    let asker = || (!is_named).then(me).flatten();
    let who = Origin {
        user: args.user.clone().or_else(asker),
        account: args.account.clone(),
        group: args.group.clone(),
        subject: args.subject.clone(),
    };
    let versus = Origin {
        user: args.versus.clone(),
        account: args.vs_account.clone(),
        group: args.vs_group.clone(),
        subject: args.vs_subject.clone(),
    };
    (who, versus)
}

/// Whether this is the id of a job: `12`, `12_5`, `12_[3-9]`, `12+1`. No user's name begins with a digit.
fn is_job_id(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || "_+[]-,:%".contains(c))
}

/// Where the node answers: as it is told, or as its configuration says.
fn socket(told: Option<&Path>, config: &Path) -> anyhow::Result<PathBuf> {
    match told {
        Some(socket) => Ok(socket.to_owned()),
        None => Ok(Config::load(config)?.sockets.control),
    }
}

/// The user who runs this command: as the shell knows them, or else as the system does.
pub(crate) fn me() -> Option<String> {
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let by_system = || fairmesh_node::users::name_of(rustix::process::getuid().as_raw());
    name("LOGNAME").or_else(|| name("USER")).or_else(by_system)
}

async fn explain(
    ask: &AskArgs,
    (who, versus): (Origin, Origin),
    job: Option<&InQueue>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let parameters = [
        ("user", who.user.as_deref()),
        ("account", who.account.as_deref()),
        ("group", who.group.as_deref()),
        ("subject", who.subject.as_deref()),
        ("versus", versus.user.as_deref()),
        ("versus_account", versus.account.as_deref()),
        ("versus_group", versus.group.as_deref()),
        ("versus_subject", versus.subject.as_deref()),
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
        let label = label(&who);
        let whose = match label.as_deref() {
            Some(path) if path.starts_with('/') && who.user.is_some() => Whose::Nobody,
            Some(user) if who.user == me() => Whose::Yours(user),
            Some(label) => Whose::Of(label),
            None => Whose::Nobody,
        };
        for body in std::iter::once(&answer.body).chain(&answer.body.others) {
            explanation::write(body, whose, out)?;
        }
        let standing = answer.body.comparison.map(|it| it.standing);
        if let Some(job) = job.filter(|_| standing.as_deref() == Some("before")) {
            writeln!(out, "{}", job.why_against_the_node())?;
        }
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests;
