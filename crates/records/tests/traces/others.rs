//! LSF's lines with Open XDMoD's expectations, a whole OpenPBS log, and SGAS's usage records.

use std::collections::BTreeMap;
use std::io::Read;

use fairmesh_model::{Millis, WallTime};
use fairmesh_records::{
    BatchRecord, ChargeRule, Format, Ignored, JobState, Records, Skip, WallRule, export,
};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{bytes, folder, options, read, seconds, text};

pub(crate) const FILES: [&str; 10] = [
    "accounting/lsf/xdmod-accounting-logs.expected.json",
    "accounting/lsf/xdmod-accounting-logs.log",
    "accounting/lsf/xdmod-utf8-multibyte-chars.expected.json",
    "accounting/lsf/xdmod-utf8-multibyte-chars.log",
    "accounting/pbs/openpbs-cesnet-2024-12.log.gz",
    "accounting/pbs/openpbs-cesnet-2024-12.totals.json",
    "ur/sgas-cur.xml",
    "ur/sgas-ur1.xml",
    "ur/sgas-ur2.xml",
    "ur/sgas-ur_longhost.xml",
];

fn good(format: Format, text: &str) -> Vec<BatchRecord> {
    assert_eq!(Format::detect(text.as_bytes()), Some(format));
    let results = read(format, text, &options());
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

#[test]
fn lsf_lines_have_the_expected_values() {
    let Some(folder) = folder() else { return };
    let folder = folder.join("accounting/lsf");
    let expected = super::json(&folder.join("xdmod-accounting-logs.expected.json"));
    let records = good(
        Format::Lsf,
        &text(&folder.join("xdmod-accounting-logs.log")),
    );
    let expected = expected.as_array().expect("a list");
    assert_eq!((records.len(), expected.len()), (2, 2));
    for (record, expected) in records.iter().zip(expected) {
        check_lsf(record, expected);
    }
    let expected = super::json(&folder.join("xdmod-utf8-multibyte-chars.expected.json"));
    let log = text(&folder.join("xdmod-utf8-multibyte-chars.log"));
    let command = expected[0]["command"].as_str().expect("a command");
    // A command is not kept, but a line that has one is read.
    assert!(log.contains(command));
    assert_eq!(good(Format::Lsf, &log).len(), 1);
}

fn check_lsf(record: &BatchRecord, expected: &Value) {
    let word = |key: &str| expected[key].as_str().expect(key).to_owned();
    let number = |key: &str| word(key).parse::<u64>().ok();
    assert_eq!(record.key.job, word("job_id"));
    assert_eq!(record.key.cluster, word("resource_name"));
    assert_eq!(seconds(record.end), number("event_time"));
    assert_eq!(seconds(record.submit), number("submit_time"));
    assert_eq!(seconds(record.start), number("start_time"));
    assert_eq!(record.uid, number("user_id"));
    assert_eq!(record.cpus.map(u64::from), number("num_processors"));
    assert_eq!(record.origin.user, Some(word("user_name")));
    assert_eq!(record.origin.account, Some(word("project_name")));
    assert_eq!(record.queue, Some(word("queue")));
    assert_eq!(record.name, Some(word("job_name")));
    assert_eq!(record.nodes.map(u64::from), number("num_ex_hosts"));
    assert_eq!(record.hosts, Some(word("node_list")));
    assert_eq!(record.state, JobState::Completed, "jStatus 64");
    assert_eq!(record.exit.expect("an exit").code, 0);
    assert_eq!(
        record.memory_peak_bytes,
        number("max_rmem").map(|kib| kib << 10)
    );
    // XDMoD calls the sum of user and system time `walltime`.
    let cpu_ms = record.cpu_time.expect("CPU time").0;
    assert_eq!(json!(cpu_ms), json!(5_794_523_290_u64));
    assert_eq!(expected["walltime"].to_string(), "5794523.29");
    assert_eq!(record.requested_wall, Some(Millis::from_secs(43_200)));
}

#[test]
fn a_whole_openpbs_log_has_its_totals() {
    let Some(folder) = folder() else { return };
    let folder = folder.join("accounting/pbs");
    let expected = super::json(&folder.join("openpbs-cesnet-2024-12.totals.json"));
    let packed = bytes(&folder.join("openpbs-cesnet-2024-12.log.gz"));
    let mut log = Vec::new();
    GzDecoder::new(packed.as_slice())
        .read_to_end(&mut log)
        .expect("gzip");
    assert_eq!(Format::detect(&log), Some(Format::Pbs));
    let mut reader = Records::new(log.as_slice(), Format::Pbs, &options());
    let mut totals: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    let (rule, later) = (
        ChargeRule::default(),
        WallTime::from_unix_secs(2_000_000_000),
    );
    let stated = ChargeRule {
        wall: WallRule::Stated,
        ..ChargeRule::default()
    };
    for record in reader.by_ref() {
        let record = record.unwrap_or_else(|error| panic!("{error}"));
        let charged = |rule: &ChargeRule| {
            let usage = rule.usage(&record, later).expect("it ran");
            usage.end.since(usage.start).0 / 1_000 * u64::from(usage.cores)
        };
        let wall_s = record.wall.expect("a wall-clock time").0 / 1_000;
        let sums = totals.entry(record.origin.user.clone().expect("a user"));
        let sums = sums.or_default();
        sums[0] += 1;
        sums[1] += charged(&rule);
        sums[2] += charged(&stated);
        sums[3] += record.requested_memory_mib.expect("memory") * wall_s;
    }
    let other = reader.ignored().get(&Ignored::OtherEvent).copied();
    let events = &expected["events"];
    let event = |name: &str| events[name].as_u64().expect(name);
    assert_eq!(other, Some(event("Q") + event("S") + event("L")));
    for (user, expected) in expected["per_user"].as_object().expect("users") {
        let names = [
            "jobs",
            "ncpus_x_end_minus_start_s",
            "ncpus_x_resources_used_walltime_s",
            "req_mem_mb_x_walltime_s",
        ];
        let expected = names.map(|name| expected[name].as_u64().expect(name));
        assert_eq!(totals[user], expected, "{user}");
    }
}

/// Every record of the samples, written out and read again, is the same record.
#[test]
fn usage_records_of_sgas_survive_export() {
    let Some(folder) = folder() else { return };
    for name in [
        "sgas-cur.xml",
        "sgas-ur1.xml",
        "sgas-ur2.xml",
        "sgas-ur_longhost.xml",
    ] {
        let records = good(Format::OgfUsageRecord, &text(&folder.join("ur").join(name)));
        let mut xml = export::USAGE_RECORDS_OPEN.to_owned();
        for record in &records {
            xml += &export::usage_record(record, WallTime(0)).expect("complete");
        }
        xml += export::USAGE_RECORDS_CLOSE;
        assert_eq!(good(Format::OgfUsageRecord, &xml), records, "{name}");
    }
}

#[test]
fn usage_records_of_sgas() {
    let Some(folder) = folder() else { return };
    let read = |name: &str| good(Format::OgfUsageRecord, &text(&folder.join("ur").join(name)));
    let both = read("sgas-cur.xml");
    let lengths: Vec<_> = both
        .iter()
        .map(|record| record.wall.expect("a length").0)
        .collect();
    assert_eq!(lengths, [456_000, 678_000]);
    assert_eq!(both[1].key.cluster, "fyrgrid.grid.aau.dk");
    assert_eq!(both[1].name.as_deref(), Some("test job 4"));
    for (name, number, wall_ms) in [
        ("sgas-ur1.xml", 1, 234_100),
        ("sgas-ur2.xml", 2, 345_000),
        ("sgas-ur_longhost.xml", 1, 234_100),
    ] {
        let records = read(name);
        assert_eq!(records.len(), 1, "{name}");
        let record = &records[0];
        let id = format!("gsiftp://example.org/jobs/{number}");
        assert_eq!(
            (&record.key.job, record.grid_job.as_ref()),
            (&id, Some(&id))
        );
        let subject = record.origin.subject.as_deref();
        assert_eq!(
            subject,
            Some("/O=Grid/O=NorduGrid/OU=ndgf.org/CN=Test User")
        );
        assert_eq!(record.wall, Some(Millis(wall_ms)));
        assert_eq!(record.span(), Some(Millis::from_secs(15)));
        let hosts = record
            .hosts
            .as_deref()
            .map(|hosts| hosts.split(',').count());
        assert_eq!(hosts, (name == "sgas-ur_longhost.xml").then_some(400));
        // None of them says how many CPUs it held.
        let later = WallTime::from_unix_secs(2_000_000_000);
        assert_eq!(
            ChargeRule::default().usage(record, later),
            Err(Skip::NoCpus)
        );
        let one = ChargeRule {
            cpus_unless_stated: Some(1),
            ..ChargeRule::default()
        };
        let usage = one.usage(record, later).expect("charged");
        assert_eq!(usage.end.since(usage.start), Millis(wall_ms));
    }
}
