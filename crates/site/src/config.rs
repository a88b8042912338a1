//! What an owner decides about a site. Valid by construction: the node checks files, not we.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_gossip::Intervals;
use fairmesh_model::{
    ChargingRule, Discounts, Factor, HistoryRule, Millis, PriceList, QuotaMode, Share, ShareRule,
    SiteId, UsageRecord, VoId, WindowLength,
};
use fairmesh_policy::SitePolicy;
use fairmesh_quota::price::Pricing;

use crate::advert::AdvertRules;
use crate::forward::ForwardRules;
use crate::identity::{IdentityMap, Pattern};

/// The owner's configuration of a site, checked.
#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// The owner's share tree.
    pub policy: SitePolicy,
    /// How shares are read: as weights, unless the owner serves by FSGrid's published formula.
    pub share_rule: ShareRule,
    /// The VOs that the site takes part in, by the alias that the tree mounts them under.
    pub vos: BTreeMap<String, VoId>,
    /// The rules that map jobs to accounts.
    pub identity: IdentityMap,
    /// Peers that may speak although no charter that we hold names them: how a newcomer, which
    /// holds no charter, gets its first one.
    pub introducers: BTreeSet<SiteId>,
    /// How usage at this site is weighed by its age at local levels of the tree.
    pub local_history: HistoryRule,
    /// Windows of local usage.
    pub local_window: WindowLength,
    /// What jobs cost here.
    pub charging: Charging,
    /// What VOs are told of free CPUs; `None` for nothing.
    pub advert: Option<AdvertRules>,
    /// Which jobs are passed on to and from other members; `None` for none.
    pub forward: Option<ForwardRules>,
    /// What the owner says of VOs' quotas.
    pub quotas: BTreeMap<VoId, OwnerQuota>,
    /// The intervals of periodic work, and the tolerance of clocks.
    pub timing: Timing,
}

impl SiteConfig {
    /// VOs whose jobs are taken from others, as the state machine names them.
    pub(crate) fn accepted(&self) -> BTreeSet<String> {
        let rules = self.forward.iter();
        rules
            .flat_map(|rules| &rules.accept)
            .map(VoId::to_string)
            .collect()
    }

    /// Whether the owner takes jobs of a VO that other members pass on.
    pub(crate) fn takes_forwarded(&self, vo: VoId) -> bool {
        let rules = self.forward.as_ref();
        rules.is_some_and(|rules| rules.accept.contains(&vo))
    }

    /// The alias of a VO.
    pub(crate) fn alias_of(&self, vo: VoId) -> Option<String> {
        let mut vos = self.vos.iter();
        let (alias, _) = vos.find(|(_, id)| **id == vo)?;
        Some(alias.clone())
    }

    /// What a price does not fall below because a job is unimportant. Other sites' is taken to be this one's.
    pub(crate) fn least_price(&self, vo: VoId) -> Factor {
        let owner = self.quotas.get(&vo);
        owner.map_or(Pricing::Fixed.least(), |owner| owner.pricing.least())
    }
}

/// What the owner says of a VO's quotas on his own cluster. It goes before what the VO says, in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnerQuota {
    /// What becomes of jobs beyond the quota; as the allocation says where this is `None`.
    pub mode: Option<QuotaMode>,
    /// The VO's jobs are not held to quotas at all.
    pub is_off: bool,
    /// Nor are those of these local users,
    pub users: Vec<Pattern>,
    /// of these local groups,
    pub groups: Vec<Pattern>,
    /// or in these queues.
    pub queues: Vec<Pattern>,
    /// What he asks for his machines.
    pub pricing: Pricing,
    /// Which jobs beyond their quota run on machines that would stand idle; `None` for none.
    pub idle: Option<IdleRules>,
    /// Whether accounts with nothing left stand behind all others when schedulers look them up.
    pub bands: bool,
}

/// When an owner gives machines to jobs that no quota covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleRules {
    /// Of all cores, what stays free for those within their quota.
    pub reserve: Share,
    /// The longest that such a job may ask for.
    pub run_max: Millis,
}

impl Default for IdleRules {
    fn default() -> Self {
        Self {
            reserve: Share::from_percent(5).expect("a percentage"),
            run_max: Millis::from_secs(3_600),
        }
    }
}

impl OwnerQuota {
    /// Whether the owner exempts a job.
    pub(crate) fn exempts(&self, record: &UsageRecord) -> bool {
        let holds = |patterns: &[Pattern], word: Option<&String>| {
            word.is_some_and(|word| patterns.iter().any(|pattern| pattern.holds(word)))
        };
        self.is_off
            || holds(&self.users, record.origin.user.as_ref())
            || holds(&self.groups, record.origin.group.as_ref())
            || holds(&self.queues, record.placement.queue.as_ref())
    }
}

/// What jobs cost at a site. A VO's charter says by which rule its own jobs are charged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Charging {
    /// The rule of accounts that belong to no VO.
    pub local_rule: ChargingRule,
    /// The discounts of accounts that belong to no VO.
    pub local_discounts: Discounts,
    /// Machine classes and queue costs.
    pub prices: Arc<PriceList>,
    /// Which class a machine is of, by its name; the first pattern that holds decides.
    pub hosts: Vec<(Pattern, String)>,
}

impl Charging {
    /// The class of a machine that a report names, by the class's own name or by the machine's.
    /// `None` where nothing was said about machines, or nothing can be known of them.
    pub fn class_of<'a>(&'a self, machine: Option<&'a str>) -> Option<&'a str> {
        let machine = machine?;
        if self.prices.machines.contains_key(machine) {
            return Some(machine);
        }
        let known = self.hosts.iter().find(|(host, _)| host.holds(machine));
        match known {
            Some((_, class)) => Some(class),
            // Without patterns names of machines mean nothing here; with them, this one is a gap.
            None => (!self.hosts.is_empty()).then_some(machine),
        }
    }
}

/// Intervals of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Shortest time between two heads of one VO: bounds heads a site signs, against how stale
    /// others are.
    pub publish: Millis,
    /// Longest time between two heads, so that others can tell silence from idleness.
    pub heartbeat: Millis,
    /// Between two probes of peers.
    pub sync: Millis,
    /// After which a request counts as lost.
    pub request_timeout: Millis,
    /// How far ahead another site's clock may be.
    pub clock_tolerance: Millis,
    /// After which what a silent site's running jobs are expected to use no longer counts.
    pub silence: Millis,
    /// Entries of the share tree that are recomputed in one step when windows move on: bounds how
    /// long one event can take.
    pub sweep_entries: usize,
    /// Entries of a share tree that is built at once when documents change; a larger one is built beside the
    /// site, and the tree before it answers meanwhile. Bounds how long one event can take, too.
    pub build_entries: usize,
}

impl Timing {
    /// Those of the anti-entropy.
    pub(crate) fn intervals(&self) -> Intervals {
        Intervals {
            sync: self.sync,
            request_timeout: self.request_timeout,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            publish: Millis::from_secs(10),
            heartbeat: Millis::from_secs(120),
            sync: Millis::from_secs(10),
            request_timeout: Millis::from_secs(20),
            clock_tolerance: Millis::from_secs(300),
            silence: Millis::from_secs(600),
            sweep_entries: 8_192,
            // A microsecond each: less than it takes to begin with something else.
            build_entries: 1_024,
        }
    }
}
