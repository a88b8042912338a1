use fairmesh_model::{JobKey, Millis, WallTime};

use super::*;
use crate::charge::{ChargeRule, Skip};
use crate::error::RecordError;
use crate::format::Format;
use crate::record::{BatchRecord, Exit};
use crate::state::JobState;
use crate::{Cursor, Ignored, Options, Records};

const NOON: WallTime = WallTime::from_unix_secs(1_795_262_400);

fn options() -> Options {
    Options {
        cluster: "here".to_owned(),
        ..Options::default()
    }
}

fn read(format: Format, text: &str) -> Vec<Result<BatchRecord, RecordError>> {
    Records::new(text.as_bytes(), format, &options()).collect()
}

fn good(format: Format, text: &str) -> Vec<BatchRecord> {
    let records = read(format, text);
    let good = |record: Result<_, RecordError>| record.unwrap_or_else(|error| panic!("{error}"));
    records.into_iter().map(good).collect()
}

fn refusal(format: Format, text: &str) -> String {
    let mut records = read(format, text);
    assert_eq!(records.len(), 1, "{text}");
    records.remove(0).expect_err(text).to_string()
}

fn key(cluster: &str, job: &str, instance: u64) -> JobKey {
    JobKey {
        cluster: cluster.to_owned(),
        job: job.to_owned(),
        instance,
    }
}

/// What Slurm 22.05 printed about an array task, a heterogeneous job, a requeued job and one that
/// runs.
const SACCT: &str = "\
JobID|JobIDRaw|Cluster|Account|User|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|ReqCPUS|ReqMem|AllocTRES|NodeList|JobName
2_3|2|recc|vo1|root|COMPLETED|0:0|2026-11-21T05:11:45|2026-11-21T05:11:53|2026-11-21T05:11:57|4|UNLIMITED|1|2|2|100000M|billing=2,cpu=2,node=1|n1|wrap
2_3.batch|2.batch|recc|vo1||COMPLETED|0:0|2026-11-21T05:11:53|2026-11-21T05:11:53|2026-11-21T05:11:57|4||1|2|2||cpu=2,mem=0,node=1|n1|batch
3+1|4|recc|vo1|root|COMPLETED|0:0|2026-11-21T05:11:45|2026-11-21T05:12:13|2026-11-21T05:12:16|3|UNLIMITED|1|2|2|100000M|billing=2,cpu=2,mem=1G,gres/gpu:a100=2,node=1|n4|a|b
5|5|recc|vo1|root|REQUEUED|0:0|2026-11-21T05:11:45|2026-11-21T05:12:13|2026-11-21T05:12:15|2|10|1|8|8|100000M|billing=8,cpu=8,node=1|n3|wrap
5|5|recc|vo1|root|CANCELLED by 0|0:0|2026-11-21T05:12:15|None|2026-11-21T05:12:18|0|10|1|0|8|100000M||None assigned|wrap
7|7|recc|vo1|root|RUNNING|0:0|2026-11-21T05:11:45|2026-11-21T05:12:13|Unknown|8|525600|1|3|3|100M|billing=3,cpu=3,mem=100M,node=1|n3|wrap
";

#[test]
fn sacct_by_its_header() {
    let mut reader = Records::new(SACCT.as_bytes(), Format::SlurmSacct, &options());
    let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    let keys: Vec<_> = records.iter().map(|record| record.key.clone()).collect();
    let submit = 1_795_237_905;
    assert_eq!(
        keys,
        [
            key("recc", "2", submit),
            key("recc", "4", submit),
            key("recc", "5", submit),
            key("recc", "5", submit + 30),
            key("recc", "7", submit),
        ]
    );
    assert_eq!(reader.ignored().get(&Ignored::Step), Some(&1));
    assert_eq!(reader.ignored().get(&Ignored::Decoration), Some(&1));

    let [task, component, requeued, cancelled, running] = &records[..] else {
        panic!("five jobs");
    };
    assert_eq!(task.label.as_deref(), Some("2_3"));
    assert_eq!(
        (task.cpus, task.memory_mib, task.gpus),
        (Some(2), None, None)
    );
    assert_eq!(task.requested_memory_mib, Some(100_000));
    assert_eq!(component.name.as_deref(), Some("a|b"));
    assert_eq!(
        (component.memory_mib, component.gpus),
        (Some(1_024), Some(2))
    );
    assert_eq!(requeued.state, JobState::Requeued);
    assert_eq!(requeued.requested_wall, Some(Millis::from_secs(600)));
    assert_eq!(
        (cancelled.state, cancelled.start),
        (JobState::Cancelled, None)
    );
    assert_eq!(cancelled.cpus, Some(8), "what it asked for");

    let rule = ChargeRule::default();
    assert_eq!(rule.usage(requeued, NOON).unwrap().cores, 8);
    assert_eq!(rule.usage(cancelled, NOON), Err(Skip::CancelledBeforeStart));
    let instalment = rule.usage(running, NOON).expect("it runs");
    assert!(instalment.running);
    assert_eq!(instalment.end.since(instalment.start), Millis::from_secs(8));
}

#[test]
fn sacct_without_a_header_needs_its_format() {
    let line = "9|COMPLETED|1700000000|1700000010|1700000070|00:00:30|4|\n";
    assert!(refusal(Format::SlurmSacct, line).contains("columns are not known"));
    let options = Options {
        columns: Some("JobID,State%20,Submit,Start,End,Elapsed,AllocCPUS".to_owned()),
        ..options()
    };
    let records: Vec<_> = Records::new(line.as_bytes(), Format::SlurmSacct, &options).collect();
    let record = records[0].as_ref().expect("a job");
    assert_eq!(record.key, key("here", "9", 1_700_000_000));
    assert_eq!(record.span(), Some(Millis::from_secs(60)));
    assert_eq!(
        record.held(),
        Some(Millis::from_secs(30)),
        "suspended for 30 s"
    );
    let usage = ChargeRule::default().usage(record, NOON);
    assert_eq!(
        usage,
        Err(Skip::Invalid(fairmesh_model::record::RecordError::Nobody(
            "9".to_owned()
        )))
    );
}

/// With the start in its place, the job would have another key than in other reports.
#[test]
fn a_job_of_sacct_without_its_submit_time_is_refused() {
    let line =
        "JobID|State|User|Submit|Start|End|NCPUS\n1|COMPLETED|u|Unknown|1700000010|1700000070|4\n";
    assert!(refusal(Format::SlurmSacct, line).contains("Submit is missing"));
}

#[test]
fn sacct_goes_on_after_a_bad_line_and_from_a_cursor() {
    let text = "JobID|State|User|Submit|Start|End|NCPUS\n\
        1|COMPLETED|u|1700000000|1700000010|1700000070|4\n\
        2|FOO|u|1700000000|1700000010|1700000070|4\n\
        3|COMPLETED|u|1700000000|1700000010|16:00|4\n\
        4|COMPLETED|u|1700000000|1700000070|1700000010|4\n\
        5|COMPLETED|u\n\
        6|FAILED|u|1700000000|1700000010|1700000070|4\n";
    let results = read(Format::SlurmSacct, text);
    let outcomes: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok(record) => record.key.job.clone(),
            Err(error) => error.to_string(),
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            "1",
            "line 3: the state `FOO` is not known",
            "line 4: end is `16:00`: a time is expected",
            "line 5: the job ends before it starts",
            "line 6: 3 fields, where 7 are expected",
            "6",
        ]
    );

    let mut first = Records::new(text.as_bytes(), Format::SlurmSacct, &options());
    let one = first.next().expect("a record").expect("a good one");
    let cursor = first.cursor().clone();
    assert_eq!((one.key.job.as_str(), cursor.lines), ("1", 2));
    let rest = &text.as_bytes()[usize::try_from(cursor.bytes).unwrap()..];
    let resumed = Records::resume(rest, Format::SlurmSacct, &options(), cursor);
    let again: Vec<_> = resumed
        .map(|result| match result {
            Ok(record) => record.key.job,
            Err(error) => error.to_string(),
        })
        .collect();
    assert_eq!(again, outcomes[1..]);
}

/// A log of records keeps them as JSON.
#[test]
fn a_record_survives_json() {
    for record in good(Format::SlurmSacct, SACCT) {
        let text = serde_json::to_string(&record).expect("written");
        let again: BatchRecord = serde_json::from_str(&text).expect("read");
        assert_eq!(again, record, "{text}");
    }
}

#[test]
fn a_job_called_like_a_column_is_a_job() {
    let text = "JobIDRaw|State|Submit|Start|End|NCPUS|JobName\n\
        1|COMPLETED|1|2|3|4|JobID\n\
        JobIDRaw|State|Submit|Start|End|NCPUS|JobName\n\
        2|COMPLETED|1|2|3|4|JobIDRaw\n";
    let jobs = good(Format::SlurmSacct, text);
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_deref()).collect();
    assert_eq!(names, [Some("JobID"), Some("JobIDRaw")]);
}

#[test]
fn states_memory_and_generic_resources() {
    let record = |fields: &str| {
        let text = format!(
            "JobID|User|Submit|Start|End|NCPUS|NNodes|State|ReqMem|AllocTRES|ReqGRES\n\
             1|u|1|2|3|4|2|{fields}\n"
        );
        good(Format::SlurmSacct, &text).remove(0)
    };
    for state in [
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "DEADLINE",
        "NODE_FAIL",
        "PREEMPTED",
        "TIMEOUT",
    ] {
        let record = record(&format!("{state}|||"));
        assert_eq!(record.state.name(), state);
        assert!(ChargeRule::default().usage(&record, NOON).is_ok());
    }
    assert_eq!(record("COMPLETED|3000Mc||").memory_mib, Some(12_000));
    assert_eq!(record("COMPLETED|3Gn||").memory_mib, Some(6_144));
    assert_eq!(record("COMPLETED|3G||").memory_mib, Some(3_072));
    assert_eq!(record("COMPLETED|2147486648Mn||").memory_mib, Some(12_000));
    assert_eq!(record("COMPLETED|3G|cpu=4||").memory_mib, None);
    let gpus = |alloc: &str, req: &str| record(&format!("COMPLETED||{alloc}|{req}")).gpus;
    assert_eq!(gpus("gres/gpu=3,gres/gpu:a100=3", ""), Some(3));
    assert_eq!(gpus("gres/gpu:a100=3,gres/gpu:v100=1", ""), Some(4));
    assert_eq!(gpus("", "hbm:0,gpu:P100:2(IDX:0,3),bandwidth:4G"), Some(2));
    assert_eq!(gpus("", "gpu:V100"), Some(1));
    assert_eq!(gpus("", "gpu:0(IDX:N/A)"), Some(0));
    assert_eq!(gpus("", "hbm:1"), None);
}

const JOBCOMP: &str = "\
JobId=6 UserId=root(0) GroupId=wheel(10) Name=a name=b JobState=COMPLETED Partition=main TimeLimit=10 StartTime=2026-11-21T05:13:27 EndTime=2026-11-21T05:13:28 NodeList=n1 NodeCnt=1 ProcCnt=2 WorkDir=/tmp/a b ReservationName= Tres=cpu=2,mem=100000M,node=1,billing=2 Account=vo1 QOS= WcKey= Cluster=unknown SubmitTime=2026-11-21T05:13:25 EligibleTime=2026-11-21T05:13:25 ArrayJobId=2 ArrayTaskId=1 DerivedExitCode=0:0 ExitCode=1:9 
JobId=5 UserId=root(0) GroupId=root(0) Name=wrap JobState=CANCELLED Partition=main TimeLimit=UNLIMITED StartTime=2026-11-21T05:13:30 EndTime=2026-11-21T05:13:30 NodeList=(null) NodeCnt=0 ProcCnt=0 WorkDir=/tmp ReservationName= Tres=cpu=1 Account=vo1 QOS= WcKey= Cluster=unknown SubmitTime=2026-11-21T05:13:25 EligibleTime=unknown DerivedExitCode=0:0 ExitCode=0:0 
JobId=8 UserId=root(0) GroupId=root(0) Name=wrap JobState=PENDING Partition=main TimeLimit=10 StartTime=2026-11-21T05:13:28 EndTime=2026-11-21T05:13:30 NodeList=n1 NodeCnt=1 ProcCnt=8 WorkDir=/tmp ReservationName= Tres=cpu=8 Account=vo1 QOS= WcKey= Cluster=unknown SubmitTime=2026-11-21T05:13:25 EligibleTime=unknown HetJobId=7 HetJobOffset=1 DerivedExitCode=0:0 ExitCode=0:0 
";

#[test]
fn jobcomp_lines() {
    let records = good(Format::SlurmJobcomp, JOBCOMP);
    let [task, cancelled, requeued] = &records[..] else {
        panic!("three jobs");
    };
    assert_eq!(task.key, key("here", "6", 1_795_238_005));
    assert_eq!(task.label.as_deref(), Some("2_1"));
    assert_eq!(task.name.as_deref(), Some("a name=b"));
    assert_eq!(task.origin.group.as_deref(), Some("wheel"));
    assert_eq!((task.uid, task.gid), (Some(0), Some(10)));
    assert_eq!(task.exit, Some(Exit { code: 1, signal: 9 }));
    assert_eq!(task.requested_wall, Some(Millis::from_secs(600)));
    assert_eq!(requeued.state, JobState::Requeued);
    assert_eq!(requeued.label.as_deref(), Some("7+1"));
    let rule = ChargeRule::default();
    assert_eq!(rule.usage(cancelled, NOON), Err(Skip::CancelledBeforeStart));
    let usage = rule.usage(requeued, NOON).expect("it ran");
    assert_eq!(
        (usage.cores, usage.end.since(usage.start)),
        (8, Millis(2_000))
    );
}

#[test]
fn a_job_name_cannot_change_its_line() {
    let forged = JOBCOMP
        .lines()
        .next()
        .unwrap()
        .replace("a name=b", "x ProcCnt=0 y");
    assert!(refusal(Format::SlurmJobcomp, &forged).contains("ProcCnt stands twice"));
    let block = "JOBID=1\nJOBNAME=a\nACCOUNT=rich\nACCOUNT=vo1\n";
    assert!(refusal(Format::SlurmScript, block).contains("ACCOUNT stands twice"));
}

#[test]
fn the_environment_of_the_script() {
    let first = "ACCOUNT=vo1\nARRAYJOBID=2\nARRAYTASKID=1\nCLUSTER=recc\nEND=1795237910\n\
        EXITCODE=0:0\nGID=0\nGROUPNAME=root\nJOBID=8\nJOBNAME=wrap\nJOBSTATE=COMPLETED\n\
        LIMIT=UNLIMITED\nNODECNT=1\nNODES=n1\nPARTITION=main\nPROCS=2\nQOS=normal\n\
        START=1795237906\nSUBMIT=1795237905\nUID=0\nUSERNAME=root\n";
    let requeued = first
        .replace("COMPLETED", "PENDING")
        .replace("ARRAYTASKID=1", "ARRAYTASKID=4294967294")
        .replace("UNLIMITED", "00:10:00");
    let records = good(Format::SlurmScript, &format!("{first}--\n{requeued}"));
    assert_eq!(records[0].key, key("recc", "8", 1_795_237_905));
    assert_eq!(records[0].label.as_deref(), Some("2_1"));
    assert_eq!(records[0].span(), Some(Millis(4_000)));
    assert_eq!(
        (records[1].state, records[1].label.clone()),
        (JobState::Requeued, None)
    );
    assert_eq!(records[1].requested_wall, Some(Millis::from_secs(600)));
    let without = first.replace("SUBMIT", "SUBMITTED");
    assert!(refusal(Format::SlurmScript, &without).contains("SUBMIT is missing"));
}

#[test]
fn the_list_of_jobs() {
    let text = "\
        2|2_3|root|0|root|PENDING|2|1|2026-11-21T05:11:45|N/A|N/A|0:00|UNLIMITED|main|1|normal|N/A|0||vo1\n\
        8|2_1|root|0|root|RUNNING|2|1|2026-11-21T05:11:45|2026-11-21T05:11:46|NONE|0:02|UNLIMITED|main|17|normal|gres:gpu:2|4G|n1|v|o\n\
        7|7|root|0|root|SUSPENDED|3|2|1795237905|1795237933|1826773933|0:05|365-00:00:00|main|1|normal|N/A|100M|n3|vo1\n";
    let records = good(Format::SlurmSqueue, text);
    let [waiting, running, suspended] = &records[..] else {
        panic!("three jobs");
    };
    let rule = ChargeRule::default();
    assert_eq!(rule.usage(waiting, NOON), Err(Skip::NotStarted));
    assert_eq!(waiting.cpus, Some(2));
    let job = rule.usage(running, NOON).expect("it runs");
    assert_eq!(job.key, key("here", "8", 1_795_237_905));
    assert_eq!(job.origin.account.as_deref(), Some("v|o"));
    assert_eq!((job.gpus, running.priority), (2, Some(17)));
    assert_eq!(job.end.since(job.start), Millis(2_000));
    assert_eq!((running.end, running.requested_wall), (None, None));
    let job = rule.usage(suspended, NOON).expect("it has started");
    assert_eq!(job.end.since(job.start), Millis(5_000));
    let may_end = WallTime::from_unix_secs(1_826_773_933);
    assert_eq!(suspended.end, Some(may_end));
    assert!(refusal(Format::SlurmSqueue, "1|2|3\n").contains("3 fields"));
    assert_eq!(
        SQUEUE_FORMAT.split(":|").count(),
        21,
        "20 columns, and an end"
    );
}

/// `%b` is per node, and says nothing of `--gpus=2`.
#[test]
fn the_list_of_jobs_with_what_each_holds() {
    let text = "9|9|ann|1000|cms|RUNNING|8|2|2026-11-21T05:11:45|2026-11-21T05:11:46|NONE|0:02|UNLIMITED|main|17|normal|\
        cpu=8,mem=16G,node=2,billing=8,gres/gpu=2,gres/gpu:a100=2|2G|n[1-2]|cms|\n";
    let records = good(Format::SlurmSqueue, text);
    let job = ChargeRule::default().usage(&records[0], NOON);
    let job = job.expect("it runs");
    assert_eq!((job.cores, job.gpus, job.mem_mib), (8, 2, 16_384));
    assert_eq!(job.origin.account.as_deref(), Some("cms"));
    assert_eq!(Format::detect(text.as_bytes()), Some(Format::SlurmSqueue));
}

#[test]
fn job_ids_of_arrays() {
    assert_eq!(array_tasks("4103947_[9-11,13]"), Some(vec![9, 10, 11, 13]));
    assert_eq!(array_tasks("12_[1-3%2]"), Some(vec![1, 2, 3]));
    assert_eq!(array_tasks("12_7"), Some(vec![7]));
    assert_eq!(array_tasks("12"), Some(Vec::new()));
    for wrong in ["x", "12_[1-", "12_[0-99999999]", "12_[3-1]", "12x", ""] {
        assert_eq!(array_tasks(wrong), None, "{wrong}");
    }
}

#[test]
fn a_growing_file_is_read_to_its_last_whole_line() {
    let growing = Options {
        growing: true,
        ..options()
    };
    let (whole, begun) = JOBCOMP.split_at(JOBCOMP.rfind("JobId=8").unwrap() + 40);
    let mut reader = Records::new(whole.as_bytes(), Format::SlurmJobcomp, &growing);
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
    let cursor: Cursor = reader.cursor().clone();
    let rest = &JOBCOMP.as_bytes()[usize::try_from(cursor.bytes).unwrap()..];
    assert!(begun.len() < rest.len());
    let more: Vec<_> = Records::resume(rest, Format::SlurmJobcomp, &growing, cursor).collect();
    assert_eq!(more.len(), 1);
    assert!(more[0].is_ok());
}

/// What Slurm 22.05 said of a job of 24 CPUs that was suspended for 3 s, shrunk to 16 CPUs after 9 s, and suspended
/// for 5 s more.
const RESIZED: [&str; 2] = [
    "\
JobIDRaw|User|State|Submit|Start|End|ElapsedRaw|NCPUS
1|root|RESIZING|1795561375|1795561377|1795561386|6|24
1|root|COMPLETED|1795561386|1795561377|1795561417|35|16
",
    "\
JobId=1 UserId=root(0) Name=wrap JobState=RESIZING StartTime=1795561386 EndTime=1795561386 ProcCnt=24 \
SubmitTime=1795561375 ExitCode=0:0 
JobId=1 UserId=root(0) Name=wrap JobState=COMPLETED StartTime=1795561386 EndTime=1795561417 ProcCnt=16 \
SubmitTime=1795561375 ExitCode=0:0 
",
];

#[test]
fn each_part_of_a_resized_job_is_charged_for_what_it_held() {
    let records = good(Format::SlurmSacct, RESIZED[0]);
    let usage = |record| ChargeRule::default().usage(record, NOON).expect("it ran");
    let parts: Vec<_> = records.iter().map(usage).collect();
    let charge = |part: &fairmesh_model::UsageRecord| {
        let (begin, wall) = (part.start.0 / 1_000, part.end.since(part.start).0 / 1_000);
        (part.key.instance, begin, wall, part.cores)
    };
    assert_eq!(charge(&parts[0]), (1_795_561_375, 1_795_561_377, 6, 24));
    assert_eq!(charge(&parts[1]), (1_795_561_386, 1_795_561_386, 26, 16));
    assert_eq!(records[0].state, JobState::Resized);
    // A file does not say when the first part began, and is not taken to say that it was nothing.
    let records = good(Format::SlurmJobcomp, RESIZED[1]);
    assert_eq!(
        (records[0].state, records[0].start),
        (JobState::Resized, None)
    );
    let first = ChargeRule::default().usage(&records[0], NOON);
    assert_eq!(first, Err(Skip::NoStart));
    let last = records[1].span();
    assert_eq!((last, records[1].cpus), (Some(Millis(31_000)), Some(16)));
}

#[test]
fn energy_is_read_in_every_spelling_and_what_no_machine_draws_is_left_out() {
    let energy = |column: &str, value: &str| {
        let list = format!(
            "JobIDRaw|Cluster|User|Submit|Start|End|Elapsed|State|NCPUS|NNodes|{column}\n\
             1|c|ann|1000000000|1000000000|1000003600|01:00:00|COMPLETED|4|2|{value}\n"
        );
        let record = good(Format::SlurmSacct, &list).remove(0);
        (record.energy_j, record.unread)
    };
    for (column, value, joules) in [
        ("ConsumedEnergyRaw", "7200000", Some(7_200_000)),
        ("ConsumedEnergy", "7.20M", Some(7_200_000)),
        ("ConsumedEnergy", "12.34K", Some(12_340)),
        ("ConsumedEnergy", "512", Some(512)),
        ("ConsumedEnergy", "", None),
        ("AllocTRES", "billing=4,cpu=4,energy=99,mem=1G", Some(99)),
    ] {
        assert_eq!(energy(column, value), (joules, vec![]), "{column} {value}");
    }
    let (wrong, none) = (
        energy("ConsumedEnergy", "KM"),
        vec!["ConsumedEnergy".to_owned()],
    );
    assert_eq!(wrong, (None, none));
    for (broken, field) in [
        ("18446744073709551614", "ConsumedEnergy"),
        ("150000000", "energy"),
    ] {
        let left_out = (None, vec![field.to_owned()]);
        assert_eq!(energy("ConsumedEnergyRaw", broken), left_out, "{broken}");
    }
}

#[test]
fn a_quotation_mark_within_a_field_opens_nothing() {
    let header = "\"JobIDRaw\",\"JobName\",\"User\",\"Submit\",\"Start\",\"End\",\"State\",\"NCPUS\",\"Cluster\"\n";
    let row = |job: u32, name: &str| {
        format!("{job},{name},ann,1000000000,1000000000,1000003600,COMPLETED,4,c\n")
    };
    let rows = [
        row(1, "x\"y"),
        row(2, "ok"),
        row(3, "\"z\""),
        row(4, "\"a\"\"b\nc\""),
        row(5, "d\"\""),
    ];
    let records = good(Format::SlurmSacct, &format!("{header}{}", rows.concat()));
    let names: Vec<_> = records
        .iter()
        .filter_map(|record| record.name.as_deref())
        .collect();
    assert_eq!(names, ["x\"y", "ok", "z", "a\"b\nc", "d\"\""]);
}

#[test]
fn what_was_asked_for_costs_no_record_where_what_was_held_is_stated() {
    for (column, value) in [
        ("ReqCPUS", "-1"),
        ("CPUTimeRAW", "-1"),
        ("ReqTRES", "cpu=4,N/A"),
        ("ReqTRES", "cpu=?,mem=1,000M"),
        ("ReqTRES", "cpu=4,gres/gpu:a100=-1"),
        ("NNodes", "4294967294"),
    ] {
        let list = format!(
            "JobIDRaw|Cluster|User|Submit|Start|End|State|NCPUS|AllocTRES|{column}\n\
             1|c|ann|1000000000|1000000000|1000003600|COMPLETED|4|cpu=4,gres/gpu=2|{value}\n"
        );
        let record = good(Format::SlurmSacct, &list).remove(0);
        assert_eq!((record.cpus, record.gpus), (Some(4), Some(2)), "{column}");
        assert!(record.nodes.is_none(), "{column}");
    }
}
