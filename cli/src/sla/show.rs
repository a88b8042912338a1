//! What SLAs say, entry by entry.

use std::io::Write;
use std::path::Path;

use fairmesh_broker::Sla;
use fairmesh_broker::sla::{Grant, Resource};
use serde::Serialize;

use super::{ShowArgs, percent};
use crate::emulate::read_as;
use crate::output::{Exit, Table, write_json};

/// Name and version of the JSON.
const SCHEMA: &str = "fairmesh.sla/1";

#[derive(Serialize)]
struct Answer {
    total: u64,
    entries: Vec<Row>,
    /// Parents of entries that are promised more than there is, and what that comes to in percent.
    oversubscribed: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Row {
    path: String,
    cpu: String,
    disk: String,
    net: String,
    extensible: bool,
    /// Percent of the total, where siblings that were promised too much have been scaled down.
    entitled: String,
    /// CPUs that may never be passed; absent where nothing bounds them but what is above.
    limit: Option<u64>,
}

pub(super) fn show(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let file = args.sla.as_deref().unwrap_or(Path::new(""));
    let sla = read_as(file, Sla::parse)?;
    let limits = sla.limits(args.total);
    let entitled = sla.entitlements(args.total);
    let text = |grant: Option<Grant>, resource| {
        grant
            .map(|grant| grant.to_text(resource))
            .unwrap_or_default()
    };
    let rows = sla.entries.iter().map(|(path, entry)| Row {
        path: path.to_string(),
        cpu: text(entry.cpu, Resource::Cpu),
        disk: text(entry.disk, Resource::Disk),
        net: text(entry.net, Resource::Net),
        extensible: entry.extensible,
        entitled: percent(entitled[path]),
        limit: limits.get(path).copied(),
    });
    let over = sla.oversubscribed(args.total).into_iter();
    let answer = Answer {
        total: args.total,
        entries: rows.collect(),
        oversubscribed: over
            .map(|of| (of.above.to_string(), percent(of.sum)))
            .collect(),
    };
    if args.output.json {
        write_json(out, SCHEMA, &answer)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new("Entry|CPU|Disk|Net|Extensible|>Entitled%|>Limit CPUs");
    for row in answer.entries {
        table.row([
            row.path,
            row.cpu,
            row.disk,
            row.net,
            if row.extensible { "yes" } else { "no" }.to_owned(),
            row.entitled,
            row.limit.map(|cpus| cpus.to_string()).unwrap_or_default(),
        ]);
    }
    table.write(out, &args.output)?;
    if !args.output.parsable {
        for (above, sum) in answer.oversubscribed {
            writeln!(
                out,
                "\nBelow {above} {sum} % are promised: each counts as its share of that; limits stay."
            )?;
        }
    }
    Ok(Exit::Success)
}
