//! `fairmesh bugreport`: one file, with one id, to send to a helper.
//!
//! Invariant: the file holds nothing of a key (only who can read it is looked at) and no name of a user: the
//! configuration is shown by its shape (`redact`), and every name that the node knows of users is replaced in all of
//! it (`names`). What cannot be had is named, and keeps nothing else out. Deliberately not here: sending it.

mod names;
mod redact;

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use fairmesh_api::client::Control;
use fairmesh_node::config::Config;
use serde_json::{Value, json};

use crate::doctor::{Examined, LookArgs, examine};
use crate::init::write_new;
use crate::output::{Exit, write_json};
use names::Names;

/// How long the log may take, in seconds, as `timeout` takes it.
const LOG_SECONDS: &str = "10";

/// Most of each part: what is longer is cut, and says so.
const PART_BYTES_MAX: usize = 4 << 20;

/// Write one file for a helper, without keys and without names of users
#[derive(Debug, Clone, clap::Args)]
pub struct BugreportArgs {
    /// What to look at.
    #[command(flatten)]
    look: LookArgs,
    /// The file, which must not be there yet [default: fairmesh-bugreport-ID.txt in this folder]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The last lines of the node's log that are taken, where it is in systemd's journal
    #[arg(long, value_name = "LINES", default_value_t = 500)]
    log: u32,
    /// The node's unit
    #[arg(long, value_name = "UNIT", default_value = "fairmesh.service")]
    unit: String,
}

/// Runs the command.
///
/// # Errors
/// If the file cannot be written.
pub async fn run(args: &BugreportArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let id = new_id()?;
    let examined = examine(&args.look).await;
    let names = Names::gather(&examined.control, examined.config.as_ref()).await;
    let parts = [
        ("about", about(&id)),
        ("findings", pretty(&json!(examined.body))),
        ("configuration", configuration(examined.config.as_ref())),
        ("status", status(&examined)),
        ("documents", documents(&examined.control).await),
        ("metrics", metrics(&examined.control).await),
        (
            "data folder",
            examined.config.as_ref().map_or_else(
                || "its place is not known".to_owned(),
                |config| folder(&config.data_dir),
            ),
        ),
        (
            "log",
            match names.are_all {
                true => log(&args.unit, args.log),
                false => format!(
                    "left out, for the node does not tell you all names of users: see `journalctl -u {} -n {}`, or ask as \
                     somebody from whom nothing is hidden",
                    args.unit, args.log
                ),
            },
        ),
    ];
    let mut text = String::new();
    for (name, part) in parts {
        let part = names.scrubbed(cut(part.trim_end()));
        let _ = write!(text, "==> {name} <==\n{part}\n\n");
    }
    let default = || PathBuf::from(format!("fairmesh-bugreport-{id}.txt"));
    let file = args.output.clone().unwrap_or_else(default);
    write_new(&file, text.as_bytes(), 0o600)?;
    let shown = file.display();
    if args.look.ask.output.json {
        let body = json!({"id": id, "file": shown.to_string()});
        write_json(out, "fairmesh.bugreport/1", &body)?;
        return Ok(Exit::Success);
    }
    writeln!(
        out,
        "{shown}\nid {id}: read it before you send it; names of users are replaced by numbers"
    )?;
    Ok(Exit::Success)
}

/// Sixteen digits that nobody else draws.
fn new_id() -> anyhow::Result<String> {
    let id = getrandom::u64().map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(format!("{id:016x}"))
}

fn about(id: &str) -> String {
    let of = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let release = of("/etc/os-release");
    let system = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let memory = of("/proc/meminfo");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "id {id}\nfairmesh {}\nwritten {}\nsystem {}, Linux {}, {cores} cores, {}",
        env!("CARGO_PKG_VERSION"),
        jiff::Timestamp::now(),
        system.unwrap_or("unknown").trim_matches('"'),
        of("/proc/sys/kernel/osrelease").trim(),
        memory.lines().next().unwrap_or_default(),
    )
}

fn configuration(config: Option<&Config>) -> String {
    let Some(config) = config else {
        return "it cannot be read; see the findings".to_owned();
    };
    let file = &config.file;
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let shape = text.and_then(|text| redact::shape(&text, config));
    shape.unwrap_or_else(|error| format!("{error:#}"))
}

fn status(examined: &Examined) -> String {
    let Some(answer) = &examined.status else {
        return "no node answers".to_owned();
    };
    pretty(&json!(answer))
}

/// Which documents the node holds, without what they say.
async fn documents(control: &Control) -> String {
    let asked = control.get::<Value>("/v1/documents", &[]).await;
    let Ok((mut answer, _)) = asked else {
        return "no node answers".to_owned();
    };
    let documents = answer["documents"].as_array_mut().into_iter().flatten();
    for document in documents.filter_map(Value::as_object_mut) {
        document.remove("bytes");
    }
    pretty(&answer["documents"])
}

async fn metrics(control: &Control) -> String {
    let asked = control.text("/v1/metrics").await;
    asked.unwrap_or_else(|error| error.to_string())
}

/// The files of the data folder and how large they are.
fn folder(folder: &Path) -> String {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return format!("cannot be read: {error}"),
    };
    let mut lines: Vec<String> = entries
        .flatten()
        .map(|entry| {
            let length = entry.metadata().map_or(0, |of| of.len());
            format!("{length:>14} {}", entry.file_name().to_string_lossy())
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// The last lines of the unit's log, where systemd keeps one.
fn log(unit: &str, lines: u32) -> String {
    let lines = lines.to_string();
    let journal = [
        "journalctl",
        "--no-pager",
        "--quiet",
        "--output=short-iso",
        "--unit",
        unit,
        "--lines",
        &lines,
    ];
    let asked = Command::new("timeout")
        .arg(LOG_SECONDS)
        .args(journal)
        .stdin(Stdio::null())
        .output();
    match asked {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => format!(
            "systemd's journal has nothing of {unit} that can be read here {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => format!("cannot be asked for: {error}"),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
}

fn cut(text: &str) -> String {
    if text.len() <= PART_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=PART_BYTES_MAX)
        .rev()
        .find(|at| text.is_char_boundary(*at));
    let kept = &text[..end.unwrap_or(0)];
    format!("{kept}\n(cut: {} bytes in all)", text.len())
}
