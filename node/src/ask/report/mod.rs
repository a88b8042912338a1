//! `fairmesh report FILE…`: the records of files, counted once by the node.
//!
//! The format is told by the beginning of a file, and so is its packing. A line that cannot be read is
//! told with its place and kept (`rejects`); it stops nothing. Exit 0 where every line was counted,
//! known, or rightly not charged; 1 where one was refused. Reporting the same file twice changes
//! nothing, so after a failure the whole file can be sent again.
//!
//! Deliberately not here: parsing (`fairmesh-records`), charging (the node).

mod arc;
mod follow;
mod rejects;
mod send;
pub(super) mod source;
mod swf;
mod tally;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use fairmesh_records::{Dimension, GridIdentities, Options, Summary, Zone};
use fairmesh_schedulers::feed::BATCH_RECORDS;

use self::rejects::Rejects;
use self::send::{Origin, Way};
use self::source::{Entry, Kind, Source};
use self::tally::{FileBody, Tally};
use super::AskArgs;
use crate::control::clean;
use crate::output::{Exit, Progress};

/// Report job records from files of batch systems, packed or not
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ReportArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The files; "-" is standard input. With --follow, also folders of logs whose names sort by age
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The format: auto, swf, arc, or a name of the table in docs/records.md (a wrong name lists them all)
    #[arg(long, default_value = "auto", hide_default_value = true)]
    pub format: String,
    /// The cluster's name, for records that do not say it [default for SWF: the file's name]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// The time zone of local times, as in Europe/Prague [default: this machine's]
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// When an SWF log began whose header has no UnixStartTime: seconds since 1970, or a moment such as
    /// 2009-01-01T00:00:00Z
    #[arg(long, value_name = "SECONDS|MOMENT", value_parser = swf::start_s)]
    pub unix_start: Option<u64>,
    /// The fields of a `sacct` list without its header line, by commas
    #[arg(long, value_name = "FIELDS")]
    pub columns: Option<String>,
    /// BLAH logs that say whose Grid jobs the jobs were
    #[arg(long, value_name = "BLAH-LOG")]
    pub identities: Vec<PathBuf>,
    /// Go on as the files grow and are rotated, until SIGTERM or SIGINT
    #[arg(long, conflicts_with = "dry_run")]
    pub follow: bool,
    /// Where --follow keeps how far it is [default: FILE.fairmesh-cursor]
    #[arg(long, value_name = "FILE", requires = "follow")]
    pub cursor: Option<PathBuf>,
    /// Record nothing: show what the jobs come to, and what would be charged to whom
    #[arg(long)]
    pub dry_run: bool,
    /// What a dry run's table is grouped by: day, user, account, group, vo, state, queue, cluster
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "FIELDS",
        requires = "dry_run"
    )]
    pub by: Vec<Dimension>,
    /// Charge as this site would, by what it has signed: its name or id
    #[arg(long, value_name = "SITE", requires = "dry_run")]
    pub at_site: Option<String>,
    /// Where refused lines are kept [default: FILE.rejects; with --dry-run none]
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be opened or recognised, or the node cannot be asked.
pub async fn run(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut job = Reporting::new(args)?;
    if args.follow {
        follow::run(args, &mut job).await?;
    } else {
        for file in &args.files {
            job.file(args, file).await?;
        }
    }
    let refused = job.tally.report.refused;
    job.tally.write(out, &args.ask.output, args.dry_run)?;
    Ok(Exit::of(refused == 0))
}

/// All that a report needs and gathers.
struct Reporting {
    kind: Option<Kind>,
    options: Options,
    identities: GridIdentities,
    way: Way,
    rejects: Option<Rejects>,
    tally: Tally,
}

impl Reporting {
    fn new(args: &ReportArgs) -> anyhow::Result<Self> {
        let same = |file: &PathBuf, other: &Path| {
            let (file, other) = (file.canonicalize(), other.canonicalize());
            file.is_ok_and(|file| other.is_ok_and(|other| file == other))
        };
        if let Some(rejects) = &args.rejects
            && args.files.iter().any(|file| same(file, rejects))
        {
            bail!("--rejects names a file that is to be read: it would be overwritten");
        }
        let zone = match &args.tz {
            None => jiff::tz::TimeZone::system(),
            Some(name) => jiff::tz::TimeZone::get(name)
                .with_context(|| format!("no time zone `{}`", name.escape_debug()))?,
        };
        let by = if args.by.is_empty() {
            vec![Dimension::Account, Dimension::User]
        } else {
            args.by.clone()
        };
        Ok(Self {
            kind: Kind::parse(&args.format)?,
            options: Options {
                cluster: args.cluster.clone().unwrap_or_default(),
                zone: Zone::new(zone),
                columns: args.columns.clone(),
                growing: args.follow,
                noted_slots: false,
            },
            identities: read_identities(&args.identities)?,
            way: Way {
                control: Some(args.ask.control()),
                dry_run: args.dry_run,
                follows: args.follow,
                at_site: args.at_site.clone(),
            },
            rejects: None,
            tally: Tally {
                summary: args.dry_run.then(|| Summary::by(&by)),
                ..Tally::default()
            },
        })
    }

    async fn file(&mut self, args: &ReportArgs, file: &Path) -> anyhow::Result<()> {
        let position = Arc::new(AtomicU64::new(0));
        let mut source = Source::open(
            file,
            self.kind,
            &self.options,
            args.unix_start,
            Arc::clone(&position),
        )?;
        let name = clean(&file.display().to_string());
        let shared = self.rejects.take();
        let mut rejects = shared
            .unwrap_or_else(|| Rejects::of(file, args.rejects.as_deref(), !args.dry_run, false));
        let progress = Progress::of_bytes(source.bytes, &name);
        let (mut batch, mut read) = (Vec::new(), 0);
        for (line, item) in source.by_ref() {
            read += 1;
            match item {
                Ok(entry) => {
                    let entry = self.prepared(entry, &name, line)?;
                    batch.push((line, entry));
                }
                Err((why, text)) => {
                    self.tally.refuse(&why, &name, line);
                    rejects.keep(&format!("{name}:{line}"), &clean(&why), &text);
                }
            }
            if batch.len() >= BATCH_RECORDS {
                self.send(&batch, &name, &mut rejects).await?;
                batch.clear();
                progress.show(position.load(Ordering::Relaxed));
            }
        }
        self.send(&batch, &name, &mut rejects).await?;
        drop(progress);
        self.tally.report.read += read;
        self.tally.ignored += source.ignored();
        for (field, records) in source.unread() {
            *self.tally.unread.entry(field).or_default() += records;
        }
        self.tally.files.push(FileBody {
            file: name,
            format: source.kind.name(),
            packed: source.packed,
            read,
            rejects: rejects.path.as_ref().map(|path| path.display().to_string()),
        });
        // One file that was named for all of them.
        self.rejects = Some(rejects).filter(|_| args.rejects.is_some());
        Ok(())
    }

    /// With its Grid identity, if there is one.
    fn prepared(
        &mut self,
        mut entry: Box<Entry>,
        file: &str,
        line: u64,
    ) -> anyhow::Result<Box<Entry>> {
        let record = &mut entry.record;
        if record.key.cluster.is_empty() {
            bail!(
                "{file}:{line}: the record does not say which cluster the job ran on: give its name \
                 with --cluster, always the same (a job of another cluster is another job)"
            );
        }
        if !self.identities.is_empty() && self.identities.join(record) {
            self.tally.identified += 1;
            if let Some(usage) = &mut entry.usage {
                usage.origin.subject.clone_from(&record.origin.subject);
            }
        }
        Ok(entry)
    }

    async fn send(
        &mut self,
        batch: &[(u64, Box<Entry>)],
        file: &str,
        rejects: &mut Rejects,
    ) -> anyhow::Result<()> {
        let mut from = Origin { file, rejects };
        self.way.send(batch, &mut from, &mut self.tally).await
    }
}

/// Reads BLAH's logs; lines that make no sense are told.
fn read_identities(files: &[PathBuf]) -> anyhow::Result<GridIdentities> {
    let mut identities = GridIdentities::default();
    for file in files {
        let (input, _, _) = source::unpacked(file, Arc::default())?;
        for error in identities.read(input) {
            eprintln!(
                "fairmesh: {}:{}: {}",
                file.display(),
                error.line,
                error.reason
            );
        }
    }
    Ok(identities)
}
