//! What becomes of a job that asks, worked out from signed allocations and a site's own counters.
//!
//! Source: docs/quotas.md and the specification of quotas, sections 3 to 6. A site's rights to a slice are what the
//! split gives it, of a part no more than it has passed on of the whole; plus what it took, less what it sent, passed
//! on, used and holds. A job takes live slices that its user may spend, the one that ends first first. What is missing
//! then is for the owner's mode, the allocation's or the VO's (strict) to decide, in that order.
//!
//! Invariant: documents and numbers go in, and nothing of the code under test is called; each bound is worked out
//! again for each question.
//! Deliberately not here: what a site has counted and when it is asked (`check::credit`), and the comparison.

use std::collections::BTreeMap;

use fairmesh_model::{
    AccountPath, Allocation, AllocationId, ContentHash, Factor, Millis, QuotaMode, Settlement,
    Share, SiteId, WallTime,
};

/// A slice: its allocation, and its place in that from 0.
pub type Slice = (AllocationId, u32);

/// The highest price that an owner may ask where an allocation names none.
const PRICE_MAX: u32 = 2 * Factor::UNITS;

/// What a site has counted of a slice, core-milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Taken from other sites.
    pub taken: u128,
    /// Sent to other sites.
    pub sent: u128,
    /// Passed on to each part.
    pub passed: BTreeMap<AllocationId, u64>,
    /// Charged, less what was given back.
    pub used: u64,
    /// Held for jobs.
    pub held: u64,
    /// Charged beyond its rights, less what was settled.
    pub owed: u64,
}

/// A site, when a job asks there.
#[derive(Debug, Clone)]
pub struct Place {
    /// The site.
    pub site: SiteId,
    /// Its clock.
    pub at: WallTime,
    /// Allocations in force there.
    pub allocations: Allocations,
    /// Its counters.
    pub counted: BTreeMap<Slice, Counted>,
    /// What its running jobs may cost beyond what they hold, by account.
    pub promised: BTreeMap<AccountPath, u64>,
    /// Whether it waits for the other members' heads, and spends nothing.
    pub is_frozen: bool,
}

/// A job that asks.
#[derive(Debug, Clone)]
pub struct Job {
    /// Whose.
    pub user: AccountPath,
    /// The account that the user named.
    pub named: Option<AccountPath>,
    /// What it would be charged at the usual price if it ran as long as it may.
    pub charge: u64,
    /// The owner's price at the moment.
    pub asked: Factor,
    /// What importance does not lower the price below.
    pub least: Factor,
    /// Its importance, 0 to 200.
    pub importance: u16,
    /// The owner's mode.
    pub owner: Option<QuotaMode>,
    /// Whether the owner exempts it.
    pub is_exempt: bool,
}

/// What becomes of a job that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// All that it may cost is held.
    Granted,
    /// It runs beyond the quota.
    OverQuota,
    /// No quota holds it.
    Exempt,
    /// It does not run.
    Refused,
}

/// A ruling, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// What becomes of it.
    pub ruling: Ruling,
    /// Whether it is refused whatever rights come.
    pub is_final: bool,
    /// Whose credit it spends.
    pub account: Option<AccountPath>,
    /// What it may cost.
    pub amount: u64,
    /// What there is of that, by slice.
    pub parts: Vec<(Slice, u64)>,
    /// Its price.
    pub price: Factor,
}

/// Allocations in force, each by the terms that count.
#[derive(Debug, Clone, Default)]
pub struct Allocations(BTreeMap<AllocationId, Allocation>);

impl Allocations {
    /// Of each allocation the highest version, of two of one version that with the lower hash. A part goes by the
    /// terms of its whole; one whose whole is not there does not count.
    pub fn new(signed: impl IntoIterator<Item = (ContentHash, Allocation)>) -> Self {
        let mut newest: BTreeMap<AllocationId, (u64, ContentHash, Allocation)> = BTreeMap::new();
        for (hash, body) in signed {
            let id = body.id.unwrap_or_else(|| hash.into());
            let is_newer = newest.get(&id).is_none_or(|(version, known, _)| {
                body.version > *version || body.version == *version && hash < *known
            });
            if is_newer {
                newest.insert(id, (body.version, hash, body));
            }
        }
        let all: BTreeMap<_, _> = newest.into_iter().map(|(id, of)| (id, of.2)).collect();
        let parts = all.iter();
        let in_terms = parts.filter_map(|(id, body)| Some((*id, in_terms_of_whole(&all, body)?)));
        Self(in_terms.collect())
    }

    /// Whether none is in force.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them.
    pub fn get(&self, id: AllocationId) -> Option<&Allocation> {
        self.0.get(&id)
    }

    /// What a site has of a slice to begin with, by the split.
    fn of_split(&self, (id, index): Slice, site: SiteId) -> u64 {
        let body = &self.0[&id];
        let amount = body.slices[index as usize].amount.0;
        let part = divided(amount, &body.split)
            .get(&site)
            .copied()
            .unwrap_or(0);
        let most = body.at_most.get(&site);
        most.map_or(part, |most| part.min(of_share(amount, *most)))
    }

    /// The slices of an account's own allocations, the one that ends first first.
    pub fn slices_of(&self, account: &AccountPath) -> Vec<Slice> {
        let of = self.0.iter().filter(|(_, body)| body.path == *account);
        let slices = of.flat_map(|(id, body)| {
            let slices = (0..).zip(&body.slices);
            slices.map(move |(index, slice)| (slice.end, (*id, index)))
        });
        let mut slices: Vec<_> = slices.collect();
        slices.sort_unstable();
        slices.into_iter().map(|(_, slice)| slice).collect()
    }

    /// Whether an allocation lets a user spend it: everybody below its path where it names no members.
    fn admits(&self, id: AllocationId, user: &AccountPath) -> bool {
        let members = &self.0[&id].members;
        members.is_empty() || user.ancestors().any(|above| members.contains(&above))
    }

    /// The slices of an account that a user may spend now.
    fn live(&self, account: &AccountPath, user: &AccountPath, at: WallTime) -> Vec<Slice> {
        let mut live = self.slices_of(account);
        live.retain(|(id, index)| {
            let slice = self.0[id].slices[*index as usize];
            slice.start <= at && at < slice.end && self.admits(*id, user)
        });
        live
    }

    /// The allocation whose terms an account's jobs of a user, or its debts, go by: of those with something to come
    /// that the user may spend, the newest.
    fn terms(
        &self,
        account: &AccountPath,
        user: Option<&AccountPath>,
        at: WallTime,
    ) -> Option<&Allocation> {
        let admits = |id| user.is_none_or(|user| self.admits(id, user));
        let of = self.0.iter().filter(|(_, body)| body.path == *account);
        let lives = |body: &Allocation| body.slices.iter().any(|slice| at < slice.end);
        let mut all: Vec<_> = of
            .map(|(id, body)| (lives(body), body.issued, *id))
            .collect();
        all.sort_unstable();
        let newest = all.last().copied();
        let mut living = all.into_iter().rev().filter(|(lives, ..)| *lives);
        let chosen = match newest {
            Some((false, ..)) => newest.filter(|(.., id)| admits(*id)),
            _ => living.find(|(.., id)| admits(*id)),
        };
        chosen.map(|(.., id)| &self.0[&id])
    }
}

/// A part as it counts: prices, holds and bounds are the authority's to say, and it ends with its whole.
fn in_terms_of_whole(
    all: &BTreeMap<AllocationId, Allocation>,
    body: &Allocation,
) -> Option<Allocation> {
    let Some(part_of) = &body.part_of else {
        return Some(body.clone());
    };
    let whole = all.get(&part_of.allocation)?;
    let mut part = Allocation {
        settle: whole.settle,
        hold_max: [body.hold_max, whole.hold_max].into_iter().flatten().min(),
        hold_factor: whole.hold_factor,
        fee: whole.fee,
        price_max: whole.price_max,
        idle_charge: whole.idle_charge,
        ..body.clone()
    };
    for (site, most) in &whole.at_most {
        let of_part = part.at_most.entry(*site).or_insert(*most);
        *of_part = (*of_part).min(*most);
    }
    for (slice, place) in part.slices.iter_mut().zip(&part_of.slices) {
        slice.end = slice.end.min(whole.slices.get(*place as usize)?.end);
    }
    Some(part)
}

/// An amount by weights: whole units, and one more for each of the largest remainders, of equal ones the lowest site.
fn divided(amount: u64, weights: &BTreeMap<SiteId, u64>) -> BTreeMap<SiteId, u64> {
    let all: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
    if all == 0 {
        return BTreeMap::new();
    }
    let product = |weight: &u64| u128::from(amount) * u128::from(*weight);
    let narrow = |units: u128| u64::try_from(units).expect("a part of the amount");
    let mut parts: BTreeMap<SiteId, u64> = BTreeMap::new();
    let mut remainders = Vec::new();
    for (site, weight) in weights {
        parts.insert(*site, narrow(product(weight) / all));
        remainders.push((std::cmp::Reverse(product(weight) % all), *site));
    }
    remainders.sort_unstable();
    let left = amount - parts.values().sum::<u64>();
    for (_, site) in remainders
        .into_iter()
        .take(usize::try_from(left).expect("few"))
    {
        *parts.get_mut(&site).expect("it has a weight") += 1;
    }
    parts
}

/// So much of an amount, rounded up.
fn of_share(amount: u64, share: Share) -> u64 {
    let units = u128::from(amount) * u128::from(share.units());
    u64::try_from(units.div_ceil(u128::from(Share::ONE))).unwrap_or(u64::MAX)
}

impl Place {
    /// What the site may still hold of a slice.
    pub fn left(&self, slice: Slice) -> u64 {
        if self.is_frozen {
            return 0;
        }
        let nothing = Counted::default();
        let counted = self.counted.get(&slice).unwrap_or(&nothing);
        let granted = self.granted(slice);
        let gone = counted.sent
            + counted
                .passed
                .values()
                .map(|to| u128::from(*to))
                .sum::<u128>();
        let gone = gone + u128::from(counted.used) + u128::from(counted.held);
        let left = (u128::from(granted) + counted.taken).saturating_sub(gone);
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    fn granted(&self, slice: Slice) -> u64 {
        let of_split = self.allocations.of_split(slice, self.site);
        let Some(part_of) = &self.allocations.0[&slice.0].part_of else {
            return of_split;
        };
        let whole = (part_of.allocation, part_of.slices[slice.1 as usize]);
        let passed = self
            .counted
            .get(&whole)
            .and_then(|of| of.passed.get(&slice.0));
        of_split.min(passed.copied().unwrap_or(0))
    }

    /// Where the site has, or has spent, more than it may.
    pub fn excesses(&self) -> Option<String> {
        let known = self.allocations.0.iter();
        let slices = known.flat_map(|(id, body)| {
            let slices = (0..).zip(&body.slices);
            slices.map(move |(index, slice)| ((*id, index), slice.amount.0, &body.at_most))
        });
        for (slice, amount, at_most) in slices {
            let Some(counted) = self.counted.get(&slice) else {
                continue;
            };
            let came = u128::from(self.granted(slice)) + counted.taken;
            let passed: u128 = counted.passed.values().map(|to| u128::from(*to)).sum();
            let spent = u128::from(counted.used) + u128::from(counted.held);
            if counted.sent + passed + spent > came {
                let gone = counted.sent + passed + spent;
                return Some(format!("{gone} core-ms of a slice are gone, of {came}"));
            }
            let most = at_most.get(&self.site).map(|most| of_share(amount, *most));
            let has = came.saturating_sub(counted.sent);
            if let Some(most) = most.filter(|most| has > u128::from(*most)) {
                return Some(format!("has {has} core-ms of a slice, of {most} at most"));
            }
        }
        None
    }

    /// The accounts that have credit of their own.
    pub fn accounts(&self) -> std::collections::BTreeSet<AccountPath> {
        let all = self.allocations.0.values();
        all.map(|body| body.path.clone()).collect()
    }

    /// What the site's jobs of an account owe.
    pub fn owed(&self, account: &AccountPath) -> u64 {
        let slices = self.allocations.slices_of(account);
        let owed = slices.iter().filter_map(|slice| self.counted.get(slice));
        owed.map(|counted| counted.owed).sum()
    }

    /// Whether what an account owes is settled by the next rights that are there, and there are some that anybody may
    /// spend: then it owes nothing.
    pub fn is_settled(&self, account: &AccountPath) -> bool {
        let root = AccountPath::root();
        let everybody_may = |id: AllocationId| self.allocations.0[&id].members.is_empty();
        let terms = self.allocations.terms(account, None, self.at);
        let is_next = terms.is_some_and(|terms| terms.settle == Settlement::Next);
        let live = self.allocations.live(account, &root, self.at);
        let mut rights = live.into_iter().filter(|(id, _)| everybody_may(*id));
        !is_next || self.owed(account) == 0 || !rights.any(|slice| self.left(slice) > 0)
    }

    /// Whether an account is within its quota: anything is left of what it may spend, or it is above all credit that
    /// there is.
    pub fn is_within(&self, account: &AccountPath) -> bool {
        let paths = self.accounts();
        let is_covered = account.ancestors().any(|above| paths.contains(&above));
        let is_above = !is_covered && paths.iter().any(|path| path.starts_with(account));
        let has_left = |paying: &AccountPath| {
            let live = self.allocations.live(paying, account, self.at);
            live.into_iter().any(|slice| self.left(slice) > 0)
        };
        is_above || account.ancestors().any(|paying| has_left(&paying))
    }

    /// Whether a slice begins or ends within a time before this moment.
    pub fn has_just_turned(&self, time: Millis) -> bool {
        let all = self.allocations.0.values();
        let mut turns = all.flat_map(|body| body.slices.iter().flat_map(|of| [of.start, of.end]));
        turns.any(|turn| turn <= self.at && self.at.since(turn) <= time)
    }

    /// What becomes of a job that does not wait.
    pub fn expected(&self, job: &Job) -> Expected {
        let of = |ruling| Expected {
            ruling,
            is_final: true,
            account: None,
            amount: 0,
            parts: Vec::new(),
            price: job.asked,
        };
        if job.is_exempt || self.allocations.is_empty() {
            return of(Ruling::Exempt);
        }
        let Some(account) = self.account(job) else {
            return of(match job.owner {
                Some(QuotaMode::Advisory) => Ruling::OverQuota,
                _ => Ruling::Refused,
            });
        };
        let terms = self.allocations.terms(&account, Some(&job.user), self.at);
        let terms = terms.expect("an account has terms");
        let price = price(job, terms);
        let amount = held(job.charge, terms.hold_factor, price);
        let expected = Expected {
            account: Some(account.clone()),
            amount,
            price,
            ..of(Ruling::Refused)
        };
        if terms.hold_max.is_some_and(|most| amount > most.0) {
            return expected;
        }
        let (mut parts, mut short) = (Vec::new(), amount);
        for slice in self.allocations.live(&account, &job.user, self.at) {
            let part = self.left(slice).min(short);
            short -= part;
            parts.extend((part > 0).then_some((slice, part)));
        }
        let mode = job.owner.or(terms.mode).unwrap_or(QuotaMode::Strict);
        let promised = self.promised.get(&account).copied().unwrap_or(0);
        let owes = promised + self.owed(&account) + short;
        let most = divided(terms.overdraft_max.0, &terms.split);
        let ruling = match mode {
            _ if short == 0 => Ruling::Granted,
            QuotaMode::Advisory => Ruling::OverQuota,
            QuotaMode::Soft if owes <= most.get(&self.site).copied().unwrap_or(0) => {
                Ruling::OverQuota
            }
            QuotaMode::Soft | QuotaMode::Strict => Ruling::Refused,
        };
        Expected {
            ruling,
            is_final: false,
            parts,
            ..expected
        }
    }

    /// The account that a job spends: the one that its user named, or the deepest with anything left here. Where
    /// nothing is left, it is the deepest.
    fn account(&self, job: &Job) -> Option<AccountPath> {
        let terms =
            |account: &AccountPath| self.allocations.terms(account, Some(&job.user), self.at);
        let accounts = job.user.ancestors();
        let accounts: Vec<_> = accounts
            .filter(|account| terms(account).is_some())
            .collect();
        if let Some(named) = &job.named {
            return accounts.contains(named).then(|| named.clone());
        }
        let has_rights = |account: &&AccountPath| {
            let live = self.allocations.live(account, &job.user, self.at);
            live.into_iter().any(|slice| self.left(slice) > 0)
        };
        let found = accounts.iter().find(has_rights).or(accounts.first());
        found.cloned()
    }
}

/// What a job holds: its charge, times the factor of holds, times its price, rounded up.
fn held(charge: u64, factor: Factor, price: Factor) -> u64 {
    let product =
        u128::from(charge) * u128::from(factor.millionths()) * u128::from(price.millionths());
    let units = u128::from(Factor::UNITS).pow(2);
    u64::try_from(product.div_ceil(units)).unwrap_or(u64::MAX)
}

/// What a job costs of a charge, rounded down.
pub fn cost(charge: u64, price: Factor) -> u64 {
    let product = u128::from(charge) * u128::from(price.millionths());
    u64::try_from(product / u128::from(Factor::UNITS)).unwrap_or(u64::MAX)
}

/// A job's price: what the owner asks and the allocation lets them, and the fee for importance.
fn price(job: &Job, terms: &Allocation) -> Factor {
    let most = terms.price_max.map_or(PRICE_MAX, Factor::millionths);
    let price = i128::from(job.asked.millionths().min(most));
    let units = 100 * i128::from(Factor::UNITS);
    let fee = i128::from(terms.fee.millionths()) * (i128::from(job.importance) - 100);
    let least = i128::from(job.least.millionths()).min(price);
    let with_fee = (price * (units + fee) / units).max(least);
    Factor::from_millionths(u32::try_from(with_fee).unwrap_or(u32::MAX))
}
