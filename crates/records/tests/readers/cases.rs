//! Inputs as real systems write them, with the values that are right (`tests/cases`).
//!
//! Invariant: each case is read as any file is: its format is recognised by its beginning.
#![allow(clippy::disallowed_methods, reason = "the cases are files")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fairmesh_model::WallTime;
use fairmesh_records::{ChargeRule, Format, Options, Records, Skip, Zone};
use serde::Deserialize;

/// What is not read yet, and why.
const NOT_READ: [(&str, &str); 1] = [(
    "w01-partials",
    "the Standard Workload Format, by another reader",
)];

/// A moment behind all of them.
const NOW: WallTime = WallTime(1_800_000_000_000);

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    file: String,
    core_seconds: u64,
    gpu_hours: Option<u64>,
    refused: Option<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    core_seconds: u64,
    gpu_hours: u64,
    refused: Vec<String>,
    unread: BTreeMap<String, u64>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn options() -> Options {
    Options {
        cluster: "c1".to_owned(),
        zone: Zone::utc(),
        ..Options::default()
    }
}

fn sums(text: &[u8]) -> Option<Sums> {
    let format = Format::detect(text)?;
    let mut sums = Sums::default();
    let mut records = Records::new(text, format, &options());
    for record in records.by_ref() {
        let used = record
            .map_err(|error| error.to_string())
            .and_then(|record| match ChargeRule::default().usage(&record, NOW) {
                Ok(usage) => Ok(Some(usage)),
                Err(Skip::Invalid(error)) => Err(error.to_string()),
                Err(_) => Ok(None),
            });
        match used {
            Ok(Some(usage)) => {
                let seconds = usage.end.since(usage.start).0 / 1_000;
                sums.core_seconds += seconds * u64::from(usage.cores);
                sums.gpu_hours += seconds * u64::from(usage.gpus) / 3_600;
            }
            Ok(None) => {}
            Err(why) => sums.refused.push(why),
        }
    }
    sums.unread = records.unread().clone();
    Some(sums)
}

#[test]
fn records_are_read_as_real_systems_write_them() {
    let cases = fs::read(folder().join("records/cases.json")).expect("the list of cases");
    let cases: Vec<Case> = serde_json::from_slice(&cases).expect("cases");
    let mut wrong = Vec::new();
    for case in &cases {
        let text = fs::read(folder().join("records").join(&case.file)).expect("a case");
        let found = sums(&text);
        let is_right = found.as_ref().is_some_and(|found| {
            found.core_seconds == case.core_seconds
                && case.gpu_hours.is_none_or(|hours| hours == found.gpu_hours)
                && case
                    .refused
                    .is_none_or(|refused| refused == found.refused.len() as u64)
        });
        let is_known = NOT_READ.iter().any(|(name, _)| *name == case.name);
        if is_right == is_known {
            wrong.push(format!("{case:?}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(cases.len(), 29);
}

/// The first record of a case.
fn first(file: &str) -> fairmesh_records::BatchRecord {
    let text = fs::read(folder().join("records").join(file)).expect("a case");
    let format = Format::detect(&text).expect("a format");
    let mut records = Records::new(&text[..], format, &options());
    records.next().expect("a record").expect("a good one")
}

#[test]
fn a_role_within_a_virtual_organisation_is_read() {
    assert_eq!(first("o05-car-vo.xml").fqans, ["/atlas/Role=production"]);
}

#[test]
fn a_usage_record_of_version_2_says_whose_it_is() {
    let record = first("o03-ur2.xml");
    assert_eq!((&*record.key.cluster, &*record.key.job), ("ce1", "1"));
    assert_eq!(record.origin.user.as_deref(), Some("ann"));
    assert_eq!(record.origin.subject.as_deref(), Some("/CN=Ann"));
}

#[test]
fn a_dagman_job_holds_no_slot() {
    let text = fs::read(folder().join("one-job/dagman.history")).expect("a case");
    assert_eq!(sums(&text).expect("ads").core_seconds, 3_600);
}

/// `condor_qedit` may change the universe of a job that runs, and it may ask for any number of hosts.
#[test]
fn a_job_on_a_noted_slot_pays_for_it_whatever_its_universe() {
    let options = Options {
        noted_slots: true,
        ..options()
    };
    for universe in [7, 11, 12] {
        let ad = format!(
            r#"{{"ClusterId": 1, "ProcId": 0, "Owner": "ann", "JobStatus": 4, "QDate": 1793491200, "JobStartDate": 1793491210,
            "CompletionDate": 1793494810, "RemoteWallClockTime": 3600.0, "MachineAttrCpus0": 4, "RequestCpus": 1,
            "JobUniverse": {universe}, "MaxHosts": 4000000000}}"#
        );
        let mut records = Records::new(ad.as_bytes(), Format::HtcondorJson, &options);
        let record = records.next().expect("a record").expect("a good one");
        assert_eq!(record.cpus, Some(4), "universe {universe}");
    }
}

/// What a report of these files counts, core-hours: each job once, by its key.
fn counted(files: &[&str]) -> (u64, Vec<String>) {
    let (mut jobs, mut refused) = (BTreeMap::new(), Vec::new());
    for file in files {
        let text = fs::read(folder().join("one-job").join(file)).expect("a case");
        let format = Format::detect(&text).expect("a known format");
        for record in Records::new(&text[..], format, &options()) {
            match record {
                Ok(record) => {
                    let usage = ChargeRule::default().usage(&record, NOW).expect("usage");
                    let hours = usage.end.since(usage.start).0 * u64::from(usage.cores) / 3_600_000;
                    jobs.entry(usage.key).or_insert(hours);
                }
                Err(error) => refused.push(error.reason.to_string()),
            }
        }
    }
    (jobs.values().sum(), refused)
}

#[test]
fn lists_of_sacct_with_fewer_columns_charge_no_job_twice() {
    let files = [
        "A.sacct",
        "B-nosubmit.sacct",
        "C-noraw.sacct",
        "D-apel.sacct",
    ];
    for first in 0..files.len() {
        let order: Vec<&str> = files.iter().cycle().skip(first).take(8).copied().collect();
        let (hours, refused) = counted(&order);
        assert_eq!(hours, 8, "{order:?}");
        assert_eq!(refused.len(), 6, "one for each list, twice: {refused:?}");
    }
    let (hours, refused) = counted(&["D-apel.sacct"]);
    assert_eq!(hours, 0);
    assert!(
        refused[0].contains("lacks JobIDRaw and Submit"),
        "{refused:?}"
    );
    let (hours, refused) = counted(&["C-noraw.sacct"]);
    assert_eq!(hours, 4, "a plain job's id is its raw id");
    assert!(refused[0].contains("lacks JobIDRaw"), "{refused:?}");
}
