//! How far the jobs of a queue have come, from its journal.

use std::io::Write;

use fairmesh_broker::Selector;
use fairmesh_broker::queue::{Limits, Manager, Phase};
use fairmesh_model::clean;
use serde::Serialize;

use super::{StatusArgs, folder, journal};
use crate::output::{Exit, Table, write_json};

/// Name and version of the JSON.
const SCHEMA: &str = "fairmesh.queue-status/1";

#[derive(Serialize)]
struct Answer {
    vo: String,
    jobs: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    key: String,
    account: String,
    cpus: u64,
    state: &'static str,
    attempt: u32,
    site: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(super) fn status(args: &StatusArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = folder(&args.jobs).join("journal");
    let Some(found) = journal::look(&path)? else {
        anyhow::bail!(
            "{}: there is no queue of these jobs: `fairmesh queue run` makes one",
            path.display()
        );
    };
    let (manager, _) = Manager::restore(Limits::default(), Selector::default(), found.records);
    let rows = manager.entries().map(|entry| {
        let (state, why) = match &entry.phase {
            Phase::Queued => ("waiting", None),
            Phase::Assigned => ("assigned", None),
            Phase::Submitted(_) => ("submitted", None),
            Phase::Running => ("running", None),
            Phase::Withdrawing => ("withdrawing", None),
            Phase::Ended => ("ended", None),
            Phase::GivenUp(why) => ("given-up", Some(why.clone())),
        };
        Row {
            key: entry.job.key.clone(),
            account: entry.job.account.to_string(),
            cpus: entry.job.cpus,
            state,
            attempt: entry.attempt,
            site: entry.site.clone(),
            why,
        }
    });
    let answer = Answer {
        vo: found.vo,
        jobs: rows.collect(),
    };
    if args.output.json {
        write_json(out, SCHEMA, &answer)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new("Job|Account|>CPUs|State|>Attempt|Site|Why");
    for row in answer.jobs {
        table.row([
            row.key,
            row.account,
            row.cpus.to_string(),
            row.state.to_owned(),
            row.attempt.to_string(),
            clean(&row.site),
            row.why.as_deref().map(clean).unwrap_or_default(),
        ]);
    }
    table.write(out, &args.output)?;
    Ok(Exit::Success)
}
