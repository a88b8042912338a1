//! `fairmesh report FILE…`: usage records of files, counted once by the node.
//!
//! Exit 0 where every line was counted or known, 1 where one was refused. Reporting the same file
//! twice changes nothing, so after a failure the whole file can be sent again.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};

use super::number::core_hours;
use super::{AskArgs, Control, feed};
use crate::control::answer::{Answer, Refusal, ReportBody};
use crate::control::clean;
use crate::output::Exit;

/// Records in one request.
const BATCH_RECORDS: usize = 5_000;

/// Work that takes longer shows how far it is.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);

/// Refused lines that `--json` lists.
const REFUSALS_MAX: usize = 100;

/// Reasons that are listed one by one.
const REASONS_MAX: usize = 20;

/// Report usage records from files: JSON lines or SWF, gzipped or not
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ReportArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The files; "-" is standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Read as SWF or as JSON lines, whatever the name says
    #[arg(long, value_parser = ["swf", "jsonl"])]
    pub format: Option<String>,
    /// The cluster's name for SWF jobs [default: the file's name up to the first dot]
    #[arg(long)]
    pub cluster: Option<String>,
    /// Only read and check the files
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Default)]
struct Totals {
    report: ReportBody,
    charge: u128,
    /// By reason: how many, and the first place.
    reasons: BTreeMap<String, (u64, String)>,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be opened, or the node cannot be asked.
pub async fn run(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = (!args.dry_run).then(|| args.ask.control());
    let mut totals = Totals::default();
    for file in &args.files {
        report_file(args, file, control.as_ref(), &mut totals).await?;
    }
    totals.report.charge_core_ms = totals.charge.to_string();
    if args.ask.output.json {
        crate::output::write_json(out, "fairmesh.report/1", &totals.report)?;
    } else {
        totals.write(out, args.dry_run)?;
    }
    Ok(if totals.report.refused == 0 {
        Exit::Success
    } else {
        Exit::Failure
    })
}

async fn report_file(
    args: &ReportArgs,
    file: &Path,
    control: Option<&Control>,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let position = Arc::new(AtomicU64::new(0));
    let swf = args.format.as_deref().map(|format| format == "swf");
    let feed = feed::open(file, swf, args.cluster.as_deref(), Arc::clone(&position))?;
    let name = clean(&file.display().to_string());
    let mut progress = Progress::new(feed.bytes);
    let (mut body, mut numbers) = (Vec::new(), Vec::new());
    for (line, item) in feed.items {
        totals.report.read += 1;
        match item {
            Ok(record) => {
                serde_json::to_writer(&mut body, &record)?;
                body.push(b'\n');
                numbers.push(line);
            }
            Err(why) => totals.refuse(&why, &name, line),
        }
        if numbers.len() >= BATCH_RECORDS {
            send(control, &mut body, &mut numbers, &name, totals).await?;
            progress.show(position.load(Ordering::Relaxed));
        }
    }
    send(control, &mut body, &mut numbers, &name, totals).await?;
    progress.bar.finish_and_clear();
    Ok(())
}

async fn send(
    control: Option<&Control>,
    body: &mut Vec<u8>,
    numbers: &mut Vec<u64>,
    name: &str,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let (body, numbers) = (std::mem::take(body), std::mem::take(numbers));
    let Some(control) = control.filter(|_| !numbers.is_empty()) else {
        return Ok(());
    };
    let answer: Answer<ReportBody> = control.post("/v1/records", body).await?;
    let told = answer.body;
    totals.report.counted += told.counted;
    totals.report.known += told.known;
    totals.report.unmapped += told.unmapped;
    totals.report.late += told.late;
    totals.charge += told.charge_core_ms.parse::<u128>().unwrap_or(0);
    for refusal in &told.refusals {
        let index = usize::try_from(refusal.line).unwrap_or(0).saturating_sub(1);
        let line = numbers.get(index).copied().unwrap_or(refusal.line);
        totals.refuse(&refusal.reason, name, line);
    }
    let listed = u64::try_from(told.refusals.len()).unwrap_or(u64::MAX);
    totals.report.refused += told.refused.saturating_sub(listed);
    Ok(())
}

impl Totals {
    fn refuse(&mut self, why: &str, file: &str, line: u64) {
        self.report.refused += 1;
        let why = clean(why);
        let place = format!("{file}:{line}");
        if self.report.refusals.len() < REFUSALS_MAX {
            let reason = format!("{place}: {why}");
            self.report.refusals.push(Refusal { line, reason });
        }
        let known = self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&why);
        let why = if known {
            why
        } else {
            "other reasons".to_owned()
        };
        self.reasons.entry(why).or_insert((0, place)).0 += 1;
    }

    fn write(&self, out: &mut dyn Write, dry_run: bool) -> std::io::Result<()> {
        let report = &self.report;
        if dry_run {
            writeln!(
                out,
                "read {}, refused {}; nothing was sent",
                report.read, report.refused
            )?;
        } else {
            writeln!(
                out,
                "read {}, counted {}, known {}, unmapped {}, late {}, refused {}; {} core-hours charged",
                report.read,
                report.counted,
                report.known,
                report.unmapped,
                report.late,
                report.refused,
                core_hours(&report.charge_core_ms)
            )?;
        }
        for (why, (count, first)) in &self.reasons {
            eprintln!("refused {count}: {why} (first at {first})");
        }
        if report.late > 0 {
            eprintln!("late: older than any history, so they charge nothing");
        }
        if report.unmapped > 0 {
            eprintln!("`fairmesh usage --unmapped` lists whom no identity rule maps");
        }
        Ok(())
    }
}

/// A bar that appears only if it is worth it.
struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    fn new(bytes: u64) -> Self {
        Self {
            bar: ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden()),
            started: Instant::now(),
        }
    }

    fn show(&mut self, position: u64) {
        let due = self.bar.is_hidden() && self.started.elapsed() > PROGRESS_AFTER;
        if due && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(position);
    }
}
