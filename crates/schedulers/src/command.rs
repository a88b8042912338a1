//! Slurm's commands: each run once, with a deadline and a bound on what it may say.
//!
//! Times are asked for in seconds since 1970 and words in no language, so that what comes back does
//! not depend on the host. Each runs below `timeout` (of coreutils), which ends it when we do not.
//!
//! Invariant: a command that hangs is ended, and soon where somebody wants the loops to stop; one that fails says
//! why in the error. Deliberately not here: what the answers mean.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::settings::SlurmSettings;
use super::stop::Stop;
use crate::control::clean;

/// How long a command may take: `sacct` over a long gap is the slowest.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// What an update may take on top: ten times what it takes where slurmctld has two cores to itself.
const UPDATE_MAX: Duration = Duration::from_millis(25);

/// What a command may still take when somebody wants the loops to stop.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How often is looked whether somebody does.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What `timeout` says where there is no such command, or it cannot be run.
const NO_COMMAND: [i32; 2] = [126, 127];

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
    stop: Stop,
}

impl Runner {
    /// For the cluster that the settings name.
    pub(super) fn new(settings: &SlurmSettings) -> Self {
        Self {
            slurm_conf: settings.slurm_conf.clone(),
            bin_dir: settings.bin_dir.clone(),
            stop: Stop::default(),
        }
    }

    /// Ends its commands when `stop` is told.
    pub(super) fn until(&mut self, stop: &Stop) {
        self.stop = stop.clone();
    }

    /// Runs a command to its end and gives what it printed.
    pub(super) fn ask(&self, command: &str, arguments: &[&str]) -> Result<String, SlurmError> {
        let running = Running::of(self.spawn(command, arguments, ANSWER_MAX)?);
        let output = running.finish(command, ANSWER_MAX, &self.stop)?;
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
        let updates = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let portion = usize::try_from(rate / 10).unwrap_or(1).max(1);
        let portions = u32::try_from(lines.len() / portion).unwrap_or(u32::MAX);
        let most = ANSWER_MAX
            .saturating_add(UPDATE_MAX.saturating_mul(updates))
            .saturating_add(PORTION.saturating_mul(portions));
        let mut child = self.spawn("scontrol", &[], most)?;
        let stdin = child.stdin.take();
        // It repeats what it reads: unless that is read, too, both sides come to wait for each other. And it reads
        // no more where slurmctld hangs: then what is sent waits in the pipe until it is ended.
        let running = Running::of(child);
        let output = std::thread::scope(|scope| {
            scope.spawn(move || send(stdin, lines.chunks(portion), stop));
            running.finish("scontrol", most, stop)
        })?;
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

    fn spawn(
        &self,
        command: &str,
        arguments: &[&str],
        most: Duration,
    ) -> Result<Child, SlurmError> {
        let program = self
            .bin_dir
            .as_ref()
            .map_or_else(|| PathBuf::from(command), |folder| folder.join(command));
        let mut child = Command::new("timeout");
        child
            .arg("--kill-after=1")
            .arg((most + STOP_MAX).as_secs().to_string())
            .arg(program)
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

    /// Waits for the end, and ends what does not come to it: in time, or soon where it is told to stop.
    fn finish(mut self, command: &str, most: Duration, stop: &Stop) -> Result<Output, SlurmError> {
        let began = Instant::now();
        let mut until = began + most;
        let mut said = [None, None];
        for (said, pipe) in said.iter_mut().zip([&self.stdout, &self.stderr]) {
            while said.is_none() {
                if stop.is_told() {
                    until = until.min(Instant::now() + STOP_MAX);
                }
                let left = until.saturating_duration_since(Instant::now());
                *said = match pipe.recv_timeout(left.min(LOOK_EVERY)) {
                    Ok(text) => Some(text),
                    Err(RecvTimeoutError::Timeout) if !left.is_zero() => continue,
                    Err(_) => {
                        // It may have ended just now, which is as good.
                        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
                        let _ = self.child.wait();
                        let (command, most) = (command.to_owned(), began.elapsed());
                        return Err(SlurmError::Slow { command, most });
                    }
                };
            }
        }
        let missing = |why: io::Error| SlurmError::Missing {
            command: command.to_owned(),
            why,
        };
        let ended = self.child.wait().map_err(missing)?;
        let [stdout, stderr] = said.map(Option::unwrap_or_default);
        if ended.code().is_some_and(|code| NO_COMMAND.contains(&code)) {
            let why = stderr.trim().trim_start_matches("timeout: ");
            return Err(missing(io::Error::other(clean(why))));
        }
        Ok(Output {
            good: ended.success(),
            stdout,
            stderr,
        })
    }
}

/// Sends lines to `scontrol`, portion by portion, until it reads no more or is told to stop.
fn send<'a>(stdin: Option<impl Write>, portions: impl Iterator<Item = &'a [String]>, stop: &Stop) {
    let Some(mut stdin) = stdin else { return };
    for (index, portion) in portions.enumerate() {
        if index > 0 && stop.wait(PORTION) {
            break;
        }
        let text: String = portion.iter().map(|line| format!("{line}\n")).collect();
        if stdin.write_all(text.as_bytes()).is_err() {
            break;
        }
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

    /// A Slurm whose `scontrol` is this script.
    fn scontrol(script: &str) -> anyhow::Result<(tempfile::TempDir, Runner)> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("scontrol");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let mut settings = SlurmSettings::defaults(folder.path());
        settings.bin_dir = Some(folder.path().to_owned());
        Ok((folder, Runner::new(&settings)))
    }

    /// More than any pipe holds.
    fn lines() -> Vec<String> {
        vec!["update JobId=7 SiteFactor=500000000".to_owned(); 20_000]
    }

    #[test]
    fn a_command_that_repeats_much_is_not_waited_for_in_vain() -> anyhow::Result<()> {
        let (_folder, runner) = scontrol("cat\necho 'no such job for job 7' >&2")?;
        let told = runner.scontrol(&lines(), u32::MAX, &Stop::default())?;
        assert_eq!(told, ["no such job for job 7"]);
        Ok(())
    }

    /// A slurmctld that hangs: neither what is sent nor what is asked keeps a node from its end.
    #[test]
    fn a_command_that_hangs_is_ended_when_the_node_stops() -> anyhow::Result<()> {
        let (folder, mut runner) = scontrol("echo $$ > ${0%/*}/pid\nexec sleep 600")?;
        let pid = folder.path().join("pid");
        for sends in [true, false] {
            let stop = Stop::default();
            runner.until(&stop);
            let ended = std::thread::scope(|scope| {
                let running = scope.spawn(|| match sends {
                    true => runner.scontrol(&lines(), u32::MAX, &stop).map(drop),
                    false => runner.ask("scontrol", &["show", "job", "7"]).map(drop),
                });
                while !pid.exists() {
                    std::thread::sleep(LOOK_EVERY);
                }
                stop.now();
                running.join().expect("it does not panic")
            });
            assert!(matches!(ended, Err(SlurmError::Slow { .. })), "{ended:?}");
            let its = std::fs::read_to_string(&pid)?;
            let state = std::fs::read_to_string(format!("/proc/{}/stat", its.trim()));
            assert!(state.is_err(), "it is still there: {state:?}");
            std::fs::remove_file(&pid)?;
        }
        Ok(())
    }

    #[test]
    fn a_command_that_is_not_there_is_named() -> anyhow::Result<()> {
        let (_folder, runner) = scontrol("true")?;
        let error = runner.ask("squeue", &[]).expect_err("it is not there");
        let told = error.to_string();
        assert!(
            told.starts_with("cannot run `squeue`: failed to run command"),
            "{told}"
        );
        assert!(told.contains("No such file"), "{told}");
        Ok(())
    }
}
