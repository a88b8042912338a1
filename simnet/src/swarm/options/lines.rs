//! The lines of a VO's share tree: who has one, what it weighs, what it was, and since when it counts.
//!
//! Invariant: jobs are those of groups `g0`, `g1` and users `u0`, `u1`, whatever lines there are. So where a user has
//! no line, or one of another name, its usage counts by the rules of others and of former paths. Deliberately not
//! here: how levels are compared (`options`).

use std::collections::BTreeMap;

use fairmesh_cluster::Stream;
use fairmesh_model::{Date, Scope, Share, Weight};
use serde::{Deserialize, Serialize};

use super::VoOptions;
use crate::vo::{DAY, START};
use crate::world::{Action, Day, Parts};

/// What accounts without a line weigh together, where they do.
pub(in crate::swarm) const OTHERS: Weight = Weight::whole(2);

/// What entries of a VO's tree weigh among their siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightsOption {
    /// All the same, as percentages with seven decimals.
    #[default]
    Equal,
    /// Numbers that do not add up to 100.
    Numbers,
    /// Every other one nothing, from the first on.
    Zeros,
}

impl VoOptions {
    pub(crate) fn shares(&self) -> Vec<(String, Weight)> {
        let mut shares = Vec::new();
        let listed = self.users - usize::from(self.unlisted);
        for group in 0..self.groups {
            shares.push((format!("/g{group}"), self.weights.of(group, self.groups)));
            let user = |user| (self.user(group, user), self.weights.of(user, self.users));
            shares.extend((0..listed).map(user));
            if self.others && group % 2 == 0 {
                shares.push((format!("/g{group}/*"), OTHERS));
            }
        }
        if self.others {
            shares.push(("/*".to_owned(), OTHERS));
        }
        shares
    }

    /// The line of a user.
    fn user(&self, group: usize, user: usize) -> String {
        match self.renamed && user == 0 {
            true => format!("/g{group}/first"),
            false => format!("/g{group}/u{user}"),
        }
    }

    /// Former paths of entries.
    pub(in crate::swarm) fn was(&self) -> BTreeMap<String, Vec<String>> {
        let groups = if self.renamed { 0..self.groups } else { 0..0 };
        let was = |group| (self.user(group, 0), vec![format!("/g{group}/u0")]);
        groups.map(was).collect()
    }

    /// From when on usage counts: of the first group since yesterday, of one of its users since today, of one of
    /// another group from tomorrow on.
    pub(in crate::swarm) fn since(&self) -> BTreeMap<String, Date> {
        let last = self.groups - 1;
        let days = [
            ("/g0".to_owned(), start_day(-1)),
            (self.user(0, 0), start_day(0)),
            (self.user(last, 1), start_day(1)),
            ("/*".to_owned(), start_day(0)),
        ];
        let days = days.into_iter().filter(|_| self.periods);
        days.collect()
    }
}

impl WeightsOption {
    /// What one of so many siblings weighs.
    fn of(self, index: usize, siblings: usize) -> Weight {
        const NUMBERS: [u32; 5] = [1, 1_000, 7, 120, 3];
        match self {
            Self::Equal => Share::from_ratio(1, siblings as u64).into(),
            Self::Numbers => Weight::whole(NUMBERS[index % NUMBERS.len()]),
            Self::Zeros if index.is_multiple_of(2) => Weight::ZERO,
            Self::Zeros => Weight::whole(5),
        }
    }
}

/// The day on which simulated time begins, and so many days later.
pub(in crate::swarm) fn start_day(later: i32) -> Date {
    let day = u32::try_from(START.0 / DAY.0).expect("a day");
    Date(day.saturating_add_signed(later))
}

/// Draws what the next version of a VO's policy says: the weights move on by some places, or lines go, move or
/// begin to count on another day.
pub(in crate::swarm) fn next_policy(
    of: &VoOptions,
    vo: String,
    node: usize,
    random: &mut Stream,
) -> Action {
    let lines = of.shares();
    let by = random.index(lines.len());
    let moved = lines.iter().zip(lines.iter().cycle().skip(by));
    let moved = moved.map(|((path, _), (_, weight))| (path.clone(), Parts(*weight)));
    let mut shares: BTreeMap<String, Parts> = moved.collect();
    let usage = random.index(3);
    let mut line = || lines[random.index(lines.len())].0.clone();
    let (first, second) = (line(), line());
    let (mut removed, mut renamed, mut since) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let edit = random.below(8);
    // What is edited would come back if its weight was said, too.
    if edit < 5 && random.below(2) == 0 {
        shares.clear();
    }
    match edit {
        0 => removed.push(first),
        // To another place beside another line, or in place of it.
        1 => drop(renamed.insert(first, format!("{second}x"))),
        2 => drop(renamed.insert(first, second)),
        3 => drop(renamed.insert(first.clone(), format!("{second}/{}", name(&first)))),
        4 => {
            let days = [first, second].map(|line| {
                let later = i32::try_from(random.below(9)).expect("few") - 7;
                (line, Day(start_day(later)))
            });
            since.extend(days);
        }
        5 => drop(shares.insert(first, Parts(Weight::ZERO))),
        _ => {}
    }
    Action::Policy {
        node,
        vo,
        shares,
        usage: [None, Some(Scope::Local), Some(Scope::Global)][usage],
        removed,
        renamed,
        since,
    }
}

fn name(line: &str) -> &str {
    line.rsplit('/').next().unwrap_or(line)
}
