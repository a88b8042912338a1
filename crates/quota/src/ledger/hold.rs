//! Before a job runs: its possible cost is held, or its fate beyond the quota is decided.
//!
//! Invariant: a hold consists of parts of slices that were live when they were taken, and sums up to what the job may
//! cost. A hold that cannot be replaced by a larger one stays as it is. A refused request leaves nothing behind.

use fairmesh_model::{
    AccountPath, Allocation, AllocationId, CoreMillis, Factor, Importance, JobKey, QuotaMode,
    WallTime, mutant, mutated,
};

use super::Ledger;
use crate::decision::{Case, decide};
use crate::grants::SliceId;
use crate::mark::{Answer, Decider, Mark, Part, State, Verdict, split, sum};
use crate::message::{Shortage, core_hours};
use crate::price;
use crate::row::Cell;
use crate::slices::divide;

/// A request for a job that is about to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRequest {
    /// The key that identifies the job in all later calls.
    pub job: JobKey,
    /// The job's user, as a path in the VO.
    pub user: AccountPath,
    /// The account that the user named; `None` for the deepest one with rights left.
    pub account: Option<AccountPath>,
    /// Its charge at the usual price if it ran for its whole requested time.
    pub charge: CoreMillis,
    /// The owner's current price. The job keeps the price of its hold.
    pub price: Factor,
    /// The lowest price that low importance can lead to.
    pub least: Factor,
    /// Its importance among the user's own jobs, 100 for usual.
    pub importance: Importance,
    /// When its hold expires, unless the job is reported or renewed before.
    pub until: WallTime,
    /// The mode in the owner's configuration; it overrules the allocation's.
    pub owner: Option<QuotaMode>,
    /// Whether the owner exempts the user, the group or the queue.
    pub is_exempt: bool,
    /// Whether rights may arrive, and the scheduler can hold the job until then.
    pub may_wait: bool,
    /// Whether the requested machines would be idle otherwise.
    pub is_idle: bool,
}

/// A decision about a job that has not been carried out.
struct Plan {
    verdict: Verdict,
    by: Decider,
    /// The account to charge; `None` if no allocation covers the user.
    account: Option<AccountPath>,
    price: Factor,
    /// Of the price, what it is charged.
    charged: Factor,
    /// Core-milliseconds that the job has to hold.
    amount: CoreMillis,
    /// The rights that the hold would consist of.
    parts: Vec<Part>,
    /// Whether it is short of an allocation's rights, or takes some.
    is_wanted: bool,
    /// Where it does not run: what all sites have left, as far as is known, core-milliseconds.
    in_vo: u128,
    message: Option<String>,
}

impl Ledger {
    /// Holds what a job may cost. A repeated request gets the same answer. A request for another amount while the
    /// hold is open replaces the hold, or leaves it if the new amount is refused.
    pub fn hold(&mut self, now: WallTime, request: &HoldRequest) -> Answer {
        // Whatever is decided now, the job's claim so far is not left behind.
        let claim = self.claims.remove(&request.job);
        let known = self.marks.get(&request.job);
        if let Some(ended) = known.filter(|mark| mark.state != State::Held) {
            return Answer::for_mark(ended);
        }
        // While frozen the site's counters may be too low, so an open hold stays as it is.
        if let Some(open) = known.filter(|mark| self.is_frozen() && !mark.parts.is_empty()) {
            return Answer::for_mark(open);
        }
        let plan = self.plan(now, request, known, CoreMillis(0));
        // A granted job says how much later ones may need; a job that does not run is a claim to what others have.
        if let Some(account) = plan.account.as_ref().filter(|_| plan.is_wanted) {
            let known = known.filter(|mark| mark.account == *account);
            let same = known.filter(|mark| (mark.amount, mark.price) == (plan.amount, plan.price));
            if let Some(same) = same {
                let mark = Mark {
                    until: same.until.max(request.until),
                    ..same.clone()
                };
                let answer = Answer::for_mark(&mark);
                self.put_mark(request.job.clone(), mark);
                return answer;
            }
            let (held, before) = known.map_or((0, 0), |mark| (sum(&mark.parts).0, mark.amount.0));
            let need = plan.amount.0.saturating_sub(held);
            if plan.verdict.runs() {
                let demand = self.demand.entry(account.clone()).or_default();
                demand.note(now, plan.amount.0.saturating_sub(before));
            }
            if plan.lacks_rights_of_others(need) {
                let is_refused = plan.verdict == Verdict::Refused;
                self.claim(now, (&request.job, account), (need, is_refused), claim);
            }
        }
        match plan.verdict.runs() {
            true => self.put_hold(now, request, plan),
            false => plan.answer(),
        }
    }

    /// What [`Ledger::hold`] would answer about an unknown job, without holding anything. `ahead` is what other jobs
    /// are about to hold of the same account. A known job is treated as unknown: the reader may be another user, to
    /// whom the difference would show what the job holds.
    pub fn check(&self, now: WallTime, request: &HoldRequest, ahead: CoreMillis) -> Answer {
        self.plan(now, request, None, ahead).answer()
    }

    fn plan(
        &self,
        now: WallTime,
        request: &HoldRequest,
        known: Option<&Mark>,
        ahead: CoreMillis,
    ) -> Plan {
        if request.is_exempt || self.grants.is_empty() {
            return exempt(request);
        }
        let account = match self.account_of(now, request, known) {
            Ok(account) => account,
            Err(message) => return without_credit(request, message),
        };
        let (id, terms) = self
            .grants
            .terms_for(&account, &request.user, now)
            .expect("an account has an allocation");
        let price = price_of(request, terms, known);
        let amount = price::hold(request.charge, terms.hold_factor, price);
        // Before rights are looked for: no transfer makes such a job run.
        let most = terms.hold_max.filter(|_| !mutated!(HoldsUnbounded));
        if let Some(most) = most.filter(|most| amount > *most) {
            let message = format!(
                "{account}: this job needs {} core-hours, and one job may hold {} at most",
                core_hours(amount),
                core_hours(most)
            );
            let by = Decider::Allocation(id);
            return refused(Some(account), by, (price, amount), message);
        }
        let old = known.filter(|mark| mark.account == account);
        // Rights that the job holds already come first: a larger hold must not wait for rights that the old one
        // occupies.
        let (mut parts, _) = old.map_or_else(Default::default, |mark| split(&mark.parts, amount.0));
        let lacking = amount.0 - sum(&parts).0;
        let need = lacking.saturating_add(ahead.0);
        let fresh = self.take(&account, &request.user, need, now);
        // Jobs ahead get the first parts, as they will when they are held.
        parts.extend(split(&fresh, ahead.0).1);
        let short = amount.minus(sum(&parts));
        let (verdict, by) = match short {
            CoreMillis(0) => (Verdict::Granted, Decider::Allocation(id)),
            short => {
                let promised_before = old.map_or(0, Mark::promised);
                decide(&self.case(request, (id, terms), &account, (short, promised_before)))
            }
        };
        let mut charged = Factor::ONE;
        // A job on idle machines must not use up rights that jobs within their quota need.
        if verdict == Verdict::Idle {
            parts.clear();
            charged = mutant!(IdleChargedAll, terms.idle_charge, Factor::ONE);
        }
        let shortage = || self.shortage(now, (&account, &request.user), amount);
        let shortage = (!verdict.runs()).then(shortage);
        let (in_vo, message) = shortage.unzip();
        Plan {
            message,
            in_vo: in_vo.unwrap_or(0),
            account: Some(account),
            verdict,
            by,
            price,
            charged,
            amount,
            parts,
            is_wanted: true,
        }
    }

    /// Replaces the job's hold, if any. Only the differences are counted, slice by slice: the counters never shrink, so
    /// freeing and holding everything again would wear them out.
    fn put_hold(&mut self, now: WallTime, request: &HoldRequest, plan: Plan) -> Answer {
        let Plan {
            verdict,
            by,
            price,
            charged,
            amount,
            parts,
            ..
        } = plan;
        let account = plan.account.unwrap_or_else(|| request.user.clone());
        let known = self.marks.get(&request.job);
        let at = known.map_or(now, |mark| mark.at);
        let old = known.map(|mark| mark.parts.clone());
        let amount_of = |parts: &[Part], id: SliceId| -> u64 {
            parts
                .iter()
                .filter(|part| part.slice == id)
                .map(|part| part.amount.0)
                .sum()
        };
        let old = old.unwrap_or_default();
        let mut slices: Vec<SliceId> = parts.iter().chain(&old).map(|part| part.slice).collect();
        slices.sort_unstable();
        slices.dedup();
        for id in slices {
            let (before, after) = (amount_of(&old, id), amount_of(&parts, id));
            self.add(id, Cell::Held, after.saturating_sub(before));
            let back = mutant!(ReplacedHoldKept, before.saturating_sub(after), 0);
            self.free(Part {
                slice: id,
                amount: CoreMillis(back),
            });
        }
        let mark = Mark {
            state: State::Held,
            account,
            user: Some(request.user.clone()),
            at,
            verdict,
            by: Some(by),
            amount,
            parts,
            price,
            charged,
            until: request.until,
            used: Vec::new(),
            overdraft: None,
            pending: CoreMillis(0),
        };
        let answer = Answer::for_mark(&mark);
        if !mutated!(HoldUnmarked) {
            self.put_mark(request.job.clone(), mark);
        }
        answer
    }

    /// Rights of live slices that the user may spend, up to `need`, from the slice that ends first: rights perish
    /// with their slice.
    fn take(
        &self,
        account: &AccountPath,
        user: &AccountPath,
        need: u64,
        now: WallTime,
    ) -> Vec<Part> {
        let mut left = need;
        let mut parts = Vec::new();
        for slice in self.grants.live_for(account, user, now) {
            // A counter at its maximum cannot count another hold.
            let room = u64::MAX - self.get(slice, Cell::Held);
            let amount = left.min(self.spendable(slice)).min(room);
            let amount = mutant!(HeldUnchecked, amount, left);
            if amount > 0 {
                left -= amount;
                parts.push(Part {
                    slice,
                    amount: CoreMillis(amount),
                });
            }
        }
        parts
    }

    /// Frees a part of a hold, at most what the counters show as held: a mark from an older store may describe a hold
    /// that has ended since.
    pub(super) fn free(&mut self, part: Part) {
        let held = self.own_row(part.slice).map_or(0, |row| row.held());
        self.add(part.slice, Cell::Freed, part.amount.0.min(held));
    }

    /// The account that a job spends: the named one, or that of its hold, or the deepest one above its user with
    /// rights left.
    fn account_of(
        &self,
        now: WallTime,
        request: &HoldRequest,
        known: Option<&Mark>,
    ) -> Result<AccountPath, String> {
        let user = &request.user;
        let mut accounts = self.grants.accounts(user, now);
        if let Some(named) = &request.account {
            let found = accounts.find(|account| account == named);
            return found.ok_or_else(|| format!("{named}: no allocation that {user} may spend"));
        }
        let accounts: Vec<AccountPath> = accounts.collect();
        // A job with a hold keeps its account, even if a deeper one has rights by now. The mark of a job that was
        // exempt, or not covered, has an account that is none of these.
        if let Some(mark) = known.filter(|mark| accounts.contains(&mark.account)) {
            return Ok(mark.account.clone());
        }
        let account = self.usual_account(now, user);
        account.ok_or_else(|| format!("{user}: no allocation covers it"))
    }

    /// The deepest account at or above a user with rights left here; if none has any, the deepest.
    pub(super) fn usual_account(&self, now: WallTime, user: &AccountPath) -> Option<AccountPath> {
        let has_rights = |account: &AccountPath| self.spendable_for(account, user, now) > 0;
        let mut accounts = self.grants.accounts(user, now).peekable();
        let deepest = accounts.peek().cloned();
        accounts.find(has_rights).or(deepest)
    }

    fn case(
        &self,
        request: &HoldRequest,
        (id, terms): (AllocationId, &Allocation),
        account: &AccountPath,
        (short, promised_before): (CoreMillis, u64),
    ) -> Case {
        // Each site may owe its share of the VO's limit, so no site has to ask the others before it lets a job run.
        let most = divide(terms.overdraft_max.0, &terms.split);
        let promised = self
            .promised
            .get(account)
            .copied()
            .unwrap_or(0)
            .saturating_sub(promised_before);
        let owed = mutant!(DebtForgotten, self.owed(account), 0);
        Case {
            is_exempt: request.is_exempt,
            owner: request.owner,
            allocation: Some((id, terms.mode)),
            may_wait: request.may_wait,
            is_idle: request.is_idle,
            short,
            overdraft: CoreMillis(promised.saturating_add(owed)),
            overdraft_max: CoreMillis(most.get(&self.me).copied().unwrap_or(0)),
        }
    }

    /// The message for a user whose job lacks rights.
    fn shortage(
        &self,
        now: WallTime,
        (account, user): (&AccountPath, &AccountPath),
        needs: CoreMillis,
    ) -> (u128, String) {
        let totals = self.totals_for(account, user, now);
        let slices = self.grants.slices_of(account).into_iter();
        let to_come = slices
            .filter(|(id, slice)| now < slice.start && self.grants.admits(id.allocation, user));
        let next = to_come.min_by_key(|(id, slice)| (slice.start, *id));
        let in_vo = totals.spendable + totals.on_the_way;
        let shortage = Shortage {
            account,
            here: if self.is_frozen() { 0 } else { totals.here },
            in_vo,
            on_the_way: totals.on_the_way,
            needs,
            next: next.map(|(_, slice)| (slice.amount, slice.start.since(now))),
        };
        (in_vo, shortage.text())
    }
}

impl Plan {
    /// Whether the job does not run though all that it needs is left: some of it at other sites.
    fn lacks_rights_of_others(&self, need: u64) -> bool {
        !self.verdict.runs() && u128::from(need) <= mutant!(AllClaim, self.in_vo, u128::MAX)
    }

    /// The answer where nothing is held yet: what would be held, of a job that would run.
    fn answer(self) -> Answer {
        let short = self.amount.minus(sum(&self.parts));
        Answer {
            verdict: self.verdict,
            by: Some(self.by),
            account: self.account,
            short,
            parts: if self.verdict.runs() {
                self.parts
            } else {
                Vec::new()
            },
            price: self.price,
            message: self.message,
        }
    }
}

/// A job's price: that of its open hold under the same account, whatever the owner asks now. Otherwise a repeated
/// request could change the price of a running job.
fn price_of(request: &HoldRequest, terms: &Allocation, known: Option<&Mark>) -> Factor {
    let held = known.filter(|mark| {
        mark.state == State::Held
            && mark.verdict != Verdict::Exempt
            && mark.account == terms.path
            && !mutated!(PriceMoves)
    });
    held.map_or_else(
        || price::of_job(request.price, request.importance, terms, request.least),
        |mark| mark.price,
    )
}

fn exempt(request: &HoldRequest) -> Plan {
    let by = match request.is_exempt {
        true => Decider::Owner,
        false => Decider::Vo,
    };
    Plan {
        verdict: Verdict::Exempt,
        by,
        account: request.account.clone(),
        price: request.price,
        charged: Factor::ONE,
        amount: CoreMillis(0),
        parts: Vec::new(),
        is_wanted: false,
        in_vo: 0,
        message: None,
    }
}

fn without_credit(request: &HoldRequest, message: String) -> Plan {
    let case = Case {
        owner: request.owner,
        is_idle: request.is_idle,
        ..Case::default()
    };
    let (verdict, by) = decide(&case);
    if !verdict.runs() {
        return refused(None, by, (request.price, request.charge), message);
    }
    Plan {
        verdict,
        by,
        account: None,
        price: request.price,
        charged: Factor::ONE,
        amount: CoreMillis(0),
        parts: Vec::new(),
        is_wanted: false,
        in_vo: 0,
        message: None,
    }
}

fn refused(
    account: Option<AccountPath>,
    by: Decider,
    (price, amount): (Factor, CoreMillis),
    message: String,
) -> Plan {
    Plan {
        verdict: Verdict::Refused,
        by,
        account,
        price,
        charged: Factor::ONE,
        amount,
        parts: Vec::new(),
        is_wanted: false,
        in_vo: 0,
        message: Some(message),
    }
}
