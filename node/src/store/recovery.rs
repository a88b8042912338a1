//! Opening a store's folder, in whatever state the last run left it.
//!
//! Invariant: our lock is held before anything is looked at, so nothing of a running node is ever
//! removed or renamed. Only damage sets a folder aside: a full disk, missing rights or another
//! node's lock do not. A folder that is set aside is kept whole, for whoever wants to look.
//!
//! Deliberately not here: filling an empty store again. The journal gives it what nobody else holds,
//! peers give the rest, and the incarnation in the side file sees to it that no counter is used twice.

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fairmesh_model::WallTime;

use super::jobs::Jobs;
use super::mark::Mark;
use super::tally::{Counts, Tally};
use super::{StoreError, sync_names};

/// Memory for sled's cache of pages. Its default of 1 GiB is more than a whole node needs.
const CACHE_BYTES: u64 = 64 << 20;

/// How often sled's own thread writes what is pending. It frees segments too, as many as it can find,
/// so it stays on, though every write of ours is synced before it returns; and it syncs the file each
/// time, whether anything was written or not: a disk beside an idle node is woken no more often.
const FLUSH_EVERY_MS: u64 = 60_000;

/// How often a lock is tried. A node that is restarted may meet the last of its predecessor, and a
/// process that is being started holds copies of all locks until it has become its program.
const LOCK_ATTEMPTS: u32 = 20;

/// The pause between attempts at a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What was found, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// There was no store: this is a new one (also after `set_aside`).
    pub is_new: bool,
    /// Half-written snapshot files of an interrupted start, which were removed. No data was lost.
    pub leftovers_removed: Vec<PathBuf>,
    /// Where the folder of a store that could not be opened went.
    pub set_aside: Option<PathBuf>,
    /// Why it could not be opened.
    pub damage: Option<String>,
}

pub(super) struct Opened {
    pub(super) tree: sled::Db,
    pub(super) mark: Mark,
    pub(super) tally: Tally,
    pub(super) jobs: Jobs,
    /// Of sled's records: marks of jobs are among them where an earlier release has written them.
    pub(super) counts: Counts,
}

/// Why a folder is not used as it is.
enum Refusal {
    /// Its content is at fault.
    Damage(String),
    /// The machine around it is, or another process.
    Fault(StoreError),
}

/// Locks, cleans and opens the folder, which nobody else opens as long as the file is held.
pub(super) fn open(dir: &Path, now: WallTime) -> Result<(File, Opened, Recovery), StoreError> {
    let parent = parent_of(dir);
    fs::create_dir_all(&parent).map_err(io_error("making", &parent))?;
    let lock = lock(dir)?;
    let mut recovery = Recovery {
        is_new: !dir.join("db").exists(),
        leftovers_removed: remove_leftovers(dir)?,
        ..Recovery::default()
    };
    let opened = match open_whole(dir) {
        Ok(opened) => opened,
        Err(Refusal::Fault(error)) => return Err(error),
        Err(Refusal::Damage(damage)) => {
            let aside = set_aside(dir, now)?;
            tracing::error!(
                folder = %dir.display(), aside = %aside.display(), damage,
                "the store is damaged: it was set aside, and a new one is filled from the journal and by peers"
            );
            recovery.is_new = true;
            recovery.set_aside = Some(aside);
            recovery.damage = Some(damage);
            open_whole(dir).map_err(|refusal| match refusal {
                Refusal::Fault(error) => error,
                Refusal::Damage(damage) => io_error("making", dir)(io::Error::other(damage)),
            })?
        }
    };
    // New names must survive a power loss as the data under them will.
    sync_dir(dir)?;
    sync_dir(&parent)?;
    Ok((lock, opened, recovery))
}

/// Opens sled's folder and makes sure that it has lost nothing that its mark knows of.
fn open_whole(dir: &Path) -> Result<Opened, Refusal> {
    if !dir.join("db").exists() && Jobs::are_in(dir) {
        let damage = "there are marks of jobs, and nothing that they belong to";
        return Err(Refusal::Damage(damage.to_owned()));
    }
    let refuse = |error: sled::Error| {
        if is_damage(&error) {
            Refusal::Damage(error.to_string())
        } else {
            Refusal::Fault(refused(dir, error))
        }
    };
    // What sled says of its own configuration is never anything else here, and it says it again.
    let tree = open_sled(dir).or_else(|error| match error {
        sled::Error::Unsupported(why) => {
            tracing::warn!(folder = %dir.display(), why, "sled's `conf` is damaged and made anew");
            fs::remove_file(dir.join("conf"))?;
            open_sled(dir)
        }
        error => Err(error),
    });
    let tree = tree.map_err(refuse)?;
    let (tally, counts) = catch(|| Tally::check(&tree))
        .map_err(refuse)?
        .map_err(Refusal::Damage)?;
    let mark = Mark::open(dir)
        .map_err(io_error("opening the mark of", dir))
        .map_err(Refusal::Fault)?;
    let marked = mark
        .read()
        .map_err(io_error("reading the mark of", dir))
        .map_err(Refusal::Fault)?;
    if tally.number < marked {
        return Err(Refusal::Damage(format!(
            "its log ends at batch {}, and batch {marked} was on disk: its end is lost",
            tally.number
        )));
    }
    let jobs = Jobs::open(dir, tally.jobs)
        .map_err(io_error("reading the marks of jobs in", dir))
        .map_err(Refusal::Fault)?
        .map_err(Refusal::Damage)?;
    Ok(Opened {
        tree,
        mark,
        tally,
        jobs,
        counts,
    })
}

/// Makes a rename or a new file in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    sync_names(dir).map_err(io_error("syncing", dir))
}

/// The folder that holds `path`.
pub(super) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// `path` with `suffix` behind its last name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn open_sled(dir: &Path) -> sled::Result<sled::Db> {
    let config = sled::Config::new()
        .path(dir)
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(Some(FLUSH_EVERY_MS));
    let mut attempts = 0;
    loop {
        match catch(|| config.open()) {
            Err(error) if is_held(&error) && attempts < LOCK_ATTEMPTS => thread::sleep(LOCK_PAUSE),
            opened => return opened,
        }
        attempts += 1;
    }
}

/// Some damage trips an assertion in sled instead of an error. Nothing of ours is shared with it.
fn catch<T>(work: impl FnOnce() -> sled::Result<T>) -> sled::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let what = "sled panicked while it read the folder".to_owned();
        Err(sled::Error::ReportableBug(what))
    })
}

/// A lock of our own beside the folder: sled's own comes too late to clean up under, and goes away
/// with the folder when that is set aside. The kernel frees it when the process ends.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = with_suffix(dir, ".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(io_error("opening", &path))?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(source)) => return Err(io_error("locking", &path)(source)),
        }
    }
    Err(StoreError::Locked(dir.to_owned()))
}

/// Removes snapshots that a crash left half written: sled would take one for the newest and refuse
/// to open (its issues #1527 and #1533). The log holds all that a snapshot does.
fn remove_leftovers(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io_error("reading", dir)(source)),
    };
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("reading", dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            let path = entry.path();
            fs::remove_file(&path).map_err(io_error("removing", &path))?;
            tracing::warn!(file = %path.display(), "removed a half-written snapshot");
            removed.push(path);
        }
    }
    removed.sort();
    Ok(removed)
}

/// Whether the folder's content is at fault, and not the machine around it.
fn is_damage(error: &sled::Error) -> bool {
    match error {
        sled::Error::Corruption { .. } | sled::Error::ReportableBug(_) => true,
        // A file that ends too early, or a blob that is missing.
        sled::Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound
        ),
        _ => false,
    }
}

/// Whether another process (or a thread of sled's that is about to end) holds the data file.
fn is_held(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().contains("acquire lock"))
}

fn set_aside(dir: &Path, now: WallTime) -> Result<PathBuf, StoreError> {
    let base = with_suffix(dir, &format!(".damaged-{}", now.0 / 1_000));
    let aside = (0_u32..)
        .map(|again| match again {
            0 => base.clone(),
            _ => with_suffix(&base, &format!("-{again}")),
        })
        .find(|aside| !aside.exists())
        .expect("not all names are taken");
    fs::rename(dir, &aside).map_err(io_error("setting aside", dir))?;
    sync_dir(&parent_of(dir))?;
    Ok(aside)
}

fn refused(dir: &Path, error: sled::Error) -> StoreError {
    if is_held(&error) {
        return StoreError::Locked(dir.to_owned());
    }
    StoreError::Engine {
        path: dir.to_owned(),
        source: error,
    }
}

pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        doing,
        path,
        source,
    }
}
