//! What was refused for good and waits for somebody: jobs that the node did not count, and lines of files that
//! `fairmesh report` could not read.
//!
//! A job stays here until it is counted, or for 90 days after it was refused last. Its record is kept, so that the
//! node can try it again under another charter. SQLite holds both beside the record log, which may be switched off.
//!
//! Invariants: a job is here once, however often it is reported; what [`Refused::note`] has taken survives a process
//! that is killed. Beyond 100,000 with records a job is counted, and neither its user nor its record is kept.
//! Deliberately not here: what is refused, and why (`fairmesh-site`).

use std::collections::BTreeSet;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairmesh_api::{RejectsBody, WaitingBody};
use fairmesh_model::{JobKey, Millis, WallTime, clean};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, params};

/// The file in the node's data folder.
pub const FILE: &str = "refused.sqlite";

/// How long a job is listed after it was refused last: usage of that time weighs nothing any more.
const KEPT: Millis = Millis::from_secs(90 * 86_400);

/// Most jobs with user and record, some 100 MB.
const RECORDS_MAX: u64 = 100_000;

/// Most files with rejects.
const FILES_MAX: u64 = 1_000;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS jobs (
        cluster TEXT NOT NULL,
        job TEXT NOT NULL,
        instance INTEGER NOT NULL,
        user TEXT,
        account TEXT,
        reason TEXT NOT NULL,
        kind TEXT NOT NULL,
        since INTEGER NOT NULL,
        last INTEGER NOT NULL,
        record TEXT,
        runs INTEGER NOT NULL,
        PRIMARY KEY (cluster, job, instance)
    ) STRICT;
    CREATE INDEX IF NOT EXISTS jobs_by_last ON jobs (last);
    CREATE TABLE IF NOT EXISTS rejects (
        file TEXT PRIMARY KEY,
        lines INTEGER NOT NULL,
        since INTEGER NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS seen_rejects (
        file TEXT PRIMARY KEY
    ) STRICT;
";

/// A job that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedJob {
    /// The key of the refused job.
    pub key: JobKey,
    /// The local user, if the record named one.
    pub user: Option<String>,
    /// The account of the batch system, if the record named one.
    pub account: Option<String>,
    /// Why, in the node's words.
    pub reason: String,
    /// When it was refused first.
    pub since: WallTime,
    /// Its record as JSON; none for one that still runs.
    pub record: Option<String>,
}

/// The store.
#[derive(Debug)]
pub struct Refused(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    database: Connection,
    /// Jobs whose records are kept, at most: those that were taken out are not subtracted before the next start.
    records: u64,
    /// All jobs together; none where that has to be asked again.
    summary: Option<Option<WaitingBody>>,
}

impl Refused {
    /// Opens the store in a data folder, or begins one. One that is damaged is set aside, and where the folder cannot
    /// be written the store is kept in memory; the log says both. Blocks on the disk.
    ///
    /// # Errors
    /// If there is no database at all.
    pub fn open(data_dir: &Path) -> rusqlite::Result<Self> {
        let path = data_dir.join(FILE);
        let opened = match at(&path) {
            Err(error) if is_damage(&error) => set_aside(&path, &error),
            opened => opened,
        };
        opened.or_else(|error| {
            let file = path.display();
            tracing::error!(%file, %error, "refused jobs are listed until the node ends, and no longer");
            Self::in_memory()
        })
    }

    /// Begins a new store where `error` says that this one is damaged. Blocks on the disk.
    pub fn mend(&self, error: &rusqlite::Error) {
        let path = self.inner().database.path().map(PathBuf::from);
        if let Some(path) = path.filter(|_| is_damage(error)) {
            let begun = set_aside(&path, error).or_else(|_| Self::in_memory());
            if let Ok(Self(new)) = begun {
                *self.inner() = new.into_inner().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// One that ends with the process.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn in_memory() -> rusqlite::Result<Self> {
        of(Connection::open_in_memory()?)
    }

    /// Lists these as refused now; gives of each whether it was listed already, for the like reason.
    ///
    /// # Errors
    /// If they could not be written: then none was.
    pub fn note(&self, now: WallTime, jobs: &[RefusedJob]) -> rusqlite::Result<Vec<bool>> {
        let mut inner = self.inner();
        let Inner {
            database,
            records,
            summary,
        } = &mut *inner;
        let change = database.transaction()?;
        let mut again = Vec::with_capacity(jobs.len());
        for job in jobs {
            let kind = kind(&job.reason);
            let (cluster, name, instance) = columns(&job.key);
            let before: Option<String> = change
                .prepare_cached(
                    "SELECT kind FROM jobs WHERE cluster = ?1 AND job = ?2 AND instance = ?3",
                )?
                .query_row(params![cluster, name, instance], |row| row.get(0))
                .optional()?;
            let is_kept = before.is_some() || *records < RECORDS_MAX;
            *records += u64::from(before.is_none() && is_kept);
            let kept = |word: &Option<String>| word.clone().filter(|_| is_kept);
            change
                .prepare_cached(
                    "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10)
                     ON CONFLICT DO UPDATE SET reason = ?6, kind = ?7, last = ?8,
                        record = coalesce(?9, record), runs = ?10 AND record IS NULL",
                )?
                .execute(params![
                    cluster,
                    name,
                    instance,
                    kept(&job.user),
                    kept(&job.account),
                    job.reason,
                    kind,
                    now.0.cast_signed(),
                    kept(&job.record),
                    job.record.is_none(),
                ])?;
            again.push(before.as_ref() == Some(&kind));
        }
        let oldest = now.before(KEPT).0.cast_signed();
        change.execute("DELETE FROM jobs WHERE last < ?1", [oldest])?;
        change.commit()?;
        *summary = None;
        Ok(again)
    }

    /// Takes out jobs that were counted, or are not to be.
    ///
    /// # Errors
    /// If that could not be written.
    pub fn forget<'a>(&self, jobs: impl Iterator<Item = &'a JobKey>) -> rusqlite::Result<()> {
        if self.is_empty()? {
            return Ok(());
        }
        let mut inner = self.inner();
        let Inner {
            database, summary, ..
        } = &mut *inner;
        let change = database.transaction()?;
        for job in jobs {
            let (cluster, name, instance) = columns(job);
            change
                .prepare_cached(
                    "DELETE FROM jobs WHERE cluster = ?1 AND job = ?2 AND instance = ?3",
                )?
                .execute(params![cluster, name, instance])?;
        }
        change.commit()?;
        *summary = None;
        Ok(())
    }

    /// Takes out those that were refused while they ran, but for these: the list of running jobs replaces the one
    /// before.
    ///
    /// # Errors
    /// If that could not be written.
    pub fn keep_running(&self, jobs: &[RefusedJob]) -> rusqlite::Result<()> {
        let listed = self.list_where("runs", u32::MAX)?;
        let of_now: BTreeSet<&JobKey> = jobs.iter().map(|job| &job.key).collect();
        let gone = listed.iter().map(|job| &job.key);
        self.forget(gone.filter(|key| !of_now.contains(key)))
    }

    /// Whether no job is listed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn is_empty(&self) -> rusqlite::Result<bool> {
        let inner = self.inner();
        let is_any = "SELECT EXISTS (SELECT 1 FROM jobs)";
        inner
            .database
            .query_row(is_any, [], |row| Ok(!row.get::<_, bool>(0)?))
    }

    /// All jobs together.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn summary(&self) -> rusqlite::Result<Option<WaitingBody>> {
        let mut inner = self.inner();
        if let Some(known) = &inner.summary {
            return Ok(known.clone());
        }
        let sums = |row: &Row<'_>| Ok((count(row, 0)?, row.get::<_, Option<i64>>(1)?));
        let all = "SELECT count(*), min(since) FROM jobs";
        let (count, since) = inner.database.query_row(all, [], sums)?;
        let most =
            "SELECT reason, max(last) FROM jobs GROUP BY kind ORDER BY count(*) DESC, kind LIMIT 1";
        let reason = inner
            .database
            .query_row(most, [], |row| row.get::<_, String>(0))
            .optional()?;
        let waiting = reason.map(|reason| WaitingBody {
            count,
            since_ms: moment(since.unwrap_or_default()).0,
            reason: clean(without_job(&reason)),
        });
        inner.summary = Some(waiting.clone());
        Ok(waiting)
    }

    /// The first jobs, the oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn list(&self, most: u32) -> rusqlite::Result<Vec<RefusedJob>> {
        self.list_where("true", most)
    }

    /// Jobs whose records are kept, each with its place: those behind `after`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn records(&self, after: i64, most: u32) -> rusqlite::Result<Vec<(i64, String)>> {
        let inner = self.inner();
        let mut found = inner.database.prepare_cached(
            "SELECT rowid, record FROM jobs WHERE rowid > ?1 AND record IS NOT NULL ORDER BY rowid LIMIT ?2",
        )?;
        let rows = found.query_map(params![after, most], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }

    fn list_where(&self, condition: &str, most: u32) -> rusqlite::Result<Vec<RefusedJob>> {
        let inner = self.inner();
        let mut found = inner.database.prepare_cached(&format!(
            "SELECT cluster, job, instance, user, account, reason, since FROM jobs WHERE {condition}
             ORDER BY since, cluster, job, instance LIMIT ?1",
        ))?;
        let rows = found.query_map([most], |row| {
            Ok(RefusedJob {
                key: JobKey {
                    cluster: row.get(0)?,
                    job: row.get(1)?,
                    instance: row.get::<_, i64>(2)?.cast_unsigned(),
                },
                user: row.get(3)?,
                account: row.get(4)?,
                reason: row.get(5)?,
                since: moment(row.get(6)?),
                record: None,
            })
        })?;
        rows.collect()
    }

    /// Says how many lines of a file wait that could not be read; none takes the file out. Gives whether there was
    /// room for it.
    ///
    /// # Errors
    /// If that could not be written.
    pub fn set_rejects(&self, rejects: &RejectsBody) -> rusqlite::Result<bool> {
        let RejectsBody { file, lines } = rejects;
        let is_seen = Path::new(file).exists();
        let inner = self.inner();
        if lines.count == 0 {
            inner
                .database
                .execute("DELETE FROM rejects WHERE file = ?1", [file])?;
            inner
                .database
                .execute("DELETE FROM seen_rejects WHERE file = ?1", [file])?;
            return Ok(true);
        }
        let written = inner.database.execute(
            "INSERT INTO rejects SELECT ?1, ?2, ?3, ?4
             WHERE (SELECT count(*) FROM rejects WHERE file <> ?1) < ?5
             ON CONFLICT DO UPDATE SET lines = ?2, since = min(since, ?3), reason = ?4",
            params![
                file,
                lines.count.cast_signed(),
                lines.since_ms.cast_signed(),
                lines.reason,
                FILES_MAX.cast_signed()
            ],
        )?;
        if is_seen && written > 0 {
            let seen = "INSERT OR IGNORE INTO seen_rejects VALUES (?1)";
            inner.database.execute(seen, [file])?;
        }
        Ok(written > 0)
    }

    /// Takes out files that were removed. A file counts as removed only if the node has seen it: a service may have
    /// another `/tmp` or `/home` than the user who reports. Blocks on the disks with these files.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn forget_removed(&self) -> rusqlite::Result<()> {
        let seen: Vec<String> = {
            let inner = self.inner();
            let mut found = inner.database.prepare("SELECT file FROM seen_rejects")?;
            let rows = found.query_map([], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<_>>()?
        };
        let is_removed = |file: &String| matches!(Path::new(file).try_exists(), Ok(false));
        for file in seen.into_iter().filter(is_removed) {
            let lines = WaitingBody::default();
            self.set_rejects(&RejectsBody { file, lines })?;
        }
        Ok(())
    }

    /// Files with lines that could not be read, by name; all words are fit to print.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn rejects(&self) -> rusqlite::Result<Vec<RejectsBody>> {
        let inner = self.inner();
        let mut found = inner
            .database
            .prepare_cached("SELECT file, lines, since, reason FROM rejects ORDER BY file")?;
        let rows = found.query_map([], |row| {
            let lines = WaitingBody {
                count: count(row, 1)?,
                since_ms: moment(row.get(2)?).0,
                reason: clean(row.get_ref(3)?.as_str()?),
            };
            let file = clean(row.get_ref(0)?.as_str()?);
            Ok(RejectsBody { file, lines })
        })?;
        rows.collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn at(path: &Path) -> rusqlite::Result<Refused> {
    // It is about people: nobody else on this machine reads it past the socket.
    let mut options = std::fs::File::options();
    if let Err(error) = options.create(true).append(true).mode(0o600).open(path) {
        tracing::debug!(%error, "SQLite reports what is wrong with the file");
    }
    let database = Connection::open(path)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    of(database)
}

/// Renames a damaged file and its write-ahead log, and begins a new one.
fn set_aside(path: &Path, error: &rusqlite::Error) -> rusqlite::Result<Refused> {
    let with = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let aside = with(".unreadable");
    tracing::error!(
        file = %path.display(), aside = %aside.display(), %error,
        "the list of refused jobs is damaged and set aside"
    );
    for end in ["", "-wal", "-shm"] {
        let to = PathBuf::from(format!("{}{end}", aside.display()));
        if let Err(error) = std::fs::rename(with(end), to) {
            tracing::debug!(%error, "there was none, or SQLite reports it");
        }
    }
    at(path)
}

fn of(database: Connection) -> rusqlite::Result<Refused> {
    database.execute_batch(TABLES)?;
    let kept = "SELECT count(*) FROM jobs WHERE record IS NOT NULL";
    let records = database.query_row(kept, [], |row| count(row, 0))?;
    let inner = Inner {
        database,
        records,
        summary: None,
    };
    Ok(Refused(Mutex::new(inner)))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let damage = [ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase];
    error
        .sqlite_error_code()
        .is_some_and(|code| damage.contains(&code))
}

fn columns(key: &JobKey) -> (&str, &str, i64) {
    (&key.cluster, &key.job, key.instance.cast_signed())
}

fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

fn moment(ms: i64) -> WallTime {
    WallTime(ms.cast_unsigned())
}

/// A reason without the job that it begins with: ``job `12` held …``, ``job `12`: …``.
fn without_job(reason: &str) -> &str {
    let rest = reason
        .strip_prefix("job `")
        .and_then(|rest| rest.split_once('`'));
    rest.map_or(reason, |(_, rest)| rest.trim_start_matches([':', ' ']))
}

/// What reasons have in common that differ in their job and in numbers only.
fn kind(reason: &str) -> String {
    let mut kind = String::new();
    for letter in without_job(reason).chars() {
        match letter.is_ascii_digit() {
            true if kind.ends_with('#') => {}
            true => kind.push('#'),
            false => kind.push(letter),
        }
    }
    kind
}

#[cfg(test)]
mod tests;
