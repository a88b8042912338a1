//! `fairmesh usage`: raw counters by account and by site, and whom no rule maps.

use std::io::Write;

use fairmesh_api::words::{name_or_id, timestamp};
use fairmesh_api::{CountersBody, UnmappedBody, UsageBody};
use fairmesh_model::{WallTime, clean};
use fairmesh_node::words::number::core_hours;

use super::{AskArgs, heading};
use crate::output::{Exit, Table};

/// Show raw usage by account or by site, or whom no identity rule maps
///
/// A row such as /cms/* sums up the accounts above it that have no line in the share tree.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct UsageArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only this VO: its name or id, or "local" for the site's own accounts
    #[arg(long)]
    pub vo: Option<String>,
    /// Only this account and what is below it, as a path in the VO's tree
    #[arg(long)]
    pub path: Option<String>,
    /// By site instead of by account
    #[arg(long)]
    pub by_site: bool,
    /// List those whom no identity rule maps
    #[arg(long, conflicts_with_all = ["vo", "path", "by_site"])]
    pub unmapped: bool,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or knows no such VO.
pub async fn run(args: &UsageArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.unmapped {
        return unmapped(args, out).await;
    }
    let parameters = [("vo", args.vo.as_deref()), ("path", args.path.as_deref())];
    let table = |body: &UsageBody| table(body, args.by_site);
    let (exit, _) = args.ask.table("/v1/usage", &parameters, out, table).await?;
    Ok(exit)
}

fn table(body: &UsageBody, by_site: bool) -> Table {
    let what = if by_site { "Site" } else { "Account" };
    let mut table = Table::new(&format!(
        "VO|{what}|>CoreHours|>TakenBack|>CpuCoreHours|>GpuHours|>Jobs"
    ));
    for ledger in &body.ledgers {
        let vo = ledger.vo.as_deref();
        let vo = vo.map_or_else(
            || "local".to_owned(),
            |vo| name_or_id(ledger.vo_name.as_deref(), vo),
        );
        if by_site {
            for row in &ledger.by_site {
                let name = name_or_id(row.name.as_deref(), &row.id);
                table.row(usage_row(&vo, name, &row.counters));
            }
            continue;
        }
        for row in &ledger.by_account {
            table.row(usage_row(&vo, clean(&row.id), &row.counters));
        }
        for row in &ledger.others {
            table.row(usage_row(&vo, clean(&row.id), &row.counters));
        }
    }
    table
}

fn usage_row(vo: &str, name: String, counters: &CountersBody) -> [String; 7] {
    [
        vo.to_owned(),
        name,
        core_hours(&counters.charge_core_ms),
        core_hours(&counters.refunds_core_ms),
        core_hours(&counters.cpu_core_ms),
        core_hours(&counters.gpu_ms),
        counters.jobs.clone(),
    ]
}

async fn unmapped(args: &UsageArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (answer, done) = args
        .ask
        .get::<UnmappedBody>("/v1/unmapped", &[], out)
        .await?;
    if done {
        return Ok(Exit::Success);
    }
    let mut table = Table::new("User|Account|Group|Subject|>Records|>CoreHours|LastEnd")
        .with_heading(heading(&answer.rests_on));
    let word = |word: &Option<String>| word.as_deref().map(clean).unwrap_or_default();
    for row in &answer.body.origins {
        table.row([
            word(&row.origin.user),
            word(&row.origin.account),
            word(&row.origin.group),
            word(&row.origin.subject),
            row.records.to_string(),
            core_hours(&row.charge_core_ms),
            timestamp(WallTime(row.last_ms)),
        ]);
    }
    table.write(out, &args.ask.output)?;
    Ok(Exit::Success)
}
