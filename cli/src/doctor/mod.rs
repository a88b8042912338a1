//! `fairmesh doctor`: everything that looks, in one place: the configuration, the node and its peers, the batch
//! systems beside it; with what to do for each finding.
//!
//! Invariant: it changes nothing, and what one part cannot look at keeps no other from looking. Exit 0 where nothing
//! needs somebody, 1 where something does, 2 where the configuration cannot be read or no node answers.
//! Deliberately not here: what the findings mean (`docs/troubleshooting.md`), and what a node finds of itself
//! (`control/health`).

mod node;

pub(crate) use node::namesakes;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::Context as _;
use fairmesh_api::client::Control;
use fairmesh_api::finding::{Code, DoctorBody, Finding};
use fairmesh_api::{Answer, StatusBody};
use fairmesh_model::Severity;
use fairmesh_model::SigningKey;
use fairmesh_node::config::Config;
use fairmesh_node::users::{Uids, uids};
use fairmesh_schedulers::slurm::SlurmdbdAway;

use crate::ask::AskArgs;
use crate::init::load_key;
use crate::output::{Exit, OutputArgs, unbroken, write_json};
use crate::schedulers::check::Lack;
use crate::schedulers::command::{KNOWN, Known};
use crate::slurm;

/// The configuration of a packaged node.
const CONFIG_DEFAULT: &str = "/etc/fairmesh/fairmesh.toml";

/// Of whom batch systems are asked that have no list of users.
const QUEUED: &str = "that have jobs in the queue";

/// What a node is examined by.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LookArgs {
    /// The node's configuration [default: /etc/fairmesh/fairmesh.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Look at the configuration, the node, its peers and its batch system, and say what to do for each finding.
#[derive(Debug, Clone, clap::Args)]
pub struct DoctorArgs {
    /// What to look at.
    #[command(flatten)]
    look: LookArgs,
    /// Only say what a code means and what to do about it
    #[arg(long, value_name = "CODE", conflicts_with = "json")]
    explain: Option<String>,
}

/// What was found, and what else a report may be made of.
pub(crate) struct Examined {
    pub(crate) body: DoctorBody,
    pub(crate) config: Option<Config>,
    pub(crate) control: Control,
    pub(crate) status: Option<Answer<StatusBody>>,
}

/// Runs the command.
///
/// # Errors
/// If there is no such code, or nobody reads what is written.
pub async fn run(args: &DoctorArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let Some(code) = &args.explain {
        let known = Code::from_str(code);
        let known = known
            .with_context(|| format!("`{code}` is no code: docs/troubleshooting.md has all"))?;
        writeln!(out, "{code}\n\n{}", known.section())?;
        return Ok(Exit::Success);
    }
    let examined = examine(&args.look).await;
    let format = &args.look.ask.output;
    match format.json {
        true => write_json(out, "fairmesh.doctor/1", &examined.body)?,
        false => write(&examined.body, format, out)?,
    }
    let is_blind = |finding: &Finding| {
        let blind = [Code::ConfigUnreadable, Code::ConfigInvalid, Code::NodeAway];
        finding.severity == "error" && blind.iter().any(|code| code.name() == finding.code)
    };
    Ok(match &examined.body {
        body if body.healthy => Exit::Success,
        body if body.findings.iter().any(is_blind) => Exit::Unasked,
        _ => Exit::Failure,
    })
}

/// Looks at all there is.
pub(crate) async fn examine(args: &LookArgs) -> Examined {
    let (config, mut findings) = configured(args.config.as_deref());
    let mut looked_at = Vec::new();
    if let Some(config) = &config {
        looked_at.push(format!("the configuration {}", config.file.display()));
    }
    let by_config = config.as_ref().map(|config| &config.sockets.control);
    let is_named = args.ask.node.socket.is_some() || std::env::var_os("FAIRMESH_SOCKET").is_some();
    let control = match by_config.filter(|_| !is_named) {
        Some(socket) => Control::new(socket.clone()),
        None => args.ask.control(),
    };
    let status = match control.get::<Answer<StatusBody>>("/v1/status", &[]).await {
        Ok((status, _)) => {
            looked_at.push(node::looked_at(&status.body));
            findings.extend(node::of(&status.body));
            findings.extend(node::namesakes(&control).await);
            Some(status)
        }
        Err(error) => {
            findings.push(Finding::new(
                Code::NodeAway,
                Severity::Error,
                &error.to_string(),
            ));
            None
        }
    };
    if let Some(config) = &config {
        for (system, found) in of_systems(config).await {
            looked_at.push(format!("its {system}"));
            findings.extend(found);
        }
    }
    findings.sort_by_key(Finding::weight);
    let healthy = !findings.iter().any(Finding::needs_somebody);
    let body = DoctorBody {
        looked_at,
        healthy,
        findings,
    };
    Examined {
        body,
        config,
        control,
        status,
    }
}

/// The configuration, as far as there is one, and what is to be said of it.
fn configured(named: Option<&Path>) -> (Option<Config>, Vec<Finding>) {
    let file = named.unwrap_or(Path::new(CONFIG_DEFAULT));
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => return (None, vec![unusable(named.is_some(), file, &error)]),
    };
    let (is_at_home, refused) = match key_of(&config) {
        Ok(key) => (key.is_some(), None),
        Err(error) => (true, Some(format!("{error:#}"))),
    };
    let mut findings = of_config(&config, is_at_home);
    let refused = refused.map(|why| Finding::new(Code::KeyRefused, Severity::Error, &why));
    findings.extend(refused);
    (Some(config), findings)
}

/// Why there is no configuration to go by.
fn unusable(is_named: bool, file: &Path, error: &anyhow::Error) -> Finding {
    let why = error.root_cause().downcast_ref::<std::io::Error>();
    let is_unread = why.is_some_and(|why| {
        matches!(
            why.kind(),
            ErrorKind::NotFound | ErrorKind::PermissionDenied
        )
    });
    let text = format!("{error:#}");
    if is_unread {
        let severity = if is_named {
            Severity::Error
        } else {
            Severity::Info
        };
        return Finding::new(Code::ConfigUnreadable, severity, &text);
    }
    let problem = text.lines().next().unwrap_or_default();
    let remedy = text.lines().find_map(|line| line.strip_prefix("  = "));
    let check = format!(
        "`fairmesh check-config --config {}` shows the place",
        file.display()
    );
    let found = Finding::new(Code::ConfigInvalid, Severity::Error, problem);
    found.with_remedy(&match remedy {
        Some(remedy) => format!("{remedy}; {check}"),
        None => check,
    })
}

/// The site's key, where whoever asks can read it.
///
/// # Errors
/// Where the file is no key, or others can read it.
pub(crate) fn key_of(config: &Config) -> anyhow::Result<Option<SigningKey>> {
    match std::fs::File::open(&config.key_file) {
        Ok(_) => load_key(&config.key_file).map(Some),
        Err(_) => Ok(None),
    }
}

/// What is to be said of a valid configuration. What this machine lacks counts only where it `is_at_home`: on the
/// site's own, where the key can be read.
pub(crate) fn of_config(config: &Config, is_at_home: bool) -> Vec<Finding> {
    let mut found = config.doubts();
    let severity = if is_at_home {
        Severity::Warning
    } else {
        Severity::Info
    };
    for (what, users) in [
        ("writer", &config.sockets.writers),
        ("reader", &config.readers),
    ] {
        let (_, unknown) = uids(users, &Uids::new());
        found.extend(unknown.iter().map(|name| {
            let text = format!("the {what} `{name}` is no user of this machine");
            Finding::new(Code::WriterUnknown, severity, &text)
        }));
    }
    if !is_at_home {
        let file = config.key_file.display();
        let text =
            format!("the key {file} cannot be read here, so only the configuration was checked");
        found.push(Finding::new(Code::KeyUnreadable, Severity::Info, &text));
    }
    found
}

/// What the batch systems of the configuration lack, with their names.
async fn of_systems(config: &Config) -> Vec<(&'static str, Vec<Finding>)> {
    let mut found = Vec::new();
    if config.slurm.is_some() {
        let codes = [
            Code::SlurmAway,
            Code::SlurmSetup,
            Code::SlurmUnmapped,
            Code::SlurmRange,
            Code::SlurmCapacity,
        ];
        let known = "that Slurm knows";
        found.push(("Slurm", lacking(slurm::lacks(config).await, codes, known)));
    }
    let has_table = |system: &&Known| (system.with_node)(config).is_some();
    for system in KNOWN.iter().filter(has_table) {
        let lacks = (system.lacks)(config).await;
        found.push((system.title, lacking(lacks, system.codes, QUEUED)));
    }
    found
}

/// What a batch system lacks, by its codes: it is away, its configuration, who maps nowhere, its range, its CPUs.
/// `known` are those who were looked at.
fn lacking(
    lacks: anyhow::Result<Vec<Lack>>,
    [away, setup, unmapped, range, capacity]: [Code; 5],
    known: &str,
) -> Vec<Finding> {
    let lacks = match lacks {
        Ok(lacks) => lacks,
        Err(error) => {
            // slurmctld has answered before.
            let is_of_slurmdbd = error.is::<SlurmdbdAway>();
            let code = if is_of_slurmdbd {
                Code::SourceAway
            } else {
                away
            };
            return vec![Finding::new(code, Severity::Error, &format!("{error:#}"))];
        }
    };
    let found = |lack: Lack| match lack {
        Lack::Setup { problem, mend } => {
            Finding::new(setup, Severity::Warning, &problem).with_remedy(&mend)
        }
        Lack::Nowhere { who, of } => {
            let text = format!("{who} of {of} users and accounts {known} map nowhere");
            Finding::new(unmapped, Severity::Warning, &text)
        }
        Lack::Range(words) => Finding::new(range, Severity::Info, &words),
        Lack::Capacity { problem, fix } => {
            Finding::new(capacity, Severity::Warning, &problem).with_remedy(&fix)
        }
    };
    lacks.into_iter().map(found).collect()
}

fn write(body: &DoctorBody, format: &OutputArgs, out: &mut dyn Write) -> std::io::Result<()> {
    for finding in &body.findings {
        let (severity, code) = (&finding.severity, &finding.code);
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        if format.parsable {
            let cells = [severity, code, &finding.text, remedy].map(unbroken);
            writeln!(out, "{}", cells.join("|"))?;
        } else {
            writeln!(out, "{severity}: {} [{code}]\n  do: {remedy}", finding.text)?;
        }
    }
    if format.parsable {
        return Ok(());
    }
    let needing = body
        .findings
        .iter()
        .filter(|finding| finding.needs_somebody());
    let looked_at = match &body.looked_at[..] {
        [] => "nothing could be looked at".to_owned(),
        looked_at => format!("looked at {}", looked_at.join(", ")),
    };
    match needing.count() {
        0 => writeln!(out, "{looked_at}: nothing needs you"),
        count => writeln!(
            out,
            "{looked_at}: {count} to look after; `fairmesh doctor --explain CODE` says more of each"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_used_says_which_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("fairmesh.toml");
        let of = |named: bool| {
            let (config, findings) = configured(named.then_some(file.as_path()));
            assert!(config.is_none());
            findings.into_iter().next().expect("one")
        };
        let missing = of(true);
        assert_eq!(
            (missing.code.as_str(), missing.severity.as_str()),
            ("config-unreadable", "error")
        );
        std::fs::write(&file, "[site]\nname = \"a\"\n[timing]\nsync = \"0s\"\n").expect("written");
        let invalid = of(true);
        assert_eq!(invalid.code, "config-invalid");
        assert!(
            invalid.text.contains("fairmesh.toml:4:8"),
            "{}",
            invalid.text
        );
        let remedy = invalid.remedy.expect("one");
        assert!(remedy.contains("check-config"), "{remedy}");
        let error = anyhow::Error::new(std::io::Error::from(ErrorKind::PermissionDenied));
        assert_eq!(unusable(false, &file, &error).severity, "info");
    }

    #[test]
    fn a_key_that_others_can_read_is_an_error() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        crate::init::generate_key(&path("site.key")).expect("a key");
        std::fs::write(path("fairmesh.toml"), "[site]\nname = \"a\"\n").expect("written");
        let codes = || -> Vec<String> {
            let (_, found) = configured(Some(&path("fairmesh.toml")));
            found.into_iter().map(|found| found.code).collect()
        };
        assert!(codes().is_empty(), "{:?}", codes());
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(path("site.key"), open).expect("changed");
        assert_eq!(codes(), ["key-refused"]);
        std::fs::remove_file(path("site.key")).expect("removed");
        assert_eq!(codes(), ["key-unreadable"]);
    }

    #[test]
    fn findings_are_written_with_what_to_do() {
        let body = DoctorBody {
            looked_at: vec!["the node".to_owned()],
            healthy: false,
            findings: vec![Finding::new(Code::DiskFull, Severity::Error, "no room")],
        };
        let written = |parsable| {
            let (mut out, format) = (
                Vec::new(),
                OutputArgs {
                    parsable,
                    ..OutputArgs::default()
                },
            );
            write(&body, &format, &mut out).expect("writes");
            String::from_utf8(out).expect("UTF-8")
        };
        assert_eq!(
            written(false),
            "error: no room [disk-full]\n  do: make room, or make the disk writable. The node continues by itself.\n\
             looked at the node: 1 to look after; `fairmesh doctor --explain CODE` says more of each\n"
        );
        assert_eq!(
            written(true),
            "error|disk-full|no room|make room, or make the disk writable. The node continues by itself.\n"
        );
    }
}
