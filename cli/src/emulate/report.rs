//! An emulated tree as a table, as `-P` and as JSON.
//!
//! Invariant: JSON and `-P` carry every digit; only the table for people is cut, at
//! [`TABLE_DECIMALS`] decimals. Deliberately not here: computing.

use std::io::Write;

use fairmesh_model::{AccountPath, clean};

use super::decimal::cut;
use super::{EmulateArgs, Emulated};
use crate::output::{Table, write_json};

/// Name and version of the JSON.
pub(super) const SCHEMA: &str = "fairmesh.emulate/1";

const TABLE_DECIMALS: usize = 4;

pub(super) fn write(
    emulated: &Emulated,
    args: &EmulateArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.output.json {
        return write_json(out, SCHEMA, emulated);
    }
    if args.jobs.is_some() {
        return jobs(emulated, args, out);
    }
    let mut table = Table::new("Entry|>Target%|>Actual%|>Deviation%|>Priority|>Rank");
    let exact = args.output.parsable;
    let number = |text: &String| {
        if exact {
            text.clone()
        } else {
            cut(text, TABLE_DECIMALS)
        }
    };
    for entry in &emulated.entries {
        let deviation: Vec<String> = entry.deviation.iter().map(number).collect();
        table.row([
            if exact {
                entry.path.to_string()
            } else {
                indented(&entry.path)
            },
            number(&entry.target),
            number(&entry.actual),
            deviation.join(if exact { "," } else { "  " }),
            number(&entry.priority),
            entry.rank.to_string(),
        ]);
    }
    Ok(table.write(out, &args.output)?)
}

fn jobs(emulated: &Emulated, args: &EmulateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new("Job|Entry|>Importance|>Priority|>Rank");
    for job in &emulated.jobs {
        table.row([
            clean(&job.job),
            job.path.to_string(),
            job.importance.get().to_string(),
            job.priority.clone(),
            job.rank.to_string(),
        ]);
    }
    Ok(table.write(out, &args.output)?)
}

/// The path in full, shifted by its depth: it can be copied, and reads as a tree.
fn indented(path: &AccountPath) -> String {
    let depth = path.depth().saturating_sub(1);
    format!("{:indent$}{path}", "", indent = 2 * depth)
}
