//! Credit at two real Slurms: it stops where it ends, Grid-wide, cut off or not, and users read why.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_model::{Factor, Share};
use fairmesh_tests::quota;
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use fairmesh_tests::twins::{Make, Side, Twins, configure};
use fairmesh_tests::{Site, Vo, Wire};

use crate::PROGRAM;

/// 100 core-minutes.
const CREDIT: u64 = 6_000_000;

/// Cores of one job, of which five or six run at once at a site on half of the credit.
const CORES: u64 = 60;

/// Core-milliseconds that one holds: 15 % of a minute's, which is the shortest limit that Slurm knows.
const HELD: u64 = CORES * 9_000;

/// What a site keeps of its half whatever the other wants.
const FLOOR: u64 = CREDIT / 2 / 100 * 5;

/// Jobs: about 300 core-minutes by what they hold, 150 by what they run.
const JOBS: u64 = 34;

/// What a node says of an account's credit, in core-milliseconds.
fn amount(side: &Side, path: &str, name: &str) -> anyhow::Result<u64> {
    quota::amount(side.node()?, path, name)
}

/// Jobs of a state, and of a reason.
fn count(slurm: &Slurm, state: &str) -> anyhow::Result<usize> {
    let jobs = slurm.run(
        "squeue",
        &["-h", "-r", "-t", state, "-A", "xavier", "-o", "%i"],
    )?;
    Ok(jobs.lines().count())
}

/// Submits more tasks than there is credit for, of which their user is told at once.
fn submit(slurm: &Slurm, count: u64) -> anyhow::Result<()> {
    let array = format!("--array=1-{count} -A xavier -n {CORES} -t 1 -o /dev/null");
    let said = sbatch(slurm, &format!("{array} --wrap 'sleep 4'"))?;
    let words = format!("not all {count} tasks of this array have credit now");
    ensure!(said.contains(&words) && said.contains("xavier: "), "{said}");
    Ok(())
}

/// What a user reads of `sbatch`, who submits by these words.
fn sbatch(slurm: &Slurm, words: &str) -> anyhow::Result<String> {
    slurm.run("sh", &["-c", &format!("sbatch {words} 2>&1")])
}

/// What Slurm says that jobs of an account which have ended ran for, in core-milliseconds; and how much of that
/// was more than they held.
fn ran(slurm: &Slurm) -> anyhow::Result<(u64, u64)> {
    let jobs = slurm.started()?.into_iter();
    let charges = jobs.filter(|job| job.account == "xavier" && job.ended);
    let charges: Vec<u64> = charges.map(|job| job.charge() * 1_000).collect();
    let beyond = charges.iter().map(|charge| charge.saturating_sub(HELD));
    Ok((charges.iter().sum(), beyond.sum()))
}

/// Waits until none of these has enough for one more job, nor can fetch it, and nothing runs; all else is held in its
/// queue. For a job that waits a site fetches what others have beyond the floor that each keeps.
fn until_spent(sides: &[&Side], ran_before: u64) -> anyhow::Result<()> {
    await_that("a quota that is spent", || {
        let (mut runs, mut left, mut spare) = (false, Vec::new(), 0);
        for side in sides {
            runs |= count(&side.slurm, "R,CF,CG")? > 0 || amount(side, "xavier", "held")? > 0;
            let here = amount(side, "xavier", "here")?;
            left.push(here);
            spare += here.saturating_sub(FLOOR);
        }
        let is_short = |here: &u64| here.min(&FLOOR) + spare < HELD;
        Ok(!runs && ran(&sides[0].slurm)?.0 > ran_before && left.iter().all(is_short))
    })
}

/// Whoever submits more than anybody could still hold reads what is left.
fn refused_with_a_message(side: &Side, words: &str) -> anyhow::Result<()> {
    let refused = side
        .slurm
        .submit("xavier", 100, Duration::from_secs(1), &["-t", "1"]);
    let said = format!(
        "{:#}",
        refused.err().context("a job without credit was taken")?
    );
    println!("{said}");
    ensure!(
        said.contains(words) && said.contains("fairmesh quota show xavier"),
        "{said}"
    );
    Ok(())
}

#[test]
fn credit_stops_where_it_ends_and_users_read_why() -> anyhow::Result<()> {
    let made = Twins::start(Make {
        program: PROGRAM,
        accounts: Accounts::Filetxt,
        plugin: None,
        cpus: [480, 480],
        feed_apart: false,
        quota: true,
    })?;
    let Some(mut twins) = made else {
        return Ok(());
    };
    let wire = Wire::to(&twins.b.node()?.address)?;
    twins.join(&wire.address)?;
    let sites = [twins.a.site.id, twins.b.site.id];
    for (path, amount) in [("/xavier", CREDIT), ("/yvonne", 100 * CREDIT)] {
        let credit = twins.vo.grant(path, amount, &sites, |terms| {
            terms.hold_factor = Factor::from_millionths(150_000);
        })?;
        let answer = twins.a.node()?.http("POST", "/v1/documents", &credit)?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    for side in [&twins.a, &twins.b] {
        if !quota::set_up(PROGRAM, &side.site, &side.slurm)? {
            return Ok(());
        }
        await_that("rights at both", || {
            Ok(amount(side, "xavier", "here")? == CREDIT / 2)
        })?;
    }

    // Cut off, each spends what it has and no more, whatever is left elsewhere.
    wire.cut(true);
    let slurm = &twins.a.slurm;
    slurm.open(false)?;
    submit(slurm, JOBS)?;
    slurm.open(true)?;
    until_spent(&[&twins.a], 0)?;
    ensure!(
        amount(&twins.a, "xavier", "used")? <= CREDIT / 2,
        "more than its half"
    );
    let held = count(slurm, "PD")?;
    ensure!(held > 0, "all of them ran");
    let why = slurm.run(
        "squeue",
        &["-h", "-r", "-t", "PD", "-O", "Reason:40,Comment:60"],
    )?;
    ensure!(why.contains("fairmesh quota: xavier: 0."), "{why}");
    // Slurm's times are whole seconds: what jobs have left over differs.
    let tenths = (amount(&twins.a, "xavier", "here")? + CREDIT / 2) / 360_000;
    let in_vo = format!("left here, 0.{tenths} in the VO (0.0 on the way); this job needs 0.3");
    refused_with_a_message(&twins.a, &in_vo)?;

    // Healed, A goes on by itself on what B can spare, and all stops where the credit does.
    wire.cut(false);
    let (at_a, _) = ran(slurm)?;
    until_spent(&[&twins.a, &twins.b], at_a)?;
    refused_with_a_message(&twins.a, "xavier: 0.")?;
    refused_with_a_message(&twins.b, "xavier: 0.")?;
    for side in [&twins.a, &twins.b] {
        await_that("both know what both have charged", || {
            let [used, over] = ["used", "overdraft"].map(|name| amount(side, "xavier", name));
            let (used, over, (ran, beyond)) = (used?, over?, ran(slurm)?);
            ensure!(used <= CREDIT, "{used} of {CREDIT} are used");
            ensure!(over <= beyond, "an overdraft of {over}");
            ensure!(used + over == ran, "{used} used, {over} over, {ran} ran");
            Ok(true)
        })?;
    }
    let left = count(slurm, "PD")?;
    let (ran, _) = ran(slurm)?;
    println!("{ran} of {CREDIT} core-ms ran; {left} of {JOBS} jobs are held at A");
    ensure!(left > 0, "all of them ran");
    components_are_counted_together(&twins.a.slurm)?;

    runs_are_charged_by_the_name_they_held_by(&twins.a)?;
    what_makes_no_sense_is_refused_and_blinds_nobody(&twins.a)?;

    silence_is_a_refusal_where_the_owner_wants_it(&mut twins.a)
}

/// There is credit for each of two components of a job, and not for both.
fn components_are_counted_together(slurm: &Slurm) -> anyhow::Result<()> {
    let one = "-A yvonne -n 200 -t 200 -o /dev/null";
    let alone = sbatch(slurm, &format!("--hold --parsable {one} --wrap true"))?;
    slurm.run("scancel", &[&alone])?;
    let both = sbatch(slurm, &format!("{one} : {one} --wrap true"));
    let said = format!("{:#}", both.err().context("it was taken")?);
    ensure!(said.contains("this job needs 100.0"), "{said}");
    Ok(())
}

/// What no job can ask for is refused, the next job is asked for, and who may run for ages is held to it.
fn what_makes_no_sense_is_refused_and_blinds_nobody(side: &Side) -> anyhow::Result<()> {
    let slurm = &side.slurm;
    for (words, why) in [
        ("-A yvonne -t 4000-0", "this job needs"),
        ("-A $(printf 'x\\377') -t 1", "no call: "),
        ("-A $(printf %066000d 0) -t 1", "too long"),
    ] {
        let refused = sbatch(slurm, &format!("{words} --wrap true"));
        let taken = || format!("{words} was taken");
        let said = format!("{:#}", refused.err().with_context(taken)?);
        ensure!(said.contains(why), "{said}");
        refused_with_a_message(side, "xavier: 0.")?;
    }
    slurm.open(false)?;
    let job = slurm.submit("yvonne", 1, Duration::from_secs(1), &[])?;
    let of_job = format!("JobId={job}");
    slurm.run("scontrol", &["update", &of_job, "TimeLimit=4000-0"])?;
    slurm.open(true)?;
    await_that("a job of eleven years that is put back", || {
        let state = slurm.run("squeue", &["-h", "-j", &job, "-O", "State,Comment:99"])?;
        Ok(state.starts_with("PENDING") && state.contains("fairmesh quota: yvonne: "))
    })?;
    slurm.run("scancel", &[&job])?;
    Ok(())
}

/// What is submitted is refused, and what starts goes back into the queue, while no node answers; it goes by itself
/// when one does.
fn silence_is_a_refusal_where_the_owner_wants_it(side: &mut Side) -> anyhow::Result<()> {
    let config = fs::read_to_string(side.site.config())?;
    let refuse = config.replace("quota = true\n", "quota = true\non_silence = \"refuse\"\n");
    ensure!(refuse != config, "nothing to replace");
    fs::write(side.site.config(), refuse)?;
    quota::set_up_again(PROGRAM, &side.site, &side.slurm)?;
    side.slurm.open(false)?;
    let job = side
        .slurm
        .submit("yvonne", 4, Duration::from_secs(1), &[])?;
    side.stop_node()?;
    let refused = sbatch(&side.slurm, "-A yvonne -t 1 --wrap true");
    let said = format!("{:#}", refused.err().context("it was taken unasked")?);
    ensure!(
        said.contains("does not say whether this job has credit"),
        "{said}"
    );
    side.slurm.open(true)?;
    let state = |slurm: &Slurm| -> anyhow::Result<String> {
        slurm.run(
            "squeue",
            &["-h", "-j", &job, "-t", "all", "-O", "State,Comment:99"],
        )
    };
    await_that("a job that is put back", || {
        let state = state(&side.slurm)?;
        Ok(state.starts_with("PENDING") && state.contains("fairmesh quota: "))
    })?;
    side.start_node()?;
    await_that("that it goes by itself", || {
        Ok(state(&side.slurm)?.starts_with("COMPLETED"))
    })
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Arrays, a job of two components, one that is requeued while it runs, one that is cancelled: what the feed
/// reports of each run is what was held for it, so nothing stays held.
fn runs_are_charged_by_the_name_they_held_by(side: &Side) -> anyhow::Result<()> {
    let slurm = &side.slurm;
    let second = Duration::from_secs(1);
    let component = "-A yvonne -t 5 -o /dev/null";
    sbatch(
        slurm,
        &format!("{component} -n 5 : {component} -n 7 --wrap 'sleep 1'"),
    )?;
    slurm.submit("yvonne", 2, second, &["--array=1-3%2"])?;
    let again = slurm.submit("yvonne", 3, 60 * second, &["--requeue"])?;
    let gone = slurm.submit("yvonne", 3, 60 * second, &[])?;
    await_that("holds", || Ok(amount(side, "yvonne", "held")? > 0))?;
    let runs = |job: &str| {
        let state = slurm.run("squeue", &["-h", "-j", job, "-o", "%T"])?;
        anyhow::Ok(state == "RUNNING")
    };
    await_that("both run", || Ok(runs(&again)? && runs(&gone)?))?;
    slurm.run("scontrol", &["requeue", &again])?;
    slurm.run("scancel", &[&gone])?;
    await_that("the second run", || {
        let row = [
            "-h",
            "-j",
            &again,
            "-O",
            "State:20,RestartCnt:20,StartTime:20",
        ];
        let state = slurm.run("squeue", &row)?;
        let words: Vec<&str> = state.split_whitespace().collect();
        // Slurm puts it off for two minutes. Within the second of its first run its node would not take it.
        if let ["PENDING", "1", start] = words[..]
            && start.parse::<u64>().is_ok_and(|start| start > now_s() + 60)
        {
            let job = format!("JobId={again}");
            slurm.run("scontrol", &["update", &job, "StartTime=now+3"])?;
        }
        Ok(words.starts_with(&["RUNNING", "1"]))
    })?;
    slurm.run("scancel", &[&again])?;
    await_that("nothing that runs", || {
        let left = slurm.run(
            "squeue",
            &["-h", "-A", "yvonne", "-t", "PD,R,CF,CG", "-o", "%i"],
        )?;
        Ok(left.is_empty())
    })?;
    let amounts = || {
        let [used, held] = ["used", "held"].map(|of| amount(side, "yvonne", of));
        anyhow::Ok((used?, held?, side.node()?.usage("physics", "yvonne")?))
    };
    let is_charged = await_that("nothing that is held, and all that ran charged", || {
        let (used, held, counted) = amounts()?;
        Ok(used > 0 && used == counted && held == 0)
    });
    is_charged.with_context(|| {
        format!(
            "used, held and counted: {:?}\n{:#?}",
            amounts(),
            slurm.started()
        )
    })?;
    let over = amount(side, "yvonne", "overdraft")?;
    ensure!(over == 0, "an overdraft of {over}");
    Ok(())
}

/// A project with credit for one job of four cores and a minute at a quarter of its price, and not at the whole.
#[test]
fn a_quality_of_service_costs_what_the_charter_says_at_submission_start_and_end()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let kind = Kind {
        name: "alpha",
        cpus: 8,
        nodes: 1,
        accounts: Accounts::Slurmdbd,
        conf: "",
        plugins: None,
    };
    let Some(slurm) = Slurm::start(&folder.path().join("slurm"), kind)? else {
        return Ok(());
    };
    for words in [
        "add account xavier",
        "add user root account=xavier",
        "add qos cheap",
        "modify user root set qos+=cheap",
    ] {
        let words: Vec<&str> = ["-i"].into_iter().chain(words.split(' ')).collect();
        slurm.run("sacctmgr", &words)?;
    }
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let quarter = Share::from_percent(25).context("a percentage")?;
    let vo = Vo::found_with("physics", &[(site.id, "a")], &["xavier"], |charter| {
        charter.discounts.preemptible = quarter;
    })?;
    let spool = folder.path().display();
    let more = format!(
        "quota = true\nwith_node = true\nspool = \"{spool}\"\n[charging]\npreemptible = [\"cheap\"]\n"
    );
    configure(&site, "a", &[], &vo, &slurm, &more)?;
    let node = site.start()?;
    vo.publish(&node)?;
    let credit = vo.grant("/xavier", 200_000, &[site.id], |_| {})?;
    ensure!(node.http("POST", "/v1/documents", &credit)?.status == 200);
    if !quota::set_up(PROGRAM, &site, &slurm)? {
        return Ok(());
    }
    let amount = |name: &str| quota::amount(&node, "xavier", name);
    await_that("rights", || Ok(amount("here")? == 200_000))?;

    let refused = slurm.submit("xavier", 4, Duration::from_secs(3), &["-t", "1"]);
    let said = format!(
        "{:#}",
        refused.err().context("it costs more than there is")?
    );
    ensure!(said.contains("this job needs 0.1"), "{said}");
    slurm.submit(
        "xavier",
        4,
        Duration::from_secs(3),
        &["-t", "1", "--qos=cheap"],
    )?;
    await_that("a quarter to be held", || {
        ensure!(amount("held")? <= 60_000, "held at another price");
        Ok(amount("held")? == 60_000)
    })?;
    await_that("a quarter to be charged", || {
        let (ran, _) = ran(&slurm)?;
        Ok(ran > 0 && amount("held")? == 0 && amount("used")? == ran / 4)
    })?;
    Ok(())
}
