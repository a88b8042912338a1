//! `fairmesh quota history` and `summary`: who granted what, which rights moved, which jobs ran beyond their quota or
//! beside it, and what users were charged in a month.

use std::io::Write;

use fairmesh_api::words::{name_or_id, timestamp};
use fairmesh_api::{QuotaHistoryBody, QuotaJobBody, QuotaSummaryBody, QuotaTransferBody};
use fairmesh_model::{WallTime, clean};
use fairmesh_node::words::number::core_hours;

use crate::ask::AskArgs;
use crate::output::{Exit, Table, or_dash};

/// Bytes of a key that are shown where columns are narrow: who has its public half finds it by them.
const KEY_BYTES: usize = 12;

/// Options of `history`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct HistoryArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only of accounts at, above or below this one
    pub path: Option<String>,
    /// Only of this VO: its name or id
    #[arg(long)]
    pub vo: Option<String>,
    /// Jobs that ran within their quota, too
    #[arg(long)]
    pub all: bool,
}

/// Options of `summary`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SummaryArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only of accounts at, above or below this one
    pub path: Option<String>,
    /// Only of this VO: its name or id
    #[arg(long)]
    pub vo: Option<String>,
    /// Which month, such as 2026-11 [default: this one]
    #[arg(long, value_name = "MONTH")]
    pub month: Option<String>,
}

pub(super) async fn history(args: &HistoryArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let parameters = [
        ("vo", args.vo.as_deref()),
        ("path", args.path.as_deref()),
        ("all", args.all.then_some("true")),
    ];
    let asked = args
        .ask
        .table("/v1/quota/history", &parameters, out, documents);
    let (exit, body) = asked.await?;
    let Some(body) = body else { return Ok(exit) };
    if !body.transfers.is_empty() {
        transfers(&body.transfers).write(out, &args.ask.output)?;
    }
    match &body.jobs {
        Some(jobs) => table_of(jobs).write(out, &args.ask.output)?,
        None => note!("jobs are shown to users whom the node's machine names"),
    }
    Ok(exit)
}

fn documents(body: &QuotaHistoryBody) -> Table {
    let mut table = Table::new("Signed|VO|Account|>Version|>Granted|Until|By");
    for of in &body.documents {
        let signers = of
            .signers
            .iter()
            .map(|key| clean(key.get(..KEY_BYTES).unwrap_or(key)));
        let signers: Vec<String> = signers.collect();
        table.row([
            timestamp(WallTime(of.issued_ms)),
            name_or_id(of.vo_name.as_deref(), &of.vo),
            clean(&of.path),
            of.version.to_string(),
            core_hours(&of.granted_core_ms),
            timestamp(WallTime(of.ends_ms)),
            signers.join(", "),
        ]);
    }
    table
}

fn transfers(of: &[QuotaTransferBody]) -> Table {
    let mut table = Table::new("Counted|VO|Account|>Slice|Way|Site|>Amount|>Before|>After");
    for of in of {
        table.row([
            timestamp(WallTime(of.at_ms)),
            name_or_id(of.vo_name.as_deref(), &of.vo),
            clean(&of.path),
            of.slice.to_string(),
            clean(&of.way),
            match &of.part {
                Some(part) => clean(part),
                None => name_or_id(of.site_name.as_deref(), &of.site),
            },
            core_hours(&of.core_ms),
            core_hours(&of.before_core_ms),
            core_hours(&of.after_core_ms),
        ]);
    }
    table
}

fn table_of(jobs: &[QuotaJobBody]) -> Table {
    let mut table = Table::new("Asked|Account|User|Job|State|Verdict|By|>Price|>Used|>Overdraft");
    for job in jobs {
        table.row([
            match job.at_ms {
                0 => "-".to_owned(),
                at => timestamp(WallTime(at)),
            },
            clean(&job.account),
            or_dash(job.user.as_deref().map(clean)),
            clean(&job.job),
            clean(&job.state),
            clean(&job.verdict),
            job.by
                .as_deref()
                .map_or_else(|| "nobody asked".to_owned(), clean),
            clean(&job.price),
            core_hours(&job.used_core_ms),
            core_hours(&job.overdraft_core_ms),
        ]);
    }
    table
}

pub(super) async fn summary(args: &SummaryArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let parameters = [
        ("vo", args.vo.as_deref()),
        ("path", args.path.as_deref()),
        ("month", args.month.as_deref()),
    ];
    let asked = args.ask.table("/v1/quota/summary", &parameters, out, users);
    Ok(asked.await?.0)
}

fn users(body: &QuotaSummaryBody) -> Table {
    let mut table = Table::new("Month|VO|Account|User|Site|>Jobs|>CoreHours");
    for of in &body.users {
        table.row([
            clean(&body.month),
            name_or_id(of.vo_name.as_deref(), &of.vo),
            clean(&of.account),
            clean(&of.user),
            name_or_id(of.site_name.as_deref(), &of.site),
            of.jobs.to_string(),
            core_hours(&of.charge_core_ms),
        ]);
    }
    table
}
