//! What `--help` and the manual pages say beyond the options: examples, exit status, environment and files; and
//! `fairmesh.toml(5)`, made of the configuration that `fairmesh init` writes.
//!
//! Invariant: every command has an example, and every page says how the command ends. Deliberately not here: what
//! options mean, which the commands say of themselves.

use std::io::Write as _;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

/// What people type: a line belongs to the command whose name stands behind `fairmesh`.
const EXAMPLES: &str = "\
fairmesh demo --partition 20s..40s
fairmesh demo --trace LOG.swf.gz --for 2m
fairmesh init /etc/fairmesh --name hpc1.example --cpus 4096 --address /dns4/hpc1.example/tcp/7600
fairmesh check-config
fairmesh check-config --config draft/fairmesh.toml
fairmesh run
FAIRMESH_LOG=warn,fairmesh=debug fairmesh run --config hpc1/fairmesh.toml
fairmesh status
fairmesh status --json | jq .notices
fairmesh peers
fairmesh peers -P -n | cut -d'|' -f1,4
fairmesh share -A physics -l
fairmesh share -u ann -o account,normshares,effectvusage,levelfs
fairmesh prices
fairmesh prio ann -A cms
squeue -h -t PD -o '%u %a' | sort -u | fairmesh prio --stdin
fairmesh explain
fairmesh explain ann --vs bob
fairmesh explain --job 4711
fairmesh usage --by-site
fairmesh usage --unmapped
fairmesh report --dry-run accounting.log
sacct -aXP -S now-1day -o ALL | fairmesh report -
fairmesh records --since 7d --user ann
fairmesh records --since 30d --by account
fairmesh records --since 1d --apel > messages
fairmesh correct 4711 --cluster hpc1 --why 'reported twice under two names'
fairmesh remap --since 2026-11-01 --dry-run
fairmesh remap --since 2026-11-01 --why 'the rule for account cms was missing'
fairmesh audit
fairmesh netcheck
fairmesh top
fairmesh top --once
fairmesh doctor
fairmesh doctor --explain peer-silent
fairmesh doctor --json | jq -r '.findings[].code'
fairmesh bugreport
fairmesh bugreport --output report.txt --log 2000
fairmesh metrics --output /var/lib/prometheus/node-exporter/fairmesh.prom
fairmesh emulate --policy TREE.toml --usage USAGE.csv
fairmesh place JOB.toml
fairmesh place JOB.toml --submit
fairmesh place --grid GRID.json --vo physics --cpus 64
fairmesh queue run JOBS.jsonl --vo physics --submit ./submit.sh
fairmesh queue status JOBS.jsonl
fairmesh forward run --submit ./submit.sh --ask ./ask.sh --folder /var/lib/fairmesh-forward
fairmesh forward status
fairmesh forward withdraw JOB
fairmesh sla show SLA.toml --total 4096
fairmesh sla show --vo physics
fairmesh sla check SLA.toml
fairmesh quota show
fairmesh quota pass P-A1 --to /P-A1/ann --percent 25 --key leader.key
fairmesh policy new shares --from shares.cbor -o shares.toml
fairmesh policy plan --old shares.cbor --new shares.toml
fairmesh policy sign shares.toml --key coordinator.key
fairmesh policy publish shares.cbor
fairmesh slurm check
fairmesh slurm import --write imported
fairmesh slurm sync --dry-run
fairmesh gridengine check
fairmesh gridengine sync --dry-run
fairmesh condor check
fairmesh condor sync --dry-run
fairmesh pbs check
fairmesh pbs sync --dry-run
fairmesh lsf check
fairmesh lsf sync --dry-run
fairmesh arc hold %I --control %C --user %U --cluster ce1.example
fairmesh completions bash > /usr/share/bash-completion/completions/fairmesh
fairmesh man /usr/local/share/man/man1";

/// How commands end, and what they go by: titles, and below each its terms.
const SECTIONS: &str = "\
Exit status
0: Done, or so it is.
1: Understood, and it is not so: a signature is missing, a user is unknown, the node has something to complain of.
2: The command line is wrong, a file cannot be read, or no node answers.
141: Whoever read the output went away before its end, as head does. What a command of policy, quota or correct had begun is done.

Environment
FAIRMESH_SOCKET: The control socket of the node to ask, where --socket names none.
FAIRMESH_LOG: What is logged to standard error, such as warn,fairmesh=debug: levels (error, warn, info, debug, trace), for all or by module. run and slurm log warn,fairmesh=info by default, other commands errors.
NO_COLOR: Where it is set, nothing is bold or coloured.

Files
/etc/fairmesh/fairmesh.toml: The node's configuration: fairmesh.toml(5).
/etc/fairmesh/site.key: The site's key. Whoever has it can report usage in the site's name.
/run/fairmesh/control.sock: Where commands look for the node first.
/run/fairmesh/lookup.sock: Where schedulers look priorities up.";

/// Titles of [`SECTIONS`], each with its terms and what they mean.
fn sections() -> impl Iterator<Item = (&'static str, Vec<(&'static str, &'static str)>)> {
    SECTIONS.split("\n\n").map(|section| {
        let (title, terms) = section.split_once('\n').expect("terms below a title");
        let terms = terms.lines().filter_map(|line| line.split_once(": "));
        (title, terms.collect())
    })
}

/// The command with examples behind its options, and those of its subcommands; the first of all has the rest, too.
pub(crate) fn completed(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    let command = names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| match examples(name) {
            Some(examples) => {
                let own = sub.get_after_long_help().map(|own| format!("{own}\n\n"));
                let indented = examples.replace('\n', "\n  ");
                sub.after_long_help(format!(
                    "{}Examples:\n  {indented}",
                    own.unwrap_or_default()
                ))
            }
            None => sub,
        })
    });
    let mut help = String::new();
    for (title, terms) in sections() {
        help.push_str(&format!("{title}:\n"));
        for (term, text) in terms {
            help.push_str(&format!("  {term}\n          {text}\n"));
        }
        help.push('\n');
    }
    command.after_long_help(help.trim_end().to_owned())
}

/// The examples of a command, a line each.
fn examples(command: &str) -> Option<String> {
    let is_of_command = |line: &&str| {
        let behind = line.split_once("fairmesh ").map(|(_, behind)| behind);
        behind.is_some_and(|behind| behind.split(' ').next() == Some(command))
    };
    let examples: Vec<&str> = EXAMPLES.lines().filter(is_of_command).collect();
    (!examples.is_empty()).then(|| examples.join("\n"))
}

/// Writes a page for each command and one for the configuration.
pub(crate) fn write(command: Command, folder: &Path) -> std::io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(&command, None, folder)?;
    std::fs::write(
        folder.join("fairmesh.toml.5"),
        configuration(crate::init::CONFIG),
    )
}

fn write_pages(command: &Command, examples_of: Option<&str>, folder: &Path) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        // A command of a command is shown with the examples of the whole.
        write_pages(sub, examples_of.or(Some(sub.get_name())), folder)?;
    }
    let page = Man::new(command.clone())
        .manual("Fairmesh")
        .generate_to(folder)?;
    let mut more = Roff::new();
    if let Some(examples) = examples_of.and_then(examples) {
        more.control("SH", ["EXAMPLES"]);
        literal(&mut more, &examples);
    }
    for (title, terms) in sections() {
        more.control("SH", [title.to_uppercase().as_str()]);
        for (term, text) in terms {
            more.control("TP", []);
            more.text([bold(term)]);
            more.text([roman(text)]);
        }
    }
    let mut file = std::fs::File::options().append(true).open(page)?;
    file.write_all(more.to_roff().as_bytes())
}

/// `fairmesh.toml(5)`, of a configuration in which comments stand before what they are about, and `#:` before a
/// default.
fn configuration(text: &str) -> String {
    let mut page = Roff::new();
    page.control("TH", ["fairmesh.toml", "5", "", "", "Fairmesh"]);
    page.control("SH", ["NAME"]);
    page.text([roman("fairmesh.toml - configuration of a Fairmesh node")]);
    page.control("SH", ["DESCRIPTION"]);
    let mut about: Vec<&str> = Vec::new();
    for line in text.lines() {
        let setting = line.strip_prefix("#: ").unwrap_or(line);
        if setting.starts_with('[') {
            flush(&mut page, &mut about);
            page.control("SH", [setting]);
        } else if let Some(comment) = setting.strip_prefix('#') {
            about.push(comment.strip_prefix(' ').unwrap_or(comment));
        } else if setting.is_empty() {
            flush(&mut page, &mut about);
        } else {
            page.control("TP", []);
            page.text([bold(setting.replace("{NAME}", "\"hpc1.example\""))]);
            flush(&mut page, &mut about);
        }
    }
    flush(&mut page, &mut about);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(
        "fairmesh-init(1), fairmesh-check-config(1), fairmesh-run(1)",
    )]);
    page.render()
}

/// Writes what was gathered: sentences as they flow, and what is indented as it stands.
fn flush(page: &mut Roff, about: &mut Vec<&str>) {
    for run in about.chunk_by(|a, b| a.starts_with(' ') == b.starts_with(' ')) {
        if run[0].starts_with(' ') {
            literal(page, &run.join("\n"));
        } else {
            page.text([roman(run.join(" "))]);
        }
    }
    if !about.is_empty() {
        page.control("PP", []);
    }
    about.clear();
}

fn literal(page: &mut Roff, text: &str) {
    page.control("nf", []);
    for line in text.lines() {
        page.text([Inline::Roman(line.to_owned())]);
    }
    page.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_an_example_and_a_page_with_all_sections() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = crate::cli::command_line();
        for sub in command.get_subcommands() {
            assert!(examples(sub.get_name()).is_some(), "{}", sub.get_name());
        }
        write(command, folder.path()).expect("writes");
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
        for name in [
            "fairmesh-share.1",
            "fairmesh-policy-plan.1",
            "fairmesh-slurm-sync.1",
        ] {
            let page = page(name);
            for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
                assert!(
                    page.contains(&format!(".SH {section}")),
                    "{name}: {section}"
                );
            }
        }
        assert!(page("fairmesh.1").contains("FAIRMESH_LOG"));
        let format = page("fairmesh.toml.5");
        for expected in [
            ".SH [timing]",
            "\\fBprojection = \"rank\"\\fR",
            ".SH \"SEE ALSO\"",
        ] {
            assert!(format.contains(expected), "{expected} in {format}");
        }
    }

    /// The words behind `fairmesh` in a line of shell, without what it is piped or redirected to.
    fn words(example: &str) -> Vec<String> {
        let (_, behind) = example.split_once("fairmesh ").expect("a command");
        let ends = [" | ", " > "].iter().filter_map(|end| behind.find(end));
        let command = &behind[..ends.min().unwrap_or(behind.len())];
        let parts = command.split('\'').enumerate();
        let words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn examples_are_command_lines() {
        for example in EXAMPLES.lines() {
            let words = std::iter::once("fairmesh".to_owned()).chain(words(example));
            let read = crate::cli::command_line().try_get_matches_from(words);
            assert!(read.is_ok(), "{example}: {}", read.expect_err("refused"));
        }
    }

    #[test]
    fn the_short_help_is_shorter() {
        let mut command = completed(crate::cli::command_line());
        command.build();
        for name in ["share", "status", "prio"] {
            let sub = command.find_subcommand_mut(name).expect("a command");
            let (short, long) = (
                sub.render_help().to_string(),
                sub.render_long_help().to_string(),
            );
            assert!(
                long.contains("Examples:") && long.contains("--noheader"),
                "{long}"
            );
            assert!(
                !short.contains("Examples:") && !short.contains("--noheader"),
                "{short}"
            );
            assert!(short.lines().count() < long.lines().count());
        }
    }
}
