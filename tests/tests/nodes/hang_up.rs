//! A user who asks a real node for more than he waits for.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::privacy::{NOBODY, World, asking};

/// Makes a log of a few jobs one of more jobs than can be summed within the five minutes that a sum has.
const ENDLESS: &str = "ALTER TABLE records RENAME TO few;
    CREATE VIEW records AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
    SELECT few.* FROM n CROSS JOIN few;";

/// How long a question without an answer is taken for one that does not wait for its turn.
const QUICK: Duration = Duration::from_secs(2);

/// Far less than a sum may take, which is how long the turn would be gone, and than a question may wait.
const AT_ONCE: Duration = Duration::from_secs(30);

fn ask(socket: &Path, path: &str) -> anyhow::Result<Child> {
    let ask = format!("GET {path} HTTP/1.1\r\nhost: fairmesh\r\nconnection: close\r\n\r\n");
    asking(NOBODY, socket, ask.as_bytes())
}

fn ends_within(child: &mut Child, time: Duration) -> anyhow::Result<bool> {
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > time {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

#[test]
fn a_user_who_hangs_up_has_his_turn_at_once_whatever_he_had_asked_for() -> anyhow::Result<()> {
    let Some(world) = World::start("")? else {
        return Ok(());
    };
    let socket = world.folder.path().join("control.sock");
    let log = rusqlite::Connection::open(world.folder.path().join("data/records.sqlite"))?;
    log.execute_batch(ENDLESS)?;
    let mut sum = ask(&socket, "/v1/accounting?totals=true")?;
    // The first that waits is behind the sum.
    let mut next = loop {
        let mut next = ask(&socket, "/v1/status")?;
        if !ends_within(&mut next, QUICK)? {
            break next;
        }
    };
    ensure!(sum.try_wait()?.is_none(), "the sum was answered");
    // His process is gone, and its socket with it.
    sum.kill()?;
    sum.wait()?;
    let is_answered = ends_within(&mut next, AT_ONCE)?;
    next.kill()?;
    let answer = String::from_utf8(next.wait_with_output()?.stdout)?;
    ensure!(is_answered, "the node works on for somebody who is gone");
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world.node.kill()
}
