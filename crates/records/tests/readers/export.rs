//! What is exported reads back as what it was made of.

use fairmesh_model::{JobKey, Millis, Origin, WallTime};
use fairmesh_records::export::{
    ApelSite, Gap, Summaries, USAGE_RECORDS_CLOSE, USAGE_RECORDS_OPEN, apel_job, apel_job_header,
    usage_record,
};
use fairmesh_records::{BatchRecord, Format, JobState, Options, Records};
use proptest::prelude::*;

const CREATED: WallTime = WallTime::from_unix_secs(1_800_000_000);

fn site() -> ApelSite {
    ApelSite {
        name: "A-SITE".to_owned(),
        infrastructure: "grid".to_owned(),
    }
}

fn read(format: Format, text: &str) -> Vec<BatchRecord> {
    Records::new(text.as_bytes(), format, &Options::default())
        .map(|record| record.unwrap_or_else(|error| panic!("{error}\n{text}")))
        .collect()
}

/// Names with everything that could break out of its place.
fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9/=][a-zA-Z0-9 <>&\"'%:;|/=.ü🙂-]{0,30}[a-z0-9]".prop_filter(
        "a word for nothing",
        |name| {
            !["none", "null", "unknown", "invalid", "n/a"].contains(&name.to_lowercase().as_str())
        },
    )
}

fn maybe<S: Strategy>(some: S) -> impl Strategy<Value = Option<S::Value>> {
    proptest::option::of(some)
}

/// A record with all that both formats can hold.
fn record(format: Format, states: &'static [JobState]) -> impl Strategy<Value = BatchRecord> {
    // APEL has no place for local groups, accounts and names of jobs; OGF none for FQANs.
    let is_apel = format == Format::ApelJob;
    let times = (1..2_000_000_000u64, 0..10_000_000u64, 0..1_000_000u64);
    let sizes = (
        maybe(1..u32::MAX),
        maybe(1..u32::MAX),
        maybe(1..1u64 << 40),
        maybe(1..1u64 << 40),
    );
    let names = (
        name(),
        name(),
        maybe(name()),
        maybe(name()),
        maybe(name()),
        maybe(name()),
    );
    let more = (
        maybe(name()),
        maybe(name()),
        maybe(name()),
        maybe("/[a-z]{1,6}(/[a-z]{1,6})?(/Role=[a-z]{1,6})?"),
    );
    let lengths = (0..1u64 << 40, 0..1u64 << 40, prop::sample::select(states));
    (times, sizes, names, more, lengths).prop_map(
        move |(
            (start, ran, waited),
            (cpus, nodes, real, virtual_),
            names,
            more,
            (wall, cpu, state),
        )| {
            let (cluster, job, user, group, subject, account) = names;
            let (queue, job_name, extra, fqan) = more;
            let key = JobKey {
                cluster,
                job,
                instance: start,
            };
            let mut record = BatchRecord::new(format, key, state);
            let millis = |millis: u64| {
                Millis(if is_apel {
                    millis / 1_000 * 1_000
                } else {
                    millis
                })
            };
            let (start, end) = (
                WallTime::from_unix_secs(start),
                WallTime::from_unix_secs(start + ran),
            );
            (record.start, record.end) = (Some(start), Some(end));
            (record.wall, record.cpu_time) = (Some(millis(wall)), Some(millis(cpu)));
            let bytes = |bytes: Option<u64>| {
                bytes.map(|bytes| {
                    if is_apel {
                        (bytes | 1_024) >> 10 << 10
                    } else {
                        bytes
                    }
                })
            };
            (record.cpus, record.nodes) = (cpus, nodes);
            (record.memory_peak_bytes, record.virtual_peak_bytes) = (bytes(real), bytes(virtual_));
            record.queue = queue;
            record.origin = Origin {
                user,
                subject,
                ..Origin::default()
            };
            if is_apel {
                record.fqans = fqan.into_iter().collect();
                record.machine = extra;
            } else {
                (record.origin.group, record.origin.account) = (group, account);
                (record.name, record.hosts, record.grid_job) = (job_name, extra, fqan);
                record.submit = Some(start.before(Millis(waited)));
            }
            record
        },
    )
}

const ENDS: &[JobState] = &[JobState::Completed];
const OGF_STATES: &[JobState] = &[
    JobState::Completed,
    JobState::Failed,
    JobState::Cancelled,
    JobState::Running,
    JobState::Suspended,
    JobState::Pending,
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_usage_record_reads_back(records in prop::collection::vec(record(Format::OgfUsageRecord, OGF_STATES), 0..4)) {
        let mut xml = USAGE_RECORDS_OPEN.to_owned();
        for record in &records {
            xml += &usage_record(record, CREATED).expect("complete");
        }
        xml += USAGE_RECORDS_CLOSE;
        prop_assert_eq!(read(Format::OgfUsageRecord, &xml), records);
    }

    #[test]
    fn an_apel_message_reads_back(records in prop::collection::vec(record(Format::ApelJob, ENDS), 0..4)) {
        let mut message = apel_job_header();
        for record in &records {
            message += &apel_job(record, &site()).expect("complete");
        }
        prop_assert_eq!(read(Format::ApelJob, &message), records);
    }

    #[test]
    fn a_summary_reads_back_and_is_the_sum_of_its_jobs(records in prop::collection::vec(record(Format::ApelJob, ENDS), 1..20)) {
        let mut summaries = Summaries::default();
        for record in &records {
            summaries.add(record).expect("complete");
        }
        let read = Summaries::parse(&summaries.message(&site())).expect("reads");
        prop_assert_eq!(&read, &summaries);
        let seconds = |length: Option<Millis>| length.expect("given").0 / 1_000;
        let sums = |of: fn(&fairmesh_records::export::Summary) -> u64| summaries.rows().map(|(_, row)| of(row)).sum::<u64>();
        prop_assert_eq!(sums(|row| row.jobs), records.len() as u64);
        prop_assert_eq!(sums(|row| row.wall_s), records.iter().map(|record| seconds(record.wall)).sum::<u64>());
        prop_assert_eq!(sums(|row| row.cpu_s), records.iter().map(|record| seconds(record.cpu_time)).sum::<u64>());
    }

    #[test]
    fn no_text_makes_the_reader_of_summaries_panic(text in "[ -~\n]{0,200}|(Year: 9|Month: 1|%%|WallDuration: 9|\n){0,20}") {
        let _ = Summaries::parse(&text);
    }
}

fn ended(format: Format) -> BatchRecord {
    let key = JobKey {
        cluster: "c".to_owned(),
        job: "1".to_owned(),
        instance: 100,
    };
    let mut record = BatchRecord::new(format, key, JobState::Completed);
    record.start = Some(WallTime::from_unix_secs(100));
    record.end = Some(WallTime::from_unix_secs(200));
    record
}

#[test]
fn what_a_format_demands_is_never_guessed() {
    let missing = |field| {
        Err(Gap::Missing {
            job: "1".to_owned(),
            field,
        })
    };
    let mut record = ended(Format::Pbs);
    assert_eq!(apel_job(&record, &site()), missing("CpuDuration"));
    assert!(usage_record(&record, CREATED).is_ok());
    record.cpu_time = Some(Millis(1));
    assert!(apel_job(&record, &site()).is_ok());
    record.end = None;
    assert_eq!(usage_record(&record, CREATED), missing("EndTime"));
    record.state = JobState::Running;
    let not_ended = Gap::NotEnded("1".to_owned());
    assert_eq!(apel_job(&record, &site()), Err(not_ended.clone()));
    assert_eq!(Summaries::default().add(&record), Err(not_ended));
}

#[test]
fn a_job_counts_in_the_month_in_which_it_ended() {
    let at = |text: &str| {
        let moment: jiff::Timestamp = text.parse().expect("a time");
        Some(WallTime::from_unix_secs(
            u64::try_from(moment.as_second()).expect("after 1970"),
        ))
    };
    let mut summaries = Summaries::default();
    for (start, end) in [
        ("2026-11-30T23:00:00Z", "2026-11-30T23:59:59Z"),
        ("2026-11-30T23:00:00Z", "2026-12-01T00:00:00Z"),
    ] {
        let mut record = ended(Format::Pbs);
        (record.start, record.end) = (at(start), at(end));
        record.cpu_time = Some(Millis::from_secs(60));
        summaries.add(&record).expect("complete");
    }
    let months: Vec<_> = summaries
        .rows()
        .map(|(key, row)| (key.year, key.month, row.jobs, row.wall_s))
        .collect();
    assert_eq!(months, [(2026, 11, 1, 3_599), (2026, 12, 1, 3_600)]);
}

#[test]
fn names_cannot_break_out_of_their_place() {
    let mut record = ended(Format::Pbs);
    record.cpu_time = Some(Millis(0));
    record.origin.user = Some("a\n%%\nLocalJobId: 2\u{0}</x>".to_owned());
    let message = apel_job(&record, &site()).expect("complete");
    let read_back = read(Format::ApelJob, &message);
    assert_eq!((read_back.len(), read_back[0].key.job.as_str()), (1, "1"));
    let xml = usage_record(&record, CREATED).expect("complete");
    let read_back = read(Format::OgfUsageRecord, &xml);
    let user = read_back[0].origin.user.as_deref();
    assert_eq!(user, Some("a %% LocalJobId: 2 </x>"));
}
