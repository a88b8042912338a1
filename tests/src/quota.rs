//! Quotas at a real Slurm, set up as an administrator sets them up, and what they add to `sbatch`.
//!
//! Deliberately not here: what they promise (`tests/slurm/quota.rs`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairmesh_needs::Need;

use crate::process::{Node, Site};
use crate::slurm::{Accounts, Kind, Slurm, await_that};
use crate::twins::configure;
use crate::vo::Vo;

/// What is missing before it is set up.
const LACKS: [&str; 3] = [
    "JobSubmitPlugins has no lua",
    "no PrologSlurmctld",
    "fairmesh-quota.lua is missing",
];

/// Takes `fairmesh slurm setup` at its word; false where Slurm's Lua has no sockets.
pub fn set_up(program: &str, site: &Site, slurm: &Slurm) -> anyhow::Result<bool> {
    let written = site.folder().join("slurm-files");
    let setup = |more: &[&Path]| {
        let mut setup = Command::new(program);
        setup.args(["slurm", "setup", "--config"]);
        let output = setup.arg(site.config()).args(more).output()?;
        let words = [output.stdout, output.stderr].concat();
        anyhow::Ok(String::from_utf8_lossy(&words).into_owned())
    };
    let said = setup(&[Path::new("--write"), &written])?;
    ensure!(LACKS.iter().all(|lack| said.contains(lack)), "{said}");
    if said.contains("Lua has no module") {
        fairmesh_needs::lacks(Need::Slurm, "no lua-socket");
        return Ok(false);
    }
    let conf = slurm.conf();
    let folder = conf.parent().context("a folder")?;
    copy(&written, slurm)?;
    let mode = fs::metadata(folder.join("fairmesh-prolog"))?
        .permissions()
        .mode();
    ensure!(mode & 0o111 != 0, "it is a program");
    let lines = fs::read_to_string(written.join("slurm.conf"))?;
    let of_quota = |line: &&str| line.contains("JobSubmit") || line.contains("PrologSlurmctld");
    let of_quota: Vec<&str> = lines.lines().filter(of_quota).collect();
    ensure!(of_quota.len() == 2, "{lines}");
    let text = fs::read_to_string(&conf)?;
    fs::write(&conf, format!("{text}\n{}\n", of_quota.join("\n")))?;
    slurm.restart_slurmctld()?;
    let said = setup(&[])?;
    ensure!(LACKS.iter().all(|lack| !said.contains(lack)), "{said}");
    Ok(true)
}

/// Sets it up once more, after a change of the configuration. Slurm reads its Lua anew when that has changed.
pub fn set_up_again(program: &str, site: &Site, slurm: &Slurm) -> anyhow::Result<()> {
    let written = site.folder().join("slurm-files-again");
    let mut setup = Command::new(program);
    setup
        .args(["slurm", "setup", "--config"])
        .arg(site.config());
    let output = setup.arg("--write").arg(&written).output()?;
    ensure!(written.exists(), "{output:?}");
    copy(&written, slurm)
}

/// Copies the files to where Slurm expects them.
fn copy(written: &Path, slurm: &Slurm) -> anyhow::Result<()> {
    let conf = slurm.conf();
    let folder = conf.parent().context("a folder")?;
    for name in ["job_submit.lua", "fairmesh-quota.lua", "fairmesh-prolog"] {
        fs::copy(written.join(name), folder.join(name))?;
    }
    Ok(())
}

/// What a node says of an account's credit, in core-milliseconds; an error while it spends nothing yet.
pub fn amount(node: &Node, path: &str, name: &str) -> anyhow::Result<u64> {
    let answer = node.http("GET", &format!("/v1/quota?path=/{path}"), b"")?;
    let accounts = answer.body["accounts"].as_array().context("accounts")?;
    let account = accounts.first().with_context(|| format!("{answer:?}"))?;
    let unheard = account["unheard"].as_array().context("a list")?;
    ensure!(unheard.is_empty(), "it is not heard: {account}");
    let amount = account[format!("{name}_core_ms")].as_str();
    Ok(amount.context("an amount")?.parse()?)
}

/// What the look at submission adds to `sbatch`: so many without it, then as many with it, while nothing starts.
/// Prints the middle, the 99th of a hundred and the longest of each.
pub fn measure_submission(program: &str, count: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let kind = Kind {
        name: "alpha",
        cpus: 8,
        nodes: 1,
        accounts: Accounts::Filetxt,
        conf: "",
        plugins: None,
    };
    let Some(slurm) = Slurm::start(&folder.path().join("slurm"), kind)? else {
        return Ok(());
    };
    let site = Site::init(program, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["xavier"])?;
    let spool = folder.path().display();
    // What sets priorities is not to be measured.
    let more = format!("quota = true\nwith_node = false\nspool = \"{spool}\"\n");
    configure(&site, "a", &[], &vo, &slurm, &more)?;
    let node = site.start()?;
    vo.publish(&node)?;
    let credit = vo.grant("/xavier", 1 << 50, &[site.id], |_| {})?;
    ensure!(node.http("POST", "/v1/documents", &credit)?.status == 200);
    await_that("rights", || Ok(amount(&node, "xavier", "here")? > 0))?;
    slurm.open(false)?;
    let submit = || {
        let began = Instant::now();
        slurm.submit("xavier", 1, Duration::from_secs(1), &[])?;
        anyhow::Ok(began.elapsed())
    };
    let measure = |name: &str, once: &dyn Fn() -> anyhow::Result<Duration>| {
        // A queue that has grown meanwhile is not to be measured either.
        slurm.run("scancel", &["-u", "root"])?;
        slurm.await_idle()?;
        let mut times: Vec<Duration> = (0..count).map(|_| once()).collect::<anyhow::Result<_>>()?;
        times.sort_unstable();
        let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100].as_micros();
        println!(
            "{name}: {count} times, middle {} us, 99th of a hundred {} us, longest {} us",
            at(50),
            at(99),
            at(100)
        );
        anyhow::Ok(())
    };
    for _ in 0..2 {
        measure("sbatch without", &submit)?;
    }
    if !set_up(program, &site, &slurm)? {
        return Ok(());
    }
    let question =
        br#"{"cluster":"alpha","job":"submitted","account":"xavier","cores":1,"wall_s":60}"#;
    let ask = || {
        let began = Instant::now();
        let answer = node.http("POST", "/v1/quota/check", question)?;
        ensure!(answer.body["runs"] == true, "{answer:?}");
        anyhow::Ok(began.elapsed())
    };
    for _ in 0..2 {
        measure("sbatch with the look at the quota", &submit)?;
        measure("that look alone", &ask)?;
    }
    slurm.run("scancel", &["-u", "root"])?;
    Ok(())
}
