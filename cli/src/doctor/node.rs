//! What a node's answer to `status` shows: its own notices, and what an answer to a person adds to them.
//!
//! Deliberately not here: what the node finds of itself, its VOs and its peers (`control/health`).

use fairmesh_api::client::Control;
use fairmesh_api::finding::{Code, Finding};
use fairmesh_api::words::name_or_id;
use fairmesh_api::{AccountUsageBody, Answer, NamesakesBody, StatusBody, VoBody, WithoutLineBody};
use fairmesh_model::Severity;
use fairmesh_node::control::namesakes::finding;

use crate::ask::status;

/// The account of usage that no identity rule maps.
const UNMAPPED: &str = "/*/=";

/// What was asked, in words.
pub(super) fn looked_at(status: &StatusBody) -> String {
    let (name, peers) = (&status.node.name, status.peers.len());
    let sites = if peers == 1 { "site" } else { "sites" };
    format!("the node of {name} and what it knows of {peers} other {sites}")
}

/// Everything that the answer shows.
pub(super) fn of(told: &StatusBody) -> Vec<Finding> {
    let mut found = told.notices.clone();
    found.extend(status::unmapped(told));
    let of_levels = told.without_line.iter();
    found.extend(of_levels.filter_map(|level| without_line(level, &told.vos)));
    if told.node.listening.is_empty() {
        let text = "this node listens nowhere and only calls out";
        found.push(Finding::new(Code::NotListening, Severity::Info, text));
    }
    let own = env!("CARGO_PKG_VERSION");
    if told.node.version != own {
        let text = format!(
            "the node runs fairmesh {}, this is {own}",
            told.node.version
        );
        found.push(Finding::new(Code::VersionDiffers, Severity::Warning, &text));
    }
    found
}

/// Usage of accounts without a line where nobody wrote the line for all of them. What no rule maps is no such
/// usage: it has a finding of its own.
fn without_line(level: &WithoutLineBody, vos: &[VoBody]) -> Option<Finding> {
    let is_unmapped = |account: &AccountUsageBody| account.path == UNMAPPED;
    let unmapped = level.largest.iter().filter(|account| is_unmapped(account));
    if level.has_line || level.accounts == unmapped.count() {
        return None;
    }
    // The line belongs to whoever divides the level above.
    let of_vo = vos.iter().find_map(|vo| {
        let below = level.path.strip_prefix(vo.mount.as_deref()?)?;
        below.starts_with('/').then_some((vo, below))
    });
    let line = match of_vo {
        None => format!("Add a line such as `\"{}\" = 10` to [shares]", level.path),
        Some((vo, below)) => format!(
            "Let the share policy of VO {} have a line such as `\"{below}\" = 10` (in a delegated policy without the path that \
             is delegated)",
            name_or_id(vo.name.as_deref(), &vo.vo)
        ),
    };
    let text = format!(
        "{}: they share an entry of weight 0, so they are served last. {line}",
        status::without_line(level)
    );
    Some(Finding::new(Code::WithoutLine, Severity::Warning, &text))
}

/// Accounts that may mix people of one name, as the node finds them. One of an earlier version does not look for them.
pub(crate) async fn namesakes(control: &Control) -> Option<Finding> {
    let asked = control.get::<Answer<NamesakesBody>>("/v1/namesakes", &[]);
    let (answer, _) = asked.await.ok()?;
    finding(&answer.body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairmesh_api::NodeBody;

    fn status() -> StatusBody {
        StatusBody {
            node: NodeBody {
                site: "ab".repeat(32),
                name: "hpc1".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_ms: 1,
                listening: vec!["/ip4/127.0.0.1/tcp/1".to_owned()],
                connections: 0,
                wire_received_bytes: 0,
                wire_sent_bytes: 0,
                entries: 1,
                records_counted: 0,
                unmapped: 0,
            },
            vos: Vec::new(),
            peers: Vec::new(),
            healthy: true,
            notices: Vec::new(),
            without_line: Vec::new(),
            refused: None,
            rejects: Vec::new(),
            hidden: None,
        }
    }

    #[test]
    fn a_healthy_node_has_nothing_to_be_said_of() {
        assert_eq!(of(&status()), []);
    }

    #[test]
    fn each_thing_is_found() {
        let codes = |status: &StatusBody| -> Vec<String> {
            of(status).into_iter().map(|found| found.code).collect()
        };
        let mut strange = status();
        strange.node.version = "0.0.1".to_owned();
        strange.node.unmapped = 2;
        strange.node.listening.clear();
        let level = |path: &str, account: &str, has_line| WithoutLineBody {
            path: path.to_owned(),
            has_line,
            usage_core_ms: "3600000".to_owned(),
            of_level: "12.5".to_owned(),
            accounts: 1,
            largest: vec![AccountUsageBody {
                path: account.to_owned(),
                usage_core_ms: "3600000".to_owned(),
            }],
        };
        strange.without_line = vec![
            level("/*", UNMAPPED, false),
            level("/a/*", "/a/ann", true),
            level("/cms/*", "/cms/hog", false),
        ];
        assert_eq!(
            codes(&strange),
            [
                "unmapped",
                "without-line",
                "not-listening",
                "version-differs"
            ]
        );
        let told = of(&strange).remove(1).text;
        assert!(told.contains("12.50 % of the usage at /cms"), "{told}");
        assert!(told.contains("`\"/cms/*\" = 10`"), "{told}");
    }
}
