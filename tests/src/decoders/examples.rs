//! What each decoder likes: where tests begin to damage it, and campaigns to look for more.
//!
//! `FAIRMESH_WRITE_SEEDS=FOLDER cargo test -p fairmesh-tests --lib examples` writes them, a folder for each decoder:
//! `cargo +nightly fuzz run --features link TARGET FOLDER/TARGET`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fairmesh_client::protocol::{
    Accounts, NameBlockBuf, Request, View, Want, Who, encode_answer, encode_request,
};
use fairmesh_gossip::wire::{HeadContent, HeadItem, PullAnswer, Push, Request as Asked, Response};
use fairmesh_model::{
    AccountPath, ContentHash, Factor, Incarnation, Millis, PriceList, Signed, SiteId, WallTime,
    Window, cbor,
};
use fairmesh_quota::{Cell, Row};
use fairmesh_site::{Advert, Description, HandOffReply, JobRequest, Message, Offer, Take};
use proptest::prelude::*;
use serde_bytes::ByteBuf;

use super::heads::{TwoHeads, key, table, two_heads};
use super::{DECODERS, decode};
use crate::Vo;
use crate::session;

/// What is text.
const TEXTS: [(&str, &str); 38] = [
    ("account_path", "/P-B1/ann"),
    (
        "usage_record",
        r#"{"cluster":"c","job":"1","user":"ann","account":"grid","start_ms":1767600000000,"end_ms":1767603600000,
            "cores":2,"gpus":1,"mem_mib":2048,"nodes":1,"queue":"main","machine":"n1"}"#,
    ),
    (
        "running_job",
        r#"{"cluster":"c","job":"1","user":"ann","account":"grid","start_ms":1767600000000,"end_ms":1767603600000,
            "cores":2,"running":true,"expected_end_ms":1767610000000}"#,
    ),
    (
        "slurm_report",
        r#"{"feed":{"rounds":{"done":1,"without_scheduler":0,"without_node":0},"counted":1,"known":0,
            "refused":0,"running":2,"until_ms":1767600000000}}"#,
    ),
    (
        "share_tree",
        include_str!("../../../configs/slurm-shares.toml"),
    ),
    ("node_config", include_str!("../../../configs/minimal.toml")),
    (
        "charging_config",
        "[charging]\nlocal = { penalty = { gpu = true, disk = true, factor_max = 4 } }\ndiscounts = { preemptible = 50 }\n\
         preemptible = [\"scavenge\"]\nstates = [\"COMPLETED\"]\nwall = \"held\"\n[charging.queues]\nexpress = 2.5\n\
         [[machine]]\nclass = \"thin\"\ncount = 120\ncpus = 64\nmemory = \"256GiB\"\nspec = 1.0\nhosts = [\"n*\"]\n",
    ),
    (
        "swf",
        "; Version: 2.2\n1 0 10 3600 4 3500 1024 4 7200 2048 1 3 2 -1 1 1 -1 -1\n\
         2 60 -1 -1 8 -1 -1 8 7200 -1 5 3 2 -1 1 1 -1 -1\n",
    ),
    (
        "sla",
        "[sla]\n\"/a\" = { cpu = \"10% / 30d, burst 40% / 1d\", disk = \"2TiB\", extensible = true }\n\
         \"/a/g\" = { cpu = \"25%+\", at_most = \"150cpus\" }\n\"/b\" = { cpu = \"5%-\" }\n",
    ),
    (
        "queue_journal",
        "{\"record\":\"added\",\"key\":\"j\",\"account\":\"/g\",\"cpus\":3,\"wall_ms\":60000}\n\
         {\"record\":\"assigned\",\"job\":\"j\",\"attempt\":1,\"site\":\"s\",\"at\":7}\n\
         {\"record\":\"started\",\"job\":\"j\",\"attempt\":1}\n\
         {\"record\":\"failed\",\"job\":\"j\",\"attempt\":1,\"at\":9,\"why\":\"no\"}\n\
         {\"record\":\"given-up\",\"job\":\"j\",\"why\":\"no\"}\n",
    ),
    (
        "place_grid",
        r#"{"sites": [{"name": "s", "total": 100, "free": 40, "waiting": 0, "vos": {"v": {"epoch_used": 12.5,
            "epoch_share": 50, "burst_used": 10, "burst_limit": 50, "extensible": false}}}]}"#,
    ),
    ("place_ask", r#"{"vo": "v", "cpus": 8, "wall_s": 60}"#),
    (
        "records_slurm_sacct",
        "JobID|JobIDRaw|Cluster|Account|User|State|ExitCode|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES\n\
         2_3|2|c|vo1|ann|COMPLETED|0:0|2026-11-21T05:11:45|2026-11-21T05:11:53|2026-11-21T05:11:57|4|1|2|cpu=2\n\
         3+1|4|c|vo1|ann|CANCELLED by 0|0:0|2026-11-21T05:11:45|None|2026-11-21T05:12:16|0|1|0|\n",
    ),
    (
        "records_slurm_sacct",
        "\"JobIDRaw\",\"Cluster\",\"User\",\"State\",\"Submit\",\"Start\",\"End\",\"NCPUS\",\"JobName\"\n\
         \"2\",\"c\",\"ann\",\"COMPLETED\",\"1793491200\",\"1793491210\",\"1793494810\",\"2\",\"a \"\"b\"\",\nc\"\n",
    ),
    (
        "records_slurm_sacct_delimiter",
        "JobIDRaw^|^Cluster^|^User^|^State^|^Submit^|^Start^|^End^|^NCPUS\n\
         2^|^c^|^ann^|^COMPLETED^|^1793491200^|^1793491210^|^1793494810^|^2\n",
    ),
    (
        "records_slurm_sacct_json",
        r#"{"jobs": [{"job_id": 12, "cluster": "c", "account": "cms", "user": "ann", "array": {"job_id": 10, "task_id":
            {"set": true, "infinite": false, "number": 7}}, "state": {"current": ["COMPLETED"]}, "time": {"submission":
            1793491200, "start": 1793491210, "end": 1793494810, "elapsed": 3600}, "tres": {"allocated": [{"type": "cpu",
            "count": 4}, {"type": "gres", "name": "gpu", "count": 2}]}}], "errors": []}"#,
    ),
    (
        "records_slurm_jobcomp_json",
        r#"{"jobid": 12, "username": "ann", "account": "cms", "cluster": "c", "@submit": "2026-11-01T00:00:00",
            "@start": "2026-11-01T00:00:10", "@end": "2026-11-01T01:00:10", "elapsed": 3600, "state": "COMPLETED",
            "total_cpus": 4, "total_nodes": 1, "tres_alloc": "cpu=4,gres/gpu=2", "array_job_id": 10, "array_task_id": 7}"#,
    ),
    (
        "records_htcondor_xml",
        "<?xml version=\"1.0\"?>\n<classads>\n<c>\n<a n=\"ClusterId\"><i>12</i></a><a n=\"ProcId\"><i>0</i></a>\n\
         <a n=\"Owner\"><s>a&amp;n</s></a><a n=\"JobStatus\"><i>4</i></a><a n=\"QDate\"><i>1793491200</i></a>\n\
         <a n=\"JobStartDate\"><i>1793491210</i></a><a n=\"CompletionDate\"><i>1793494810</i></a>\n\
         <a n=\"RemoteWallClockTime\"><r>3.6E+03</r></a><a n=\"CpusProvisioned\"><i>4</i></a>\n\
         <a n=\"X\"><l><c><a n=\"ProcId\"><e>1 + 1</e></a></c></l></a></c>\n</classads>\n",
    ),
    (
        "records_auditor",
        r#"{"record_id": "slurm-12", "meta": {"site_id": ["S"], "user_id": ["ann"]}, "components": [{"name": "Cores",
            "amount": 4, "scores": [{"name": "HEPSPEC", "value": 1.0}]}, {"name": "GPUs", "amount": 2}],
            "start_time": "2026-11-01T00:00:10Z", "stop_time": "2026-11-01T01:00:10Z", "runtime": 3600}"#,
    ),
    (
        "records_flux",
        r#"{"jobs": [{"id": 12, "userid": 1000, "username": "ann", "bank": "cms", "state": "INACTIVE", "result": "COMPLETED",
            "t_submit": 1793491200.5, "t_run": 1793491210.0, "t_inactive": 1793494810.0, "ncores": 4, "nnodes": 1}]}"#,
    ),
    (
        "records_cluster_cockpit",
        r#"{"jobId": 12, "user": "ann", "project": "cms", "cluster": "c", "numNodes": 1, "numHwthreads": 4, "numAcc": 2,
            "startTime": 1793491210, "duration": 3600, "jobState": "completed"}"#,
    ),
    (
        "records_slurm_jobcomp",
        "JobId=6 UserId=ann(1) GroupId=g(10) Name=a name=b JobState=COMPLETED Partition=main TimeLimit=10 \
         StartTime=2026-11-21T05:13:27 EndTime=2026-11-21T05:13:28 NodeList=n1 NodeCnt=1 ProcCnt=2 WorkDir=/tmp/a b \
         ReservationName= Tres=cpu=2,mem=100000M,node=1 Account=vo1 QOS= WcKey= Cluster=unknown \
         SubmitTime=2026-11-21T05:13:25 EligibleTime=2026-11-21T05:13:25 DerivedExitCode=0:0 ExitCode=1:9 \n",
    ),
    (
        "records_slurm_script",
        "JOBID=1\nUID=0\nJOBNAME=a\nJOBSTATE=FAILED\nACCOUNT=vo1\nUSERNAME=ann\nSUBMIT=1\nSTART=2\nEND=9\nPROCS=1\n--\n",
    ),
    (
        "records_slurm_squeue",
        "8|2_1|ann|1|g|RUNNING|2|1|1|2|NONE|0:02|UNLIMITED|main|17|normal|N/A|4G|n1|a\n",
    ),
    (
        "records_slurm_scontrol",
        "JobId=1 JobName=a\n   UserId=ann(1000) GroupId=g(100) MCS_label=N/A\n   Priority=17 Nice=0 Account=vo1 QOS=normal\n   \
         JobState=RUNNING Reason=None Dependency=(null)\n   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n   \
         RunTime=00:00:25 TimeLimit=1-00:00:00 TimeMin=N/A\n   \
         SubmitTime=2026-11-22T00:04:14 EligibleTime=2026-11-22T00:04:14\n   AccrueTime=2026-11-22T00:04:14\n   \
         StartTime=2026-11-22T00:04:15 EndTime=2026-11-23T00:04:15 Deadline=N/A\n   \
         SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-22T00:04:15\n   Partition=main AllocNode:Sid=l:1\n   \
         NodeList=n1\n   BatchHost=n1\n   NumNodes=1 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n   \
         TRES=cpu=2,mem=100M,node=1,billing=2\n   MinCPUsNode=1 MinMemoryNode=100M MinTmpDiskNode=0\n   \
         Command=(null)\n   WorkDir=/home/ann/a b\n   Power=\n   \n\n",
    ),
    (
        "records_pbs",
        "01/02/2024 03:04:05;E;1[7].srv;user=u group=g account=\"a b\" jobname=n ctime=100 start=200 end=300 \
         exec_host=a/0*4+b/1*4 exec_vnode=(a:ncpus=4:mem=4gb:ngpus=1)+(b:ncpus=4:mem=4gb) Exit_status=271\n",
    ),
    (
        "records_grid_engine",
        "q:h:g:u:n:1:sge:0:100:200:300:0:0:100:0:0:0.0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:proj:d:mpi:4:2:1:1:0:c:0:NONE:5:0:0\n",
    ),
    (
        "records_json",
        "{\"cluster\":\"c\",\"job\":\"1\",\"user\":\"ann\",\"start_ms\":1000,\"end_ms\":9000,\"cores\":2}\n",
    ),
    (
        "records_lsf",
        "\"JOB_FINISH\" \"10.1\" 1000 7 0 0 2 100 0 0 200 \"u\" \"q\" \"\" \"\" \"\" \"h\" \"/\" \"\" \"\" \"\" \"f\" 0 2 \
         \"h1\" \"h1\" 32 1.0 \"name\" \"a \"\"b\"\"\" 1.5 0.5 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 \"\" \"proj\" 35072 2 \"\" \
         \"\" 3 2048 0 \"\" \"\" \"\" \"\" 0 \"\" 16 \"\" -1 \"\" \"\" \"\" \"\" -1 \"\" \"\" 0 \"\" 0 \"\" \"\" 0 0\n",
    ),
    (
        "records_htcondor_json",
        r#"[{"ClusterId": 12, "ProcId": 3, "GlobalJobId": "s#12.3#17", "Owner": "ann", "QDate": 1700000000,
            "JobStartDate": 1700000100, "CompletionDate": 1700004000, "RemoteWallClockTime": 3600.0, "JobStatus": 4,
            "ExitCode": 0, "RequestCpus": 8, "CpusProvisioned": 4, "MemoryProvisioned": 2048, "Nested": {"a": "}"}}]"#,
    ),
    (
        "records_htcondor_ads",
        "ClusterId = 7\nProcId = 0\nOwner = \"bob\"\nQDate = 1700000000\nJobStartDate = 1700000100\n\
         EnteredCurrentStatus = 1700000200\nJobStatus = 3\nRemoteWallClockTime = 1.0E+02\nRequestCpus = 2\nExitSignal = 9\n",
    ),
    (
        "records_htcondor_fields",
        "12.0|ann|3600|3500|10|1700000000|1700003600|1024|2048|4|condor.example\n",
    ),
    (
        "records_ogf_usage_record",
        "<u:JobUsageRecord xmlns:u=\"x\"><u:RecordIdentity u:recordId=\"r1\"/><u:JobIdentity><u:LocalJobId>j&amp;1</u:LocalJobId>\
         </u:JobIdentity><u:UserIdentity><u:LocalUserId>u</u:LocalUserId></u:UserIdentity><u:Status>aborted</u:Status>\
         <u:Processors>4</u:Processors><u:WallDuration>P1DT2H</u:WallDuration><u:StartTime>2024-01-01T00:00:00+01:00</u:StartTime>\
         <u:EndTime>2024-01-02T02:00:00+01:00</u:EndTime></u:JobUsageRecord>",
    ),
    (
        "records_apel_job",
        "APEL-individual-job-message: v0.3\nSite: X\nSubmitHost: ce:2811/q\nMachineName: pbs.x.org\nLocalJobId: 31564.pbs\n\
         LocalUserId: u1\nGlobalUserName: /C=x/CN=me\nFQAN: /atlas/Role=NULL\nWallDuration: 234\nCpuDuration: 234\n\
         Processors: 2\nNodeCount: 0\nStartTime: 1318840264\nEndTime: 1318842264\n%%\n",
    ),
    (
        "records_blah",
        "\"timestamp=2012-05-20 23:59:47\" \"userDN=/O=Grid/CN=ann\" \"userFQAN=/atlas/Role=NULL\" \"ceID=ce:8443/q\" \
         \"jobID=C1\" \"lrmsID=12.host\" \"localUser=11999\"\n",
    ),
    (
        "apel_summary",
        "APEL-summary-job-message: v0.4\nSite: X\nMonth: 5\nYear: 2026\nGlobalUserName: /C=x/CN=me\nVO: atlas\nVOGroup: /atlas\n\
         VORole: Role=NULL\nSubmitHost: ce\nInfrastructure: grid\nServiceLevelType: HEPSPEC\nServiceLevel: 1.0\nNodeCount: 1\n\
         Processors: 2\nEarliestEndTime: 1778000000\nLatestEndTime: 1778003600\nWallDuration: 234\nCpuDuration: 234\n\
         NormalisedWallDuration: 234\nNormalisedCpuDuration: 234\nNumberOfJobs: 3\n%%\n",
    ),
    ("cbor", "\u{1}"),
    ("part_name", "\u{1}\0\0\0\0\u{f}"),
];

/// What a session of honest sites does not come to: each way to tell a head, parts, and proofs of a fork.
fn of_gossip(vo: &Vo, heads: &TwoHeads, document: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let (name, part) = &heads.part;
    let len = u32::try_from(part.len()).expect("a small part");
    let rows = || vec![(name.clone(), ContentHash::of(part), len)];
    let contents = [
        HeadContent::Deltas(vec![ByteBuf::from(heads.delta.clone())]),
        HeadContent::Whole(vec![(name.clone(), ByteBuf::from(part.clone()))]),
        HeadContent::Since(rows(), vec![name.clone()]),
        HeadContent::Manifest(rows()),
    ];
    let [first, second] = [&heads.first, &heads.second].map(|head| ByteBuf::from(head.clone()));
    let document = ByteBuf::from(document.to_vec());
    let item = |content| HeadItem {
        head: second.clone(),
        content,
    };
    let pulled = Response::Pull(PullAnswer {
        documents: vec![document.clone()],
        proofs: vec![(first.clone(), second.clone())],
        heads: contents.map(item).into(),
        more: true,
        need_full: false,
    });
    let parts = Response::Parts(vec![ByteBuf::from(part.clone())]);
    let wanted = vec![(key().site_id(), Incarnation(1), vec![name.clone()])];
    let asked = Asked::Parts {
        vo: vo.vo(),
        wanted,
    };
    let packed = pulled.to_bytes();
    assert_eq!(packed[0], 1, "so long an answer is packed");
    vec![
        ("gossip_packed_response", packed[1..].to_vec()),
        (
            "gossip_response",
            [&[0], &cbor::to_vec(&pulled)[..]].concat(),
        ),
        ("gossip_response", parts.to_bytes()),
        ("gossip_request", asked.to_bytes()),
        ("gossip_push", Push::Document(document).to_bytes()),
        ("gossip_push", Push::Proof(first, second).to_bytes()),
    ]
}

/// At least one for each decoder.
fn examples() -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let mut examples: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    let mut add = |name, bytes: Vec<u8>| examples.entry(name).or_default().push(bytes);
    TEXTS
        .iter()
        .for_each(|(name, text)| add(name, text.as_bytes().to_vec()));

    let sites = [(key().site_id(), "a")];
    let vo = Vo::found_at(
        WallTime(1_767_600_000_000),
        "grid",
        &sites,
        &["ann"],
        |_| {},
    )
    .expect("a valid VO");
    let [charter, policy] = vo.documents().map(<[u8]>::to_vec);
    let credit = vo.grant("/ann", 1_000, &[key().site_id()], |_| {});
    let heads = two_heads();
    for (name, bytes) in of_gossip(&vo, &heads, &policy) {
        add(name, bytes);
    }
    add("charter", charter);
    add("share_policy", policy);
    add("allocation", credit.expect("valid credit"));
    add("head", heads.second);
    add("gossip_delta", heads.delta);
    add("usage_table", table(7));
    for (name, bytes) in session::said() {
        add(name, bytes);
    }

    let mut row = Row::default();
    row.add(Cell::Used, 7);
    row.add(Cell::Sent(SiteId::from_bytes([1; 32])), u64::MAX);
    add("rights_row", row.to_bytes());
    let of_rights = super::rights::samples();
    of_rights
        .into_iter()
        .for_each(|(name, bytes)| add(name, bytes));

    let framed = |message: Vec<u8>| [&[4], &message[..]].concat();
    let job = JobRequest {
        vo: vo.vo(),
        key: "j1".to_owned(),
        user: "ann".to_owned(),
        path: AccountPath::root(),
        cpus: 4,
        nodes: 1,
        gpus: 0,
        mem_mib: 100,
        disk_mib: 0,
        wall_s: 60,
        queue: Some("main".to_owned()),
        properties: vec!["big".to_owned()],
        requirements: Vec::new(),
        normalised: false,
        run: "true".to_owned(),
    };
    let offer = Offer {
        origin: key().site_id(),
        issued: WallTime(1),
        until: WallTime(2),
        job,
    };
    let offer = Signed::sign(offer, &[&key()]).expect("signs");
    let offer = offer.bytes().to_vec();
    add("forward_offer", offer.clone());
    let take = Take {
        ttl: 4,
        tried: Vec::new(),
        class: "fat".to_owned(),
        offer: ByteBuf::from(offer),
    };
    let ends = Message::Ends(vec![ContentHash::of(b"job")]);
    for message in [Message::Take(take), ends] {
        add("forward_message", framed(cbor::to_vec(&message)));
    }
    for told in [
        HandOffReply::Taken,
        HandOffReply::Declined("full".to_owned()),
    ] {
        add("forward_told", framed(cbor::to_vec(&told)));
    }

    let queues = [("long".to_owned(), Factor::ONE)];
    let prices = PriceList {
        queues: queues.into(),
        ..PriceList::default()
    };
    let description = Description {
        prices: prices.into(),
        ..Description::default()
    };
    add("description", cbor::to_vec(&description));
    let advert = Advert {
        total: 8,
        free: 3,
        ..Advert::default()
    };
    add("advert", cbor::to_vec(&advert));

    let who = [Who::user_account("ann", "grid"), Who::Path("/grid/bob")];
    let names = NameBlockBuf::of(&who).expect("good names");
    let request = Request {
        id: 7,
        want: Want::FactorsAndHandles,
        accounts: Accounts::Names(names.as_block()),
    };
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    encode_request(&mut asked, &request).expect("fits");
    let view = View {
        as_of: WallTime(1),
        age: Millis(2),
        sites_known: 3,
        sites_total: 4,
        reference_window: Window(5),
        digest: ContentHash::of(b"view"),
        flags: View::ALONE,
        generation: 6,
        ranking: 7,
        step: 8,
    };
    encode_answer(&mut answered, 7, &view, &[1, 2], true, Some).expect("fits");
    add("lookup_request", asked[4..].to_vec());
    add("lookup_reply", answered[4..].to_vec());
    examples
}

#[test]
fn every_decoder_likes_its_examples() {
    let examples = examples();
    let mut refused = Vec::new();
    for (name, decoder) in DECODERS {
        let of_it = examples.get(name);
        let of_it = of_it.unwrap_or_else(|| panic!("no example for {name}"));
        let numbered = of_it.iter().enumerate();
        let bad = numbered.filter(|(_, example)| !decoder(example));
        refused.extend(bad.map(|(number, _)| (name, number, of_it.len())));
    }
    assert_eq!(refused, [], "decoder, number and how many there are");
    let Some(folder) = std::env::var_os("FAIRMESH_WRITE_SEEDS").map(PathBuf::from) else {
        return;
    };
    for (name, of_it) in &examples {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (number, example) in of_it.iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), example).expect("written");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Bytes are replaced, put in, taken out and cut off in what would be read.
    #[test]
    fn what_is_damaged_never_panics(
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..5_u8), 1..6),
    ) {
        thread_local! {
            static EXAMPLES: BTreeMap<&'static str, Vec<Vec<u8>>> = examples();
        }
        EXAMPLES.with(|examples| {
            for (name, example) in examples.iter().flat_map(|(name, of)| of.iter().map(move |of| (name, of))) {
                let mut bytes = example.clone();
                for (at, byte, kind) in &places {
                    let at = at.index(bytes.len());
                    match kind {
                        0 => bytes[at] = *byte,
                        1 => bytes.insert(at, *byte),
                        2 => bytes.truncate(at + 1),
                        3 => bytes.insert(at, b'0' + byte % 10),
                        _ => drop(bytes.remove(at)),
                    }
                    if bytes.is_empty() {
                        bytes.push(*byte);
                    }
                }
                decode(name, &bytes);
            }
        });
    }
}
