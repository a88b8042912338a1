//! What the recorded samples do not show of each format: other dialects, bad neighbours, layouts.

use std::collections::BTreeSet;

use fairmesh_model::{Chunk, Millis, Placement, Terms, UsageRecord, WallTime};
use fairmesh_records::{
    BatchRecord, ChargeRule, Format, JobState, Options, Records, Skip, WallRule, Zone,
};

use crate::support::{good, options, read};

const LATER: WallTime = WallTime::from_unix_secs(2_000_000_000);

/// The jobs read, and `!` for each error.
fn jobs(format: Format, text: &str) -> Vec<String> {
    let job = |result: Result<BatchRecord, String>| result.map_or("!".to_owned(), |r| r.key.job);
    read(format, text).into_iter().map(job).collect()
}

const AD: &str = r#"{
  "ClusterId": 12,
  "ProcId": 3,
  "GlobalJobId": "schedd#12.3#1700000000",
  "Owner": "alice",
  "AcctGroup": "group_atlas",
  "x509userproxysubject": "/O=Grid/CN=Alice {x} \"q\"",
  "QDate": 1700000000,
  "JobStartDate": 1700000100,
  "CompletionDate": 1700004000,
  "RemoteWallClockTime": 3600.0,
  "RemoteUserCpu": 3.5e3,
  "RemoteSysCpu": 1,
  "JobStatus": 4,
  "ExitCode": 0,
  "RequestCpus": 8,
  "CpusProvisioned": 4,
  "RequestMemory": "ifThenElse(a, b, c)",
  "MemoryProvisioned": 2048,
  "RequestGpus": 1,
  "DiskProvisioned": 2097152,
  "Nested": { "a": "}" }
}"#;

#[test]
fn htcondor_as_json_in_any_layout() {
    let one_line = AD.replace('\n', "");
    for text in [
        format!("[\n{AD}\n,\n{AD}\n]\n"),
        format!("[{one_line},{one_line}]"),
        format!("{one_line}\n{one_line}\n"),
    ] {
        assert_eq!(Format::detect(text.as_bytes()), Some(Format::HtcondorJson));
        let records = good(Format::HtcondorJson, &text);
        assert_eq!(records.len(), 2);
        for record in &records {
            assert_eq!(
                (record.key.job.as_str(), record.key.instance),
                ("12.3", 1_700_000_000)
            );
            assert_eq!(
                record.origin.subject.as_deref(),
                Some("/O=Grid/CN=Alice {x} \"q\"")
            );
            assert_eq!(record.origin.account.as_deref(), Some("group_atlas"));
            assert_eq!((record.cpus, record.gpus), (Some(4), Some(1)));
            assert_eq!(
                (record.memory_mib, record.disk_mib),
                (Some(2_048), Some(2_048))
            );
            assert_eq!(record.cpu_time, Some(Millis(3_501_000)));
            assert_eq!(record.state, JobState::Completed);
            // Between its runs it held nothing.
            let usage = ChargeRule::default().usage(record, LATER).expect("charged");
            assert_eq!(usage.end.since(usage.start), Millis::from_secs(3_600));
        }
    }
}

#[test]
fn an_ad_that_is_left_open_swallows_no_other() {
    let cut = &AD[..AD.find("\"JobStatus\"").unwrap()];
    let text = format!("{AD}\n{cut}\n{AD}\nnonsense\n{AD}\n");
    assert_eq!(
        jobs(Format::HtcondorJson, &text),
        ["12.3", "!", "12.3", "!", "12.3"]
    );
    let errors: Vec<_> = read(Format::HtcondorJson, &text)
        .into_iter()
        .filter_map(Result::err)
        .collect();
    let first_line_of_cut = AD.lines().count() + 1;
    assert!(
        errors[0].starts_with(&format!("line {first_line_of_cut}: not a JSON")),
        "{errors:?}"
    );
}

#[test]
fn htcondor_as_lines() {
    let ad = "ClusterId = 7\nProcId = 0\nOwner = \"bob\"\nQDate = 1700000000\n\
        JobStartDate = 1700000100\nEnteredCurrentStatus = 1700000200\nJobStatus = 3\n\
        RemoteWallClockTime = 1.000000000000000E+02\nRequestCpus = 2\nExitSignal = 9\n";
    let never = "ClusterId = 8\nProcId = 0\nOwner = \"bob\"\nQDate = 1700000000\nJobStatus = 3\n\
        EnteredCurrentStatus = 1700000200\nRequestCpus = 2\nRemoteWallClockTime = 0.0\n";
    let banner = "*** Offset = 0 ClusterId = 7 ProcId = 0 Owner = \"bob\" CompletionDate = 0\n";
    let text = format!("{ad}{banner}{never}{banner}garbage\n{banner}{ad}");
    assert_eq!(Format::detect(text.as_bytes()), Some(Format::HtcondorAds));
    assert_eq!(jobs(Format::HtcondorAds, &text), ["7.0", "8.0", "!", "7.0"]);
    let records = good(Format::HtcondorAds, &format!("{ad}\n{never}"));
    let rule = ChargeRule::default();
    let usage = rule.usage(&records[0], LATER).expect("it ran");
    assert_eq!(
        (usage.cores, usage.end.since(usage.start)),
        (2, Millis::from_secs(100))
    );
    assert_eq!(
        rule.usage(&records[1], LATER),
        Err(Skip::CancelledBeforeStart)
    );
}

const APEL: &str = "APEL-individual-job-message: v0.3\nSite: X\nSubmitHost: ce:2811/q\n\
    MachineName: pbs.x.org\nQueue: q\nLocalJobId: 31564.pbs\nLocalUserId: u1\n\
    GlobalUserName: /C=whatever/DC=test/CN=me\nFQAN: /atlas/Role=NULL\nWallDuration: 234256\n\
    CpuDuration: 2345\nProcessors: 2\nNodeCount: 0\nStartTime: 1318840264\nEndTime: 1318842264\n\
    MemoryReal: 1000\nMemoryVirtual: 2000\n%%\n";

#[test]
fn apel_messages() {
    assert_eq!(Format::detect(APEL.as_bytes()), Some(Format::ApelJob));
    let record = &good(Format::ApelJob, APEL)[0];
    assert_eq!(
        (record.key.cluster.as_str(), record.key.job.as_str()),
        ("pbs.x.org", "31564.pbs")
    );
    assert_eq!(
        record.origin.subject.as_deref(),
        Some("/C=whatever/DC=test/CN=me")
    );
    assert_eq!(record.fqans, ["/atlas/Role=NULL"]);
    assert_eq!((record.cpus, record.nodes), (Some(2), None));
    assert_eq!(record.memory_peak_bytes, Some(1_024_000));
    assert_eq!(record.held(), Some(Millis::from_secs(234_256)));
    let bad = APEL.replace("EndTime: 1318842264", "EndTime: soon");
    let nameless = APEL.replace("LocalJobId", "Job");
    let text = format!("{bad}{APEL}{nameless}{APEL}");
    assert_eq!(
        jobs(Format::ApelJob, &text),
        ["!", "31564.pbs", "!", "31564.pbs"]
    );
}

#[test]
fn pbs_counts_what_was_assigned() {
    let line = |attributes: &str| {
        format!(
            "01/02/2024 03:04:05;E;1[7].srv;user=u group=g account=\"acc\" jobname=n ctime=100 \
             start=200 end=300 {attributes}\n"
        )
    };
    let record = |attributes: &str| good(Format::Pbs, &line(attributes)).remove(0);
    let counts = |attributes: &str| {
        let record = record(attributes);
        (record.cpus, record.nodes, record.gpus, record.memory_mib)
    };
    let kwh = record("exec_host=a/0 resources_used.energy=0.01");
    assert_eq!(kwh.energy_j, Some(36_000));
    assert_eq!(
        counts(
            "exec_host=a/0*4+b/1*4 exec_vnode=(a:ncpus=4:mem=4gb:ngpus=1)+(b:ncpus=4:ngpus=1:mem=4gb)"
        ),
        (Some(8), Some(2), Some(2), Some(8_192))
    );
    let chunks = |attributes: &str| {
        let of = |chunk: &Chunk| {
            let machine = chunk.machine.clone().expect("a node");
            (machine, chunk.cores, chunk.gpus, chunk.mem_mib)
        };
        record(attributes).chunks.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(
        chunks(
            "exec_host=big/0*60+a/1*2 exec_vnode=(big:ncpus=40:mem=4gb+big:ncpus=20:ngpus=1)+(a:ncpus=2:mem=1gb)"
        ),
        [
            ("a".to_owned(), 2, 0, 1_024),
            ("big".to_owned(), 60, 1, 4_096)
        ],
        "unlike nodes of one job"
    );
    // Alone on its node, with disk that is of no node, and with memory that is of the job.
    let ab = "exec_vnode=(a:ncpus=4)+(b:ncpus=2)";
    assert_eq!(chunks("exec_vnode=(a:ncpus=4:mem=4gb)"), []);
    assert_eq!(chunks(ab).len(), 0, "nobody says how many nodes there were");
    assert_eq!(chunks(&format!("{ab} unique_node_count=2")).len(), 2);
    for more in ["Resource_List.scratch_local=1gb", "Resource_List.mem=1gb"] {
        assert_eq!(chunks(&format!("{ab} unique_node_count=2 {more}")), []);
    }
    assert_eq!(
        chunks("unique_node_count=2 exec_vnode=(a[0]:ncpus=4+a[1]:ncpus=4)+(b[0]:ncpus=2)"),
        [("a".to_owned(), 8, 0, 0), ("b".to_owned(), 2, 0, 0)],
        "a host of several vnodes"
    );
    for nameless in ["(:ncpus=4)+(b:ncpus=2)", "([0]:ncpus=4)+(b:ncpus=2)"] {
        assert_eq!(
            chunks(&format!("exec_vnode={nameless} unique_node_count=2")),
            []
        );
    }
    assert_eq!(
        counts("exec_host=a/0-3,6+b/1*4"),
        (Some(9), Some(2), None, None)
    );
    let disk = |attributes: &str| record(attributes).disk_mib;
    let scratch = "exec_vnode=(a:ncpus=2:scratch_local=1tb)+(b:ncpus=2:scratch_local=1tb)";
    assert_eq!(disk(scratch), Some(2 << 20));
    assert_eq!(disk("Resource_List.scratch_local=1tb"), Some(1 << 20));
    // Limits of a process, which its user chooses and PBS places nothing by.
    let said = "Resource_List.file=900tb Resource_List.pmem=100tb";
    assert_eq!(disk(&format!("{scratch} {said}")), Some(2 << 20));
    let of_pbs = record(&format!("exec_vnode=(a:ncpus=4) {said}"));
    let memory = (of_pbs.memory_mib, of_pbs.requested_memory_mib);
    assert_eq!((of_pbs.disk_mib, memory), (None, (None, None)));
    assert_eq!(
        counts("Resource_List.nodes=2:ppn=8:gpus=1+1:ppn=4 Resource_List.pmem=1gb"),
        (Some(20), None, Some(2), Some(20_480))
    );
    assert_eq!(
        record("Exit_status=271").exit.map(|exit| exit.signal),
        Some(15)
    );
    assert_eq!(record("Exit_status=-11").state, JobState::Failed);
    assert_eq!(
        record("Exit_status=0").origin.account.as_deref(),
        Some("acc")
    );
    assert!(read(Format::Pbs, &line("exec_host=a/x"))[0].is_err());
    // It decides nothing.
    assert_eq!(record("Exit_status=zero").unread, ["Exit_status"]);
}

#[test]
fn a_name_without_end_is_kept_in_part() {
    let name = "ž".repeat(100_000);
    let text = format!(
        "11/21/2026 05:16:24;E;7.s;user=u account={name} jobname={name} queue={name} ctime=1 start=10 end=20 \
         exec_host=n1/0 Exit_status=0\n"
    );
    let record = good(Format::Pbs, &text).remove(0);
    let kept = record.name.clone().expect("a name");
    assert!(
        kept.starts_with("žž") && kept.contains('\u{fffd}'),
        "{kept}"
    );
    assert!(serde_json::to_string(&record).expect("JSON").len() < 10_000);
    assert_eq!(
        good(Format::Pbs, &text.replace(&name, "a\u{7}"))
            .remove(0)
            .name
            .as_deref(),
        Some("a\u{7}"),
        "a short one stays as it is"
    );
}

#[test]
fn a_rerun_of_pbs_is_another_run_of_its_job() {
    let first =
        "01/02/2024 03:04:05;R;1.srv;user=u ctime=1704164400 start=1704164600 exec_host=a/0\n";
    let second = "01/02/2024 04:04:05;E;1.srv;user=u ctime=1704164400 start=1704167000 end=1704168245 exec_host=a/0\n";
    let early = "01/02/2024 03:00:05;R;2.srv;user=u ctime=1704164400\n";
    let records = good(Format::Pbs, &format!("{early}{first}{second}"));
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].state, JobState::Requeued);
    assert_eq!(
        records[0].end,
        Some(WallTime::from_unix_secs(1_704_164_645))
    );
    assert_eq!(records[0].key.job, records[1].key.job);
    assert_ne!(records[0].key.instance, records[1].key.instance);
}

#[test]
fn an_array_of_pbs_counts_by_its_tasks_and_no_attribute_stands_twice() {
    let line = |job: &str, whose: &str| {
        format!("01/02/2024 03:04:05;E;{job}.srv;user=u {whose} start=200 end=300 exec_host=a/0\n")
    };
    let whose = "account=\"a b\" project=p";
    let text = [
        line("1[3]", whose),
        line("1[]", whose),
        line("2", "account=\"x start=299\""),
    ];
    assert_eq!(jobs(Format::Pbs, &text.concat()), ["1[3].srv", "!"]);
    let account = good(Format::Pbs, &text[0]).remove(0).origin.account;
    assert_eq!(account.as_deref(), Some("a b"));
}

const LSF: &str = "\"JOB_FINISH\" \"10.1\" 1000 7 0 0 2 100 0 0 200 \"u\" \"q\" \"\" \"\" \"\" \
    \"h\" \"/\" \"\" \"\" \"\" \"f\" 0 2 \"h1\" \"h1\" 32 1.0 \"name\" \"COMMAND\" 1.5 0.5 \
    1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 \"\" \"proj\" 35072 2 \"\" \"\" 3 2048 0 \"\" \"\" \"\" \
    \"\" 0 \"\" 16 \"\" -1 \"\" \"\" \"\" \"\" -1 \"\" \"\" 0 \"\" 0 \"\" \"\" 0 0";

#[test]
fn lsf_commands_may_span_lines_and_may_be_broken() {
    let spanning = LSF.replace("COMMAND", "#!/bin/sh\n\"\"quoted\"\" \"\"JOB\"\"\nexit 137");
    let broken = LSF.replace("COMMAND\"", "COMMAND");
    let started = "\"JOB_START\" \"10.1\" 1000 7 4 0\n";
    let text = format!("{spanning}\n{started}{broken}\n{LSF}\n");
    assert_eq!(Format::detect(text.as_bytes()), Some(Format::Lsf));
    assert_eq!(jobs(Format::Lsf, &text), ["7[3]", "!", "7[3]"]);
    let record = good(Format::Lsf, &spanning).remove(0);
    assert_eq!(record.state, JobState::OutOfMemory);
    assert_eq!(record.exit.map(|exit| exit.code), Some(137));
    assert_eq!((record.cpus, record.nodes), (Some(2), Some(1)));
    assert_eq!(record.origin.account.as_deref(), Some("proj"));
    assert_eq!(record.cpu_time, Some(Millis(2_000)));
}

#[test]
fn a_count_of_lsf_that_no_line_has_leaves_the_run_limit_unknown() {
    let fixed = LSF.strip_suffix(" 0 0").expect("two counts");
    let half = u64::MAX / 2;
    let behind = [
        ("0 0 600".to_owned(), Some(Millis::from_secs(600))),
        ("1 \"\" \"\" 0 600".to_owned(), Some(Millis::from_secs(600))),
        (format!("{half} 0 600"), None),
        (format!("0 2 \"\" 1 1 1 1 {half} 600"), None),
        (format!("0 {half} \"\" 1 1 1 1 0 600"), None),
    ];
    for (counts, limit) in behind {
        let record = good(Format::Lsf, &format!("{fixed} {counts}")).remove(0);
        assert_eq!(record.requested_wall, limit, "{counts}");
    }
}

#[test]
fn grid_engine_tasks_reruns_and_slaves() {
    let line = |failed: &str, task: &str, slave: &str| {
        format!(
            "q:h:g:u:n:1:sge:0:100:200:300:{failed}:0:100:0:0:0.0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:\
             proj:d:mpi:4:{task}:1:1:0:c:0:{slave}:5:0:0\n"
        )
    };
    let text = [
        "# a comment\n".to_owned(),
        line("0", "0", "NONE"),
        line("25", "2", "NONE"),
        line("0", "0", "1.node"),
        line("x", "0", "NONE"),
    ]
    .concat();
    assert_eq!(Format::detect(text.as_bytes()), Some(Format::GridEngine));
    assert_eq!(jobs(Format::GridEngine, &text), ["1", "1.2", "!"]);
    let rerun = good(Format::GridEngine, &line("25", "2", "NONE")).remove(0);
    assert_eq!(rerun.state, JobState::Requeued);
    assert_eq!(rerun.origin.account.as_deref(), Some("proj"));
    assert_eq!(rerun.cpus, Some(4));
}

#[test]
fn what_users_of_grid_engine_ask_for_makes_no_job_a_step() {
    let line = |times: &str, category: &str, behind: &str| {
        format!(
            "q:h:g:u:n:1:sge:0:{times}:0:0:100:0:0:0.0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:\
             proj:d:mpi:4:0:1:1:0:{category}:0.000000:{behind}\n"
        )
    };
    let (seconds, millis) = ("100:200:300", "1412932860657:1412932865141:1412933085629");
    let (own, slave) = ("NONE:4096.000000", "1.node:4096.000000");
    let since = |behind: &str| format!("{behind}:0:0");
    let class = |behind: &str| format!("{behind}:0:0:NONE");
    let univa = |behind: &str| format!("{behind}:0:0:NONE:NONE:1:1:host:NONE:qsub x");
    let asked = [
        "-soft -l arch=a",
        "-soft -l arch=a:b",
        "-soft -l arch=x:0:1.node:0",
        "-soft -l arch=x:0:1.node:5:0:0:NONE",
        "-soft -l arch=1:2:3:4:5:6:7:8:9:10:11:12",
    ];
    for category in asked {
        for (behind, jobs_of) in [(own, &["1"][..]), (slave, &[])] {
            let dialects = [behind.to_owned(), since(behind), class(behind)];
            for behind in dialects {
                let text = line(seconds, category, &behind);
                assert_eq!(jobs(Format::GridEngine, &text), jobs_of, "{text}");
            }
        }
        // Univa's lines end with what users write, too.
        let text = line(millis, category, &univa(own));
        let expected = if category.contains(':') { "!" } else { "1" };
        assert_eq!(jobs(Format::GridEngine, &text), [expected], "{text}");
    }
    let forged = "x:0:1.node:5:0:0:NONE";
    for text in [
        line(millis, forged, &univa(own)),
        line(seconds, "c", &format!("{}:x:y", since(own))),
        line(seconds, "c", "NONE"),
        format!("PARAM N {}", line(seconds, "c", own)),
    ] {
        assert_eq!(jobs(Format::GridEngine, &text), ["!"], "{text}");
    }
    // Whatever a user asks for, his job is no step if a field that decides nothing cannot be read.
    for category in asked {
        for behind in [
            "NONE:?:0:0",
            "NONE:?:0:?",
            "NONE:4096.0:0:?",
            "NONE:?",
            "NONE:?:0:?:NONE",
        ] {
            let read = jobs(Format::GridEngine, &line(seconds, category, behind));
            assert!(
                ["1", "!"].contains(&read[0].as_str()),
                "{category}: {behind}: {read:?}"
            );
        }
    }
    let record = good(Format::GridEngine, &line(seconds, asked[1], &since(own))).remove(0);
    assert_eq!(record.virtual_peak_bytes, Some(4_096));
    assert_eq!(
        jobs(Format::GridEngine, &line(millis, "c", &univa(slave))),
        [""; 0]
    );
}

const USAGE: &str = "<u:JobUsageRecord xmlns:u=\"x\"><u:RecordIdentity u:recordId=\"r1\"/>\
    <u:JobIdentity><u:LocalJobId>j&amp;1</u:LocalJobId></u:JobIdentity>\
    <u:UserIdentity><u:LocalUserId>u</u:LocalUserId></u:UserIdentity><u:Status>aborted</u:Status>\
    <u:CpuDuration u:usageType=\"user\">PT1H</u:CpuDuration>\
    <u:CpuDuration u:usageType=\"system\">PT1.5S</u:CpuDuration>\
    <u:Memory u:storageUnit=\"MB\" u:metric=\"max\">100</u:Memory><u:Processors>4</u:Processors>\
    <u:WallDuration>P1DT2H</u:WallDuration><u:StartTime>2024-01-01T00:00:00+01:00</u:StartTime>\
    <u:EndTime>2024-01-02T02:00:00+01:00</u:EndTime></u:JobUsageRecord>";

#[test]
fn usage_records_fail_alone() {
    let record = good(Format::OgfUsageRecord, USAGE).remove(0);
    assert_eq!(
        (record.key.job.as_str(), record.key.cluster.as_str()),
        ("j&1", "c")
    );
    assert_eq!(record.state, JobState::Cancelled);
    assert_eq!(record.cpu_time, Some(Millis(3_601_500)));
    assert_eq!(record.memory_peak_bytes, Some(100 << 20));
    assert_eq!(
        (record.wall, record.cpus),
        (Some(Millis::from_secs(93_600)), Some(4))
    );

    let misnested = USAGE.replace("</u:Status>", "");
    let open = USAGE.replace("</u:JobUsageRecord>", "");
    let year = USAGE.replace("P1DT2H", "P1Y");
    let entity = USAGE.replace("&amp;", "&evil;");
    let comment = "<!-- <u:JobUsageRecord> -->";
    let text = format!(
        "<?xml version=\"1.0\"?>\n<u:UsageRecords>{misnested}{USAGE}{comment}{year}\n{entity}{open}\
         {USAGE}</u:UsageRecords>\n"
    );
    assert_eq!(
        Format::detect(text.as_bytes()),
        Some(Format::OgfUsageRecord)
    );
    assert_eq!(
        jobs(Format::OgfUsageRecord, &text),
        ["!", "j&1", "!", "!", "!", "j&1"]
    );
}

#[test]
fn each_format_is_recognised_and_no_stranger() {
    let squeue = "8|2_1|u|0|g|RUNNING|2|1|1|2|NONE|0:02|UNLIMITED|main|17|normal|N/A|4G|n1|a\n";
    for (text, format) in [
        ("JobID|User|State\n1|u|COMPLETED\n", Format::SlurmSacct),
        ("JobIDRaw|Elapsed|\n", Format::SlurmSacct),
        (squeue, Format::SlurmSqueue),
        ("ACCOUNT=a\nJOBID=1\nJOBSTATE=FAILED\n", Format::SlurmScript),
        ("\n\nJobId=1 UserId=u(0) EndTime=x\n", Format::SlurmJobcomp),
        ("; a comment\n#\n01/02/2024 03:04:05;Q;1;\n", Format::Pbs),
        (
            "{\"cluster\":\"c\",\"job\":\"1\",\"start_ms\":0}\n",
            Format::Json,
        ),
    ] {
        assert_eq!(Format::detect(text.as_bytes()), Some(format), "{text}");
    }
    for stranger in [
        "",
        "\n",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\n",
        "{\"colour\":\"c\",\"job\":\"1\"}\n",
        "root:x:0:0:root:/root:/bin/sh\n",
        "<html><body></body></html>",
        "a|b|c\n",
    ] {
        assert_eq!(Format::detect(stranger.as_bytes()), None, "{stranger}");
    }
}

#[test]
fn the_rule_chooses_states_and_lengths() {
    let text = "JobID|User|State|Submit|Start|End|Elapsed|NCPUS\n\
        1|u|PREEMPTED|100|200|300|00:00:40|2\n\
        2|u|FAILED|100|200|200|00:00:00|2\n\
        3|u|TIMEOUT|100|200|300|00:01:40|\n";
    let records = good(Format::SlurmSacct, text);
    let length = |rule: &ChargeRule| {
        let usage = rule.usage(&records[0], LATER).expect("charged");
        usage.end.since(usage.start).0 / 1_000
    };
    let mut rule = ChargeRule::default();
    assert_eq!(length(&rule), 40);
    rule.wall = WallRule::Span;
    assert_eq!(length(&rule), 100);
    assert!(
        rule.usage(&records[1], LATER).is_ok(),
        "it ran, if for no second"
    );
    assert_eq!(rule.usage(&records[2], LATER), Err(Skip::NoCpus));
    rule.states.remove(&JobState::Preempted);
    let skip = rule.usage(&records[0], LATER).expect_err("left out");
    assert_eq!(skip, Skip::StateNotCharged(JobState::Preempted));
    assert_eq!(
        skip.to_string(),
        "jobs in the state PREEMPTED are not charged here"
    );
}

#[test]
fn queues_and_qualities_of_service_say_on_which_terms_a_job_ran() {
    let text = "JobID|User|State|Submit|Start|End|NCPUS|NNodes|Partition|QOS|NodeList|ReqMem|AllocTRES\n\
        1|u|COMPLETED|100|200|300|8|2|long|normal|fat[07-08]|4Gn|cpu=8,node=2\n\
        2|u|COMPLETED|100|200|300|8|2|long|scavenge|fat1|8G|cpu=8,mem=6G,node=2\n\
        3|u|COMPLETED|100|200|300|8|2|gaps|scavenge|fat1|8G|cpu=8,mem=6G,node=2\n";
    let rule = ChargeRule {
        preemptible: BTreeSet::from(["scavenge".to_owned()]),
        idle: BTreeSet::from(["gaps".to_owned()]),
        ..ChargeRule::default()
    };
    let usage: Vec<_> = good(Format::SlurmSacct, text)
        .iter()
        .map(|record| rule.usage(record, LATER).expect("charged"))
        .collect();
    let terms: Vec<_> = usage.iter().map(|usage| usage.placement.terms).collect();
    assert_eq!(terms, [Terms::Regular, Terms::Preemptible, Terms::Idle]);
    // Without an allocation what was asked for counts: 4 GiB on each of two nodes.
    let memory: Vec<_> = usage.iter().map(|usage| usage.mem_mib >> 10).collect();
    assert_eq!(memory, [8, 6, 6]);
    let placement = &usage[0].placement;
    assert_eq!(placement.machine.as_deref(), Some("fat07"));
    assert_eq!(
        (placement.nodes, placement.queue.as_deref()),
        (2, Some("long"))
    );
    // On the wire it lies flat beside the rest, and what is usual is left out.
    let json = serde_json::to_value(&usage[2]).expect("plain data");
    assert_eq!(
        (&json["machine"], &json["terms"]),
        (&"fat1".into(), &"idle".into())
    );
    assert_eq!(
        serde_json::from_value::<UsageRecord>(json).expect("reads"),
        usage[2]
    );
    let old = r#"{"cluster":"c","job":"1","user":"u","start_ms":1,"end_ms":2,"cores":1}"#;
    let old: UsageRecord = serde_json::from_str(old).expect("reads");
    assert_eq!(old.placement, Placement::default());
    let json = serde_json::to_string(&old).expect("plain data");
    assert!(!json.contains("terms") && !json.contains("nodes"), "{json}");
}

/// The hour that comes twice: the job's length says which of the two its end is.
#[test]
fn a_local_end_fits_the_time_that_passed() {
    let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
    let options = Options {
        zone: Zone::new(zone),
        ..options()
    };
    let text = "JobID|User|State|Submit|Start|End|Elapsed|NCPUS\n\
        1|u|FAILED|2026-10-25T01:00:00|2026-10-25T01:30:00|2026-10-25T02:30:00|01:00:00|2\n\
        2|u|FAILED|2026-10-25T01:00:00|2026-10-25T01:30:00|2026-10-25T02:30:00|02:00:00|2\n";
    let records = Records::new(text.as_bytes(), Format::SlurmSacct, &options);
    let spans: Vec<_> = records
        .map(|record| record.expect("a job").span())
        .collect();
    assert_eq!(
        spans,
        [3_600, 7_200].map(|seconds| Some(Millis::from_secs(seconds)))
    );
}

// ---- Our own lines. ----

#[test]
fn our_own_lines_are_usage_records_or_whole_ones_and_keep_their_key() {
    let usage = r#"{"cluster":"c","job":"1","user":"u","start_ms":1000,"end_ms":3000,"cores":2}"#;
    let record = &good(Format::Json, usage)[0];
    assert_eq!(
        (record.key.instance, record.state),
        (0, JobState::Completed)
    );
    assert_eq!((record.cpus, record.held()), (Some(2), Some(Millis(2_000))));
    let running = usage.replace('}', ",\"running\":true}");
    let record = &good(Format::Json, &running)[0];
    let later = WallTime::from_unix_secs(100);
    let charged = ChargeRule::default().usage(record, later).expect("charged");
    assert!(charged.running && charged.end == WallTime(3_000));
    let whole = serde_json::to_string(record).expect("JSON");
    assert_eq!(&good(Format::Json, &whole)[0], record);
    let errors: Vec<_> = read(Format::Json, "{}\nx\n")
        .into_iter()
        .map(|line| line.expect_err("refused").to_string())
        .collect();
    assert!(
        errors[0].starts_with("line 1: not a record: missing field"),
        "{errors:?}"
    );
    assert!(
        errors[1].starts_with("line 2: not a record: expected value"),
        "{errors:?}"
    );
}

/// Whoever chooses a name that no report may bear has no job for nothing, and is nobody else.
#[test]
fn a_job_whose_account_cannot_be_shown_is_charged_all_the_same() {
    let long = "é".repeat(300);
    for account in ["x\u{200b}", &long, "x\u{1b}[2J"] {
        let text = format!(
            "JOBID=7\nJOBSTATE=COMPLETED\nSUBMIT=100\nSTART=200\nEND=300\nPROCS=2\nUSERNAME=ann\n\
             ACCOUNT={account}\nPARTITION={account}\nNODES={account}\n"
        );
        let mut record = good(Format::SlurmScript, &text).remove(0);
        assert_eq!(record.origin.account.as_deref(), Some(account));
        let charged = |record: &BatchRecord| {
            let now = WallTime::from_unix_secs(260);
            let usage = ChargeRule::default().usage(record, now).expect("charged");
            let (held, account) = (usage.end.since(usage.start).0 / 1_000, usage.origin.account);
            assert!(account.is_some_and(|account| account.contains('\u{fffd}')));
            (held, usage.running)
        };
        assert_eq!(charged(&record), (100, false));
        (record.state, record.end) = (JobState::Running, None);
        assert_eq!(charged(&record), (60, true));
    }
}

/// Cores and names of the jobs of a list, and why others are refused.
fn listed(text: &str, options: &Options) -> (Vec<(u32, String)>, Vec<String>) {
    let (mut jobs, mut refused) = (Vec::new(), Vec::new());
    for record in Records::new(text.as_bytes(), Format::SlurmSacct, options) {
        match record {
            Ok(job) => jobs.push((job.cpus.unwrap_or(0), job.name.unwrap_or_default())),
            Err(error) => refused.push(error.to_string()),
        }
    }
    (jobs, refused)
}

#[test]
fn lists_of_sacct_have_any_delimiter() {
    let header = "JobIDRaw|Cluster|User|State|Submit|Start|End|ElapsedRaw|NCPUS|JobName";
    let job = "7|c1|ann|COMPLETED|1793491200|1793491210|1793494810|3600|4|a b";
    for delimiter in ["|", ";", ",", "\t", "^|^", ";|;", "|||", "\u{2603}", " | "] {
        for end in ["", "|"] {
            let list = format!("{header}{end}\n{job}{end}\n").replace('|', "\0");
            let list = list.replace('\0', delimiter);
            assert_eq!(
                Format::detect(list.as_bytes()),
                Some(Format::SlurmSacct),
                "{list}"
            );
            let read = listed(&list, &options());
            assert_eq!(
                read,
                (vec![(4, "a b".to_owned())], Vec::new()),
                "{delimiter}"
            );
            let (_, bare) = list.split_once('\n').expect("two lines");
            let given = Options {
                columns: Some(header.replace('|', ",")),
                delimiter: Some(delimiter.to_owned()),
                ..options()
            };
            assert_eq!(listed(bare, &given), read, "{delimiter}");
        }
    }
}

#[test]
fn fields_of_a_list_by_commas_may_be_quoted() {
    let header = "JobIDRaw,Cluster,User,State,Submit,Start,End,NCPUS,JobName,Comment";
    let job = |id: u32, name: &str| {
        format!("{id},c1,ann,COMPLETED,1793491200,1793491210,1793494810,4,{name},x\n")
    };
    let list = [
        header.to_owned() + "\n",
        job(1, "\"a, \"\"b\"\"\""),
        job(2, "plain"),
        job(3, "\"open"),
        job(4, "a,b"),
        job(5, "\"end\""),
    ]
    .concat();
    let (jobs, refused) = listed(&list, &options());
    let names: Vec<&str> = jobs.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["a, \"b\"", "plain", "end"]);
    assert!(refused[0].starts_with("line 4: a quotation mark"));
    assert!(refused[1].starts_with("line 5: 11 fields, where 10 are expected"));

    // Where all are quoted, a field may hold line ends.
    let quote = |line: &str| format!("\"{}\"", line.replace(',', "\",\""));
    let lines = [header, &job(1, "two\nlines"), &job(2, "one")];
    let list = lines.map(|line| quote(line.trim_end())).join("\n");
    assert_eq!(
        Format::detect(list.as_bytes()),
        Some(Format::SlurmSacct),
        "{list}"
    );
    let (jobs, refused) = listed(&list, &options());
    assert_eq!((jobs.len(), refused.len()), (2, 0), "{refused:?}");
    assert_eq!(jobs[0].1, "two\nlines");
}
