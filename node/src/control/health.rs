//! What an operator should look at, as data: codes that do not change, causes before consequences.
//!
//! Invariant: a notice that follows from another one is left out: where no charter lists this site, or no connection is
//! open, no peer is reported. A peer has one state, so it has one notice; many peers of one state share one.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_api::finding::{Code, Finding};
use fairmesh_api::words::{self, age, timestamp, until};
use fairmesh_api::{PeerBody, PeerState, RejectsBody, VoBody, WaitingBody};
use fairmesh_model::{Millis, Severity, WallTime};
use fairmesh_site::Site;

use super::notice::finding_code;
use crate::driver::Disk;
use crate::log::LogLosses;

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
        .map(|told| (finding_code(told), told))
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
pub(super) fn of_mesh(vos: &[VoBody], peers: &[PeerBody], now: WallTime) -> Vec<Finding> {
    let mut notices = Vec::new();
    for vo in vos {
        let name = vo
            .name
            .clone()
            .unwrap_or_else(|| vo.vo.chars().take(8).collect());
        notices.extend(of_charter(vo, &name, peers));
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
    // Where no charter lists this site, nothing is wrong with the ways to the others.
    if !vos.is_empty() && vos.iter().all(|vo| vo.cpus.is_none()) {
        return notices;
    }
    let members = peers
        .iter()
        .filter(|peer| peer.state != PeerState::NoMember);
    let members: Vec<&PeerBody> = members.collect();
    if is_alone(&members) {
        let whys = members.iter().rev();
        let whys = whys.filter_map(|peer| peer.dial_failure.as_deref());
        // A name without an address shows more than an address that does not answer.
        let why = whys.max_by_key(|why| why.contains("DNS "));
        let text = format!(
            "no other site is reachable (of {}), and this one counts alone: {}",
            members.len(),
            why.unwrap_or("the connections have ended, and no call has ended yet")
        );
        notices.push(Finding::new(Code::Alone, Severity::Error, &text));
        return notices;
    }
    notices.extend(of_peers(peers));
    notices
}

/// Whether nobody can be reached: calls have failed, and none is pending. Where connections end before any exchange does,
/// that is the reason, and the state of the peer shows it.
fn is_alone(members: &[&PeerBody]) -> bool {
    let is_cut_off = |peer: &PeerBody| {
        let is_called = peer.state == PeerState::Exchanging && !peer.addresses.is_empty();
        !peer.reachable && !is_called && peer.state != PeerState::NeverExchanged
    };
    members.iter().all(|peer| is_cut_off(peer)) && members.iter().any(|peer| !peer.state.is_well())
}

/// That a VO's charter is not here, or does not list this site.
fn of_charter(vo: &VoBody, name: &str, peers: &[PeerBody]) -> Option<Finding> {
    if vo.charter_version == 0 {
        let connected = peers.iter().filter(|peer| peer.reachable).count();
        let failure = peers.iter().find_map(|peer| {
            let why = peer.dial_failure.as_deref().filter(|_| !peer.reachable)?;
            Some(format!("; {}: {why}", shown(peer)))
        });
        let text = format!(
            "VO {name}: its charter has not been received, so nothing counts; {connected} of {} known peers connected{}",
            peers.len(),
            failure.unwrap_or_default()
        );
        return Some(Finding::new(Code::CharterMissing, Severity::Error, &text));
    }
    let version = vo.charter_version;
    let text = format!(
        "charter {version} of VO {name} does not list this site: no other site counts what it uses"
    );
    let is_foreign = vo.cpus.is_none();
    is_foreign.then(|| Finding::new(Code::NotAMember, Severity::Error, &text))
}

/// Peers of one state that are reported one by one; more are reported together.
const NAMED_MAX: usize = 3;

/// What the states of peers show, in few lines however many peers there are.
fn of_peers(peers: &[PeerBody]) -> Vec<Finding> {
    let mut by_code: BTreeMap<(&'static str, PeerState), Vec<&PeerBody>> = BTreeMap::new();
    for peer in peers {
        if let Some((code, _)) = code_of(peer) {
            let of_code = by_code.entry((code.name(), peer.state)).or_default();
            of_code.push(peer);
        }
    }
    let mut found = Vec::new();
    for ((_, state), peers) in by_code {
        let (code, severity) = code_of(peers[0]).expect("it has one");
        let named = peers.iter().take(NAMED_MAX);
        if peers.len() <= NAMED_MAX {
            found.extend(named.map(|peer| Finding::new(code, severity, &of_peer(peer))));
            continue;
        }
        let names = named.map(|peer| shown(peer)).collect::<Vec<_>>().join(", ");
        let text = format!(
            "{} sites are {}: {names} and {} more, listed by `fairmesh peers`",
            peers.len(),
            state.predicate(),
            peers.len() - NAMED_MAX
        );
        found.push(Finding::new(code, severity, &text));
    }
    found
}

/// As its state has it, unless nobody has its address.
fn code_of(peer: &PeerBody) -> Option<(Code, Severity)> {
    match peer.state {
        PeerState::Unreachable if peer.addresses.is_empty() && peer.dials_failed == 0 => {
            Some((Code::PeerWithoutAddress, Severity::Warning))
        }
        state => state.code(),
    }
}

fn shown(peer: &PeerBody) -> String {
    let short = || peer.site.chars().take(8).collect();
    peer.name.clone().unwrap_or_else(short)
}

/// What its state is, in words.
fn of_peer(peer: &PeerBody) -> String {
    let name = shown(peer);
    let failure = peer.dial_failure.as_deref().unwrap_or("not connected");
    let data_age = peer.data_age_ms.map(|ms| age(Millis(ms)));
    let data_age = data_age.unwrap_or_else(|| "unknown".to_owned());
    match peer.state {
        PeerState::InSync | PeerState::Exchanging => format!("{name} is connected"),
        PeerState::ThroughOthers => {
            format!(
                "{name} is not connected; its data arrive through other sites (age: {data_age})"
            )
        }
        PeerState::NoMember => format!("{name} is in network.peers, and no charter lists it"),
        PeerState::NeverExchanged => {
            format!(
                "{name} accepts connections, and no exchange has ended: large packets may be lost on the way (MTU)"
            )
        }
        PeerState::Silent => {
            format!("{name} is connected, but exchanges fail or its data are old (age: {data_age})")
        }
        PeerState::OverBudget => {
            let why = peer.over_budget.as_deref().unwrap_or("it sends too much");
            format!("{name} is kept out: {why}")
        }
        PeerState::Refused | PeerState::OtherKey => format!("{name} is not reachable: {failure}"),
        PeerState::Unreachable if peer.addresses.is_empty() && peer.dials_failed == 0 => {
            format!("{name} is not connected, and no charter or configuration has its address")
        }
        PeerState::Unreachable => format!("{name} is not reachable: {failure}"),
    }
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

/// That two machines run with a peer's key.
fn of_machines(peer: &PeerBody) -> Option<Finding> {
    let [one, other] = &peer.machines[..] else {
        return None;
    };
    let text = format!(
        "two machines run with the key of {}, at {one} and at {other}: each is let in for its turn, and what both \
         count adds up",
        shown(peer)
    );
    Some(Finding::new(Code::SiteTwice, Severity::Warning, &text))
}

/// That the configuration on disk is not the one in force.
pub(super) fn of_reload(why: &str) -> Finding {
    let text = format!(
        "the configuration was read again and rejected, so the one before it stays in force: {why}"
    );
    Finding::new(Code::ReloadRejected, Severity::Warning, &text)
}

/// That jobs are not counted which somebody should make countable.
pub(super) fn of_refused(jobs: &WaitingBody) -> Finding {
    let (since, reason) = (timestamp(WallTime(jobs.since_ms)), &jobs.reason);
    let jobs = words::count(jobs.count, "job");
    let text = format!("the node refused {jobs} since {since}; main reason: {reason}");
    Finding::new(Code::RecordsRefused, Severity::Warning, &text)
}

/// That lines of a file wait which somebody should correct.
pub(super) fn of_rejects(rejects: &RejectsBody) -> Finding {
    let RejectsBody { file, lines } = rejects;
    let (since, reason) = (timestamp(WallTime(lines.since_ms)), &lines.reason);
    let rejects = words::count(lines.count, "reject");
    let wait = if lines.count == 1 { "waits" } else { "wait" };
    let text = format!("{rejects} {wait} in {file} since {since}; main reason: {reason}");
    Finding::new(Code::RejectsWait, Severity::Warning, &text)
}

/// That the node's own log cannot be written.
pub(super) fn of_log(losses: &LogLosses) -> Option<Finding> {
    let lines = losses.unreported;
    let why = losses.why.as_deref().unwrap_or("its reader does not read");
    let text = format!("the node's log cannot be written: {why}; lines lost: {lines}");
    (lines > 0).then(|| Finding::new(Code::LogUnwritten, Severity::Warning, &text))
}

/// What is wrong with the disk of the data folder.
pub(super) fn of_disk(disk: &Disk) -> impl Iterator<Item = Finding> {
    let damaged = (disk.damaged_reads > 0).then(|| {
        let text = format!(
            "damaged rows of the store were met {}: jobs whose marks they may have are not counted",
            words::count(disk.damaged_reads, "time")
        );
        Finding::new(Code::BadRow, Severity::Error, &text)
    });
    let set_aside = disk.set_aside.iter();
    let set_aside = set_aside.map(|what| Finding::new(Code::StoreDamaged, Severity::Error, what));
    of_room(disk).into_iter().chain(damaged).chain(set_aside)
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
                words::count(days, "day")
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
            cpus: Some(8),
            past_known: true,
            recovered_until_ms: None,
        };
        let told = |now| of_mesh(std::slice::from_ref(&vo), &[], now);
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
