//! A Grid of different schedulers: a Slurm, a Grid Engine and an HTCondor, with a node each, in one mesh. Who has burnt his
//! share on one waits on the others, and usage is what each system's own accounting says.
//!
//! A job takes all of its system, so jobs of one start one behind the other.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_schedulers::gridengine;
use fairmesh_tests::beside::{ACCOUNTS, Beside};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::introduce;
use fairmesh_tests::{Site, Vo, condor, gridengine as pool};

use crate::{PROGRAM, SLOTS};

/// How long the job sleeps with which a user burns his share.
const BURNT_S: u32 = 5;

/// A job that has ended, by its system's word: number, account, start in seconds since 1970, core-milliseconds.
type Ended = (u64, String, u64, u64);

/// What the story wants of a scheduler.
trait Scheduler {
    /// What it is called in a node's configuration.
    fn name(&self) -> &'static str;
    /// Its keys there.
    fn keys(&self) -> String;
    /// Opens or closes it, so that jobs can gather before anything starts.
    fn open(&self, open: bool) -> anyhow::Result<()>;
    /// Submits a job of the account.
    fn submit(&self, account: &str, seconds: u32) -> anyhow::Result<u64>;
    /// Places of waiting jobs by their accounts, the highest of which is served first; less where not all have one yet.
    fn places(&self) -> anyhow::Result<Vec<(String, f64)>>;
    /// What has ended, in the order of the starts.
    fn ended(&self) -> anyhow::Result<Vec<Ended>>;
}

impl Scheduler for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn keys(&self) -> String {
        format!("slurm_conf = \"{}\"\n", self.conf().display())
    }

    fn open(&self, open: bool) -> anyhow::Result<()> {
        Self::open(self, open)
    }

    fn submit(&self, account: &str, seconds: u32) -> anyhow::Result<u64> {
        let time = Duration::from_secs(seconds.into());
        Ok(Self::submit(self, account, SLOTS, time, &[])?.parse()?)
    }

    fn places(&self) -> anyhow::Result<Vec<(String, f64)>> {
        let mut rows = Vec::new();
        for (account, priority) in self.priorities()? {
            // One without a site factor has 1.
            if priority > 1 {
                rows.push((account, f64::from(u32::try_from(priority)?)));
            }
        }
        Ok(rows)
    }

    fn ended(&self) -> anyhow::Result<Vec<Ended>> {
        let of = "jobidraw,account,start,elapsedraw,alloccpus,state";
        let text = self.run("sacct", &["-a", "-X", "-n", "-P", "-o", of])?;
        let mut ended = Vec::new();
        for line in text.lines().filter(|line| line.ends_with("|COMPLETED")) {
            let words: Vec<&str> = line.split('|').collect();
            let [id, account, start, elapsed, cpus, _] = words[..] else {
                anyhow::bail!("sacct said {line}");
            };
            let charge = elapsed.parse::<u64>()? * cpus.parse::<u64>()? * 1_000;
            ended.push((id.parse()?, account.to_owned(), start.parse()?, charge));
        }
        ended.sort_by_key(|job| (job.2, job.0));
        Ok(ended)
    }
}

impl Scheduler for pool::Pool {
    fn name(&self) -> &'static str {
        "gridengine"
    }

    fn keys(&self) -> String {
        let (root, commands) = (self.root(), self.commands());
        let (root, commands) = (root.display(), commands.display());
        format!("root = \"{root}\"\nbin_dir = \"{commands}\"\n")
    }

    fn open(&self, open: bool) -> anyhow::Result<()> {
        Self::open(self, open)
    }

    fn submit(&self, account: &str, seconds: u32) -> anyhow::Result<u64> {
        Self::submit(self, account, SLOTS, seconds)
    }

    fn places(&self) -> anyhow::Result<Vec<(String, f64)>> {
        let text = self.run("qstat", &["-u", "*", "-s", "p", "-ext", "-xml"])?;
        let mut projects = text.split("<JB_project>").skip(1);
        let mut rows = Vec::new();
        for (_, tickets) in self.tickets()? {
            let project = projects.next().context("a project")?;
            let project = project.split('<').next().unwrap_or_default();
            if tickets > 0 {
                rows.push((project.to_owned(), f64::from(u32::try_from(tickets)?)));
            }
        }
        Ok(rows)
    }

    fn ended(&self) -> anyhow::Result<Vec<Ended>> {
        let ended = Self::ended(self)?.into_iter();
        let charge = |job: &pool::Ended| (job.span.1 - job.span.0) * job.slots * 1_000;
        Ok(ended
            .map(|job| (job.id, job.project.clone(), job.span.0, charge(&job)))
            .collect())
    }
}

impl Scheduler for condor::Pool {
    fn name(&self) -> &'static str {
        "condor"
    }

    fn keys(&self) -> String {
        let (history, commands) = (self.history(), self.commands());
        let (history, commands) = (history.display(), commands.display());
        format!("history = \"{history}\"\nbin_dir = \"{commands}\"\n")
    }

    fn open(&self, open: bool) -> anyhow::Result<()> {
        Self::open(self, open)
    }

    fn submit(&self, account: &str, seconds: u32) -> anyhow::Result<u64> {
        Self::submit(self, user(account), account, SLOTS, seconds)
    }

    fn places(&self) -> anyhow::Result<Vec<(String, f64)>> {
        let mut rows = Vec::new();
        for account in ACCOUNTS {
            let submitter = format!("{account}.{}@pool", user(account));
            // The smallest priority is served first; one that nobody has set is beyond all others.
            let priority = self.priority(&submitter)?.filter(|of| *of < 1e200);
            rows.extend(priority.map(|of| (account.to_owned(), 1.0 / of)));
        }
        Ok(rows)
    }

    fn ended(&self) -> anyhow::Result<Vec<Ended>> {
        let ended = Self::ended(self)?.into_iter();
        Ok(ended
            .map(|job| (job.id, job.group, job.start, job.core_s * 1_000))
            .collect())
    }
}

/// As whom an account's jobs run: a user that every Debian has.
fn user(account: &str) -> &'static str {
    match account {
        "xavier" => "games",
        _ => "news",
    }
}

/// A scheduler and the node beside it.
type Member = (Box<dyn Scheduler>, Beside);

/// One of each; none where one of them is missing.
fn schedulers(folder: &Path) -> anyhow::Result<Option<[Box<dyn Scheduler>; 3]>> {
    let kind = Kind {
        name: "alpha",
        cpus: SLOTS,
        nodes: 1,
        accounts: Accounts::Slurmdbd,
        conf: "",
        plugins: None,
    };
    let Some(htcondor) = condor::Pool::start(&folder.join("condor"), SLOTS)? else {
        return Ok(None);
    };
    let Some(grid_engine) = pool::Pool::start(&folder.join("gridengine"), SLOTS)? else {
        return Ok(None);
    };
    let Some(slurm) = Slurm::start(&folder.join("slurm"), kind)? else {
        return Ok(None);
    };
    introduce(&slurm)?;
    grid_engine.schedule_by(&gridengine::WANTED)?;
    Ok(Some([
        Box::new(slurm),
        Box::new(grid_engine),
        Box::new(htcondor),
    ]))
}

/// A node beside each, in one mesh.
fn mesh(folder: &Path, all: [Box<dyn Scheduler>; 3]) -> anyhow::Result<Vec<Member>> {
    let mut made = Vec::new();
    for scheduler in all {
        let name = scheduler.name();
        let site = Site::init(PROGRAM, &folder.join(format!("site-{name}")), name)?;
        made.push((scheduler, site));
    }
    let sites: Vec<_> = made.iter().map(|(of, site)| (site.id, of.name())).collect();
    let vo = Vo::found("physics", &sites, &ACCOUNTS)?;
    let mut members: Vec<Member> = Vec::new();
    for (scheduler, site) in made {
        let first = members
            .first()
            .map(|(_, of)| (of.id(), of.node.address.as_str()));
        let peers: Vec<_> = first.into_iter().collect();
        let beside = Beside::join(site, scheduler.name(), &vo, &peers, &scheduler.keys())?;
        members.push((scheduler, beside));
    }
    Ok(members)
}

/// Who was charged what, in core-milliseconds, by each system's own word.
fn accounted(members: &[Member], account: &str) -> anyhow::Result<Vec<u64>> {
    let of = |(scheduler, _): &Member| {
        let ended = scheduler.ended()?.into_iter();
        Ok(ended.filter(|job| job.1 == account).map(|job| job.3).sum())
    };
    members.iter().map(of).collect()
}

/// Waits until each node knows what all systems say, and gives the sums.
fn await_equal(members: &[Member]) -> anyhow::Result<[u64; 2]> {
    let mut sums = [0; 2];
    for (account, sum) in ACCOUNTS.into_iter().zip(&mut sums) {
        let own = accounted(members, account)?;
        *sum = own.iter().sum();
        for (_, beside) in members {
            beside.node.await_usage("physics", account, *sum)?;
        }
        println!(
            "{account}: {own:?} core-ms by the systems' own accounting, and {sum} at each node"
        );
    }
    Ok(sums)
}

/// A user's job burns as much as that, alone on its system.
fn burn((scheduler, _): &Member, account: &str, seconds: u32) -> anyhow::Result<()> {
    let before = scheduler.ended()?.len();
    scheduler.open(true)?;
    scheduler.submit(account, seconds)?;
    await_that(
        "a job to end",
        || Ok(scheduler.ended()?.len() == before + 1),
    )
}

/// Jobs that wait for a closed scheduler to open: how many had ended there before, and their numbers.
type Gathered<'a> = (&'a dyn Scheduler, usize, Vec<u64>);

/// Two jobs of each, those first of whoever is to wait.
fn gather<'a>(
    members: &'a [Member],
    ahead: &str,
    behind: &str,
) -> anyhow::Result<Vec<Gathered<'a>>> {
    let mut gathered = Vec::new();
    for (scheduler, _) in members {
        let before = scheduler.ended()?.len();
        scheduler.open(false)?;
        let jobs = [behind, ahead, behind, ahead];
        let jobs = jobs.map(|account| scheduler.submit(account, 1));
        let jobs = jobs.into_iter().collect::<anyhow::Result<_>>()?;
        gathered.push((scheduler.as_ref(), before, jobs));
    }
    Ok(gathered)
}

/// Whether all of one account's jobs that wait stand before all of the other's.
fn stands_before(scheduler: &dyn Scheduler, ahead: &str, behind: &str) -> anyhow::Result<bool> {
    let places = scheduler.places()?;
    let of = |account: &str| {
        let rows = places.iter().filter(move |(who, _)| who == account);
        rows.map(|(_, place)| *place).collect::<Vec<_>>()
    };
    let (ahead, behind) = (of(ahead), of(behind));
    let lowest = ahead.iter().copied().fold(f64::INFINITY, f64::min);
    let is_all = !ahead.is_empty() && ahead.len() == behind.len();
    Ok(is_all && behind.iter().all(|place| *place < lowest))
}

/// All of one account's jobs start before those of the other.
fn start_in_order(all: &[Gathered<'_>], ahead: &str, behind: &str) -> anyhow::Result<()> {
    let burnt = Instant::now();
    for (scheduler, ..) in all {
        await_that(&format!("places in {}", scheduler.name()), || {
            stands_before(*scheduler, ahead, behind)
        })?;
        let (name, took) = (scheduler.name(), burnt.elapsed().as_millis());
        println!("{name}: {behind} waits behind {ahead} {took} ms after the end of what he burnt");
    }
    for (scheduler, ..) in all {
        scheduler.open(true)?;
    }
    for (scheduler, before, jobs) in all {
        await_that("the jobs to end", || {
            Ok(scheduler.ended()?.len() == before + 4)
        })?;
        let ended = scheduler.ended()?;
        let order: Vec<u64> = ended[*before..].iter().map(|job| job.0).collect();
        let wanted = [jobs[1], jobs[3], jobs[0], jobs[2]];
        let name = scheduler.name();
        ensure!(order == wanted, "{name}: {ended:?} of {jobs:?}");
    }
    Ok(())
}

#[test]
fn who_burnt_his_share_on_one_scheduler_waits_on_the_others() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(all) = schedulers(folder.path())? else {
        return Ok(());
    };
    let members = mesh(folder.path(), all)?;
    let (slurm, others) = members.split_at(1);
    let [xavier, yvonne] = ACCOUNTS;
    let waiting = gather(others, yvonne, xavier)?;
    burn(&slurm[0], xavier, BURNT_S)?;
    start_in_order(&waiting, yvonne, xavier)?;
    // What yvonne burns at the Grid Engine puts her behind at the Slurm.
    let [his, hers] = await_equal(&members)?;
    let lead_s = u32::try_from(his.saturating_sub(hers) / 1_000)?;
    let waiting = gather(slurm, xavier, yvonne)?;
    burn(&others[0], yvonne, lead_s / SLOTS + BURNT_S)?;
    start_in_order(&waiting, xavier, yvonne)?;
    await_equal(&members)?;
    Ok(())
}
