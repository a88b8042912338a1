//! Newer forms of what batch systems write: documents of JSON and XML.

use fairmesh_model::{Millis, WallTime};
use fairmesh_records::export::{ApelSite, auditor_record};
use fairmesh_records::{
    BatchRecord, ChargeRule, Format, JobState, Options, RECORD_BYTES_MAX, Records, Zone,
};
use serde_json::{Value, json};

use crate::support::{self, options, read};

/// The records of a text whose format is recognised.
fn good(format: Format, text: &str) -> Vec<BatchRecord> {
    assert_eq!(Format::detect(text.as_bytes()), Some(format));
    support::good(format, text)
}

/// What a record says apart from the form it was read from.
fn meaning(record: &BatchRecord) -> BatchRecord {
    let mut record = record.clone();
    record.format = Format::Json;
    record
}

/// A document on one line and over many.
fn layouts(document: &Value) -> [String; 2] {
    let pretty = serde_json::to_string_pretty(document).expect("JSON");
    [document.to_string(), pretty]
}

/// A task of an array as Slurm 21.08 to 26.05 describe it: numbers, then objects of numbers; a state, then a list.
fn sacct_jobs() -> [Value; 4] {
    let number = |number: u64| json!({"set": true, "infinite": false, "number": number});
    let unset = || json!({"set": false, "infinite": false, "number": 0});
    let tres = json!({"allocated": [
        {"type": "cpu", "name": null, "id": 1, "count": 4},
        {"type": "mem", "name": "", "id": 2, "count": 2048},
        {"type": "node", "name": null, "id": 4, "count": 1},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 2}
    ], "requested": [{"type": "mem", "name": null, "id": 2, "count": 1024}]});
    let time = json!({"elapsed": 3600, "eligible": 1793491200, "start": 1793491210, "end": 1793494910,
        "submission": 1793491200, "suspended": 100, "limit": 60, "total": {"seconds": 5, "microseconds": 1}});
    let old = json!({
        "account": "cms", "cluster": "c1", "job_id": 12, "user": "ann", "group": "physics", "name": "a}b\"{",
        "association": {"account": "cms", "cluster": "c1", "partition": null, "user": "ann"},
        "array": {"job_id": 10, "limits": {"max": {"running": {"tasks": 0}}}, "task": null, "task_id": 7},
        "het": {"job_id": 0, "job_offset": null}, "comment": {"job": "", "system": null}, "allocation_nodes": 1,
        "exit_code": {"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "KILL"}},
        "nodes": "n1", "partition": "main", "priority": 5, "qos": "normal", "required": {"CPUs": 2, "memory": 1024},
        "state": {"current": "CANCELLED", "reason": "None"}, "time": time, "tres": tres,
        "steps": [{"step": {"id": "12.0", "job_id": 12}, "time": {"submission": 1}, "state": "COMPLETED"}]
    });
    let mut at_eligible = old.clone();
    at_eligible["time"]["start"] = json!(1793491200);
    let mut of_23_02 = old.clone();
    of_23_02["array"]["task_id"] = number(7);
    of_23_02["het"]["job_offset"] = unset();
    of_23_02["priority"] = number(5);
    of_23_02["time"]["limit"] = number(60);
    let mut of_23_11 = of_23_02.clone();
    of_23_11["state"]["current"] = json!(["CANCELLED"]);
    of_23_11["exit_code"] = json!({"status": ["SIGNALED"], "return_code": number(0),
        "signal": {"id": number(9), "name": "KILL"}});
    [at_eligible, old, of_23_02, of_23_11]
}

/// The list of the same job.
const SACCT: &str = "JobIDRaw|JobID|Cluster|Account|User|Group|Partition|QOS|State|ExitCode|Submit|Eligible|Start|End\
    |ElapsedRaw|TimelimitRaw|NNodes|NCPUS|ReqMem|AllocTRES|NodeList|Priority|TotalCPU|JobName\n\
    12|10_7|c1|cms|ann|physics|main|normal|CANCELLED by 5|0:9|1793491200|1793491200|1793491210|1793494910\
    |3600|60|1|4|1G|cpu=4,mem=2G,node=1,gres/gpu:a100=2|n1|5|00:05|a}b\"{\n";

#[test]
fn sacct_as_json_is_the_list_of_sacct_in_every_version() {
    let list = good(Format::SlurmSacct, SACCT);
    let meta =
        json!({"plugin": {"type": "openapi/dbv0.0.37"}, "Slurm": {"version": {"major": 21}}});
    for job in sacct_jobs() {
        let before = json!({"meta": meta, "errors": [], "jobs": [job, job]});
        let behind = json!({"jobs": [job, job], "meta": meta, "warnings": [{"description": "{"}], "errors": []});
        for text in [before, behind].iter().flat_map(layouts) {
            let records = good(Format::SlurmSacctJson, &(text.clone() + &text));
            assert_eq!(records.len(), 4, "{text}");
            for record in &records {
                assert_eq!(meaning(record), meaning(&list[0]), "{text}");
            }
        }
    }
}

#[test]
fn states_of_sacct_as_json_are_those_of_its_list() {
    for (states, state) in [
        (json!("REQUEUED"), JobState::Requeued),
        (json!(["PENDING", "REQUEUED"]), JobState::Requeued),
        (json!(["PENDING", "RESIZING"]), JobState::Resized),
        (json!(["NODE_FAIL", "LAUNCH_FAILED"]), JobState::NodeFail),
    ] {
        let mut job = sacct_jobs()[3].clone();
        job["state"]["current"] = states;
        assert_eq!(
            good(Format::SlurmSacctJson, &json!({"jobs": [job]}).to_string())[0].state,
            state
        );
    }
    let mut job = sacct_jobs()[3].clone();
    job["state"]["current"] = json!(["ODD"]);
    let refused = read(Format::SlurmSacctJson, &json!({"jobs": [job]}).to_string());
    assert!(
        refused[0]
            .as_ref()
            .is_err_and(|error| error.contains("ODD")),
        "{refused:?}"
    );
}

/// A list without jobs is read, and a job without what decides costs itself alone.
#[test]
fn a_document_without_jobs_has_no_records() {
    let empty = json!({"jobs": [], "meta": {"command": ["sacct", "--json"]}, "errors": []});
    for text in layouts(&empty) {
        assert_eq!(good(Format::SlurmSacctJson, &text), []);
    }
    let mut job = sacct_jobs()[3].clone();
    for name in ["user", "account", "cluster"] {
        job[name] = json!(null);
    }
    let record = good(Format::SlurmSacctJson, &json!({"jobs": [job]}).to_string()).remove(0);
    assert_eq!(
        (record.key.cluster, record.origin.account),
        ("c1".to_owned(), Some("cms".to_owned()))
    );
    let mut job = sacct_jobs()[3].clone();
    job["time"]["submission"] = json!(0);
    let text = json!({"jobs": [job, sacct_jobs()[0]]}).to_string();
    let records = read(Format::SlurmSacctJson, &text);
    assert!(
        records[0]
            .as_ref()
            .is_err_and(|error| error.contains("time.submission"))
    );
    assert!(records[1].is_ok() && records.len() == 2);
}

/// A job with thousands of steps, or a user's script of any length, is read as any other, and so is the one after it.
#[test]
fn what_is_not_read_of_a_job_may_have_any_length() {
    let mut job = sacct_jobs()[3].clone();
    let long = "\\\"}{".repeat(RECORD_BYTES_MAX);
    job["script"] = json!(long);
    job["steps"] = json!(vec![json!({"step": {"id": "12.0"}, "job_id": 1}); 100_000]);
    let text = json!({"jobs": [job, sacct_jobs()[0]]}).to_string();
    assert_eq!(good(Format::SlurmSacctJson, &text).len(), 2);
    let brace_free =
        json!({"jobs": [{"submit_line": "\"".repeat(3 * RECORD_BYTES_MAX)}, sacct_jobs()[0]]});
    let records = read(Format::SlurmSacctJson, &brace_free.to_string());
    assert!(records.len() == 2 && records[1].is_ok(), "{records:?}");
}

/// A run of an array's task, in the file of `jobcomp/filetxt` and as a document.
const FILETXT: &str = "JobId=12 UserId=ann(1000) GroupId=physics(100) Name=a{b JobState=TIMEOUT Partition=main \
    TimeLimit=60 StartTime=2026-11-01T00:00:10 EndTime=2026-11-01T01:00:10 NodeList=n1 NodeCnt=1 ProcCnt=4 \
    WorkDir=/home ReservationName= Tres=cpu=4,mem=2G,node=1,gres/gpu=2 Account=cms QOS=normal WcKey= Cluster=c1 \
    SubmitTime=2026-11-01T00:00:00 EligibleTime=2026-11-01T00:00:00 ArrayJobId=10 ArrayTaskId=7 \
    DerivedExitCode=0:0 ExitCode=0:15 \n";

fn document() -> Value {
    json!({
        "jobid": 12, "container": null, "username": "ann", "user_id": 1000, "groupname": "physics", "group_id": 100,
        "@start": "2026-11-01T00:00:10", "@end": "2026-11-01T01:00:10", "elapsed": 3600, "partition": "main",
        "alloc_node": "login", "nodes": "n1", "total_cpus": 4, "total_nodes": 1, "derived_ec": "0:0",
        "exit_code": "0:15", "state": "TIMEOUT", "failed_node": null, "cpu_hours": 4.0, "array_job_id": 10,
        "array_task_id": 7, "@submit": "2026-11-01T00:00:00", "@eligible": "2026-11-01T00:00:00", "cluster": "c1",
        "qos": "normal", "time_limit": 3600, "job_name": "a{b", "tres_alloc": "cpu=4,mem=2G,node=1,gres/gpu=2",
        "account": "cms", "script": "#!/bin/sh\n}", "parent_accounts": "/root/cms"
    })
}

#[test]
fn documents_of_jobcomp_are_the_lines_of_its_file() {
    let options = Options {
        zone: Zone::utc(),
        ..options()
    };
    let mut records = Records::new(FILETXT.as_bytes(), Format::SlurmJobcomp, &options);
    let line = records.next().expect("a record").expect("a good one");
    let wrapped = json!({"_index": "slurm", "_id": "1", "_score": 1.0, "_source": document(), "sort": [1, {"a": 2}]});
    let found = json!({"took": 3, "_shards": {"total": 1}, "hits": {"total": {"value": 2}, "max_score": null,
        "hits": [wrapped, wrapped]}, "aggregations": {"a": {"buckets": [{"key": 1}]}}});
    let bulk = format!(
        "{}\n{}\n",
        json!({"index": {"_index": "slurm"}}),
        document()
    );
    let mut texts = vec![bulk];
    texts.extend([document(), wrapped, found].iter().flat_map(layouts));
    for text in texts {
        let records = good(Format::SlurmJobcompJson, &(text.clone() + "\n" + &text));
        assert!(records.len() >= 2, "{text}");
        for record in &records {
            assert_eq!(meaning(record), meaning(&line), "{text}");
        }
    }
}

#[test]
fn a_document_of_a_jobs_start_is_no_record_and_one_without_what_decides_is_refused() {
    let mut start = document();
    for name in ["@end", "state"] {
        start.as_object_mut().expect("an object").remove(name);
    }
    assert_eq!(good(Format::SlurmJobcompJson, &start.to_string()), []);
    for name in ["jobid", "@submit", "total_cpus"] {
        let mut document = document();
        document.as_object_mut().expect("an object").remove(name);
        let records = read(Format::SlurmJobcompJson, &document.to_string());
        assert!(
            matches!(&records[..], [Err(error)] if error.contains(name)),
            "{name}: {records:?}"
        );
    }
}

#[test]
fn auditors_records_have_the_key_that_their_id_names() {
    let record = |id: &str| {
        json!([{"record_id": id, "meta": {"site": ["S"], "user": ["ann"], "voms": ["/cms"]}, "runtime": 3600,
            "components": [{"name": "Cores", "amount": 4, "scores": [{"name": "HEPscore23", "value": 9.5}]},
                {"name": "Memory", "amount": 2048}],
            "start_time": "2026-11-01T00:00:10.5+01:00", "stop_time": "2026-11-01T01:00:10Z"}])
        .to_string()
    };
    let start = 1_793_487_610;
    for (id, job, instance) in [
        ("slurm-12", "12", start),
        ("my-prefix-10_7", "10_7", start),
        (
            "htcondor-schedd.a-b.org#12.3#1793480000",
            "12.3",
            1_793_480_000,
        ),
        ("pod-8f3a", "pod-8f3a", start),
    ] {
        let records = good(Format::Auditor, &record(id));
        let record = &records[0];
        assert_eq!((&*record.key.cluster, &*record.key.job), ("c", job), "{id}");
        assert_eq!(
            (record.key.instance, record.cpus),
            (instance, Some(4)),
            "{id}"
        );
        assert_eq!(record.origin.user.as_deref(), Some("ann"));
        assert_eq!(record.fqans, ["/cms"]);
    }
    let without =
        json!({"record_id": "a-1", "components": [], "start_time": "2026-11-01T00:00:10Z"})
            .to_string();
    let refused = read(Format::Auditor, &without);
    assert!(
        matches!(&refused[..], [Err(error)] if error.contains("Cores")),
        "{refused:?}"
    );
}

/// With all that AUDITOR forbids in names.
#[test]
fn a_record_that_is_exported_for_auditor_reads_back_with_its_key() {
    let mut record = good(Format::SlurmSacct, SACCT).remove(0);
    record.origin.user = Some("CERN\\ann%2F(b)".to_owned());
    record.origin.subject = Some("/DC=org/CN=\"Änn\" {<x>}".to_owned());
    record.start = Some(WallTime(1_793_491_210_500));
    let site = ApelSite {
        name: "A/SITE".to_owned(),
        infrastructure: String::new(),
    };
    let line = auditor_record(&record, &site).expect("a line");
    let value: Value = serde_json::from_str(&line).expect("JSON");
    let names = format!("{} {}", value["record_id"], value["meta"]);
    let is_forbidden = |c: char| "/()<>\\".contains(c);
    assert!(!names.contains(is_forbidden), "{names}");
    let back = &good(Format::Auditor, &line)[0];
    assert_eq!((&back.key, &back.origin), (&record.key, &record.origin));
    assert_eq!(
        (back.start, back.end, back.cpus, back.gpus),
        (record.start, record.end, record.cpus, record.gpus)
    );
    record.cpus = None;
    assert!(auditor_record(&record, &site).is_err());
}

/// An epoch of a job that goes on: what it held until the ad was written is an instalment.
#[test]
fn an_epoch_of_a_job_that_runs_is_an_instalment() {
    let ad = json!({"ClusterId": 12, "ProcId": 0, "Owner": "ann", "JobStatus": 2, "QDate": 1793491200, "RunInstanceId": 1,
        "EpochAdType": "EPOCH", "JobStartDate": 1793491210, "JobCurrentStartDate": 1793500000, "ShadowBday": 1793500000,
        "EpochWriteDate": 1793501800, "RemoteWallClockTime": 1800.0, "CpusProvisioned": 4});
    let record = good(Format::HtcondorJson, &ad.to_string()).remove(0);
    let end_of_time = WallTime(u64::MAX / 2);
    let usage = ChargeRule::default()
        .usage(&record, end_of_time)
        .expect("an instalment");
    assert!(usage.running);
    assert_eq!(usage.end.since(usage.start).0, 3_600_000);
}

/// An attribute of any length, and one that is no XML, lose no ad.
#[test]
fn an_ad_of_xml_survives_what_users_put_into_it() {
    let ad = |extra: &str| {
        format!(
            "<c><a n=\"clusterid\"><i>12</i></a>{extra}<a n=\"ProcId\"><i>0</i></a><a n=\"JobStatus\"><i>4</i></a></c>\n"
        )
    };
    let long = format!(
        "<a n=\"Env\"><s>{}</s></a>",
        "x".repeat(2 * RECORD_BYTES_MAX)
    );
    let odd = "<a n=\"Owner\"><s>&nope; &#0;</s></a><a n=\"Args\"><s>a&lt;/c&gt;</s></a>";
    let text = format!(
        "<classads>{}{}{}</classads>",
        ad(&long),
        ad(odd),
        ad("<a n=\"Owner\"><s>a&amp;b</s></a>")
    );
    let records = good(Format::HtcondorXml, &text);
    assert_eq!(records.len(), 3);
    assert_eq!(records[2].origin.user.as_deref(), Some("a&b"));
    let open = read(
        Format::HtcondorXml,
        "<classads><c><a n=\"ClusterId\"><i>12</i></a>",
    );
    assert!(matches!(&open[..], [Err(_)]), "{open:?}");
    let text = format!(
        "<classads>\n<c>\n    <a n=\"ClusterId\"><i>1</i></a>\n{}</classads>",
        ad("")
    );
    let open = read(Format::HtcondorXml, &text);
    assert!(matches!(&open[..], [Err(_), Ok(_)]), "{open:?}");
}

#[test]
fn flux_lists_cores_from_the_start_of_a_job_until_it_is_inactive() {
    let job = |id: Value, state: &str, result: &str, run: f64| {
        json!({"id": id, "userid": 1000, "username": "ann", "bank": "cms", "queue": "batch", "state": state, "result": result,
            "t_submit": 1793491200.3324268, "t_depend": 1793491200.3324268, "t_run": run, "t_cleanup": 1793494800.5,
            "t_inactive": 1793494810.25, "ncores": 4, "nnodes": 2, "nodelist": "n[1-2]", "success": true})
    };
    let jobs = [
        job(json!("ƒ21"), "INACTIVE", "COMPLETED", 1793491210.25),
        job(json!(58), "RUN", "", 1793491210.25),
        job(json!(59), "INACTIVE", "CANCELED", 0.0),
        job(json!(60), "SCHED", "", 0.0),
    ];
    for text in layouts(&json!({"jobs": jobs})) {
        let records = good(Format::Flux, &text);
        let keys: Vec<&str> = records.iter().map(|record| &*record.key.job).collect();
        assert_eq!(keys, ["58", "58", "59", "60"]);
        assert_eq!(records[0].key, records[1].key);
        assert_eq!(records[0].span(), Some(Millis(3_600_000)));
        let states: Vec<JobState> = records.iter().map(|record| record.state).collect();
        assert_eq!(
            states,
            [
                JobState::Completed,
                JobState::Running,
                JobState::Cancelled,
                JobState::Pending
            ]
        );
        assert_eq!(
            (records[2].start, records[0].origin.account.as_deref()),
            (None, Some("cms"))
        );
    }
}

#[test]
fn a_job_of_clustercockpits_archive_holds_its_hardware_threads() {
    let job = json!({"jobId": 12, "user": "ann", "project": "cms", "cluster": "fritz", "subCluster": "main", "partition": "p",
        "numNodes": 2, "numHwthreads": 144, "numAcc": 8, "exclusive": 1, "startTime": 1793491210, "duration": 3600,
        "jobState": "stopped", "energy": 0.51, "resources": [{"hostname": "n1", "hwthreads": [0, 1]}], "statistics": {"flops": {"avg": 1.5}}});
    for text in layouts(&job) {
        let record = good(Format::ClusterCockpit, &text).remove(0);
        let usage = ChargeRule::default()
            .usage(&record, WallTime(1_800_000_000_000))
            .expect("usage");
        assert_eq!(
            (&*usage.key.cluster, &*usage.key.job, usage.key.instance),
            ("fritz", "12", 1_793_491_210)
        );
        assert_eq!(
            (usage.cores, usage.gpus, usage.end.since(usage.start).0),
            (144, 8, 3_600_000)
        );
        assert_eq!(usage.placement.energy_j, 1_836_000);
    }
}
