//! `fairmesh status`: the node, its VOs, three facts of each peer, and what is wrong.
//!
//! Exit 0 where all is well, 1 where something is not.

use std::io::Write;

use fairmesh_api::finding::{Code, Finding};
use fairmesh_api::words::{age, count, name_or_id, timestamp, until};
use fairmesh_api::{SnapshotBody, StatusBody, VoBody, WithoutLineBody};
use fairmesh_model::Severity;
use fairmesh_model::{Millis, WallTime, clean};
use fairmesh_node::words::number::{core_hours, percent};

use super::peers::{NO_PEERS, peer_summary};
use super::{AskArgs, heading};
use crate::output::{Exit, OutputArgs, Table, or_dash, unbroken};

/// Show the node, its VOs, its peers and what is wrong
#[derive(Debug, Clone, clap::Args)]
pub struct StatusArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Compute the digest of each VO's view as well, with the window that it is of: sites compare by the same
    /// window (takes longer on large trees)
    #[arg(long)]
    pub digests: bool,
}

/// How digests of several sites compare.
const COMPARE: &str = "\
Sites with the same view have the same digest for the same window. If two sites show different windows, they are
at the edge of a window, which each enters by its own clock: compare again later.";

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
        let format = &args.ask.output;
        if !format.parsable && !format.noheader {
            writeln!(out, "{}", heading(&rests_on))?;
        }
        tables(&status, WallTime(rests_on.as_of_ms), format, out)?;
        notices(&status, format, out)?;
    }
    Ok(Exit::of(status.healthy))
}

fn tables(
    status: &StatusBody,
    now: WallTime,
    format: &OutputArgs,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let node = &status.node;
    writeln!(
        out,
        "{} ({}), fairmesh {}, up {}, {}, {} entries in the share tree, {} counted",
        clean(&node.name),
        node.site,
        node.version,
        age(Millis(node.uptime_ms)),
        count(node.connections, "connection"),
        node.entries,
        count(node.records_counted, "record"),
    )?;
    writeln!(out)?;
    vo_table(status, now).write(out, format)?;
    let has_digest = status.vos.iter().any(|vo| vo.view_digest.is_some());
    if has_digest && !format.parsable && !format.noheader {
        writeln!(out, "{COMPARE}")?;
    }
    writeln!(out)?;
    if status.peers.is_empty() && !format.parsable {
        return writeln!(out, "{NO_PEERS}");
    }
    for (index, table) in peer_summary(&status.peers).into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        table.write(out, format)?;
    }
    Ok(())
}

fn notices(status: &StatusBody, format: &OutputArgs, out: &mut dyn Write) -> std::io::Result<()> {
    let unmapped = unmapped(status);
    let told = |level| Finding::new(Code::WithoutLine, Severity::Info, &without_line(level));
    let without_line: Vec<Finding> = status.without_line.iter().map(told).collect();
    let notices = status.notices.iter().chain(&unmapped).chain(&without_line);
    if notices.clone().next().is_some() {
        writeln!(out)?;
    }
    for notice in notices {
        let (severity, code, text) = (&notice.severity, &notice.code, clean(&notice.text));
        match format.parsable {
            true => writeln!(out, "{severity}|{code}|{}", unbroken(&text))?,
            false => writeln!(out, "{severity}: {text} [{code}]")?,
        }
    }
    Ok(())
}

/// That jobs have come which no rule maps.
pub(crate) fn unmapped(status: &StatusBody) -> Option<Finding> {
    let origins = count(status.node.unmapped, "origin");
    let text = format!("no identity rule maps {origins}: see `fairmesh usage --unmapped`");
    (status.node.unmapped > 0).then(|| Finding::new(Code::Unmapped, Severity::Info, &text))
}

/// Whose usage has no line at a level, and how much of the level's that is.
pub(crate) fn without_line(level: &WithoutLineBody) -> String {
    let above = level.path.trim_end_matches('*').trim_end_matches('/');
    let above = if above.is_empty() { "/" } else { above };
    let named = level.largest.iter().map(|account| {
        let hours = core_hours(&account.usage_core_ms);
        format!("{} {hours}", clean(&account.path))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = level.accounts.saturating_sub(level.largest.len());
    let more = match (named.is_empty(), more) {
        (_, 0) => named,
        (true, more) => count(more as u64, "account"),
        (false, more) => format!("{named}, and {more} more"),
    };
    format!(
        "{} % of the usage at {} ({} core-hours) is of accounts without a line ({more})",
        percent(&level.of_level),
        clean(above),
        core_hours(&level.usage_core_ms),
    )
}

/// How old a snapshot is, and how it compares with what is here.
fn snapshot_cell(of: &SnapshotBody, now: WallTime) -> String {
    let signed = age(now.since(WallTime(of.issued_ms)));
    let compared = match (of.missing, of.newer) {
        (0, 0) => String::new(),
        (0, newer) => format!(", {newer} newer here"),
        (missing, _) => format!(", {missing} missing"),
    };
    format!("{} of {signed} ago{compared}", of.version)
}

/// The beginning of a digest, and when the window begins that it is of.
fn view_cell(vo: &VoBody) -> String {
    let Some(digest) = &vo.view_digest else {
        return "-".to_owned();
    };
    let digest: String = digest.chars().take(16).collect();
    let window = vo.view_window_ms.map(|start| timestamp(WallTime(start)));
    window.map_or(digest.clone(), |start| format!("{digest} of {start}"))
}

fn vo_table(status: &StatusBody, now: WallTime) -> Table {
    let mut table = Table::new("VO|Mount|>Charter|>Known|Expires|View|Snapshot");
    for vo in &status.vos {
        table.row([
            name_or_id(vo.name.as_deref(), &vo.vo),
            match &vo.mount {
                Some(mount) => mount.clone(),
                None if vo.charter_version == 0 => "waits for the charter".to_owned(),
                None => "not mounted".to_owned(),
            },
            vo.charter_version.to_string(),
            format!("{} of {}", vo.sites_known, vo.sites_total),
            or_dash(vo.expires_ms.map(|at| until(WallTime(at), now))),
            view_cell(vo),
            or_dash(vo.snapshot.as_ref().map(|of| snapshot_cell(of, now))),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VO as a node shows it.
    fn vo(digest: Option<&str>, window_ms: Option<u64>) -> VoBody {
        let body = serde_json::json!({
            "vo": "ab", "name": "cms", "mount": "/cms", "charter_version": 1, "sites_known": 2, "sites_total": 2,
            "heads": [], "view_digest": digest, "view_window_ms": window_ms, "warnings": [],
        });
        serde_json::from_value(body).expect("a VO")
    }

    #[test]
    fn a_digest_is_shown_with_the_window_that_it_is_of() {
        let digest = "21e141dcbfba9ad9".repeat(4);
        let hours = [17, 18].map(|hour| vo(Some(&digest), Some(hour * 3_600_000)));
        let shown = hours.each_ref().map(view_cell);
        let expected =
            ["17", "18"].map(|hour| format!("21e141dcbfba9ad9 of 1970-01-01T{hour}:00:00Z"));
        assert_eq!(shown, expected);
        // A node of an older release does not say it, and without --digests there is nothing to say.
        assert_eq!(view_cell(&vo(Some(&digest), None)), "21e141dcbfba9ad9");
        assert_eq!(view_cell(&vo(None, None)), "-");
    }
}
