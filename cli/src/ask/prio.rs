//! `fairmesh prio`: the factor of one user with its vector, or of many from standard input.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fairmesh_api::{LevelBody, PriorityBody};
use fairmesh_client::{Client, FACTOR_MAX, Names, ROWS_OF_ANY_NAMES, Who};
use fairmesh_model::clean;
use fairmesh_node::words::number::percent;
use serde::Serialize;

use super::AskArgs;
use crate::output::{Exit, OutputArgs, Table, unbroken, write_json};

/// How long the node may take over a batch.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// Look up priorities: of one user, or of many from standard input
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PrioArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The user, or the path of an entry of the share tree
    #[arg(required_unless_present_any = ["stdin", "subject", "group"])]
    pub user: Option<String>,
    /// The batch account
    #[arg(short = 'A', long)]
    pub account: Option<String>,
    /// The group
    #[arg(short = 'g', long)]
    pub group: Option<String>,
    /// The Grid identity
    #[arg(long)]
    pub subject: Option<String>,
    /// The queue or partition
    #[arg(long, alias = "partition", value_name = "QUEUE")]
    pub queue: Option<String>,
    /// The quality of service
    #[arg(long)]
    pub qos: Option<String>,
    /// Read a user and perhaps an account from each line, print "user account factor"; a tab separates
    /// names that have blanks
    #[arg(long, conflicts_with = "user")]
    pub stdin: bool,
    /// The socket for look-ups [default: lookup.sock beside the control socket]
    #[arg(long, value_name = "PATH")]
    pub lookup_socket: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or knows nobody by that name.
pub async fn run(args: &PrioArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.stdin {
        return many(args, &mut std::io::stdin().lock(), out);
    }
    let user = args.user.as_deref();
    let (path, user) = match user.filter(|user| user.starts_with('/')) {
        Some(path) => (Some(path), None),
        None => (None, user),
    };
    let parameters = [
        ("path", path),
        ("user", user),
        ("account", args.account.as_deref()),
        ("group", args.group.as_deref()),
        ("subject", args.subject.as_deref()),
        ("queue", args.queue.as_deref()),
        ("qos", args.qos.as_deref()),
    ];
    let asked = args.ask.table("/v1/priority", &parameters, out, table);
    let (exit, body) = asked.await?;
    if let Some(body) = body.filter(|body| !body.exact) {
        let is_among = |level: &LevelBody| level.among.is_some() || level.path.ends_with("/*");
        let among = match body.levels.last().is_some_and(is_among) {
            true => ", together with those of everybody there without a line",
            false => "",
        };
        note!(
            "`{}` has no line in the share tree: its jobs count at `{}`{among}",
            clean(&body.account),
            clean(&body.entry)
        );
    }
    Ok(exit)
}

fn table(body: &PriorityBody) -> Table {
    let mut table = Table::new("Entry|>Factor|>Rank|Projection|>Priority|Vector");
    let vector = body.levels.iter().map(|level| percent(&level.deviation));
    table.row([
        clean(&body.entry),
        body.factor.clone(),
        format!("{} of {}", body.rank, body.ranks),
        body.projection.clone(),
        body.priority.clone(),
        vector.collect::<Vec<_>>().join(" "),
    ]);
    table
}

/// `fairmesh.priorities/1`: what `--stdin --json` prints.
#[derive(Debug, Serialize)]
struct PrioritiesBody {
    priorities: Vec<Looked>,
}

/// Somebody who was named on a line, and the factor; none where no rule maps him.
#[derive(Debug, Serialize)]
struct Looked {
    user: String,
    account: Option<String>,
    factor: Option<String>,
}

/// Looks up what the lines of `input` name; exit 1 if somebody is unknown.
fn many(args: &PrioArgs, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let lines: Vec<String> = input
        .lines()
        .collect::<Result<_, _>>()
        .context("standard input")?;
    let mut accounts = Vec::new();
    for (line, number) in lines.iter().zip(1..) {
        accounts.extend(names(line).with_context(|| format!("standard input, line {number}"))?);
    }
    let socket = args.lookup_socket.clone();
    let socket = socket.unwrap_or_else(|| args.ask.control().path().with_file_name("lookup.sock"));
    let mut client = Client::connect(socket, LOOKUP_MAX)?;
    let mut looked = Vec::new();
    for batch in accounts.chunks(ROWS_OF_ANY_NAMES) {
        let who: Vec<Who<'_>> = batch.iter().map(|names| Who::Names(*names)).collect();
        let answer = client.lookup(&who)?;
        let found = batch.iter().zip(answer.factors());
        looked.extend(found.map(|(names, factor)| Looked {
            user: names.user.unwrap_or("-").to_owned(),
            account: names.account.map(str::to_owned),
            factor:
                factor.map(|factor| format!("{}.{:09}", factor / FACTOR_MAX, factor % FACTOR_MAX)),
        }));
    }
    let unknown = looked.iter().filter(|who| who.factor.is_none()).count();
    if unknown > 0 {
        note!("{unknown} of {} are not known here", looked.len());
    }
    write_many(
        looked,
        &args.ask.output,
        lines.iter().any(|line| line.contains('\t')),
        out,
    )?;
    Ok(Exit::of(unknown == 0))
}

/// A line for each, its words separated as they came: by tabs where any line had one.
fn write_many(
    looked: Vec<Looked>,
    format: &OutputArgs,
    by_tabs: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if format.json {
        let priorities = looked;
        return write_json(out, "fairmesh.priorities/1", &PrioritiesBody { priorities });
    }
    let separator = match (format.parsable, by_tabs) {
        (true, _) => "|",
        (false, true) => "\t",
        (false, false) => " ",
    };
    for Looked {
        user,
        account,
        factor,
    } in looked
    {
        let account = account.as_deref().unwrap_or("-");
        let factor = factor.as_deref().unwrap_or("unknown");
        let words = [&clean(&user), &clean(account), factor].map(|word| match format.parsable {
            true => unbroken(word),
            false => word.to_owned(),
        });
        writeln!(out, "{}", words.join(separator))?;
    }
    Ok(())
}

/// The user and perhaps the account that a line names; none where it is empty.
fn names(line: &str) -> anyhow::Result<Option<Names<'_>>> {
    let words: Vec<&str> = match line.contains('\t') {
        true => line.split('\t').map(str::trim).collect(),
        false => line.split_whitespace().collect(),
    };
    ensure!(
        words.len() <= 2,
        "more than a user and an account: separate them by a tab where a name has blanks"
    );
    let mut words = words
        .into_iter()
        .map(|word| Some(word).filter(|word| !word.is_empty()));
    let (user, account) = (words.next().flatten(), words.next().flatten());
    Ok((user.is_some() || account.is_some()).then_some(Names {
        user,
        account,
        ..Names::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_stands_beside_a_tab() {
        let of = |line| {
            let names = names(line).expect("names").expect("somebody");
            (names.user, names.account)
        };
        assert_eq!(of(" ann  cms "), (Some("ann"), Some("cms")));
        assert_eq!(of("Ann Lee\tcms run"), (Some("Ann Lee"), Some("cms run")));
        assert_eq!(of("\tcms"), (None, Some("cms")));
        assert!(names(" \t ").expect("nobody").is_none());
        assert!(names("Ann Lee cms").is_err());
    }

    #[test]
    fn many_are_written_as_lines_as_columns_and_as_json() {
        let written = |format: OutputArgs, by_tabs| {
            let looked = [("a|b", Some("0.5")), ("bob", None)].map(|(user, factor)| Looked {
                user: user.to_owned(),
                account: Some("cms".to_owned()),
                factor: factor.map(str::to_owned),
            });
            let mut out = Vec::new();
            write_many(looked.into(), &format, by_tabs, &mut out).expect("writes");
            String::from_utf8(out).expect("UTF-8")
        };
        let [parsable, json] = [(true, false), (false, true)].map(|(parsable, json)| OutputArgs {
            parsable,
            json,
            ..OutputArgs::default()
        });
        let plain = OutputArgs::default();
        assert_eq!(written(plain, false), "a|b cms 0.5\nbob cms unknown\n");
        assert_eq!(written(plain, true), "a|b\tcms\t0.5\nbob\tcms\tunknown\n");
        assert_eq!(
            written(parsable, true),
            "a\\x7cb|cms|0.5\nbob|cms|unknown\n"
        );
        let json: serde_json::Value = serde_json::from_str(&written(json, false)).expect("JSON");
        assert_eq!(json["schema"], "fairmesh.priorities/1");
        assert_eq!(json["priorities"][0]["user"], "a|b");
        assert_eq!(json["priorities"][1]["factor"], serde_json::Value::Null);
    }
}
