//! The tree of targets at a site, from the owner's decisions and the documents in force.
//!
//! Invariant: the owner's entries stand as he wrote them, each VO's tree stands where he mounts it,
//! and what a policy delegates is divided by the newest policy of that path. A VO of which no charter
//! is held stays undivided, and is nobody's mount. Each level is compared as the entry above it says, or else
//! as that one is compared itself; a mount's as the charter says, unless the VO's own policy does. Every entry that
//! has children has a child `*`: its usage is that of all accounts that no line covers.
//! Deliberately not here: where usage of an account counts (`place`).
//! Source: FSGrid (Elmroth and Gardfjäll, 2005).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, Charter, Date, Distance, PolicyMount, Scope, Share, ShareEntry, SharePolicy,
    ShareRule, VoId, Weight,
};
use num_rational::BigRational;

use super::cost::ratio;
use super::owner::Owner;

/// What a site holds of a VO, newest versions only.
#[derive(Debug, Clone)]
pub struct Held<'a> {
    /// The charter in force.
    pub charter: &'a Charter,
    /// The policy in force of each path.
    pub policies: BTreeMap<&'a AccountPath, &'a SharePolicy>,
}

/// Entries by their former paths.
#[derive(Debug, Clone, Default)]
pub struct Former {
    pub(super) entries: BTreeMap<AccountPath, AccountPath>,
}

impl Former {
    /// An entry says which paths it had. Of two that claim one the lower keeps it.
    pub fn claim(&mut self, entry: &AccountPath, was: impl Iterator<Item = AccountPath>) {
        for was in was {
            let known = self.entries.entry(was).or_insert_with(|| entry.clone());
            if entry < known {
                *known = entry.clone();
            }
        }
    }
}

/// By whose usage an entry is compared with its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This site's.
    Here,
    /// That of the members of the VO that it belongs to.
    Members(VoId),
    /// What the VO that is mounted on it, if one is, has used at all members, of what all those that are mounted
    /// beside it have.
    Vos(Option<VoId>),
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What it weighs among its siblings; as published, its part of its parent.
    pub weight: BigRational,
    /// The most that it may have of it before all others of its level go first.
    pub at_most: Share,
    /// By whose usage it is compared with its siblings.
    pub whose: Whose,
    /// How far it is from its target is measured so.
    pub distance: Distance,
    /// Usage of days before counts neither at its level nor below it.
    pub since: Option<Date>,
    /// Whether it is a `*` that nobody wrote.
    pub is_implied: bool,
}

/// What an entry says of the levels below it, if anything.
#[derive(Debug, Clone, Copy, Default)]
struct Says {
    usage: Option<Scope>,
    distance: Option<Distance>,
    /// The VO whose tree begins below it, and how that compares where its policy does not say.
    mounts: Option<(VoId, Distance)>,
}

/// How a level is compared: for which VO, if it is in one's tree.
#[derive(Debug, Clone, Copy)]
struct Rule {
    vo: Option<VoId>,
    usage: Scope,
    distance: Distance,
}

/// The tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// How shares are read.
    pub rule: ShareRule,
    /// All entries but the root.
    pub targets: BTreeMap<AccountPath, Target>,
    /// Where VOs are mounted.
    pub mounts: BTreeMap<VoId, AccountPath>,
    /// Former paths of entries, those that are void too.
    pub former: Former,
}

impl Target {
    /// An entry of which nobody has said yet how it is compared.
    pub fn new(weight: BigRational, at_most: Share, since: Option<Date>) -> Self {
        Self {
            weight,
            at_most,
            whose: Whose::Here,
            distance: Distance::Absolute,
            since,
            is_implied: false,
        }
    }

    fn of(entry: &ShareEntry) -> Self {
        let at_most = entry.at_most.unwrap_or(Share::WHOLE);
        Self::new(parts(entry.share), at_most, entry.since)
    }
}

/// A weight as a number.
pub fn parts(weight: Weight) -> BigRational {
    ratio(weight.units(), Weight::ONE)
}

impl Tree {
    /// The tree of an owner who holds these documents, and `read` those of VOs that he takes no part in.
    pub fn of(
        owner: &Owner,
        known: &BTreeMap<VoId, Held<'_>>,
        read: &BTreeMap<VoId, Held<'_>>,
    ) -> Self {
        let mut tree = Self::default();
        let mut said = BTreeMap::new();
        let weights = owner.weights();
        for entry in &owner.entries {
            if !entry.path.is_root() {
                let weight = weights[&entry.path].clone();
                let target = Target::new(weight, entry.at_most, entry.since);
                tree.targets.insert(entry.path.clone(), target);
                tree.former.claim(&entry.path, entry.was.iter().cloned());
            }
            let mut says = Says {
                usage: entry.usage,
                distance: entry.distance,
                mounts: None,
            };
            let vo = entry.vo.and_then(|vo| Some((vo, known.get(&vo)?)));
            if let Some((vo, held)) = vo {
                tree.mounts.insert(vo, entry.path.clone());
                for (at, entry_of) in held_entries(held) {
                    let Ok(path) = entry.path.join(&at) else {
                        continue;
                    };
                    let mut says = said_by(&entry_of);
                    let was = entry_of.was.iter();
                    let was = was.filter_map(|was| entry.path.join(was).ok());
                    tree.former.claim(&path, was);
                    if let Some(mount) = &entry_of.mount {
                        let inner = known.get(&mount.vo).or_else(|| read.get(&mount.vo));
                        let inner = inner.filter(|inner| inner.charter.readers.contains(&vo));
                        if let Some(inner) = inner {
                            says = tree.divide((vo, inner), mount, &path, &mut said);
                        }
                    }
                    said.insert(path.clone(), says);
                    tree.targets.insert(path, Target::of(&entry_of));
                }
                let root = held.policies.get(&AccountPath::root());
                says = Says {
                    usage: root.and_then(|root| root.usage),
                    distance: root.and_then(|root| root.distance),
                    mounts: Some((vo, held.charter.distance)),
                };
            }
            said.insert(entry.path.clone(), says);
        }
        tree.add_others();
        tree.compare(&said);
        tree
    }

    /// Puts a `*` that weighs nothing below each entry that has children and none.
    pub fn add_others(&mut self) {
        let divided: BTreeSet<AccountPath> = self
            .targets
            .keys()
            .filter_map(AccountPath::parent)
            .collect();
        let others = divided.iter().filter_map(AccountPath::others);
        for others in others.collect::<Vec<_>>() {
            self.targets.entry(others).or_insert_with(|| Target {
                is_implied: true,
                ..Target::new(ratio(0, 1), Share::WHOLE, None)
            });
        }
    }

    /// Puts the parts of an entry of another VO's tree below an entry that mounts it. Says how the level below that
    /// is compared: by usage of the VO that it is in, and else as it is in the other VO.
    fn divide(
        &mut self,
        (vo, inner): (VoId, &Held<'_>),
        mount: &PolicyMount,
        at: &AccountPath,
        said: &mut BTreeMap<AccountPath, Says>,
    ) -> Says {
        let entries = held_entries(inner);
        for (path, entry) in &entries {
            let below = path.relative_to(&mount.path);
            let Some(below) = below.filter(|below| !below.is_root()) else {
                continue;
            };
            if let Ok(place) = at.join(&below) {
                let was = entry.was.iter();
                let was = was.filter_map(|was| at.join(&was.relative_to(&mount.path)?).ok());
                self.former.claim(&place, was);
                said.insert(place.clone(), said_by(entry));
                self.targets.insert(place, Target::of(entry));
            }
        }
        let root = inner.policies.get(&AccountPath::root());
        let mut rule = Rule {
            vo: Some(vo),
            usage: root.and_then(|root| root.usage).unwrap_or(Scope::Global),
            distance: root
                .and_then(|root| root.distance)
                .unwrap_or(inner.charter.distance),
        };
        for (path, entry) in &entries {
            if mount.path.starts_with(path) {
                rule = rule.below(Some(&said_by(entry)));
            }
        }
        Says {
            usage: Some(rule.usage),
            distance: Some(rule.distance),
            mounts: None,
        }
    }

    /// From the root down, parents before children, as their paths are sorted.
    fn compare(&mut self, said: &BTreeMap<AccountPath, Says>) {
        let owners = Rule {
            vo: None,
            usage: Scope::Local,
            distance: Distance::Absolute,
        };
        let root = AccountPath::root();
        let mut below = BTreeMap::from([(root.clone(), owners.below(said.get(&root)))]);
        for (path, target) in &mut self.targets {
            let rule: Rule = below[&path.parent().expect("the root is no entry")];
            let says = said.get(path);
            let mounted = says.and_then(|says| says.mounts).map(|(vo, _)| vo);
            target.distance = rule.distance;
            target.whose = match (rule.usage, rule.vo) {
                (Scope::Local, _) => Whose::Here,
                (Scope::Global, Some(vo)) => Whose::Members(vo),
                (Scope::Global, None) => Whose::Vos(mounted),
            };
            below.insert(path.clone(), rule.below(says));
        }
    }
}

impl Rule {
    /// How the level below an entry of a level with this rule is compared.
    fn below(self, says: Option<&Says>) -> Self {
        let says = says.copied().unwrap_or_default();
        let above = says.mounts.map_or(self, |(vo, distance)| Self {
            vo: Some(vo),
            usage: Scope::Global,
            distance,
        });
        Self {
            vo: above.vo,
            usage: says.usage.unwrap_or(above.usage),
            distance: says.distance.unwrap_or(above.distance),
        }
    }
}

/// What an entry of a policy says.
fn said_by(entry: &ShareEntry) -> Says {
    Says {
        usage: entry.usage,
        distance: entry.distance,
        mounts: None,
    }
}

/// All entries of a VO's tree, parents before children, those of delegated parts too. Former paths are those of
/// the VO's tree.
fn held_entries(held: &Held<'_>) -> BTreeMap<AccountPath, ShareEntry> {
    let mut entries = BTreeMap::new();
    let mut divided = vec![AccountPath::root()];
    while let Some(above) = divided.pop() {
        let policy = held.policies.get(&above).into_iter();
        for (below, entry) in policy.flat_map(|policy| &policy.shares) {
            let Ok(path) = above.join(below) else {
                continue;
            };
            if entry.delegate.is_some() {
                divided.push(path.clone());
            }
            let was = entry.was.iter().filter_map(|was| above.join(was).ok());
            let was = was.collect();
            entries.insert(
                path,
                ShareEntry {
                    was,
                    ..entry.clone()
                },
            );
        }
    }
    entries
}
