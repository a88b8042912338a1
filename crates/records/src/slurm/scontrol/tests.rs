//! What Slurm 22.05 prints, in both forms, and what users can put into it.

use fairmesh_model::WallTime;
use proptest::prelude::*;

use super::*;
use crate::charge::{ChargeRule, Skip};
use crate::reader::{Cursor, Records};
use crate::record::Exit;

/// A job of Slurm's, in lines without their indent: the first line, and what differs from job to job.
fn lines(first: &str, rest: [&str; 5]) -> Vec<String> {
    let [who, state, times, counts, behind] = rest;
    let mut lines = vec![first.to_owned()];
    lines.push(format!("{who} MCS_label=N/A"));
    lines.push("Priority=17 Nice=0 Account=vo1 QOS=normal".to_owned());
    lines.extend(state.lines().map(str::to_owned));
    lines.extend(times.lines().map(str::to_owned));
    lines.push("SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-22T00:04:15".to_owned());
    lines.push("Partition=main AllocNode:Sid=login1:18957".to_owned());
    lines.push("ReqNodeList=(null) ExcNodeList=(null)".to_owned());
    lines.extend(counts.lines().map(str::to_owned));
    lines.push("Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*".to_owned());
    lines.push("Features=(null) DelayBoot=00:00:00".to_owned());
    lines.push("OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)".to_owned());
    lines.push("Command=(null)".to_owned());
    lines.push("WorkDir=/home/ann/a b".to_owned());
    lines.extend(behind.lines().map(str::to_owned));
    lines.push("Power=".to_owned());
    lines
}

const ANN: &str = "UserId=ann(1000) GroupId=domain users(100)";

const RUNNING: &str = "JobState=RUNNING Reason=None Dependency=(null)\n\
    Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0";

const SINCE: &str = "RunTime=00:00:25 TimeLimit=1-00:00:00 TimeMin=N/A\n\
    SubmitTime=2026-11-22T00:04:14 EligibleTime=2026-11-22T00:04:14\n\
    AccrueTime=2026-11-22T00:04:14\n\
    StartTime=2026-11-22T00:04:15 EndTime=2026-11-23T00:04:15 Deadline=N/A";

const ON_N1: &str = "NodeList=n1\nBatchHost=n1\n\
    NumNodes=1 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n\
    TRES=cpu=2,mem=100M,node=1,billing=2\n\
    MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0";

fn running(first: &str) -> Vec<String> {
    lines(
        first,
        [ANN, RUNNING, SINCE, ON_N1, "Comment=a NumCPUs=1 b "],
    )
}

/// Jobs in Slurm's two forms.
fn both_forms(jobs: &[Vec<String>]) -> [String; 2] {
    let block = |lines: &Vec<String>| format!("{}\n   \n\n", lines.join("\n   "));
    let line = |lines: &Vec<String>| format!("{} \n", lines.join(" "));
    [
        jobs.iter().map(block).collect(),
        jobs.iter().map(line).collect(),
    ]
}

fn options() -> Options {
    Options {
        cluster: "here".to_owned(),
        ..Options::default()
    }
}

fn read(text: &str) -> Vec<Result<BatchRecord, String>> {
    let records = Records::new(text.as_bytes(), Format::SlurmScontrol, &options());
    records
        .map(|record| record.map_err(|error| error.to_string()))
        .collect()
}

/// The records of some jobs, which must be the same in both forms.
fn good(jobs: &[Vec<String>]) -> Vec<BatchRecord> {
    let [blocks, lines] = both_forms(jobs);
    for text in [&blocks, &lines] {
        let detected = Format::detect(text.as_bytes());
        assert_eq!(detected, Some(Format::SlurmScontrol), "{text}");
    }
    let blocks = read(&blocks);
    assert_eq!(blocks, read(&lines));
    let record = |record: Result<_, String>| record.unwrap_or_else(|error| panic!("{error}"));
    blocks.into_iter().map(record).collect()
}

/// The only record of a text.
fn good_text(text: &str) -> BatchRecord {
    let mut records = read(text);
    assert_eq!(records.len(), 1, "{records:?}");
    records.remove(0).expect(text)
}

/// Why the only record of a text is refused.
fn refusal(text: &str) -> String {
    let mut records = read(text);
    assert_eq!(records.len(), 1, "{records:?}");
    records.remove(0).expect_err(text)
}

fn moment(seconds_of_day: u64) -> Option<WallTime> {
    Some(WallTime::from_unix_secs(1_795_305_600 + seconds_of_day))
}

#[test]
fn a_nice_is_the_importance_of_the_job() {
    for (nice, importance) in [("0", None), ("70", Some(30)), ("-5000", Some(200))] {
        let mut job = running("JobId=1 JobName=a");
        for line in &mut job {
            *line = line.replace("Nice=0", &format!("Nice={nice}"));
        }
        let records = good(&[job]);
        let found = records[0].importance.map(Importance::get);
        assert_eq!(found, importance, "{nice}");
        let json = serde_json::to_string(&records[0]).expect("JSON");
        assert_eq!(
            json.contains("\"importance\""),
            importance.is_some(),
            "{json}"
        );
        let again: BatchRecord = serde_json::from_str(&json).expect("a record");
        assert_eq!(again, records[0]);
    }
}

#[test]
fn a_running_job_in_both_forms() {
    let [record] = &good(&[running("JobId=1 JobName=two words=1")])[..] else {
        panic!("one job");
    };
    let key = JobKey {
        cluster: "here".to_owned(),
        job: "1".to_owned(),
        instance: 1_795_305_854,
    };
    assert_eq!((&record.key, record.label.as_deref()), (&key, None));
    assert_eq!(record.name.as_deref(), Some("two words=1"));
    assert_eq!(record.origin.user.as_deref(), Some("ann"));
    assert_eq!(record.origin.group.as_deref(), Some("domain users"));
    assert_eq!((record.uid, record.gid), (Some(1_000), Some(100)));
    assert_eq!(record.origin.account.as_deref(), Some("vo1"));
    assert_eq!(record.qos.as_deref(), Some("normal"));
    assert_eq!((record.submit, record.eligible), (moment(254), moment(254)));
    assert_eq!(
        (record.start, record.end),
        (moment(255), moment(255 + 86_400))
    );
    assert_eq!(record.wall, Some(Millis::from_secs(25)));
    assert_eq!(record.requested_wall, Some(Millis::from_secs(86_400)));
    assert_eq!((record.cpus, record.nodes), (Some(2), Some(1)));
    assert_eq!(
        (record.memory_mib, record.requested_memory_mib),
        (Some(100), Some(100))
    );
    assert_eq!((record.priority, record.gpus), (Some(17), None));
    assert_eq!(record.exit, Some(Exit::default()));
    assert_eq!(record.hosts.as_deref(), Some("n1"));
    let now = moment(400).expect("a time");
    let job = ChargeRule::default().usage(record, now);
    let job = job.expect("it runs");
    assert_eq!(job.end.since(job.start), Millis(25_000));
    assert_eq!(record.end, moment(255 + 86_400));
}

#[test]
fn arrays_and_components_have_the_key_and_label_of_other_lists() {
    let task = running("JobId=15 ArrayJobId=3 ArrayTaskId=1 ArrayTaskThrottle=1 JobName=arr");
    let waits = running("JobId=3 ArrayJobId=3 ArrayTaskId=2-3%1 ArrayTaskThrottle=1 JobName=arr");
    let mut first = running("JobId=8 HetJobId=8 HetJobOffset=0 JobName=a HetJobIdSet=1");
    first.insert(1, "HetJobIdSet=8-9".to_owned());
    let mut second = running("JobId=9 PackJobId=8 PackJobOffset=1 JobName=b");
    second.insert(1, "PackJobIdSet=8-9".to_owned());
    let records = good(&[task, waits, first, second]);
    let labels: Vec<_> = records
        .iter()
        .map(|record| (record.key.job.as_str(), record.label.as_deref()))
        .collect();
    assert_eq!(
        labels,
        [
            ("15", Some("3_1")),
            ("3", Some("3_[2-3%1]")),
            ("8", Some("8+0")),
            ("9", Some("8+1"))
        ]
    );
    assert_eq!(super::super::array_tasks("3_[2-3%1]"), Some(vec![2, 3]));
    assert_eq!(records[2].name.as_deref(), Some("a HetJobIdSet=1"));
    let task = running("JobId=15 JobName=HetJobIdSet=1 HetJobIdSet=2");
    assert_eq!(
        good(&[task])[0].name.as_deref(),
        Some("HetJobIdSet=1 HetJobIdSet=2")
    );
}

#[test]
fn what_waits_has_no_start_and_what_was_cancelled_in_the_queue_none_either() {
    let forecast = "RunTime=00:00:00 TimeLimit=Partition_Limit TimeMin=N/A\n\
        SubmitTime=2026-11-22T00:04:14 EligibleTime=Unknown\n\
        StartTime=2026-11-22T01:04:14 EndTime=2026-11-23T01:04:14 Deadline=N/A";
    let counts = "NodeList=\nNumNodes=4-8 NumCPUs=8-16 NumTasks=8 CPUs/Task=1\n\
        TRES=cpu=8,mem=40M,node=1,billing=4,gres/gpu=2\n\
        MinCPUsNode=1 MinMemoryCPU=10M MinTmpDiskNode=0";
    let pending = RUNNING.replace("RUNNING", "PENDING");
    let cancelled = RUNNING.replace("RUNNING", "CANCELLED");
    let at_once = forecast.replace("2026-11-23T01:04:14", "2026-11-22T01:04:14");
    let records = good(&[
        lines("JobId=7 JobName=", [ANN, &pending, forecast, counts, ""]),
        lines("JobId=8 JobName=", [ANN, &cancelled, &at_once, counts, ""]),
    ]);
    let rule = ChargeRule::default();
    let now = moment(80_000).expect("a time");
    let [waits, cancelled] = &records[..] else {
        panic!("two jobs");
    };
    assert_eq!((waits.start, waits.end, waits.eligible), (None, None, None));
    assert_eq!((waits.nodes, waits.cpus), (Some(4), Some(8)));
    assert_eq!((waits.requested_wall, &waits.name), (None, &None));
    assert_eq!(
        (waits.memory_mib, waits.requested_memory_mib, waits.gpus),
        (None, Some(80), Some(2))
    );
    assert_eq!(rule.usage(waits, now), Err(Skip::NotStarted));
    assert_eq!((cancelled.start, cancelled.end), (None, moment(3_854)));
    assert_eq!(rule.usage(cancelled, now), Err(Skip::CancelledBeforeStart));
    let completing = RUNNING.replace("RUNNING", "COMPLETING");
    let present = SINCE.replace("RunTime=00:00:25", "RunTime=00:00:00");
    let present = present.replace("EndTime=2026-11-23T00:04:15", "EndTime=Unknown");
    let requeued = lines("JobId=9 JobName=a", [ANN, &completing, &present, ON_N1, ""]);
    assert_eq!(
        rule.usage(&good(&[requeued])[0], now),
        Err(Skip::NotStarted)
    );
    let leaving = lines("JobId=9 JobName=a", [ANN, &completing, SINCE, ON_N1, ""]);
    assert!(rule.usage(&good(&[leaving])[0], now).is_ok());
}

/// Suspension is no part of `RunTime`; a requeued run has its own submit time, and so its own key.
#[test]
fn an_ended_job_is_charged_for_what_it_ran() {
    let failed = "JobState=FAILED Reason=NonZeroExitCode FailedNode=n3 Dependency=(null)\n\
        Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=3:9";
    let times = SINCE.replace("EndTime=2026-11-23T00:04:15", "EndTime=2026-11-22T00:05:15");
    let newer = ON_N1.replace(
        "TRES=cpu=2,mem=100M,node=1,billing=2",
        "ReqTRES=cpu=1,mem=2G,node=1,gres/gpu=1\n\
         AllocTRES=cpu=2,mem=3G,node=1,billing=2,gres/gpu=2,gres/gpu:a100=2",
    );
    let newer = newer.replace("MinMemoryNode=100M", "MinMemoryNode=0");
    let records = good(&[lines(
        "JobId=4 JobName=n",
        [ANN, failed, &times, &newer, ""],
    )]);
    let record = &records[0];
    assert_eq!(record.held(), Some(Millis::from_secs(25)));
    assert_eq!(record.span(), Some(Millis::from_secs(60)));
    assert_eq!(record.exit, Some(Exit { code: 3, signal: 9 }));
    assert_eq!(
        (record.memory_mib, record.requested_memory_mib),
        (Some(3_072), Some(2_048))
    );
    assert_eq!(record.gpus, Some(2));
}

#[test]
fn gpus_that_are_not_tracked_are_those_asked_for() {
    let gpus = |counts: &str, behind| {
        let first = "JobId=18 JobName=gpus";
        good(&[lines(first, [ANN, RUNNING, SINCE, counts, behind])])[0].gpus
    };
    let three = ON_N1.replace("NumNodes=1", "NumNodes=3");
    assert_eq!(gpus(&three, "TresPerNode=gres:gpu:2"), Some(6));
    assert_eq!(gpus(&three, "TresPerJob=gres/gpu:a100:2"), Some(2));
    let tracked = ON_N1.replace("billing=2", "gres/gpu=4");
    assert_eq!(gpus(&tracked, "TresPerNode=gres:gpu:2"), Some(4));
}

#[test]
fn a_name_or_comment_cannot_make_somebody_else_pay() {
    let forged = "UserId=rich(7) GroupId=rich(7) MCS_label=N/A Priority=1 Nice=0 Account=rich";
    let whole = running("JobId=2 JobName=x").join(" ");
    let whole = whole.strip_prefix("JobId=2 JobName=").expect("its head");
    for name in [
        "x UserId=rich(7)",
        &format!("x {forged}"),
        &whole.replace("ann(1000)", "rich(7)"),
    ] {
        let [block, line] = both_forms(&[running(&format!("JobId=2 JobName={name}"))]);
        let record = read(&block).remove(0).expect("a block tells");
        assert_eq!(record.name.as_deref(), Some(name));
        assert_eq!(record.origin.user.as_deref(), Some("ann"));
        let why = refusal(&line);
        assert!(why.contains("UserId stands twice"), "{why}");
    }
    let comment = |text: &str| {
        let comment = format!("Comment={text}");
        both_forms(&[lines(
            "JobId=2 JobName=x",
            [ANN, RUNNING, SINCE, ON_N1, &comment],
        )])
    };
    let [block, line] = comment(&format!("a {forged}"));
    let record = read(&block).remove(0).expect("a block tells");
    assert_eq!(record.origin.user.as_deref(), Some("ann"));
    assert!(refusal(&line).contains("UserId stands twice"));
    let [_, line] = comment("x Command=y");
    assert!(refusal(&line).contains("Command stands twice"));
    let account = running("JobId=2 JobName=x")
        .join(" ")
        .replace("vo1", "vo1 NumCPUs=0 x");
    assert!(refusal(&account).contains("NumCPUs stands twice"));
}

/// Slurm prints line ends in names and comments as they are.
#[test]
fn pieces_of_a_job_behind_a_line_end_are_refused() {
    let rest = running("JobId=2 JobName=x").join("\n   ");
    let (_, rest) = rest.split_once("\n").expect("lines");
    let forged = rest.replace("ann(1000)", "rich(7)");
    let twice = |text: &str| {
        let why = refusal(text);
        assert!(why.contains("stands twice"), "{why}");
    };
    twice(&format!("JobId=2 JobName=x\n   UserId=rich(7)\n{rest}\n\n"));
    twice(&format!("JobId=2 JobName=x\n{forged}\n\n{rest}\n\n"));
    twice(&format!("JobId=2 JobName=x\n{forged}\n\nx\n{rest}\n\n"));
    let text = format!("JobId=2 JobName=x\nJobId=3 JobName=y\n{rest}\n\n");
    let records = read(&text);
    assert_eq!(records.len(), 2);
    assert!(records[0].is_err() && records[1].is_ok());
    let text = format!("JobId=2 JobName=x y\n\n   z\n{rest}\nfoo\n\nJobId=99 JobName=f \n");
    let records = read(&text);
    assert_eq!(records.len(), 2);
    let record = records[0].as_ref().expect("harmless");
    assert_eq!(record.origin.user.as_deref(), Some("ann"));
    assert!(records[1].is_err());
    let detected = Format::detect(text.as_bytes());
    assert_eq!(detected, Some(Format::SlurmScontrol));
}

#[test]
fn what_is_cut_short_is_refused_and_what_follows_is_read() {
    let jobs = [running("JobId=1 JobName=a"), running("JobId=2 JobName=b")];
    for text in both_forms(&jobs) {
        let counted = text.find("Command=").expect("it is there");
        for end in (7..counted).filter(|end| text.is_char_boundary(*end)) {
            assert!(read(&text[..end])[0].is_err(), "{}", &text[..end]);
            let mended = format!("{}\n{text}", &text[..end]);
            let good = read(&mended).iter().filter(|job| job.is_ok()).count();
            assert_eq!(good, 2, "{mended}");
        }
        let headless = read(&text[1..]);
        assert!(headless[0].is_err() && headless[1].is_ok() && headless.len() == 2);
    }
    for (from, to, why) in [
        ("NumCPUs=2", "NumCPUs=two", "NumCPUs is `two`"),
        ("(1000)", "", "name(number)"),
        ("JobState=RUNNING", "JobState=LOST", "`LOST` is not known"),
        ("JobId=1", "JobId=1x", "JobId is `1x`"),
        (
            "SubmitTime=2026-11-22T00:04:14",
            "SubmitTime=Unknown",
            "Sub",
        ),
        ("TRES=cpu=2", "TRES=cpu", "TRES is `cpu`"),
    ] {
        for text in both_forms(&jobs[..1]) {
            let said = refusal(&text.replacen(from, to, 1));
            assert!(said.starts_with("line 1: ") && said.contains(why), "{said}");
        }
    }
    // What was asked for decides nothing where it is known what was held.
    for text in both_forms(&jobs[..1]) {
        let record = good_text(&text.replacen("=100M M", "=lots M", 1));
        assert_eq!(record.unread, ["MinMemoryNode"]);
    }
}

#[test]
fn an_empty_list_is_decoration_and_reading_goes_on_from_any_job() {
    let none = format!("{NO_JOBS}\n");
    assert_eq!(Format::detect(none.as_bytes()), Some(Format::SlurmScontrol));
    assert!(read(&none).is_empty());
    let jobs: Vec<_> = (1..6)
        .map(|job| running(&format!("JobId={job} JobName=a")))
        .collect();
    for text in both_forms(&jobs) {
        let all = read(&text);
        let mut reader = Records::new(text.as_bytes(), Format::SlurmScontrol, &options());
        for given in 1..=all.len() {
            reader.next();
            let cursor: Cursor = reader.cursor().clone();
            let at = usize::try_from(cursor.bytes).expect("within");
            let rest = &text.as_bytes()[at..];
            let rest = Records::resume(rest, Format::SlurmScontrol, &options(), cursor);
            let rest: Vec<_> = rest.map(|job| job.map_err(|e| e.to_string())).collect();
            assert_eq!(rest, all[given..]);
        }
    }
}

#[test]
fn a_line_of_job_completion_is_no_list() {
    let line = "JobId=6 UserId=ann(1) GroupId=g(1) Name=x JobName=y JobState=FAILED EndTime=x\n";
    assert_eq!(Format::detect(line.as_bytes()), Some(Format::SlurmJobcomp));
    assert_eq!(refusal(line), "line 1: JobName is missing");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever stands in the name and the comment: a block gives the same job, and
    /// a line the same or none.
    #[test]
    fn free_text_changes_nothing_else(name in free_text(), comment in free_text()) {
        let plain = running("JobId=2 JobName=x");
        let plain = good(&[plain]).remove(0);
        let first = format!("JobId=2 JobName={name}");
        let behind = format!("Comment={comment} ");
        let [block, line] = both_forms(&[lines(&first, [ANN, RUNNING, SINCE, ON_N1, &behind])]);
        for (text, is_block) in [(block, true), (line, false)] {
            let mut records = read(&text);
            prop_assert_eq!(records.len(), 1);
            match records.remove(0) {
                Ok(mut record) => {
                    prop_assert_eq!(&record.name, &fields::name(&name));
                    record.name.clone_from(&plain.name);
                    // Who asks for GPUs in a comment is taken at his word where they are not tracked.
                    record.gpus = None;
                    prop_assert_eq!(&record, &plain);
                }
                Err(why) => prop_assert!(!is_block && why.contains("stands twice"), "{}", why),
            }
        }
    }
}

/// Text without line ends, of pieces of Slurm's own.
fn free_text() -> impl Strategy<Value = String> {
    let mut pieces: Vec<String> = LINES
        .concat()
        .iter()
        .map(|key| format!(" {key}="))
        .collect();
    let more = [
        " ",
        "=",
        "x",
        "(0)",
        "JobId=",
        "JobName=",
        " JobName=",
        " Command=",
        " HetJobIdSet=8",
        "   ",
        " UserId=rich(7) GroupId=rich(7)",
        " TresPerJob=gres:gpu:1",
        "\u{e9}",
        "\u{a0}",
        "\t",
    ];
    pieces.extend(more.map(str::to_owned));
    prop::collection::vec(prop::sample::select(pieces), 0..8).prop_map(|pieces| pieces.concat())
}
