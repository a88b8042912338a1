//! `fairmesh correct`: takes jobs back that were reported in error; and `fairmesh audit`: who took what
//! back, and why.
//!
//! Jobs are named by their ids, where the node keeps job records; or their records are handed in once
//! more, in a file as `fairmesh report` takes it. Exit 0 where every job was taken back; 1 where one was
//! refused: it says why, and the others are taken back all the same, whoever reads of it.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use fairmesh_api::words::{count, name_or_id, timestamp};
use fairmesh_api::{AdoptionBody, Answer, AuditBody, CorrectionsBody, RefundBody};
use fairmesh_model::{WallTime, clean};
use fairmesh_node::words::number::core_hours;

use super::report::read_options::ReadOptions;
use super::report::source::Source;
use super::{AskArgs, unless_refused};
use crate::output::{Exit, Finishing, Table};

/// Jobs in one request.
const BATCH_JOBS: usize = 5_000;

/// Take jobs back that were reported in error: their charge counts no more, here and at all other sites
#[derive(Debug, Clone, Default, clap::Args)]
pub struct CorrectArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Ids of the jobs, as the scheduler prints them
    #[arg(value_name = "JOB", required_unless_present = "file")]
    pub jobs: Vec<String>,
    /// Their records, in a file as `fairmesh report` takes it; "-" is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "jobs")]
    pub file: Option<PathBuf>,
    /// Why: kept in the audit
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// Who does it, beside the user whom the system names [default: $SUDO_USER or $USER]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// The cluster, where jobs of several have one id; with --file for records that do not say it
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Which run of the job, where there were several
    #[arg(long, value_name = "N", conflicts_with = "file")]
    pub instance: Option<u64>,
    /// The format of the file, as for `fairmesh report`
    #[arg(long, default_value = "auto", hide_default_value = true)]
    pub format: String,
    /// The time zone of local times in the file [default: this machine's]
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
}

/// Show what was taken back, by whom and why, or which documents came into force, and who brought them
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AuditArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only of this job
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Only by who has this in his name
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// The charters, share policies and allocations that came into force here
    #[arg(long, conflicts_with = "job")]
    pub documents: bool,
    /// Most entries to list: the newest
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
}

/// Runs `fairmesh correct`.
///
/// # Errors
/// If the file cannot be read, or the node cannot be asked.
pub async fn run(args: &CorrectArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut out = Finishing::new(out);
    let exit = correct(args, &mut out).await?;
    out.finish(exit)
}

async fn correct(args: &CorrectArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let lines = match &args.file {
        None => named(args)?,
        Some(file) => of_file(args, file)?,
    };
    let by = args.by.clone().or_else(user);
    let parameters = [("why", Some(args.why.as_str())), ("by", by.as_deref())];
    let mut refused = 0;
    let mut charge = 0u128;
    for batch in lines.chunks(BATCH_JOBS) {
        let body = batch.concat();
        let asked = args
            .ask
            .control()
            .post_with::<Answer<CorrectionsBody>>("/v1/corrections", &parameters, body)
            .await;
        let Some(answer) = unless_refused(asked.map_err(Into::into))? else {
            return Ok(Exit::Failure);
        };
        refused += answer.body.refused;
        charge += answer.body.charge_core_ms.parse::<u128>().unwrap_or(0);
        if args.ask.output.json {
            serde_json::to_writer(&mut *out, &answer)?;
            writeln!(out)?;
            continue;
        }
        for job in &answer.body.taken_back {
            let hours = core_hours(&job.charge_core_ms);
            let (cluster, name) = (clean(&job.cluster), clean(&job.job));
            writeln!(out, "{cluster} {name}: {hours} core-hours taken back")?;
        }
        for refusal in &answer.body.refusals {
            note!("fairmesh: {}", clean(&refusal.reason));
        }
    }
    if !args.ask.output.json && lines.len() > 1 {
        let hours = core_hours(&charge.to_string());
        let jobs = count(lines.len() as u64 - refused.min(lines.len() as u64), "job");
        writeln!(
            out,
            "{jobs}, {hours} core-hours taken back; {refused} refused"
        )?;
    }
    Ok(Exit::of(refused == 0))
}

/// What the user who asks is called.
pub(super) fn user() -> Option<String> {
    let names = ["SUDO_USER", "USER"].map(|name| std::env::var(name).ok());
    names.into_iter().flatten().next()
}

fn line(value: &impl serde::Serialize) -> anyhow::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

fn named(args: &CorrectArgs) -> anyhow::Result<Vec<Vec<u8>>> {
    let (cluster, instance) = (&args.cluster, args.instance);
    let of = |job: &String| {
        line(&serde_json::json!({ "job": job, "cluster": cluster, "instance": instance }))
    };
    args.jobs.iter().map(of).collect()
}

fn of_file(args: &CorrectArgs, file: &std::path::Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let given = ReadOptions {
        cluster: args.cluster.clone(),
        tz: args.tz.clone(),
        ..ReadOptions::of_format(&args.format)
    };
    let mut source = Source::open(file, &given, false, Arc::default())?;
    let mut lines = Vec::new();
    for (number, item) in source.by_ref() {
        match item {
            Ok(entry) => lines.push(match &entry.usage {
                Some(usage) => line(usage)?,
                None => line(&entry.record)?,
            }),
            // Nothing is taken back of a file that is not understood.
            Err(bad) => bail!("{}:{number}: {}", file.display(), clean(&bad.why)),
        }
    }
    Ok(lines)
}

/// Runs `fairmesh audit`.
///
/// # Errors
/// If the node cannot be asked.
pub async fn audit(args: &AuditArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let limit = args.limit.map(|limit| limit.to_string());
    let parameters = [
        ("job", args.job.as_deref()),
        ("by", args.by.as_deref()),
        ("limit", limit.as_deref()),
    ];
    let table = |body: &AuditBody| match args.documents {
        true => documents_table(&body.documents),
        false => refunds_table(&body.refunds),
    };
    let (exit, body) = args.ask.table("/v1/audit", &parameters, out, table).await?;
    if body.is_some_and(|body| body.more) && !args.documents {
        note!("there are older ones: --limit says how many are listed");
    }
    Ok(exit)
}

fn refunds_table(refunds: &[RefundBody]) -> Table {
    let mut table = Table::new("When|Site|VO|Path|Job|>Jobs|>CoreHours|By|Why");
    refunds.iter().for_each(|refund| table.row(row(refund)));
    table
}

fn documents_table(documents: &[AdoptionBody]) -> Table {
    let mut table = Table::new("When|VO|Document|Hash|By");
    for of in documents {
        table.row([
            timestamp(WallTime(of.at_ms)),
            name_or_id(None, &of.vo),
            clean(&of.document),
            clean(&of.hash),
            clean(&of.by),
        ]);
    }
    table
}

fn row(refund: &RefundBody) -> [String; 9] {
    let job = refund
        .cluster
        .iter()
        .chain(&refund.job)
        .map(|word| clean(word));
    [
        timestamp(WallTime(refund.at_ms)),
        name_or_id(refund.site_name.as_deref(), &refund.site),
        refund
            .vo
            .as_deref()
            .map_or_else(|| "local".to_owned(), |vo| name_or_id(None, vo)),
        match &refund.moved_to {
            None => clean(&refund.path),
            Some(to) => format!("{} -> {}", clean(&refund.path), clean(&to.path)),
        },
        job.collect::<Vec<_>>().join(" "),
        refund.jobs.to_string(),
        core_hours(&refund.charge_core_ms),
        clean(&refund.by),
        clean(&refund.why),
    ]
}
