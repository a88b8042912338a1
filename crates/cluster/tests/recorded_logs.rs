//! Reads the recorded job logs of the development set and compares them with the table that came
//! with them. The logs are not part of the repository: `FAIRMESH_TRACES` points at their folder, or
//! else they are looked for beside it.
#![allow(
    clippy::disallowed_methods,
    reason = "a test over files has to open them"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroUsize;

use fairmesh_cluster::{SkipReason, SwfReader, SwfRecord, Trace};
use flate2::read::GzDecoder;

struct Log {
    file: &'static str,
    records: usize,
    users: usize,
    groups: usize,
    partitions: usize,
    /// The table's figure, which is rounded up.
    core_hours: u64,
    /// The exact sum, taken from the file with awk.
    core_s: u64,
    without_run_time: u64,
    unix_start_s: Option<u64>,
}

const LOGS: [Log; 4] = [
    Log {
        file: "LCG-2005-1.days1-6.swf.gz",
        records: 83_979,
        users: 177,
        groups: 26,
        partitions: 168,
        core_hours: 175_989,
        core_s: 633_558_491,
        without_run_time: 0,
        unix_start_s: Some(1_132_444_805),
    },
    Log {
        file: "METACENTRUM-2009-2.days55-115.swf.gz",
        records: 41_816,
        users: 116,
        groups: 1,
        partitions: 13,
        core_hours: 550_595,
        core_s: 1_982_140_166,
        without_run_time: 0,
        unix_start_s: None,
    },
    Log {
        file: "HPC2N-2002-2.2-cln.days553-733.swf.gz",
        records: 42_422,
        users: 110,
        groups: 2,
        partitions: 1,
        core_hours: 659_591,
        core_s: 2_374_526_456,
        without_run_time: 0,
        unix_start_s: Some(1_027_839_845),
    },
    // The table counts no partitions here, because the log has but one, numbered 1.
    Log {
        file: "MetaCentrum-wagap-2013.swf.gz",
        records: 17_900,
        users: 75,
        groups: 1,
        partitions: 1,
        core_hours: 2_679_793,
        core_s: 9_647_254_226,
        without_run_time: 2,
        unix_start_s: None,
    },
];

/// The log, if it is there.
fn open(log: &Log) -> Option<BufReader<GzDecoder<File>>> {
    let path = fairmesh_needs::traces(&format!("swf/{}", log.file))?;
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(BufReader::new(GzDecoder::new(file)))
}

fn distinct(records: &[SwfRecord], column: fn(&SwfRecord) -> Option<u64>) -> usize {
    records.iter().map(column).collect::<BTreeSet<_>>().len()
}

#[test]
fn records_agree_with_the_table() {
    for log in &LOGS {
        let Some(input) = open(log) else { continue };
        let mut reader = SwfReader::new(input);
        let read: Result<Vec<_>, _> = reader.by_ref().collect();
        let records = read.unwrap_or_else(|error| panic!("{}: {error}", log.file));
        assert_eq!(records.len(), log.records, "{}", log.file);
        assert_eq!(
            distinct(&records, |record| record.user),
            log.users,
            "{}",
            log.file
        );
        assert_eq!(
            distinct(&records, |record| record.group),
            log.groups,
            "{}",
            log.file
        );
        assert_eq!(
            distinct(&records, |record| record.partition),
            log.partitions,
            "{}",
            log.file
        );
        assert_eq!(
            reader.header().unix_start_s,
            log.unix_start_s,
            "{}",
            log.file
        );
        let core_s = |record: &SwfRecord| record.run_s.unwrap_or(0) * record.cores().unwrap_or(0);
        let core_s: u64 = records.iter().map(core_s).sum();
        assert_eq!(core_s, log.core_s, "{}", log.file);
        assert_eq!(core_s.div_ceil(3_600), log.core_hours, "{}", log.file);
    }
}

#[test]
fn traces_lose_nothing_and_make_the_same_load_on_any_number_of_nodes() {
    for log in &LOGS {
        let Some(input) = open(log) else { continue };
        let three = NonZeroUsize::new(3).expect("not zero");
        let trace =
            Trace::read(input, three).unwrap_or_else(|error| panic!("{}: {error}", log.file));
        let skipped = trace
            .skipped
            .get(&SkipReason::NoRunTime)
            .copied()
            .unwrap_or(0);
        assert_eq!(skipped, log.without_run_time, "{}", log.file);
        assert_eq!(trace.skipped.values().sum::<u64>(), skipped, "{}", log.file);
        assert_eq!(
            trace.jobs.len() as u64 + skipped,
            log.records as u64,
            "{}",
            log.file
        );
        assert_eq!(
            (trace.vos.len(), trace.sites.len()),
            (log.groups, log.partitions),
            "{}",
            log.file
        );
        let core_ms = trace.total().0;
        assert_eq!(core_ms, log.core_s * 1_000, "{}", log.file);
        assert_eq!(
            trace.usage().values().map(|used| used.0).sum::<u64>(),
            core_ms,
            "{}",
            log.file
        );
        let capacity: u64 = trace.peak_cores().iter().sum();
        assert!(capacity > 0, "{}", log.file);
    }
}
