//! Whatever stands in a field that decides nothing, the charge stays the same.
//!
//! Invariant: each format has a record here, whose fields between `⟦` and `⟧` decide neither what the job held, nor for
//! how long, nor whose it was. They take any value that their container can hold.

use fairmesh_records::Format;
use proptest::prelude::*;

use crate::support::{self, Charge, cases};

/// What a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    /// Any bytes but these.
    Without(&'static [u8]),
    /// At least one byte, and none of these.
    Some(&'static [u8]),
    /// A number of any length.
    Digits,
    /// Any value of JSON.
    Json,
    /// Any string of JSON.
    JsonString,
}
use Syntax::{Json, JsonString, Without};

/// A word of a line: blanks end it, those of Unicode (which begin with one of the last four bytes) among them.
const WORD: Syntax = Without(b" \t\r\x0b\x0c\n=\xc2\xe1\xe2\xe3");
/// An item of a list in a word.
const ITEM: Syntax = Without(b",() \t\r\x0b\x0c\n=\xc2\xe1\xe2\xe3");
const BARE: Syntax = Syntax::Some(b" \t\r\n\"");

/// A part of a record: its text with the fields, and what these may hold.
type Part = (Syntax, &'static str);

const SAMPLES: [(Format, &[Part]); 20] = [
    (
        Format::SlurmSacct,
        &[(
            Without(b"|\n"),
            "JobIDRaw|JobID|Cluster|Account|User|UID|Group|GID|Partition|QOS|State|ExitCode|Submit|Eligible|Start|End|\
             ElapsedRaw|TimelimitRaw|NNodes|NCPUS|ReqCPUS|ReqMem|AllocTRES|ReqTRES|NodeList|Priority|TotalCPU|MaxRSS|JobName\n\
             12|12|c|cms|ann|⟦1000⟧|⟦g⟧|⟦100⟧|⟦main⟧|⟦normal⟧|COMPLETED|⟦0:0⟧|1793491200|⟦1793491200⟧|1793491210|1793494810|\
             3600|⟦60⟧|⟦1⟧|4|4|⟦2G⟧|cpu=4,mem=2G,gres/gpu=2|cpu=4|⟦n1⟧|⟦5⟧|⟦00:05⟧|⟦1M⟧|⟦wrap⟧\n",
        )],
    ),
    (
        Format::SlurmSacct,
        &[
            (
                WORD,
                "JobIDRaw|Cluster|Account|User|State|Submit|Start|End|ElapsedRaw|NCPUS|AllocTRES\n\
                 12|c|cms|ann|COMPLETED|1793491200|1793491210|1793494810|3600|4|",
            ),
            (
                Without(b",|\n="),
                "billing=⟦8⟧,cpu=4,gres/gpu=2,mem=⟦2G⟧,node=⟦1⟧,license/a=⟦3⟧\n",
            ),
        ],
    ),
    (
        Format::SlurmSacctJson,
        &[(
            Json,
            r#"{"jobs":[{"job_id":12,"cluster":"c","account":"cms","user":"ann","array":⟦{"job_id":0}⟧,"het":⟦{}⟧,
            "comment":⟦{}⟧,"exit_code":⟦{}⟧,"group":⟦"g"⟧,"name":⟦"n"⟧,"nodes":⟦"n1"⟧,"partition":⟦"main"⟧,"priority":⟦5⟧,
            "qos":⟦"normal"⟧,"required":⟦{"CPUs":4}⟧,"state":{"current":["COMPLETED"],"reason":⟦"None"⟧},"steps":⟦[]⟧,
            "time":{"submission":1793491200,"start":1793491210,"end":1793494810,"elapsed":3600,"eligible":⟦1793491200⟧,
            "limit":⟦60⟧,"suspended":⟦0⟧,"total":⟦{"seconds":5}⟧},"allocation_nodes":⟦1⟧,"tres":{"allocated":[
            {"type":"cpu","id":⟦1⟧,"count":4},{"type":"gres","name":"gpu","count":2},{"type":"mem","count":⟦2048⟧}],
            "requested":[{"type":"mem","count":⟦1⟧}]}}],"meta":⟦{}⟧,"errors":⟦[]⟧}"#,
        )],
    ),
    (
        Format::SlurmJobcomp,
        &[
            (ITEM, "JobId=12 UserId=ann(⟦1000⟧) GroupId=⟦g⟧(⟦100⟧) "),
            (
                WORD,
                "Name=⟦n⟧ JobState=COMPLETED Partition=⟦main⟧ TimeLimit=⟦60⟧ StartTime=2026-11-01T00:00:10 \
                 EndTime=2026-11-01T01:00:10 NodeList=⟦n1⟧ NodeCnt=⟦1⟧ ProcCnt=4 WorkDir=⟦/home⟧ ReservationName=⟦⟧ ",
            ),
            (ITEM, "Tres=cpu=4,mem=⟦2G⟧,node=⟦1⟧,billing=⟦4⟧,gres/gpu=2 "),
            (
                WORD,
                "Account=cms QOS=⟦normal⟧ WcKey=⟦⟧ Cluster=c SubmitTime=2026-11-01T00:00:00 EligibleTime=⟦Unknown⟧ \
                 ArrayJobId=⟦10⟧ ArrayTaskId=⟦7⟧ DerivedExitCode=⟦0:0⟧ ExitCode=⟦0:0⟧\n",
            ),
        ],
    ),
    (
        Format::SlurmJobcompJson,
        &[(
            Json,
            r#"{"jobid":12,"username":"ann","user_id":⟦1000⟧,"groupname":⟦"g"⟧,"group_id":⟦100⟧,"@start":"2026-11-01T00:00:10",
            "@end":"2026-11-01T01:00:10","elapsed":⟦3600⟧,"partition":⟦"main"⟧,"nodes":⟦"n1"⟧,"total_cpus":4,"total_nodes":⟦1⟧,
            "exit_code":⟦"0:0"⟧,"state":"COMPLETED","cpu_hours":⟦4.0⟧,"array_job_id":⟦10⟧,"array_task_id":⟦7⟧,
            "@submit":"2026-11-01T00:00:00","@eligible":⟦"2026-11-01T00:00:00"⟧,"cluster":"c","qos":⟦"normal"⟧,
            "time_limit":⟦3600⟧,"job_name":⟦"n"⟧,"account":"cms","script":⟦""⟧,"tres_alloc":"cpu=4,gres/gpu=2","priority":⟦5⟧}"#,
        )],
    ),
    (
        Format::SlurmScript,
        &[(
            Without(b"\n"),
            "JOBID=12\nCLUSTER=c\nJOBSTATE=COMPLETED\nSUBMIT=1793491200\nSTART=1793491210\nEND=1793494810\nPROCS=4\n\
             USERNAME=ann\nACCOUNT=cms\nUID=⟦1000⟧\nGID=⟦100⟧\nGROUPNAME=⟦g⟧\nJOBNAME=⟦n⟧\nPARTITION=⟦main⟧\nQOS=⟦normal⟧\n\
             NODECNT=⟦1⟧\nLIMIT=⟦60⟧\nEXITCODE=⟦0:0⟧\nNODES=⟦n1⟧\nARRAYJOBID=⟦10⟧\nARRAYTASKID=⟦7⟧\nHETJOBID=⟦0⟧\nPATH=⟦/bin⟧\n",
        )],
    ),
    (
        Format::SlurmSqueue,
        &[
            (
                Without(b"|\n"),
                "12|⟦12⟧|ann|⟦1000⟧|⟦g⟧|COMPLETED|4|⟦1⟧|1793491200|1793491210|1793494810|1:00:00|⟦2:00:00⟧|⟦main⟧|⟦5⟧|⟦normal⟧|",
            ),
            (Without(b"|,\n="), "cpu=4,mem=⟦2G⟧,node=⟦1⟧,gres/gpu=2|"),
            (Without(b"|\n"), "⟦2G⟧|⟦n1⟧|cms\n"),
        ],
    ),
    (
        Format::SlurmScontrol,
        &[
            (Without(b"\n"), "JobId=12 JobName=⟦n⟧\n"),
            (
                ITEM,
                "   UserId=ann(⟦1000⟧) GroupId=⟦g⟧(⟦100⟧) MCS_label=⟦N/A⟧\n",
            ),
            (
                WORD,
                "   Priority=⟦5⟧ Nice=⟦0⟧ Account=cms QOS=⟦normal⟧\n   JobState=COMPLETED Reason=⟦None⟧ Dependency=⟦(null)⟧\n   \
                 Requeue=⟦1⟧ Restarts=⟦0⟧ BatchFlag=⟦1⟧ Reboot=⟦0⟧ ExitCode=⟦0:0⟧\n   RunTime=01:00:00 TimeLimit=⟦02:00:00⟧\n   \
                 SubmitTime=2026-11-01T00:00:00 EligibleTime=⟦Unknown⟧\n   StartTime=2026-11-01T00:00:10 \
                 EndTime=2026-11-01T01:00:10 Deadline=⟦N/A⟧\n   Partition=⟦main⟧ AllocNode:Sid=⟦l:1⟧\n   NodeList=n1\n   \
                 BatchHost=⟦n1⟧\n   NumNodes=⟦1⟧ NumCPUs=4 NumTasks=⟦4⟧\n",
            ),
            (
                ITEM,
                "   AllocTRES=cpu=4,mem=⟦2G⟧,node=⟦1⟧,billing=⟦4⟧,gres/gpu=2\n",
            ),
            (WORD, "   MinCPUsNode=⟦1⟧ MinMemoryNode=⟦2G⟧\n"),
            (
                Without(b"\n"),
                "   Command=⟦/bin/true⟧\n   WorkDir=⟦/home⟧\n   Comment=⟦c⟧\n",
            ),
        ],
    ),
    (
        Format::Pbs,
        &[(
            WORD,
            "11/01/2026 01:00:10;E;12.srv;user=ann group=⟦g⟧ account=cms jobname=⟦n⟧ queue=⟦q⟧ ctime=⟦1793491200⟧ \
             qtime=⟦1793491200⟧ etime=⟦1793491200⟧ start=1793491210 exec_host=⟦n1/0*4⟧ exec_vnode=(n1:ncpus=4:ngpus=2) \
             Resource_List.walltime=⟦01:00:00⟧ Resource_List.ncpus=⟦4⟧ Resource_List.nodect=⟦1⟧ Resource_List.mem=⟦2gb⟧ \
             Resource_List.place=⟦free⟧ session=⟦1⟧ end=1793494810 Exit_status=⟦0⟧ resources_used.cput=⟦00:05:00⟧ \
             resources_used.mem=⟦1kb⟧ resources_used.vmem=⟦1kb⟧ resources_used.walltime=⟦01:00:00⟧ \
             resources_used.energy=⟦0.5⟧ run_count=⟦1⟧\n",
        )],
    ),
    (
        Format::GridEngine,
        &[
            (Without(b":\n"), "all.q:⟦node1⟧:⟦grp⟧:ann:⟦job⟧:12:sge:"),
            // With a word in their place, no line has its name's end in one place.
            (Syntax::Digits, "⟦0⟧:⟦1793491200⟧:"),
            (
                Without(b":\n"),
                "1793491210:1793494810:0:⟦0⟧:⟦3600⟧:⟦1.0⟧:⟦0.5⟧:⟦3000⟧:⟦0⟧:⟦0⟧:⟦0⟧:⟦0⟧:⟦100⟧:⟦0⟧:⟦0⟧:⟦10⟧:⟦8⟧:⟦0⟧:⟦0⟧:⟦0⟧:⟦50⟧:\
                 ⟦5⟧:cms:⟦dept⟧:⟦mpi⟧:4:0:⟦10.5⟧:⟦0.1⟧:⟦0.0⟧:⟦-l h=2G⟧:⟦0.000000⟧:NONE:⟦2306048.000000⟧:0:⟦0⟧\n",
            ),
        ],
    ),
    (
        Format::GridEngine,
        &[(
            Json,
            r#"{"job_number":12,"task_number":0,"start_time":1793491210000000,"end_time":1793494810000000,"owner":"ann","group":⟦"g"⟧,"account":"sge","project":"cms","qname":⟦"all.q"⟧,"hostname":⟦"n1"⟧,"department":⟦"d"⟧,"slots":4,"job_name":⟦"n"⟧,"priority":⟦0⟧,"submission_time":⟦1793491200000000⟧,"category":⟦""⟧,"failed":⟦0⟧,"exit_status":⟦0⟧,"usage":{"rusage":{"ru_wallclock":⟦3600⟧,"ru_utime":⟦1.0⟧},"usage":{"cpu":⟦10.5⟧,"mem":⟦0.1⟧,"maxvmem":⟦1⟧}}}"#,
        )],
    ),
    (
        Format::Lsf,
        &[
            (
                BARE,
                "\"JOB_FINISH\" \"10.1\" 1793494810 12 ⟦1000⟧ ⟦33554434⟧ 4 ⟦1793491200⟧ ⟦0⟧ ⟦0⟧ 1793491210 \"ann\" ",
            ),
            (
                Without(b"\"\n"),
                "\"⟦q⟧\" \"⟦⟧\" \"⟦⟧\" \"⟦⟧\" \"⟦sub⟧\" \"⟦/home⟧\" \"⟦⟧\" \"⟦⟧\" \"⟦⟧\" \"⟦1.1⟧\" 0 4 \"n1\" \"n1\" \"n1\" \"n1\" 64 ",
            ),
            (
                BARE,
                "⟦60.0⟧ \"j\" \"sleep 1\" ⟦10.5⟧ ⟦1.5⟧ ⟦3748⟧ ⟦0⟧ ⟦-1⟧ 0 0 436 4 0 928 0 -1 0 0 0 19 2 -1 ",
            ),
            (Without(b"\"\n"), "\"⟦⟧\" \"cms\" "),
            (
                BARE,
                "⟦0⟧ ⟦4⟧ \"\" \"\" 0 ⟦2048⟧ ⟦0⟧ \"\" \"\" \"\" \"\" 0 \"\" 0 \"\" -1\n",
            ),
        ],
    ),
    (
        Format::HtcondorJson,
        &[(
            Json,
            r#"{"ClusterId":12,"ProcId":0,"Owner":"ann","AcctGroup":"cms","GlobalJobId":⟦"s#12.0"⟧,"JobStatus":4,
            "QDate":1793491200,"JobStartDate":1793491210,"CompletionDate":1793494810,"RemoteWallClockTime":3600.0,
            "CpusProvisioned":4,"GPUsProvisioned":2,"RequestCpus":⟦1⟧,"RequestGPUs":⟦1⟧,"MemoryProvisioned":⟦2048⟧,
            "RequestMemory":⟦1024⟧,"RequestDisk":⟦1⟧,"DiskProvisioned":⟦1⟧,"RemoteUserCpu":⟦5⟧,"RemoteSysCpu":⟦5.5⟧,
            "ResidentSetSize":⟦1⟧,"ImageSize":⟦1⟧,"ExitCode":⟦0⟧,"ExitSignal":⟦9⟧,"MaxHosts":⟦1⟧,"LastRemoteHost":⟦"n1"⟧,
            "JobBatchName":⟦"n"⟧,"MaxWallTimeMins":⟦60⟧,"Environment":⟦""⟧,"EnteredCurrentStatus":⟦1793494810⟧}"#,
        )],
    ),
    (
        Format::HtcondorAds,
        &[(
            Without(b"\n"),
            "ClusterId = 12\nProcId = 0\nOwner = \"ann\"\nAcctGroup = \"cms\"\nGlobalJobId = \"⟦s#12.0⟧\"\nJobStatus = 4\n\
             QDate = 1793491200\nJobStartDate = 1793491210\nCompletionDate = 1793494810\nRemoteWallClockTime = 3600.0\n\
             CpusProvisioned = 4\nGPUsProvisioned = 2\nRequestCpus = ⟦1⟧\nMemoryProvisioned = ⟦2048⟧\nRequestMemory = ⟦1024⟧\n\
             RemoteUserCpu = ⟦5⟧\nRemoteSysCpu = ⟦5.5⟧\nExitCode = ⟦0⟧\nMaxHosts = ⟦1⟧\nImageSize = ⟦1⟧\nEnv = ⟦\"\"⟧\n\n",
        )],
    ),
    (
        Format::Auditor,
        &[(
            Json,
            r#"{"record_id":"slurm-12","meta":{"site_id":⟦["S"]⟧,"user_id":["ann"],"account_id":["cms"],"group_id":⟦["g"]⟧,
            "note":⟦["n"]⟧},"components":[{"name":"Cores","amount":4,"scores":⟦[]⟧},{"name":"Memory","amount":⟦2⟧},
            {"name":"GPUs","amount":2}],"start_time":"2026-11-01T00:00:10Z","stop_time":"2026-11-01T01:00:10Z",
            "runtime":⟦3600⟧}"#,
        )],
    ),
    (
        Format::HtcondorXml,
        &[(
            Without(b"<>&"),
            "<?xml version=\"1.0\"?>\n<classads>\n<c>\n<a n=\"ClusterId\"><i>12</i></a>\n<a n=\"ProcId\"><i>0</i></a>\n\
             <a n=\"Owner\"><s>ann</s></a>\n<a n=\"AcctGroup\"><s>cms</s></a>\n<a n=\"JobStatus\"><i>4</i></a>\n\
             <a n=\"QDate\"><i>1793491200</i></a>\n<a n=\"JobStartDate\"><i>1793491210</i></a>\n\
             <a n=\"CompletionDate\"><i>1793494810</i></a>\n<a n=\"RemoteWallClockTime\"><r>3.600000000000000E+03</r></a>\n\
             <a n=\"CpusProvisioned\"><i>4</i></a>\n<a n=\"GlobalJobId\"><s>⟦s#12.0⟧</s></a>\n<a n=\"Env\"><s>⟦x⟧</s></a>\n\
             <a n=\"RequestMemory\"><e>⟦a ?: 1⟧</e></a>\n<a n=\"RemoteUserCpu\"><r>⟦5.0⟧</r></a>\n\
             <a n=\"MemoryProvisioned\"><i>⟦2048⟧</i></a>\n<a n=\"ExitCode\"><i>⟦0⟧</i></a>\n</c>\n</classads>\n",
        )],
    ),
    (
        Format::Flux,
        &[(
            Json,
            r#"{"jobs":[{"id":12,"userid":⟦1000⟧,"username":"ann","bank":"cms","state":"INACTIVE","result":"COMPLETED",
            "t_submit":⟦1793491200.5⟧,"t_depend":⟦1793491200.5⟧,"t_run":1793491210.0,"t_cleanup":1793494809.0,
            "t_inactive":1793494810.0,"ncores":4,"nnodes":⟦1⟧,"ntasks":⟦4⟧,"nodelist":⟦"n1"⟧,"ranks":⟦"0"⟧,"queue":⟦"q"⟧,
            "name":⟦"n"⟧,"priority":⟦16⟧,"duration":⟦3600.0⟧,"annotations":⟦{}⟧,"exception":⟦{}⟧}]}"#,
        )],
    ),
    (
        Format::ClusterCockpit,
        &[(
            Json,
            r#"{"jobId":12,"user":"ann","project":"cms","cluster":"c","subCluster":⟦"main"⟧,"partition":⟦"p"⟧,"numNodes":⟦1⟧,
            "numHwthreads":4,"numAcc":2,"exclusive":⟦1⟧,"smt":⟦1⟧,"startTime":1793491210,"duration":3600,"walltime":⟦7200⟧,
            "energy":⟦0.5⟧,"jobState":"completed","resources":⟦[]⟧,"statistics":⟦{}⟧,"metaData":⟦{}⟧,"tags":⟦[]⟧}"#,
        )],
    ),
    (
        Format::OgfUsageRecord,
        &[(
            Without(b"<>&\n"),
            "<JobUsageRecord><RecordIdentity recordId=\"r\"/><JobIdentity><GlobalJobId>⟦g⟧</GlobalJobId><LocalJobId>12\
             </LocalJobId></JobIdentity><UserIdentity><LocalUserId>ann</LocalUserId><LocalGroup>⟦g⟧</LocalGroup></UserIdentity>\
             <JobName>⟦n⟧</JobName><ProjectName>cms</ProjectName><Status>completed</Status><WallDuration>PT3600S</WallDuration>\
             <CpuDuration>⟦PT5S⟧</CpuDuration><SubmitTime>⟦2026-11-01T00:00:00Z⟧</SubmitTime><StartTime>2026-11-01T00:00:10Z\
             </StartTime><EndTime>2026-11-01T01:00:10Z</EndTime><MachineName>c</MachineName><Queue>⟦q⟧</Queue><Host>⟦n1⟧</Host>\
             <NodeCount>⟦1⟧</NodeCount><Processors>4</Processors><Memory>⟦1⟧</Memory><Disk>⟦1⟧</Disk></JobUsageRecord>\n",
        )],
    ),
    (
        Format::ApelJob,
        &[(
            Without(b"\n"),
            "APEL-individual-job-message: v0.3\nSite: ⟦S⟧\nSubmitHost: ⟦h⟧\nMachineName: c\nQueue: ⟦q⟧\nLocalJobId: 12\n\
             LocalUserId: ann\nFQAN: ⟦/cms⟧\nWallDuration: 3600\nCpuDuration: ⟦5⟧\nProcessors: 4\nNodeCount: ⟦1⟧\n\
             StartTime: 1793491210\nEndTime: 1793494810\nMemoryReal: ⟦1⟧\nMemoryVirtual: ⟦1⟧\nScalingFactor: ⟦1⟧\n%%\n",
        )],
    ),
];

/// Formats whose sample stands apart: lines without names for their fields, and Fairmesh's own, whose types are checked.
const OTHERS: [(Format, &[Part]); 2] = [
    (
        Format::HtcondorFields,
        &[(
            Without(b"|\n"),
            "12.0|ann|3600|⟦5⟧|⟦5.5⟧|1793491210|1793494810|⟦1⟧|⟦1⟧|4\n",
        )],
    ),
    (
        Format::Json,
        &[(
            JsonString,
            r#"{"format":"pbs","cluster":"c","job":"12","instance":1793491210,"user":"ann","account":"cms","state":"completed","name":⟦"n"⟧,"label":⟦"l"⟧,"hosts":⟦"n1"⟧,"grid_job":⟦"g"⟧,"queue":⟦"q"⟧,"start":1793491210000,"end":1793494810000,"cpus":4}"#,
        )],
    ),
];

/// Pieces of text, and the fields between them with their syntax.
fn pieces(parts: &[Part]) -> (Vec<&str>, Vec<(Syntax, &str)>) {
    let (mut texts, mut fields) = (Vec::new(), Vec::new());
    let mut open = false;
    for (syntax, text) in parts {
        let mut pieces = text.split('⟦');
        texts.push(pieces.next().unwrap_or_default());
        for piece in pieces {
            let (field, text) = piece.split_once('⟧').expect("a closed field");
            fields.push((*syntax, field));
            texts.push(text);
        }
        // Between two parts there is no field.
        fields.push((Without(b""), ""));
        open = true;
    }
    assert!(open);
    fields.pop();
    (texts, fields)
}

/// The field's own text, or what is drawn for it, as its syntax has it.
fn written(syntax: Syntax, drawn: &Drawn) -> Vec<u8> {
    let allowed = |without: &[u8]| -> Vec<u8> {
        let bytes = drawn.bytes.iter().copied();
        bytes.filter(|byte| !without.contains(byte)).collect()
    };
    let string = || serde_json::to_string(&String::from_utf8_lossy(&drawn.bytes)).expect("JSON");
    match syntax {
        Without(without) => allowed(without),
        Syntax::Some(without) => {
            let bytes = allowed(without);
            if bytes.is_empty() {
                b"-".to_vec()
            } else {
                bytes
            }
        }
        Syntax::Digits => {
            let digits = drawn.bytes.iter().chain(&[0]);
            digits.map(|byte| b'0' + byte % 10).collect()
        }
        Json if drawn.json.is_empty() => string().into_bytes(),
        Json => drawn.json.clone().into_bytes(),
        JsonString => string().into_bytes(),
    }
}

/// What a field is given: bytes, or a value of JSON where it may have one.
#[derive(Debug, Clone)]
struct Drawn {
    bytes: Vec<u8>,
    json: String,
}

/// Words that readers have stumbled over.
const WORDS: [&str; 16] = [
    "",
    "-1",
    "18446744073709551614",
    "18446744073709551616",
    "nan",
    "-0.000000",
    "0:-1",
    "Unknown",
    "N/A",
    "16?",
    "-00:00:16",
    "1969-12-31T23:59:59",
    "4294967295",
    "(",
    "[",
    "\\",
];

fn drawn() -> impl Strategy<Value = Drawn> {
    let bytes = prop_oneof![
        prop::sample::select(WORDS.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    let json = prop_oneof![
        2 => Just(String::new()),
        1 => prop::sample::select(vec!["null", "true", "-1", "1.5e300", "{}", "[]", "[{\"a\":[1,\"}\"]}]",
            "{\"set\":true,\"infinite\":true,\"number\":-1}", "18446744073709551616", "{\"b\":{\"c\":\"]\"}}"])
            .prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|number| number.to_string()),
    ];
    (bytes, json).prop_map(|(bytes, json)| Drawn { bytes, json })
}

/// Memory is no part of it: fields that decide nothing hold it.
fn charge(format: Format, text: &[u8]) -> Result<Charge, String> {
    support::charge(format, text).map(|(charge, _)| charge)
}

/// The sample with these fields replaced.
fn sample(parts: &[Part], drawn: &Drawn, replaced: impl Fn(usize) -> bool) -> Vec<u8> {
    let (texts, fields) = pieces(parts);
    let mut bytes = texts[0].as_bytes().to_vec();
    for (index, ((syntax, field), text)) in fields.iter().zip(&texts[1..]).enumerate() {
        let is_field = *syntax != Without(b"");
        if is_field && replaced(index) {
            bytes.extend(written(*syntax, drawn));
        } else {
            bytes.extend_from_slice(field.as_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[test]
fn every_format_has_a_record_whose_format_is_recognised_and_that_is_charged() {
    let none = Drawn {
        bytes: Vec::new(),
        json: String::new(),
    };
    for (format, parts) in SAMPLES.iter().chain(&OTHERS) {
        let text = sample(parts, &none, |_| false);
        assert_eq!(Format::detect(&text), Some(*format));
        let (key, _, _, start, end, cores, _) = charge(*format, &text).expect("a charge");
        let job = key.job.split('.').next();
        assert_eq!(
            (job, cores, end.since(start).0),
            (Some("12"), 4, 3_600_000),
            "{format}"
        );
    }
    let has_one = |format: &Format| {
        SAMPLES
            .iter()
            .chain(&OTHERS)
            .any(|(known, _)| known == format)
    };
    let without: Vec<_> = Format::all().filter(|format| !has_one(format)).collect();
    assert!(without.is_empty(), "{without:?}");
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn a_field_that_decides_nothing_changes_no_charge(drawn in drawn()) {
        for (format, parts) in SAMPLES.iter().chain(&OTHERS) {
            let expected = charge(*format, &sample(parts, &drawn, |_| false));
            let fields = pieces(parts).1.len();
            for field in 0..fields {
                let text = sample(parts, &drawn, |index| index == field);
                let shown = String::from_utf8_lossy(&text);
                prop_assert_eq!(&charge(*format, &text), &expected, "{}: {}", format, shown);
            }
            let text = sample(parts, &drawn, |_| true);
            prop_assert_eq!(&charge(*format, &text), &expected, "{}: all", format);
        }
    }
}
