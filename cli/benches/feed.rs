//! Job records over `control.sock` of a running node that keeps a log of them, against one that keeps
//! none, in one run: as usage records (`/v1/records`, logged beside the counting) and as whole job
//! records (`/v1/accounting`, logged before it). The goal is half of the rate without.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use criterion::{Criterion, Throughput};
use fairmesh_api::client::Control;
use fairmesh_api::{AccountingBody, Answer};
use fairmesh_model::{JobKey, Millis, Origin, Placement, UsageRecord, WallTime};
use fairmesh_records::BatchRecord;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh");

/// Records in one request, as `fairmesh report` sends them.
const RECORDS: u64 = 5_000;

/// Users that the records are of.
const USERS: u64 = 1_000;

/// A node of one site without VOs. Killed when dropped.
struct Node {
    child: Child,
    control: Control,
    _folder: tempfile::TempDir,
}

impl Node {
    fn start(keeps_log: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("site");
        let init = Command::new(PROGRAM).arg("init").arg(&place).output();
        assert!(init.expect("runs").status.success());
        let config = place.join("fairmesh.toml");
        let text = format!(
            "[site]\nname = \"bench\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
             [records]\nenabled = {keeps_log}\n[[identity]]\naccount = \"*\"\n\
             path = \"/local/{{user}}\"\n[shares]\n\"/local\" = {{ share = 100 }}\n"
        );
        std::fs::write(&config, text).expect("written");
        let child = run(&config);
        let control = Control::new(place.join("data/run/control.sock"));
        Self {
            child,
            control,
            _folder: folder,
        }
    }

    /// Posts as many new records and waits until they are durable.
    async fn post(&self, path: &str, body: Vec<u8>) {
        let answer: Answer<AccountingBody> = self.control.post(path, body).await.expect("answers");
        assert_eq!(
            answer.body.report.counted, RECORDS,
            "{:?}",
            answer.body.report
        );
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may be gone already, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a node and waits until it listens.
fn run(config: &Path) -> Child {
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg("--config").arg(config);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert!(line.contains("listens on"), "{line}");
    child
}

/// JSON lines of ended jobs, numbered from `first`: usage records, or whole job records.
fn lines(first: u64, whole: bool) -> Vec<u8> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.expect("a clock").as_millis();
    let end = WallTime(u64::try_from(now).expect("fits")).before(Millis(60_000));
    let mut lines = Vec::new();
    for job in first..first + RECORDS {
        let usage = usage(job, end);
        let written = match whole {
            true => serde_json::to_writer(&mut lines, &record(&usage)),
            false => serde_json::to_writer(&mut lines, &usage),
        };
        written.expect("a vector takes everything");
        lines.push(b'\n');
    }
    lines
}

/// An ended job of one of the users.
fn usage(number: u64, end: WallTime) -> UsageRecord {
    let user = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % USERS;
    UsageRecord {
        key: JobKey {
            cluster: "bench".to_owned(),
            job: number.to_string(),
            instance: 0,
        },
        origin: Origin {
            user: Some(format!("u{user}")),
            account: Some("a".to_owned()),
            ..Origin::default()
        },
        start: end.before(Millis(1_000)),
        end,
        cores: 4,
        gpus: 0,
        mem_mib: 0,
        placement: Placement::default(),
        running: false,
    }
}

/// The same as a batch system writes it.
fn record(usage: &UsageRecord) -> BatchRecord {
    BatchRecord {
        queue: Some("long".to_owned()),
        qos: Some("normal".to_owned()),
        submit: Some(usage.start.before(Millis(9_000))),
        nodes: Some(1),
        ..BatchRecord::of_usage(usage)
    }
}

fn main() {
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut group = criterion.benchmark_group("feed");
    group.throughput(Throughput::Elements(RECORDS));
    let mut next = 0;
    for (keeps_log, log) in [(false, "no log"), (true, "log")] {
        let node = Node::start(keeps_log);
        for (whole, path) in [(false, "/v1/records"), (true, "/v1/accounting")] {
            group.bench_function(format!("{path}, {log}"), |b| {
                b.iter_batched(
                    || {
                        next += RECORDS;
                        lines(next, whole)
                    },
                    |body| runtime.block_on(node.post(path, body)),
                    criterion::BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
    criterion.final_summary();
}
