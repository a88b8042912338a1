//! One job has one key and one charge, whichever source of its batch system reports it.
//!
//! Invariant: each batch system's sources are compared with its first one, so that every pair of them agrees. A source
//! that cannot express a job (a plug-in without GPUs, say) is left out for that job only.

use std::fmt::Write as _;

use fairmesh_model::WallTime;
use fairmesh_records::Format;
use proptest::prelude::*;
use serde_json::json;

use crate::support::{Charge, cases, charge};

#[derive(Debug, Clone)]
struct Job {
    id: u64,
    /// The array's id and the task's.
    task: Option<(u64, u64)>,
    user: String,
    account: String,
    submit: u64,
    start: u64,
    held: u64,
    suspended: u64,
    cpus: u64,
    gpus: u64,
    mem_mib: u64,
    nodes: u64,
    state: &'static str,
}

impl Job {
    fn end(&self) -> u64 {
        self.start + self.held + self.suspended
    }

    fn label(&self) -> String {
        let label = |(array, task): (u64, u64)| format!("{array}_{task}");
        self.task.map_or(self.id.to_string(), label)
    }

    /// When it was submitted, started and ended.
    fn dates(&self) -> [String; 3] {
        [self.submit, self.start, self.end()].map(date)
    }

    /// The array's fields as `Name=value`.
    fn array(&self) -> String {
        self.task.map_or(String::new(), |(array, task)| {
            format!("ArrayJobId={array} ArrayTaskId={task} ")
        })
    }

    fn tres(&self) -> String {
        let Self {
            cpus,
            gpus,
            mem_mib,
            nodes,
            ..
        } = self;
        let gpus = if *gpus > 0 {
            format!(",gres/gpu:a100={gpus},gres/gpu={gpus}")
        } else {
            String::new()
        };
        format!("billing={cpus},cpu={cpus},mem={mem_mib}M,node={nodes}{gpus}")
    }
}

fn job() -> impl Strategy<Value = Job> {
    let times = (
        1_700_000_000_u64..1_750_000_000,
        0_u64..100_000,
        1_u64..1_000_000,
        0_u64..3_600,
    );
    let sizes = (1_u64..5_000, 0_u64..9, 1_u64..1_000_000, 1_u64..100);
    let states = [
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
        "CANCELLED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
    ];
    let whose = ("[a-z][a-z0-9_-]{0,8}", "[a-z][a-z0-9_-]{0,8}");
    let ids = (
        1_u64..4_000_000_000,
        prop::option::of((1_u64..67_000_000, 0_u64..4_000_000)),
    );
    (
        ids,
        whose,
        times,
        sizes,
        prop::sample::select(states.to_vec()),
    )
        .prop_map(
            |(
                (id, task),
                (user, account),
                (submit, wait, held, suspended),
                (cpus, gpus, mem_mib, nodes),
                state,
            )| Job {
                id,
                task,
                user,
                account,
                submit,
                start: submit + wait,
                held,
                suspended,
                cpus,
                gpus,
                mem_mib,
                nodes,
                state,
            },
        )
}

fn date(seconds: u64) -> String {
    let minute = WallTime::from_unix_secs(seconds).utc_minute();
    let minute = minute.trim_end_matches(['Z', ' ']).replace(' ', "T");
    format!("{}:{:02}", &minute[..16], seconds % 60)
}

fn clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!(
        "{days}-{:02}:{:02}:{:02}",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

fn sacct(job: &Job) -> String {
    let (label, tres, end) = (job.label(), job.tres(), date(job.end()));
    let Job {
        id,
        user,
        account,
        state,
        held,
        nodes,
        cpus,
        ..
    } = job;
    let (submit, start) = (date(job.submit), date(job.start));
    format!(
        "JobIDRaw|JobID|Cluster|Account|User|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES\n\
         {id}|{label}|c|{account}|{user}|{state}|{submit}|{start}|{end}|{held}|{nodes}|{cpus}|{tres}\n"
    )
}

fn sacct_json(job: &Job, is_new: bool) -> String {
    let number = |number: u64| match is_new {
        true => json!({"set": true, "infinite": false, "number": number}),
        false => json!(number),
    };
    let none = || {
        if is_new {
            json!({"set": false, "infinite": false, "number": 0})
        } else {
            json!(null)
        }
    };
    let (array, task) = job.task.unwrap_or((0, 0));
    let tres = |kind: &str, name: &str, count: u64| json!({"type": kind, "name": name, "id": 1, "count": count});
    let mut held = vec![
        tres("cpu", "", job.cpus),
        tres("mem", "", job.mem_mib),
        tres("node", "", job.nodes),
    ];
    if job.gpus > 0 {
        held.extend([
            tres("gres", "gpu", job.gpus),
            tres("gres", "gpu:a100", job.gpus),
        ]);
    }
    let state = if is_new {
        json!([job.state])
    } else {
        json!(job.state)
    };
    let document = json!({"jobs": [{
        "job_id": job.id, "array": {"job_id": array, "task_id": if job.task.is_some() { number(task) } else { none() }},
        "cluster": "c", "account": job.account, "user": job.user, "state": {"current": state, "reason": "None"},
        "time": {"submission": job.submit, "start": job.start, "end": job.end(), "elapsed": job.held,
            "suspended": job.suspended, "eligible": job.submit, "limit": number(60)},
        "tres": {"allocated": held, "requested": []}, "allocation_nodes": job.nodes, "required": {"CPUs": job.cpus}
    }]});
    if is_new {
        serde_json::to_string_pretty(&document).expect("JSON")
    } else {
        document.to_string()
    }
}

fn filetxt(job: &Job) -> String {
    let Job {
        id,
        user,
        account,
        state,
        nodes,
        cpus,
        ..
    } = job;
    let ([submit, start, end], array, tres) = (job.dates(), job.array(), job.tres());
    format!(
        "JobId={id} UserId={user}(1) GroupId=g(1) Name=n JobState={state} Partition=p TimeLimit=60 StartTime={start} \
         EndTime={end} NodeList=n NodeCnt={nodes} ProcCnt={cpus} WorkDir=/ ReservationName= Tres={tres} Account={account} \
         QOS= WcKey= Cluster=c SubmitTime={submit} EligibleTime={submit} {array}DerivedExitCode=0:0 ExitCode=0:0 \n"
    )
}

fn document(job: &Job) -> String {
    let mut document = json!({
        "jobid": job.id, "username": job.user, "account": job.account, "cluster": "c", "@submit": date(job.submit),
        "@start": date(job.start), "@end": date(job.end()), "elapsed": job.held, "state": job.state,
        "total_cpus": job.cpus, "total_nodes": job.nodes, "tres_alloc": job.tres()
    });
    if let Some((array, task)) = job.task {
        document["array_job_id"] = json!(array);
        document["array_task_id"] = json!(task);
    }
    format!("{document}\n")
}

fn script(job: &Job) -> String {
    let Job {
        id,
        user,
        account,
        state,
        nodes,
        cpus,
        submit,
        start,
        ..
    } = job;
    let array = job.task.map_or(String::new(), |(array, task)| {
        format!("ARRAYJOBID={array}\nARRAYTASKID={task}\n")
    });
    format!(
        "JOBID={id}\nJOBSTATE={state}\nCLUSTER=c\nUSERNAME={user}\nACCOUNT={account}\nSUBMIT={submit}\nSTART={start}\n\
         END={}\nPROCS={cpus}\nNODECNT={nodes}\n{array}\n",
        job.end()
    )
}

fn squeue(job: &Job) -> String {
    let Job {
        id,
        user,
        account,
        state,
        nodes,
        cpus,
        ..
    } = job;
    let (label, tres, used) = (job.label(), job.tres(), clock(job.held));
    let [submit, start, end] = job.dates();
    format!(
        "{id}|{label}|{user}|1|g|{state}|{cpus}|{nodes}|{submit}|{start}|{end}|{used}|UNLIMITED|p|1|q|{tres}|0|n|{account}\n"
    )
}

fn scontrol(job: &Job, is_one_line: bool) -> String {
    let Job {
        id,
        user,
        account,
        state,
        nodes,
        cpus,
        ..
    } = job;
    let ([submit, start, end], array, tres) = (job.dates(), job.array(), job.tres());
    let used = clock(job.held);
    let lines = [
        format!("JobId={id} {array}JobName=n"),
        format!("UserId={user}(1) GroupId=g(1) MCS_label=N/A"),
        format!("Priority=1 Nice=0 Account={account} QOS=q"),
        format!("JobState={state} Reason=None Dependency=(null)"),
        format!("RunTime={used} TimeLimit=UNLIMITED TimeMin=N/A"),
        format!("SubmitTime={submit} EligibleTime={submit}"),
        format!("StartTime={start} EndTime={end} Deadline=N/A"),
        "NodeList=n".to_owned(),
        format!("NumNodes={nodes} NumCPUs={cpus} NumTasks=1"),
        format!("AllocTRES={tres}"),
        "Command=/bin/true".to_owned(),
    ];
    if is_one_line {
        format!("{}\n", lines.join(" "))
    } else {
        format!("{}\n\n", lines.join("\n   "))
    }
}

/// The sources of a job of Slurm that can express it.
fn slurm(job: &Job) -> Vec<(Format, String)> {
    let mut sources = vec![
        (Format::SlurmSacct, sacct(job)),
        (Format::SlurmSacctJson, sacct_json(job, false)),
        (Format::SlurmSacctJson, sacct_json(job, true)),
        (Format::SlurmSqueue, squeue(job)),
        (Format::SlurmScontrol, scontrol(job, false)),
        (Format::SlurmScontrol, scontrol(job, true)),
    ];
    // The plug-ins for completed jobs do not state how long a job was suspended.
    if job.suspended == 0 {
        sources.push((Format::SlurmJobcomp, filetxt(job)));
        sources.push((Format::SlurmJobcompJson, document(job)));
        // The environment of a script has neither GPUs nor memory.
        if job.gpus == 0 && job.mem_mib == 0 {
            sources.push((Format::SlurmScript, script(job)));
        }
    }
    sources
}

/// The attributes of a job of HTCondor, which is removed or completed.
fn ad(job: &Job) -> Vec<(&'static str, String)> {
    let text = |text: &str| format!("\"{text}\"");
    let is_removed = job.state == "CANCELLED";
    let mut ad = vec![
        ("ClusterId", job.id.to_string()),
        ("ProcId", job.task.map_or(0, |(_, task)| task).to_string()),
        ("Owner", text(&job.user)),
        ("AcctGroup", text(&job.account)),
        ("QDate", job.submit.to_string()),
        ("JobStartDate", job.start.to_string()),
        ("EnteredCurrentStatus", job.end().to_string()),
        (
            "CompletionDate",
            if is_removed { 0 } else { job.end() }.to_string(),
        ),
        ("RemoteWallClockTime", format!("{}.0", job.held)),
        ("JobStatus", if is_removed { "3" } else { "4" }.to_owned()),
        ("CpusProvisioned", job.cpus.to_string()),
        ("RequestCpus", "ifThenElse(a is undefined, 1, a)".to_owned()),
        ("MemoryProvisioned", job.mem_mib.to_string()),
    ];
    if job.gpus > 0 {
        ad.push(("GPUsProvisioned", job.gpus.to_string()));
    }
    ad
}

fn condor(job: &Job) -> Vec<(Format, String)> {
    let ad = ad(job);
    let is_expression = |value: &str| value.starts_with('i');
    let member = |(name, value): &(&str, String)| match is_expression(value) {
        true => format!("\"{name}\":\"\\/Expr({value})\\/\""),
        false => format!("\"{name}\":{value}"),
    };
    let members: Vec<String> = ad.iter().map(member).collect();
    let mut lines = String::new();
    for (name, value) in &ad {
        writeln!(lines, "{name} = {value}").expect("a string");
    }
    let element = |(name, value): &(&str, String)| {
        let value = match value.strip_prefix('"') {
            Some(text) => format!("<s>{}</s>", text.trim_end_matches('"')),
            None if is_expression(value) => format!("<e>{value}</e>"),
            None if value.ends_with(".0") => format!("<r>{}E+00</r>", value),
            None => format!("<i>{value}</i>"),
        };
        format!("<a n=\"{name}\">{value}</a>")
    };
    let nested = "<a n=\"X\"><l><c><a n=\"ClusterId\"><i>1</i></a></c><c></c></l></a><a n=\"B\"><b v=\"t\"/></a>";
    let elements: Vec<String> = ad.iter().map(element).chain([nested.to_owned()]).collect();
    vec![
        (
            Format::HtcondorXml,
            format!(
                "<?xml version=\"1.0\"?>\n<classads>\n<c>\n    {}\n</c>\n</classads>\n",
                elements.join("\n    ")
            ),
        ),
        (Format::HtcondorXml, format!("<c>{}</c>", elements.concat())),
        (
            Format::HtcondorJson,
            format!("[\n{{\n{}\n}}\n]\n", members.join(",\n")),
        ),
        (Format::HtcondorJson, format!("{{{}}}\n", members.join(","))),
        (
            Format::HtcondorAds,
            format!("{lines}*** Offset = 0 ClusterId = 1\n"),
        ),
    ]
}

fn grid_engine(job: &Job) -> Vec<(Format, String)> {
    let Job {
        id,
        user,
        account,
        submit,
        start,
        cpus,
        ..
    } = job;
    let (end, failed) = (job.end(), u8::from(job.state == "FAILED"));
    let task = job.task.map_or(0, |(_, task)| task);
    let line = |times: u64| {
        let [submit, start, end] = [submit, start, &end].map(|time| time * times);
        format!(
            "q:h:g:{user}:n:{id}:sge:0:{submit}:{start}:{end}:{failed}:0:1:1:1:1:0:0:0:0:0:0:0:0:0:0:0:0:0:0:{account}:d:NONE:\
             {cpus}:{task}:1:0.1:0.0:-pe mpi 4:0.0:NONE:1.0:0:0\n"
        )
    };
    let object = json!({
        "job_number": id, "task_number": task, "owner": user, "group": "g", "project": account, "qname": "q", "hostname": "h",
        "slots": cpus, "job_name": "n", "submission_time": submit * 1_000_000, "start_time": start * 1_000_000,
        "end_time": end * 1_000_000, "failed": failed, "exit_status": 0
    });
    vec![
        (Format::GridEngine, line(1)),
        (Format::GridEngine, format!("{object}\n")),
    ]
}

fn recognised_charge(format: Format, text: &str) -> Result<(Charge, u64), String> {
    assert_eq!(Format::detect(text.as_bytes()), Some(format), "{text}");
    charge(format, text.as_bytes())
}

fn agree(sources: &[(Format, String)]) -> Result<(), TestCaseError> {
    let (format, text) = &sources[0];
    let expected = recognised_charge(*format, text);
    prop_assert!(expected.is_ok(), "{format}: {expected:?}: {text}");
    for (other, text) in &sources[1..] {
        prop_assert_eq!(
            &recognised_charge(*other, text),
            &expected,
            "{} and {}: {}",
            format,
            other,
            text
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_job_of_slurm_has_one_key_and_one_charge(job in job(), was_suspended: bool, is_plain: bool) {
        let suspended = if was_suspended { job.suspended } else { 0 };
        let (gpus, mem_mib) = if is_plain { (0, 0) } else { (job.gpus, job.mem_mib) };
        agree(&slurm(&Job { suspended, gpus, mem_mib, ..job }))?;
    }

    #[test]
    fn a_job_of_htcondor_has_one_key_and_one_charge(job in job()) {
        agree(&condor(&job))?;
    }

    #[test]
    fn a_job_of_grid_engine_has_one_key_and_one_charge(job in job()) {
        agree(&grid_engine(&job))?;
    }
}
