//! `fairmesh report FILE…`: the records of files, counted once by the node.
//!
//! The format is told by the beginning of a file, and so is its packing. A line that cannot be read is
//! told with its place and kept (`rejects`); it stops nothing. Exit 0 where every line was counted,
//! known, or rightly not charged; 1 where one was refused. Reporting the same file twice changes
//! nothing, so after a failure the whole file can be sent again.
//!
//! Deliberately not here: parsing (`fairmesh-records`), charging (the node).

mod arc;
mod dry_run;
mod follow;
mod follower;
pub(super) mod item;
mod kept;
pub(super) mod read_options;
mod rejects;
mod send;
pub(super) mod source;
mod swf;
mod tally;
mod unpack;
mod waiting;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, anyhow, bail};
use clap::builder::NonEmptyStringValueParser;
use fairmesh_model::clean;
use fairmesh_records::{Dimension, GridIdentities, Options, Skip, Summary};
use fairmesh_schedulers::feed::BATCH_RECORDS;

use self::dry_run::DryRun;
use self::follower::Follower;
use self::item::{Entry, Kind};
use self::read_options::ReadOptions;
use self::rejects::Rejects;
use self::send::{Origin, Way};
use self::source::Source;
use self::tally::{FileBody, Tally};
use self::waiting::Waiting;
use super::AskArgs;
use crate::output::{Exit, Progress};

/// Report job records from files of batch systems, packed or not
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ReportArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// The files; "-" is standard input. With --follow, also folders of logs whose names sort by age
    #[arg(required_unless_present = "rejects")]
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
    /// What stands between two fields of a `sacct` list, as in ";" [default: as its header line shows]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub delimiter: Option<String>,
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
    /// Try files of rejects again [default: *.rejects here]; what is still refused stays in them
    #[arg(long, conflicts_with = "follow")]
    pub rejects: bool,
    /// Where refused lines are kept [default: FILE.rejects; with --dry-run none]
    #[arg(long, value_name = "FILE")]
    pub rejects_to: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If the only file cannot be read at all, or the node cannot be asked.
pub async fn run(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut job = Reporting::new(args)?;
    let done = match args.follow {
        true => follow::run(args, &mut job).await,
        false => job.files(args).await,
    };
    let tally = job.tally;
    let errors = tally.files.iter().filter_map(|file| file.error.clone());
    let mut errors: Vec<String> = errors.collect();
    let is_whole = errors.is_empty() && tally.report.refused == 0;
    if done.is_ok() || tally.report.read > 0 || args.ask.output.json && !tally.files.is_empty() {
        tally.write(out, &args.ask.output, args.dry_run)?;
    }
    if done.is_err() {
        // The caller tells the last one.
        errors.pop();
    }
    for error in errors {
        note!("fairmesh: {error}");
    }
    done.map(|()| Exit::of(is_whole))
}

/// All that a report needs and gathers.
struct Reporting {
    kind: Option<Kind>,
    given: ReadOptions,
    options: Options,
    identities: GridIdentities,
    way: Way,
    rejects: Option<Rejects>,
    tally: Tally,
    follower: Follower,
}

impl Reporting {
    fn new(args: &ReportArgs) -> anyhow::Result<Self> {
        let same = |file: &PathBuf, other: &Path| {
            let (file, other) = (file.canonicalize(), other.canonicalize());
            file.is_ok_and(|file| other.is_ok_and(|other| file == other))
        };
        if let Some(rejects) = &args.rejects_to
            && args.files.iter().any(|file| same(file, rejects))
        {
            bail!("--rejects-to names a file that is to be read: it would be overwritten");
        }
        let by = if args.by.is_empty() {
            vec![Dimension::Account, Dimension::User]
        } else {
            args.by.clone()
        };
        let given = ReadOptions {
            cluster: args.cluster.clone(),
            tz: args.tz.clone(),
            columns: args.columns.clone(),
            delimiter: args.delimiter.clone(),
            unix_start: args.unix_start,
            ..ReadOptions::of_format(&args.format)
        };
        Ok(Self {
            kind: given.kind()?,
            options: Options {
                growing: args.follow,
                ..given.for_reader()?
            },
            given,
            identities: read_identities(&args.identities)?,
            way: Way {
                control: Some(args.ask.control()),
                dry_run: args.dry_run.then(DryRun::default),
                follows: args.follow,
                at_site: args.at_site.clone(),
            },
            rejects: None,
            tally: Tally {
                summary: args.dry_run.then(|| Summary::by(&by)),
                ..Tally::default()
            },
            follower: Follower::new(&args.files),
        })
    }

    /// Reads file by file. One that cannot be read keeps no other from being read, and is in the tally.
    ///
    /// # Errors
    /// If the node cannot be asked; or of the only file, if nothing of it can be read.
    async fn files(&mut self, args: &ReportArgs) -> anyhow::Result<()> {
        let found = match args.files.is_empty() {
            true => rejects_here()?,
            false => Vec::new(),
        };
        let files = if found.is_empty() {
            &args.files
        } else {
            &found
        };
        for file in files {
            let error = match self.open(args, file) {
                Ok((source, position)) => self.file(args, file, source, &position).await?,
                Err(error) => {
                    if is_called_rejects(file) && matches!(file.try_exists(), Ok(false)) {
                        self.way.tell_of_file(file, &mut Waiting::default()).await;
                    }
                    let name = clean(&file.display().to_string());
                    self.tally.files.push(FileBody::failed(name, &error));
                    Some(error)
                }
            };
            if let Some(error) = error.filter(|_| files.len() == 1 && self.tally.report.read == 0) {
                return Err(error);
            }
        }
        self.way
            .finish(self.rejects.as_mut(), &mut self.tally)
            .await
    }

    fn open(&self, args: &ReportArgs, file: &Path) -> anyhow::Result<(Source, Arc<AtomicU64>)> {
        let position = Arc::new(AtomicU64::new(0));
        let keeps_all = !args.dry_run || args.rejects_to.is_some();
        let source = Source::open(file, &self.given, keeps_all, Arc::clone(&position))?;
        if args.rejects && !source.is_of_rejects() {
            bail!("{}: not a file of rejects", file.display());
        }
        Ok((source, position))
    }

    /// Where what is refused of a file goes.
    fn rejects(
        &mut self,
        args: &ReportArgs,
        file: &Path,
        source: &Source,
    ) -> anyhow::Result<Rejects> {
        // One file that was named for all of them.
        if let Some(shared) = self.rejects.take() {
            return Ok(shared);
        }
        let replaces = source.is_of_rejects() && !args.dry_run && args.rejects_to.is_none();
        if replaces && source.packed.is_none() && is_plain(file) {
            let cannot = || format!("cannot read {}", file.display());
            return Rejects::replacing(file).with_context(cannot);
        }
        let given = args.rejects_to.as_deref();
        Ok(Rejects::of(file, given, !args.dry_run, false))
    }

    /// Reports a file. Gives why it could not be read to its end, if so.
    ///
    /// # Errors
    /// If the node cannot be asked.
    async fn file(
        &mut self,
        args: &ReportArgs,
        file: &Path,
        mut source: Source,
        position: &AtomicU64,
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let name = clean(&file.display().to_string());
        let mut rejects = self.rejects(args, file, &source)?;
        rejects.has_some = false;
        let before = self.tally.report.read;
        let progress = Progress::of_bytes(source.bytes, &name);
        let show = || progress.show(position.load(Ordering::Relaxed));
        let read = self.read(&name, &mut source, &mut rejects, show).await;
        drop(progress);
        self.tally.ignored += source.ignored();
        for (field, records) in source.unread() {
            *self.tally.unread.entry(field).or_default() += records;
        }
        let was_read = matches!(read, Ok(None));
        if let Err(error) = rejects.finish(was_read) {
            note!("fairmesh: the file of rejects cannot be replaced: {error:#}");
        }
        self.way.tell_of(&mut rejects).await;
        // What is refused again of a file of rejects waits in another file, if it could not be replaced.
        let kept_there = [&rejects.path, &rejects.removed].map(Option::as_deref);
        let is_of_rejects = source.is_of_rejects() || is_called_rejects(file);
        if was_read && is_of_rejects && !kept_there.contains(&Some(file)) {
            self.way.tell_of_file(file, &mut Waiting::default()).await;
        }
        let error = read.as_ref().map_or_else(Some, Option::as_ref);
        self.tally.files.push(FileBody {
            file: name,
            format: Some(source.kind.name()),
            packed: source.packed,
            read: self.tally.report.read - before,
            rejects: rejects
                .path
                .as_ref()
                .filter(|_| rejects.has_some)
                .map(|path| path.display().to_string()),
            error: error.map(|error| format!("{error:#}")),
        });
        self.rejects = Some(rejects).filter(|_| args.rejects_to.is_some());
        read
    }

    async fn read(
        &mut self,
        name: &str,
        source: &mut Source,
        rejects: &mut Rejects,
        show: impl Fn(),
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let (mut batch, mut broke, mut has_cpus) = (Vec::new(), None, false);
        let without_cpus = |tally: &Tally| {
            let skipped = tally.skipped.get(Skip::NoCpus.name());
            skipped.copied().unwrap_or(0)
        };
        let before = without_cpus(&self.tally);
        let mut section = source.section();
        while let Some((line, item)) = source.next() {
            let now = source.section();
            if batch.len() >= BATCH_RECORDS || !Rc::ptr_eq(&section, &now) {
                let mut from = Origin::new(name, rejects, &section);
                self.send(std::mem::take(&mut batch), &mut from).await?;
                show();
            }
            section = now;
            match item.map(|entry| self.prepared(entry, name, line)) {
                Ok(Ok(entry)) => {
                    has_cpus |= entry.record.cpus.is_some();
                    batch.push((line, entry));
                }
                Ok(Err(error)) => {
                    broke = Some(error);
                    break;
                }
                Err(bad) if bad.is_end => {
                    broke = Some(anyhow!(
                        "{name} cannot be read after line {line}: {}",
                        clean(&bad.why)
                    ));
                    break;
                }
                Err(bad) => {
                    self.tally.report.read += 1;
                    self.tally.refuse(&bad.why, name, line);
                    let place = format!("{name}:{line}");
                    rejects.keep(&section, &place, &clean(&bad.why), &bad.text);
                }
            }
        }
        let mut from = Origin::new(name, rejects, &section);
        self.send(batch, &mut from).await?;
        let without_cpus = without_cpus(&self.tally) - before;
        if broke.is_none() && without_cpus > 0 && !has_cpus {
            broke = Some(anyhow!(
                "{name}: no record says how many CPUs its job held, so nothing of this file is charged: report it with \
                 them (NCPUS of `sacct`)"
            ));
        }
        Ok(broke)
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
        batch: Vec<(u64, Box<Entry>)>,
        from: &mut Origin<'_>,
    ) -> anyhow::Result<()> {
        let read = batch.len() as u64;
        self.way.send(batch, from, &mut self.tally).await?;
        self.tally.report.read += read;
        Ok(())
    }
}

/// Whether this names a file itself: no link, no pipe, not standard input.
fn is_plain(file: &Path) -> bool {
    file.symlink_metadata().is_ok_and(|file| file.is_file())
}

/// Whether a file has the name of a file of rejects, whatever is left of its form.
fn is_called_rejects(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "rejects")
}

/// The files of rejects in the current folder.
fn rejects_here() -> anyhow::Result<Vec<PathBuf>> {
    let names = std::fs::read_dir(".").context("cannot read this folder")?;
    let names = names
        .flatten()
        .map(|entry| PathBuf::from(entry.file_name()));
    let mut files: Vec<PathBuf> = names.filter(|name| is_called_rejects(name)).collect();
    files.sort();
    if files.is_empty() {
        note!("there is no file of rejects in this folder");
    }
    Ok(files)
}

/// Reads BLAH's logs; lines that make no sense are told.
fn read_identities(files: &[PathBuf]) -> anyhow::Result<GridIdentities> {
    let mut identities = GridIdentities::default();
    for file in files {
        let (input, _, _) = unpack::unpacked(file, Arc::default())?;
        for error in identities.read(input) {
            note!(
                "fairmesh: {}:{}: {}",
                file.display(),
                error.line,
                error.reason
            );
        }
    }
    Ok(identities)
}
