//! A VO of a test: its authority, its documents, and records that its jobs make.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, ChargingRule, Charter, CoreMillis, Distance,
    HistoryRule, MemberSite, Millis, PolicyMount, Role, ShareEntry, SharePolicy, Signed,
    SigningKey, SiteId, UsageMode, VoId, WallTime, Weight, WindowLength,
};

use crate::process::Node;

/// A VO with one authority key.
#[derive(Debug)]
pub struct Vo {
    /// When its documents were issued.
    at: WallTime,
    authority: SigningKey,
    charter: Signed<Charter>,
    policy: Signed<SharePolicy>,
    /// Charters of before, the oldest first.
    past: Vec<Signed<Charter>>,
}

impl Vo {
    /// Signs a charter for `sites`, and a policy in which `users` have equal shares.
    pub fn found(name: &str, sites: &[(SiteId, &str)], users: &[&str]) -> anyhow::Result<Self> {
        Self::found_with(name, sites, users, |_| {})
    }

    /// The same, with another charter.
    pub fn found_with(
        name: &str,
        sites: &[(SiteId, &str)],
        users: &[&str],
        change: impl FnOnce(&mut Charter),
    ) -> anyhow::Result<Self> {
        Self::found_at(now(), name, sites, users, change)
    }

    /// The same, at another time than now.
    pub fn found_at(
        at: WallTime,
        name: &str,
        sites: &[(SiteId, &str)],
        users: &[&str],
        change: impl FnOnce(&mut Charter),
    ) -> anyhow::Result<Self> {
        let authority = SigningKey::from_secret(&[0xA5; 32]);
        let mut charter = Charter {
            version: 1,
            vo: None,
            previous: None,
            name: name.to_owned(),
            issued: at,
            expires: at.after(Millis::from_secs(86_400 * 365)),
            authority: Role::single(authority.key_id()),
            policy: Role::single(authority.key_id()),
            sites: sites
                .iter()
                .map(|(site, name)| MemberSite {
                    site: *site,
                    name: (*name).to_owned(),
                    cores: 100_000,
                    gpus: None,
                    mem_gib: None,
                    addresses: Vec::new(),
                })
                .collect(),
            window: WindowLength::HOUR,
            history: HistoryRule::default(),
            usage_mode: UsageMode::Active,
            charging: ChargingRule::CpuTime,
            discounts: fairmesh_model::Discounts::NONE,
            distance: Distance::Absolute,
            readers: Default::default(),
            snapshot: None,
        };
        change(&mut charter);
        let charter = Signed::sign(charter, &[&authority])?;
        let policy = Self::policy(at, &authority, &charter, 1, users)?;
        Ok(Self {
            at,
            authority,
            charter,
            policy,
            past: Vec::new(),
        })
    }

    fn policy(
        at: WallTime,
        authority: &SigningKey,
        charter: &Signed<Charter>,
        version: u64,
        users: &[&str],
    ) -> anyhow::Result<Signed<SharePolicy>> {
        let each = Weight::whole(1);
        let entry = |user: &&str| {
            Ok((
                AccountPath::parse(&format!("/{user}"))?,
                ShareEntry::of(each),
            ))
        };
        let policy = SharePolicy {
            vo: charter.vo(),
            path: AccountPath::root(),
            version,
            previous: None,
            issued: at,
            expires: at.after(Millis::from_secs(86_400 * 365)),
            usage: None,
            distance: None,
            shares: users
                .iter()
                .map(entry)
                .collect::<anyhow::Result<BTreeMap<_, _>>>()?,
        };
        Ok(Signed::sign(policy, &[authority])?)
    }

    /// Signs the next charter.
    pub fn renew(&mut self, change: impl FnOnce(&mut Charter)) -> anyhow::Result<()> {
        let mut next = self.charter.claimed().clone();
        next.version += 1;
        next.vo = Some(self.vo());
        next.previous = Some(self.charter.hash());
        change(&mut next);
        let next = Signed::sign(next, &[&self.authority])?;
        self.past.push(std::mem::replace(&mut self.charter, next));
        Ok(())
    }

    /// The next charter, signed by a key that has no right to.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn forged(&self) -> anyhow::Result<Vec<u8>> {
        let mut next = self.charter.claimed().clone();
        next.version += 1;
        next.vo = Some(self.vo());
        next.previous = Some(self.charter.hash());
        let stranger = SigningKey::from_secret(&[0x5A; 32]);
        Ok(Signed::sign(next, &[&stranger])?.bytes().to_vec())
    }

    /// Signs another policy for the same VO.
    pub fn divide_anew(&mut self, version: u64, users: &[&str]) -> anyhow::Result<()> {
        self.policy = Self::policy(now(), &self.authority, &self.charter, version, users)?;
        Ok(())
    }

    /// Signs the next policy, in which the policy of another VO divides one more entry as large as the whole.
    pub fn mount(&mut self, at: &str, of: &Self) -> anyhow::Result<()> {
        let mut policy = self.policy.claimed().clone();
        policy.version += 1;
        let mount = PolicyMount {
            vo: of.charter.vo(),
            path: AccountPath::root(),
        };
        let entry = ShareEntry {
            mount: Some(mount),
            ..ShareEntry::of(Weight::HUNDRED)
        };
        policy.shares.insert(AccountPath::parse(at)?, entry);
        self.policy = Signed::sign(policy, &[&self.authority])?;
        Ok(())
    }

    /// Signs credit for a path, for a day since the VO was founded: so many core-milliseconds, of which each site holds the
    /// same to begin with. `change` sets its terms.
    pub fn grant(
        &self,
        path: &str,
        amount: u64,
        sites: &[SiteId],
        change: impl FnOnce(&mut Allocation),
    ) -> anyhow::Result<Vec<u8>> {
        let slice = AllocationSlice {
            amount: CoreMillis(amount),
            start: WallTime(self.at.0 - 60_000),
            end: self.at.after(Millis::from_secs(86_400)),
        };
        let mut allocation = Allocation::new(
            self.vo(),
            AccountPath::parse(path)?,
            self.at..self.at.after(Millis::from_secs(86_400 * 365)),
            vec![slice],
            sites.iter().map(|site| (*site, 1)).collect(),
        );
        allocation.mode = None;
        change(&mut allocation);
        Ok(Signed::sign(allocation, &[&self.authority])?
            .bytes()
            .to_vec())
    }

    /// The id.
    pub fn vo(&self) -> VoId {
        self.charter.vo()
    }

    /// The charter, signed.
    pub fn charter(&self) -> &[u8] {
        self.charter.bytes()
    }

    /// The id, for a configuration.
    pub fn id(&self) -> String {
        self.charter.vo().to_string()
    }

    /// The charter and the share policy, signed.
    pub fn documents(&self) -> [&[u8]; 2] {
        [self.charter.bytes(), self.policy.bytes()]
    }

    /// All charters, the oldest first: a node without any takes them in that order.
    pub fn charters(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.past.iter().chain([&self.charter]);
        all.map(|charter| &charter.bytes()[..])
    }

    /// Hands the documents to a node.
    pub fn publish(&self, node: &Node) -> anyhow::Result<()> {
        for document in self.documents() {
            let answer = node.http("POST", "/v1/documents", document)?;
            ensure!(answer.status == 200, "{answer:?}");
        }
        Ok(())
    }
}

/// JSON lines of `count` ended jobs of one core and one second each, numbered from `first`.
pub fn records(alias: &str, user: &str, first: u64, count: u64) -> Vec<u8> {
    records_ending(now().0 - 60_000, alias, user, first, count)
}

/// The same of jobs that ran during the last second.
pub fn records_of_now(alias: &str, user: &str, first: u64, count: u64) -> Vec<u8> {
    records_ending(now().0, alias, user, first, count)
}

fn records_ending(end: u64, alias: &str, user: &str, first: u64, count: u64) -> Vec<u8> {
    let line = |job: u64| {
        format!(
            "{{\"cluster\":\"test\",\"job\":\"{job}\",\"user\":\"{user}\",\"account\":\"{alias}\",\"start_ms\":{},\"end_ms\":{end},\"cores\":1}}\n",
            end - 1_000
        )
    };
    (first..first + count)
        .map(line)
        .collect::<String>()
        .into_bytes()
}

fn now() -> WallTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
