//! Drafts from the limits of a PBS server.
//!
//! `max_run_res.ncpus` says how many CPUs may be held at once: by all jobs, by a project's, a group's or a user's. What it
//! says of a project or of a group is a limit in CPUs; the rest has no counterpart.
//! Source: the reference guide of PBS Professional, "Limit attributes"; `qmgr -c 'print server'`.

use std::collections::BTreeMap;

use anyhow::Context as _;
use fairmesh_broker::Sla;
use fairmesh_broker::sla::SlaEntry;
use fairmesh_model::{AccountPath, clean};

use super::Draft;

/// Names that stand for everybody of a kind by himself.
const EACH: &str = "PBS_GENERIC";

/// Makes a draft of what `qmgr -c 'print server'` prints.
pub(super) fn draft(text: &str, file: &str) -> anyhow::Result<Draft> {
    let mut limits: BTreeMap<AccountPath, u64> = BTreeMap::new();
    let mut comments = Vec::new();
    let mut is_pbs = false;
    for (index, line) in text.lines().enumerate() {
        let at = || format!("{file}:{}", index + 1);
        let words: Vec<&str> = line.split_whitespace().collect();
        is_pbs |= matches!(words[..], ["set", "server", ..]);
        // A queue's limits bind beside the server's, and which jobs go there nobody knows here.
        let of = match words[..] {
            ["set", "server", "max_run_res.ncpus", ..] => "",
            ["set", "queue", queue, "max_run_res.ncpus", ..] => queue,
            _ => continue,
        };
        let (_, value) = line
            .split_once('=')
            .with_context(|| format!("{}: no value", at()))?;
        for (kind, name, cpus) in limits_of(value).with_context(at)? {
            match (kind.as_str(), name.as_str()) {
                ("g" | "p", name) if name != EACH && of.is_empty() => {
                    let path = AccountPath::root().child(name).with_context(at)?;
                    let limit = limits.entry(path).or_insert(cpus);
                    *limit = cpus.min(*limit);
                }
                (kind, name) => {
                    let queue = match of {
                        "" => String::new(),
                        queue => format!(" in queue {}", clean(queue)),
                    };
                    let name = clean(name);
                    comments.push(format!("{kind}:{name} may hold {cpus} CPUs at once{queue}"));
                }
            }
        }
    }
    if !is_pbs {
        anyhow::bail!(
            "{file}: no server's attributes: give the output of `qmgr -c 'print server'`"
        );
    }
    let mut sla = Sla::default();
    for (path, cpus) in limits {
        let entry = SlaEntry {
            at_most: Some(cpus),
            ..SlaEntry::default()
        };
        sla.entries.insert(path, entry);
    }
    Ok(Draft { sla, comments })
}

/// What `[u:ann=4], [g:physics=64]` says; a number alone is of all jobs.
fn limits_of(value: &str) -> anyhow::Result<Vec<(String, String, u64)>> {
    let value = value.trim().trim_matches('"');
    let number = |text: &str| {
        let cpus = text.trim().parse::<u64>();
        cpus.with_context(|| format!("`{}` is no number of CPUs", clean(text)))
    };
    if !value.contains('[') {
        return Ok(vec![("o".to_owned(), "PBS_ALL".to_owned(), number(value)?)]);
    }
    let parts = value
        .split(']')
        .map(|part| part.trim_start_matches([',', ' ']));
    let parts = parts.filter(|part| !part.is_empty());
    let limit = |part: &str| {
        let inner = part.strip_prefix('[');
        let halves = inner.and_then(|inner| inner.rsplit_once('='));
        let who = halves.and_then(|(who, cpus)| Some((who.split_once(':')?, cpus)));
        let ((kind, name), cpus) = who.with_context(|| format!("`{}` is no limit", clean(part)))?;
        let name = name.trim().trim_matches('"');
        Ok((kind.trim().to_owned(), name.to_owned(), number(cpus)?))
    };
    parts.map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "#\n# Create queues and set their attributes.\n#\ncreate queue workq\n\
set queue workq queue_type = Execution\nset queue workq max_run_res.ncpus = [g:physics=16]\n\
#\n# Set server attributes.\n#\nset server scheduling = True\nset server max_run_res.ncpus = [o:PBS_ALL=600]\n\
set server max_run_res.ncpus += [g:physics=240]\nset server max_run_res.ncpus += [p:\"chem lab\"=60], [u:ann=8]\n\
set server max_run_res.ncpus += [g:PBS_GENERIC=12]\nset server max_run = [u:PBS_GENERIC=50]\n";

    #[test]
    fn limits_of_groups_and_projects_become_lines_that_are_read_back() {
        let Draft { sla, comments } =
            draft(&SERVER.replace("chem lab", "chem"), "f").expect("a draft");
        let text = sla.to_toml();
        assert_eq!(
            text,
            "[sla]\n\"/chem\" = { at_most = \"60cpus\" }\n\"/physics\" = { at_most = \"240cpus\" }\n"
        );
        assert_eq!(Sla::parse(&text, "draft").expect("an SLA"), sla);
        assert_eq!(
            comments,
            [
                "g:physics may hold 16 CPUs at once in queue workq",
                "o:PBS_ALL may hold 600 CPUs at once",
                "u:ann may hold 8 CPUs at once",
                "g:PBS_GENERIC may hold 12 CPUs at once",
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text: &str| format!("{:#}", draft(text, "f").expect_err(text));
        assert!(error("Queue Max Tot\n").starts_with("f: no server's attributes"));
        let set = |value: &str| format!("set server max_run_res.ncpus = {value}\n");
        assert_eq!(
            error(&set("[g:a=many]")),
            "f:1: `many` is no number of CPUs: invalid digit found in string"
        );
        assert_eq!(error(&set("[physics]")), "f:1: `[physics` is no limit");
    }
}
