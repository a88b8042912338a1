//! `fairmesh quota hold`, `commit`, `release`, `quote`, `drain`: what batch systems and their scripts say.

use std::io::Write;

use fairmesh_api::words::{age, name_or_id};
use fairmesh_api::{Answer, HoldBody, QuotesBody, SettledBody};
use fairmesh_model::{Millis, clean};
use fairmesh_node::config::quantity::parse_duration;
use fairmesh_node::words::number::core_hours;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::ask::{AskArgs, unless_refused};
use crate::output::{Exit, Table, or_dash};
use crate::policy_cmd::parse_core_hours;

/// Which job.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct JobArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    #[serde(skip)]
    pub ask: AskArgs,
    /// Its id, as the scheduler prints it
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The scheduler's name of the cluster, as its feed reports it
    #[arg(long, value_name = "NAME")]
    pub cluster: String,
    /// Which run of the job: restart count or submit time, as its feed reports it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub instance: u64,
}

/// What a job asks for.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct AskingArgs {
    /// Local user name
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Batch account or project
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Local group
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Grid identity
    #[arg(long, value_name = "DN")]
    pub subject: Option<String>,
    /// Cores
    #[arg(long, value_name = "N")]
    pub cores: u32,
    /// GPUs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub gpus: u32,
    /// Memory of all nodes together, MiB
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub mem_mib: u64,
    /// How long it may run, such as 90m or 4h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    #[serde(rename = "wall_s")]
    pub time: u64,
    /// The queue
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
    /// How important it is, from 0 to 200 [default: 100]
    #[arg(long, value_name = "N")]
    pub importance: Option<u8>,
}

/// Options of `hold`.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct HoldArgs {
    /// Which job.
    #[command(flatten)]
    #[serde(flatten)]
    pub job: JobArgs,
    /// What it asks for.
    #[command(flatten)]
    #[serde(flatten)]
    pub asking: AskingArgs,
    /// The account whose credit it is to spend [default: the deepest above its user's that has any]
    #[arg(long, value_name = "PATH")]
    pub credit: Option<String>,
    /// Do not wait a moment for rights of other sites
    #[arg(long)]
    #[serde(skip)]
    pub no_wait: bool,
    /// The site's owner exempts it: nothing is held or charged
    #[arg(long)]
    pub exempt: bool,
}

/// Options of `commit`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct CommitArgs {
    /// Which job.
    #[command(flatten)]
    pub job: JobArgs,
    /// What it is charged
    #[arg(long, value_name = "CORE-HOURS")]
    pub core_hours: String,
}

/// Options of `quote`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct QuoteArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// What it asks for.
    #[command(flatten)]
    pub asking: AskingArgs,
    /// Only at this site: its name
    #[arg(long, value_name = "SITE")]
    pub at: Option<String>,
}

/// A time on the command line, in whole seconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let time = parse_duration(text).map(|time| time.0 / 1_000);
    time.filter(|seconds| *seconds > 0)
        .ok_or_else(|| "write a time with its unit, such as 90m or 4h".to_owned())
}

/// What a call says: whatever was given.
fn said(of: &impl Serialize) -> anyhow::Result<Map<String, Value>> {
    let mut said: Map<String, Value> = serde_json::from_value(serde_json::to_value(of)?)?;
    said.retain(|_, value| !value.is_null());
    Ok(said)
}

async fn post<T: serde::de::DeserializeOwned>(
    ask: &AskArgs,
    path: &str,
    call: Map<String, Value>,
) -> anyhow::Result<Option<Answer<T>>> {
    let body = serde_json::to_vec(&call)?;
    let asked = ask.control().post::<Answer<T>>(path, body).await;
    unless_refused(asked.map_err(Into::into))
}

pub(super) async fn hold(args: &HoldArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut call = said(args)?;
    call.insert("wait".to_owned(), json!(!args.no_wait));
    let ask = &args.job.ask;
    let Some(answer) = post::<HoldBody>(ask, "/v1/quota/hold", call).await? else {
        return Ok(Exit::Failure);
    };
    let held = &answer.body;
    if ask.output.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    } else if held.runs {
        let account = held
            .account
            .as_deref()
            .map_or_else(|| "no quota".to_owned(), clean);
        let (verdict, hours) = (clean(&held.verdict), core_hours(&held.held_core_ms));
        write!(out, "{verdict}: {hours} core-hours held of {account}")?;
        match held.price.as_str() {
            "1" => writeln!(out)?,
            price => writeln!(out, " at price {}", clean(price))?,
        }
    } else if held.message.is_none() {
        note!("{}", clean(&held.verdict));
    }
    if let Some(message) = &held.message {
        note!("{}", clean(message));
    }
    Ok(Exit::of(held.runs))
}

pub(super) async fn commit(args: &CommitArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let charge = parse_core_hours(&args.core_hours);
    let charge = charge.ok_or_else(|| {
        anyhow::anyhow!(
            "--core-hours {}: write a number such as 12 or 0.5",
            args.core_hours
        )
    })?;
    let mut call = said(&args.job)?;
    call.insert("charge_core_ms".to_owned(), json!(charge.0));
    let words = |body: &SettledBody| {
        let amounts = [
            &body.used_core_ms,
            &body.overdraft_core_ms,
            &body.pending_core_ms,
        ];
        let [used, over, pending] = amounts.map(|amount| core_hours(amount));
        format!("{used} core-hours charged, {over} of overdraft, {pending} to be charged later")
    };
    settle(&args.job.ask, "/v1/quota/commit", call, words, out).await
}

pub(super) async fn release(args: &JobArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let words = |_: &SettledBody| format!("nothing is held for job {}", clean(&args.job));
    settle(&args.ask, "/v1/quota/release", said(args)?, words, out).await
}

pub(super) async fn drain(ask: &AskArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let words = |body: &SettledBody| {
        let hours = core_hours(&body.sent_core_ms);
        format!("{hours} core-hours sent to the other sites")
    };
    settle(ask, "/v1/quota/drain", Map::new(), words, out).await
}

/// Makes a call that changes what is held or charged, and writes what it came to.
async fn settle(
    ask: &AskArgs,
    path: &str,
    call: Map<String, Value>,
    words: impl Fn(&SettledBody) -> String,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let Some(answer) = post::<SettledBody>(ask, path, call).await? else {
        return Ok(Exit::Failure);
    };
    let written = match ask.output.json {
        true => serde_json::to_string(&answer)?,
        false => words(&answer.body),
    };
    writeln!(out, "{written}")?;
    Ok(Exit::Success)
}

pub(super) async fn quote(args: &QuoteArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut call = said(&args.asking)?;
    call.insert("job".to_owned(), json!("quote"));
    call.insert("cluster".to_owned(), json!("quote"));
    let answer = post::<QuotesBody>(&args.ask, "/v1/quota/quote", call).await?;
    let Some(mut answer) = answer else {
        return Ok(Exit::Failure);
    };
    if let Some(at) = &args.at {
        let is_there = |name: Option<&str>| name == Some(at);
        answer
            .body
            .quotes
            .retain(|of| is_there(of.name.as_deref()) || of.site.starts_with(at.as_str()));
    }
    let is_possible = answer
        .body
        .quotes
        .iter()
        .any(|of| of.charge_core_ms.is_some());
    let exit = Exit::of(is_possible);
    if args.ask.output.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        return Ok(exit);
    }
    let mut table = Table::new("Site|>CoreHours|>Price|>For|Why not");
    for quote in &answer.body.quotes {
        table.row([
            name_or_id(quote.name.as_deref(), &quote.site),
            or_dash(quote.charge_core_ms.as_deref().map(core_hours)),
            clean(&quote.price),
            or_dash(quote.price_age_ms.map(|of| age(Millis(of)))),
            quote.why_not.as_deref().map_or_else(String::new, clean),
        ]);
    }
    table.write(out, &args.ask.output)?;
    Ok(exit)
}
