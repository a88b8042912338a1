//! A policy that is longer than a node reads in one step, with more entries than it builds a tree of in one:
//! both happen beside the node's own task. What is reported meanwhile counts, at the member that the policy
//! was published at and at the one that receives it, and after a start.

use std::time::{Duration, Instant};

use anyhow::ensure;
use fairmesh_tests::{Node, Site, Vo, records};

use crate::PROGRAM;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Users of the VO: 6,000 entries are about 150 KiB, of which 64 are read in one step.
const USERS: usize = 6_000;

/// Waits until a node's tree has an entry for each user, and `charged` of them have usage.
fn await_all(node: &Node, charged: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let answer = node.http("GET", "/v1/shares", b"")?;
        let entries = answer.body["entries"].as_array().map_or(&[][..], |all| all);
        let of_users = entries.iter().filter(|entry| entry["leaf"] == true);
        let (all, used) = of_users.fold((0, 0), |(all, used), entry| {
            (all + 1, used + usize::from(entry["usage_core_ms"] != "0"))
        });
        if (all, used) == (USERS, charged) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{all} users, {used} with usage, of {USERS} and {charged}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_is_reported_while_a_large_policy_comes_into_force_counts_everywhere() -> anyhow::Result<()>
{
    let folder = tempfile::tempdir()?;
    let a = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let b = Site::init(PROGRAM, &folder.path().join("b"), "b")?;
    let names: Vec<String> = (0..USERS).map(|user| format!("user{user:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut vo = Vo::found("grid", &[(a.id, "a"), (b.id, "b")], &names[..2])?;
    a.configure("a", &[], &[("grid", vo.id())])?;
    let a_node = a.start()?;
    b.configure("b", &[(a.id, &a_node.address)], &[("grid", vo.id())])?;
    let b_node = b.start()?;
    vo.publish(&a_node)?;
    let report = |node: &Node, user: usize, first: u64| -> anyhow::Result<()> {
        let answer = node.http(
            "POST",
            "/v1/records",
            &records("grid", names[user], first, 10),
        )?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    };
    report(&a_node, 0, 0)?;
    b_node.await_usage("grid", names[0], 10_000)?;

    vo.divide_anew(2, &names)?;
    vo.publish(&a_node)?;
    // Each report is of a user that only the new policy knows, or of both, while it is read, built and fed.
    for user in 1..50 {
        report(&a_node, user, 100 * user as u64)?;
        report(&b_node, user, 100 * user as u64)?;
    }
    for node in [&a_node, &b_node] {
        await_all(node, 50)?;
        for user in &names[1..50] {
            node.await_usage("grid", user, 20_000)?;
        }
    }
    b_node.kill()?;
    let b_node = b.start()?;
    await_all(&b_node, 50)?;
    b_node.stop()?;
    a_node.stop()?;
    Ok(())
}
