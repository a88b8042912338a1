//! Slurm's commands: each run once, with a deadline and a bound on what it may say.
//!
//! Times are asked for in seconds since 1970 and words in no language, so that what comes back does
//! not depend on the host. Invariant: a command that hangs is killed; one that fails says why in the
//! error. Deliberately not here: what the answers mean.

use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::settings::SlurmSettings;
use super::stop::Stop;
use crate::control::clean;

/// How long a command may take: `sacct` over a long gap is the slowest.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// What an update may take on top: ten times what it takes where slurmctld has two cores to itself.
const UPDATE_MAX: Duration = Duration::from_millis(25);

/// Most that a command may print: a million jobs of 250 bytes.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;

/// Time between two portions of updates, so that slurmctld's other callers get their turn.
const PORTION: Duration = Duration::from_millis(100);

/// Why a command of Slurm gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SlurmError {
    /// It is not installed, or not where `bin_dir` says.
    #[error("cannot run `{command}`: {why}; is Slurm installed? slurm.bin_dir names its folder")]
    Missing {
        /// The command.
        command: String,
        /// Why.
        why: io::Error,
    },
    /// It did not end in time and was killed.
    #[error("`{command}` did not end within {} s", most.as_secs())]
    Slow {
        /// The command.
        command: String,
        /// What it was given.
        most: Duration,
    },
    /// It ended with an error: mostly that slurmctld or slurmdbd is away.
    #[error("`{command}` failed: {why}")]
    Failed {
        /// The command.
        command: String,
        /// What it said.
        why: String,
    },
    /// Nothing can be drawn that users cannot know.
    #[error("no randomness: {0}")]
    NoRandomness(String),
}

/// What a command printed.
struct Output {
    good: bool,
    stdout: String,
    stderr: String,
}

/// Runs Slurm's commands for one cluster.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    slurm_conf: Option<PathBuf>,
    bin_dir: Option<PathBuf>,
}

impl Runner {
    /// For the cluster that the settings name.
    pub(super) fn new(settings: &SlurmSettings) -> Self {
        Self {
            slurm_conf: settings.slurm_conf.clone(),
            bin_dir: settings.bin_dir.clone(),
        }
    }

    /// Runs a command to its end and gives what it printed.
    pub(super) fn ask(&self, command: &str, arguments: &[&str]) -> Result<String, SlurmError> {
        let output = Running::of(self.spawn(command, arguments)?).finish(command, ANSWER_MAX)?;
        if output.good {
            return Ok(output.stdout);
        }
        Err(SlurmError::Failed {
            command: command.to_owned(),
            why: reason(&output),
        })
    }

    /// Feeds lines to one `scontrol` and gives what it complained about, line by line. Sends at
    /// most `rate` lines a second and ends early when told to stop.
    pub(super) fn scontrol(
        &self,
        lines: &[String],
        rate: u32,
        stop: &Stop,
    ) -> Result<Vec<String>, SlurmError> {
        let mut child = self.spawn("scontrol", &[])?;
        let mut stdin = child.stdin.take();
        // It repeats what it reads: unless that is read, too, both sides come to wait for each other.
        let running = Running::of(child);
        let portion = usize::try_from(rate / 10).unwrap_or(1).max(1);
        for (index, portion) in lines.chunks(portion).enumerate() {
            if index > 0 && stop.wait(PORTION) {
                break;
            }
            let text: String = portion.iter().map(|line| format!("{line}\n")).collect();
            let sent = stdin.as_mut().map(|stdin| stdin.write_all(text.as_bytes()));
            if sent.is_some_and(|sent| sent.is_err()) {
                break;
            }
        }
        drop(stdin);
        let updates = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let most = ANSWER_MAX.saturating_add(UPDATE_MAX.saturating_mul(updates));
        let output = running.finish("scontrol", most)?;
        let complaints = output.stderr.lines().map(str::trim);
        let complaints: Vec<String> = complaints
            .filter(|line| !line.is_empty())
            .map(clean)
            .collect();
        if !output.good && complaints.is_empty() {
            // What it prints is an echo of the commands, which explains nothing.
            let why = "it did not say why".to_owned();
            let command = "scontrol".to_owned();
            return Err(SlurmError::Failed { command, why });
        }
        Ok(complaints)
    }

    fn spawn(&self, command: &str, arguments: &[&str]) -> Result<Child, SlurmError> {
        let program = self
            .bin_dir
            .as_ref()
            .map_or_else(|| PathBuf::from(command), |folder| folder.join(command));
        let mut child = Command::new(program);
        child
            .args(arguments)
            .env("SLURM_TIME_FORMAT", "%s")
            .env("SLURM_BITSTR_LEN", "0")
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        // The operator's own habits would change the columns.
        for habit in [
            "SQUEUE_FORMAT",
            "SQUEUE_FORMAT2",
            "SQUEUE_STATES",
            "SACCT_FORMAT",
        ] {
            child.env_remove(habit);
        }
        if let Some(path) = &self.slurm_conf {
            child.env("SLURM_CONF", path);
        }
        child
            .stdin(if command == "scontrol" && arguments.is_empty() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        child.spawn().map_err(|why| SlurmError::Missing {
            command: command.to_owned(),
            why,
        })
    }
}

/// A command that runs, while what it prints is read.
struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    fn of(mut child: Child) -> Self {
        Self {
            stdout: gather(child.stdout.take()),
            stderr: gather(child.stderr.take()),
            child,
        }
    }

    /// Waits for the end, and kills what does not come to it.
    fn finish(mut self, command: &str, most: Duration) -> Result<Output, SlurmError> {
        let until = Instant::now() + most;
        let left = || until.saturating_duration_since(Instant::now());
        let stdout = self.stdout.recv_timeout(left());
        let stderr = self.stderr.recv_timeout(left());
        let (Ok(stdout), Ok(stderr)) = (stdout, stderr) else {
            // It may have ended just now, which is as good.
            let _ = self.child.kill();
            let _ = self.child.wait();
            return Err(SlurmError::Slow {
                command: command.to_owned(),
                most,
            });
        };
        let ended = self.child.wait().map_err(|why| SlurmError::Missing {
            command: command.to_owned(),
            why,
        })?;
        Ok(Output {
            good: ended.success(),
            stdout,
            stderr,
        })
    }
}

/// Reads a pipe to its end beside us, so that neither pipe can fill up and stop the command.
fn gather(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before a failure still says more than nothing.
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        // Nobody waits any more where the command was too slow.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn reason(output: &Output) -> String {
    let said = [&output.stderr, &output.stdout];
    let line = said
        .iter()
        .flat_map(|text| text.lines())
        .map(str::trim)
        .find(|line| !line.is_empty());
    line.map_or_else(|| "it did not say why".to_owned(), clean)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_command_that_repeats_much_is_not_waited_for_in_vain() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("scontrol");
        std::fs::write(
            &program,
            "#!/bin/sh\ncat\necho 'no such job for job 7' >&2\n",
        )?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let mut settings = SlurmSettings::defaults(folder.path());
        settings.bin_dir = Some(folder.path().to_owned());
        // More than any pipe holds.
        let lines = vec!["update JobId=7 SiteFactor=500000000".to_owned(); 20_000];
        let told = Runner::new(&settings).scontrol(&lines, u32::MAX, &Stop::default())?;
        assert_eq!(told, ["no such job for job 7"]);
        Ok(())
    }
}
