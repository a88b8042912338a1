use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use fairmesh_model::Millis;
use fairmesh_records::JobState;

use super::*;

/// What HTCondor 23.9.6 printed.
const USERPRIO: &str = "<none>\t0.0\t500.096\n\
    xavier.games@pool\t1E+250\t4.999999999990000E+249\n\
    new.news@pool\t1000.0\t500.0480000000001\n\
    xavier.news@pool\t100.0\t50.0\n\
    b8@pool\t9.999998998571367E+112\t4.999999499285684E+112\n";

/// What it wrote: a job that ended, one that was removed while it ran, whose user had edited what he could, and one that
/// was removed before it had. Without what nobody reads.
const HISTORY: &str = r#"AccountingGroup = "xavier.games"
AcctGroup = "xavier"
ClusterId = 1
CompletionDate = 1795574405
CpusProvisioned = 2
EnteredCurrentStatus = 1795574405
ExitCode = 0
JobStartDate = 1795574402
JobStatus = 4
Owner = "games"
ProcId = 0
QDate = 1795574400
RemoteWallClockTime = 3.0
*** Offset = 0 ClusterId = 1 ProcId = 0 Owner = "games" CompletionDate = 1795574405
AcctGroup = "xavier"
ClusterId = 11
CompletionDate = 5
CpusProvisioned = 1
EnteredCurrentStatus = 1795575082
MachineAttrCpus0 = 4
JobStartDate = 1795575065
JobStatus = 3
Owner = "games"
ProcId = 0
QDate = 1795575060
RemoteWallClockTime = 17.0
*** Offset = 400 ClusterId = 11 ProcId = 0 Owner = "games" CompletionDate = -1
ClusterId = 12
EnteredCurrentStatus = 1795575090
JobStatus = 3
Owner = "news"
ProcId = 7
QDate = 1795575085
RemoteWallClockTime = 0.0
RequestCpus = 1
*** Offset = 800 ClusterId = 12 ProcId = 7 Owner = "news" CompletionDate = -1
ClusterId = 13
"#;

/// An HTCondor whose `condor_userprio` is this script, in a folder with its history.
fn condor(script: &str) -> anyhow::Result<(tempfile::TempDir, Condor)> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("condor_userprio");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let history = folder.path().join("history");
    std::fs::write(&history, HISTORY)?;
    let mut settings = CondorSettings::defaults(folder.path());
    settings.common.bin_dir = Some(folder.path().to_owned());
    settings.common.rate = 10_000;
    settings.history = Some(history);
    Ok((folder, Condor::new(settings)))
}

fn update(id: u64, target: &str, from: Option<i64>) -> Update {
    let (target, to) = (target.to_owned(), 1_000_000_000);
    Update {
        id,
        target,
        from,
        to,
    }
}

#[test]
fn a_submitter_has_a_number_once_htcondors_own_count_stands_still() {
    let rows = USERPRIO.lines();
    let numbers: BTreeMap<u64, i64> = rows
        .filter_map(|line| number(line, 1_000_000_000))
        .collect();
    let of = |name: &str| numbers.get(&queue::id_of(name)).copied();
    assert_eq!(of("xavier.news@pool"), Some(1_000_000_000));
    assert_eq!(of("xavier.games@pool"), Some(0));
    assert_eq!(of("new.news@pool"), None, "0.50005 is its real priority");
    assert_eq!(of("b8@pool"), Some(1_000_000_000 - 111 * 9_000_000 + 1));
    assert_eq!(numbers.len(), 3, "<none> is no submitter");
}

#[tokio::test]
async fn the_history_says_what_jobs_held_however_they_ended() -> anyhow::Result<()> {
    let (_folder, condor) = condor("true")?;
    let portion = condor.ended(&Cursor::default()).await?;
    assert!(portion.bad.is_empty(), "{:?}", portion.bad);
    let told = portion.records.iter().map(|record| {
        let (job, state) = (&*record.key.job, record.state);
        (job, state, record.cpus, record.wall)
    });
    let wall = |seconds| Some(Millis::from_secs(seconds));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("1.0", JobState::Completed, Some(2), wall(3)),
            ("11.0", JobState::Cancelled, Some(4), wall(17)),
            ("12.7", JobState::Cancelled, Some(1), wall(0)),
        ]
    );
    let removed = portion.records[1].end.map(|end| end.0 / 1_000);
    assert_eq!(removed, Some(1_795_575_082));
    assert_eq!(portion.records[2].start, None, "it never ran");
    // The ad that is still being written comes with the next portion.
    let next = condor.ended(&portion.cursor).await?;
    assert!(next.records.is_empty() && next.bad.is_empty());
    Ok(())
}

/// What a user may have edited, by `condor_qedit`, or by `+QueueName` and its like at submission.
const EDITED: &str = "ClusterId = 11\nCompletionDate = 99999999999999999\nDiskProvisioned = 99999999999999\n\
    EnteredCurrentStatus = 1795575082\nJobCurrentStartDate = 99999999999999999\nJobStartDate = 1795575065\n\
    JobStatus = 3\nLastRemoteHost = \"slot1@n3\"\nMachineAttrCpus0 = 4\nMachineAttrDisk0 = 2097152\n\
    MachineAttrMachineType0 = \"cheap\"\nMachineAttrMemory0 = 2048\nMaxHosts = 4000000000\nOwner = \"games\"\n\
    ProcId = 0\nQDate = 1795575060\nQueueName = \"cheap\"\nRemoteWallClockTime = 17.0\nRequestDisk = 1\n\
    RequestGpus = 99999999999\n*** Offset = 400 ClusterId = 11\n";

#[tokio::test]
async fn what_a_user_writes_into_his_ad_neither_loses_its_record_nor_chooses_its_price()
-> anyhow::Result<()> {
    let (_folder, condor) = condor("true")?;
    let beyond = EDITED.replace("MaxHosts = 4000000000", "MaxHosts = 99999999999");
    let without = EDITED.replace("MachineAttrDisk0 = 2097152\n", "");
    for (ad, disk_mib) in [(EDITED, 2_048), (&beyond, 2_048), (&without, 0)] {
        std::fs::write(&condor.history().await?, ad)?;
        let portion = condor.ended(&Cursor::default()).await?;
        assert!(portion.bad.is_empty(), "{:?}", portion.bad);
        let rule = fairmesh_records::ChargeRule::default();
        let usage = rule.usage(&portion.records[0], crate::now())?;
        let (held, placement) = (usage.end.since(usage.start), &usage.placement);
        assert_eq!(
            (held, usage.cores, usage.gpus),
            (Millis::from_secs(17), 4, 0)
        );
        assert_eq!(placement.queue, None);
        assert_eq!(placement.machine.as_deref(), Some("n3"));
        assert_eq!((placement.nodes, placement.disk_mib), (0, disk_mib));
    }
    Ok(())
}

#[tokio::test]
async fn no_length_of_what_a_user_writes_into_his_ad_loses_its_record() -> anyhow::Result<()> {
    let (_folder, condor) = condor("true")?;
    let long = |name: &str, bytes: usize| format!("{name} = \"{}\"\n", "x".repeat(bytes));
    let many = (0..20).map(|at| long(&format!("My{at}"), 100_000));
    let own = ["AcctGroup", "JobBatchName", "x509UserProxySubject"];
    let own = own.map(|name| long(name, 600_000)).concat();
    for added in [long("Mx", 1_200_000), many.collect(), own] {
        let at = EDITED.find("JobStatus").context("a line")?;
        let (before, behind) = EDITED.split_at(at);
        let text = format!("{before}{added}{behind}");
        std::fs::write(&condor.history().await?, text)?;
        let portion = condor.ended(&Cursor::default()).await?;
        assert!(portion.bad.is_empty(), "{:?}", portion.bad);
        let told: Vec<_> = portion
            .records
            .iter()
            .map(|it| (&*it.key.job, it.cpus))
            .collect();
        assert_eq!(told, [("11.0", Some(4))]);
    }
    Ok(())
}

#[tokio::test]
async fn a_factor_is_set_and_a_real_priority_that_is_not_known_to_stand_still() -> anyhow::Result<()>
{
    let (folder, condor) = condor("echo $* >> ${0%/*}/said")?;
    let updates = [update(1, "ann@pool", Some(7)), update(2, "bob@pool", None)];
    assert_eq!(condor.set(&updates).await?, []);
    let said = std::fs::read_to_string(folder.path().join("said"))?;
    let said_of = |who: &str| -> Vec<&str> { said.lines().filter(|it| it.contains(who)).collect() };
    assert_eq!(said_of("ann"), ["-setfactor ann@pool 1.000000e2"]);
    let of_bob = ["-setprio bob@pool 0.5", "-setfactor bob@pool 1.000000e2"];
    assert_eq!(said_of("bob"), of_bob);
    Ok(())
}

/// Each of these waits for seven others.
#[tokio::test]
async fn eight_factors_are_set_at_once_and_no_more() -> anyhow::Result<()> {
    let script = "cd ${0%/*}; mkdir -p in all; touch in/$2 all/$2\n\
        until [ $(ls all | wc -l) = 8 ] || [ $(ls all | wc -l) = 16 ]; do sleep 0.01; done\n\
        [ $(ls in | wc -l) -le 8 ]; ok=$?; sleep 0.5; rm in/$2; exit $ok";
    let (_folder, condor) = condor(script)?;
    let updates = (0..16).map(|at| update(at, &format!("u{at}@pool"), Some(7)));
    let updates: Vec<Update> = updates.collect();
    let set = tokio::time::timeout(Duration::from_secs(60), condor.set(&updates));
    assert_eq!(set.await??, []);
    Ok(())
}

#[tokio::test]
async fn one_that_is_refused_is_told_from_a_negotiator_that_is_away() -> anyhow::Result<()> {
    let script = "case $2 in eve*) echo no such name >&2; exit 1;; esac";
    let (_folder, condor) = condor(script)?;
    let of = |names: &[&str]| {
        let updates = (1_u64..).zip(names);
        let updates = updates.map(|(id, name)| update(id, name, Some(7)));
        updates.collect::<Vec<_>>()
    };
    let refused = condor
        .set(&of(&["ann@pool", "eve@pool", "bob@pool"]))
        .await?;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].job, Some(2));
    assert!(refused[0].words.contains("eve@pool: no such name"));
    for away in [&["eve@pool"][..], &["ann@pool", "eve@pool", "eve2@pool"]] {
        let error = condor.set(&of(away)).await.expect_err("away");
        assert!(error.to_string().contains("no such name"), "{error:#}");
    }
    Ok(())
}
