//! Slurm's Fair Tree, as its manual documents it, for sites that migrate.
//!
//! `LF = S / U`, with share and usage normalised among siblings; infinite without usage. Children are sorted by
//! LF and visited depth first; users (entries with nothing below) are ranked as they are found, and the factor
//! is rank / users. A share of zero comes last, the less used first, as in Slurm's `fair_tree.c` (its manual
//! says otherwise of an idle one).
//! Ties, by the manual: tied users share a rank; tied accounts have their children merged into one
//! list; a user tied with an account gets the rank of the account's first user. (Slurm's code never
//! merges tied accounts although its manual says so; this follows the manual.)
//! An account itself ranks as the first of its users would. What Slurm does not have: siblings over their
//! limits come after all others, and the accounts without a line are the users of the entry `*`, with one share
//! each. That entry itself ranks as a user who has used nothing. Source: Slurm, `fair_tree.html`.

use std::cmp::Ordering;

use ethnum::U256;
use fairmesh_model::Share;

use super::{Context, Priority, Projection, fraction, units_of};
use crate::deviation::{Class, DeviationVector};
use crate::ratio;
use crate::tree::{EntryId, EntryKind, Snapshot};

/// The ranks of one snapshot by Fair Tree: the number of users, less those strictly ahead.
#[derive(Debug, Clone)]
pub struct FairTreeProjection {
    ranks: Vec<u32>,
    users: u32,
}

/// Level fairshare as a fraction; a denominator of 0 is infinity.
#[derive(Clone, Copy)]
struct LevelFairshare {
    class: Class,
    numerator: U256,
    denominator: U256,
}

/// An entry in its place among siblings, or among those of merged lists.
#[derive(Clone, Copy)]
struct Item {
    entry: EntryId,
    level_fairshare: LevelFairshare,
    is_user: bool,
}

/// What siblings have together.
#[derive(Clone, Copy, Default)]
struct Together {
    shares: u128,
    usage: u128,
}

struct Walk<'a> {
    snapshot: &'a Snapshot,
    together: Vec<Together>,
    ranks: Vec<u32>,
    users: u32,
    ahead: u32,
}

impl FairTreeProjection {
    /// Ranks all entries of `snapshot`.
    pub fn prepare(snapshot: &Snapshot) -> Self {
        let users = snapshot
            .ids()
            .filter(|entry| ranks_as_user(snapshot, *entry));
        let users = u32::try_from(users.count()).expect("ids are 32 bits");
        let mut walk = Walk {
            snapshot,
            together: together(snapshot),
            ranks: vec![users; snapshot.entries()],
            users,
            ahead: 0,
        };
        walk.visit(walk.children(EntryId::ROOT), None);
        Self {
            ranks: walk.ranks,
            users,
        }
    }

    /// The rank of `entry`, from the number of users (served first) down to 1.
    pub fn rank(&self, entry: EntryId) -> u32 {
        self.ranks[entry.index()]
    }
}

impl Projection for FairTreeProjection {
    fn name(&self) -> &'static str {
        "fairtree"
    }

    /// The rank. The vector is not looked at.
    fn project(&self, _vector: &DeviationVector, context: &Context) -> Priority {
        Priority::whole(u64::from(self.rank(context.entry)))
    }

    fn factor(&self, priority: &Priority, _context: &Context) -> Share {
        fraction(units_of(priority), U256::from(self.users))
    }
}

impl Walk<'_> {
    /// Ranks what is in and below a list of siblings, or of merged lists. `tied` is the rank of a
    /// user that ties with the account (or accounts) whose children these are.
    fn visit(&mut self, mut list: Vec<Item>, tied: Option<u32>) {
        list.sort_by(|a, b| {
            let order = b.level_fairshare.compare(a.level_fairshare);
            order.then(a.entry.cmp(&b.entry))
        });
        let mut tied = tied;
        let mut rest = &list[..];
        while let Some(first) = rest.first() {
            let ties = |item: &&Item| first.level_fairshare.compare(item.level_fairshare).is_eq();
            let same = rest.iter().take_while(ties).count();
            let (group, behind) = rest.split_at(same);
            // An entry `*` that nobody wrote and no account belongs to takes no user's tie.
            let has_users = group
                .iter()
                .any(|item| self.snapshot.is_present(item.entry));
            let tied = tied.take_if(|_| has_users);
            self.visit_group(group, tied);
            rest = behind;
        }
    }

    fn visit_group(&mut self, group: &[Item], tied: Option<u32>) {
        let rank = tied.unwrap_or(self.users - self.ahead);
        for item in group {
            self.ranks[item.entry.index()] = rank;
        }
        let users = group.iter().filter(|item| item.is_user).count();
        self.ahead += u32::try_from(users).expect("ids are 32 bits");
        let accounts = group.iter().filter(|item| !item.is_user);
        let merged: Vec<Item> = accounts
            .flat_map(|item| self.children(item.entry))
            .collect();
        if !merged.is_empty() {
            let tied = if users == 0 { tied } else { Some(rank) };
            self.visit(merged, tied);
        }
    }

    /// The entries below one. Below `*` they are the accounts without a line, and one that has used nothing.
    fn children(&self, entry: EntryId) -> Vec<Item> {
        let children = self.snapshot.all_children(entry).map(|child| Item {
            entry: child,
            level_fairshare: self.level_fairshare(child),
            is_user: self.snapshot.is_leaf(child) && self.snapshot.is_present(child),
        });
        let has_newcomer = self.snapshot.is_others(entry) && self.snapshot.is_present(entry);
        let newcomer = has_newcomer.then_some(Item {
            entry,
            level_fairshare: LevelFairshare::UNUSED,
            is_user: true,
        });
        children.chain(newcomer).collect()
    }

    fn level_fairshare(&self, entry: EntryId) -> LevelFairshare {
        let level = self.snapshot.level(entry);
        let parent = self
            .snapshot
            .parent(entry)
            .expect("the root is nobody's child");
        let together = self.together[parent.index()];
        let (part, _) = level.target.ratio();
        let (share, shares) = match level.class() {
            // One share each: the least used comes first.
            _ if self.snapshot.kind(entry) == EntryKind::Unlisted => (1, 1),
            Class::Last => (1, 1),
            Class::Over | Class::Within => (u128::from(part), together.shares.max(1)),
        };
        LevelFairshare {
            class: level.class(),
            numerator: U256::from(share) * U256::from(together.usage),
            denominator: U256::from(shares) * U256::from(level.usage),
        }
    }
}

impl LevelFairshare {
    /// Of an account without a line that has used nothing.
    const UNUSED: Self = Self {
        class: Class::Within,
        numerator: U256::ONE,
        denominator: U256::ZERO,
    };

    fn compare(self, other: Self) -> Ordering {
        if self.class != other.class {
            return self.class.cmp(&other.class);
        }
        match (
            self.denominator == U256::ZERO,
            other.denominator == U256::ZERO,
        ) {
            (false, false) => ratio::compare(
                (self.numerator, self.denominator),
                (other.numerator, other.denominator),
            ),
            (mine, theirs) => mine.cmp(&theirs),
        }
    }
}

/// Whether an entry has a rank of its own among users: it is a leaf, or the entry `*` with a line or with
/// accounts, as which a new account ranks.
fn ranks_as_user(snapshot: &Snapshot, entry: EntryId) -> bool {
    snapshot.is_present(entry) && (snapshot.is_leaf(entry) || snapshot.is_others(entry))
}

fn together(snapshot: &Snapshot) -> Vec<Together> {
    let mut together = vec![Together::default(); snapshot.entries()];
    for entry in snapshot.ids().skip(1) {
        let parent = snapshot.parent(entry).expect("not the root");
        let level = snapshot.level(entry);
        let sums = &mut together[parent.index()];
        sums.shares += u128::from(level.target.ratio().0);
        sums.usage += level.usage;
    }
    together
}
