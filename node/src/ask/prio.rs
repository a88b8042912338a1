//! `fairmesh prio`: the factor of one user with its vector, or of many from standard input.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_client::{Client, FACTOR_MAX, LOOKUP_BATCH_MAX, Names, Who};

use super::number::percent;
use super::{AskArgs, heading, unless_refused};
use crate::control::answer::PriorityBody;
use crate::control::clean;
use crate::output::{Align, Exit, Table};

/// How long the node may take over a batch.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// Look up priorities: of one user, or of many from standard input
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PrioArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The user, or the path of an entry of the share tree
    #[arg(required_unless_present = "stdin")]
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
    /// Read a user and perhaps an account from each line, print "user account factor"
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
    ];
    let asked = args
        .ask
        .get::<PriorityBody>("/v1/priority", &parameters, out)
        .await;
    let Some((answer, done)) = unless_refused(asked)? else {
        return Ok(Exit::Failure);
    };
    if done {
        return Ok(Exit::Success);
    }
    let body = answer.body;
    let mut table = Table::new(&[
        ("Entry", Align::Left),
        ("Factor", Align::Right),
        ("Rank", Align::Right),
        ("Projection", Align::Left),
        ("Priority", Align::Right),
        ("Vector", Align::Left),
    ])
    .with_heading(heading(&answer.rests_on));
    let vector: Vec<String> = body
        .levels
        .iter()
        .map(|level| percent(&level.deviation))
        .collect();
    table.row([
        clean(&body.entry),
        body.factor,
        format!("{} of {}", body.rank, body.ranks),
        body.projection,
        body.priority,
        vector.join(" "),
    ]);
    table.write(out, &args.ask.output)?;
    if !body.exact {
        eprintln!(
            "`{}` has no entry of its own: it counts against `{}`",
            clean(&body.account),
            clean(&body.entry)
        );
    }
    Ok(Exit::Success)
}

/// Looks up what the lines of `input` name; exit 1 if somebody is unknown.
fn many(args: &PrioArgs, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let lines: Vec<String> = input
        .lines()
        .collect::<Result<_, _>>()
        .context("standard input")?;
    let accounts: Vec<Names<'_>> = lines.iter().filter_map(|line| names(line)).collect();
    let socket = args.lookup_socket.clone();
    let socket = socket.unwrap_or_else(|| args.ask.control().path().with_file_name("lookup.sock"));
    let mut client = Client::connect(socket, LOOKUP_MAX)?;
    let mut unknown = 0_usize;
    for batch in accounts.chunks(LOOKUP_BATCH_MAX) {
        let who: Vec<Who<'_>> = batch.iter().map(|names| Who::Names(*names)).collect();
        let answer = client.lookup(&who)?;
        for (names, factor) in batch.iter().zip(answer.factors()) {
            let account = names.account.unwrap_or("-");
            let factor = factor.map_or_else(
                || "unknown".to_owned(),
                |factor| format!("{}.{:09}", factor / FACTOR_MAX, factor % FACTOR_MAX),
            );
            unknown += usize::from(factor == "unknown");
            writeln!(
                out,
                "{} {} {factor}",
                clean(names.user.unwrap_or("-")),
                clean(account)
            )?;
        }
    }
    if unknown > 0 {
        eprintln!("{unknown} of {} are not known here", accounts.len());
    }
    Ok(if unknown == 0 {
        Exit::Success
    } else {
        Exit::Failure
    })
}

fn names(line: &str) -> Option<Names<'_>> {
    let mut words = line.split_whitespace();
    Some(Names {
        user: Some(words.next()?),
        account: words.next(),
        group: None,
        subject: None,
    })
}
