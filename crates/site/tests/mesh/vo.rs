//! A virtual organisation, its site configurations and its jobs, made from small numbers.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, ChargingRule, Charter, Distance, HistoryRule, JobKey, MemberSite, Millis, Origin,
    Role, ShareEntry, SharePolicy, Signed, SigningKey, SiteId, UsageMode, UsageRecord, VoId,
    WallTime, Weight, WindowLength,
};
use fairmesh_policy::{SiteEntry, SitePolicy};
use fairmesh_site::{IdentityMap, Pattern, Rule, SiteConfig, Timing};

/// 2026-01-05, a Monday, 12:20 UTC.
pub(crate) const START: WallTime = WallTime(1_767_615_600_000);
pub(crate) const HOUR: Millis = Millis(3_600_000);
pub(crate) const DAY: Millis = Millis(86_400_000);
const YEAR: Millis = Millis(365 * 86_400_000);

pub(crate) const GROUPS: u64 = 3;
pub(crate) const USERS: u64 = 4;

/// The key of site `index`.
pub(crate) fn site_key(index: usize) -> SigningKey {
    SigningKey::from_secret(&[u8::try_from(index).expect("few sites") + 1; 32])
}

pub(crate) fn site_id(index: usize) -> SiteId {
    site_key(index).site_id()
}

pub(crate) fn authority() -> SigningKey {
    SigningKey::from_secret(&[200; 32])
}

pub(crate) fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).expect("a valid path")
}

fn percent(percent: u32) -> Weight {
    Weight::whole(percent)
}

/// Charter 1 of a VO with `members` sites of 1,000 cores each.
pub(crate) fn charter(name: &str, members: usize) -> Charter {
    let member = |index| MemberSite {
        site: site_id(index),
        name: format!("site-{index}"),
        cores: 1_000,
        gpus: None,
        mem_gib: None,
        addresses: Vec::new(),
    };
    Charter {
        version: 1,
        vo: None,
        previous: None,
        name: name.to_owned(),
        issued: START.before(DAY),
        expires: START.after(YEAR),
        authority: Role::single(authority().key_id()),
        policy: Role::single(authority().key_id()),
        sites: (0..members).map(member).collect(),
        window: WindowLength::HOUR,
        history: HistoryRule::HalfLife {
            windows: 24,
            horizon: 30 * 24,
        },
        usage_mode: UsageMode::Active,
        charging: ChargingRule::CpuTime,
        discounts: fairmesh_model::Discounts::NONE,
        distance: Distance::Absolute,
        readers: Default::default(),
        snapshot: None,
    }
}

pub(crate) fn sign_charter(charter: Charter) -> Signed<Charter> {
    Signed::sign(charter, &[&authority()]).expect("a valid charter")
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

/// A policy that gives the first group `first` percent and the others 10 each.
pub(crate) fn policy(vo: VoId, version: u64, first: u32) -> SharePolicy {
    let mut shares = BTreeMap::new();
    let mut add = |text: String, share| shares.insert(path(&text), ShareEntry::of(percent(share)));
    for group in 0..GROUPS {
        add(format!("/g{group}"), if group == 0 { first } else { 10 });
        for user in 0..USERS {
            add(format!("/g{group}/u{user}"), 25);
        }
    }
    SharePolicy {
        vo,
        path: AccountPath::root(),
        version,
        previous: None,
        issued: START.before(DAY),
        expires: START.after(YEAR),
        usage: None,
        distance: None,
        shares,
    }
}

pub(crate) fn sign_policy(policy: SharePolicy) -> Vec<u8> {
    let signed = Signed::sign(policy, &[&authority()]).expect("a valid policy");
    signed.bytes().to_vec()
}

pub(crate) fn timing() -> Timing {
    Timing {
        publish: Millis::from_secs(5),
        heartbeat: Millis::from_secs(30),
        sync: Millis::from_secs(5),
        request_timeout: Millis::from_secs(6),
        clock_tolerance: Millis::from_secs(300),
        silence: Millis::from_secs(120),
        sweep_entries: 64,
        ..Timing::default()
    }
}

/// A site that mounts the VOs at `/<alias>` and has accounts of its own below `/local`. Jobs of the
/// batch account `<alias>` go to `/{group}/{user}` of that VO, those of `local` stay at the site.
pub(crate) fn config(
    vos: &[(&str, VoId)],
    introducers: BTreeSet<SiteId>,
    timing: Timing,
) -> SiteConfig {
    let mut entries = BTreeMap::from([
        (path("/local"), SiteEntry::local(percent(30))),
        (
            path("/local/zz-secret-group"),
            SiteEntry::local(percent(50)),
        ),
    ]);
    let mut rules = vec![Rule {
        account: Some(Pattern::parse("local")),
        path: "/local/{group}/{user}".to_owned(),
        ..Rule::default()
    }];
    for (alias, vo) in vos {
        entries.insert(
            path(&format!("/{alias}")),
            SiteEntry::mounted(percent(30), alias),
        );
        rules.push(Rule {
            account: Some(Pattern::parse(alias)),
            vo: Some(*vo),
            path: "/{group}/{user}".to_owned(),
            ..Rule::default()
        });
    }
    SiteConfig {
        policy: SitePolicy::new(entries).expect("a valid tree"),
        share_rule: fairmesh_model::ShareRule::Weights,
        vos: vos
            .iter()
            .map(|(alias, vo)| ((*alias).to_owned(), *vo))
            .collect(),
        identity: IdentityMap::new(rules),
        introducers,
        advert: None,
        forward: None,
        quotas: Default::default(),
        local_history: HistoryRule::None { horizon: 30 * 24 },
        local_window: WindowLength::HOUR,
        charging: fairmesh_site::Charging::default(),
        timing,
    }
}

/// A job of `/{group}/{user}` in the VO that `account` stands for.
pub(crate) fn job(
    name: impl Into<String>,
    account: &str,
    group: &str,
    user: &str,
    ran: (WallTime, WallTime),
    cores: u32,
) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: "cluster".to_owned(),
            job: name.into(),
            instance: 0,
        },
        origin: Origin {
            user: Some(user.to_owned()),
            account: Some(account.to_owned()),
            group: Some(group.to_owned()),
            subject: None,
        },
        start: ran.0,
        end: ran.1,
        cores,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running: false,
    }
}
