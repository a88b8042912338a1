//! Look-ups of a real node of 100,000 users, at rest and while every report makes a new order in the
//! background, or sixteen other users ask for all usage on forty connections each: how long they take, in one run.
//! `cargo bench -p fairmesh-tests --bench beside`, as root.
//!
//! Goal: no look-up waits for an order that is being made, only for its core; beside the others 99 % within twice
//! what they take at rest.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_client::{Client, Who};
use fairmesh_tests::greedy::{self, Greedy};
use fairmesh_tests::{Node, Site, records};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// Groups, and users of each.
const GROUPS: usize = 100;
const USERS: usize = 1_000;

/// How long look-ups are timed, at rest and beside reports.
const TIMED: Duration = Duration::from_secs(20);

/// Between two reports of one job: more often than orders are made.
const APART: Duration = Duration::from_millis(100);

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("site"), "site")?;
    std::fs::write(site.config(), config())?;
    let node = site.start()?;
    let run = site.data().join("run");
    let [lookup, control] = ["lookup.sock", "control.sock"].map(|name| run.join(name));
    // Everybody may reach the sockets, as in /run.
    for folder in [folder.path(), site.folder(), &site.data(), &run] {
        std::fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    let mut client = Client::connect(&lookup, Duration::from_secs(10))?;
    // The first look-up waits for the first order.
    time(&mut client, Duration::from_secs(2))?;

    let (rest, orders) = time(&mut client, TIMED)?;
    println!("at rest: {} with {orders} new orders", spread(rest));
    let done = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let reporting = scope.spawn(|| report(&node, &done));
        let beside = time(&mut client, TIMED);
        done.store(true, Ordering::Relaxed);
        reporting.join().expect("it does not panic")?;
        beside
    });
    let (beside, orders) = beside?;
    println!(
        "while jobs are reported: {} with {orders} new orders",
        spread(beside)
    );
    let ask = "GET /v1/usage HTTP/1.1\r\nhost: fairmesh\r\n\r\n";
    let others = greedy::USERS.map(|uid| {
        let sockets = [(&lookup, ""), (&control, ask)];
        sockets.map(|(socket, ask)| Greedy::start(uid, socket, ask))
    });
    let others: Vec<Greedy> = others.flatten().collect::<anyhow::Result<_>>()?;
    let (beside, _) = time(&mut client, TIMED)?;
    println!(
        "while {} others ask for all usage: {}",
        greedy::USERS.len(),
        spread(beside)
    );
    drop(others);
    Ok(())
}

fn config() -> String {
    let mut text = "[site]\nname = \"site\"\n[network]\nlisten = [\"/ip4/127.0.0.1/tcp/0\"]\n\
                    [[identity]]\naccount = \"*\"\npath = \"/{account}/{user}\"\n[shares]\n"
        .to_owned();
    for group in 0..GROUPS {
        let _ = writeln!(text, "\"/g{group}\" = 1");
        for user in 0..USERS {
            let _ = writeln!(text, "\"/g{group}/u{user}\" = 1");
        }
    }
    text
}

/// Reports one job after the other until it is told to stop.
fn report(node: &Node, done: &AtomicBool) -> anyhow::Result<()> {
    for job in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let user = format!("u{}", job % 1_000);
        let answer = node.http("POST", "/v1/records", &records("g7", &user, job, 1))?;
        ensure!(answer.body["counted"] == 1, "{answer:?}");
        std::thread::sleep(APART);
    }
    Ok(())
}

/// How long each look-up by name took, and how many orders they were answered from, less one.
fn time(client: &mut Client, length: Duration) -> anyhow::Result<(Vec<Duration>, u64)> {
    let who = [Who::user_account("u17", "g7")];
    let first = client.lookup(&who)?.view.ranking;
    let (began, mut took, mut last) = (Instant::now(), Vec::new(), first);
    while began.elapsed() < length {
        let asked = Instant::now();
        let answer = client.lookup(&who)?;
        ensure!(answer.factor(0).is_some(), "u17 is known");
        last = answer.view.ranking;
        took.push(asked.elapsed());
    }
    Ok((took, last - first))
}

/// The middle, the slowest of 100 and of 10,000, and the slowest.
fn spread(mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let at = |share: usize| took[took.len() - 1 - took.len() / share];
    format!(
        "{} look-ups, {:.1?} in the middle, 99 % within {:.1?}, 99.99 % within {:.1?}, all within {:.1?}",
        took.len(),
        at(2),
        at(100),
        at(10_000),
        took[took.len() - 1],
    )
}
