//! What an operator should look at, as data: codes that do not change, causes before consequences.
//!
//! Invariant: a notice that follows from another one is left out: without any connection, no peer is
//! called unreachable one by one; an unreachable peer is not called stale as well.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{Millis, WallTime};
use fairmesh_schedulers::report::LoopsReport;
use fairmesh_site::{Severity, Site, Timing};

use super::answer::{PeerBody, VoBody};
use crate::driver::Disk;
use crate::finding::{Code, Finding};
use crate::output::{self, age, timestamp, until};
use crate::refused::Waiting;

/// From when on before its end a document's expiry is told.
const EXPIRY_NAMED: Millis = Millis::from_secs(30 * 86_400);

/// From when on it is a warning: several people may have to sign on several machines.
const EXPIRY_WARNED: Millis = Millis::from_secs(7 * 86_400);

/// From when on a disk that fills is a warning.
const DAYS_LEFT_WARNED: u64 = 7;

/// What the site itself has to say: its own notices, and what could not be placed in its tree.
pub(super) fn of_site(site: &Site, names: &BTreeMap<String, String>) -> Vec<Finding> {
    // What a policy lacks is asked of the VO: a notice tells what it lacked once.
    let own = site
        .notices()
        .map(|told| (Code::of(told), told))
        .filter(|(code, _)| ![Code::PolicyWarning, Code::PolicySnapshot].contains(code))
        .map(|(code, told)| Finding::new(code, told.severity(), &told.to_string()));
    let tree = site.compiled().warnings.iter();
    let mut notices: Vec<Finding> = own
        .chain(
            tree.map(|told| Finding::new(Code::TreeWarning, Severity::Warning, &told.to_string())),
        )
        .collect();
    for told in &mut notices {
        told.text = named(&told.text, names);
    }
    notices
}

/// A text with the names of sites and VOs before the beginnings of their ids, by which notices call them: `names`
/// by those.
fn named(text: &str, names: &BTreeMap<String, String>) -> String {
    let word = |word: &str| {
        let short = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = names.get(short).filter(|_| !word.starts_with('('));
        name.map_or_else(
            || word.to_owned(),
            |name| word.replace(short, &format!("{name} ({short})")),
        )
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// What follows from the state of VOs and peers.
pub(super) fn of_mesh(
    vos: &[VoBody],
    peers: &[PeerBody],
    timing: &Timing,
    now: WallTime,
) -> Vec<Finding> {
    let mut notices = Vec::new();
    for vo in vos {
        let name = vo
            .name
            .clone()
            .unwrap_or_else(|| vo.vo.chars().take(8).collect());
        let of_policy = vo.warnings.iter().map(|told| (Code::PolicyWarning, told));
        let of_snapshot = vo.snapshot_warnings.iter();
        let of_snapshot = of_snapshot.map(|told| (Code::PolicySnapshot, told));
        for (code, warning) in of_policy.chain(of_snapshot) {
            let text = format!("VO {name}: {warning}");
            notices.push(Finding::new(code, Severity::Warning, &text));
        }
        notices.extend(expiring(vo, &name, now));
    }
    notices.extend(peers.iter().filter_map(of_machines));
    if !peers.is_empty() && peers.iter().all(|peer| !peer.reachable) {
        let why = peers.iter().find_map(|peer| peer.dial_failure.as_deref());
        let text = format!(
            "no other site is reachable (of {}), and this one counts alone: {}",
            peers.len(),
            why.unwrap_or("none was dialled yet")
        );
        notices.push(Finding::new(Code::Alone, Severity::Error, &text));
        return notices;
    }
    for peer in peers {
        notices.extend(of_peer(peer, timing));
    }
    notices
}

/// That a document will expire soon. One that has expired is among the VO's warnings.
fn expiring(vo: &VoBody, name: &str, now: WallTime) -> Option<Finding> {
    let (at, which) = (WallTime(vo.expires_ms?), vo.expires_first.as_deref()?);
    let left = at.since(now);
    if at <= now || left > EXPIRY_NAMED {
        return None;
    }
    let severity = match left > EXPIRY_WARNED {
        true => Severity::Info,
        false => Severity::Warning,
    };
    let text = format!(
        "VO {name}: {which} expires {}: who signed it should renew it",
        until(at, now)
    );
    Some(Finding::new(Code::PolicyExpires, severity, &text))
}

fn name_of(peer: &PeerBody) -> String {
    let short = || peer.site.chars().take(8).collect();
    peer.name.clone().unwrap_or_else(short)
}

/// That two machines run with a peer's key.
fn of_machines(peer: &PeerBody) -> Option<Finding> {
    let [one, other] = &peer.machines[..] else {
        return None;
    };
    let text = format!(
        "two machines run with the key of {}, at {one} and at {other}: each is let in for its turn, and what both \
         count adds up",
        name_of(peer)
    );
    Some(Finding::new(Code::SiteTwice, Severity::Warning, &text))
}

fn of_peer(peer: &PeerBody, timing: &Timing) -> Option<Finding> {
    let name = name_of(peer);
    if peer.barred {
        let why = peer.over_budget.as_deref().unwrap_or("it sends too much");
        let text = format!("{name} is kept out: {why}");
        return Some(Finding::new(Code::PeerOverBudget, Severity::Warning, &text));
    }
    if !peer.reachable {
        let why = peer.dial_failure.as_deref().unwrap_or("not connected");
        let text = format!("{name} is not reachable: {why}");
        return Some(Finding::new(
            Code::PeerUnreachable,
            Severity::Warning,
            &text,
        ));
    }
    let data_age = Millis(peer.data_age_ms?);
    (data_age > timing.silence).then(|| {
        let text = format!(
            "{name} is connected, but its data are {} old",
            age(data_age)
        );
        Finding::new(Code::PeerSilent, Severity::Warning, &text)
    })
}

/// That the configuration on disk is not the one in force.
pub(super) fn of_reload(why: &str) -> Finding {
    let text = format!(
        "the configuration was read again and rejected, so the one before it stays in force: {why}"
    );
    Finding::new(Code::ReloadRejected, Severity::Warning, &text)
}

/// That jobs are not counted which somebody should make countable.
pub(super) fn of_refused(jobs: &Waiting) -> Finding {
    let Waiting {
        count,
        since,
        reason,
    } = jobs;
    let (jobs, since) = (output::count(*count, "job"), timestamp(*since));
    let text = format!("the node refused {jobs} since {since}; main reason: {reason}");
    Finding::new(Code::RecordsRefused, Severity::Warning, &text)
}

/// That lines of a file wait which somebody should correct.
pub(super) fn of_rejects((file, lines): (&String, &Waiting)) -> Finding {
    let Waiting {
        count,
        since,
        reason,
    } = lines;
    let (rejects, since) = (output::count(*count, "reject"), timestamp(*since));
    let wait = if *count == 1 { "waits" } else { "wait" };
    let text = format!("{rejects} {wait} in {file} since {since}; main reason: {reason}");
    Finding::new(Code::RejectsWait, Severity::Warning, &text)
}

/// That a log of a batch system was gone before it was read to its end.
pub(super) fn of_loops(
    loops: &BTreeMap<&'static str, LoopsReport>,
) -> impl Iterator<Item = Finding> {
    let lost = loops.iter().filter_map(|(system, heard)| {
        let lost = heard.feed?.lost;
        (lost > 0).then_some((system, lost))
    });
    lost.map(|(system, lost)| {
        let logs = output::count(lost, "log");
        let text = format!(
            "{logs} of {system} disappeared before the end was read: records may be missing"
        );
        Finding::new(Code::LogLost, Severity::Error, &text)
    })
}

/// What is wrong with the disk of the data folder.
pub(super) fn of_disk(disk: &Disk) -> impl Iterator<Item = Finding> {
    let damaged = (disk.damaged_reads > 0).then(|| {
        let text = format!(
            "damaged rows of the store were met {}: jobs whose marks they may have are not counted",
            output::count(disk.damaged_reads, "time")
        );
        Finding::new(Code::BadRow, Severity::Error, &text)
    });
    of_room(disk).into_iter().chain(damaged)
}

/// What the disk lacks, or will.
fn of_room(disk: &Disk) -> Option<Finding> {
    let refusal = disk.refusal.as_deref();
    let told = |code, text: &str| Some(Finding::new(code, Severity::Error, text));
    match (
        refusal,
        disk.days_left.filter(|days| *days < DAYS_LEFT_WARNED),
    ) {
        (Some(why), _) if disk.is_full => told(
            Code::DiskFull,
            &format!(
                "{why}: reports are refused, priorities are as of then, and it goes on when there is room"
            ),
        ),
        (Some(why), _) => told(Code::DiskLow, why),
        (None, Some(days)) => {
            let text = format!(
                "as the disk of the data folder has filled in the last day it is full in {}",
                output::count(days, "day")
            );
            Some(Finding::new(Code::DiskFills, Severity::Warning, &text))
        }
        (None, None) => None,
    }
}

/// The worst first, each once; and whether there is nothing to worry about.
pub(super) fn sorted(notices: Vec<Finding>) -> (Vec<Finding>, bool) {
    let mut seen = BTreeSet::new();
    let mut notices: Vec<_> = notices
        .into_iter()
        .filter(|notice| seen.insert((notice.code.clone(), notice.text.clone())))
        .collect();
    notices.sort_by_key(Finding::weight);
    let healthy = !notices.iter().any(Finding::needs_somebody);
    (notices, healthy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_call_sites_and_vos_by_name() {
        let names = [("0123abcd", "hpc2"), ("89abcdef", "physics")];
        let names = names
            .map(|(id, name)| (id.to_owned(), name.to_owned()))
            .into();
        let text = "VO 89abcdef: refused from 0123abcd: it is 0123abcde";
        let told = "VO physics (89abcdef): refused from hpc2 (0123abcd): it is 0123abcde";
        assert_eq!(named(text, &names), told);
        let founded = "takes part in VO physics (89abcdef)";
        assert_eq!(named(founded, &names), founded, "it has its name already");
    }

    #[test]
    fn a_disk_that_is_full_and_has_damaged_rows_is_told_of_both() {
        assert_eq!(of_disk(&Disk::default()).count(), 0);
        let disk = Disk {
            damaged_reads: 3,
            refusal: Some("no space is left".to_owned()),
            is_full: true,
            ..Disk::default()
        };
        let codes: Vec<String> = of_disk(&disk).map(|found| found.code).collect();
        assert_eq!(codes, ["disk-full", "bad-row"]);
    }

    #[test]
    fn a_document_that_will_expire_is_told_in_days_and_warned_of_in_the_last_week() {
        let day = |days: u64| WallTime(days * 86_400_000);
        let vo = VoBody {
            vo: "ab".repeat(32),
            name: None,
            mount: None,
            charter_version: 1,
            sites_known: 1,
            sites_total: 1,
            heads: Vec::new(),
            view_digest: None,
            view_window_ms: None,
            expires_ms: Some(day(100).0),
            expires_first: Some("charter 1".to_owned()),
            warnings: Vec::new(),
            snapshot: None,
            snapshot_warnings: Vec::new(),
            cpus: None,
            past_known: true,
            recovered_until_ms: None,
        };
        let told = |now| of_mesh(std::slice::from_ref(&vo), &[], &Timing::default(), now);
        assert_eq!(told(day(69)), []);
        assert_eq!(
            told(day(100)),
            [],
            "that it has expired is the policy's own warning"
        );
        let soon = told(day(80)).remove(0);
        assert_eq!(
            (soon.code.as_str(), soon.severity.as_str()),
            ("policy-expires", "info")
        );
        assert!(
            soon.text.contains("charter 1 expires in 20 days"),
            "{}",
            soon.text
        );
        assert_eq!(told(day(94))[0].severity, "warning");
    }
}
