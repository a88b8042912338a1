//! What it costs to give ten thousand users their fairshare anew: Slurm's fair tree in a real slurmctld with slurmdbd, and
//! beside it the same tree here. `cargo bench -p fairmesh-tests --bench fairtree -- 10000`; it needs root, and takes minutes,
//! most of them waiting: a slurmctld does it once a minute at the most (`PriorityCalcPeriod`, five minutes where nothing is
//! said). CPU is that of its thread `decay`, which looks at waiting and running jobs, too; there are none. Ours is the
//! library's part alone: an account's usage, and the exact order of all with their factors.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fairmesh_fairshare::projection::RankProjection;
use fairmesh_fairshare::{EntrySpec, Order, Reach, TreeSpec, UsageItem, WeightTable};
use fairmesh_model::{
    AccountPath, Distance, HistoryRule, Scope, Share, Span, Window, WindowLength,
};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};

/// Users of an account.
const USERS: usize = 100;

/// Rounds of either that are measured.
const ROUNDS: u32 = 3;

fn main() -> anyhow::Result<()> {
    let users = std::env::args().find_map(|argument| argument.parse().ok());
    let accounts = users.unwrap_or(10_000_usize).div_ceil(USERS);
    let folder = tempfile::tempdir()?;
    let kind = Kind {
        name: "fairtree",
        cpus: 1,
        nodes: 1,
        accounts: Accounts::Slurmdbd,
        conf: "PriorityWeightFairshare=100000\nPriorityCalcPeriod=1\n",
        plugins: None,
    };
    if let Some(slurm) = Slurm::start(folder.path(), kind)? {
        of_slurm(&slurm, folder.path(), accounts)?;
    }
    of_fairmesh(accounts)
}

fn of_slurm(slurm: &Slurm, folder: &Path, accounts: usize) -> anyhow::Result<()> {
    let mut tree = "Cluster - 'fairtree'\nParent - 'root'\n".to_owned();
    for account in 0..accounts {
        writeln!(
            tree,
            "Account - 'a{account}':Description='a':Organization='a':Fairshare=1"
        )?;
    }
    for account in 0..accounts {
        writeln!(tree, "Parent - 'a{account}'")?;
        for user in 0..USERS {
            let user = account * USERS + user;
            writeln!(
                tree,
                "User - 'u{user}':DefaultAccount='a{account}':Fairshare=1"
            )?;
        }
    }
    let file = folder.join("tree");
    fs::write(&file, tree)?;
    slurm.run("sacctmgr", &["-i", "load", &file.to_string_lossy()])?;
    await_that("all users", || {
        Ok(slurm.run("sshare", &["-n", "-a"])?.lines().count() >= accounts * USERS)
    })?;
    let pid = fs::read_to_string(folder.join("run/slurmctld.pid"))?;
    let thread = thread_of(pid.trim(), "decay")?;
    let mut rounds = Vec::new();
    let mut before = cpu(&thread)?;
    // One that has begun with fewer users.
    for _ in 0..=ROUNDS {
        await_that("a round", || Ok(cpu(&thread)? > before))?;
        std::thread::sleep(Duration::from_secs(5));
        let now = cpu(&thread)?;
        rounds.push(now - before);
        before = now;
    }
    println!(
        "{}: fair tree of {} users in {:?} of CPU, once in 60 s",
        slurm.run("slurmctld", &["-V"])?,
        accounts * USERS,
        rounds[1..].iter().min().context("a round")?,
    );
    Ok(())
}

/// The folder in `/proc` of a process' thread.
fn thread_of(pid: &str, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    let folders = threads.filter_map(|thread| Some(thread.ok()?.path()));
    let mut named = folders.filter(|folder| {
        let said = fs::read_to_string(folder.join("comm"));
        said.is_ok_and(|said| said.trim() == name)
    });
    named
        .next()
        .with_context(|| format!("process {pid} has no thread {name}"))
}

/// Time on a CPU so far (the first number of `schedstat`, in ns).
fn cpu(thread: &Path) -> anyhow::Result<Duration> {
    let text = fs::read_to_string(thread.join("schedstat"))?;
    let nanoseconds = text.split_whitespace().next().context("no time")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

fn of_fairmesh(accounts: usize) -> anyhow::Result<()> {
    const NOW: Window = Window(480_000);
    let weights = WeightTable::new(HistoryRule::default(), WindowLength::HOUR);
    let mut spec = TreeSpec::new(vec![weights.clone(), weights], 0);
    let mut add = |text: &str| -> anyhow::Result<()> {
        spec.entries.push(EntrySpec {
            path: AccountPath::parse(text)?,
            weight: 1,
            at_most: Share::WHOLE,
            scope: Scope::Global,
            distance: Distance::Absolute,
            history: 1,
            since: None,
        });
        Ok(())
    };
    for account in 0..accounts {
        add(&format!("/a{account}"))?;
        for user in 0..USERS {
            add(&format!("/a{account}/u{}", account * USERS + user))?;
        }
    }
    let mut writer = spec.build(&[NOW; 2])?;
    let snapshot = writer.snapshot();
    let leaves: Vec<_> = snapshot
        .ids()
        .filter(|entry| snapshot.is_leaf(*entry))
        .collect();
    let span = Span::Window(Window(NOW.0 - 3));
    let used = (1..).zip(&leaves).map(|(nth, entry)| UsageItem {
        entry: *entry,
        span,
        charge: nth * 7_919 % 1_000_003,
        reach: Reach::Own,
    });
    writer.load(used);
    let mut least = Duration::MAX;
    for entry in leaves.iter().take(ROUNDS as usize) {
        let began = Instant::now();
        writer.apply(*entry, span, 60_000, Reach::Own);
        let snapshot = writer.snapshot();
        let ranks = RankProjection::prepare(&snapshot);
        black_box(Order::of(snapshot, Box::new(ranks)));
        least = least.min(began.elapsed());
    }
    println!(
        "Fairmesh: the exact order of {} users in {least:?}",
        accounts * USERS
    );
    Ok(())
}
