//! Look-ups over a Unix socket against a bare echo over the same kind of socket, in one run.
//!
//! Goals: a small look-up at 0.8 of the echo's rate or more; 10,000 pairs in 2 ms or less. The ratio
//! is taken from short rounds that alternate, so that a machine's moods meet both alike.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use fairmesh::lookup::{LookupConfig, LookupServer, LookupSnapshot, LookupSource};
use fairmesh_client::protocol::{Accounts, NameBlockBuf, Request, View, Want, Who, encode_request};
use fairmesh_client::{Client, Roster};
use fairmesh_model::{ContentHash, Millis, WallTime, Window};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::watch;

const PAIRS: usize = 10_000;
const ROUNDS: usize = 40;
const ROUND_TRIPS: u32 = 2_000;

/// A tree of as many users as are asked for, found by (user, account).
struct Tree {
    entries: HashMap<String, HashMap<String, u32>>,
    factors: Vec<u32>,
}

impl LookupSnapshot for Tree {
    fn resolve(&self, who: &Who<'_>) -> Option<u32> {
        let Who::Names(names) = who else { return None };
        self.entries.get(names.account?)?.get(names.user?).copied()
    }

    fn factor(&self, entry: u32) -> Option<u32> {
        self.factors.get(usize::try_from(entry).ok()?).copied()
    }

    fn view(&self) -> View {
        View {
            as_of: WallTime(1_800_000_000_000),
            age: Millis(4_500),
            sites_known: 9,
            sites_total: 10,
            reference_window: Window(481_200),
            digest: ContentHash::from_bytes([7; 32]),
            flags: 0,
            generation: 1,
            ranking: 7,
            step: 250_000_000,
        }
    }

    fn generation(&self) -> u64 {
        1
    }
}

struct Source(Arc<Tree>);

impl LookupSource for Source {
    type Snapshot = Tree;

    fn snapshot(&self) -> Arc<Tree> {
        Arc::clone(&self.0)
    }
}

fn names() -> Vec<(String, String)> {
    (0..PAIRS)
        .map(|n| (format!("user{n:05}"), format!("project{:03}", n % 200)))
        .collect()
}

fn tree(names: &[(String, String)]) -> Tree {
    let mut entries: HashMap<String, HashMap<String, u32>> = HashMap::new();
    for ((user, account), entry) in names.iter().zip(0..) {
        let users = entries.entry(account.clone()).or_default();
        users.insert(user.clone(), entry);
    }
    let factors = (0..).map(|n| n * 1_000).take(names.len()).collect();
    Tree { entries, factors }
}

async fn echo(listener: UnixListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Sends what a small look-up sends, and gets it back.
struct Echo {
    stream: UnixStream,
    frame: Vec<u8>,
    buffer: Vec<u8>,
}

impl Echo {
    fn connect(path: &Path, who: &Who<'_>) -> Self {
        let names = NameBlockBuf::of(&[*who]).expect("good names");
        let accounts = Accounts::Names(names.as_block());
        let mut frame = Vec::new();
        let request = Request {
            id: 1,
            want: Want::Factors,
            accounts,
        };
        encode_request(&mut frame, &request).expect("fits");
        let stream = UnixStream::connect(path).expect("the echo listens");
        Self {
            stream,
            frame,
            buffer: vec![0; 4096],
        }
    }

    fn round_trip(&mut self) {
        self.stream.write_all(&self.frame).expect("sent");
        let mut got = 0;
        while got < self.frame.len() {
            got += self.stream.read(&mut self.buffer).expect("echoed");
        }
    }
}

fn timed(mut round_trip: impl FnMut()) -> Duration {
    let begun = Instant::now();
    (0..ROUND_TRIPS).for_each(|_| round_trip());
    begun.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The rate of small look-ups over that of the echo: the median over alternating rounds.
fn report_ratio(client: &mut Client, echo: &mut Echo, who: &Who<'_>) {
    let mut roster = Roster::new(&[*who]).expect("good names");
    let (mut by_name, mut by_handle, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let bare = timed(|| echo.round_trip()).as_secs_f64();
        let named = timed(|| {
            black_box(client.lookup(&[*who]).expect("answered").factor(0));
        });
        let handled = timed(|| {
            black_box(
                client
                    .lookup_roster(&mut roster)
                    .expect("answered")
                    .factor(0),
            );
        });
        by_name.push(bare / named.as_secs_f64());
        by_handle.push(bare / handled.as_secs_f64());
        rates.push(f64::from(ROUND_TRIPS) / bare);
    }
    println!(
        "echo {:.0}/s; look-up by name {:.3} of it, by handle {:.3} (goal 0.8)",
        median(rates),
        median(by_name),
        median(by_handle)
    );
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let (lookup_path, echo_path) = (dir.path().join("lookup.sock"), dir.path().join("echo.sock"));
    let names = names();
    let source = Arc::new(Source(Arc::new(tree(&names))));
    let (_stop, stopped) = watch::channel(false);
    runtime.block_on(async {
        let config = LookupConfig::default();
        let server = LookupServer::bind(&lookup_path, source, config).await;
        tokio::spawn(server.expect("the path is free").run(stopped));
        tokio::spawn(echo(
            UnixListener::bind(&echo_path).expect("the path is free"),
        ));
    });

    let pairs: Vec<Who<'_>> = names.iter().map(|(u, a)| Who::user_account(u, a)).collect();
    let mut client = Client::connect(&lookup_path, Duration::from_secs(5)).expect("it listens");
    let mut bare = Echo::connect(&echo_path, &pairs[0]);
    report_ratio(&mut client, &mut bare, &pairs[0]);

    criterion.bench_function("echo", |b| b.iter(|| bare.round_trip()));
    criterion.bench_function("lookup/one by name", |b| {
        b.iter(|| client.lookup(&pairs[..1]).expect("answered").factor(0));
    });
    let mut group = criterion.benchmark_group("lookup");
    group.throughput(Throughput::Elements(PAIRS as u64));
    group.bench_function("10000 by name", |b| {
        b.iter(|| {
            client
                .lookup(&pairs)
                .expect("answered")
                .factors()
                .flatten()
                .count()
        });
    });
    let mut roster = Roster::new(&pairs).expect("good names");
    group.bench_function("10000 by handle", |b| {
        b.iter(|| {
            let answer = client.lookup_roster(&mut roster).expect("answered");
            answer.factors().flatten().count()
        });
    });
    group.finish();
    criterion.final_summary();
}
