//! Virtual organisations made from small numbers: keys, charters, policies, site configurations.
//!
//! Invariant: everything is a function of the specification. Site 7 has the same key in every run,
//! and a VO that is founded twice from one specification is the same VO.
//!
//! Authorities' keys are kept, so that a story can sign the next version of anything. Deliberately
//! not here: load (which jobs run), and documents in files, which the node's tools read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::documents::VALID_MAX;
use fairmesh_model::signed::Document;
use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, ChargingRule, Charter, Date, Discounts, Distance,
    DocumentError, HistoryRule, JobKey, MemberSite, Millis, Named, Origin, PolicyMount, Role,
    Scope, Share, ShareEntry, SharePolicy, Signed, SigningKey, SiteId, Snapshot, UsageMode,
    UsageRecord, VoId, WallTime, Weight, WindowLength,
};
use sha2::{Digest, Sha256};

mod machines;
mod owner;
mod usurped;

pub(crate) use machines::of_site as machines_of;
pub use owner::{OwnerSpec, Relabel, mounting, site_config};

/// 2026-01-05, a Monday, 12:20 UTC: where simulated time begins unless a scenario says otherwise.
pub const START: WallTime = WallTime(1_767_615_600_000);

/// A day.
pub const DAY: Millis = Millis(86_400_000);

/// An hour.
pub const HOUR: Millis = Millis(3_600_000);

/// How many keys of an authority must sign, at least.
pub const THRESHOLD_MIN: u32 = 2;

/// How long documents are valid unless a story changes it.
pub const VALIDITY: Millis = Millis(10 * 365 * 86_400_000);

/// The key of site `index`.
pub fn site_key(index: usize) -> SigningKey {
    key("site", index)
}

/// The identity of site `index`.
pub fn site_id(index: usize) -> SiteId {
    site_key(index).site_id()
}

/// A strict allocation from the beginning on, split evenly among so many sites, of which nothing else is said.
pub fn allocation(
    vo: VoId,
    path: AccountPath,
    slices: Vec<AllocationSlice>,
    sites: usize,
) -> Allocation {
    let split = (0..sites).map(|site| (site_id(site), 1)).collect();
    Allocation::new(vo, path, START..START.after(VALIDITY), slices, split)
}

/// The key of the authority of VO `index`.
pub fn authority_key(index: usize) -> SigningKey {
    key("authority", index)
}

/// Distinct for each label and index; no secret at all.
pub fn key(label: &str, index: usize) -> SigningKey {
    let mut hash = Sha256::new();
    hash.update(format!("simulated {label} {index}"));
    SigningKey::from_secret(&hash.finalize().into())
}

/// An account path that is known to be one.
///
/// # Panics
/// Where it is none: specifications are written by the author of a scenario.
pub fn path(text: &str) -> AccountPath {
    AccountPath::parse(text).unwrap_or_else(|error| panic!("`{text}` is no account path: {error}"))
}

/// What a VO is made from.
#[derive(Debug, Clone)]
pub struct VoSpec {
    /// Its name; also the alias under which sites mount it, and the batch account of its jobs.
    pub name: String,
    /// Its member sites, and the cores that the charter declares for each.
    pub members: Vec<(usize, u32)>,
    /// GPUs and memory, GiB, that the charter declares for each.
    pub gpus: Option<u32>,
    /// See `gpus`.
    pub mem_gib: Option<u32>,
    /// Its share tree: paths, and weights among siblings. A parent comes before its children.
    pub shares: Vec<(String, Weight)>,
    /// Former paths of entries.
    pub was: BTreeMap<String, Vec<String>>,
    /// The first day of which usage counts for an entry.
    pub since: BTreeMap<String, Date>,
    /// The path that jobs are charged to, with the words of their origin in braces.
    pub job_path: String,
    /// How usage is weighed by its age.
    pub history: HistoryRule,
    /// What running jobs count for.
    pub usage_mode: UsageMode,
    /// Length of its windows.
    pub window: WindowLength,
    /// How jobs are charged.
    pub charging: ChargingRule,
    /// What jobs on other than the usual terms are charged.
    pub discounts: Discounts,
    /// How siblings are compared.
    pub distance: Distance,
    /// What entries say of how those below them are compared, `/` too.
    pub says: BTreeMap<String, (Option<Scope>, Option<Distance>)>,
    /// Whether every other entry may have a quarter more than its share at most.
    pub limits: bool,
    /// Whether who divides the first group's share is somebody else.
    pub delegates: bool,
    /// Whether an online key signs what is in force, after each change.
    pub snapshots: bool,
    /// Whether the first charter lists the first member alone, and the second one all.
    pub alone: bool,
    /// Whether the authority has three keys instead of two, so that the number of keys that must sign can change.
    pub thresholds: bool,
    /// An entry that another VO's policy divides: what is below it in `shares` is left out.
    pub mounts: Option<(String, PolicyMount)>,
    /// VOs that may mount its policies.
    pub readers: BTreeSet<VoId>,
    /// When its first documents were issued.
    pub issued: WallTime,
    /// How long documents are valid.
    pub valid: Millis,
}

impl VoSpec {
    /// A VO of `members` sites with 1,000 cores each and three groups of four users.
    pub fn small(name: &str, members: usize) -> Self {
        let mut shares = Vec::new();
        for (group, share) in [50, 30, 20].into_iter().enumerate() {
            shares.push((format!("/g{group}"), Weight::whole(share)));
            let user = |user| (format!("/g{group}/u{user}"), Weight::whole(25));
            shares.extend((0..4).map(user));
        }
        Self {
            name: name.to_owned(),
            members: (0..members).map(|site| (site, 1_000)).collect(),
            gpus: None,
            mem_gib: None,
            shares,
            was: BTreeMap::new(),
            since: BTreeMap::new(),
            job_path: "/{group}/{user}".to_owned(),
            history: HistoryRule::HalfLife {
                windows: 24,
                horizon: 30 * 24,
            },
            usage_mode: UsageMode::Active,
            window: WindowLength::HOUR,
            charging: ChargingRule::CpuTime,
            discounts: Discounts::NONE,
            distance: Distance::Absolute,
            says: BTreeMap::new(),
            limits: false,
            delegates: false,
            snapshots: false,
            alone: false,
            thresholds: false,
            mounts: None,
            readers: BTreeSet::new(),
            issued: START.before(DAY),
            valid: VALIDITY,
        }
    }
}

/// A VO with its documents and the key that signs them.
#[derive(Debug, Clone)]
pub struct Vo {
    /// What it was made from.
    pub spec: VoSpec,
    /// Its id.
    pub id: VoId,
    /// The first charter, where it is another.
    first: Option<Signed<Charter>>,
    /// The newest charter.
    pub charter: Signed<Charter>,
    /// The newest policy of the whole tree.
    pub policy: Signed<SharePolicy>,
    /// The policy of the first group, where it is delegated.
    pub delegated: Option<Signed<SharePolicy>>,
    /// The newest snapshot, where there are any.
    pub snapshot: Option<Signed<Snapshot>>,
    online: Arc<SigningKey>,
    authority: Arc<[SigningKey]>,
}

impl Vo {
    /// Signs the first charter and the first policy of VO `index`.
    pub fn found(index: usize, spec: VoSpec) -> Result<Self, DocumentError> {
        let third = spec.thresholds.then(|| key("third authority", index));
        let two = [authority_key(index), key("second authority", index)];
        let authority: Arc<[SigningKey]> = two.into_iter().chain(third).collect();
        let role = Role {
            keys: authority.iter().map(SigningKey::key_id).collect(),
            threshold: THRESHOLD_MIN,
        };
        let keys: Vec<&SigningKey> = authority.iter().collect();
        let online = Arc::new(key("online", index));
        let mut first = first_charter(&spec, &role);
        first.snapshot = spec.snapshots.then(|| Role::single(online.key_id()));
        let members = first.sites.clone();
        first
            .sites
            .truncate(if spec.alone { 1 } else { members.len() });
        let charter = Signed::sign(first, &keys)?;
        let id = charter.vo();
        let delegate = key("delegate", index);
        let (policy, below) = first_policies(&spec, id, &delegate);
        let policy = Signed::sign(policy, &keys)?;
        let delegated = below.map(|below| Signed::sign(below, &[&delegate]));
        let issued = spec.issued;
        let mut vo = Self {
            first: spec.alone.then(|| charter.clone()),
            spec,
            id,
            charter,
            policy,
            delegated: delegated.transpose()?,
            snapshot: None,
            online,
            authority,
        };
        if vo.spec.alone {
            vo.next_charter(|charter| charter.sites = members)?;
        }
        vo.next_snapshot(issued)?;
        Ok(vo)
    }

    /// Signs the next snapshot, of what was signed last of all else, and returns its bytes; none where nobody signs
    /// any.
    pub fn next_snapshot(&mut self, issued: WallTime) -> Result<Option<Vec<u8>>, DocumentError> {
        if !self.spec.snapshots {
            return Ok(None);
        }
        let named = |version, hash| Named { version, hash };
        let policies = [&self.policy].into_iter().chain(&self.delegated);
        let policies = policies.map(|policy| {
            let of = policy.claimed();
            (of.path.clone(), named(of.version, policy.hash()))
        });
        let last = self.snapshot.as_ref();
        let body = Snapshot {
            vo: self.id,
            version: last.map_or(0, |last| last.claimed().version) + 1,
            issued,
            expires: issued.after(self.spec.valid.min(VALID_MAX)),
            charter: named(self.charter.claimed().version, self.charter.hash()),
            policies: policies.collect(),
            allocations: BTreeMap::new(),
        };
        let signed = Signed::sign(body, &[&self.online])?;
        let bytes = signed.bytes().to_vec();
        self.snapshot = Some(signed);
        Ok(Some(bytes))
    }

    /// The newest document of each kind, after the first charter where that is another.
    pub fn documents(&self) -> impl Iterator<Item = &[u8]> {
        let policies = [&self.policy].into_iter().chain(&self.delegated);
        let policies = policies.map(|policy| &policy.bytes()[..]);
        let snapshot = self.snapshot.iter().map(|snapshot| &snapshot.bytes()[..]);
        let charters = self.first.iter().chain([&self.charter]);
        let charters = charters.map(|charter| &charter.bytes()[..]);
        charters.chain(policies).chain(snapshot)
    }

    /// Signs the next charter, as the last one with `change`, and returns its bytes.
    pub fn next_charter(
        &mut self,
        change: impl FnOnce(&mut Charter),
    ) -> Result<Vec<u8>, DocumentError> {
        let mut charter = Charter {
            version: self.charter.claimed().version + 1,
            vo: Some(self.id),
            previous: Some(self.charter.hash()),
            ..self.charter.claimed().clone()
        };
        change(&mut charter);
        let before = self.charter.claimed().authority.threshold;
        let count = before.max(charter.authority.threshold);
        // Which keys sign changes from charter to charter.
        let keys = self.keys(charter.version, count);
        self.charter = Signed::sign(charter, &keys)?;
        Ok(self.charter.bytes().to_vec())
    }

    /// Signs the next policy, as the last one with `change`, and returns its bytes.
    pub fn next_policy(
        &mut self,
        change: impl FnOnce(&mut SharePolicy),
    ) -> Result<Vec<u8>, DocumentError> {
        let mut policy = self.policy.claimed().clone();
        policy.version += 1;
        change(&mut policy);
        self.policy = self.sign(policy)?;
        Ok(self.policy.bytes().to_vec())
    }

    /// Signs a document with all keys of the authority: it stays in force whatever the threshold becomes.
    pub fn sign<T: Document>(&self, body: T) -> Result<Signed<T>, DocumentError> {
        Signed::sign(body, &self.authority.iter().collect::<Vec<_>>())
    }

    /// So many keys of the authority, from one that `turn` chooses.
    fn keys(&self, turn: u64, count: u32) -> Vec<&SigningKey> {
        let first = usize::try_from(turn).unwrap_or(0) % self.authority.len();
        let from_first = self.authority.iter().cycle().skip(first);
        from_first.take(count as usize).collect()
    }

    /// The charter's entry of a site.
    pub fn member(site: usize, cores: u32) -> MemberSite {
        MemberSite {
            site: site_id(site),
            name: format!("site-{site}"),
            cores,
            gpus: None,
            mem_gib: None,
            addresses: Vec::new(),
        }
    }
}

fn first_charter(spec: &VoSpec, role: &Role) -> Charter {
    let members = spec.members.iter();
    let member = |site, cores| MemberSite {
        gpus: spec.gpus,
        mem_gib: spec.mem_gib,
        ..Vo::member(site, cores)
    };
    Charter {
        version: 1,
        vo: None,
        previous: None,
        name: spec.name.clone(),
        issued: spec.issued,
        expires: spec.issued.after(spec.valid),
        authority: role.clone(),
        policy: role.clone(),
        sites: members.map(|(site, cores)| member(*site, *cores)).collect(),
        window: spec.window,
        history: spec.history,
        usage_mode: spec.usage_mode,
        charging: spec.charging,
        discounts: spec.discounts,
        distance: spec.distance,
        readers: spec.readers.clone(),
        snapshot: None,
    }
}

/// The policy of the whole tree, and that of the first group where it is delegated.
fn first_policies(
    spec: &VoSpec,
    vo: VoId,
    delegate: &SigningKey,
) -> (SharePolicy, Option<SharePolicy>) {
    let says = |at: &str| spec.says.get(at).copied().unwrap_or_default();
    let entry = |(index, (at, share)): (usize, &(String, Weight))| {
        let (usage, distance) = says(at);
        let limit = || a_quarter_more(share.units(), level_total(spec, at));
        let was = spec.was.get(at).into_iter().flatten();
        let entry = ShareEntry {
            at_most: (spec.limits && index % 2 == 0).then(limit),
            usage,
            distance,
            was: was.map(|was| path(was)).collect(),
            since: spec.since.get(at).copied(),
            ..ShareEntry::of(*share)
        };
        (path(at), entry)
    };
    let mut shares: BTreeMap<AccountPath, ShareEntry> =
        spec.shares.iter().enumerate().map(entry).collect();
    if let Some((at, mount)) = &spec.mounts {
        let at = path(at);
        shares.retain(|other, _| *other == at || !other.starts_with(&at));
        let entry = shares.get_mut(&at).expect("it is an entry");
        (entry.usage, entry.distance) = (None, None);
        entry.mount = Some(mount.clone());
    }
    let policy = |path: AccountPath, shares| SharePolicy {
        usage: says("/").0.filter(|_| path.is_root()),
        distance: says("/").1.filter(|_| path.is_root()),
        vo,
        path,
        version: 1,
        previous: None,
        issued: spec.issued,
        expires: spec.issued.after(spec.valid),
        shares,
    };
    let mut names = shares.keys().filter(|path| !path.is_others());
    let first = names.next().cloned().filter(|_| spec.delegates);
    let Some(first) = first else {
        return (policy(AccountPath::root(), shares), None);
    };
    let of_first = shares.iter().filter_map(|(at, entry)| {
        let below = at.relative_to(&first).filter(|below| !below.is_root())?;
        let was = entry.was.iter().filter_map(|was| was.relative_to(&first));
        let mut entry = entry.clone();
        entry.was = was.collect();
        Some((below, entry))
    });
    let below = policy(first.clone(), of_first.collect());
    shares.retain(|at, _| *at == first || !at.starts_with(&first));
    let divided = shares.get_mut(&first).expect("it is the first");
    divided.delegate = Some(Role::single(delegate.key_id()));
    (policy(AccountPath::root(), shares), Some(below))
}

/// A limit that is passed often, and not always.
fn a_quarter_more(weight: u64, total: u64) -> Share {
    Share::from_ratio(weight * 5, total.max(1) * 4)
}

/// What an entry and its siblings weigh.
fn level_total(spec: &VoSpec, at: &str) -> u64 {
    let parent = path(at).parent();
    let siblings = spec.shares.iter();
    let siblings = siblings.filter(|(other, _)| path(other).parent() == parent);
    siblings.map(|(_, weight)| weight.units()).sum()
}

/// A finished job of `account` (a VO's name, or `local`), with the words that its path is made of.
pub fn job(
    name: impl Into<String>,
    account: &str,
    (group, user): (&str, &str),
    (start, end): (WallTime, WallTime),
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
        start,
        end,
        cores,
        gpus: 0,
        mem_mib: 0,
        placement: fairmesh_model::Placement::default(),
        running: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_lasting() {
        let ids: BTreeSet<SiteId> = (0..300).map(site_id).collect();
        assert_eq!(ids.len(), 300);
        assert_eq!(site_id(7), site_id(7));
        assert_ne!(authority_key(0).key_id(), site_key(0).key_id());
    }

    #[test]
    fn later_versions_follow_the_first() {
        let mut vo = Vo::found(0, VoSpec::small("grid", 3)).expect("a valid VO");
        let first = vo.charter.hash();
        vo.next_charter(|charter| charter.sites.push(Vo::member(9, 10)))
            .expect("a valid charter");
        assert_eq!(vo.charter.claimed().previous, Some(first));
        assert_eq!(vo.charter.vo(), vo.id);
        vo.next_policy(|_| {}).expect("a valid policy");
        assert_eq!(vo.policy.claimed().version, 2);
    }

    #[test]
    fn sites_mount_what_they_are_members_of() {
        let mut other = VoSpec::small("other", 1);
        other.members = vec![(5, 10)];
        let vos = [VoSpec::small("grid", 3), other]
            .into_iter()
            .enumerate()
            .map(|(index, spec)| Vo::found(index, spec).expect("a valid VO"))
            .collect::<Vec<_>>();
        let names = |site| {
            let config = site_config(site, &vos, &OwnerSpec::default());
            config.vos.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["grid"]);
        assert_eq!(names(5), ["other"]);
        assert!(names(8).is_empty());
    }
}
