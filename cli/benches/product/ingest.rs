//! Reports: one durable one against a bare write with fdatasync, many by CPU time, and what they take of the disk.

use std::time::Instant;

use crate::cost::Syncs;
use crate::disk::{Bare, Sled, Sqlite, own_cpu};
use crate::node::Node;
use crate::records::{counted, lines};
use crate::rows::{Rows, median};

/// Reports of one record each, timed by turns with bare writes.
const SINGLE: u64 = 200;

/// Reports of one record over which syncs are counted.
const WATCHED: u64 = 50;

/// Records of one request, and requests.
const RECORDS: u64 = 5_000;
const REQUESTS: u64 = 40;

/// Rows of one durable batch of sled and SQLite, as many as the node makes of one batch of records.
const BATCH: u64 = 500;

pub(crate) fn one_report(node: &Node, rows: &mut Rows) {
    let mut control = node.control();
    let mut bare = Bare::new(&node.beside());
    let mut next = 1 << 40;
    let mut report = |count: u64| {
        next += count;
        let body = lines(next, count);
        let began = Instant::now();
        let answer = control.post("/v1/records", &body);
        let took = began.elapsed().as_secs_f64();
        assert!(counted(&answer, count), "{answer}");
        took * 1e3
    };
    let (mut reported, mut written) = (Vec::new(), Vec::new());
    for _ in 0..SINGLE {
        reported.push(report(1));
        let began = Instant::now();
        bare.append(&[7; 300]);
        written.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let (reported, written) = (median(reported), median(written));
    let ratio = reported / written;
    let said = format!("{ratio:.1} × ({reported:.2} against {written:.2} ms)");
    rows.say("one durable report, p50", said);
    if let Some(syncs) = Syncs::watch(node.pid()) {
        for _ in 0..WATCHED {
            report(1);
        }
        let (syncs, _) = syncs.finish();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let each = syncs as f64 / WATCHED as f64;
        let said = format!("{each:.1} in all threads, over {WATCHED} reports one behind the other");
        rows.say("syncs for one report", said);
    }
}

pub(crate) fn many(rows: &mut Rows) {
    let mut node = Node::start(&[]);
    let folder = node.beside();
    let (sled, mut sqlite) = (Sled::new(&folder), Sqlite::new(&folder));
    let mut control = node.control();
    let before = node.disk_bytes("store");
    let (mut cpu, mut wall, mut of_sled, mut of_sqlite) = (0.0, 0.0, 0.0, 0.0);
    for request in 0..REQUESTS {
        let numbers = request * RECORDS..(request + 1) * RECORDS;
        let body = lines(numbers.start, RECORDS);
        let (began, cpu_before) = (Instant::now(), node.cpu_seconds());
        let answer = control.post("/v1/records", &body);
        wall += began.elapsed().as_secs_f64();
        cpu += node.cpu_seconds() - cpu_before;
        assert!(counted(&answer, RECORDS), "{answer}");
        let batches = || {
            numbers
                .clone()
                .step_by(usize::try_from(BATCH).expect("fits"))
        };
        let began = own_cpu();
        batches().for_each(|first| sled.write(first..first + BATCH));
        let sled_done = own_cpu();
        batches().for_each(|first| sqlite.write(first..first + BATCH));
        of_sled += sled_done - began;
        of_sqlite += own_cpu() - sled_done;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let all = (RECORDS * REQUESTS) as f64;
    let said = format!(
        "{:.0} records a CPU-second, logged too ({:.0} a second; bare sled {:.0} rows a CPU-second, bare SQLite {:.0})",
        all / cpu,
        all / wall,
        all / of_sled,
        all / of_sqlite
    );
    rows.say("durable ingest through the node", said);
    node.stop();
    let bytes = node.disk_bytes("store").saturating_sub(before) / (RECORDS * REQUESTS);
    let log = node.disk_bytes("records.sqlite") / (RECORDS * REQUESTS);
    let journal = node.disk_bytes("site.") >> 20;
    let said = format!(
        "{bytes} bytes of the store, with the counters of 10,000 users, after {} records; {journal} MiB of journal, which grow to 16; \
         {log} bytes in the record log",
        RECORDS * REQUESTS
    );
    rows.say("disk for a record's mark", said);
}
