//! A throw-away Grid Engine for a test, made by `mini-gridengine.sh` beside this file, with the projects `xavier` and
//! `yvonne`.
//!
//! Invariant: a pool that is dropped is stopped, and every wait has a deadline. It listens in a network of its own, so
//! it takes no port. Where the packages or the rights are missing, there is none, and the reason is said.
//! Deliberately not here: nodes (`process`), and what a test is about.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use fairmesh_needs::Need;

use crate::beside::ACCOUNTS;
use crate::slurm::{absent, is_root, said};

/// A job that has ended, as the pool has accounted it.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its number.
    pub id: u64,
    /// Its project.
    pub project: String,
    /// When it started and ended, in seconds since 1970.
    pub span: (u64, u64),
    /// On how many slots.
    pub slots: u64,
}

/// A pool of one machine.
#[derive(Debug)]
pub struct Pool {
    folder: PathBuf,
}

impl Pool {
    /// Starts one, or says what is missing.
    pub fn start(folder: &Path, slots: u32) -> anyhow::Result<Option<Self>> {
        let programs = [
            "sge_qmaster",
            "sge_execd",
            "qalter",
            "qhost",
            "nsenter",
            "unshare",
            "ip",
        ];
        let lack =
            absent(&programs).or_else(|| (!is_root()).then(|| "a pool needs root".to_owned()));
        if let Some(lack) = lack {
            fairmesh_needs::lacks(Need::GridEngine, &lack);
            return Ok(None);
        }
        fs::create_dir_all(folder)?;
        let pool = Self {
            folder: folder.to_owned(),
        };
        said(script("start", folder).args(["--slots", &slots.to_string()]))?;
        for project in ACCOUNTS {
            pool.add_project(project)?;
        }
        Ok(Some(pool))
    }

    /// Its `SGE_ROOT`.
    pub fn root(&self) -> &Path {
        &self.folder
    }

    /// The folder of its commands.
    pub fn commands(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Runs one of its commands and gives what it printed.
    pub fn run(&self, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
        said(Command::new(self.commands().join(command)).args(arguments))
    }

    /// Changes keys of the scheduler's configuration.
    pub fn schedule_by(&self, pairs: &[(&str, &str)]) -> anyhow::Result<()> {
        self.configure(["-ssconf", "-Msconf"], pairs)
    }

    /// Has qmaster ask the verifier before it takes a job.
    pub fn verify_by(&self, verifier: &str) -> anyhow::Result<()> {
        let file = self.folder.join("run/verifier");
        fs::write(&file, verifier)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        let url = format!("script:{}", file.display());
        self.configure(["-sconf", "-Mconf"], &[("jsv_url", &url)])
    }

    /// Changes keys of a configuration that one option of `qconf` shows, and another takes.
    fn configure(&self, [shown, taken]: [&str; 2], pairs: &[(&str, &str)]) -> anyhow::Result<()> {
        let known = self.run("qconf", &[shown])?;
        let line = |line: &str| {
            let key = line.split(' ').next().unwrap_or_default();
            let found = pairs.iter().find(|(name, _)| *name == key);
            found.map_or_else(|| line.to_owned(), |(_, value)| format!("{key} {value}"))
        };
        let text: Vec<String> = known
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(line)
            .collect();
        // The cell's own is taken from a file of this name only.
        let file = self.folder.join("run/global");
        fs::write(&file, text.join("\n") + "\n")?;
        self.run("qconf", &[taken, &file.to_string_lossy()])?;
        Ok(())
    }

    /// Makes a project.
    pub fn add_project(&self, name: &str) -> anyhow::Result<()> {
        let file = self.folder.join("run/project");
        let text = format!("name {name}\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n");
        fs::write(&file, text)?;
        self.run("qconf", &["-Aprj", &file.to_string_lossy()])?;
        Ok(())
    }

    /// Submits a job of a project that sleeps; gives its number.
    pub fn submit(&self, project: &str, slots: u32, seconds: u32) -> anyhow::Result<u64> {
        let (slots, seconds) = (slots.to_string(), seconds.to_string());
        let mut arguments = vec!["-terse", "-b", "y", "-P", project, "-pe", "smp", &slots];
        arguments.extend(["-o", "/dev/null", "-e", "/dev/null", "sleep", &seconds]);
        Ok(self.run("qsub", &arguments)?.trim().parse()?)
    }

    /// Submits a job that asks softly for a resource, with that argument, as a user may whose `qsub` passes blanks in
    /// requests on; gives what was said where it was refused.
    pub fn refused(&self, request: &str, argument: &str) -> anyhow::Result<Option<String>> {
        let mut qsub = Command::new(self.own_qsub()?);
        qsub.args(["-b", "y", "-soft", "-l", request, "true", argument]);
        let output = qsub.output()?;
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words).into_owned();
        Ok((!output.status.success()).then_some(words))
    }

    /// A `qsub` that splits requests at commas only.
    fn own_qsub(&self) -> anyhow::Result<PathBuf> {
        let [own, program] = ["qsub-own", "qsub-program"].map(|name| self.commands().join(name));
        let usual = fs::read_to_string(self.commands().join("qsub"))?;
        let mut words = usual.split_whitespace();
        let real = words.find(|word| word.ends_with("/qsub"));
        let real = real.context("a wrapper of qsub")?;
        let mut code = fs::read(real)?;
        let splits = code.windows(4).position(|part| part == b"\0, \0");
        code[splits.context("where qsub splits requests")? + 2] = b',';
        fs::write(&program, code)?;
        fs::write(&own, usual.replace(real, &program.to_string_lossy()))?;
        for file in [&own, &program] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
        }
        Ok(own)
    }

    /// Opens or closes the queue, so that jobs can gather before anything starts.
    pub fn open(&self, open: bool) -> anyhow::Result<()> {
        self.run("qmod", &[if open { "-e" } else { "-d" }, "all.q"])?;
        Ok(())
    }

    /// The override tickets of pending jobs, by number.
    pub fn tickets(&self) -> anyhow::Result<Vec<(u64, u64)>> {
        let text = self.run("qstat", &["-u", "*", "-s", "p", "-ext", "-xml"])?;
        let after = |name: &str| {
            let mut found = Vec::new();
            for part in text.split(&format!("<{name}>")).skip(1) {
                let number = part.split('<').next().unwrap_or_default();
                found.push(number.parse::<u64>().context("a number")?);
            }
            anyhow::Ok(found)
        };
        let numbers = after("JB_job_number")?.into_iter();
        Ok(numbers.zip(after("JB_override_tickets")?).collect())
    }

    /// Its accounting file.
    pub fn accounting(&self) -> String {
        let file = self.folder.join("default/common/accounting");
        fs::read_to_string(file).unwrap_or_default()
    }

    /// What has ended, in the order of the starts.
    pub fn ended(&self) -> anyhow::Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for line in self
            .accounting()
            .lines()
            .filter(|line| !line.starts_with('#'))
        {
            let words: Vec<&str> = line.split(':').collect();
            let [Some(id), Some(start), Some(end), Some(project), Some(slots)] =
                [5, 9, 10, 31, 34].map(|at| words.get(at))
            else {
                bail!("accounting says {line}");
            };
            ended.push(Ended {
                id: id.parse()?,
                project: (*project).to_owned(),
                span: (start.parse()?, end.parse()?),
                slots: slots.parse()?,
            });
        }
        ended.sort_by_key(|job| job.span);
        Ok(ended)
    }

    /// What a project has been accounted, in core-milliseconds.
    pub fn accounted(&self, project: &str) -> anyhow::Result<u64> {
        let ended = self.ended()?;
        let its = ended.iter().filter(|job| job.project == project);
        Ok(its
            .map(|job| (job.span.1 - job.span.0) * job.slots * 1_000)
            .sum())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = said(&mut script("stop", &self.folder)) {
            eprintln!("{error:#}");
        }
    }
}

fn script(verb: &str, folder: &Path) -> Command {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/gridengine/mini-gridengine.sh"
    );
    let mut command = Command::new(script);
    command.arg(verb).arg(folder);
    command
}
