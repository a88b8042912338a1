//! Fair Tree written anew from Slurm's manual and what its program does with `parent`, on a tree as Slurm has it; and
//! random trees for it.
//!
//! Deliberately not here: entries and rules, of which it knows nothing.

use std::cmp::Ordering;

use super::assoc::{self, Assoc, Fairshare};

/// A random list, and what each user's association has used, in the order of `assoc::parse`.
pub(super) struct RandomTree {
    pub(super) listed: String,
    pub(super) charges: Vec<u64>,
}

/// A small generator (xorshift).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: u64) -> u64 {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left {
                self.0 << shift
            } else {
                self.0 >> shift
            };
        }
        self.0 % most
    }

    /// Few weights and charges, so that ties are common; a sixth of all `parent`, and one 0 at most: two that are 0 tie
    /// in Slurm, where here the one that used less goes first.
    fn share(&mut self, zeros: &mut u32) -> String {
        match self.below(12) {
            0 | 1 => "parent".to_owned(),
            2 if *zeros > 0 => {
                *zeros -= 1;
                "0".to_owned()
            }
            _ => (1 + self.below(4)).to_string(),
        }
    }

    pub(super) fn tree(mut self) -> RandomTree {
        let mut listed = "root|||1|\n".to_owned();
        let mut zeros = 1;
        let name = |account: u64| match account {
            0 => "root".to_owned(),
            account => format!("a{account}"),
        };
        for account in 0..=self.below(9) {
            if account > 0 {
                let (above, share) = (name(self.below(account)), self.share(&mut zeros));
                listed.push_str(&format!("{}|{above}||{share}|\n", name(account)));
            }
            for user in 0..self.below(4) {
                let share = self.share(&mut zeros);
                let partition = ["", "", "debug"][usize::try_from(self.below(3)).expect("small")];
                listed.push_str(&format!("{}||u{user}|{share}|{partition}\n", name(account)));
            }
        }
        let is_user = |line: &&str| line.split('|').nth(2).is_some_and(|user| !user.is_empty());
        let users = listed.lines().filter(is_user).count();
        let charges = (0..users).map(|_| self.below(5) * 60).collect();
        RandomTree { listed, charges }
    }
}

/// A level fairshare: share by usage, among siblings.
#[derive(Clone, Copy)]
enum Level {
    Zero,
    Ratio(u128, u128),
    Infinite,
}

impl Level {
    fn compare(self, other: Self) -> Ordering {
        let kind = |level: Self| match level {
            Self::Zero => 0,
            Self::Ratio(..) => 1,
            Self::Infinite => 2,
        };
        match (self, other) {
            (Self::Ratio(a, b), Self::Ratio(c, d)) => (a * d).cmp(&(c * b)),
            _ => kind(self).cmp(&kind(other)),
        }
    }
}

struct Walk<'a> {
    rows: &'a [Assoc<'a>],
    usage: Vec<u64>,
    /// For each row with children, those; the last is for the root, which may have no row.
    children: Vec<Vec<usize>>,
    ranks: Vec<Option<usize>>,
    ahead: usize,
    /// Whether accounts that tie exactly have users with `parent`. The manual merges such accounts, Slurm's program never
    /// does, and here what these users used is none of the merged siblings'.
    merges_parents: bool,
}

impl RandomTree {
    /// Compares the ranks of users' associations with those of the oracle, and gives whether there was something to compare.
    pub(super) fn check(&self, ours: &[u32], seed: u64) -> bool {
        let listing = assoc::parse(&self.listed, "random").expect("a list");
        let Some(theirs) = self.ranks(&listing.associations) else {
            return false;
        };
        for (one, (mine, his)) in ours.iter().zip(&theirs).enumerate() {
            for (other, (my_other, his_other)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(
                    mine.cmp(my_other),
                    his.cmp(his_other),
                    "seed {seed}: users {one} and {other} of\n{}with {:?}: ours {ours:?}, Slurm's {theirs:?}",
                    self.listed,
                    self.charges
                );
            }
        }
        ours.len() > 1
    }

    fn ranks(&self, rows: &[Assoc<'_>]) -> Option<Vec<usize>> {
        let root = rows.len();
        let row_of = |account: &str| {
            let mut accounts = rows
                .iter()
                .position(|row| row.user.is_none() && row.account == account);
            accounts
                .take()
                .filter(|_| account != "root")
                .unwrap_or(root)
        };
        let above = |at: usize| match &rows[at].user {
            Some(_) => row_of(&rows[at].account),
            None => row_of(&rows[at].parent),
        };
        let mut walk = Walk {
            rows,
            usage: vec![0; rows.len() + 1],
            children: vec![Vec::new(); rows.len() + 1],
            ranks: vec![None; rows.len()],
            ahead: 0,
            merges_parents: false,
        };
        let mut charges = self.charges.iter();
        for at in 0..rows.len() {
            if rows[at].user.is_none() && rows[at].account == "root" {
                continue;
            }
            if rows[at].user.is_some() {
                let charge = charges.next().expect("a charge");
                let mut place = at;
                loop {
                    walk.usage[place] += charge;
                    if place == root {
                        break;
                    }
                    place = above(place);
                }
            }
            let mut parent = above(at);
            while parent != root && rows[parent].fairshare == Fairshare::Parent {
                parent = above(parent);
            }
            let is_gone = rows[at].user.is_none() && rows[at].fairshare == Fairshare::Parent;
            if !is_gone {
                walk.children[parent].push(at);
            }
        }
        let first = walk.children[root].iter().map(|at| (*at, root)).collect();
        walk.visit(first, None);
        (!walk.merges_parents).then(|| walk.ranks.into_iter().flatten().collect())
    }
}

impl Walk<'_> {
    fn level(&self, at: usize, above: usize) -> Level {
        let all = self.children[above]
            .iter()
            .map(|at| match self.rows[*at].fairshare {
                Fairshare::Shares(shares) => u128::from(shares),
                Fairshare::Parent => 0,
            });
        match (self.rows[at].fairshare, self.usage[at]) {
            (Fairshare::Parent, _) => Level::Infinite,
            (Fairshare::Shares(0), _) => Level::Zero,
            (Fairshare::Shares(_), 0) => Level::Infinite,
            (Fairshare::Shares(shares), used) => Level::Ratio(
                u128::from(shares) * u128::from(self.usage[above]),
                all.sum::<u128>() * u128::from(used),
            ),
        }
    }

    /// Ranks siblings, or those of tied accounts, each with the account it is in. `tied` is the rank of a user that is
    /// tied with the account above.
    fn visit(&mut self, mut list: Vec<(usize, usize)>, mut tied: Option<usize>) {
        list.sort_by(|a, b| self.level(b.0, b.1).compare(self.level(a.0, a.1)));
        while !list.is_empty() {
            let level = self.level(list[0].0, list[0].1);
            let same = list
                .iter()
                .take_while(|it| self.level(it.0, it.1).compare(level).is_eq());
            let rest = list.split_off(same.count());
            let (users, accounts): (Vec<_>, Vec<_>) =
                list.iter().partition(|it| self.rows[it.0].user.is_some());
            let given = tied.take();
            let rank = given.unwrap_or(self.ahead);
            for (user, _) in &users {
                self.ranks[*user] = Some(rank);
            }
            self.ahead += users.len();
            let below = accounts.iter().flat_map(|(account, _)| {
                let children = self.children[*account].iter();
                children.map(move |child| (*child, *account))
            });
            let below: Vec<_> = below.collect();
            let is_parent = |it: &(usize, usize)| self.rows[it.0].fairshare == Fairshare::Parent;
            self.merges_parents |= accounts.len() > 1 && below.iter().any(is_parent);
            self.visit(below, if users.is_empty() { given } else { Some(rank) });
            list = rest;
        }
    }
}
