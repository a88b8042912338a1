//! Slurm: Open XDMoD's unit lines and its regression totals for the cluster "phillips".

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use fairmesh_model::WallTime;
use fairmesh_records::summary::hours;
use fairmesh_records::{
    BatchRecord, ChargeRule, Dimension, Format, Job, JobState, Options, Records, Skip, Summary,
    Totals, slurm::array_tasks,
};
use flate2::bufread::GzDecoder;
use serde_json::Value;

use super::{folder, json, options, read, seconds, text};

pub(crate) const FILES: [&str; 14] = [
    "accounting/slurm/xdmod-accounting-logs-with-gpu-gres.expected.json",
    "accounting/slurm/xdmod-accounting-logs-with-gpu-gres.log",
    "accounting/slurm/xdmod-accounting-logs-with-job-arrays.expected.json",
    "accounting/slurm/xdmod-accounting-logs-with-job-arrays.log",
    "accounting/slurm/xdmod-accounting-logs.expected.json",
    "accounting/slurm/xdmod-accounting-logs.log",
    "accounting/slurm/xdmod-non-ended-job-state.expected.json",
    "accounting/slurm/xdmod-non-ended-job-state.log",
    "accounting/slurm/xdmod-phillips.expected.json",
    "accounting/slurm/xdmod-phillips.sacct.gz",
    "accounting/slurm/xdmod-unknown-job-state.expected.json",
    "accounting/slurm/xdmod-unknown-job-state.log",
    "accounting/slurm/xdmod-utf8-multibyte-chars.expected.json",
    "accounting/slurm/xdmod-utf8-multibyte-chars.log",
];

const COLUMNS: &str = "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,\
    eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,\
    timelimit,nodelist,jobname";

const GRES_COLUMNS: &str = "jobid,jobidraw,cluster,partition,account,group,gid,user,uid,submit,\
    eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqgres,reqtres,\
    alloctres,timelimit,nodelist,jobname";

/// After every sample ended.
const LATER: WallTime = WallTime::from_unix_secs(2_000_000_000);

fn with_columns(columns: &str) -> Options {
    Options {
        columns: Some(columns.to_owned()),
        ..options()
    }
}

/// The lines of a log and as many expectations.
fn cases(name: &str) -> Option<(String, Vec<Value>)> {
    let folder = folder()?.join("accounting/slurm");
    let log = text(&folder.join(format!("xdmod-{name}.log")));
    let expected = json(&folder.join(format!("xdmod-{name}.expected.json")));
    let expected = expected.as_array().expect("a list").clone();
    assert_eq!(log.lines().count(), expected.len(), "{name}");
    Some((log, expected))
}

fn records(log: &str, columns: &str) -> Vec<BatchRecord> {
    let results = read(Format::SlurmSacct, log, &with_columns(columns));
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

#[test]
fn plain_lines_have_the_expected_values() {
    let Some((log, expected)) = cases("accounting-logs") else {
        return;
    };
    let records = records(&log, COLUMNS);
    assert_eq!(records.len(), expected.len());
    for (record, expected) in records.iter().zip(&expected) {
        check(record, expected);
    }
}

fn check(record: &BatchRecord, expected: &Value) {
    let word = |key: &str| expected[key].as_str().expect(key).to_owned();
    let given = |key: &str| Some(word(key)).filter(|text| !text.is_empty());
    let number = |key: &str| word(key).parse::<u64>().ok();
    let job = word("job_id");
    assert_eq!(record.key.job, word("job_id_raw"));
    // XDMoD's expectation names the resource; the line names the cluster.
    assert_eq!(record.key.cluster, "ub-hpc");
    assert_eq!(array_tasks(&job), Some(Vec::new()));
    assert_eq!(expected["job_array_index"], -1);
    assert_eq!(record.queue, given("partition_name"), "{job}");
    assert_eq!(record.qos, given("qos_name"), "{job}");
    assert_eq!(record.origin.account, given("account_name"), "{job}");
    assert_eq!(record.origin.group, given("group_name"), "{job}");
    assert_eq!(record.origin.user, given("user_name"), "{job}");
    assert_eq!(record.gid, number("gid_number"), "{job}");
    assert_eq!(record.uid, number("uid_number"), "{job}");
    let time = |key: &str| expected[key].as_u64();
    assert_eq!(seconds(record.submit), time("submit_time"), "{job}");
    assert_eq!(seconds(record.eligible), time("eligible_time"), "{job}");
    assert_eq!(seconds(record.start), time("start_time"), "{job}");
    assert_eq!(seconds(record.end), time("end_time"), "{job}");
    let length = |length: Option<fairmesh_model::Millis>| length.map(|length| length.0 / 1_000);
    assert_eq!(length(record.wall), time("elapsed"), "{job}");
    assert_eq!(length(record.requested_wall), time("timelimit"), "{job}");
    let exit = record.exit.expect("an exit code");
    assert_eq!(format!("{}:{}", exit.code, exit.signal), word("exit_code"));
    assert_eq!(Some(record.state), JobState::parse(&word("state")), "{job}");
    assert_eq!(record.nodes.map(u64::from), number("nnodes"), "{job}");
    assert_eq!(record.cpus.map(u64::from), number("ncpus"), "{job}");
    assert_eq!(record.name, given("job_name"), "{job}");
    assert_eq!(record.hosts, given("node_list"), "{job}");
    let gpus = record.gpus.unwrap_or(0);
    assert_eq!(Some(u64::from(gpus)), expected["ngpus"].as_u64(), "{job}");
}

#[test]
fn gpus_are_counted_from_every_spelling() {
    let Some((log, expected)) = cases("accounting-logs-with-gpu-gres") else {
        return;
    };
    let records = records(&log, GRES_COLUMNS);
    let gpus: Vec<_> = records.iter().map(|job| job.gpus.unwrap_or(0)).collect();
    let expected: Vec<_> = expected.iter().map(|gpus| gpus.as_u64().unwrap()).collect();
    assert_eq!(
        gpus.iter().map(|gpus| u64::from(*gpus)).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn array_tasks_are_listed() {
    let Some((log, expected)) = cases("accounting-logs-with-job-arrays") else {
        return;
    };
    let tasks =
        |job: &BatchRecord| array_tasks(job.label.as_deref().expect("a label")).expect("tasks");
    let tasks: Vec<_> = records(&log, COLUMNS).iter().map(tasks).collect();
    assert_eq!(serde_json::to_value(tasks).unwrap(), Value::Array(expected));
}

/// XDMoD skips them; here a running job is an instalment, and one that waits is not charged.
#[test]
fn jobs_that_have_not_ended_are_no_last_words() {
    let Some((log, expected)) = cases("non-ended-job-state") else {
        return;
    };
    let records = records(&log, COLUMNS);
    assert_eq!(records.len(), expected.len());
    let outcomes: Vec<_> = records
        .iter()
        .map(|job| ChargeRule::default().usage(job, LATER))
        .collect();
    assert!(outcomes[0].as_ref().is_ok_and(|usage| usage.running));
    assert_eq!(outcomes[1], Err(Skip::NotStarted));
}

#[test]
fn unknown_states_are_refused() {
    let Some((log, expected)) = cases("unknown-job-state") else {
        return;
    };
    let results = read(Format::SlurmSacct, &log, &with_columns(COLUMNS));
    assert_eq!(results.len(), expected.len());
    for (result, state) in results.iter().zip(["FOO", "BAR"]) {
        let error = result.as_ref().expect_err("refused").to_string();
        assert!(error.contains(state), "{error}");
    }
}

#[test]
fn names_beyond_ascii() {
    let Some((log, expected)) = cases("utf8-multibyte-chars") else {
        return;
    };
    let records = records(&log, COLUMNS);
    assert_eq!(records[0].name.as_deref(), expected[0]["job_name"].as_str());
}

// ---- Open XDMoD's totals. ----

/// Hours to four decimals; counts as they are.
fn shown(name: &str, totals: &Totals) -> String {
    let ms = match name {
        "job_count" => return format!("{}.0000", totals.jobs),
        "started_job_count" => return format!("{}.0000", totals.started),
        "submitted_job_count" => return format!("{}.0000", totals.submitted),
        "total_cpu_hours" => totals.cpu_ms,
        "total_gpu_hours" => totals.gpu_ms,
        "total_node_hours" => totals.node_ms,
        "total_wallduration_hours" => totals.wall_ms,
        "total_waitduration_hours" => totals.wait_ms,
        other => panic!("no test for {other}"),
    };
    hours(ms)
}

#[test]
fn phillips_has_open_xdmods_totals_and_days() {
    let Some(folder) = folder() else { return };
    let folder = folder.join("accounting/slurm");
    let file = std::fs::File::open(folder.join("xdmod-phillips.sacct.gz")).expect("the log");
    let mut unpacked = Vec::new();
    GzDecoder::new(BufReader::new(file))
        .read_to_end(&mut unpacked)
        .expect("gzip");
    let options = with_columns(COLUMNS);
    let rule = ChargeRule::default();
    let (mut summary, mut skipped, mut cpus) = (Summary::by(&[Dimension::Day]), 0, Vec::new());
    for job in Records::new(unpacked.as_slice(), Format::SlurmSacct, &options) {
        let job = job.unwrap_or_else(|error| panic!("{error}"));
        match rule.usage(&job, LATER) {
            Ok(usage) => {
                assert_eq!(Some(usage.end.since(usage.start)), job.wall);
                assert_eq!(job.span(), job.wall, "{:?}", job.key);
                cpus.push(usage.cores);
                assert!(summary.add(&Job::of(&job, None)));
            }
            Err(Skip::CancelledBeforeStart) => {
                assert!(!summary.add(&Job::of(&job, None)));
                skipped += 1;
            }
            Err(other) => panic!("{:?}: {other}", job.key),
        }
    }
    assert_eq!(cpus.len() + skipped, 4_285, "jobs in the file");
    let expected = json(&folder.join("xdmod-phillips.expected.json"));
    let totals = expected["totals"].as_object().expect("totals");
    for (name, total) in totals {
        let expected = format!("{:.4}", total.as_f64().expect("a number"));
        let ours = match name.as_str() {
            "max_processors" => format!("{}.0000", cpus.iter().max().unwrap()),
            "min_processors" => format!("{}.0000", cpus.iter().min().unwrap()),
            name => shown(name, &summary.whole()),
        };
        assert_eq!(ours, expected, "{name}");
    }
    let days: BTreeMap<&str, &Totals> = summary
        .groups()
        .map(|(names, totals)| (names[0].as_str(), totals))
        .collect();
    let per_day = expected["per_day"].as_object().expect("series");
    for (name, series) in per_day {
        for (date, amount) in series.as_object().expect("days") {
            let ours = days
                .get(date.as_str())
                .copied()
                .copied()
                .unwrap_or_default();
            let expected = format!("{:.4}", amount.as_f64().expect("a number"));
            assert_eq!(shown(name, &ours), expected, "{name} on {date}");
        }
    }
}
