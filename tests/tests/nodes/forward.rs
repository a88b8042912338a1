//! Jobs that members pass on to each other, between real nodes with a pretended batch system each: to the best site
//! that takes them, once, whoever is killed; and what their users are told.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site, Vo};
use serde_json::Value;

use crate::PROGRAM;
use crate::kill::state_of;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often somebody is killed, where `FAIRMESH_KILLS` does not say.
const KILLS: usize = 12;

/// Three sites: users hand in their jobs at A, which takes none; C has the better machines.
struct Grid {
    folder: tempfile::TempDir,
    vo: Vo,
    sites: [Site; 3],
    nodes: [Option<Node>; 3],
    addresses: [String; 3],
}

impl Grid {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let site = |name: &str| Site::init(PROGRAM, &folder.path().join(name), name);
        let sites = [site("a")?, site("b")?, site("c")?];
        let [a, b, c] = &sites;
        let members = [(a.id, "a"), (b.id, "b"), (c.id, "c")];
        let vo = Vo::found("physics", &members, &["ann"])?;
        let mut grid = Self {
            folder,
            vo,
            sites,
            nodes: [None, None, None],
            addresses: Default::default(),
        };
        for at in 0..3 {
            grid.configure(at, if at == 0 { "[]" } else { "[\"physics\"]" })?;
            grid.wake(at)?;
        }
        for node in grid.nodes.iter().flatten() {
            grid.vo.publish(node)?;
        }
        grid.await_places(&["b", "c"])?;
        Ok(grid)
    }

    /// Everybody knows the addresses of those that have started before.
    fn configure(&self, at: usize, accept: &str) -> anyhow::Result<()> {
        let vos = [("physics", self.vo.id())];
        let others = (0..3).filter(|of| *of != at && !self.addresses[*of].is_empty());
        let peers: Vec<_> = others
            .map(|of| (self.sites[of].id, self.addresses[of].as_str()))
            .collect();
        let name = ["a", "b", "c"][at];
        self.sites[at].configure(name, &peers, &vos)?;
        let mut config = File::options().append(true).open(self.sites[at].config())?;
        let tag = ["none", "eth", "ib"][at];
        write!(
            config,
            "[advert]\ninterval = \"1s\"\n[forward]\naccept_forwarded = {accept}\nper_minute = 1000\n\
             [[machine]]\nclass = \"node\"\ncount = 8\ncpus = 16\nmemory = \"64GiB\"\nspec = 1\n\
             properties = [\"{tag}\"]\n"
        )?;
        Ok(())
    }

    /// Starts a node where it listened before, and says that nothing runs there.
    fn wake(&mut self, at: usize) -> anyhow::Result<()> {
        let node = self.sites[at].start()?;
        if self.addresses[at].is_empty() {
            self.addresses[at] = node.address.clone();
            let text = std::fs::read_to_string(self.sites[at].config())?;
            let listen = format!("listen = [\"{}\"]", node.address);
            let text = text.replace("listen = [\"/ip4/127.0.0.1/tcp/0\"]", &listen);
            std::fs::write(self.sites[at].config(), text)?;
        }
        self.nodes[at] = Some(node);
        self.free(at)
    }

    fn free(&self, at: usize) -> anyhow::Result<()> {
        let told = self
            .node(at)
            .http("POST", "/v1/occupancy", b"{\"free\": 128}")?;
        ensure!(told.status == 200, "{told:?}");
        Ok(())
    }

    fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().expect("it runs")
    }

    fn kill(&mut self, at: usize) -> anyhow::Result<()> {
        self.nodes[at].take().context("it runs")?.kill()
    }

    /// Waits until A knows that these say what is free there, and can reach them.
    fn await_places(&self, names: &[&str]) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let words = [
                "place",
                "--vo",
                "physics",
                "--cpus",
                "1",
                "--confirm",
                "--json",
            ];
            let output = self.command(0, &words)?;
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let sites = answer["sites"].as_array().into_iter().flatten();
            let known = sites.filter(|of| of["verdict"] == "now" && of["confirmed"] == true);
            let known: BTreeSet<&str> = known.filter_map(|of| of["name"].as_str()).collect();
            if names.iter().all(|name| known.contains(name)) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{answer:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, at: usize, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(PROGRAM);
        let socket = self.sites[at].data().join("run/control.sock");
        Ok(command
            .args(words)
            .env("FAIRMESH_SOCKET", socket)
            .output()?)
    }

    /// Hands a job in at A: what the command says, and how it ends.
    fn submit(&self, key: &str, wait: &str) -> anyhow::Result<(Option<i32>, Value)> {
        let output = self.submitting(key, wait)?.wait_with_output()?;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok((output.status.code(), answer["jobs"][0].clone()))
    }

    fn submitting(&self, key: &str, wait: &str) -> anyhow::Result<Child> {
        let job = self.folder.path().join(format!("{key}.toml"));
        std::fs::write(
            &job,
            "vo = \"physics\"\nuser = \"ann\"\naccount = \"physics\"\ncpus = 4\ntime = \"1h\"\nrun = \"sleep 1\"\n\
             [[require]]\nkind = \"tag\"\noptions = { ib = 1.0, eth = 0.25 }\n",
        )?;
        let job = job.to_str().context("a plain name")?;
        let words = [
            "place", job, "--submit", "--key", key, "--wait", wait, "--json",
        ];
        let mut command = Command::new(PROGRAM);
        command
            .args(words)
            .env(
                "FAIRMESH_SOCKET",
                self.sites[0].data().join("run/control.sock"),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Where a node's jobs are.
    fn jobs(&self, at: usize) -> anyhow::Result<Vec<Value>> {
        let answer = self.node(at).http("GET", "/v1/forward", b"")?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body["jobs"].as_array().cloned().unwrap_or_default())
    }

    fn await_jobs(&self, at: usize, are_right: impl Fn(&[Value]) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let jobs = self.jobs(at)?;
            if are_right(&jobs) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{jobs:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the batch system of a site has, one name a line.
    fn batch(&self, at: usize) -> PathBuf {
        self.sites[at].folder().join("batch")
    }

    fn submitted(&self, at: usize) -> Vec<String> {
        let text = std::fs::read_to_string(self.batch(at)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts what hands jobs to a site's batch system.
    fn hand_over(&self, at: usize, submit: &str, ask: Option<&str>) -> anyhow::Result<Runner> {
        let ask: Vec<&str> = ask.into_iter().flat_map(|ask| ["--ask", ask]).collect();
        self.hand_over_with(at, &[&["--submit", submit], &ask[..]].concat())
    }

    fn hand_over_with(&self, at: usize, words: &[&str]) -> anyhow::Result<Runner> {
        let site = &self.sites[at];
        let mut command = Command::new(PROGRAM);
        command
            .args(["forward", "run", "--poll-ms", "20"])
            .args(words)
            .arg("--folder")
            .arg(site.folder().join("handed-over"))
            .env("FAIRMESH_SOCKET", site.data().join("run/control.sock"))
            .env("BATCH", self.batch(at))
            .stdout(Stdio::null())
            .stderr(
                File::options()
                    .create(true)
                    .append(true)
                    .open(site.folder().join("runner"))?,
            );
        Ok(Runner(command.spawn()?))
    }
}

/// A process of `forward run`, killed when dropped.
struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Submits: one line for each time. A pretended batch system does not refuse a name that it has, so a job that is
/// submitted twice is seen.
const SUBMIT: &str = "echo \"$FAIRMESH_KEY $FAIRMESH_NAME $FAIRMESH_USER $FAIRMESH_ORIGIN $FAIRMESH_PATH $FAIRMESH_CPUS\" >> \"$BATCH\"; echo 4711";

/// Asks it.
const ASK: &str =
    "if grep -qs \" $FAIRMESH_NAME \" \"$BATCH\"; then echo waiting; else echo nowhere; fi";

#[test]
fn a_job_goes_to_the_best_site_runs_there_once_and_its_user_is_told() -> anyhow::Result<()> {
    let mut grid = Grid::start()?;
    let runner_b = grid.hand_over(1, SUBMIT, None)?;
    let runner_c = grid.hand_over(2, SUBMIT, Some(ASK))?;
    let (code, job) = grid.submit("j1", "60")?;
    assert_eq!(
        (code, &job["state"], &job["site"], &job["batch"]),
        (Some(0), &"submitted".into(), &"c".into(), &"4711".into()),
        "{job:#}"
    );
    let lines = grid.submitted(2);
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(
        (words[0], &words[2..]),
        ("j1", &["ann", "a", "/ann", "4"][..])
    );
    // Handed in again it is the same job.
    let (_, again) = grid.submit("j1", "0")?;
    assert_eq!(
        (&again["job"], &again["state"]),
        (&job["job"], &"submitted".into())
    );

    // C's batch system refuses: the next best has it.
    drop(runner_c);
    let refuses = grid.hand_over(2, "echo no such queue >&2; exit 3", None)?;
    let (code, job) = grid.submit("j2", "60")?;
    assert_eq!(
        (code, &job["state"], &job["site"]),
        (Some(0), &"submitted".into(), &"b".into()),
        "{job:#}"
    );
    // All refuse, and the user reads what was tried.
    drop(runner_b);
    let refuses_too = grid.hand_over(1, "exit 4", None)?;
    let (code, job) = grid.submit("j3", "60")?;
    assert_eq!(
        (code, &job["state"]),
        (Some(1), &"failed".into()),
        "{job:#}"
    );
    let tried = job["tried"].as_array().cloned().unwrap_or_default();
    let said = |site: &str, words: &str| {
        tried
            .iter()
            .any(|of| of["site"] == site && of["said"] == words)
    };
    assert!(
        said("c", "its command has ended with 3") && said("b", "its command has ended with 4"),
        "{job:#}"
    );
    // No hops at all, and none can be reached without: told at once.
    let words = ["place", "--submit", "--hops", "0", "--key", "j4"];
    let job = grid.folder.path().join("j1.toml");
    let job = job.to_str().context("a plain name")?;
    let output = grid.command(0, &[&words[..], &[job]].concat())?;
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("was given up: the job has been forwarded as often as it may be"),
        "{text}"
    );

    // C withdraws its consent: nobody's jobs are taken there from then on.
    drop((refuses, refuses_too));
    let _runner_b = grid.hand_over(1, SUBMIT, None)?;
    let metrics = grid.node(2).http("GET", "/v1/metrics", b"")?.text;
    grid.nodes[2].take().context("it runs")?.stop()?;
    grid.configure(2, "[]")?;
    grid.wake(2)?;
    grid.await_places(&["b", "c"])?;
    let (_, job) = grid.submit("j5", "60")?;
    assert_eq!(
        (&job["state"], &job["site"]),
        (&"submitted".into(), &"b".into()),
        "{job:#}"
    );
    assert_eq!(grid.submitted(2).len(), 1);

    let status = grid.command(0, &["forward", "status"])?;
    let status = String::from_utf8(status.stdout)?;
    assert_eq!(status.lines().count(), 6, "{status}");
    for expected in [
        "jobs_total{outcome=\"taken\"} 3",
        "jobs_total{outcome=\"submitted\"} 1",
        "waiting 0",
    ] {
        let expected = format!("forward_{expected}");
        assert!(metrics.contains(&expected), "{expected}: {metrics}");
    }
    Ok(())
}

/// When somebody is killed while a job is on its way. Each is an event that the killer waits for.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// A has begun to write into its folder.
    SenderWrites,
    /// A has answered its user.
    SenderAnswered,
    /// C has begun to write into its folder.
    ReceiverWrites,
    /// A knows that C has the job.
    ReceiverTook,
    /// The submit command has begun.
    RunnerBegins,
    /// C's batch system has the job, and nobody has noted that.
    RunnerSubmitted,
}

impl Moment {
    const ALL: [Self; 6] = [
        Self::SenderWrites,
        Self::SenderAnswered,
        Self::ReceiverWrites,
        Self::ReceiverTook,
        Self::RunnerBegins,
        Self::RunnerSubmitted,
    ];
}

fn await_that(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
    Ok(())
}

/// Hands a job in and kills somebody at that moment; then all run again.
fn hand_in_and_kill(
    grid: &mut Grid,
    runner: Option<Runner>,
    key: &str,
    at: Moment,
) -> anyhow::Result<Option<Runner>> {
    let data = [0, 2].map(|at| grid.sites[at].data());
    let before = [state_of(&data[0]), state_of(&data[1])];
    let handed_over = grid.sites[2].folder().join("handed-over");
    let begun = state_of(&handed_over);
    let lines = grid.submitted(2).len();
    let mut user = grid.submitting(key, "0")?;
    let mut runner = runner;
    match at {
        Moment::SenderWrites => {
            await_that("nothing is written", || Ok(state_of(&data[0]) != before[0]))?;
            grid.kill(0)?;
        }
        Moment::SenderAnswered => {
            user.wait()?;
            grid.kill(0)?;
        }
        Moment::ReceiverWrites => {
            await_that("nothing is written", || Ok(state_of(&data[1]) != before[1]))?;
            grid.kill(2)?;
        }
        Moment::ReceiverTook => {
            user.wait()?;
            let taken = |job: &Value| job["key"] == key && job["state"] != "sent";
            grid.await_jobs(0, |jobs| jobs.iter().any(taken))?;
            grid.kill(2)?;
        }
        Moment::RunnerBegins => {
            await_that("no command begins", || Ok(state_of(&handed_over) != begun))?;
            runner = None;
        }
        Moment::RunnerSubmitted => {
            await_that("nothing is submitted", || {
                Ok(grid.submitted(2).len() > lines)
            })?;
            runner = None;
        }
    }
    user.wait()?;
    for at in [0, 2] {
        if grid.nodes[at].is_none() {
            grid.wake(at)?;
        }
    }
    grid.await_places(&["b", "c"])?;
    Ok(runner)
}

#[test]
fn a_job_runs_once_whoever_is_killed_between_any_two_steps() -> anyhow::Result<()> {
    let kills = match std::env::var("FAIRMESH_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS,
    };
    let mut grid = Grid::start()?;
    let _runner_b = grid.hand_over(1, SUBMIT, Some(ASK))?;
    let mut runner = None;
    for round in 0..kills {
        if runner.is_none() {
            runner = Some(grid.hand_over(2, SUBMIT, Some(ASK))?);
        }
        let key = format!("k{round}");
        let at = Moment::ALL[round % Moment::ALL.len()];
        runner = hand_in_and_kill(&mut grid, runner, &key, at)?;
    }
    let _runner = match runner {
        Some(runner) => runner,
        None => grid.hand_over(2, SUBMIT, Some(ASK))?,
    };
    // Whoever was cut off hands the same job in again.
    for round in 0..kills {
        let (code, job) = grid.submit(&format!("k{round}"), "60")?;
        assert_eq!(
            (code, &job["state"]),
            (Some(0), &"submitted".into()),
            "{job:#}"
        );
    }
    let mut ran: Vec<String> = [grid.submitted(1), grid.submitted(2)].concat();
    ran.sort();
    let keys: Vec<&str> = ran
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let mut expected: Vec<String> = (0..kills).map(|round| format!("k{round}")).collect();
    expected.sort();
    assert_eq!(keys, expected, "each once");
    Ok(())
}

#[test]
fn a_user_takes_a_job_back_or_reads_where_it_stays() -> anyhow::Result<()> {
    let mut grid = Grid::start()?;
    let withdraw = |grid: &Grid, key: &str| -> anyhow::Result<(Option<i32>, String)> {
        let output = grid.command(0, &["forward", "withdraw", key, "--wait", "60"])?;
        let said = [output.stdout, output.stderr].concat();
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    };
    // It is at C, where nobody hands jobs over yet; C is killed once it knows that the job is wanted back.
    grid.submit("j1", "0")?;
    let is_here = |jobs: &[Value]| {
        jobs.iter()
            .any(|of| of["key"] == "j1" && of["state"] == "here")
    };
    grid.await_jobs(2, is_here)?;
    let output = grid.command(0, &["forward", "withdraw", "j1", "--wait", "0"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("is to be taken back; c has not said yet"),
        "{said}"
    );
    let is_wanted = |jobs: &[Value]| jobs.iter().any(|of| of["withdrawal"] == "wanted");
    grid.await_jobs(2, is_wanted)?;
    grid.kill(2)?;
    grid.wake(2)?;
    grid.await_jobs(2, is_wanted)?;
    let runner = grid.hand_over(2, SUBMIT, Some(ASK))?;
    let (code, said) = withdraw(&grid, "j1")?;
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("runs nowhere: its user has taken it back"),
        "{said}"
    );
    assert_eq!(grid.submitted(2), [""; 0]);
    let (code, job) = grid.submit("j1", "0")?;
    assert_eq!(
        (code, &job["state"]),
        (Some(1), &"failed".into()),
        "{job:#}"
    );

    // The batch system has it, and nobody there knows how to withdraw it: it stays.
    grid.await_places(&["b", "c"])?;
    let (_, job) = grid.submit("j2", "60")?;
    assert_eq!(&job["state"], "submitted", "{job:#}");
    let (code, said) = withdraw(&grid, "j2")?;
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("stays with the batch system of c as 4711"),
        "{said}"
    );

    // Somebody does.
    drop(runner);
    let withdraws = "echo \"$FAIRMESH_BATCH $FAIRMESH_KEY\" >> \"$BATCH.withdrawn\"";
    let words = ["--submit", SUBMIT, "--ask", ASK, "--withdraw", withdraws];
    let _runner = grid.hand_over_with(2, &words)?;
    let (_, job) = grid.submit("j3", "60")?;
    assert_eq!(&job["state"], "submitted", "{job:#}");
    let (code, said) = withdraw(&grid, "j3")?;
    assert_eq!(code, Some(0), "{said}");
    let withdrawn = std::fs::read_to_string(grid.batch(2).with_extension("withdrawn"))?;
    assert_eq!(withdrawn.lines().next(), Some("4711 j3"));
    let (code, said) = withdraw(&grid, "j9")?;
    assert!(
        code == Some(1) && said.contains("no job j9 is known here"),
        "{said}"
    );
    Ok(())
}
