//! `fairmesh doctor` and `fairmesh bugreport` beside a real node.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use fairmesh_tests::{Node, Site, Vo, records};
use serde_json::Value;

use crate::PROGRAM;

/// Users of the records, of the share policy, and of the configuration's rules and tree.
const PEOPLE: [&str; 5] = [
    "annamaria",
    "bartholomew",
    "cassandra",
    "dorothea",
    "emmanuel",
];

fn fairmesh(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(folder);
    Ok(command.env_remove("FAIRMESH_SOCKET").output()?)
}

/// A node with users everywhere, and the configuration that it runs by.
fn node(folder: &Path) -> anyhow::Result<(Site, Node, Vo)> {
    let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["annamaria", "bartholomew"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let config = std::fs::read_to_string(site.config())?;
    let more = "[[identity]]\nuser = \"dorothea\"\npath = \"/local/{user}\"\n[shares]\n\"/local\" = 50\n\
                \"/local/emmanuel\" = 90\n\"/local/*\" = 10\n";
    let secret = std::fs::read_to_string(site.folder().join("site.key"))?;
    let config = config.replacen("[shares]\n", more, 1);
    std::fs::write(site.config(), format!("# key {secret}{config}"))?;
    let node = site.start()?;
    vo.publish(&node)?;
    let stray = String::from_utf8(records("none", "cassandra", 9, 1))?;
    let lines = [records("physics", "annamaria", 0, 3), stray.into_bytes()].concat();
    std::fs::write(folder.join("jobs.jsonl"), lines)?;
    let socket = node.socket().to_str().context("UTF-8")?;
    let reported = fairmesh(folder, &["report", "jobs.jsonl", "--socket", socket])?;
    ensure!(reported.status.success(), "{reported:?}");
    Ok((site, node, vo))
}

fn codes(output: &Output) -> anyhow::Result<Vec<String>> {
    let body: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(body["schema"] == "fairmesh.doctor/1", "{body}");
    let findings = body["findings"].as_array().context("no findings")?.iter();
    let all_say_what_to_do = findings.clone().all(|found| found["remedy"].is_string());
    ensure!(all_say_what_to_do, "{body}");
    Ok(findings
        .filter_map(|found| Some(found["code"].as_str()?.to_owned()))
        .collect())
}

#[test]
fn a_doctor_finds_what_is_wrong_and_its_exit_status_says_whether() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (site, node, _vo) = node(folder.path())?;
    let config = site.config();
    let ask = [
        "doctor",
        "--json",
        "--config",
        config.to_str().context("UTF-8")?,
    ];
    let well = fairmesh(folder.path(), &ask)?;
    ensure!(well.status.code() == Some(0), "{well:?}");
    ensure!(codes(&well)?.contains(&"unmapped".to_owned()), "{well:?}");

    let text = std::fs::read_to_string(&config)?;
    let doubtful = text.replacen(
        "path = \"/{user}\"",
        "path = \"/{user}\"\n[[identity]]\naccount = \"physics\"\npath = \"/x\"",
        1,
    );
    std::fs::write(&config, &doubtful)?;
    let doubted = fairmesh(folder.path(), &ask)?;
    ensure!(doubted.status.code() == Some(1), "{doubted:?}");
    ensure!(codes(&doubted)?[0] == "rule-hidden", "{doubted:?}");

    std::fs::write(&config, text.replacen("[timing]", "[timing]\nsinc = 1", 1))?;
    let socket = node.socket().to_str().context("UTF-8")?;
    let invalid = fairmesh(folder.path(), &[&ask[..], &["--socket", socket]].concat())?;
    ensure!(invalid.status.code() == Some(2), "{invalid:?}");
    // The node is looked at all the same.
    let found = codes(&invalid)?;
    ensure!(
        found[0] == "config-invalid" && found.contains(&"unmapped".to_owned()),
        "{found:?}"
    );

    std::fs::write(&config, text)?;
    ensure!(node.stop()?.success());
    let away = fairmesh(folder.path(), &ask)?;
    ensure!(away.status.code() == Some(2), "{away:?}");
    ensure!(codes(&away)? == ["node-away"], "{away:?}");
    let explained = fairmesh(folder.path(), &["doctor", "--explain", "node-away"])?;
    ensure!(
        String::from_utf8_lossy(&explained.stdout).contains("Do: "),
        "{explained:?}"
    );
    Ok(())
}

/// Commands of batch systems that answer with this.
fn commands(folder: &Path, answers: &[(&str, &str)]) -> anyhow::Result<()> {
    std::fs::create_dir(folder)?;
    for (command, script) in answers {
        let program = folder.join(command);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[test]
fn a_doctor_looks_at_all_batch_systems_of_the_configuration() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (site, _node, _vo) = node(folder.path())?;
    let (config, bin) = (site.config(), folder.path().join("bin"));
    commands(
        &bin,
        &[
            ("qconf", "echo 'policy_hierarchy OFS'"),
            (
                "qstat",
                "echo '<x><job_list><JB_job_number>7</JB_job_number><JB_owner>cassandra</JB_owner></job_list></x>'",
            ),
            (
                "condor_q",
                r#"echo '[{"ClusterId":1,"ProcId":0,"JobStatus":1,"Owner":"cassandra","User":"cassandra@pool"}]'"#,
            ),
            ("condor_userprio", "true"),
            (
                "condor_config_val",
                "test $1 = PRIORITY_HALFLIFE && echo 86400 || test $1 = HISTORY && echo /nowhere/history",
            ),
        ],
    )?;
    // PBS has a `qstat`, too.
    let others = folder.path().join("others");
    commands(
        &others,
        &[
            ("qmgr", "false"),
            (
                "qstat",
                "echo \"Job Id: 7.pbs${5}job_state=Q${5}Job_Owner=cassandra@login\"",
            ),
            ("bqueues", "echo 'SCHEDULING POLICIES:  FAIRSHARE'"),
            (
                "bjobs",
                "case \"$5\" in *stat*) echo '7^PEND^cassandra^normal^1';; *proj*) echo '7^none';; esac",
            ),
        ],
    )?;
    let text = std::fs::read_to_string(&config)?;
    let systems = format!(
        "{text}[gridengine]\nbin_dir = \"{0}\"\nrange = 1\n[condor]\nbin_dir = \"{0}\"\n\
         [pbs]\nbin_dir = \"{1}\"\n[lsf]\nbin_dir = \"{1}\"\n",
        bin.display(),
        others.display()
    );
    std::fs::write(&config, systems)?;
    let config = config.to_str().context("UTF-8")?;
    let ask = ["doctor", "--json", "--config", config];
    let lacking = fairmesh(folder.path(), &ask)?;
    ensure!(lacking.status.code() == Some(1), "{lacking:?}");
    let said = String::from_utf8_lossy(&lacking.stdout);
    for words in [
        "policy_hierarchy is OFS",
        "write O with `qconf -msconf`",
        "PRIORITY_HALFLIFE is 86400",
        "/nowhere/history cannot be read",
        "1 of 1 users and accounts that have jobs in the queue map nowhere",
        "its Grid Engine",
        "its HTCondor",
        "its PBS",
        "job_sort_formula is ``",
        "its LSF",
        "no queue has APS_PRIORITY",
    ] {
        ensure!(said.contains(words), "no {words} in {said}");
    }
    let found: BTreeSet<String> = codes(&lacking)?.into_iter().collect();
    for code in [
        "gridengine-setup",
        "gridengine-unmapped",
        "gridengine-range",
        "condor-setup",
        "condor-unmapped",
        "pbs-setup",
        "pbs-unmapped",
        "lsf-setup",
        "lsf-unmapped",
    ] {
        ensure!(found.contains(code), "no {code} in {found:?}");
    }

    std::fs::remove_dir_all(&bin)?;
    std::fs::remove_dir_all(&others)?;
    let away = fairmesh(folder.path(), &ask)?;
    ensure!(away.status.code() == Some(1), "{away:?}");
    ensure!(
        codes(&away)?[..4] == ["gridengine-away", "condor-away", "pbs-away", "lsf-away"],
        "{away:?}"
    );
    Ok(())
}

#[test]
fn a_bug_report_has_everything_but_keys_and_names_of_users() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (site, node, _vo) = node(folder.path())?;
    let config = site.config();
    // Whom this machine does not know, and the findings tell so.
    let more = "[sockets]\nwriters = [\"frederica\", \"root\", \"slurm\"]\n[privacy]\nreaders = [\"gwendolyn\"]\n\
                [privacy.coordinators]\n\"/local\" = [\"hortensia\"]\n\
                [quota.physics]\nexempt = { users = [\"isabella*\"] }\n[shares]\n";
    let text = std::fs::read_to_string(&config)?;
    std::fs::write(&config, text.replacen("[shares]\n", more, 1))?;
    let arguments = [
        "bugreport",
        "-o",
        "report.txt",
        "--config",
        config.to_str().context("UTF-8")?,
    ];
    let written = fairmesh(folder.path(), &arguments)?;
    ensure!(written.status.success(), "{written:?}");
    let report = std::fs::read_to_string(folder.path().join("report.txt"))?;
    let said = String::from_utf8(written.stdout)?;
    let id = said
        .lines()
        .nth(1)
        .and_then(|line| line.strip_prefix("id "));
    let id = id
        .and_then(|rest| rest.split(':').next())
        .context("no id")?;
    ensure!(
        report.starts_with(&format!("==> about <==\nid {id}\n")),
        "{report}"
    );
    for part in [
        "==> findings <==",
        "[unmapped]",
        "==> configuration <==\n[",
        "name = \"a\"",
        "==> status <==\n{",
        "\"records_counted\": 4",
        "==> documents <==\n[",
        "\"kind\": \"charter\"",
        "==> metrics <==\n#",
        "fairmesh_build_info",
        "==> data folder <==",
        "site.journal",
        "==> log <==",
    ] {
        let part = part.replace("[unmapped]", "\"code\": \"unmapped\"");
        ensure!(report.contains(&part), "no {part} in {report}");
    }
    let of_config = ["frederica", "gwendolyn", "hortensia", "isabella"];
    for name in PEOPLE.into_iter().chain(of_config) {
        ensure!(!report.contains(name), "{name} is in {report}");
    }
    let unknown = "is no user of this machine";
    ensure!(report.contains(unknown), "no {unknown} in {report}");
    // Whoever helps has to know which site is which.
    let id = format!("\"site\": \"{}\"", site.id);
    ensure!(report.contains(&id), "no {id} in {report}");
    let key = std::fs::read_to_string(site.folder().join("site.key"))?;
    ensure!(!report.contains(key.trim()), "the key is in {report}");
    // Where the node is away, nobody can say whose names are in its log.
    ensure!(node.stop()?.success());
    let arguments = [&arguments[..2], &["late.txt"], &arguments[3..]].concat();
    ensure!(fairmesh(folder.path(), &arguments)?.status.success());
    let late = std::fs::read_to_string(folder.path().join("late.txt"))?;
    ensure!(late.contains("==> log <==\nleft out"), "{late}");
    let again = fairmesh(folder.path(), &arguments)?;
    ensure!(again.status.code() == Some(2), "it is there: {again:?}");
    Ok(())
}
