//! Holds and charges through a whole node (driver, site, ledger, store), durable, against the store's own batches of as
//! many rows, in one run; and how long one hold takes, alone and while others are under way.
//!
//! The goal is 0.4 of the store's rate. `cargo bench -p fairmesh-node --bench quota` says how busy the machine was.

#[path = "wire/mesh.rs"]
#[allow(dead_code, reason = "most of it is for what goes over wires")]
mod mesh;

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, ContentHash, CoreMillis, JobKey, Millis, Origin,
    Placement, Signed, UsageRecord, WallTime,
};
use fairmesh_node::driver::NodeHandle;
use fairmesh_node::store::{Store, Table, Write};
use fairmesh_quota::Verdict;
use fairmesh_site::{HoldCall, QuotaAnswer, QuotaCall, Timing};
use futures::future::join_all;
use mesh::Mesh;

/// Jobs that ask at the same time.
const AT_ONCE: u64 = 64;

/// For how long each rate is measured.
const MEASURED: Duration = Duration::from_secs(10);

/// Holds that are timed one by one.
const TIMED: u64 = 2_000;

/// Bytes of a job's row: its key, its account and what it holds.
const ROW_BYTES: usize = 300;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    say_load("before");
    let store = tempfile::tempdir()?;
    let (store, _) = Store::open(&store.path().join("bare"), WallTime(1))?;
    for _ in 0..2 {
        let (node, bare) = (runtime.block_on(through_a_node())?, alone(&store)?);
        println!(
            "pairs/s: {node:.0} through a node, {bare:.0} as rows alone: {:.2}",
            node / bare
        );
    }
    say_load("after");
    Ok(())
}

/// Pairs of a hold and a charge per second; what single holds take is printed.
async fn through_a_node() -> anyhow::Result<f64> {
    let mesh = Mesh::start(1, Timing::default()).await?;
    let node = mesh.node().clone();
    grant(&mesh).await?;
    let mut next = 0;
    let rate = rate(&mut next, async |first| pairs(&node, first).await).await?;
    say("a hold alone", timed(&node, 1 << 40).await?);
    let load = tokio::spawn({
        let node = node.clone();
        async move {
            for round in 1_u64.. {
                if pairs(&node, (1 << 50) + round * AT_ONCE).await.is_err() {
                    return;
                }
            }
        }
    });
    say(
        "a hold beside 64 others at once",
        timed(&node, 1 << 41).await?,
    );
    load.abort();
    mesh.stop().await?;
    Ok(rate)
}

async fn rate(
    next: &mut u64,
    pairs: impl AsyncFn(u64) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let began = Instant::now();
    let first = *next;
    while began.elapsed() < MEASURED {
        pairs(*next).await?;
        *next += AT_ONCE;
    }
    Ok((*next - first) as f64 / began.elapsed().as_secs_f64())
}

/// Credit for everybody that does not end.
async fn grant(mesh: &Mesh) -> anyhow::Result<()> {
    let (vo, now) = (mesh.vo(), mesh.now());
    let end = now.after(Millis::from_secs(30 * 86_400));
    let body = Allocation::new(
        vo,
        AccountPath::root(),
        now..end,
        vec![AllocationSlice {
            amount: CoreMillis(1 << 50),
            start: now,
            end,
        }],
        mesh.sites().map(|site| (site, 1)).collect(),
    );
    let signed = Signed::sign(body, &[&mesh::authority()])?;
    let published = mesh
        .node()
        .publish(signed.bytes().to_vec(), "a bench")
        .await?;
    published.map_err(|why| anyhow!(why))?;
    let began = Instant::now();
    while hold(mesh.node(), u64::MAX).await.is_err() {
        ensure!(began.elapsed() < Duration::from_secs(60), "no rights came");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Jobs that ask at once, and each ends when it was granted what it may cost.
async fn pairs(node: &NodeHandle, first: u64) -> anyhow::Result<()> {
    let jobs = (first..first + AT_ONCE).map(async |number| {
        hold(node, number).await?;
        let job = job(number);
        let charge = CoreMillis(1_800_000);
        match node.quota(QuotaCall::Commit { job, charge }).await? {
            Ok(QuotaAnswer::Committed(_)) => anyhow::Ok(()),
            other => bail!("{other:?}"),
        }
    });
    join_all(jobs).await.into_iter().collect()
}

async fn hold(node: &NodeHandle, number: u64) -> anyhow::Result<()> {
    let end = WallTime(1_800_000_000_000);
    let record = UsageRecord {
        key: job(number),
        origin: Origin {
            user: Some(format!("user{:04}", number % 200)),
            account: Some("grid".to_owned()),
            ..Origin::default()
        },
        start: end.before(Millis::from_secs(3_600)),
        end,
        cores: 1,
        gpus: 0,
        mem_mib: 0,
        placement: Placement::default(),
        running: false,
    };
    let call = QuotaCall::Hold(Box::new(HoldCall {
        record,
        account: None,
        is_exempt: false,
        may_wait: false,
        importance: Default::default(),
    }));
    match node.quota(call).await? {
        Ok(QuotaAnswer::Held {
            vo: Some(_),
            answer,
        }) if answer.verdict == Verdict::Granted => Ok(()),
        other => bail!("{other:?}"),
    }
}

fn job(number: u64) -> JobKey {
    JobKey {
        cluster: "bench".to_owned(),
        job: number.to_string(),
        instance: 0,
    }
}

/// How long holds take, one after the other.
async fn timed(node: &NodeHandle, first: u64) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for number in first..first + TIMED {
        let began = Instant::now();
        hold(node, number).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// As many rows: of each wave of holds, and of charges, a row for each job and one for the slice.
fn alone(store: &Store) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < MEASURED {
        for wave in 0..2_u8 {
            let jobs = (number..number + AT_ONCE).map(|job| Write {
                table: Table::Holds,
                key: ContentHash::of(&job.to_be_bytes()).as_bytes().repeat(2),
                value: Some(vec![wave; ROW_BYTES]),
            });
            let slice = Write {
                table: Table::Rights,
                key: vec![1; 68],
                value: Some(number.to_be_bytes().repeat(8)),
            };
            store.write(jobs.chain([slice]).collect())?;
        }
        number += AT_ONCE;
    }
    Ok(number as f64 / began.elapsed().as_secs_f64())
}

fn say(what: &str, times: Vec<Duration>) {
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_micros();
    println!(
        "{what}: {} times, middle {} us, 99th of a hundred {} us, longest {} us",
        times.len(),
        at(50),
        at(99),
        at(100)
    );
}

fn say_load(when: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {when}: {}", load.trim());
}
