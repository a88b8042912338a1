//! Charters and policies for the tests of this crate.
//!
//! Invariant: everything is made from small numbers, so a failing case reads the same everywhere.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Distance, HistoryRule, Role, ShareEntry, SharePolicy,
    Signed, SigningKey, Snapshot, UsageMode, VoId, WallTime, Weight, WindowLength,
};

use crate::vo_policies::VoPolicies;

pub(crate) const ISSUED: WallTime = WallTime(1_000_000);
pub(crate) const EXPIRES: WallTime = WallTime(9_000_000);
pub(crate) const NOW: WallTime = WallTime(2_000_000);

pub(crate) fn key(seed: u8) -> SigningKey {
    SigningKey::from_secret(&[seed; 32])
}

pub(crate) fn role(seeds: &[u8], threshold: u32) -> Role {
    Role {
        keys: seeds.iter().map(|seed| key(*seed).key_id()).collect(),
        threshold,
    }
}

pub(crate) fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a valid path")
}

pub(crate) const fn percent(percent: u32) -> Weight {
    Weight::whole(percent)
}

/// Charter 1 with one authority key and one policy key.
pub(crate) fn first_charter(authority: Role, policy: Role) -> Charter {
    Charter {
        version: 1,
        vo: None,
        previous: None,
        name: "vo-a".to_owned(),
        issued: ISSUED,
        expires: EXPIRES,
        authority,
        policy,
        sites: Vec::new(),
        window: WindowLength::HOUR,
        history: HistoryRule::None { horizon: 24 },
        usage_mode: UsageMode::default(),
        charging: ChargingRule::default(),
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::default(),
        readers: Default::default(),
        snapshot: None,
    }
}

/// The charter after `last`, otherwise the same.
pub(crate) fn next_charter(last: &Signed<Charter>) -> Charter {
    Charter {
        version: last.claimed().version + 1,
        vo: Some(last.vo()),
        previous: Some(last.hash()),
        ..last.claimed().clone()
    }
}

pub(crate) fn entry(share: u32) -> ShareEntry {
    ShareEntry::of(percent(share))
}

pub(crate) fn delegated(share: u32, delegate: Role) -> ShareEntry {
    ShareEntry {
        delegate: Some(delegate),
        ..entry(share)
    }
}

pub(crate) fn policy(
    vo: VoId,
    at: &str,
    version: u64,
    shares: &[(&str, ShareEntry)],
) -> SharePolicy {
    let shares = shares
        .iter()
        .map(|(below, entry)| (path(below), entry.clone()));
    SharePolicy {
        vo,
        path: path(at),
        version,
        previous: None,
        issued: ISSUED,
        expires: EXPIRES,
        usage: None,
        distance: None,
        shares: shares.collect::<BTreeMap<_, _>>(),
    }
}

pub(crate) fn sign_charter(charter: Charter, seeds: &[u8]) -> Signed<Charter> {
    let keys: Vec<_> = seeds.iter().map(|seed| key(*seed)).collect();
    Signed::sign(charter, &keys.iter().collect::<Vec<_>>()).expect("a valid charter")
}

pub(crate) fn sign_policy(policy: SharePolicy, seeds: &[u8]) -> Signed<SharePolicy> {
    let keys: Vec<_> = seeds.iter().map(|seed| key(*seed)).collect();
    Signed::sign(policy, &keys.iter().collect::<Vec<_>>()).expect("a valid policy")
}

pub(crate) fn sign_snapshot(snapshot: Snapshot, seeds: &[u8]) -> Signed<Snapshot> {
    let keys: Vec<_> = seeds.iter().map(|seed| key(*seed)).collect();
    Signed::sign(snapshot, &keys.iter().collect::<Vec<_>>()).expect("a valid snapshot")
}

/// A VO whose authority is key 1 and whose policy is signed by key 10; `/a` is delegated to key
/// 20 and `/b` to key 30.
pub(crate) fn vo_with_delegates() -> (VoPolicies, Signed<Charter>) {
    let charter = sign_charter(first_charter(role(&[1], 1), role(&[10], 1)), &[1]);
    let mut vo = VoPolicies::new(charter.vo());
    vo.adopt_charter(charter.clone())
        .expect("the first charter");
    let shares = [
        ("/a", delegated(60, role(&[20], 1))),
        ("/b", delegated(40, role(&[30], 1))),
    ];
    let root = sign_policy(policy(charter.vo(), "/", 1, &shares), &[10]);
    vo.adopt_policy(root).expect("the root policy");
    (vo, charter)
}

/// The entries in force, as `path percent` lines.
pub(crate) fn lines(vo: &VoPolicies) -> Vec<String> {
    let in_force = vo.in_force(NOW);
    in_force
        .entries
        .iter()
        .map(|entry| format!("{} {}", entry.path, entry.share))
        .collect()
}
