//! The unit that comes with the node, and what a process shows of itself to others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::Site;

use crate::PROGRAM;
use crate::local_users::prio;
use crate::privacy::{NOBODY, plays_users};

/// Ten times what `systemd-analyze security` may find at most.
const EXPOSURE: u32 = 12;

/// Runs what is behind it as the unit's `RestrictAddressFamilies` does: the kernel answers that there is no netlink.
const WITHOUT_NETLINK: &str = r"
import ctypes, os, struct, sys
socket = {'x86_64': 41, 'aarch64': 198}[os.uname().machine]
family, answer, allow = 16, 0x50000 | 97, 0x7fff0000
code = [(0x20, 0, 0, 0), (0x15, 0, 3, socket), (0x20, 0, 0, 16), (0x15, 0, 1, family), (6, 0, 0, answer), (6, 0, 0, allow)]
code = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *line) for line in code))
program = ctypes.create_string_buffer(struct.pack('@HP', 6, ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/fairmesh.service")
}

/// Whether a unit is exposed no more than that.
fn is_closed(unit: &Path, exposure: u32) -> anyhow::Result<(bool, String)> {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={exposure}"))
        .arg(unit)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.contains("Overall exposure level"), "{output:?}");
    Ok((output.status.success(), said))
}

#[test]
fn the_unit_is_closed_to_what_a_node_does_not_need() -> anyhow::Result<()> {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        fairmesh_needs::lacks(Need::Systemd, "there is no systemd-analyze");
        return Ok(());
    }
    let (closed, said) = is_closed(&shipped(), EXPOSURE)?;
    ensure!(closed, "{said}");
    let (closed, _) = is_closed(&shipped(), EXPOSURE - 1)?;
    ensure!(
        !closed,
        "less is found now: say so in the threat model, and here"
    );
    Ok(())
}

#[test]
fn a_node_works_without_netlink_and_says_what_takes_it() -> anyhow::Result<()> {
    let without_netlink = || {
        let mut command = Command::new("python3");
        command.args(["-c", WITHOUT_NETLINK, PROGRAM]);
        command
    };
    if !without_netlink()
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        fairmesh_needs::lacks(
            Need::Python,
            "there is no python3 that sets seccomp's filter",
        );
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, folder.path(), "lab")?;
    std::fs::write(site.config(), crate::local_users::CONFIG)?;
    let node = site.start_by(without_netlink())?;
    let output = prio(node.socket())?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.starts_with("ann lab "), "{text}{:?}", output.stderr);
    ensure!(node.stop()?.success());
    let text = std::fs::read_to_string(site.config())?;
    std::fs::write(site.config(), text.replace("127.0.0.1", "0.0.0.0"))?;
    let refused = site.start_by(without_netlink()).err();
    let error = refused.context("there is no netlink")?.to_string();
    ensure!(
        error.contains("name this machine's address in network.listen"),
        "{error}"
    );
    site.start()?;
    Ok(())
}

#[test]
fn a_node_tells_nobody_its_key() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, folder.path(), "lab")?;
    site.configure("lab", &[], &[])?;
    let node = site.start()?;
    let pid = node.pid();
    let secret = std::fs::read_to_string(folder.path().join("site.key"))?;
    let secret = secret.trim();
    ensure!(secret.len() == 64, "a key");
    let mut told = Vec::new();
    for file in ["cmdline", "environ"] {
        told.push(std::fs::read(format!("/proc/{pid}/{file}"))?);
    }
    for path in ["/v1/status", "/v1/peers", "/v1/metrics", "/v1/documents"] {
        told.push(node.http("GET", path, b"")?.text.into_bytes());
    }
    told.push(std::fs::read(folder.path().join("log"))?);
    node.stop()?;
    told.push(std::fs::read(folder.path().join("log"))?);
    for text in told {
        let text = String::from_utf8_lossy(&text);
        ensure!(!text.contains(secret), "{text}");
    }
    Ok(())
}

/// The limits of the unit that a process can be given without systemd, as `prlimit` calls them. Of memory a process is
/// given what it may reserve, which is more than it uses.
const LIMITS: [(&str, &str, &str); 3] = [
    ("LimitNOFILE", "nofile", "Max open files"),
    ("MemoryMax", "as", "Max address space"),
    ("TasksMax", "nproc", "Max processes"),
];

/// What only a control group has.
const OF_GROUPS: [&str; 1] = ["MemoryHigh"];

/// What the unit sets.
fn settings() -> anyhow::Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(shipped())?;
    let set = text.lines().filter_map(|line| line.split_once('='));
    Ok(set
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// `65536`, or `8G`.
fn number(settings: &BTreeMap<String, String>, name: &str) -> anyhow::Result<u64> {
    let value = settings.get(name).with_context(|| name.to_owned())?;
    let (digits, unit) = match value.strip_suffix('G') {
        Some(digits) => (digits, 1 << 30),
        None => (value.as_str(), 1),
    };
    Ok(digits.parse::<u64>()? * unit)
}

/// The hard limit of a process, as the kernel calls it; none where it has none.
fn max_of(process: &str, told: &str) -> anyhow::Result<Option<u64>> {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
    let mut lines = limits.lines();
    let words = lines.find_map(|line| line.strip_prefix(told));
    let hard = words.and_then(|words| words.split_whitespace().nth(1));
    Ok(hard.context("a limit")?.parse().ok())
}

#[test]
fn a_node_counts_and_answers_within_the_limits_of_its_unit() -> anyhow::Result<()> {
    // Root has no limit of tasks.
    if !plays_users() {
        return Ok(());
    }
    let settings = settings()?;
    let limits = settings.keys().filter(|name| {
        let is_limit = ["Limit", "Memory", "Tasks"]
            .iter()
            .any(|of| name.starts_with(of));
        is_limit && *name != "MemoryDenyWriteExecute"
    });
    let known = LIMITS.iter().map(|(name, ..)| *name).chain(OF_GROUPS);
    let known: BTreeSet<&str> = known.collect();
    assert_eq!(limits.map(String::as_str).collect::<BTreeSet<_>>(), known);
    // Before the node is slowed down and ended, it takes no more connections.
    let connections = fairmesh_node::network::NetworkConfig::default()
        .limits
        .memory_bytes_max;
    let [high, most] = ["MemoryHigh", "MemoryMax"].map(|name| number(&settings, name));
    let (high, most) = (high?, most?);
    ensure!(u64::try_from(connections)? < high && high < most);

    let folder = tempfile::tempdir()?;
    // Where the other user may run it.
    let program = folder.path().join("fairmesh");
    std::fs::copy(PROGRAM, &program)?;
    let home = folder.path().join("site");
    let site = Site::init(program.to_str().context("UTF-8")?, &home, "lab")?;
    std::fs::write(site.config(), crate::local_users::CONFIG)?;
    let user = NOBODY.to_string();
    let owned = Command::new("chown")
        .args(["-R", &user])
        .arg(folder.path())
        .status()?;
    ensure!(owned.success());
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask \"$0\" && exec \"$@\""])
        .arg(&settings["UMask"]);
    command.arg("prlimit");
    let mut set = BTreeMap::new();
    for (name, limit, told) in LIMITS {
        // Whoever runs this may have been given less: then the node works within that.
        let most = max_of("self", told)?.unwrap_or(u64::MAX);
        let most = most.min(number(&settings, name)?);
        command.arg(format!("--{limit}={most}"));
        set.insert(told, most);
    }
    command.args([
        "setpriv",
        "--clear-groups",
        "--reuid",
        &user,
        "--regid",
        &user,
    ]);
    command.arg(&program);
    let node = site.start_by(command)?;
    for (told, most) in set {
        let in_force = max_of(&node.pid().to_string(), told)?;
        assert_eq!(in_force, Some(most), "{told}");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let job = format!(
        "{{\"cluster\":\"c\",\"job\":\"1\",\"user\":\"ann\",\"start_ms\":{},\"end_ms\":{now},\"cores\":1}}\n",
        now - 60_000
    );
    let reported = node.http("POST", "/v1/records", job.as_bytes())?;
    assert_eq!(reported.body["counted"], 1, "{reported:?}");
    let output = prio(node.socket())?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.starts_with("ann lab "), "{text}{:?}", output.stderr);
    let began = Instant::now();
    ensure!(node.stop()?.success());
    ensure!(began.elapsed() < Duration::from_secs(number(&settings, "TimeoutStopSec")?));
    Ok(())
}
