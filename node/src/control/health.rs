//! What an operator should look at, as data: codes that do not change, causes before consequences.
//!
//! Invariant: a notice that follows from another one is left out: without any connection, no peer is
//! called unreachable one by one; an unreachable peer is not called stale as well.

use std::collections::BTreeSet;

use fairmesh_model::Millis;
use fairmesh_site::{Severity, Site, Timing};

use super::answer::{NoticeBody, PeerBody, VoBody};
use super::text::clean;
use crate::output::age;

/// The code of what a VO's documents lack.
const POLICY_WARNING: &str = "policy-warning";

/// What the site itself has to say: its own notices, and what could not be placed in its tree.
pub(super) fn of_site(site: &Site) -> Vec<NoticeBody> {
    // What a policy lacks is asked of the VO: a notice tells what it lacked once.
    let own = site
        .notices()
        .filter(|told| told.code() != POLICY_WARNING)
        .map(|told| notice(told.code(), told.severity(), &told.to_string()));
    let tree = site.compiled().warnings.iter();
    own.chain(tree.map(|told| notice("tree-warning", Severity::Warning, &told.to_string())))
        .collect()
}

/// What follows from the state of VOs and peers.
pub(super) fn of_mesh(vos: &[VoBody], peers: &[PeerBody], timing: &Timing) -> Vec<NoticeBody> {
    let mut notices = Vec::new();
    for vo in vos {
        let name = vo
            .name
            .clone()
            .unwrap_or_else(|| vo.vo.chars().take(8).collect());
        for warning in &vo.warnings {
            let text = format!("VO {name}: {warning}");
            notices.push(notice(POLICY_WARNING, Severity::Warning, &text));
        }
    }
    if !peers.is_empty() && peers.iter().all(|peer| !peer.reachable) {
        let why = peers.iter().find_map(|peer| peer.dial_failure.as_deref());
        let text = format!(
            "no other site is reachable (of {}), and this one counts alone: {}",
            peers.len(),
            why.unwrap_or("none was dialled yet")
        );
        notices.push(notice("alone", Severity::Error, &text));
        return notices;
    }
    for peer in peers {
        notices.extend(of_peer(peer, timing));
    }
    notices
}

fn of_peer(peer: &PeerBody, timing: &Timing) -> Option<NoticeBody> {
    let name = peer
        .name
        .clone()
        .unwrap_or_else(|| peer.site.chars().take(8).collect());
    if peer.barred {
        let why = peer.over_budget.as_deref().unwrap_or("it sends too much");
        let text = format!("{name} is kept out: {why}");
        return Some(notice("peer-over-budget", Severity::Warning, &text));
    }
    if !peer.reachable {
        let why = peer.dial_failure.as_deref().unwrap_or("not connected");
        let text = format!("{name} is not reachable: {why}");
        return Some(notice("peer-unreachable", Severity::Warning, &text));
    }
    let data_age = Millis(peer.data_age_ms?);
    (data_age > timing.silence).then(|| {
        let text = format!(
            "{name} is connected, but its data are {} old",
            age(data_age)
        );
        notice("peer-silent", Severity::Warning, &text)
    })
}

/// The worst first, each once; and whether there is nothing to worry about.
pub(super) fn sorted(notices: Vec<NoticeBody>) -> (Vec<NoticeBody>, bool) {
    let mut seen = BTreeSet::new();
    let mut notices: Vec<_> = notices
        .into_iter()
        .filter(|notice| seen.insert((notice.code.clone(), notice.text.clone())))
        .collect();
    let weight = |notice: &NoticeBody| match notice.severity.as_str() {
        "error" => 0,
        "warning" => 1,
        _ => 2,
    };
    notices.sort_by_key(weight);
    let healthy = notices.iter().all(|notice| notice.severity == "info");
    (notices, healthy)
}

fn notice(code: &str, severity: Severity, text: &str) -> NoticeBody {
    let severity = match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    NoticeBody {
        code: code.to_owned(),
        severity: severity.to_owned(),
        text: clean(text),
    }
}
