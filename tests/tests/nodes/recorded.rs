//! A real node beside batch systems that cannot be had here: their programs are scripts that say what the real ones say,
//! and do to their queue what those would.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_tests::beside::Beside;
use fairmesh_tests::slurm::await_that;

use crate::PROGRAM;

/// A batch system that is pretended: `bin` has its programs, `jobs` a file for each job in the queue, `numbers` the number
/// of each that has one, and `said` what its programs were called with.
struct Pretended(PathBuf);

impl Pretended {
    fn new(folder: &Path, programs: &[(&str, &str)]) -> anyhow::Result<Self> {
        for part in ["bin", "jobs", "numbers"] {
            fs::create_dir_all(folder.join(part))?;
        }
        for (name, script) in programs {
            let program = folder.join("bin").join(name);
            fs::write(
                &program,
                format!("#!/bin/sh\ncd {}\n{script}\n", folder.display()),
            )?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self(folder.to_owned()))
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Puts jobs into the queue, which is empty, all at once.
    fn submit(&self, jobs: &[(String, String)]) -> anyhow::Result<()> {
        let fresh = self.at("fresh");
        fs::create_dir(&fresh)?;
        for (id, text) in jobs {
            fs::write(fresh.join(id), text)?;
        }
        fs::remove_dir(self.at("jobs"))?;
        Ok(fs::rename(fresh, self.at("jobs"))?)
    }

    /// The jobs that have a number, as they would start.
    fn order(&self) -> anyhow::Result<Vec<(i64, String)>> {
        let mut order = Vec::new();
        for entry in fs::read_dir(self.at("numbers"))? {
            let entry = entry?;
            let number: i64 = fs::read_to_string(entry.path())?.trim().parse()?;
            order.push((number, entry.file_name().to_string_lossy().into_owned()));
        }
        order.sort_by(|one, next| next.0.cmp(&one.0).then_with(|| one.1.cmp(&next.1)));
        Ok(order)
    }

    fn said(&self) -> anyhow::Result<Vec<String>> {
        let text = fs::read_to_string(self.at("said"))?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// Jobs, and whose they are.
const QUEUE: [(u32, &str); 4] = [(2, "xavier"), (3, "yvonne"), (4, "xavier"), (5, "yvonne")];

/// Puts all of [`QUEUE`] into the queue once the node would serve yvonne first.
fn submit(
    system: &Pretended,
    beside: &Beside,
    job: impl Fn(u32, &str) -> (String, String),
) -> anyhow::Result<()> {
    let factor = |account: &str| -> anyhow::Result<f64> {
        let path = format!("/v1/priority?user=games&account={account}");
        let answer = beside.node.http("GET", &path, b"")?;
        let factor = &answer.body["factor"];
        let factor = factor.as_f64().or_else(|| factor.as_str()?.parse().ok());
        factor.with_context(|| format!("{answer:?}"))
    };
    await_that("yvonne to be first", || {
        Ok(factor("xavier")? < factor("yvonne")?)
    })?;
    system.submit(&QUEUE.map(|(id, project)| job(id, project)))
}

fn now_s() -> anyhow::Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

const QSTAT: &str = r#"for job in jobs/*; do
  test -e $job || continue
  number=$(cat numbers/${job#jobs/} 2>/dev/null)
  sed "s/@@/$5/g; s/NUMBER/${number:-0}/" $job
done"#;

const QALTER: &str = r#"echo "qalter $*" >> said
number=${2#fairmesh=}
shift 2
for job; do echo $number > new; mv new numbers/$job; done"#;

const QMGR: &str = r#"test -e configured || { echo "qmgr obj=fairmesh svr=default: Unknown object" >&2; exit 1; }
case "$2" in
  "list resource fairmesh") printf 'Resource fairmesh\n    type = long\n    flag = r\n\n';;
  "list server job_sort_formula") printf 'Server pbs\n    job_sort_formula = fairmesh\n\n';;
  "list hook fairmesh") printf 'Hook fairmesh\n    type = site\n    enabled = true\n    event = queuejob,modifyjob\n\n';;
  *) exit 1;;
esac"#;

fn pbs_job(id: u32, project: &str) -> (String, String) {
    let text = format!(
        "Job Id: {id}.pbs@@Job_Name=a\\nJob Id: 9.pbs|euser=root@@Job_Owner=games@login@@job_state=Q@@queue=workq@@\
         Priority=0@@Resource_List.ncpus=2@@Resource_List.fairmesh=NUMBER@@euser=games@@project={project}\n"
    );
    (format!("{id}.pbs"), text)
}

/// A record, and the core-milliseconds that it is worth.
fn pbs_record(event: &str, id: &str, project: &str, seconds: u64) -> anyhow::Result<(String, u64)> {
    let end = now_s()? - 5;
    let start = end - seconds;
    let line = format!(
        "11/25/2026 14:20:00;{event};{id}.pbs;user=games group=users project={project} jobname=a queue=workq \
         ctime={start} qtime={start} etime={start} start={start} exec_host=n1/0*2 exec_vnode=(n1:ncpus=2) \
         Resource_List.ncpus=2 session=1 end={end} Exit_status=0 resources_used.walltime=00:00:01 run_count=1\n"
    );
    Ok((line, seconds * 2_000))
}

#[test]
fn pbs_serves_whoever_used_less() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let programs = [("qstat", QSTAT), ("qalter", QALTER), ("qmgr", QMGR)];
    let system = Pretended::new(&folder.path().join("pbs"), &programs)?;
    let accounting = system.at("server_priv/accounting");
    fs::create_dir_all(&accounting)?;
    let (home, bin) = (system.0.display(), system.at("bin"));
    let keys = format!("home = \"{home}\"\nbin_dir = \"{}\"\n", bin.display());
    let beside = Beside::start(PROGRAM, folder.path(), "pbs", &keys)?;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(!is_content && words.contains("missing: no hook"), "{words}");
    fs::write(system.at("configured"), "")?;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(is_content, "{words}");

    // xavier has had a job that was requeued, and its second run; a user's line that is none stands between.
    let (requeued, first) = pbs_record("R", "1", "xavier", 40)?;
    let (ended, second) = pbs_record("E", "1", "xavier", 7)?;
    let log = [&*requeued, "; nonsense\nnonsense\n", &*ended].concat();
    fs::write(accounting.join("20261125"), log)?;
    beside
        .node
        .await_usage("physics", "xavier", first + second)?;
    submit(&system, &beside, pbs_job)?;
    await_that("numbers", || Ok(system.order()?.len() == 4))?;
    let order = system.order()?;
    let ids: Vec<&str> = order.iter().map(|(_, id)| id.as_str()).collect();
    ensure!(ids == ["3.pbs", "5.pbs", "2.pbs", "4.pbs"], "{order:?}");
    ensure!(
        order[0].0 == order[1].0 && order[1].0 > order[2].0,
        "{order:?}"
    );
    let (is_content, words) = beside.run(&["sync", "--dry-run"])?;
    ensure!(is_content && words.contains("4 jobs wait"), "{words}");
    ensure!(words.contains("would update 0"), "{words}");
    let (best, next) = (order[0].0, order[2].0);
    let wanted = [
        format!("qalter -l fairmesh={best} 3.pbs 5.pbs"),
        format!("qalter -l fairmesh={next} 2.pbs 4.pbs"),
    ];
    ensure!(system.said()? == wanted, "{:?}", system.said()?);

    // yvonne burns more than he had, the next day.
    let (task, third) = pbs_record("E", "6[1]", "yvonne", 900)?;
    let (whole, _) = pbs_record("E", "6[]", "yvonne", 900)?;
    fs::write(accounting.join("20261126"), task + &whole)?;
    beside.node.await_usage("physics", "yvonne", third)?;
    await_that("the other order", || {
        let order = system.order()?;
        Ok(order[0].1 == "2.pbs" && order[1].0 > order[2].0)
    })?;

    // A feed that has lost its place reads all of it again, and nothing counts twice.
    let cursor = folder.path().join("site/data/pbs-feed.json");
    ensure!(cursor.exists(), "no cursor at {}", cursor.display());
    let (_, words) = beside.run(&["feed", "--once"])?;
    ensure!(words.contains("0 finished jobs reported"), "{words}");
    fs::remove_file(&cursor)?;
    let (_, words) = beside.run(&["feed", "--once"])?;
    ensure!(
        words.contains("3 finished jobs reported, 0 of them news"),
        "{words}"
    );
    ensure!(
        words.contains("line 3: not `time;event;job;attributes`"),
        "{words}"
    );
    beside
        .node
        .await_usage("physics", "xavier", first + second)?;
    let (is_content, words) = beside.run(&["sync", "--reset"])?;
    ensure!(is_content, "{words}");
    let last = system.said()?.pop().context("a call")?;
    ensure!(beside.updates()? >= 8.0, "too few updates");
    ensure!(last.starts_with("qalter -l fairmesh="), "{last}");
    Ok(())
}

const BJOBS: &str = r#"for job in jobs/*; do
  test -e $job || continue
  id=${job#jobs/}
  IFS=^ read -r stat user queue slots project < $job
  value=$(cat numbers/$id 2>/dev/null)
  case "$5" in
    "jobid stat "*) echo "$id^$stat^$user^$queue^$slots";;
    "jobid proj_name "*) echo "$id^$project";;
    *) echo "$id games PEND normal hostA myjob Feb 12 01:09 ${value:+(}${value:--}${value:+)}";;
  esac
done"#;

const BMOD: &str = r#"echo "bmod $*" >> said
for job; do :; done
case $1 in
  -aps) echo ${2#system=} > new; mv new numbers/$job;;
  -apsn) rm -f numbers/$job;;
esac
echo "Parameters of job <$job> are being changed""#;

const BQUEUES: &str = r#"test -e configured && echo "SCHEDULING POLICIES:  APS_PRIORITY""#;

/// A record, and the core-milliseconds that it is worth.
fn lsf_record(id: u32, project: &str, seconds: u64) -> anyhow::Result<(String, u64)> {
    let end = now_s()? - 5;
    let start = end - seconds;
    let line = format!(
        "\"JOB_FINISH\" \"10.1\" {end} {id} 1000 33882739 2 {start} 0 0 {start} \"games\" \"normal\" \"\" \"\" \"\" \
         \"login\" \"/home\" \"\" \"\" \"\" \"{start}.{id}\" 0 1 \"2*n1\" 64 60.0 \"a\" \"echo \"\"a\"\"\" 0.5 0.1 0 0 -1 0 0 0 \
         0 0 0 0 -1 0 0 0 0 0 -1 \"\" \"{project}\" 0 2 \"\" \"\" 0 2048 0 \"\" \"\" \"\" \"\" 0 \"\" 0 \"\" -1 \"/games\" \"\" \
         \"\" \"\" -1 \"\" \"\" 0 \"\" {start} \"\" \"\" 0 0 0\n"
    );
    Ok((line, seconds * 2_000))
}

#[test]
fn lsf_serves_whoever_used_less() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let programs = [("bjobs", BJOBS), ("bmod", BMOD), ("bqueues", BQUEUES)];
    let system = Pretended::new(&folder.path().join("lsf"), &programs)?;
    let (file, bin) = (system.at("lsb.acct"), system.at("bin"));
    let keys = format!(
        "accounting = \"{}\"\nbin_dir = \"{}\"\n",
        file.display(),
        bin.display()
    );
    let beside = Beside::start(PROGRAM, folder.path(), "lsf", &keys)?;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(
        !is_content && words.contains("lsb.acct cannot be read"),
        "{words}"
    );
    let (first, burnt) = lsf_record(1, "xavier", 47)?;
    fs::write(&file, &first)?;
    fs::write(system.at("configured"), "")?;
    let (is_content, words) = beside.run(&["setup"])?;
    ensure!(is_content, "{words}");
    beside.node.await_usage("physics", "xavier", burnt)?;
    submit(&system, &beside, |id, project| {
        (id.to_string(), format!("PEND^games^normal^2^{project}\n"))
    })?;
    await_that("system values", || Ok(system.order()?.len() == 4))?;
    let order = system.order()?;
    let ids: Vec<&str> = order.iter().map(|(_, id)| id.as_str()).collect();
    ensure!(ids == ["3", "5", "2", "4"], "{order:?}");
    let called = system.said()?;
    let wanted: Vec<String> = order
        .iter()
        .map(|(value, id)| format!("bmod -aps system={value} {id}"))
        .collect();
    ensure!(called[..4] == wanted, "{called:?}");

    // yvonne burns more, and mbatchd archives its file before anybody has looked.
    let (second, more) = lsf_record(6, "yvonne", 900)?;
    fs::write(&file, first + &second)?;
    fs::rename(&file, system.at("lsb.acct.1"))?;
    fs::write(&file, "")?;
    beside.node.await_usage("physics", "yvonne", more)?;
    await_that("the other order", || Ok(system.order()?[0].1 == "2"))?;
    let cursor = folder.path().join("site/data/lsf-feed.json");
    fs::remove_file(&cursor)?;
    fs::copy(system.at("lsb.acct.1"), &file)?;
    let (_, words) = beside.run(&["feed", "--once"])?;
    ensure!(
        words.contains("2 finished jobs reported, 0 of them news"),
        "{words}"
    );
    beside.node.await_usage("physics", "xavier", burnt)?;
    Ok(())
}
