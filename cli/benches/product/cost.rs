//! What is counted and not timed: syncs by strace, instructions by callgrind, bytes of the program.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::node::{Node, PROGRAM, pairs};
use crate::rows::Rows;
use crate::wire::{Wire, by_handle, by_name, columns};

/// The function of the node that answers a request, from the bytes of a frame to those of the answer, with and
/// without the hash that compilers put behind names.
const ANSWERS: [&str; 2] = [
    "--toggle-collect=*Connection*::answer",
    "--toggle-collect=*Connection*::answer::h*",
];

/// Batches of 10,000 under callgrind, of each kind.
const BATCHES: u64 = 5;

/// A process whose syncs are counted.
pub(crate) struct Syncs {
    strace: Child,
    file: PathBuf,
    began: Instant,
    _folder: tempfile::TempDir,
}

impl Syncs {
    /// `None` where there is no strace, or it may not.
    pub(crate) fn watch(pid: u32) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let file = folder.path().join("syncs");
        let mut command = Command::new("strace");
        let pid = pid.to_string();
        command.args([
            "-f",
            "-e",
            "trace=fsync,fdatasync,sync_file_range,syncfs,msync",
            "-p",
            &pid,
        ]);
        let mut strace = command
            .arg("-o")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // It makes its file when it begins, and is attached a moment later.
        let begun = Instant::now();
        let is_traced = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status
                .lines()
                .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        while !is_traced() {
            let has_ended = strace.try_wait().is_ok_and(|ended| ended.is_some());
            if has_ended || begun.elapsed() > Duration::from_secs(10) {
                println!("syncs are not counted: strace may not attach");
                return None;
            }
            std::thread::yield_now();
        }
        Some(Self {
            strace,
            file,
            began: Instant::now(),
            _folder: folder,
        })
    }

    /// How many there were, and for how long they were counted.
    pub(crate) fn finish(mut self) -> (usize, Duration) {
        let took = self.began.elapsed();
        let pid = self.strace.id().to_string();
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .expect("kill runs");
        self.strace.wait().expect("it ends");
        let text = std::fs::read_to_string(&self.file).expect("written");
        let begun = text
            .lines()
            .filter(|line| line.contains("sync") && !line.contains("resumed>"));
        let is_sync = |line: &&str| !line.contains("sync_file_range");
        (begun.filter(is_sync).count(), took)
    }
}

/// A node to which nothing happens.
pub(crate) struct Idle {
    node: Node,
    syncs: Option<Syncs>,
}

impl Idle {
    pub(crate) fn start() -> Self {
        let node = Node::start(&[]);
        // What a start writes is written when the first look-up is answered.
        Wire::connect(&node.lookup()).call(&by_name(&pairs()[..1], false));
        let syncs = Syncs::watch(node.pid());
        Self { node, syncs }
    }

    pub(crate) fn finish(self, rows: &mut Rows) {
        if let Some(syncs) = self.syncs {
            let (syncs, took) = syncs.finish();
            rows.say(
                "syncs of an idle node",
                format!("{syncs} in {} s", took.as_secs()),
            );
        }
        drop(self.node);
    }
}

/// Instructions a row, where valgrind is installed.
pub(crate) fn instructions(rows: &mut Rows) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("instructions are not counted: there is no valgrind");
    }
    let pairs = pairs();
    let first = counted(&|_, _| by_name(&pairs, false), 1);
    let Some(first) = first else {
        return println!("instructions are not counted: valgrind found no such function");
    };
    let named = counted(&|_, _| by_name(&pairs, false), 1 + BATCHES).unwrap_or(first);
    let handled = counted(&by_handle, BATCHES).unwrap_or_default();
    let each = |total: u64| total / BATCHES / 10_000;
    let said = format!(
        "{} by name, {} where a connection asks for the first time, {} by handle",
        each(named.saturating_sub(first)),
        first / 10_000,
        each(handled)
    );
    rows.say("instructions a row of a batch of 10,000", said);
}

/// Instructions within the function that answers, for as many requests of that kind.
fn counted(frame: &dyn Fn(u64, &[u32]) -> Vec<u8>, times: u64) -> Option<u64> {
    let folder = tempfile::tempdir().ok()?;
    let out = folder.path().join("out");
    let out_option = format!("--callgrind-out-file={}", out.display());
    let [answers, hashed] = ANSWERS;
    let tool = [
        "valgrind",
        "-q",
        "--tool=callgrind",
        &out_option,
        "--collect-atstart=no",
    ];
    let mut node = Node::start(&[tool.as_slice(), &[answers, hashed]].concat());
    let pairs = pairs();
    let mut wire = Wire::connect(&node.lookup());
    // By handle the names have to be asked for once, which counts, too: it is taken off below.
    let is_by_handle = frame(0, &[]).get(11) == Some(&5);
    let known = is_by_handle.then(|| columns(wire.call(&by_name(&pairs, true))));
    let request = known.map_or_else(
        || frame(0, &[]),
        |known| frame(known.generation, &known.handles),
    );
    for _ in 0..times {
        wire.call(&request);
    }
    node.stop();
    let text = std::fs::read_to_string(out).ok()?;
    let total = text.lines().find_map(|line| {
        line.strip_prefix("summary: ")
            .or(line.strip_prefix("totals: "))
    })?;
    let total: u64 = total.trim().parse().ok()?;
    let names = if is_by_handle {
        counted(&|_, _| by_name(&pairs, true), 1)?
    } else {
        0
    };
    Some(total.saturating_sub(names)).filter(|total| *total > 0)
}

/// Bytes of the program as it is installed: without the symbols that a benchmark has.
pub(crate) fn program(rows: &mut Rows) {
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("fairmesh");
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").arg(&stripped).arg(PROGRAM).status();
    if !status.is_ok_and(|status| status.success()) {
        return;
    }
    let bytes = std::fs::metadata(stripped).expect("it was made").len();
    #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
    let mb = bytes as f64 / 1e6;
    rows.say("the program", format!("{mb:.1} MB, stripped"));
}
