//! The commands of a batch system: each run once, with a deadline and a bound on what it may say.
//!
//! Invariant: a command that is not waited for any more is ended: one that hangs at its deadline, and every one when
//! its loop is dropped. One that fails says why in the error. Deliberately not here: what the answers mean.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use fairmesh_model::clean;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, Command};
use tokio::time::{sleep, timeout};

/// How long a command may take: `sacct` over a long gap is the slowest.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// What an update may take on top: ten times what it takes where slurmctld has two cores to itself.
const UPDATE_MAX: Duration = Duration::from_millis(25);

/// Most that a command may print: a million jobs of 250 bytes.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;

/// Time between two portions of updates, so that the batch system's other callers get their turn.
const PORTION: Duration = Duration::from_millis(100);

/// Why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It is not installed, or not where `bin_dir` says.
    #[error("cannot run `{command}`: {why}; is it installed? {system}.bin_dir names its folder")]
    Missing {
        /// Name of the batch system.
        system: &'static str,
        /// The command with its arguments.
        command: String,
        /// The system's error.
        why: io::Error,
    },
    /// It did not end in time and was killed.
    #[error("`{command}` did not end within {} s", most.as_secs())]
    Slow {
        /// The command with its arguments.
        command: String,
        /// What it was given.
        most: Duration,
    },
    /// It printed more than is read of it.
    #[error("`{command}` printed more than {} MiB", OUTPUT_BYTES_MAX >> 20)]
    TooMuch {
        /// The command with its arguments.
        command: String,
    },
    /// It ended with an error: mostly that the batch system is away.
    #[error("`{command}` failed: {why}")]
    Failed {
        /// The command with its arguments.
        command: String,
        /// What the command wrote about it.
        why: String,
    },
    /// Nothing can be drawn that users cannot know.
    #[error("no randomness: {0}")]
    NoRandomness(String),
}

/// What a command printed.
#[derive(Debug)]
pub struct Output {
    /// Whether it ended well.
    pub good: bool,
    /// On its standard output.
    pub stdout: String,
    /// On its standard error.
    pub stderr: String,
}

/// Runs the commands of one batch system.
#[derive(Debug, Clone)]
pub struct Commands {
    /// The batch system, as its table of the configuration is called.
    pub system: &'static str,
    /// The folder of the commands, if they are not in the path.
    pub bin_dir: Option<PathBuf>,
    /// Variables of their environment; without a value, those that the operator's own habits must not set.
    pub environment: Vec<(&'static str, Option<String>)>,
}

impl Commands {
    /// Runs a command to its end and gives what it printed.
    ///
    /// # Errors
    /// If it cannot be run, does not end, or ends with an error.
    pub async fn ask(&self, command: &str, arguments: &[&str]) -> Result<String, CommandError> {
        let output = self.run(command, arguments, ANSWER_MAX, None).await?;
        match output.good {
            true => Ok(output.stdout),
            false => Err(failed(command, &output)),
        }
    }

    /// Runs a command to its end, however it ends.
    ///
    /// # Errors
    /// If it cannot be run, or does not end.
    pub async fn try_ask(&self, command: &str, arguments: &[&str]) -> Result<Output, CommandError> {
        self.run(command, arguments, ANSWER_MAX, None).await
    }

    /// Feeds lines to one command, at most `rate` of them a second, and gives what it complained about, line by line.
    ///
    /// # Errors
    /// If it cannot be run, does not end, or fails without a word.
    pub async fn feed(
        &self,
        command: &str,
        lines: &[String],
        rate: u32,
    ) -> Result<Vec<String>, CommandError> {
        let updates = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let portion = usize::try_from(rate / 10).unwrap_or(1).max(1);
        let portions = u32::try_from(lines.len() / portion).unwrap_or(u32::MAX);
        let most = ANSWER_MAX
            .saturating_add(UPDATE_MAX.saturating_mul(updates))
            .saturating_add(PORTION.saturating_mul(portions));
        let output = self.run(command, &[], most, Some((lines, portion))).await?;
        let complaints = output.stderr.lines().map(str::trim);
        let complaints: Vec<String> = complaints
            .filter(|line| !line.is_empty())
            .map(clean)
            .collect();
        if !output.good && complaints.is_empty() {
            // What it prints is an echo of the commands, which explains nothing.
            let stdout = String::new();
            return Err(failed(command, &Output { stdout, ..output }));
        }
        Ok(complaints)
    }

    async fn run(
        &self,
        command: &str,
        arguments: &[&str],
        most: Duration,
        lines: Option<(&[String], usize)>,
    ) -> Result<Output, CommandError> {
        let missing = |why: io::Error| CommandError::Missing {
            system: self.system,
            command: command.to_owned(),
            why,
        };
        let stdin = if lines.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        let mut child = self.command(command);
        child.args(arguments).stdin(stdin);
        let mut child = child.spawn().map_err(missing)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let talk = async {
            // It may repeat what it reads: unless that is read, too, both sides come to wait for each other.
            let ((), stdout, stderr) =
                tokio::join!(send(pipes.0, lines), gather(pipes.1), gather(pipes.2));
            (stdout, stderr, child.wait().await)
        };
        if let Ok((stdout, stderr, ended)) = timeout(most, talk).await {
            if [&stdout, &stderr]
                .iter()
                .any(|bytes| bytes.len() as u64 >= OUTPUT_BYTES_MAX)
            {
                let command = command.to_owned();
                return Err(CommandError::TooMuch { command });
            }
            let text = |bytes: Vec<u8>| fairmesh_model::record::text(&bytes).into_owned();
            return Ok(Output {
                good: ended.map_err(missing)?.success(),
                stdout: text(stdout),
                stderr: text(stderr),
            });
        }
        // It may have ended just now, which is as good.
        let _ = child.kill().await;
        let command = command.to_owned();
        Err(CommandError::Slow { command, most })
    }

    fn command(&self, command: &str) -> Command {
        let folder = self.bin_dir.as_ref();
        let program = folder.map_or_else(|| PathBuf::from(command), |folder| folder.join(command));
        let mut child = Command::new(program);
        child
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for (name, value) in &self.environment {
            match value {
                Some(value) => child.env(name, value),
                None => child.env_remove(name),
            };
        }
        child
    }
}

/// Sends lines, portion by portion, until they are read no more.
async fn send(stdin: Option<ChildStdin>, lines: Option<(&[String], usize)>) {
    let (Some(mut stdin), Some((lines, portion))) = (stdin, lines) else {
        return;
    };
    for (index, portion) in lines.chunks(portion).enumerate() {
        if index > 0 {
            sleep(PORTION).await;
        }
        let text: String = portion.iter().map(|line| format!("{line}\n")).collect();
        if stdin.write_all(text.as_bytes()).await.is_err() {
            break;
        }
    }
}

/// Reads a pipe to its end, or as much of it as is read at most.
async fn gather(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What was read before a failure still says more than nothing.
        let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    bytes
}

fn failed(command: &str, output: &Output) -> CommandError {
    let said = [&output.stderr, &output.stdout];
    let mut lines = said.iter().flat_map(|text| text.lines()).map(str::trim);
    let line = lines.find(|line| !line.is_empty());
    CommandError::Failed {
        command: command.to_owned(),
        why: line.map_or_else(|| "it did not say why".to_owned(), clean),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A batch system whose `scontrol` is this script.
    fn scontrol(script: &str) -> anyhow::Result<(tempfile::TempDir, Commands)> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("scontrol");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let commands = Commands {
            system: "slurm",
            bin_dir: Some(folder.path().to_owned()),
            environment: Vec::new(),
        };
        Ok((folder, commands))
    }

    /// More than any pipe holds.
    fn lines() -> Vec<String> {
        vec!["update JobId=7 SiteFactor=500000000".to_owned(); 20_000]
    }

    #[tokio::test]
    async fn a_command_that_repeats_much_is_not_waited_for_in_vain() -> anyhow::Result<()> {
        let (_folder, commands) = scontrol("cat\necho 'no such job for job 7' >&2")?;
        let told = commands.feed("scontrol", &lines(), u32::MAX).await?;
        assert_eq!(told, ["no such job for job 7"]);
        Ok(())
    }

    /// A slurmctld that hangs: neither what is sent nor what is asked outlives whoever waits for it.
    #[tokio::test]
    async fn a_command_that_nobody_waits_for_is_ended() -> anyhow::Result<()> {
        let (folder, commands) =
            scontrol("echo $$ > ${0%/*}/new\nmv ${0%/*}/new ${0%/*}/pid\nexec sleep 600")?;
        let pid = folder.path().join("pid");
        for sends in [true, false] {
            let run = async {
                match sends {
                    true => commands
                        .feed("scontrol", &lines(), u32::MAX)
                        .await
                        .map(drop),
                    false => commands.ask("scontrol", &["show"]).await.map(drop),
                }
            };
            let started = async {
                while !pid.exists() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                ended = run => anyhow::bail!("it ended by itself: {ended:?}"),
                () = started => {}
            }
            let its = std::fs::read_to_string(&pid)?;
            let state = format!("/proc/{}/stat", its.trim());
            let gone = async {
                while std::fs::read_to_string(&state).is_ok() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(Duration::from_secs(60), gone).await?;
            std::fs::remove_file(&pid)?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_command_that_is_not_there_is_named() -> anyhow::Result<()> {
        let (_folder, commands) = scontrol("true")?;
        let error = commands.ask("squeue", &[]).await.expect_err("not there");
        let told = error.to_string();
        assert!(
            told.starts_with("cannot run `squeue`: No such file"),
            "{told}"
        );
        assert!(told.contains("slurm.bin_dir"), "{told}");
        Ok(())
    }

    #[tokio::test]
    async fn a_command_that_says_too_much_is_told_so() -> anyhow::Result<()> {
        let (_folder, commands) = scontrol("exec yes JobIDRaw")?;
        let error = commands.ask("scontrol", &[]).await.expect_err("too much");
        assert_eq!(error.to_string(), "`scontrol` printed more than 256 MiB");
        Ok(())
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended_at_its_deadline() -> anyhow::Result<()> {
        let (_folder, commands) = scontrol("exec sleep 600")?;
        let most = Duration::from_millis(50);
        let ended = commands.run("scontrol", &[], most, None).await;
        assert!(matches!(ended, Err(CommandError::Slow { .. })), "{ended:?}");
        Ok(())
    }
}
