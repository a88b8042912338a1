//! The demonstration, as a stranger runs it: one command, and what its last line says. A program of its
//! own, so that nothing runs beside what is timed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use fairmesh_cluster::SwfReader;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

/// One demonstration at a time: each of them is six nodes and six clusters on fast clocks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs the demonstration and reads the one line that it prints for machines.
fn demo(arguments: &[&str]) -> anyhow::Result<Value> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(PROGRAM)
        .arg("demo")
        .args(arguments)
        .arg("--json")
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{words}");
    let text = String::from_utf8(output.stdout)?;
    anyhow::ensure!(text.lines().count() == 1, "more than one line: {text}");
    let report: Value = serde_json::from_str(&text)?;
    anyhow::ensure!(report["schema"] == "fairmesh.demo/1", "{report}");
    Ok(report)
}

fn millis(report: &Value, field: &str) -> u64 {
    report[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number in {field}: {report}"))
}

#[test]
fn a_mesh_that_was_cut_in_two_is_one_again_within_three_sync_intervals() -> anyhow::Result<()> {
    let report = demo(&["--for", "16s", "--partition", "4s..8s"])?;
    assert!(
        millis(&report, "views_while_cut") >= 2,
        "the halves did not diverge: {report}"
    );
    let healed = millis(&report, "heal_to_identical_ms");
    assert!(
        healed <= 3 * millis(&report, "sync_interval_ms"),
        "{healed} ms to agree"
    );
    assert_eq!(report["views_identical"], true);
    let digests = report["view_digests"].as_array().expect("a list");
    assert_eq!(digests.len(), 6);
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    assert!(millis(&report, "jobs") > 0);
    let targets: BTreeMap<&str, &str> = report["shares"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|share| Some((share["path"].as_str()?, share["target"].as_str()?)))
        .collect();
    assert_eq!(targets["/VO-A"], "30");
    assert_eq!(targets["/VO-B/P-B1/U-B12"], "30");
    Ok(())
}

#[test]
fn sites_go_on_within_their_quota_where_a_bank_is_missed() -> anyhow::Result<()> {
    let report = demo(&[
        "--quota",
        "--sites",
        "4",
        "--for",
        "18s",
        "--partition",
        "6s..12s",
    ])?;
    let quota = &report["quota"];
    assert_eq!(millis(quota, "overspent"), 0);
    assert!(millis(quota, "spent") > 0);
    assert!(millis(quota, "granted_while_bank_away") > 0, "{quota}");
    let bank = &quota["bank"];
    assert!(millis(bank, "refused_while_away") > 0, "{quota}");
    assert!(millis(bank, "overspent") > 0, "{quota}");
    Ok(())
}

#[test]
fn a_real_trace_adds_up_to_the_millisecond_at_every_node() -> anyhow::Result<()> {
    let Some(trace) = fairmesh_needs::traces("swf/LCG-2005-1.days1-6.swf.gz") else {
        return Ok(());
    };
    let report = demo(&["--trace", trace.to_str().expect("UTF-8"), "--for", "30s"])?;
    assert_eq!(report["views_identical"], true);
    let counted: BTreeMap<String, u64> = report["usage_core_ms"]
        .as_object()
        .expect("a map")
        .iter()
        .map(|(path, usage)| (path.clone(), usage.as_u64().expect("a number")))
        .collect();
    assert_eq!(counted, expected(&trace)?);
    assert_eq!(millis(&report, "jobs"), 83_979);
    Ok(())
}

/// What the trace's jobs add up to, by VO and user, straight from its columns.
fn expected(trace: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let file = flate2::read::MultiGzDecoder::new(std::fs::File::open(trace)?);
    let mut usage = BTreeMap::new();
    for record in SwfReader::new(BufReader::new(file)) {
        let record = record?;
        let (Some(run_s), Some(cores)) = (record.run_s, record.cores()) else {
            continue;
        };
        let name = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        let path = format!("/VO-{}/U-{}", name(record.group), name(record.user));
        *usage.entry(path).or_default() += run_s * cores * 1_000;
    }
    Ok(usage)
}

#[test]
fn placed_jobs_pass_no_cap_and_go_elsewhere_from_sites_that_fail_or_are_silent()
-> anyhow::Result<()> {
    let report = demo(&["--broker", "--for", "16s"])?;
    assert_eq!(report["views_identical"], true);
    let broker = &report["broker"];
    assert_eq!(millis(broker, "passed_caps"), 0, "{broker}");
    assert!(millis(broker, "ended") > 0 && millis(broker, "placed") >= millis(broker, "ended"));
    assert!(millis(broker, "replanned") > 0, "a site failed: {broker}");
    assert!(
        broker["refused"]["silent"].as_u64() > Some(0),
        "a site was cut off: {broker}"
    );
    assert!(millis(broker, "held_max") <= millis(broker, "cap"));
    assert_eq!(
        broker["by_site"].as_object().map(|sites| sites.len()),
        Some(6)
    );
    Ok(())
}

#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() -> anyhow::Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let mut demo = Command::new(PROGRAM)
        .args(["demo", "--for", "600s"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut words = BufReader::new(demo.stderr.take().expect("it is piped")).lines();
    let is_up = words.any(|line| line.is_ok_and(|line| line.contains("The share page")));
    anyhow::ensure!(is_up, "it ended before the nodes had started");
    anyhow::ensure!(folder.path().read_dir()?.next().is_some(), "nothing there");
    let pid = demo.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status()?;
    let rest: Vec<String> = words.collect::<Result<_, _>>()?;
    anyhow::ensure!(!demo.wait()?.success(), "{rest:?}");
    let says_so = |line: &String| line.contains("ended by a signal");
    assert!(rest.iter().any(says_so), "{rest:?}");
    assert_eq!(folder.path().read_dir()?.count(), 0);
    Ok(())
}

#[test]
fn keys_cut_heal_stop_flood_and_change_shares_and_the_views_are_one_after_it() -> anyhow::Result<()>
{
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut keys, terminal) = pseudo_terminal()?;
    let mut demo = Command::new(PROGRAM)
        .args(["demo", "--for", "600s", "--sites", "4"])
        .env("TERM", "xterm")
        .stdin(terminal.try_clone()?)
        .stdout(terminal)
        .stderr(Stdio::piped())
        .spawn()?;
    let mut screen = keys.try_clone()?;
    let (drawn, is_drawn) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut seen, mut piece) = (Vec::new(), [0; 4_096]);
        // A terminal that nobody writes to any more is an error to read from.
        while let Ok(count @ 1..) = screen.read(&mut piece) {
            seen.extend_from_slice(&piece[..count]);
            if seen.windows(5).any(|word| word == b"Entry") {
                // Once is enough.
                let _ = drawn.send(());
            }
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    let began = is_drawn.recv_timeout(std::time::Duration::from_secs(120));
    // What is pressed is done in its order, each when the one before is done.
    keys.write_all(b"ccnnfpq")?;
    let mut words = String::new();
    let mut told = demo.stderr.take().expect("it is piped");
    told.read_to_string(&mut words)?;
    let status = demo.wait()?;
    let seen = reader.join().expect("it does not panic");
    anyhow::ensure!(began.is_ok() && status.success(), "{words}\n{seen}");
    let said = [
        "the mesh is cut in two",
        "the mesh has healed",
        "site-4's node is stopped",
        "site-4's node is back",
        "submits 200 jobs to each site",
        "has other shares for its projects",
    ];
    let mut rest = words.as_str();
    for line in said {
        let at = rest.find(line);
        rest = &rest[at.unwrap_or_else(|| panic!("`{line}` is not said, or not now: {words}"))..];
    }
    assert!(seen.contains("ended with the identical view"), "{seen}");
    Ok(())
}

/// A terminal of 100 × 30 cells: its keyboard and screen, and what a program gets.
fn pseudo_terminal() -> anyhow::Result<(File, File)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?.into_string()?;
    let theirs = OpenOptions::new().read(true).write(true).open(name)?;
    let size = rustix::termios::Winsize {
        ws_row: 30,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&theirs, size)?;
    Ok((ours.into(), theirs))
}
