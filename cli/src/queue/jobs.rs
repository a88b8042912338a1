//! Jobs from a file of JSON lines.
//!
//! Invariant: a key names one job, and is safe in a file's name; an error names file, line and key.

use std::collections::BTreeMap;

use fairmesh_broker::queue::QueuedJob;
use fairmesh_model::{AccountPath, Millis};
use fairmesh_site::{KEY_BYTES_MAX, is_key};
use serde::Deserialize;

/// A job and the line that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobLine {
    pub(super) job: QueuedJob,
    pub(super) line: String,
}

/// Why a file of jobs was refused. Its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub(super) struct JobsError {
    file: String,
    line: usize,
    problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    key: String,
    #[serde(default = "AccountPath::root")]
    account: AccountPath,
    #[serde(default = "one")]
    cpus: u64,
    #[serde(default)]
    wall_s: u64,
    #[serde(default)]
    disk_mib: u64,
    /// Whatever the submit command wants to know.
    #[serde(default, rename = "run")]
    _run: serde::de::IgnoredAny,
}

fn one() -> u64 {
    1
}

/// Reads jobs in their order, with their lines. Blank lines are passed over.
pub(super) fn parse(text: &str, file: &str) -> Result<Vec<JobLine>, JobsError> {
    let mut seen = BTreeMap::new();
    let mut jobs = Vec::new();
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let error = |problem: String| JobsError {
            file: file.to_owned(),
            line: number,
            problem,
        };
        let mut reader = serde_json::Deserializer::from_str(line);
        let raw: Result<RawJob, _> = serde_path_to_error::deserialize(&mut reader);
        let raw = raw.map_err(|bad| error(format!("`{}`: {}", bad.path(), bad.inner())))?;
        reader.end().map_err(|bad| error(bad.to_string()))?;
        let key = raw.key;
        if !is_key(&key) {
            return Err(error(format!(
                "`key`: `{}` is no key: up to {KEY_BYTES_MAX} letters, digits, `_`, `-` and `.`, the first a letter, a digit or `_`",
                key.escape_debug()
            )));
        }
        if let Some(first) = seen.insert(key.clone(), number) {
            return Err(error(format!(
                "`key`: `{key}` stands in line {first} already"
            )));
        }
        let job = QueuedJob {
            key,
            account: raw.account,
            cpus: raw.cpus,
            wall: Millis::from_secs(raw.wall_s),
            disk_mib: raw.disk_mib,
        };
        jobs.push(JobLine {
            job,
            line: line.to_owned(),
        });
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_line_by_line() {
        let text = "{\"key\": \"a\"}\n\n{\"key\": \"b.1\", \"account\": \"/g\", \"cpus\": 2, \"wall_s\": 3, \"disk_mib\": 4, \"run\": [1]}\n";
        let jobs = parse(text, "j.jsonl").expect("valid");
        let [a, b] = &jobs[..] else {
            panic!("{jobs:?}")
        };
        assert_eq!(
            (a.job.cpus, a.job.account.as_str(), a.line.as_str()),
            (1, "/", "{\"key\": \"a\"}")
        );
        assert_eq!(
            (
                b.job.cpus,
                b.job.account.as_str(),
                b.job.wall,
                b.job.disk_mib
            ),
            (2, "/g", Millis(3_000), 4)
        );
    }

    #[test]
    fn what_is_no_job_is_refused_with_its_line() {
        let rows = [
            ("{}", "j.jsonl:2: `.`: missing field `key`"),
            (
                "{\"key\": \"b\", \"cpu\": 1}",
                "j.jsonl:2: `cpu`: unknown field `cpu`",
            ),
            (
                "{\"key\": \"b\", \"cpus\": \"1\"}",
                "j.jsonl:2: `cpus`: invalid type: string",
            ),
            (
                "{\"key\": \"b\", \"account\": \"g\"}",
                "j.jsonl:2: `account`: account path `g` does not begin",
            ),
            ("{\"key\": \"../b\"}", "j.jsonl:2: `key`: `../b` is no key"),
            ("{\"key\": \"\"}", "j.jsonl:2: `key`: `` is no key"),
            (
                "{\"key\": \"a\"}",
                "j.jsonl:2: `key`: `a` stands in line 1 already",
            ),
            ("{\"key\": \"b\"} x", "j.jsonl:2: trailing characters"),
        ];
        for (line, expected) in rows {
            let text = format!("{{\"key\": \"a\"}}\n{line}\n");
            let error = parse(&text, "j.jsonl").expect_err(line).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
