//! The cases of APEL's unit tests: PBS, Grid Engine, HTCondor, BLAH.

use fairmesh_model::{Millis, WallTime};
use fairmesh_records::{BatchRecord, Format, GridIdentities, GridIdentity};
use serde_json::Value;

use super::{folder, json, options, read};

pub(crate) const FILES: [&str; 4] = [
    "accounting/blah/apel.cases.json",
    "accounting/htcondor/apel.cases.json",
    "accounting/pbs/apel.cases.json",
    "accounting/sge/apel.cases.json",
];

struct Case {
    line: String,
    expect: Value,
    outcome: String,
    test: String,
}

fn cases(of: &str, count: usize) -> Vec<Case> {
    let Some(folder) = folder() else {
        return Vec::new();
    };
    let file = json(&folder.join("accounting").join(of).join("apel.cases.json"));
    let all = file.as_array().expect("a list");
    assert_eq!(all.len(), count, "{of}");
    let word = |case: &Value, key: &str| case[key].as_str().expect(key).to_owned();
    all.iter()
        .map(|case| Case {
            line: word(case, "line"),
            expect: case["expect"].clone(),
            outcome: word(case, "outcome"),
            test: word(case, "test"),
        })
        .collect()
}

fn rounded_s(millis: u64) -> u64 {
    (millis + 500) / 1_000
}

fn time(text: &Value) -> u64 {
    let text = text.as_str().expect("a time");
    let moment: jiff::Timestamp = text.parse().expect("ISO");
    u64::try_from(moment.as_second()).expect("after 1970")
}

/// Compares every field that the case expects.
fn check(record: &BatchRecord, case: &Case) {
    // With its MPI switch off, APEL throws away the processors and nodes that it has read.
    let mpi = !matches!(case.test.as_str(), "test_non_mpi" | "test_mpi_false");
    let counted = |count: Option<u32>| u64::from(count.filter(|_| mpi).unwrap_or(0));
    let length = |length: Option<Millis>| rounded_s(length.expect("a length").0);
    let moment = |time: Option<WallTime>| rounded_s(time.expect("a time").0);
    let grid_engine = record.format == Format::GridEngine;
    for (field, expected) in case.expect.as_object().expect("fields") {
        let number = || expected.as_u64().expect("a number");
        let word = expected.as_str();
        let context = format!("{field} of {}", case.line);
        match field.as_str() {
            // Of HTCondor's ids, APEL has the form in which its scripts write them.
            "JobName" if record.format == Format::HtcondorFields => {
                let label = record.label.as_deref();
                assert_eq!(label.or(Some(&record.key.job)), word, "{context}");
            }
            "JobName" => assert_eq!(Some(record.key.job.as_str()), word, "{context}"),
            "LocalUserID" => assert_eq!(record.origin.user.as_deref(), word, "{context}"),
            "LocalUserGroup" => assert_eq!(record.origin.group.as_deref(), word, "{context}"),
            "WallDuration" => assert_eq!(length(record.wall), number(), "{context}"),
            "CpuDuration" => assert_eq!(length(record.cpu_time), number(), "{context}"),
            "StartTime" => assert_eq!(moment(record.start), time(expected), "{context}"),
            "StopTime" => assert_eq!(moment(record.end), time(expected), "{context}"),
            // Of Grid Engine, APEL stores the integral over CPU time, and the peak in bytes.
            "MemoryReal" if grid_engine => {
                assert_eq!(record.memory_kib_s, Some(number()), "{context}");
            }
            "MemoryVirtual" if grid_engine => {
                assert_eq!(record.virtual_peak_bytes, Some(number()), "{context}");
            }
            "MemoryReal" => {
                assert_eq!(record.memory_peak_bytes, Some(number() << 10), "{context}");
            }
            "MemoryVirtual" => {
                assert_eq!(record.virtual_peak_bytes, Some(number() << 10), "{context}");
            }
            "NodeCount" if record.format == Format::HtcondorFields => {
                assert_eq!((record.nodes, number()), (None, 0), "{context}");
            }
            "NodeCount" => assert_eq!(counted(record.nodes), number(), "{context}"),
            "Processors" => assert_eq!(counted(record.cpus), number(), "{context}"),
            other => panic!("nothing checks {other}"),
        }
    }
}

fn check_all(of: &str, format: Format, count: usize) {
    for case in cases(of, count) {
        let mut results = read(format, &case.line, &options());
        match (case.outcome.split(':').next(), results.len()) {
            (Some("record"), 1) => {
                let record = results.remove(0).unwrap_or_else(|error| panic!("{error}"));
                check(&record, &case);
            }
            (Some("error"), 1) => assert!(results[0].is_err(), "{}", case.line),
            (Some("skipped (no record)"), 0) => {}
            (outcome, count) => panic!("{outcome:?}, {count} results: {}", case.line),
        }
        assert_eq!(
            Format::detect(case.line.as_bytes()),
            Some(format),
            "{}",
            case.line
        );
    }
}

#[test]
fn pbs() {
    check_all("pbs", Format::Pbs, 11);
}

#[test]
fn grid_engine() {
    check_all("sge", Format::GridEngine, 6);
}

#[test]
fn htcondor() {
    check_all("htcondor", Format::HtcondorFields, 5);
}

#[test]
fn blah() {
    let mut kept = GridIdentities::default();
    for case in cases("blah", 6) {
        let parsed = GridIdentity::parse(&case.line);
        if case.outcome.starts_with("error") {
            assert!(parsed.is_err(), "{}", case.line);
            continue;
        }
        let identity = parsed.unwrap_or_else(|error| panic!("{error}: {}", case.line));
        check_identity(&identity, &case);
        kept.insert(identity);
    }
    if kept.is_empty() {
        return;
    }
    // The second of two identical lines took the first one's place.
    assert_eq!(kept.len(), 3);
    let line = "05/18/2014 10:00:00;E;15876368.ce1.triumf.ca;user=pilot ctime=1400371260 \
        start=1400371300 end=1400400000";
    let mut record = read(Format::Pbs, line, &options())
        .remove(0)
        .expect("a job");
    assert!(kept.join(&mut record));
    let subject = record.origin.subject.as_deref();
    assert_eq!(subject, Some("/C=CA/O=Grid/OU=triumf.ca/CN=User Two1"));
    assert_eq!(record.fqans.len(), 4);
    record.submit = record
        .submit
        .map(|time| time.after(Millis::from_secs(40 * 86_400)));
    assert!(
        !kept.join(&mut record),
        "the id belongs to another job by then"
    );
}

fn check_identity(identity: &GridIdentity, case: &Case) {
    let (vo, group, role) = identity.vo().expect("an FQAN");
    let (from, until) = identity.valid();
    for (field, expected) in case.expect.as_object().expect("fields") {
        let word = expected.as_str();
        match field.as_str() {
            "TimeStamp" => assert_eq!(identity.time.0 / 1_000, time(expected)),
            "GlobalUserName" => assert_eq!(Some(identity.subject.as_str()), word),
            "FQAN" => assert_eq!(identity.fqans.first().map(String::as_str), word),
            "VO" => assert_eq!(Some(vo), word),
            "VOGroup" => assert_eq!(Some(group), word),
            "VORole" => assert_eq!(Some(role.unwrap_or("None")), word),
            "CE" => assert_eq!(identity.compute_element.as_deref(), word),
            "GlobalJobId" => assert_eq!(identity.grid_job.as_deref(), word),
            "LrmsId" => assert_eq!(Some(identity.local_job.as_str()), word),
            "ValidFrom" => assert_eq!(from.0 / 1_000, time(expected)),
            "ValidUntil" => assert_eq!(until.0 / 1_000, time(expected)),
            // Whether APEL has joined it yet: it has not.
            "Processed" => assert_eq!(expected, 0),
            other => panic!("nothing checks {other}"),
        }
    }
}
