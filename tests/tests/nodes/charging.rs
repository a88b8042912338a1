//! What a queue and a quality of service do to a charge, through a real node: under every rule alike, and however the
//! job is reported.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;
use fairmesh_tests::{Node, Site};
use serde_json::Value;

use crate::PROGRAM;

/// Core-milliseconds of ten cores for an hour.
const FULL: u64 = 10 * 3_600_000;

/// The rules, each of which charges ten cores on the machine of the site as ten cores.
const RULES: [&str; 4] = [
    "\"cpu-time\"",
    "{ normalised-time = { spec_max = 1 } }",
    "{ weights = { cpu = 1000, gpu = 4000, mem_gib = 0, max = true } }",
    "{ penalty = { factor_max = 8 } }",
];

const FACTORS: &str = "\
discounts = { preemptible = 50, idle = 0 }
preemptible = [\"scavenge\", \"gaps\"]
idle = [\"backfill\"]
[charging.queues]
express = 2
[charging.partitions]
night = 0.75
[charging.qos]
urgent = 1.5
low = 0.1
[[machine]]
class = \"thin\"
count = 9
cpus = 64
memory = \"256GiB\"
";

/// Queue, QOS, and the thousandths of its full charge that a job is charged.
const ROWS: [(&str, &str, u64); 8] = [
    ("long", "normal", 1_000),
    ("express", "normal", 2_000),
    ("night", "normal", 750),
    ("long", "urgent", 1_500),
    ("long", "low", 100),
    ("express", "low", 200),
    ("express", "scavenge", 1_000),
    ("backfill", "urgent", 0),
];

/// Two hours ago, in seconds: young enough to count.
fn start_s() -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(now.as_secs() - 7_200)
}

fn json_line(start_s: u64, job: usize, (queue, qos): (&str, &str)) -> String {
    let end_s = start_s + 3_600;
    format!(
        "{{\"cluster\":\"c\",\"job\":\"j{job}\",\"user\":\"ann\",\"start_ms\":{start_s}000,\
         \"end_ms\":{end_s}000,\"cores\":10,\"queue\":\"{queue}\",\"qos\":\"{qos}\"}}\n"
    )
}

fn sacct(start_s: u64, job: usize, (queue, qos): (&str, &str)) -> String {
    let end_s = start_s + 3_600;
    format!(
        "JobIDRaw|Cluster|User|Account|Partition|QOS|Submit|Start|End|State|NCPUS|NNodes\n\
         {job}|c|ann|x|{queue}|{qos}|{start_s}|{start_s}|{end_s}|COMPLETED|10|1\n"
    )
}

/// What the node would charge for a file of one job, in core-milliseconds.
fn charge(node: &Node, folder: &Path, text: &str) -> anyhow::Result<u64> {
    let file = folder.join("jobs");
    std::fs::write(&file, text)?;
    let output = Command::new(PROGRAM)
        .args(["report", "--dry-run", "--tz", "UTC", "--json"])
        .arg(&file)
        .env("FAIRMESH_SOCKET", node.socket())
        .output()?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let charge = answer["charge_core_ms"].as_str();
    Ok(charge.with_context(|| answer.to_string())?.parse()?)
}

#[test]
fn factors_and_discounts_count_under_every_rule_and_in_every_format() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    site.configure("a", &[], &[])?;
    let start_s = start_s()?;
    let plain = std::fs::read_to_string(site.config())?;
    let with = |rule: &str| {
        let mut file = File::create(site.config())?;
        write!(file, "{plain}\n[charging]\nlocal = {rule}\n{FACTORS}")
    };
    for rule in RULES {
        with(rule)?;
        let node = site.start()?;
        for (job, (queue, qos, thousandths)) in ROWS.into_iter().enumerate() {
            let expected = FULL * thousandths / 1_000;
            for text in [
                json_line(start_s, job, (queue, qos)),
                sacct(start_s, job, (queue, qos)),
            ] {
                let charged = charge(&node, folder.path(), &text)?;
                assert_eq!(charged, expected, "{rule}: {text}");
            }
        }
        node.stop()?;
    }
    let node = site.start()?;
    // What is counted is what was estimated, and what a report says of its terms goes before its queue.
    for (job, (queue, qos, thousandths)) in ROWS.into_iter().enumerate() {
        let line = json_line(start_s, job, (queue, qos));
        let answer = node.http("POST", "/v1/records", line.as_bytes())?;
        let charged = &answer.body["charge_core_ms"];
        assert_eq!(*charged, (FULL * thousandths / 1_000).to_string(), "{line}");
    }
    let line = json_line(start_s, 99, ("long", "normal"))
        .replace("\"cores\"", "\"terms\":\"idle\",\"cores\"");
    assert_eq!(charge(&node, folder.path(), &line)?, 0);
    let answer = node.http("POST", "/v1/records", line.as_bytes())?;
    assert_eq!(answer.body["charge_core_ms"], "0");
    Ok(())
}

#[test]
fn check_config_names_what_has_no_effect() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    site.configure("a", &[], &[])?;
    let plain = std::fs::read_to_string(site.config())?;
    let lines = plain.lines().count();
    let check = |more: &str| -> anyhow::Result<(bool, String)> {
        std::fs::write(site.config(), format!("{plain}{more}"))?;
        let output = Command::new(PROGRAM)
            .arg("check-config")
            .arg("--config")
            .arg(site.config())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.success(), text))
    };
    let (is_good, text) = check("[charging.queues]\nexpress = 2\n[charging.qos]\nlow = 0.1\n")?;
    assert!(is_good, "{text}");
    let (is_good, text) = check("[charging]\npreemptible = [\"gaps\"]\n")?;
    let place = format!(
        "{}:{}:16: `charging.preemptible`",
        site.config().display(),
        lines + 2
    );
    assert!(!is_good, "{text}");
    for words in [
        &*place,
        "discounts = { preemptible = 50 }",
        "[without-effect]",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    Ok(())
}
