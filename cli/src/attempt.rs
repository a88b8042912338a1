//! One attempt of a job as files and processes: what makes it safe to ask after a kill what became of it.
//!
//! An attempt has files named after it. `run` has the job's line; it is locked, and its lock goes to the
//! command with its standard input, so that it is held for as long as the command or anything it started
//! lives, whoever else dies. `began` is made by the command's own shell before anything else, `ended` by the same
//! shell with the exit code behind everything else. So of a command that is not running it is known whether it
//! never began, has ended, or was killed.
//!
//! Invariant: a command is started only where it never began, and none is running.
//! Deliberately not here: the loss of files when the machine loses power. A batch system that can be asked
//! (`--ask`) is asked then.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use fairmesh_broker::queue::Status;

/// What the shell runs: its marks around the user's command.
const AROUND: &str = r#": > "$FAIRMESH_FILES.began" || exit 1
sh -c "$FAIRMESH_COMMAND" > "$FAIRMESH_FILES.out"
code=$?
echo "$code" > "$FAIRMESH_FILES.ended.new" && mv "$FAIRMESH_FILES.ended.new" "$FAIRMESH_FILES.ended""#;

/// Longest output of a command that is read, in bytes: a batch system's id, or one word and why.
const OUTPUT_BYTES_MAX: usize = 4_096;

/// The state of an attempt's command, by the files and the lock that it leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttemptState {
    /// There is no trace of a start: it may be started.
    NotStarted,
    /// The lock is held, without a mark that the command runs: the next check decides.
    Starting,
    Running,
    /// It was started, the lock is free, and there is no exit code.
    Killed,
    /// Its exit code (-1 if the file cannot be parsed), and the first line of its output.
    Ended(i32, String),
}

/// The files of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    files: PathBuf,
}

impl Attempt {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self {
            files: folder.join(name),
        }
    }

    fn file(&self, ending: &str) -> PathBuf {
        let mut name = self.files.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// The state of the command.
    pub(crate) fn state(&self) -> anyhow::Result<AttemptState> {
        if self.is_locked()? {
            let began = self.file(".began").try_exists()?;
            return Ok(if began {
                AttemptState::Running
            } else {
                AttemptState::Starting
            });
        }
        // Checked after the lock: its holder wrote all marks before it released the lock.
        if let Some(code) = read(&self.file(".ended"))? {
            let code = code.trim().parse().unwrap_or(-1);
            let output = read(&self.file(".out"))?.unwrap_or_default();
            return Ok(AttemptState::Ended(code, first_line(&output)));
        }
        let began = self.file(".began").try_exists()?;
        Ok(if began {
            AttemptState::Killed
        } else {
            AttemptState::NotStarted
        })
    }

    /// Starts a command that never began, with the job's line on its standard input.
    pub(crate) fn start(
        &self,
        command: &str,
        line: &str,
        env: &[(&str, String)],
        life: &mut Life,
    ) -> anyhow::Result<Child> {
        life.step()?;
        let run = self.file(".run");
        writeln!(private_file(&run)?, "{line}")
            .with_context(|| format!("cannot write {}", run.display()))?;
        let input = File::open(&run)?;
        input.lock()?;
        life.step()?;
        let mut shell = Command::new("sh");
        shell
            .args(["-c", AROUND])
            .stdin(input)
            .stdout(Stdio::null());
        shell
            .env("FAIRMESH_FILES", &self.files)
            .env("FAIRMESH_COMMAND", command);
        shell.envs(env.iter().map(|(name, value)| (name, value)));
        let child = shell.spawn().context("cannot run sh")?;
        life.step()?;
        Ok(child)
    }

    /// Forgets the attempt, once somebody else remembers what came of it.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        for ending in [".run", ".began", ".out", ".ended"] {
            match std::fs::remove_file(self.file(ending)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_locked(&self) -> anyhow::Result<bool> {
        let file = match File::open(self.file(".run")) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // Shared: two that look do not take each other for the command.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

/// How a batch system is asked for an attempt.
#[derive(Debug, Clone)]
pub(crate) struct Asking<'a> {
    pub(crate) command: &'a str,
    /// What it is told.
    pub(crate) env: Vec<(&'static str, String)>,
    /// How long it may take.
    pub(crate) seconds_max: u64,
}

impl Asking<'_> {
    /// Asks for the attempt of which the batch system may have given this name; `None` where it gives no answer.
    pub(crate) fn ask(mut self, id: String) -> anyhow::Result<Option<Status>> {
        self.env.push(("FAIRMESH_ID", id));
        let told = answer(self.command, &self.env, self.seconds_max)?;
        Ok(told.and_then(|words| status_of(&words)))
    }
}

/// What is known of an attempt; `None` where that is not known at the moment. `is_new` says that nobody has said yet
/// that the batch system has it.
pub(crate) fn status(
    files: &Attempt,
    is_new: bool,
    ask: Option<Asking<'_>>,
) -> anyhow::Result<Option<Status>> {
    let state = files.state()?;
    match state {
        // A machine that lost power may have forgotten that it was submitted.
        AttemptState::NotStarted if is_new => {
            return ask.map_or(Ok(Some(Status::Nowhere)), |ask| ask.ask(String::new()));
        }
        AttemptState::Starting => return Ok(None),
        _ => {}
    }
    let failed = match &state {
        AttemptState::NotStarted => "the files of this attempt are gone".to_owned(),
        AttemptState::Killed => "its command was killed".to_owned(),
        AttemptState::Ended(code, _) => format!("its command has ended with {code}"),
        AttemptState::Running | AttemptState::Starting => String::new(),
    };
    let Some(ask) = ask else {
        return Ok(Some(match state {
            AttemptState::Running => Status::Running,
            AttemptState::Ended(0, _) => Status::Ended,
            _ => Status::Failed(failed),
        }));
    };
    let id = match state {
        // It may be submitted in this very moment, and the batch system not know it yet.
        AttemptState::Running => return Ok(None),
        AttemptState::Ended(0, id) if is_new => return Ok(Some(Status::Waiting(Some(id)))),
        AttemptState::Ended(0, id) => id,
        _ => String::new(),
    };
    Ok(ask.ask(id)?.map(|told| match told {
        // A command that failed may have submitted the job all the same; here it has not.
        Status::Nowhere if is_new => Status::Failed(failed),
        told => told,
    }))
}

/// Runs a command to its end, and gives its first line of output; `None` where it fails or takes too long:
/// one batch system that does not answer must not keep the others' jobs waiting.
pub(crate) fn answer(
    command: &str,
    env: &[(&str, String)],
    seconds_max: u64,
) -> anyhow::Result<Option<String>> {
    // No pipe: one would not end before the last process that has it, which nobody waits for.
    let said = tempfile::tempfile().context("cannot make a file for what a command says")?;
    let mut shell = Command::new("timeout");
    shell
        .args(["--kill-after=5", &seconds_max.to_string()])
        .args(["sh", "-c", command])
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(Stdio::inherit());
    shell.envs(env.iter().map(|(name, value)| (name, value)));
    let status = shell
        .status()
        .context("cannot run timeout (of coreutils)")?;
    let mut bytes = [0; OUTPUT_BYTES_MAX];
    let count = said.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    Ok(status.success().then(|| first_line(&text)))
}

/// What ASK has printed; `None` where that is none of its words.
fn status_of(words: &str) -> Option<Status> {
    let (word, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let status = match word {
        "nowhere" => Status::Nowhere,
        "waiting" => Status::Waiting(None),
        "running" => Status::Running,
        "ended" => Status::Ended,
        "failed" => Status::Failed(
            format!("the batch system says: failed {rest}")
                .trim_end()
                .to_owned(),
        ),
        _ => {
            note!(
                "fairmesh: --ask has printed `{word}`; its words are nowhere, waiting, running, ended, failed"
            );
            return None;
        }
    };
    Some(status)
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    line.chars()
        .filter(|letter| !letter.is_control())
        .take(256)
        .collect()
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// A process that ends after a number of steps, as by a kill, for tests. By default it does not end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Life {
    pub(crate) left: Option<u32>,
}

/// The error of a process that was ended.
pub(crate) const KILLED: &str = "killed";

impl Life {
    /// Passes a moment in which a kill could come.
    pub(crate) fn step(&mut self) -> anyhow::Result<()> {
        match &mut self.left {
            Some(0) => anyhow::bail!(KILLED),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }
}

/// Makes a folder that only its owner can enter, unless it exists: it holds what jobs run.
pub(crate) fn make_private(folder: &Path) -> anyhow::Result<()> {
    let mut made = DirBuilder::new();
    let made = made.recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))
}

/// Makes or empties a file that only its owner can read, whatever its folder allows: a reader could lock it.
pub(crate) fn private_file(path: &Path) -> anyhow::Result<File> {
    let mut made = OpenOptions::new();
    let made = made.write(true).create(true).truncate(true).mode(0o600);
    let made = made.open(path);
    made.with_context(|| format!("cannot write {}", path.display()))
}
