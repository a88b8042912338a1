//! `fairmesh report --dry-run` on a recorded log, against a plain splitter of lines and fields on the
//! same unpacked bytes, in one run; and the most memory that the process held (`VmHWM`).
//!
//! The log is the largest of the samples in SWF; where they are absent it says so and measures
//! nothing.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use criterion::{Criterion, Throughput};
use fairmesh::ask::report::{self, ReportArgs};
use fairmesh::ask::{AskArgs, NodeArgs};
use fairmesh::output::{Exit, OutputArgs};
use flate2::read::GzDecoder;

fn main() {
    let Some(log) = largest() else { return };
    let mut text = Vec::new();
    let file = std::fs::File::open(&log).expect("a log");
    GzDecoder::new(file).read_to_end(&mut text).expect("gzip");
    let folder = tempfile::tempdir().expect("a folder");
    let unpacked = folder.path().join("log.swf");
    std::fs::write(&unpacked, &text).expect("written");
    let (records, fields) = split(&text);
    let bytes = text.len();
    println!(
        "{}: {records} records, {fields} fields, {bytes} bytes",
        log.display()
    );
    // The text itself is no part of what a report holds.
    drop(text);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // From here on the kernel keeps the peak anew; where it will not, the figure is of all before.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = peak_kib();
    let began = Instant::now();
    runtime.block_on(dry_run(&unpacked));
    let took = began.elapsed();
    println!(
        "one dry run: {:.0} records/s; VmHWM {before} KiB before, {} KiB after",
        f64::from(u32::try_from(records).expect("a log")) / took.as_secs_f64(),
        peak_kib()
    );
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("report");
    group.throughput(Throughput::Elements(records));
    group.bench_function("dry run", |b| {
        b.iter(|| runtime.block_on(dry_run(&unpacked)));
    });
    group.bench_function("lines and fields alone", |b| {
        b.iter(|| split(&std::fs::read(&unpacked).expect("read")));
    });
    group.finish();
    criterion.final_summary();
}

/// Numbers of records and of fields.
fn split(text: &[u8]) -> (u64, u64) {
    let lines = text.split(|byte| *byte == b'\n');
    let records = lines.filter(|line| !line.is_empty() && !line.starts_with(b";"));
    records.fold((0, 0), |(records, fields), line| {
        let words = line.split(u8::is_ascii_whitespace);
        let words = words.filter(|word| !word.is_empty()).count();
        (records + 1, fields + words as u64)
    })
}

async fn dry_run(log: &Path) {
    let args = ReportArgs {
        ask: AskArgs {
            node: NodeArgs {
                socket: Some(PathBuf::from("/nowhere/control.sock")),
            },
            output: OutputArgs {
                json: true,
                ..OutputArgs::default()
            },
        },
        files: vec![log.to_owned()],
        format: "swf".to_owned(),
        dry_run: true,
        ..ReportArgs::default()
    };
    let mut out = Vec::new();
    let exit = report::run(&args, &mut out).await.expect("read");
    assert_eq!(exit, Exit::Success);
}

fn largest() -> Option<PathBuf> {
    let folder = fairmesh_needs::traces("swf")?;
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    let logs = entries.flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.to_string_lossy().ends_with(".swf.gz"));
    logs.max_by_key(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()))
}

/// The most that this process ever held, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
