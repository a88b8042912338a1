//! `fairmesh share`: the share tree, with `sshare`'s columns and flags.
//!
//! Shares and usage are those of the parent, as with Slurm's Fair Tree: NormShares is the target,
//! EffectvUsage the actual share. RawShares are shares as written, RawUsage is in core-seconds, weighed by
//! age. LevelFS is target/actual: above 1 means under-served. NormUsage is the share of the whole.
//! Scope is whose usage counts at the entry's level, and DividedBy the VO whose policy its own VO mounts there.
//! FairShare is the factor that schedulers get, and Rank the place that it stands for: 1 is served first.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use fairmesh_api::client::AskError;
use fairmesh_api::{Answer, ShareBody, SharesBody};
use fairmesh_model::clean;
use fairmesh_node::words::number::{core_seconds, factor, fraction};

use super::{AskArgs, heading};
use crate::output::{Exit, Table};

/// All columns, in the order of the long form.
const COLUMNS: &str = "Account|User|RawShares|NormShares|RawUsage|NormUsage|EffectvUsage|FairShare|Rank|LevelFS|\
                       Deviation|Scope|DividedBy";

/// The columns that are shown without `-l`.
const SHORT: &str = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare,LevelFS";

/// Show target against actual shares, like sshare
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ShareArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only these accounts and what is below them: names or paths, separated by commas
    #[arg(short = 'A', long, value_name = "ACCOUNTS", value_delimiter = ',')]
    pub accounts: Vec<String>,
    /// Only these users, separated by commas: as the share tree or the batch system calls them
    #[arg(short = 'u', long, value_name = "USERS", value_delimiter = ',')]
    pub users: Vec<String>,
    /// All users: whatever -u says
    #[arg(short = 'a', long)]
    pub all: bool,
    /// All columns
    #[arg(short = 'l', long)]
    pub long: bool,
    /// These columns, separated by commas, each with an optional width: account%20,levelfs
    #[arg(short = 'o', long, value_name = "FIELDS")]
    pub format: Option<String>,
    /// List the columns
    #[arg(long)]
    pub helpformat: bool,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or a column is unknown.
pub async fn run(args: &ShareArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.helpformat {
        writeln!(out, "{}", COLUMNS.replace('|', " "))?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS).cut();
    if args.format.is_some() || !args.long {
        table = table.choose(args.format.as_deref().unwrap_or(SHORT))?;
    }
    let asked = args.ask.control().get("/v1/shares", &[]).await?;
    let (mut answer, text): (Answer<SharesBody>, String) = asked;
    let local = local_users(args).await?;
    let unknown = unknown(args, &local, &answer.body.entries);
    let entries = answer.body.entries.len();
    answer
        .body
        .entries
        .retain(|entry| is_wanted(args, &local, entry));
    let format = &args.ask.output;
    if format.json && answer.body.entries.len() == entries {
        writeln!(out, "{text}")?;
    } else if format.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    } else {
        let entries = answer.body.entries.iter();
        entries.for_each(|entry| table.row(row(entry)));
        table
            .with_heading(heading(&answer.rests_on))
            .write(out, format)?;
    }
    for (user, path) in local
        .iter()
        .flat_map(|(user, paths)| paths.iter().map(move |path| (user, path)))
    {
        if !path.ends_with(&format!("/{user}")) {
            note!("the jobs of `{}` count at `{}`", clean(user), clean(path));
        }
    }
    for name in &unknown {
        note!("fairmesh: {name} is not in the share tree; `fairmesh share` lists all of it");
    }
    Ok(Exit::of(unknown.is_empty()))
}

/// The entries at which jobs of local users count, by user: the share tree may call them otherwise.
type LocalUsers = BTreeMap<String, BTreeSet<String>>;

/// Those of the users that -u names.
async fn local_users(args: &ShareArgs) -> anyhow::Result<LocalUsers> {
    let mut local = LocalUsers::new();
    for user in args.users.iter().filter(|_| !args.all) {
        let parameters = [("user", Some(&**user))];
        let asked = args.ask.control().get("/v1/shares", &parameters).await;
        let asked: anyhow::Result<(Answer<SharesBody>, String)> = asked.map_err(Into::into);
        let is_no = |error: &anyhow::Error| {
            let refused = error.downcast_ref();
            matches!(refused, Some(AskError::Refused { status: 404, .. }))
        };
        let (answer, _) = match asked {
            Ok(answer) => answer,
            Err(error) if is_no(&error) => continue,
            Err(error) => return Err(error),
        };
        let paths = answer.body.entries.into_iter().map(|entry| entry.path);
        local.insert(user.clone(), paths.collect());
    }
    Ok(local)
}

/// Whether an entry is meant by one of the users that -u names.
fn is_of(user: &str, local: &LocalUsers, entry: &ShareBody) -> bool {
    let paths = local.get(user);
    entry.user.as_deref() == Some(user) || paths.is_some_and(|paths| paths.contains(&entry.path))
}

/// What -A and -u name and the tree does not have.
fn unknown(args: &ShareArgs, local: &LocalUsers, entries: &[ShareBody]) -> Vec<String> {
    let accounts = args.accounts.iter();
    let accounts = accounts.filter(|account| !entries.iter().any(|entry| is_below(entry, account)));
    let users = args.users.iter().filter(|_| !args.all);
    let users = users.filter(|user| !entries.iter().any(|entry| is_of(user, local, entry)));
    let accounts = accounts.map(|name| format!("the account `{}`", clean(name)));
    accounts
        .chain(users.map(|name| format!("the user `{}`", clean(name))))
        .collect()
}

fn is_wanted(args: &ShareArgs, local: &LocalUsers, entry: &ShareBody) -> bool {
    let below = |account: &String| is_below(entry, account);
    let by_account = args.accounts.is_empty() || args.accounts.iter().any(below);
    let mut users = args.users.iter();
    let by_user = args.all || args.users.is_empty() || users.any(|user| is_of(user, local, entry));
    by_account && by_user
}

/// Whether an entry is at or below an account, which is named or is a path.
fn is_below(entry: &ShareBody, account: &str) -> bool {
    if !account.starts_with('/') {
        return entry.path.split('/').any(|name| name == account);
    }
    let rest = entry.path.strip_prefix(account.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn row(entry: &ShareBody) -> Vec<String> {
    let user = entry.user.as_deref().unwrap_or_default();
    vec![
        clean(&entry.path),
        clean(user),
        entry.share.clone().unwrap_or_default(),
        fraction(&entry.target),
        core_seconds(&entry.usage_core_ms),
        fraction(&entry.actual_of_whole),
        fraction(&entry.actual),
        factor(&entry.factor).to_owned(),
        entry.rank.to_string(),
        clean(&entry.level_fs),
        entry.deviation.clone(),
        if entry.global { "global" } else { "local" }.to_owned(),
        clean(entry.divided_by.as_deref().unwrap_or_default()),
    ]
}
