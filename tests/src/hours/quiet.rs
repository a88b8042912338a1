//! The part without faults: every surface of every node is read, and any warning is a line of the table.
//!
//! The shipped alerts are evaluated by `promtool` over the metrics that were read, so that each has its own `for`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::Value;

use super::mesh::{Mesh, SITES, name};
use super::watch;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(10);

/// Nodes that are read whole in a round; `status` is read at all of them.
const WHOLE: usize = 3;

/// Rounds until the same node is read whole again.
const TURN: usize = SITES / WHOLE;

/// Commands that end with 0 and print no warning.
const COMMANDS: [&str; 5] = [
    "status",
    "peers",
    "netcheck",
    "share",
    "explain /physics/ann",
];

/// A warning in the part without faults.
#[derive(Debug)]
pub(super) struct Warning {
    pub(super) node: String,
    pub(super) place: &'static str,
    pub(super) text: String,
    pub(super) after: Duration,
}

/// What the part without faults has shown.
#[derive(Debug)]
pub(super) struct Quiet {
    pub(super) minutes: u64,
    /// How many times a node was read whole.
    pub(super) readings: usize,
    /// How many alerts were evaluated, each at all nodes.
    pub(super) alerts: usize,
    pub(super) warnings: Vec<Warning>,
}

/// Values of each series of the metrics, by turn.
type Samples = BTreeMap<String, BTreeMap<usize, String>>;

/// Reads all nodes for so many minutes.
pub(super) fn run(mesh: &mut Mesh, minutes: u64) -> anyhow::Result<Quiet> {
    let began = Instant::now();
    let lengths: Vec<usize> = (0..SITES)
        .map(|site| watch::log_length(&mesh.log(site)))
        .collect();
    let mut quiet = Quiet {
        minutes,
        readings: 0,
        alerts: 0,
        warnings: Vec::new(),
    };
    let mut samples = Samples::new();
    for round in 0.. {
        let due = ROUND * u32::try_from(round)?;
        if due > Duration::from_secs(minutes * 60) {
            break;
        }
        while began.elapsed() < due {
            mesh.tick()?;
            std::thread::sleep(watch::LOOK_EVERY);
        }
        for (site, notice) in watch::warnings(mesh) {
            let text = format!("{} [{}]", notice.text, notice.code);
            quiet.add(site, "status", text, began);
        }
        for site in (0..WHOLE).map(|of| (round * WHOLE + of) % SITES) {
            for (place, text) in read(mesh, site, round / TURN, &mut samples)? {
                quiet.add(site, place, text, began);
            }
            quiet.readings += 1;
        }
    }
    for (site, length) in lengths.into_iter().enumerate() {
        let log = watch::logged(&mesh.log(site), length);
        let is_warning = |line: &&str| line.contains(" WARN ") || line.contains("ERROR ");
        for line in log.lines().filter(is_warning) {
            quiet.add(site, "log", line.to_owned(), began);
        }
    }
    let (alerts, fired) = alerts(mesh, &samples)?;
    quiet.alerts = alerts;
    if let Some(text) = fired {
        quiet.add(0, "alerts", text, began);
    }
    Ok(quiet)
}

impl Quiet {
    /// Each once.
    fn add(&mut self, site: usize, place: &'static str, text: String, began: Instant) {
        let node = name(site);
        let is_same = |of: &Warning| of.node == node && of.place == place && of.text == text;
        if !self.warnings.iter().any(is_same) {
            let after = began.elapsed();
            eprintln!("{node}: {place}: {text} (after {} s)", after.as_secs());
            self.warnings.push(Warning {
                node,
                place,
                text,
                after,
            });
        }
    }
}

/// Reads a node whole: what is a warning, and where.
fn read(
    mesh: &Mesh,
    site: usize,
    turn: usize,
    samples: &mut Samples,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    for line in COMMANDS {
        let (code, text) = watch::asked(mesh, site, line)?;
        let has_warning = ["warning: ", "error: "]
            .iter()
            .any(|word| text.contains(word));
        if code != Some(0) || has_warning {
            found.push((line, text));
        }
    }
    let (code, text) = watch::doctor(mesh, site)?;
    if code != Some(0) {
        found.push(("doctor", text));
    }
    let (_, text) = watch::asked(mesh, site, "peers --json")?;
    let body: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    for peer in body["peers"].as_array().context("peers")? {
        let state = peer["state"].as_str().unwrap_or_default();
        if !["in-sync", "exchanging", "through-others"].contains(&state) {
            found.push(("peers", peer.to_string()));
        }
    }
    let page = watch::page(mesh, site, "/")?;
    let notices = page
        .split("id=\"notices\"")
        .nth(1)
        .context("no notices on the page")?;
    let has_warning = |word| notices.contains(&format!("<strong>{word}</strong>"));
    if has_warning("warning") || has_warning("error") {
        found.push(("page", notices.chars().take(1_000).collect()));
    }
    let metrics = watch::page(mesh, site, "/metrics")?;
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let is_notice = series.starts_with("fairmesh_notices{") && !series.contains("\"info\"");
        if is_notice && value != "0" {
            found.push(("metrics", line.to_owned()));
        }
        let of_series = samples.entry(labelled(series, &name(site))).or_default();
        of_series.insert(turn, value.to_owned());
    }
    Ok(found)
}

/// A series as a Prometheus stores it.
fn labelled(series: &str, instance: &str) -> String {
    let (metric, labels) = series.split_once('{').unwrap_or((series, "}"));
    let comma = if labels == "}" { "" } else { "," };
    format!("{metric}{{job=\"fairmesh\",instance=\"{instance}\"{comma}{labels}")
}

/// How many alerts there are, and what `promtool` prints if one fires.
fn alerts(mesh: &Mesh, samples: &Samples) -> anyhow::Result<(usize, Option<String>)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = tests
        .with_file_name("configs")
        .join("prometheus/fairmesh.rules.yml");
    let rules = fs::read_to_string(&file)?;
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    let turns = samples.values().filter_map(|of| of.keys().max()).max();
    let turns = turns.copied().unwrap_or(0);
    let interval = ROUND.as_secs() * u64::try_from(TURN)?;
    let mut test = format!(
        "rule_files: [{file:?}]\nevaluation_interval: {interval}s\ntests:\n- interval: {interval}s\n  input_series:\n"
    );
    for site in 0..SITES {
        let series = labelled("up", &name(site));
        let _ = writeln!(test, "  - series: '{series}'\n    values: '1x{turns}'");
    }
    let used = |series: &str| {
        let metric = series.split('{').next().unwrap_or(series);
        rules.contains(metric)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    for (series, values) in samples.iter().filter(|(series, _)| used(series)) {
        let value = |turn| match values.get(&turn) {
            None => "_".to_owned(),
            // The test begins in 1970.
            Some(value) if series.contains("_timestamp_seconds") => {
                let at: f64 = value.parse().unwrap_or(f64::NAN);
                (at - now).to_string()
            }
            Some(value) => value.clone(),
        };
        let values: Vec<String> = (0..=turns).map(value).collect();
        let values = values.join(" ");
        let _ = writeln!(test, "  - series: '{series}'\n    values: '{values}'");
    }
    test += "  alert_rule_test:\n";
    for (turn, alert) in (0..=turns).flat_map(|turn| names.iter().map(move |name| (turn, name))) {
        let at = u64::try_from(turn)? * interval;
        let _ = writeln!(
            test,
            "  - {{eval_time: {at}s, alertname: {alert}, exp_alerts: []}}"
        );
    }
    let path = mesh.path("alerts.yml");
    fs::write(&path, test)?;
    let Ok(output) = Command::new("promtool")
        .args(["test", "rules"])
        .arg(&path)
        .output()
    else {
        eprintln!("there is no promtool: alerts are not evaluated");
        return Ok((0, None));
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).chars().take(2_000).collect();
    Ok((names.len(), (!output.status.success()).then_some(text)))
}
