//! `fairmesh records`: the job records that the node keeps, listed or summed.
//!
//! Without `--by` and `--totals` single jobs are listed, the newest last: all for those who may write on
//! the control socket, to others their own. Sums count what lies between `--since` and `--until`: of a job that began
//! earlier or ended later, the part in between.
//!
//! Invariant: all forms show the same cells in the same order; `--json` prints the node's own JSON.

use std::io::Write;

use anyhow::Context as _;
use fairmesh_api::words::{count, timestamp};
use fairmesh_api::{Answer, RefusedJobsBody, RejectsBody, RestsOn, StatusBody, SummaryBody};
use fairmesh_model::WallTime;
use fairmesh_model::record::fitting;
use fairmesh_node::config::quantity::{parse_duration, parse_moment};
use fairmesh_node::driver::wall_now;
use fairmesh_records::export::ApelSite;
use fairmesh_records::summary::kwh;
use fairmesh_records::{BatchRecord, Dimension};
use serde::{Deserialize, Serialize};

use super::export::{self, Form};
use super::{AskArgs, heading, totals, unless_refused};
use crate::output::{Exit, Table};

/// Most records of one export: as many as the node lists.
const EXPORTED_MAX: u32 = 500_000;

/// Columns of a list.
const COLUMNS: &str =
    "Cluster|Job|User|Account|VO|Path|Queue|State|CPUs|Nodes|GPUs|Submit|Start|End|EnergyKwh";

/// Show the job records that the node keeps, or what they come to
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RecordsArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Jobs that were there since then: 2026-11-01, 2026-11-01T12:00:00Z, or 7d for a week ago
    #[arg(long, value_name = "T")]
    pub since: Option<String>,
    /// Jobs that were there before then
    #[arg(long, value_name = "T")]
    pub until: Option<String>,
    /// Of this local user
    #[arg(long)]
    pub user: Option<String>,
    /// Of this batch account
    #[arg(long)]
    pub account: Option<String>,
    /// Of this local group
    #[arg(long)]
    pub group: Option<String>,
    /// Of this VO, by the alias in the node's configuration
    #[arg(long)]
    pub vo: Option<String>,
    /// In this state: COMPLETED, FAILED, TIMEOUT …
    #[arg(long)]
    pub state: Option<String>,
    /// Of this queue or partition
    #[arg(long)]
    pub queue: Option<String>,
    /// Of this cluster
    #[arg(long)]
    pub cluster: Option<String>,
    /// Sums by these: day, user, account, group, vo, state, queue, cluster
    #[arg(long, value_delimiter = ',', value_name = "FIELDS")]
    pub by: Vec<Dimension>,
    /// One sum of all
    #[arg(long, conflicts_with = "by")]
    pub totals: bool,
    /// Jobs that the node refused for good and does not count, and files with rejects
    #[arg(long, conflicts_with_all = ["since", "until", "user", "account", "group", "vo", "state", "queue", "cluster", "by", "totals", "export"])]
    pub refused: bool,
    /// Most jobs to list: the newest [default: 1000]
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Comma-separated values, with a header
    #[arg(long, conflicts_with_all = ["json", "parsable"])]
    pub csv: bool,
    /// For a Grid: OGF Usage Records (XML)
    #[arg(long, group = "export", conflicts_with_all = ["json", "parsable", "csv", "by", "totals"])]
    pub ogf: bool,
    /// For AUDITOR: a JSON object a line
    #[arg(long, group = "export", conflicts_with_all = ["json", "parsable", "csv", "by", "totals"])]
    pub auditor: bool,
    /// For a Grid: an APEL message of single jobs
    #[arg(long, group = "export", conflicts_with_all = ["json", "parsable", "csv", "by", "totals"])]
    pub apel: bool,
    /// For a Grid: an APEL message of summaries by month
    #[arg(long, group = "export", conflicts_with_all = ["json", "parsable", "csv", "by", "totals"])]
    pub apel_summary: bool,
    /// The site's name in the Grid's own list, for APEL [default: the node's name]
    #[arg(long, value_name = "NAME", requires = "export")]
    pub site: Option<String>,
    /// For APEL: where CPU time used is not known, tell CPUs times wall-clock time, as its own reader of
    /// Slurm does
    #[arg(long, requires = "export", conflicts_with = "ogf")]
    pub cpu_held: bool,
}

/// The JSON schema `fairmesh.records/1`.
#[derive(Debug, Deserialize)]
struct ListBody {
    #[serde(flatten)]
    rests_on: RestsOn,
    records: Vec<RowBody>,
    more: bool,
}

/// A record and whom it was charged to.
#[derive(Debug, Serialize, Deserialize)]
struct RowBody {
    #[serde(flatten)]
    record: BatchRecord,
    #[serde(default)]
    vo: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    taken_back: bool,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, keeps no records, or does not show them to this user.
pub async fn run(args: &RecordsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.refused {
        return refused(args, out).await;
    }
    let by: Vec<String> = args.by.iter().map(ToString::to_string).collect();
    let by = (!by.is_empty()).then(|| by.join(","));
    // What is exported must be whole, or be known not to be.
    let most = form(args).map(|_| EXPORTED_MAX);
    let limit = args.limit.or(most).map(|limit| limit.to_string());
    let bound = |text: &Option<String>| text.as_deref().map(moment).transpose();
    let period = [bound(&args.since)?, bound(&args.until)?];
    let [since, until] = period.map(|bound| bound.map(timestamp));
    let parameters = [
        ("since", since.as_deref()),
        ("until", until.as_deref()),
        ("user", args.user.as_deref()),
        ("account", args.account.as_deref()),
        ("group", args.group.as_deref()),
        ("vo", args.vo.as_deref()),
        ("state", args.state.as_deref()),
        ("queue", args.queue.as_deref()),
        ("cluster", args.cluster.as_deref()),
        ("by", by.as_deref()),
        ("totals", args.totals.then_some("true")),
        ("limit", limit.as_deref()),
    ];
    if args.totals || by.is_some() {
        return sums(args, &parameters, out).await;
    }
    let control = args.ask.control();
    let asked = control.get::<ListBody>("/v1/accounting", &parameters);
    let Some((list, text)) = unless_refused(asked.await.map_err(Into::into))? else {
        return Ok(Exit::Failure);
    };
    if args.ask.output.json {
        writeln!(out, "{text}")?;
        return Ok(Exit::Success);
    }
    if let Some(form) = form(args) {
        return export(args, form, list, period, out).await;
    }
    let mut table = Table::new(COLUMNS).cut();
    list.records.iter().for_each(|of| table.row(row(of)));
    write(args, &list.rests_on, table, out)?;
    if list.more {
        note!(
            "only the newest {} are shown: see --limit, --since and --until",
            list.records.len()
        );
    }
    Ok(Exit::Success)
}

fn form(args: &RecordsArgs) -> Option<Form> {
    let forms = [
        (args.ogf, Form::Ogf),
        (args.auditor, Form::Auditor),
        (args.apel, Form::Apel),
        (args.apel_summary, Form::ApelSummary),
    ];
    forms
        .into_iter()
        .find_map(|(wanted, form)| wanted.then_some(form))
}

/// Writes the jobs that ended in the period, so that month by month each is exported once.
async fn export(
    args: &RecordsArgs,
    form: Form,
    list: ListBody,
    [since, until]: [Option<WallTime>; 2],
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if list.more {
        anyhow::bail!(
            "there are more records than one export holds: export by parts, with --since and --until"
        );
    }
    let name = match &args.site {
        Some(name) => name.clone(),
        None => {
            let control = args.ask.control();
            let (status, _) = control.get::<Answer<StatusBody>>("/v1/status", &[]).await?;
            status.body.node.name
        }
    };
    let site = ApelSite {
        name,
        infrastructure: "grid".to_owned(),
    };
    let ended = |record: &BatchRecord| {
        let end = record.end.filter(|_| record.state.has_ended());
        end.is_some_and(|end| {
            since.is_none_or(|since| since <= end) && until.is_none_or(|until| end < until)
        })
    };
    // What was taken back was reported in error: no Grid is told of it.
    let counted = list.records.into_iter().filter(|row| !row.taken_back);
    let records = counted.map(|row| row.record);
    let left_out = export::write(out, form, &site, args.cpu_held, records.filter(ended))?;
    Ok(Exit::of(left_out == 0))
}

async fn refused(args: &RecordsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let limit = args.limit.map(|limit| limit.to_string());
    let parameters = [("limit", limit.as_deref())];
    let asked = args
        .ask
        .get::<RefusedJobsBody>("/v1/refused", &parameters, out);
    let Some((answer, done)) = unless_refused(asked.await)? else {
        return Ok(Exit::Failure);
    };
    if done {
        return Ok(Exit::Success);
    }
    let RefusedJobsBody { all, jobs, rejects } = &answer.body;
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    let mut table = Table::new("Cluster|Job|User|Account|Since|Reason").cut();
    for job in jobs {
        table.row([
            job.cluster.clone(),
            job.job.clone(),
            word(&job.user),
            word(&job.account),
            timestamp(WallTime(job.since_ms)),
            job.reason.clone(),
        ]);
    }
    write(args, &answer.rests_on, table, out)?;
    if let Some(all) = all.as_ref().filter(|all| all.count > jobs.len() as u64) {
        let (shown, all) = (jobs.len(), all.count);
        note!("the first {shown} of {all} are shown: see --limit");
    }
    for RejectsBody { file, lines } in rejects {
        let since = timestamp(WallTime(lines.since_ms));
        note!(
            "{} in {file} since {since}; main reason: {}",
            count(lines.count, "reject"),
            lines.reason
        );
    }
    Ok(Exit::Success)
}

async fn sums(
    args: &RecordsArgs,
    parameters: &[(&str, Option<&str>)],
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let asked = args
        .ask
        .get::<SummaryBody>("/v1/accounting", parameters, out)
        .await;
    let Some((answer, done)) = unless_refused(asked)? else {
        return Ok(Exit::Failure);
    };
    if !done {
        write(args, &answer.rests_on, totals::table(&answer.body), out)?;
    }
    Ok(Exit::Success)
}

fn write(
    args: &RecordsArgs,
    rests_on: &RestsOn,
    table: Table,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let format = &args.ask.output;
    if args.csv {
        return table.write_csv(out, format.noheader);
    }
    Ok(table.with_heading(heading(rests_on)).write(out, format)?)
}

fn row(row: &RowBody) -> [String; 15] {
    let record = &row.record;
    // As accounts are named by them: two names stay two.
    let word = |word: &Option<String>| word.clone().map(fitting).unwrap_or_default();
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    let time = |time: Option<WallTime>| time.map_or_else(String::new, timestamp);
    let energy = record.energy_j.map(|joules| kwh(joules.into()));
    [
        fitting(&*record.key.cluster),
        fitting(record.label.as_deref().unwrap_or(&record.key.job)),
        word(&record.origin.user),
        word(&record.origin.account),
        word(&row.vo),
        word(&row.path),
        word(&record.queue),
        if row.taken_back {
            "TAKEN_BACK".to_owned()
        } else {
            record.state.name().to_owned()
        },
        number(record.cpus),
        number(record.nodes),
        number(record.gpus),
        time(record.submit),
        time(record.start),
        time(record.end),
        energy.unwrap_or_default(),
    ]
}

/// A moment; `7d` is so long ago.
pub(super) fn moment(text: &str) -> anyhow::Result<WallTime> {
    let ago = || Some(wall_now().before(parse_duration(text)?));
    parse_moment(text).or_else(ago).with_context(|| {
        let text = text.escape_debug();
        format!(
            "`{text}` is no moment: write 2026-11-01, 2026-11-01T12:00:00Z, or 7d for a week ago"
        )
    })
}
