//! The Slurm plug-in `site_factor/fairmesh` in a real slurmctld, beside a real node.

use std::fs;
use std::process::Command;

use anyhow::ensure;
use fairmesh_tests::bench::Bench;
use fairmesh_tests::queue::each_account_has_its_place;
use fairmesh_tests::records;
use fairmesh_tests::slurm::{Accounts, await_that, plugin};
use fairmesh_tests::story::{
    CORES_A, CORES_B, both_are_served_alike, queue_at_b, xavier_is_busy_at_a, yvonne_catches_up,
};
use fairmesh_tests::twins::{Make, Side, Twins};

use crate::PROGRAM;
use crate::importance::sync_would_change_nothing;

#[test]
fn slurm_serves_whoever_used_less_of_the_grid() -> anyhow::Result<()> {
    let Some(plugin) = plugin(PROGRAM)? else {
        return Ok(());
    };
    let Some(mut twins) = Twins::start(Make {
        program: PROGRAM,
        accounts: Accounts::Filetxt,
        plugin: Some(&plugin),
        cpus: [CORES_A, CORES_B],
        feed_apart: true,
        quota: false,
    })?
    else {
        return Ok(());
    };
    the_unit_is_for_the_feed_alone(&twins.b)?;
    let (at_a, one) = xavier_is_busy_at_a(&twins)?;
    let (last, ahead) = both_are_served_alike(&twins, one / 2)?;
    // Healed, it turns.
    queue_at_b(&twins, 5, one)?;
    twins.heal()?;
    yvonne_catches_up(&twins, last, ahead + i64::try_from(at_a)?)
}

/// `setup` sees the plug-in, and leaves priorities to it.
fn the_unit_is_for_the_feed_alone(side: &Side) -> anyhow::Result<()> {
    let folder = side.site.folder().join("slurm-files");
    let output = Command::new(PROGRAM)
        .args(["slurm", "setup", "--write"])
        .arg(&folder)
        .arg("--config")
        .arg(side.site.config())
        .output()?;
    let unit = fs::read_to_string(folder.join("fairmesh-slurm.service"))?;
    ensure!(unit.contains(" slurm feed --config "), "{unit}");
    let words = String::from_utf8_lossy(&output.stdout);
    ensure!(!words.contains("PrioritySiteFactorPlugin"), "{words}");
    Ok(())
}

#[test]
fn jobs_start_by_their_grid_wide_factors_and_a_node_that_is_away_changes_nothing()
-> anyhow::Result<()> {
    let Some(bench) = Bench::new(PROGRAM)? else {
        return Ok(());
    };
    let (site, node) = bench.node()?;
    let usage = |user, first, count| {
        let records = records("physics", user, first, count);
        let answer = node.http("POST", "/v1/records", &records)?;
        ensure!(answer.status == 200, "{answer:?}");
        anyhow::Ok(())
    };
    // Daemon has used most, games a little, man nothing.
    usage("daemon", 0, 60)?;
    usage("games", 100, 20)?;
    let cluster = bench.slurm(&format!("{},old=3", bench.parameters(&site)))?;
    let slurm = &cluster.slurm;
    let gate = cluster.close_gate()?;
    let users = ["daemon", "games", "man", "daemon", "games", "man"];
    for user in users {
        cluster.queue(user, &format!("echo {user} >> {}", bench.order().display()))?;
    }
    await_that("site factors in the order of the usage", || {
        let factors = slurm.site_factors()?;
        let of = |user| {
            factors
                .iter()
                .filter(move |(who, _)| who == user)
                .map(|it| it.1)
        };
        let ranked = of("man").min() > of("games").max() && of("games").min() > of("daemon").max();
        Ok(ranked && factors.len() == users.len())
    })?;

    // The node goes; its last word stays, and the log says how old it is.
    let before = slurm.site_factors()?;
    node.kill()?;
    slurm.until_logged("DATA IS OLD: the node has not answered for")?;
    assert_eq!(slurm.site_factors()?, before);
    fs::write(gate, "")?;
    await_that("all jobs have run", || {
        Ok(fs::read_to_string(bench.order())?.lines().count() == users.len())
    })?;
    let order = fs::read_to_string(bench.order())?;
    assert_eq!(order, "man\nman\ngames\ngames\ndaemon\ndaemon\n");
    assert_eq!(slurm.log()?.matches("DATA IS OLD").count(), 1, "said once");

    // The node comes back; so does the word.
    let _node = site.start()?;
    slurm.until_logged("the node answers again")
}

#[test]
fn each_of_many_accounts_has_its_place_in_sprio_and_starts_there() -> anyhow::Result<()> {
    each_account_has_its_place(PROGRAM, 120, 20)
}

/// Three jobs of one user in one account, whose groups and partitions the node maps to two entries.
#[test]
fn a_job_stands_where_its_group_and_its_partition_are_charged() -> anyhow::Result<()> {
    let Some(bench) = Bench::new(PROGRAM)? else {
        return Ok(());
    };
    let site = bench.site()?;
    let config = "[site]\nname = \"site\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
                  [history]\nhalf_life = \"none\"\nhorizon = \"30d\"\n\
                  [[identity]]\ngroup = \"games\"\npath = \"/lab/games/{user}\"\n\
                  [[identity]]\npartition = \"extra\"\npath = \"/lab/games/{user}\"\n\
                  [[identity]]\npath = \"/lab/other/{user}\"\n\
                  [shares]\n\"/lab\" = 1\n\"/lab/games\" = 1\n\"/lab/games/man\" = 1\n\
                  \"/lab/other\" = 1\n\"/lab/other/man\" = 1\n";
    fs::write(site.config(), config)?;
    let node = site.start()?;
    let usage = String::from_utf8(records("physics", "man", 0, 60))?;
    let usage = usage.replace("\"account\"", "\"group\":\"games\",\"account\"");
    let answer = node.http("POST", "/v1/records", usage.as_bytes())?;
    ensure!(answer.body["counted"] == 60, "{answer:?}");

    let cluster = bench.slurm(&bench.parameters(&site))?;
    let _gate = cluster.close_gate()?;
    let at_games = cluster.submit("man", &["--gid=games"], "true")?;
    let at_man = cluster.submit("man", &["--gid=man"], "true")?;
    let slurm = &cluster.slurm;
    let extra = ["create", "PartitionName=extra", "Nodes=ALL", "State=UP"];
    slurm.run("scontrol", &extra)?;
    let at_extra = cluster.submit("man", &["--gid=man", "-p", "extra"], "true")?;
    await_that(
        "two jobs that are charged to games, and one before them",
        || {
            let factors = slurm.site_factors_by("JOBID")?;
            let of = |job: &str| factors.iter().find(|(id, _)| id == job).map(|it| it.1);
            let is_charged_alike = of(&at_games) == of(&at_extra) && of(&at_games) > Some(0);
            Ok(is_charged_alike && of(&at_man) > of(&at_games))
        },
    )?;
    sync_would_change_nothing(&cluster, &site, 3)
}

#[test]
fn wrong_parameters_disable_it_loudly_and_slurm_schedules_on() -> anyhow::Result<()> {
    let Some(bench) = Bench::new(PROGRAM)? else {
        return Ok(());
    };
    let cluster = bench.slurm("socket=/nowhere,wait=3")?;
    let slurm = &cluster.slurm;
    slurm.until_logged("site_factor/fairmesh: DISABLED: `wait` is none of socket, weight")?;
    let runs = |word: &str, written: &str| {
        cluster.queue(
            "games",
            &format!("echo {word} >> {}", bench.order().display()),
        )?;
        await_that("a job that has run", || {
            Ok(fs::read_to_string(bench.order())? == written)
        })
    };
    runs("ran", "ran\n")?;

    // Mended without a restart; the site's node is not there yet.
    slurm.configure("wait=3", "weight=3")?;
    slurm.until_logged("NO ANSWER yet from /nowhere")?;
    runs("again", "ran\nagain\n")
}

#[test]
fn a_held_job_keeps_its_hold_and_gets_its_factor_when_it_is_released() -> anyhow::Result<()> {
    let Some(bench) = Bench::new(PROGRAM)? else {
        return Ok(());
    };
    let (site, _node) = bench.node()?;
    let cluster = bench.slurm(&bench.parameters(&site))?;
    let slurm = &cluster.slurm;
    let _gate = cluster.close_gate()?;
    let held = cluster.submit("man", &["--hold"], "true")?;
    cluster.queue("games", "true")?;
    let has_factor = |user: &str| {
        let factors = slurm.site_factors()?;
        Ok(factors
            .iter()
            .any(|(who, factor)| who == user && *factor > 0))
    };
    await_that("the other job's factor", || has_factor("games"))?;
    assert_eq!(slurm.run("squeue", &["-h", "-o", "%Q", "-j", &held])?, "0");
    slurm.run("scontrol", &["release", &held])?;
    await_that("the released job's factor", || has_factor("man"))
}
