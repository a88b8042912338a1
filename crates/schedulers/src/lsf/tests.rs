//! Dialogues with an LSF in the forms of IBM's manuals for 10.1.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use fairmesh_client::FACTOR_MAX;
use fairmesh_records::ChargeRule;

use super::*;
use crate::now;
use crate::plan::{Waiting, plan};

/// Waiting, held and running jobs, and two elements of an array. eve's project has line ends in it: she says that job 101
/// has hers, and that there is a job 999.
const BJOBS: &str = r#"echo "bjobs $*" >> ${0%/*}/said
case "$5" in
  "jobid stat "*) printf '101^PEND^ann^normal^4\n102^PEND^bob^normal^1\n103^PSUSP^ann^normal^1\n104^RUN^ann^normal^8\n'
    printf '105^PEND^eve^short^1\n106^PSUSP^bob^normal^2\n106^PEND^bob^normal^2\nnonsense\n';;
  "jobid proj_name "*) printf '101^bio\n102^games\n103^bio\n104^bio\n105^x\n101^games\n999^bio\n106^games\n106^games\n';;
  *) printf 'JOBID   USER  STAT  QUEUE   FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME    APS\n'
    printf '102     bob   PEND  normal  hostA                   myjob      Feb 12 01:09  (11)\n'
    printf '101     ann   PEND  normal  hostA                   my job     Feb 12 01:08  109.00\n'
    printf '105     eve   PEND  short   hostA                   x          Feb 12 01:08    -\n'
    printf '106     bob   PEND  normal  hostA                   s[1]       Feb 12 01:08  (8)\n'
    printf '106     bob   PEND  normal  hostA                   s[2]       Feb 12 01:08  (9)\n';;
esac"#;

const BMOD: &str = r#"echo "bmod $*" >> ${0%/*}/said
for job; do :; done
case $job in
  *7) echo "Job <$job> is not found" >&2; exit 255;;
  *9) echo "$job: Permission denied" >&2; exit 255;;
  *) echo "Parameters of job <$job> are being changed";;
esac"#;

/// An LSF with these programs.
fn lsf(bjobs: &str) -> anyhow::Result<(tempfile::TempDir, Lsf)> {
    let folder = tempfile::tempdir()?;
    let policies =
        "printf 'QUEUE: normal\\n\\nSCHEDULING POLICIES:  APS_PRIORITY  NO_INTERACTIVE\\n'";
    for (name, script) in [("bjobs", bjobs), ("bmod", BMOD), ("bqueues", policies)] {
        let program = folder.path().join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    let mut settings = LsfSettings::defaults(folder.path());
    settings.common.bin_dir = Some(folder.path().to_owned());
    settings.common.rate = 10_000;
    settings.accounting = folder.path().join("lsb.acct");
    Ok((folder, Lsf::new(settings)))
}

fn said(folder: &tempfile::TempDir) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(folder.path().join("said"))?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn what_waits_is_listed_and_no_project_makes_a_job_or_takes_anothers() -> anyhow::Result<()> {
    let (folder, lsf) = lsf(BJOBS)?;
    let (jobs, bad) = lsf.queue(false).await?;
    let told = jobs.iter().map(|job| {
        let account = job.account.as_deref().unwrap_or_default();
        (job.id, &*job.user, account, job.held, job.cpus)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (102, "bob", "games", false, 1),
            (103, "ann", "bio", true, 1),
            (105, "eve", "x", false, 1),
            (106, "bob", "games", false, 2),
        ]
    );
    assert_eq!(bad.len(), 2, "{bad:?}");
    assert!(
        bad[0] == "nonsense" && bad[1].starts_with("job 101 "),
        "{bad:?}"
    );
    let numbers = lsf.numbers().await?;
    assert_eq!(
        numbers.into_iter().collect::<Vec<_>>(),
        [(101, 0), (102, 11), (105, 0)]
    );
    assert_eq!(
        said(&folder)?,
        [
            "bjobs -u all -noheader -o jobid stat user queue nreq_slot delimiter='^'",
            "bjobs -u all -noheader -o jobid proj_name delimiter='^'",
            "bjobs -u all -aps",
        ]
    );
    assert!(lsf.has_priorities().await?);
    Ok(())
}

#[tokio::test]
async fn an_empty_queue_is_told_from_an_lsf_that_is_away() -> anyhow::Result<()> {
    let (_folder, empty) = lsf("echo 'No unfinished job found' >&2; exit 255")?;
    assert_eq!(empty.queue(false).await?, (Vec::new(), Vec::new()));
    let (_folder, away) =
        lsf("echo 'Failed in an LSF library call: LIM is down; try later' >&2; exit 255")?;
    let error = away.queue(false).await.expect_err("away");
    assert!(error.to_string().contains("LIM is down"), "{error:#}");
    Ok(())
}

/// Each of ten thousand users has a value of his own that a float of 32 bits holds, and none is 0.
#[tokio::test]
async fn ten_thousand_users_have_values_of_their_own_and_the_best_is_set_first()
-> anyhow::Result<()> {
    let (folder, lsf) = lsf(BJOBS)?;
    let users = 10_000;
    let job = |user: u32| Waiting {
        id: user.into(),
        target: format!("{user}0"),
        current: Some(0),
        factor: Some(FACTOR_MAX / users * user),
        own: <_>::default(),
        held: false,
    };
    let jobs: Vec<Waiting> = (1..=users).map(job).collect();
    let updates = plan(&jobs, &lsf.settings.common.scale, FACTOR_MAX / users, 0);
    assert!(updates.is_sorted_by(|one, next| one.to > next.to + 900));
    assert!(updates.len() == 10_000 && updates[0].to < 1 << 24);
    assert_eq!(lsf.set(&updates[..2]).await?, []);
    assert_eq!(lsf.reset(&updates[..1]).await?, []);
    let first = updates[..2].iter();
    let mut calls: Vec<String> = first
        .map(|job| format!("bmod -aps system={} {}", job.to, job.target))
        .collect();
    calls.push(format!("bmod -apsn {}", updates[0].target));
    assert_eq!(said(&folder)?, calls);
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_gone_or_refused_is_told_from_an_lsf_that_takes_none() -> anyhow::Result<()> {
    let (_folder, lsf) = lsf(BJOBS)?;
    let of = |ids: &[u64]| -> Vec<Update> {
        let update = |id: &u64| Update {
            id: *id,
            target: id.to_string(),
            from: None,
            to: 10,
        };
        ids.iter().map(update).collect()
    };
    let refused = lsf.set(&of(&[7, 1, 9, 2, 17])).await?;
    let told: Vec<_> = refused.iter().map(|it| (it.job, it.is_gone)).collect();
    assert_eq!(told, [(Some(7), true), (Some(9), false), (Some(17), true)]);
    for ids in [&[9][..], &[7, 9], &[1, 9, 7, 19]] {
        let error = lsf.set(&of(ids)).await.expect_err("none");
        assert!(error.to_string().contains("Permission denied"), "{error:#}");
    }
    Ok(())
}

/// A record of `lsb.acct` by the order of its fields in the manual; the command is its user's.
fn ended(job: u64, (start, end): (u64, u64), slots: u64, project: &str, command: &str) -> String {
    let command = command.replace('"', "\"\"");
    let hosts = format!("1 \"{slots}*n1\"");
    format!(
        "\"JOB_FINISH\" \"10.1\" {end} {job} 1000 33882739 {slots} 1795615900 0 0 {start} \"games\" \"normal\" \"\" \"\" \"\" \
         \"login\" \"/home\" \"\" \"\" \"\" \"1795615900.{job}\" 0 {hosts} 64 60.0 \"a\" \"{command}\" 0.5 0.1 0 0 -1 0 0 0 0 0 0 \
         0 -1 0 0 0 0 0 -1 \"\" \"{project}\" 0 {slots} \"\" \"\" 0 2048 0 \"\" \"\" \"\" \"\" 0 \"\" 0 \"\" -1 \"/games\" \"\" \"\" \
         \"\" -1 \"\" \"\" 0 \"\" {start} \"\" \"\" 0 0 0\n"
    )
}

#[tokio::test]
async fn lsb_acct_is_read_over_rotation_and_no_command_is_a_record() -> anyhow::Result<()> {
    let (folder, lsf) = lsf(BJOBS)?;
    let at = |name: &str| folder.path().join(name);
    let forged = ended(999, (1_795_616_000, 1_795_619_600), 64, "yvonne", "x");
    let first = ended(
        1,
        (1_795_616_000, 1_795_616_011),
        4,
        "xavier",
        &format!("a\n{forged}"),
    );
    let broken = "\"JOB_FINISH\" \"10.1\" 1795616000 2 nonsense\n";
    let second = ended(3, (0, 1_795_616_011), 4, "yvonne", "never started");
    let third = ended(4, (1_795_616_000, 1_795_616_003), 2, "yvonne", "b");
    fs::write(at("lsb.acct"), [&*first, broken].concat())?;
    let mut cursor = Cursor::default();
    let mut read = async || -> anyhow::Result<(Vec<(String, u64)>, usize)> {
        let (mut jobs, mut bad) = (Vec::new(), 0);
        loop {
            let read = lsf.ended(&cursor).await?;
            for record in read.records {
                let usage = ChargeRule::default().usage(&record, now());
                let seconds = usage.map_or(0, |usage| {
                    usage.end.since(usage.start).0 / 1_000 * u64::from(usage.cores)
                });
                let whose = record.origin.account.unwrap_or_default();
                jobs.push((format!("{} of {whose}", record.key.job), seconds));
            }
            bad += read.bad.len();
            cursor = serde_json::from_slice(&serde_json::to_vec(&read.cursor)?)?;
            if !read.more {
                return Ok((jobs, bad));
            }
        }
    };
    let told = |job: &str, seconds| (job.to_owned(), seconds);
    assert_eq!(read().await?, (vec![told("1 of xavier", 44)], 1));
    assert_eq!(read().await?, (Vec::new(), 0));
    // mbatchd archives it twice while the loop is away.
    fs::write(at("lsb.acct"), [&*first, broken, &*second].concat())?;
    fs::rename(at("lsb.acct"), at("lsb.acct.1"))?;
    fs::write(at("lsb.acct"), &third)?;
    let (jobs, bad) = read().await?;
    assert_eq!(
        (jobs, bad),
        (vec![told("3 of yvonne", 0), told("4 of yvonne", 6)], 0)
    );
    Ok(())
}
