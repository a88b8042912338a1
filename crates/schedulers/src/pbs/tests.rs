//! Dialogues with a PBS in the forms of OpenPBS 23.06: what `qstat` prints, what `qalter` complains of and does then, and
//! logs of the server.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use fairmesh_client::FACTOR_MAX;
use fairmesh_records::WallRule;

use super::*;
use crate::job::State;
use crate::now;
use crate::plan::{Waiting, plan};

/// Waiting jobs: ann's, whose name would be a record if it could; an array of bob's of which tasks 1 and 2 have begun; a
/// held one. `@@` stands for the mark.
const QSTAT: &str = r"Job Id: 101.pbs@@Job_Name=x\n101.pbs|euser=eve@@Job_Owner=ann@login.example@@job_state=Q@@queue=workq@@server=pbs@@ctime=Wed Nov 25 14:12:56 2026@@Hold_Types=n@@Priority=30@@Resource_List.fairmesh=7@@Resource_List.ncpus=4@@Resource_List.select=1:ncpus=4@@Resource_List.walltime=01:00:00@@substate=10@@Variable_List=PBS_O_HOME=/home/ann,X=job_state=R\,euser=eve@@euser=ann@@egroup=users@@Account_Name=bio@@project=_pbs_project_default
Job Id: 102[].pbs@@Job_Name=sweep@@Job_Owner=bob@login.example@@job_state=B@@queue=workq@@array=True@@array_indices_submitted=1-4@@array_indices_remaining=3-4@@Priority=0@@Resource_List.ncpus=2@@stime=Wed Nov 25 14:13:00 2026@@euser=bob@@project=games
Job Id: 103.pbs@@Job_Name=later@@Job_Owner=ann@login.example@@job_state=H@@queue=workq@@Hold_Types=u@@Priority=0@@Resource_List.ncpus=1@@euser=ann@@project=_pbs_project_default
Job Id: 104.pbs@@Job_Name=stands@@Job_Owner=ann@login.example@@resources_used.walltime=00:01:40@@job_state=S@@queue=workq@@exec_host=n1/0*8+n2/0*8@@exec_vnode=(n1:ncpus=8:ngpus=1:mem=1048576kb)+(n2:ncpus=8)@@Resource_List.ncpus=16@@Resource_List.walltime=02:00:00@@stime=Thu Nov  5 04:03:02 2026@@euser=ann@@project=bio
";

/// What `-t` adds.
const TASKS: &str = r"Job Id: 102[1].pbs@@Job_Owner=bob@login.example@@job_state=R@@queue=workq@@exec_host=n3/0*2@@exec_vnode=(n3:ncpus=2)@@Resource_List.ncpus=2@@stime=Wed Nov 25 14:13:00 2026@@euser=bob@@project=games
Job Id: 102[2].pbs@@Job_Owner=bob@login.example@@job_state=X@@queue=workq@@Resource_List.ncpus=2@@stime=Wed Nov 25 14:13:00 2026@@euser=bob@@project=games
nonsense
";

/// As OpenPBS' does it: all jobs in turn; it passes over those that are gone, and ends at one that runs.
const QALTER: &str = r#"echo "$*" >> ${0%/*}/said
shift 2
failed=0
for job; do
  case $job in
    *7.pbs) echo "qalter: Unknown Job Id $job" >&2; failed=153;;
    *8.pbs) echo "qalter: Job has finished" >&2; failed=167;;
    *9.pbs) echo "qalter: Cannot modify attribute while job running  $job" >&2; exit 166;;
    *6.pbs) echo "qalter: Unknown resource  $job" >&2; exit 173;;
    *5.pbs) echo "Connection refused" >&2; echo "qalter: cannot connect to server pbs (errno=15010)" >&2; failed=162;;
    *) echo $job >> ${0%/*}/altered;;
  esac
done
exit $failed"#;

/// A PBS with these programs.
fn pbs() -> anyhow::Result<(tempfile::TempDir, Pbs)> {
    let folder = tempfile::tempdir()?;
    let qstat = "cat ${0%/*}/queue $(test \"$6\" = -t && echo ${0%/*}/tasks) | sed \"s/@@/$5/g\"";
    let qstat = format!("echo \"$1 $2 $3 $4 $6\" >> ${{0%/*}}/said\n{qstat}");
    for (name, script) in [("qstat", &*qstat), ("qalter", QALTER)] {
        let program = folder.path().join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(folder.path().join("queue"), QSTAT)?;
    fs::write(folder.path().join("tasks"), TASKS)?;
    let mut settings = PbsSettings::defaults(folder.path());
    settings.common.bin_dir = Some(folder.path().to_owned());
    settings.common.rate = 10_000;
    settings.home = folder.path().to_owned();
    fs::create_dir_all(settings.accounting())?;
    Ok((folder, Pbs::new(settings)))
}

fn said(folder: &tempfile::TempDir, file: &str) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(folder.path().join(file))?;
    Ok(text
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect())
}

#[tokio::test]
async fn what_waits_is_listed_and_no_name_adds_a_line_or_an_attribute() -> anyhow::Result<()> {
    let (folder, pbs) = pbs()?;
    let (jobs, bad) = pbs.queue(false).await?;
    assert!(bad.is_empty(), "{bad:?}");
    let [one, array, held] = &jobs[..] else {
        panic!("{jobs:?}")
    };
    assert_eq!((&*one.target, &*one.user), ("101.pbs", "ann"));
    assert_eq!(one.account.as_deref(), Some("bio"));
    assert_eq!((one.cpus, one.own.importance.get()), (4, 130));
    assert_eq!((&*array.target, array.held), ("102[].pbs", false));
    assert_eq!(array.account.as_deref(), Some("games"));
    assert_eq!((held.held, held.account.as_deref()), (true, None));
    let numbers: Vec<i64> = pbs.numbers().await?.into_values().collect();
    assert_eq!(numbers, [7, 0, 0]);
    assert_eq!(said(&folder, "said")?, ["-f -F dsv -D", "-f -F dsv -D"]);
    Ok(())
}

#[tokio::test]
async fn what_runs_is_listed_task_by_task_with_what_it_holds() -> anyhow::Result<()> {
    let (folder, pbs) = pbs()?;
    let (jobs, bad) = pbs.queue(true).await?;
    assert_eq!(bad, ["nonsense"]);
    assert_eq!(said(&folder, "said")?, ["-f -F dsv -D -t"]);
    let running = jobs.iter().filter(|job| job.state == State::Running);
    let [stands, task] = &running.collect::<Vec<_>>()[..] else {
        panic!("{jobs:?}")
    };
    let held = (stands.cpus, stands.gpus, stands.mem_mib, stands.nodes);
    assert_eq!(held, (16, 1, 1_024, 2));
    assert_eq!((stands.used, stands.limit), (100, Some(7_200)));
    assert_eq!(stands.host.as_deref(), Some("n1"));
    assert_eq!(stands.start, Some(1_793_851_382));
    assert_eq!(task.record_name(), "102[1].pbs");
    assert_eq!(task.used, (now().0 / 1_000).saturating_sub(1_795_615_980));
    let ids: std::collections::BTreeSet<u64> = jobs.iter().map(|job| job.id).collect();
    assert_eq!(ids.len(), 5, "no two have one id");
    Ok(())
}

/// Ten thousand users with one job each: as many numbers, in the order of their factors, a hundred seconds' worth.
#[tokio::test]
async fn ten_thousand_users_have_numbers_of_their_own_and_the_best_is_set_first()
-> anyhow::Result<()> {
    let (folder, pbs) = pbs()?;
    let users = 10_000;
    let job = |user: u32| Waiting {
        id: user.into(),
        target: format!("{user}0.pbs"),
        current: Some(0),
        factor: Some(FACTOR_MAX / users * user),
        own: <_>::default(),
        held: false,
    };
    let jobs: Vec<Waiting> = (1..=users).map(job).collect();
    let scale = pbs.settings.common.scale;
    let updates = plan(&jobs, &scale, FACTOR_MAX / users, 0);
    assert!(updates.is_sorted_by(|one, next| one.to > next.to));
    assert_eq!(updates.len(), 10_000);
    assert_eq!(pbs.set(&updates[..2]).await?, []);
    let first = updates[..2].iter();
    let first = first.map(|job| format!("-l fairmesh={} {}", job.to, job.target));
    assert_eq!(said(&folder, "said")?, first.collect::<Vec<_>>());
    Ok(())
}

fn updates(targets: &[&str]) -> Vec<Update> {
    let update = |(id, target): (u64, &&str)| Update {
        id,
        target: (*target).to_owned(),
        from: None,
        to: 500,
    };
    (1..).zip(targets).map(update).collect()
}

#[tokio::test]
async fn a_job_that_has_started_keeps_none_behind_it_from_its_number() -> anyhow::Result<()> {
    let (folder, pbs) = pbs()?;
    let jobs = updates(&["1.pbs", "9.pbs", "2.pbs", "7.pbs", "8.pbs", "3[].pbs"]);
    let refused = pbs.set(&jobs).await?;
    let told = refused.iter().map(|it| (it.job, it.is_gone));
    let told: Vec<_> = told.collect();
    assert_eq!(told[..2], [(Some(2), true), (Some(4), true)]);
    assert!(
        told[2..].iter().all(|told| *told == (None, true)),
        "{told:?}"
    );
    let altered: std::collections::BTreeSet<String> =
        said(&folder, "altered")?.into_iter().collect();
    assert_eq!(
        altered.into_iter().collect::<Vec<_>>(),
        ["1.pbs", "2.pbs", "3[].pbs"]
    );
    let calls = said(&folder, "said")?;
    assert_eq!(
        calls[0],
        "-l fairmesh=500 1.pbs 9.pbs 2.pbs 7.pbs 8.pbs 3[].pbs"
    );
    assert_eq!(calls[1], "-l fairmesh=500 2.pbs 7.pbs 8.pbs 3[].pbs");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_away_and_a_resource_that_is_not_there_are_no_matter_of_one_job()
-> anyhow::Result<()> {
    let (folder, pbs) = pbs()?;
    let away = pbs.set(&updates(&["5.pbs"])).await.expect_err("away");
    assert!(away.to_string().contains("cannot connect"), "{away:#}");
    let lacks = pbs.set(&updates(&["6.pbs", "16.pbs", "26.pbs"])).await;
    let lacks = lacks.expect_err("no such resource").to_string();
    assert!(lacks.contains("Unknown resource"), "{lacks}");
    assert_eq!(said(&folder, "said")?.len(), 3, "not once for each job");
    let one = pbs
        .set(&updates(&["1.pbs", "6.pbs", "2.pbs", "16.pbs", "3.pbs"]))
        .await?;
    assert_eq!(
        one.iter().filter_map(|it| it.job).collect::<Vec<_>>(),
        [2, 4]
    );
    assert!(!one[0].is_gone && one[0].words.contains("6.pbs"));
    Ok(())
}

/// A line of the server's, by the order of `account_jobend` in OpenPBS' `accounting.c`.
fn ended(event: &str, job: &str, whose: &str, (start, end): (u64, u64), ncpus: u32) -> String {
    let host = match job.contains("[]") {
        true => String::new(),
        false => format!("exec_host=n1/0*{ncpus} exec_vnode=(n1:ncpus={ncpus}) "),
    };
    format!(
        "11/25/2026 14:20:00;{event};{job};{whose} jobname=STDIN queue=workq ctime=1795615900 qtime=1795615900 \
         etime=1795615900 start={start} {host}Resource_List.fairmesh=500 Resource_List.ncpus={ncpus} \
         Resource_List.place=pack Resource_List.select=1:ncpus={ncpus} session=4711 end={end} Exit_status=0 \
         resources_used.cpupercent=0 resources_used.cput=00:00:01 resources_used.mem=600kb \
         resources_used.ncpus={ncpus} resources_used.vmem=600kb resources_used.walltime=00:00:07 run_count=1\n"
    )
}

const ANN: &str = "user=ann group=users account=\"bio\" project=_pbs_project_default";
const BOB: &str = "user=bob group=users project=games";

/// Reads until there is no more, as the feed does; gives jobs with their core-seconds, and complaints.
async fn all(pbs: &Pbs, cursor: &mut Cursor) -> anyhow::Result<(Vec<(String, u64)>, Vec<String>)> {
    let (mut jobs, mut bad) = (Vec::new(), Vec::new());
    loop {
        let read = pbs.ended(cursor).await?;
        for record in read.records {
            let usage = pbs.settings.common.charge_rule.usage(&record, now())?;
            let seconds = usage.end.since(usage.start).0 / 1_000;
            let whose = usage.origin.account.unwrap_or_default();
            let job = format!("{} of {whose}", record.key.job);
            jobs.push((job, seconds * u64::from(usage.cores)));
        }
        bad.extend(read.bad);
        *cursor = serde_json::from_slice(&serde_json::to_vec(&read.cursor)?)?;
        if !read.more {
            return Ok((jobs, bad));
        }
    }
}

#[tokio::test]
async fn logs_are_read_from_day_to_day_and_nothing_twice() -> anyhow::Result<()> {
    let (_folder, pbs) = pbs()?;
    let day = |name: &str| pbs.settings.accounting().join(name);
    let mut first = String::new();
    for line in [
        "11/25/2026 14:20:00;L;license;floating license hour:0 day:0 month:0 max:0\n".to_owned(),
        "11/25/2026 14:20:00;a;101.pbs;Resource_List.fairmesh=500\n".to_owned(),
        ended("R", "101.pbs", ANN, (1_795_616_000, 1_795_616_010), 4),
        ended("E", "101.pbs", ANN, (1_795_616_100, 1_795_616_125), 4),
        ended("E", "102[1].pbs", BOB, (1_795_616_000, 1_795_616_007), 2),
        ended("E", "102[].pbs", BOB, (1_795_616_000, 1_795_616_007), 2),
    ] {
        first.push_str(&line);
    }
    fs::write(day("20261125"), &first)?;
    fs::write(day("20261125.gz"), "packed")?;
    let mut cursor = Cursor::default();
    let (jobs, bad) = all(&pbs, &mut cursor).await?;
    assert!(bad.is_empty(), "{bad:?}");
    let told = |job: &str, seconds| (job.to_owned(), seconds);
    let (of_ann, of_bob) = ("101.pbs of bio", "102[1].pbs of games");
    assert_eq!(
        jobs,
        [told(of_ann, 40), told(of_ann, 100), told(of_bob, 14)]
    );
    assert_eq!(all(&pbs, &mut cursor).await?.0, []);

    // More on the first day, while the loop is away, and two days more; the last line is still being written.
    let late = ended("E", "103.pbs", BOB, (1_795_616_000, 1_795_616_001), 1);
    fs::write(day("20261125"), first + &late)?;
    fs::write(day("20261126"), "")?;
    let next = ended("E", "104.pbs", ANN, (1_795_702_400, 1_795_702_403), 16);
    fs::write(day("20261127"), &next[..next.len() - 5])?;
    assert_eq!(
        all(&pbs, &mut cursor).await?.0,
        [told("103.pbs of games", 1)]
    );
    fs::write(day("20261127"), &next)?;
    fs::remove_file(day("20261125"))?;
    assert_eq!(
        all(&pbs, &mut cursor).await?.0,
        [told("104.pbs of bio", 48)]
    );
    assert_eq!(all(&pbs, &mut cursor).await?.0, []);
    Ok(())
}

/// What a user can do who writes attributes into his account, where no hook keeps him from it.
#[tokio::test]
async fn a_record_with_an_attribute_twice_is_named_and_counts_nothing() -> anyhow::Result<()> {
    let (_folder, pbs) = pbs()?;
    let mut log = String::new();
    for forged in [
        "start=1795616124",
        "exec_vnode=(n:ncpus=1)",
        "user=bob",
        "end=1795616101",
    ] {
        let whose = format!("user=eve group=users account=\"x {forged}\" project=games");
        log += &ended("E", "9.pbs", &whose, (1_795_616_100, 1_795_616_125), 4);
    }
    write!(
        log,
        "{}",
        ended("E", "10.pbs", BOB, (1_795_616_100, 1_795_616_101), 4)
    )?;
    log += "11/25/2026 14:20:00;E;11.pbs;user=eve group=users project=x start=1795616100\n";
    fs::write(pbs.settings.accounting().join("20261125"), log)?;
    let (jobs, bad) = all(&pbs, &mut Cursor::default()).await?;
    assert_eq!(jobs, [("10.pbs of games".to_owned(), 4)]);
    assert_eq!(bad.len(), 5, "{bad:?}");
    assert!(
        bad[..4].iter().all(|why| why.contains("stands twice")),
        "{bad:?}"
    );
    assert!(
        bad[4].starts_with("line 6: ") && bad[4].ends_with("(20261125)"),
        "{bad:?}"
    );
    Ok(())
}

/// For 18 of its 25 seconds it was suspended, and PBS says so.
#[tokio::test]
async fn suspended_time_is_left_out_where_the_site_says_so() -> anyhow::Result<()> {
    let (_folder, mut pbs) = pbs()?;
    let log = ended("E", "1.pbs", BOB, (1_795_616_100, 1_795_616_125), 4);
    fs::write(pbs.settings.accounting().join("20261125"), log)?;
    for (wall, seconds) in [(WallRule::Held, 100), (WallRule::Stated, 28)] {
        pbs.settings.common.charge_rule.wall = wall;
        let (jobs, _) = all(&pbs, &mut Cursor::default()).await?;
        assert_eq!(jobs, [("1.pbs of games".to_owned(), seconds)]);
    }
    Ok(())
}
