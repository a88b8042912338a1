//! Jobs that lack credit which the VO has: what each needs, and which comes first.
//!
//! A site gives rights to another site's job as long as no job of its own that comes first needs them: what it expects
//! of later jobs, and its floor, yield to a job that waits. So all sites together act as one queue, without a bank.
//!
//! Invariant: claims are totally ordered ([`Rank`]) by what does not change while a job waits, so of any two sites at
//! most one keeps rights from the other, and the first claim that fits into what connected sites have left gets all of
//! it. A claim that does not fit is none: it would take rights from jobs that can run.

use std::cmp::Reverse;

use fairmesh_model::{AccountPath, CoreMillis, JobKey, Millis, SiteId, WallTime, mutant, mutated};
use serde::{Deserialize, Serialize};

use super::Ledger;

/// How long rights are fetched for a refused job: callers that cannot wait ask again.
const ASKED_WITHIN: Millis = Millis::from_secs(120);

/// Claims that are kept of one site: with more, jobs that are refused have none. Bounds memory and the sums over them.
const CLAIMS_MAX: usize = 1_024;

/// The first job of a site that lacks rights, as a request for rights names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its caller waits no more.
    pub is_refused: bool,
    /// When the job first asked, by its site's clock.
    pub since: WallTime,
    /// What it lacks, core-milliseconds.
    pub short: CoreMillis,
}

/// The order of claims: jobs whose callers wait before refused ones, then the older one, then the lower site id.
pub(super) type Rank = (bool, WallTime, SiteId);

/// A job of this site that lacks rights.
#[derive(Debug, Clone)]
pub(super) struct OwnClaim {
    pub(super) account: AccountPath,
    is_refused: bool,
    since: WallTime,
    /// When the job last asked.
    last: WallTime,
    /// What it needs beyond what it holds, core-milliseconds.
    need: u64,
}

impl Claim {
    /// Its place in the order, as a claim of that site.
    pub(super) fn rank(&self, of: SiteId) -> Rank {
        let rank = (self.is_refused, self.since, of);
        mutant!(
            YoungerFirst,
            rank,
            (self.is_refused, WallTime(u64::MAX - self.since.0), of)
        )
    }
}

impl Ledger {
    /// Notes that a job lacks rights, of which it needs `need` beyond what it holds. `known` is its claim so far.
    pub(super) fn claim(
        &mut self,
        now: WallTime,
        (job, account): (&JobKey, &AccountPath),
        (need, is_refused): (u64, bool),
        known: Option<OwnClaim>,
    ) {
        if known.is_none() && self.claims.len() >= CLAIMS_MAX && is_refused {
            return;
        }
        let claim = OwnClaim {
            account: account.clone(),
            is_refused,
            since: known.map_or(now, |known| known.since.min(now)),
            last: now,
            need,
        };
        self.claims.insert(job.clone(), claim);
    }

    /// Whether a job lacks rights that the VO has, as far as is known.
    pub fn has_claim(&self, job: &JobKey) -> bool {
        self.claims.contains_key(job)
    }

    /// Forgets the claims of jobs that have not asked again; a job that waits is decided again all the time.
    pub(super) fn forget_claims(&mut self, now: WallTime) {
        // A claim from far ahead of `now` is of a clock that was wrong.
        self.claims.retain(|_, claim| {
            now < claim.last.after(ASKED_WITHIN) && claim.last < now.after(ASKED_WITHIN)
        });
    }

    fn claims_to(&self, account: &AccountPath) -> impl Iterator<Item = &OwnClaim> {
        let claims = self.claims.values();
        claims.filter(move |claim| claim.account == *account)
    }

    /// What jobs of this site need of an account beyond what they hold: those that come before `rank`, or all.
    pub(super) fn claimed(&self, account: &AccountPath, rank: Option<Rank>) -> u64 {
        let claims = self.claims_to(account);
        let before = claims.filter(|claim| rank.is_none_or(|rank| self.rank(claim) < rank));
        before.fold(0, |sum, claim| sum.saturating_add(claim.need))
    }

    /// The first claim of this site to an account, where rights are lacking for it.
    pub(super) fn first_claim(&self, account: &AccountPath, now: WallTime) -> Option<Claim> {
        let claims = self.claims_to(account);
        let first = claims.min_by_key(|claim| (self.rank(claim), Reverse(claim.need)))?;
        let short = first.need.saturating_sub(self.spendable_of(account, now));
        let claim = Claim {
            is_refused: first.is_refused,
            since: first.since,
            short: CoreMillis(short),
        };
        Some(claim).filter(|claim| claim.short.0 > 0 && !mutated!(ClaimsUnsent))
    }

    fn rank(&self, claim: &OwnClaim) -> Rank {
        (claim.is_refused, claim.since, self.me)
    }
}
