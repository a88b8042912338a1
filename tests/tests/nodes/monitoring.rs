//! The alerts that are shipped: `promtool` sees each fire and clear, and a real Prometheus those of a real node.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use fairmesh_needs::Need;
use fairmesh_tests::{Site, Vo};

use crate::PROGRAM;

/// How long an alert may take to fire or clear.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Prometheus, ended when dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// One that scrapes `target` every second, with the shipped alerts but for how long they wait.
    fn start(folder: &Path, target: &str) -> anyhow::Result<Self> {
        let rules = std::fs::read_to_string(shipped("fairmesh.rules.yml"))?;
        let hasty = rules
            .lines()
            .filter(|line| !line.trim_start().starts_with("for: "));
        let hasty: Vec<&str> = hasty.collect();
        std::fs::write(folder.join("rules.yml"), hasty.join("\n"))?;
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n\
             scrape_configs:\n- job_name: fairmesh\n  static_configs: [{{targets: [\"{target}\"]}}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config)?;
        let address = free_address()?;
        let argument = |name: &str, value: String| format!("--{name}={value}");
        let child = Command::new("prometheus")
            .arg(argument(
                "config.file",
                folder.join("prometheus.yml").display().to_string(),
            ))
            .arg(argument(
                "storage.tsdb.path",
                folder.join("tsdb").display().to_string(),
            ))
            .arg(argument("web.listen-address", address.clone()))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("prometheus.log"))?)
            .spawn()?;
        Ok(Self { child, address })
    }

    /// Waits until just these alerts fire.
    fn await_firing(&self, expected: &[&str]) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let alerts = get(&self.address, "/api/v1/alerts").unwrap_or_default();
            let mut firing: Vec<&str> = alerts
                .split("\"alertname\":\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .collect();
            firing.sort_unstable();
            // A Prometheus that has not scraped yet says nothing, either.
            let scraped = get(&self.address, "/api/v1/query?query=up").unwrap_or_default();
            if firing == expected && scraped.contains("\"job\":\"fairmesh\"") {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("{firing:?} fire, and not {expected:?}: {alerts}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn get(address: &str, target: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// An address that was free a moment ago: Prometheus takes no port by itself.
fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn shipped(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .with_file_name("configs")
        .join("prometheus")
        .join(name)
}

fn promtool(arguments: &[&str], input: &str) -> anyhow::Result<()> {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(shipped("").as_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("piped")?
        .write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    // 3: it can be read, and a name might be better.
    let is_read = matches!(output.status.code(), Some(0 | 3));
    ensure!(is_read, "{arguments:?}: {output:?}");
    Ok(())
}

fn is_lacking() -> bool {
    let is_here = Command::new("promtool").arg("--version").output().is_ok();
    if !is_here {
        fairmesh_needs::lacks(Need::Prometheus, "there is no promtool");
    }
    !is_here
}

#[test]
fn every_alert_fires_and_clears() -> anyhow::Result<()> {
    if is_lacking() {
        return Ok(());
    }
    promtool(&["check", "rules", "fairmesh.rules.yml"], "")?;
    promtool(&["test", "rules", "fairmesh.tests.yml"], "")?;
    promtool(&["check", "config", "--syntax-only", "scrape.yml"], "")?;
    let read = |name| std::fs::read_to_string(shipped(name));
    let (rules, tests) = (read("fairmesh.rules.yml")?, read("fairmesh.tests.yml")?);
    let guide = shipped("").join("../../docs/page.md");
    let guide = std::fs::read_to_string(guide)?;
    for alert in rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        ensure!(
            tests.contains(&format!("name: {alert}\n")),
            "{alert} has no test"
        );
        ensure!(
            guide.contains(&format!("`{alert}`")),
            "{alert} is not in the guide"
        );
    }
    Ok(())
}

#[test]
fn a_real_prometheus_sees_a_node_go_and_come() -> anyhow::Result<()> {
    if is_lacking() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let site = Site::init(PROGRAM, &folder.path().join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let page = free_address()?;
    let config = std::fs::read_to_string(site.config())?;
    let config = config.replacen(
        "[timing]",
        &format!("[page]\nlisten = \"{page}\"\n[timing]"),
        1,
    );
    std::fs::write(site.config(), config)?;
    let node = site.start()?;
    vo.publish(&node)?;
    // What a collector of text files reads is sound, too.
    let text = Command::new(PROGRAM)
        .args(["metrics", "--socket"])
        .arg(node.socket())
        .output()?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(
        text.contains("# TYPE fairmesh_records_total counter\n"),
        "{text}"
    );
    promtool(&["check", "metrics"], &text)?;

    let prometheus = Prometheus::start(folder.path(), &page)?;
    prometheus.await_firing(&[])?;
    ensure!(node.stop()?.success());
    prometheus.await_firing(&["FairmeshDown"])?;
    let _node = site.start()?;
    prometheus.await_firing(&[])
}
