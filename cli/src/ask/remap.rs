//! `fairmesh remap`: moves usage to the accounts that today's identity rules name, where a rule was wrong or missing when
//! its jobs were counted.
//!
//! A dry run prints the same and changes nothing. Exit 0 where all that maps elsewhere moved, or would; 1 where jobs stay:
//! the reasons are listed.

use std::io::Write;

use fairmesh_api::words::{count, timestamp};
use fairmesh_api::{AccountBody, Answer, RemapBody};
use fairmesh_model::clean;
use fairmesh_node::words::number::core_hours;

use super::records::moment;
use super::{AskArgs, heading, unless_refused};
use crate::output::{Exit, Finishing, Table};

/// Move usage of jobs that today's identity rules map to another account: credit the old account, charge the new one
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RemapArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Of jobs that ended since then: 2026-11-01, 2026-11-01T12:00:00Z, or 30d for thirty days ago
    #[arg(long, value_name = "DATE")]
    pub since: String,
    /// Only show what would move from where to where
    #[arg(long)]
    pub dry_run: bool,
    /// Why: kept in the audit
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    pub why: Option<String>,
    /// Who does it, beside the user whom the system names [default: $SUDO_USER or $USER]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Runs `fairmesh remap`.
///
/// # Errors
/// If the node cannot be asked, or refuses.
pub async fn run(args: &RemapArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut out = Finishing::new(out);
    let exit = remap(args, &mut out).await?;
    out.finish(exit)
}

async fn remap(args: &RemapArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let since = timestamp(moment(&args.since)?);
    let by = args.by.clone().or_else(super::correct::user);
    let parameters = [
        ("since", Some(since.as_str())),
        ("dry_run", args.dry_run.then_some("true")),
        ("why", args.why.as_deref()),
        ("by", by.as_deref()),
    ];
    let asked = args
        .ask
        .control()
        .patient()
        .post_with::<Answer<RemapBody>>("/v1/remap", &parameters, Vec::new())
        .await;
    let Some(answer) = unless_refused(asked.map_err(Into::into))? else {
        return Ok(Exit::Failure);
    };
    let exit = Exit::of(answer.body.left.is_empty());
    if args.ask.output.json {
        serde_json::to_writer(&mut *out, &answer)?;
        writeln!(out)?;
        return Ok(exit);
    }
    let body = &answer.body;
    let table = moves(body).with_heading(heading(&answer.rests_on));
    table.write(out, &args.ask.output)?;
    // A second table would only confuse a script: `--json` has all.
    if args.ask.output.parsable {
        write_words(body, &mut std::io::stderr())?;
        return Ok(exit);
    }
    write_words(body, out)?;
    if !body.uncovered.is_empty() {
        writeln!(
            out,
            "\nIn the counters, and in no job of the record log (it was off, pruned or lost, or the jobs still run): \
             this usage does not move."
        )?;
        uncovered(body).write(out, &args.ask.output)?;
    }
    Ok(exit)
}

fn name(account: &AccountBody) -> String {
    let vo = account
        .vo
        .as_deref()
        .map_or_else(|| "local".to_owned(), clean);
    format!("{vo}:{}", clean(&account.path))
}

fn moves(body: &RemapBody) -> Table {
    let mut table = Table::new("From|To|>Jobs|>CoreHours|>Charged");
    for row in &body.moves {
        table.row([
            name(&row.from),
            name(&row.to),
            row.jobs.to_string(),
            core_hours(&row.credit_core_ms),
            core_hours(&row.charge_core_ms),
        ]);
    }
    table
}

fn write_words(body: &RemapBody, out: &mut dyn Write) -> std::io::Result<()> {
    let (jobs, read) = (count(body.jobs, "job"), count(body.read, "job"));
    let [credit, charge] = [&body.credit_core_ms, &body.charge_core_ms].map(|ms| core_hours(ms));
    let done = if body.dry_run { "would move" } else { "moved" };
    let charged = match credit == charge {
        true => String::new(),
        false => format!(", charged as {charge} by today's rules"),
    };
    let end = if body.dry_run {
        "; nothing was changed"
    } else {
        ""
    };
    writeln!(
        out,
        "{jobs} of {read} {done}: {credit} core-hours{charged}{end}"
    )?;
    if body.past > 0 {
        writeln!(
            out,
            "too old to count anywhere: {}",
            count(body.past, "job")
        )?;
    }
    for left in &body.left {
        writeln!(
            out,
            "not moved, {}: {}",
            count(left.jobs, "job"),
            clean(&left.reason)
        )?;
    }
    Ok(())
}

fn uncovered(body: &RemapBody) -> Table {
    let mut table = Table::new("Account|From|To|>CoreHours");
    for row in &body.uncovered {
        table.row([
            name(&row.account),
            clean(&row.first_day),
            clean(&row.last_day),
            core_hours(&row.charge_core_ms),
        ]);
    }
    table
}
