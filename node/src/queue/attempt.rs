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

use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::Life;

/// What the shell runs: its marks around the user's command.
const AROUND: &str = r#": > "$FAIRMESH_FILES.began" || exit 1
sh -c "$FAIRMESH_COMMAND" > "$FAIRMESH_FILES.out"
code=$?
echo "$code" > "$FAIRMESH_FILES.ended.new" && mv "$FAIRMESH_FILES.ended.new" "$FAIRMESH_FILES.ended""#;

/// Longest output of a command that is read, in bytes: a batch system's id, or one word and why.
const OUTPUT_BYTES_MAX: u64 = 4_096;

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Came {
    /// It never began.
    Nothing,
    /// It is about to begin, or nothing came of that: the next look will tell.
    Begins,
    /// It runs.
    Runs,
    /// It was killed.
    Killed,
    /// It has ended with this code, and its first line of output.
    Ended(i32, String),
}

/// The files of one attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    files: PathBuf,
}

impl Attempt {
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        Self {
            files: folder.join(name),
        }
    }

    fn file(&self, ending: &str) -> PathBuf {
        let mut name = self.files.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// What became of its command.
    pub(super) fn came(&self) -> anyhow::Result<Came> {
        if self.is_locked()? {
            let began = self.file(".began").try_exists()?;
            return Ok(if began { Came::Runs } else { Came::Begins });
        }
        // Behind the lock: whoever held it has made all its marks.
        if let Some(code) = read(&self.file(".ended"))? {
            let code = code.trim().parse().unwrap_or(-1);
            let output = read(&self.file(".out"))?.unwrap_or_default();
            return Ok(Came::Ended(code, first_line(&output)));
        }
        let began = self.file(".began").try_exists()?;
        Ok(if began { Came::Killed } else { Came::Nothing })
    }

    /// Starts a command that never began, with the job's line on its standard input.
    pub(super) fn start(
        &self,
        command: &str,
        line: &str,
        env: &[(&str, String)],
        life: &mut Life,
    ) -> anyhow::Result<Child> {
        life.step()?;
        let run = self.file(".run");
        std::fs::write(&run, format!("{line}\n"))
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

/// Runs a command to its end, and gives its first line of output; `None` where it fails or takes too long:
/// one batch system that does not answer must not keep the others' jobs waiting.
pub(super) fn answer(
    command: &str,
    env: &[(&str, String)],
    seconds_max: u64,
) -> anyhow::Result<Option<String>> {
    let mut shell = Command::new("timeout");
    shell
        .args(["--kill-after=5", &seconds_max.to_string()])
        .args(["sh", "-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    shell.envs(env.iter().map(|(name, value)| (name, value)));
    let output = shell
        .output()
        .context("cannot run timeout (of coreutils)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success().then(|| first_line(&text)))
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
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
