//! What a site's owner decides: shares, histories, prices, and who is who.
//!
//! Deliberately not here: what its VOs decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, Date, Distance, HistoryRule, Scope, Share, ShareRule, VoId, Weight, WindowLength,
};
use fairmesh_policy::{Mount, SiteEntry, SitePolicy};
use fairmesh_site::{
    Account, AdvertRules, Charging, IdentityMap, OwnerQuota, Pattern, People, Person, Rule,
    SiteConfig, Timing,
};

use super::{Vo, a_quarter_more, machines, path, site_id};

/// Sites that every configuration names as introducers, at most: enough to get a first charter.
const INTRODUCERS_MAX: usize = 16;

/// What a site's owner decides, for sites that are alike.
#[derive(Debug, Clone)]
pub struct OwnerSpec {
    /// What each VO weighs.
    pub vo_share: Weight,
    /// Whether he halves what the first VO that he mounts weighs, caps the second one at a tenth, and so on.
    pub weighs: bool,
    /// Whether each VO may have a quarter more than its share at most.
    pub limits: bool,
    /// Whether the VOs are mounted below one entry, by which each is measured by what it used at all members.
    pub together: bool,
    /// How far entries of the owner's are from their targets, where he says it.
    pub distance: Option<Distance>,
    /// What `/local` weighs; its jobs have the batch account `local`.
    pub local_share: Weight,
    /// Whether `/local` is divided among some of its accounts.
    pub divides: bool,
    /// What accounts without a line weigh together, at each level of his, where he says it.
    pub others: Option<Weight>,
    /// Whether `/local` is now called `/own`, and what was `/legacy` before is a part of it.
    pub renamed: bool,
    /// The first day of which usage of `/local` counts, and of the first VO here.
    pub since: Option<Date>,
    /// How local usage is weighed by its age.
    pub local_history: HistoryRule,
    /// Windows of local usage.
    pub local_window: WindowLength,
    /// How local accounts are charged.
    pub charging: Charging,
    /// Classes of machines that each site has; none at 0.
    pub machine_classes: usize,
    /// Which identity rules come before the usual ones ([`Relabel`]).
    pub relabel: Relabel,
    /// Whether accounts with nothing left of a VO's quota stand after all others.
    pub bands: bool,
    /// What VOs learn of free CPUs.
    pub advert: Option<AdvertRules>,
    /// How often.
    pub timing: Timing,
}

/// Who is who, beside the usual rule that a VO's job belongs to its group and user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Relabel {
    /// Nobody else.
    #[default]
    Usual,
    /// What `u0` uses counts for his group.
    UserToGroup,
    /// Users of the group `g1` are those of `g0`.
    GroupToGroup,
    /// Those with a Grid identity are known by it.
    Subjects,
    /// The owner lists some people, one of whom has a local user and a Grid identity that pay for two accounts; of
    /// others what runs in the queue `long` counts for that queue of their group.
    People,
}

impl Relabel {
    /// Another one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Usual => Self::UserToGroup,
            Self::UserToGroup => Self::People,
            Self::People => Self::GroupToGroup,
            Self::GroupToGroup => Self::Subjects,
            Self::Subjects => Self::Usual,
        }
    }

    /// Rows of the people map.
    fn people(self, vo: VoId) -> Vec<Person> {
        let person = |subject: Option<&str>, user: Option<&str>, at: &str| Person {
            user: user.map(Into::into),
            subject: subject.map(Into::into),
            account: Account {
                vo: Some(vo),
                path: path(at),
            },
        };
        match self {
            Self::People => vec![
                person(None, Some("u0"), "/g0/u0"),
                person(Some("/O=grid/CN=u0"), None, "/g0/ann"),
            ],
            _ => Vec::new(),
        }
    }

    pub(super) fn rule(self, vo: &Vo) -> Option<Rule> {
        let rule = Rule {
            account: Some(Pattern::parse(&vo.spec.name)),
            vo: Some(vo.id),
            ..Rule::default()
        };
        Some(match self {
            Self::Usual => return None,
            Self::UserToGroup => Rule {
                user: Some(Pattern::parse("u0")),
                path: "/{group}".to_owned(),
                ..rule
            },
            Self::People => Rule {
                queue: Some(Pattern::parse("long")),
                path: "/{group}/long".to_owned(),
                ..rule
            },
            Self::GroupToGroup => Rule {
                group: Some(Pattern::parse("g1")),
                path: "/g0/{user}".to_owned(),
                ..rule
            },
            Self::Subjects => Rule {
                subject: Some(Pattern::parse("/O=grid/*")),
                path: "/g0/{subject}".to_owned(),
                ..rule
            },
        })
    }
}

impl Default for OwnerSpec {
    fn default() -> Self {
        Self {
            vo_share: Weight::whole(30),
            weighs: false,
            local_share: Weight::whole(10),
            divides: false,
            others: None,
            renamed: false,
            since: None,
            local_history: HistoryRule::None { horizon: 30 * 24 },
            local_window: WindowLength::HOUR,
            charging: Charging::default(),
            machine_classes: 0,
            limits: false,
            together: false,
            distance: None,
            relabel: Relabel::Usual,
            bands: false,
            advert: None,
            timing: Timing::default(),
        }
    }
}

/// The configuration of site `site`: it mounts those of `vos` that it is a member of.
pub fn site_config(site: usize, vos: &[Vo], owner: &OwnerSpec) -> SiteConfig {
    let mine = |vo: &&Vo| vo.spec.members.iter().any(|(member, _)| *member == site);
    let mine: Vec<&Vo> = vos.iter().filter(mine).collect();
    let mut config = mounting(&mine, owner);
    if owner.machine_classes > 0 {
        let (prices, hosts) = machines::of_site(site, owner.machine_classes);
        config.charging.prices = Arc::new(prices);
        config.charging.hosts = hosts;
    }
    config
}

/// A configuration that mounts all of `vos` at `/<name>`, or below one entry.
pub fn mounting(vos: &[&Vo], owner: &OwnerSpec) -> SiteConfig {
    let mut rules = vec![Rule {
        account: Some(Pattern::parse("local")),
        path: "/local/{group}/{user}".to_owned(),
        ..Rule::default()
    }];
    if owner.renamed {
        rules.push(Rule {
            account: Some(Pattern::parse("nobody")),
            path: "/legacy/{group}/{user}".to_owned(),
            ..Rule::default()
        });
    }
    let mut introducers = BTreeSet::new();
    for vo in vos {
        rules.extend(owner.relabel.rule(vo));
        rules.push(Rule {
            account: Some(Pattern::parse(&vo.spec.name)),
            vo: Some(vo.id),
            path: vo.spec.job_path.clone(),
            ..Rule::default()
        });
        let first = vo.spec.members.iter().take(INTRODUCERS_MAX);
        introducers.extend(first.map(|(member, _)| site_id(*member)));
    }
    let mut people = People::default();
    // A person belongs to one VO here: the rows are those of the first.
    for person in vos
        .first()
        .map_or(Vec::new(), |vo| owner.relabel.people(vo.id))
    {
        people.insert(person).expect("each word stands in one row");
    }
    SiteConfig {
        share_rule: ShareRule::Weights,
        policy: SitePolicy::new(tree(vos, owner)).expect("VOs beside VOs, without repeats"),
        vos: vos.iter().map(|vo| (vo.spec.name.clone(), vo.id)).collect(),
        identity: IdentityMap::with_people(rules, people),
        introducers,
        advert: owner.advert.clone(),
        forward: None,
        quotas: quotas(vos, owner),
        local_history: owner.local_history,
        local_window: owner.local_window,
        charging: owner.charging.clone(),
        timing: owner.timing,
    }
}

/// What the owner says of VOs' quotas.
fn quotas(vos: &[&Vo], owner: &OwnerSpec) -> BTreeMap<VoId, OwnerQuota> {
    let bands = OwnerQuota {
        bands: true,
        ..OwnerQuota::default()
    };
    let of_vos = vos.iter().filter(|_| owner.bands);
    of_vos.map(|vo| (vo.id, bands.clone())).collect()
}

fn tree(vos: &[&Vo], owner: &OwnerSpec) -> BTreeMap<AccountPath, SiteEntry> {
    let mut entries = own_entries(owner);
    let above = if owner.together { "/vos" } else { "" };
    if owner.together {
        let together = SiteEntry {
            usage: Some(Scope::Global),
            ..SiteEntry::local(Weight::whole(80))
        };
        entries.insert(path(above), together);
    }
    if owner.distance.is_some() {
        let root = SiteEntry {
            distance: owner.distance,
            ..SiteEntry::local(Weight::HUNDRED)
        };
        entries.insert(AccountPath::root(), root);
    }
    for (index, vo) in vos.iter().enumerate() {
        let name = &vo.spec.name;
        let mut mount = SiteEntry::mounted(owner.vo_share, name);
        if owner.limits {
            let of_vos = vos.len() as u64 * owner.vo_share.units();
            let all = owner.local_share.units() + of_vos;
            mount.at_most = a_quarter_more(owner.vo_share.units(), all);
        }
        if let Some(limits) = mount.mount.as_mut().filter(|_| owner.weighs) {
            weigh(limits, index);
        }
        mount.since = owner.since.filter(|_| index == 0);
        entries.insert(path(&format!("{above}/{name}")), mount);
    }
    entries
}

/// Those that are nobody's but the owner's.
fn own_entries(owner: &OwnerSpec) -> BTreeMap<AccountPath, SiteEntry> {
    let at = if owner.renamed { "/own" } else { "/local" };
    let was = ["/local", "/legacy"].into_iter().map(path);
    let local = SiteEntry {
        since: owner.since,
        was: was.filter(|_| owner.renamed).collect(),
        ..SiteEntry::local(owner.local_share)
    };
    let mut entries = BTreeMap::from([(path(at), local)]);
    if owner.divides {
        for (below, weight) in [("g0", 3), ("g0/u0", 0), ("g0/u1", 1)] {
            let entry = SiteEntry::local(Weight::whole(weight));
            entries.insert(path(&format!("{at}/{below}")), entry);
        }
    }
    if let Some(others) = owner.others {
        let divided = if owner.divides { at } else { "" };
        for above in BTreeSet::from(["", divided]) {
            let entry = SiteEntry::local(others);
            entries.insert(path(&format!("{above}/*")), entry);
        }
    }
    entries
}

/// How the owner limits the VO that he mounts at that place in the list.
fn weigh(mount: &mut Mount, index: usize) {
    let percent = Share::from_percent;
    match index {
        0 => mount.weight = percent(50),
        1 => mount.cap = percent(10),
        _ => (mount.weight, mount.cap) = (percent(75), percent(30)),
    }
}
