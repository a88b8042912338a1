//! Before a job runs: what it may cost is held, or what becomes of it is decided.
//!
//! Invariant: a hold consists of parts of slices that were live when they were taken and sums up to what the job
//! may cost; a hold that cannot be replaced by a larger one stays as it is; what is refused leaves nothing.

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

/// A job that wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRequest {
    /// Which.
    pub job: JobKey,
    /// Whose, as a path in the VO.
    pub user: AccountPath,
    /// The account that the user named.
    pub account: Option<AccountPath>,
    /// What it would be charged at the usual price if it ran as long as it asked to.
    pub charge: CoreMillis,
    /// What the owner asks for his machines now. What the job's price becomes is fixed when it is held.
    pub price: Factor,
    /// What the price does not fall below because the job is unimportant.
    pub least: Factor,
    /// How important it is among its user's own.
    pub importance: Importance,
    /// When its hold expires unless somebody speaks of it.
    pub until: WallTime,
    /// The owner's own mode.
    pub owner: Option<QuotaMode>,
    /// The owner exempts the user, his group or the queue.
    pub is_exempt: bool,
    /// Rights could come, and the scheduler can hold the job until they do.
    pub may_wait: bool,
    /// The machines that it asks for would stand idle.
    pub is_idle: bool,
}

/// What is decided about a job, before anything is done about it.
struct Plan {
    verdict: Verdict,
    by: Decider,
    /// Whose credit; none where no allocation covers the user.
    account: Option<AccountPath>,
    price: Factor,
    /// Of the price, what it is charged.
    charged: Factor,
    /// What it has to hold.
    amount: CoreMillis,
    /// Of what it would be.
    parts: Vec<Part>,
    /// Whether it is short of an allocation's rights, or takes some.
    is_wanted: bool,
    /// Where it does not run: what all sites have left, as far as is known, core-milliseconds.
    in_vo: u128,
    message: Option<String>,
}

impl Ledger {
    /// Holds what a job may cost. Asked again it gives the same answer; asked for another amount while the hold
    /// is open, it replaces the hold or leaves it.
    pub fn hold(&mut self, now: WallTime, request: &HoldRequest) -> Answer {
        let known = self.marks.get(&request.job);
        if let Some(ended) = known.filter(|mark| mark.state != State::Held) {
            return Answer::of(ended);
        }
        // Its counters are not to be trusted yet, so a hold that is open stays as it is.
        if let Some(open) = known.filter(|mark| self.is_frozen() && !mark.parts.is_empty()) {
            return Answer::of(open);
        }
        let plan = self.plan(now, request, known, CoreMillis(0));
        if let Some(account) = plan.account.as_ref().filter(|_| plan.is_wanted) {
            let known = known.filter(|mark| mark.account == *account);
            let same = known.filter(|mark| (mark.amount, mark.price) == (plan.amount, plan.price));
            if let Some(same) = same {
                let mark = Mark {
                    until: same.until.max(request.until),
                    ..same.clone()
                };
                let answer = Answer::of(&mark);
                self.put_mark(request.job.clone(), mark);
                self.claims.remove(&request.job);
                return answer;
            }
            let (held, before) = known.map_or((0, 0), |mark| (sum(&mark.parts).0, mark.amount.0));
            let need = plan.amount.0.saturating_sub(held);
            if plan.verdict.runs() {
                let demand = self.demand.entry(account.clone()).or_default();
                demand.note(now, plan.amount.0.saturating_sub(before));
            }
            match plan.lacks_rights_of_others(need) {
                true => {
                    let is_refused = plan.verdict == Verdict::Refused;
                    self.claim(now, (&request.job, account), need, is_refused);
                }
                false => drop(self.claims.remove(&request.job)),
            }
        }
        match plan.verdict.runs() {
            true => self.put_hold(now, request, plan),
            false => plan.answer(),
        }
    }

    /// What [`Ledger::hold`] would answer about a job that is not known yet, without holding anything; `ahead`
    /// is what others are about to hold of the same account. A job that is known is asked about as one that is not:
    /// whoever asks need not be whose it is, and the difference is what it holds.
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
        let (mut parts, _) = old.map_or_else(Default::default, |mark| split(&mark.parts, amount.0));
        let lacking = amount.0 - sum(&parts).0;
        let need = lacking.saturating_add(ahead.0);
        let fresh = self.take(&account, &request.user, need, now);
        // What is ahead takes its part first.
        parts.extend(split(&fresh, ahead.0).1);
        let short = amount.minus(sum(&parts));
        let (verdict, by) = match short {
            CoreMillis(0) => (Verdict::Granted, Decider::Allocation(id)),
            short => {
                let of_old = old.map_or(0, Mark::promised);
                decide(&self.case(request, (id, terms), &account, (short, of_old)))
            }
        };
        let mut charged = Factor::ONE;
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

    /// Puts a hold in place of the one that is there, if any: rights of the old one that the new one lacks are
    /// freed, and those that it has beyond are held.
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
        let of = |parts: &[Part], id: SliceId| -> u64 {
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
            let (before, after) = (of(&old, id), of(&parts, id));
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
        let answer = Answer::of(&mark);
        if !mutated!(HoldUnmarked) {
            self.put_mark(request.job.clone(), mark);
        }
        answer
    }

    /// Parts of live slices that the user may spend, the one that ends first first, that make up `need`, or all there is.
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
            // A counter that is full holds no more.
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

    /// Gives back what is held, as far as the counters say that it is: a mark that an old store brought back may
    /// stand for a hold that has ended since.
    pub(super) fn free(&mut self, part: Part) {
        let held = self.own_row(part.slice).map_or(0, |row| row.held());
        self.add(part.slice, Cell::Freed, part.amount.0.min(held));
    }

    /// The account that a job spends: the one named, or the deepest above its user with anything left here.
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
        // One that was exempt, or that no allocation covered, has none of these.
        if let Some(mark) = known.filter(|mark| accounts.contains(&mark.account)) {
            return Ok(mark.account.clone());
        }
        let account = self.usual_account(now, user);
        account.ok_or_else(|| format!("{user}: no allocation covers it"))
    }

    /// The deepest account above a user with anything left here; without any such the deepest one.
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
        (short, of_old): (CoreMillis, u64),
    ) -> Case {
        // Each site may owe its part of what all may, so no site has to ask the others.
        let most = divide(terms.overdraft_max.0, &terms.split);
        let promised = self
            .promised
            .get(account)
            .copied()
            .unwrap_or(0)
            .saturating_sub(of_old);
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

    /// What a user reads.
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

/// A job's price: that of its hold, where one is open and in the allocation's terms, whatever is asked now.
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
