//! `fairmesh status`: the node, its VOs, three facts of each peer, and what is wrong.
//!
//! Exit 0 where all is well, 1 where something is not.

use std::io::Write;

use fairmesh_model::Millis;

use super::peers::peer_table;
use super::{AskArgs, heading, name_or_id};
use crate::control::answer::StatusBody;
use crate::output::{Align, Exit, Table, age};

/// Show the node, its VOs, its peers and what is wrong
#[derive(Debug, Clone, clap::Args)]
pub struct StatusArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Compute the digest of each VO's view as well (takes longer on large trees)
    #[arg(long)]
    pub digests: bool,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked.
pub async fn run(args: &StatusArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let digests = args.digests.then_some("true");
    let parameters = [("digests", digests)];
    let (answer, done) = args
        .ask
        .get::<StatusBody>("/v1/status", &parameters, out)
        .await?;
    let (rests_on, status) = (answer.rests_on, answer.body);
    if !done {
        writeln!(out, "{}", heading(&rests_on))?;
        let node = &status.node;
        writeln!(
            out,
            "{} ({}), fairmesh {}, up {}, {} connections, {} entries, {} records counted",
            crate::control::clean(&node.name),
            node.site,
            node.version,
            age(Millis(node.uptime_ms)),
            node.connections,
            node.entries,
            node.records_counted
        )?;
        vo_table(&status).write(out, &args.ask.output)?;
        writeln!(out)?;
        peer_table(&status.peers).write(out, &args.ask.output)?;
        for notice in &status.notices {
            writeln!(
                out,
                "{}: {} [{}]",
                notice.severity, notice.text, notice.code
            )?;
        }
        if node.unmapped > 0 {
            let count = node.unmapped;
            writeln!(
                out,
                "info: {count} origins map nowhere: `fairmesh usage --unmapped`"
            )?;
        }
    }
    Ok(if status.healthy {
        Exit::Success
    } else {
        Exit::Failure
    })
}

fn vo_table(status: &StatusBody) -> Table {
    let mut table = Table::new(&[
        ("VO", Align::Left),
        ("Mount", Align::Left),
        ("Charter", Align::Right),
        ("Heard", Align::Right),
        ("View", Align::Left),
    ]);
    for vo in &status.vos {
        let digest = vo.view_digest.as_deref().unwrap_or("-");
        table.row([
            name_or_id(vo.name.as_deref(), &vo.vo),
            vo.mount.clone().unwrap_or_else(|| "not mounted".to_owned()),
            vo.charter_version.to_string(),
            format!("{} of {}", vo.sites_heard, vo.sites_total),
            digest.chars().take(16).collect(),
        ]);
    }
    table
}
