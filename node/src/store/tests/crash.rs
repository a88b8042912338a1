//! Real processes, killed at random moments or with a disk that is full.
//!
//! The child is this test binary again, running one test that does nothing without its variable.
//! It writes batches and says so on its standard output behind each.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;

const CHILD_VARIABLE: &str = "FAIRMESH_STORE_CRASH_CHILD";
const KILLS: u32 = 40;
const RECORDS: u64 = 20;

/// The batch with number `number`: the same keys each time, one in chunks, and one of its own.
fn batch(number: u64) -> Vec<Write> {
    let bytes = number.to_be_bytes();
    let mut writes: Vec<Write> = (0..RECORDS)
        .map(|record| put(Table::Ledger, &record.to_be_bytes(), &bytes))
        .collect();
    let length = 5_000 + usize::try_from(number % 7).expect("small") * 3_000;
    writes.push(put(Table::Parts, b"large", &bytes.repeat(length / 8)));
    writes.push(put(Table::Holds, &bytes, &[1; 300]));
    writes.push(mark(&bytes));
    writes
}

/// The number of the newest batch in the store (0 for none), having checked that it is whole.
fn newest_batch(store: &Store) -> u64 {
    let records = all(store, Table::Ledger);
    let Some((_, first)) = records.first() else {
        assert!(store.marks() == 0 && all(store, Table::Parts).is_empty());
        return 0;
    };
    assert!(
        records.iter().all(|(_, value)| value == first),
        "a batch is torn"
    );
    let newest = u64::from_be_bytes(first.as_slice().try_into().expect("eight bytes"));
    let large = store
        .get(Table::Parts, b"large")
        .expect("reads")
        .expect("there");
    assert!(
        large.chunks(8).all(|part| part == first),
        "a large value is torn"
    );
    let holds = all(store, Table::Holds);
    let holds: Vec<&[u8]> = holds.iter().map(|(key, _)| key.as_slice()).collect();
    let due: Vec<[u8; 8]> = (1..=newest).map(u64::to_be_bytes).collect();
    assert_eq!(holds, due, "a batch is lost or torn");
    let has_mark = |number: u64| charged(store, &number.to_be_bytes()).is_some();
    assert!((1..=newest).all(has_mark), "the mark of a batch is lost");
    let jobs = u64::try_from(store.marks()).expect("few");
    assert_eq!(jobs, newest, "there is a mark of a batch that is not there");
    newest
}

fn child_command(dir: &Path) -> Command {
    let exe = std::env::current_exe().expect("this binary");
    let (_, module) = module_path!()
        .split_once("::")
        .expect("a module of a crate");
    // Files may grow to 3 MiB if the variable says so, and writing beyond is an error, not a signal.
    let script = r#"if [ -n "$LIMIT" ]; then trap '' XFSZ; ulimit -f "$LIMIT"; fi; exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(exe)
        .args([
            "--exact",
            &format!("{module}::child"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD_VARIABLE, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn spawn(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.spawn().expect("the child starts");
    let output = child.stdout.take().expect("is piped");
    (child, BufReader::new(output))
}

/// Acknowledged batch numbers, until the child ends.
fn acks(output: impl BufRead) -> impl Iterator<Item = u64> {
    output.lines().map_while(Result::ok).filter_map(|line| {
        let (_, number) = line.split_once("ack ")?;
        number.trim().parse().ok()
    })
}

#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_VARIABLE) else {
        return;
    };
    let (store, _) = open(Path::new(&dir));
    let mut stdout = std::io::stdout();
    for number in newest_batch(&store) + 1.. {
        if let Err(error) = store.write(batch(number)) {
            assert!(store.is_failed());
            assert!(matches!(
                store.write(batch(number)),
                Err(StoreError::Failed(_))
            ));
            writeln!(stdout, "\nfailed at {number}: {error}").expect("the parent listens");
            // sled's own threads may hang on a full disk when they are shut down.
            std::process::exit(0);
        }
        writeln!(stdout, "\nack {number}").expect("the parent listens");
        stdout.flush().expect("the parent listens");
    }
}

#[test]
fn no_acknowledged_batch_is_lost_or_torn_by_a_kill() {
    let (_dir, path) = folder();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let seed = now.as_nanos() as u64;
    let mut random = seed | 1;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut newest = 0;
    for kill in 0..KILLS {
        let (mut child, output) = spawn(child_command(&path));
        let mut acks = acks(output);
        // Some are killed while they open the store, most in the middle of a batch.
        let acks_before = draw(30);
        let mut acked = (0..acks_before)
            .map_while(|_| acks.next())
            .last()
            .unwrap_or(newest);
        std::thread::sleep(Duration::from_micros(draw(4_000)));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        acked = acks.last().unwrap_or(acked);
        let (store, recovery) = open(&path);
        assert_eq!(recovery.set_aside, None, "kill {kill}, seed {seed}");
        newest = newest_batch(&store);
        assert!(
            newest >= acked,
            "kill {kill}, seed {seed}: {newest} of {acked}"
        );
        assert!(
            newest <= acked + 1,
            "kill {kill}, seed {seed}: one batch was under way"
        );
    }
    assert!(newest > u64::from(KILLS), "the children got to write");
}

#[test]
fn a_full_disk_is_an_error_and_nothing_is_acknowledged() {
    let (_dir, path) = folder();
    let mut command = child_command(&path);
    command.env("LIMIT", "6144");
    let (mut child, output) = spawn(command);
    let acked = acks(output).last().expect("some batches fit");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    let (store, recovery) = open(&path);
    assert_eq!(recovery.set_aside, None);
    assert!(newest_batch(&store) >= acked);
    store
        .write(batch(newest_batch(&store) + 1))
        .expect("there is room again");
}
