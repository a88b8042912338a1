//! Slurm's Fair Tree, as its manual documents it, for sites that migrate.
//!
//! `LF = S / U`, with share and usage normalised among siblings; infinite without usage, as the
//! manual says (even for a share of zero). Children are sorted by LF and visited depth first; users
//! (entries with nothing below) are ranked as they are found, and the factor is rank / users.
//! Ties, by the manual: tied users share a rank; tied accounts have their children merged into one
//! list; a user tied with an account gets the rank of the account's first user. (Slurm's code never
//! merges tied accounts although its manual says so; this follows the manual.)
//! An account itself ranks as the first of its users would. Siblings over their limits, which Slurm does not
//! have, come behind all others. Source: Slurm, `fair_tree.html`.

use std::cmp::Ordering;

use ethnum::U256;
use fairmesh_model::{Scope, Share};

use super::{Context, Priority, Projection, fraction, units_of};
use crate::deviation::DeviationVector;
use crate::ratio;
use crate::tree::{EntryId, Snapshot};

/// The ranks of one snapshot by Fair Tree: the number of users, less those strictly ahead.
#[derive(Debug, Clone)]
pub struct FairTreeProjection {
    ranks: Vec<u32>,
    users: u32,
}

/// Level fairshare as a fraction; a denominator of 0 is infinity.
#[derive(Clone, Copy)]
struct LevelFairshare {
    is_over: bool,
    numerator: U256,
    denominator: U256,
}

/// What siblings have together, in each scope.
#[derive(Clone, Copy, Default)]
struct Together {
    shares: u64,
    local: u128,
    global: u128,
}

struct Walk<'a> {
    snapshot: &'a Snapshot,
    level_fairshare: Vec<LevelFairshare>,
    ranks: Vec<u32>,
    users: u32,
    ahead: u32,
}

impl FairTreeProjection {
    /// Ranks all entries of `snapshot`.
    pub fn prepare(snapshot: &Snapshot) -> Self {
        let users = snapshot
            .ids()
            .filter(|entry| snapshot.is_leaf(*entry))
            .count();
        let users = u32::try_from(users).expect("ids are 32 bits");
        let mut walk = Walk {
            snapshot,
            level_fairshare: level_fairshares(snapshot),
            ranks: vec![users; snapshot.entries()],
            users,
            ahead: 0,
        };
        walk.visit(children(snapshot, EntryId::ROOT), None);
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
    fn visit(&mut self, mut list: Vec<EntryId>, tied: Option<u32>) {
        list.sort_by(|a, b| self.lf(*b).compare(self.lf(*a)).then(a.cmp(b)));
        let mut tied = tied;
        let mut rest = &list[..];
        while let Some(first) = rest.first() {
            let same = rest
                .iter()
                .take_while(|entry| self.lf(**entry).compare(self.lf(*first)).is_eq());
            let (group, behind) = rest.split_at(same.count());
            self.visit_group(group, tied.take());
            rest = behind;
        }
    }

    fn visit_group(&mut self, group: &[EntryId], tied: Option<u32>) {
        let rank = tied.unwrap_or(self.users - self.ahead);
        for entry in group {
            self.ranks[entry.index()] = rank;
        }
        let (users, accounts): (Vec<EntryId>, Vec<EntryId>) = group
            .iter()
            .partition(|entry| self.snapshot.is_leaf(**entry));
        self.ahead += u32::try_from(users.len()).expect("ids are 32 bits");
        let merged: Vec<EntryId> = accounts
            .iter()
            .flat_map(|account| children(self.snapshot, *account))
            .collect();
        if !merged.is_empty() {
            let tied = if users.is_empty() { tied } else { Some(rank) };
            self.visit(merged, tied);
        }
    }

    fn lf(&self, entry: EntryId) -> LevelFairshare {
        self.level_fairshare[entry.index()]
    }
}

impl LevelFairshare {
    fn compare(self, other: Self) -> Ordering {
        if self.is_over != other.is_over {
            return other.is_over.cmp(&self.is_over);
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

fn children(snapshot: &Snapshot, entry: EntryId) -> Vec<EntryId> {
    let range = snapshot.topology.subtree(entry);
    let mut children = Vec::new();
    let mut next = range.start + 1;
    while next < range.end {
        children.push(id(next));
        next = snapshot.topology.subtree(id(next)).end;
    }
    children
}

fn level_fairshares(snapshot: &Snapshot) -> Vec<LevelFairshare> {
    let mut together = vec![Together::default(); snapshot.entries()];
    for entry in snapshot.ids().skip(1) {
        let parent = &mut together[snapshot.parent(entry).expect("not the root").index()];
        let sums = snapshot.sums(entry);
        parent.shares += u64::from(snapshot.topology.node(entry).share.units());
        parent.local += sums.local;
        parent.global += sums.global;
    }
    snapshot
        .ids()
        .map(|entry| {
            let node = snapshot.topology.node(entry);
            let parent = together[snapshot.parent(entry).unwrap_or(entry).index()];
            let (usage, all) = match node.scope {
                Scope::Local => (snapshot.sums(entry).local, parent.local),
                Scope::Global => (snapshot.sums(entry).global, parent.global),
            };
            LevelFairshare {
                is_over: snapshot.level(entry).is_over(),
                numerator: U256::from(node.share.units()) * U256::from(all),
                denominator: U256::from(parent.shares.max(1)) * U256::from(usage),
            }
        })
        .collect()
}

fn id(index: usize) -> EntryId {
    EntryId(u32::try_from(index).expect("ids are 32 bits"))
}
