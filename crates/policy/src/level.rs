//! How the entries of a level are compared, as the entries above it say.
//!
//! Invariant: an entry's word holds for the level right below it and for those further down until another
//! entry says otherwise, whichever came first; so the entries of one level are always compared alike.
//! Deliberately not here: which entries may say what (`site_policy`, `fairmesh_model::SharePolicy`).

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Distance, Scope, mutant};

/// How the entries of one level are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelRule {
    /// Whether usage of this site or of all sites counts.
    pub scope: Scope,
    /// How far they are from their targets.
    pub distance: Distance,
}

/// What the entries of one tree say of the levels below them.
#[derive(Debug)]
pub(crate) struct Levels {
    unsaid: LevelRule,
    usage: BTreeMap<AccountPath, Scope>,
    distance: BTreeMap<AccountPath, Distance>,
}

impl LevelRule {
    /// How an owner compares where he says nothing.
    pub(crate) const OWNERS: Self = Self {
        scope: Scope::Local,
        distance: Distance::Absolute,
    };

    /// How a VO does, under a charter with this distance.
    pub(crate) const fn of_vo(distance: Distance) -> Self {
        Self {
            scope: Scope::Global,
            distance,
        }
    }
}

impl Levels {
    /// Nobody has said anything: `unsaid` holds everywhere.
    pub(crate) const fn new(unsaid: LevelRule) -> Self {
        Self {
            unsaid,
            usage: BTreeMap::new(),
            distance: BTreeMap::new(),
        }
    }

    /// Takes note of what the entry at `path` says.
    pub(crate) fn say(
        &mut self,
        path: impl FnOnce() -> AccountPath,
        usage: Option<Scope>,
        distance: Option<Distance>,
    ) {
        if usage.is_none() && distance.is_none() {
            return;
        }
        let path = path();
        if let Some(usage) = usage {
            self.usage.insert(path.clone(), usage);
        }
        if let Some(distance) = distance {
            self.distance.insert(path, distance);
        }
    }

    /// How the entry at `path` is compared with its siblings.
    pub(crate) fn rule_of(&self, path: &AccountPath) -> LevelRule {
        let scope = nearest(&self.usage, path).unwrap_or(self.unsaid.scope);
        let distance = nearest(&self.distance, path).unwrap_or(self.unsaid.distance);
        LevelRule {
            scope: mutant!(LocalLevelsGlobal, scope, self.unsaid.scope),
            distance: mutant!(LevelDistanceIgnored, distance, self.unsaid.distance),
        }
    }
}

/// What the nearest entry above `path` says. Most trees say nothing: then no path is looked up.
fn nearest<T: Copy>(said: &BTreeMap<AccountPath, T>, path: &AccountPath) -> Option<T> {
    if said.is_empty() {
        return None;
    }
    let first = mutant!(RuleOnOwnLevel, path.parent(), Some(path.clone()));
    let above = std::iter::successors(first, AccountPath::parent);
    let levels = mutant!(LevelsNotInherited, usize::MAX, 1);
    above
        .take(levels)
        .find_map(|above| said.get(&above).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::path;

    #[test]
    fn the_nearest_entry_above_decides() {
        let mut levels = Levels::new(LevelRule::of_vo(Distance::Absolute));
        let mut say = |at: &str, usage, distance| levels.say(|| path(at), usage, distance);
        say("/", None, Some(Distance::Relative));
        say("/a", Some(Scope::Local), None);
        say("/a/b", Some(Scope::Global), Some(Distance::Absolute));
        let rows = [
            ("/x", Scope::Global, Distance::Relative),
            ("/a", Scope::Global, Distance::Relative),
            ("/a/x", Scope::Local, Distance::Relative),
            ("/a/x/y/z", Scope::Local, Distance::Relative),
            ("/a/b", Scope::Local, Distance::Relative),
            ("/a/b/x", Scope::Global, Distance::Absolute),
            ("/a/b/x/y", Scope::Global, Distance::Absolute),
            ("/a-b/x", Scope::Global, Distance::Relative),
        ];
        for (at, scope, distance) in rows {
            let expected = LevelRule { scope, distance };
            assert_eq!(levels.rule_of(&path(at)), expected, "{at}");
        }
    }
}
