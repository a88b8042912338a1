//! What quotas would answer, and what jobs would cost, without a change.

use fairmesh_model::{
    AccountPath, CoreMillis, Factor, Importance, Millis, Now, SiteId, UsageRecord, VoId, WallTime,
    mutant,
};
use fairmesh_quota::price::{charge, load, of_job};
use fairmesh_quota::{Answer, Decider, HoldRequest, SliceId, Verdict};

use crate::advert::sources::Sources;
use crate::charge::rate;
use crate::config::Charging;
use crate::identity::{Account, Pattern};
use crate::parts::{Cx, Parts, Vos};
use crate::quota::Quota;
use crate::quota::calls::{Asking, HoldCall, HoldContext, QuotaAnswer, QuotaReply};
use crate::shares::tree::Tree;
use crate::terms::Terms;

/// How long a job may wait in its queue until its hold expires, beside the time that it may run.
const QUEUE_MAX: Millis = Millis::from_secs(30 * 86_400);

/// Slack on top of both, for a scheduler that reports late.
const MARGIN: Millis = Millis::from_secs(600);

/// What a job would cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// If it runs as long as it asks to.
    pub cost: CoreMillis,
    /// The price of that, with the fee for importance.
    pub price: Factor,
    /// Since when the site asks what it asks, by its own clock; `None` where that is the usual price.
    pub since: Option<WallTime>,
}

/// Reads quotas and prices.
#[derive(Clone, Copy)]
pub(crate) struct QuotaQuery<'a> {
    pub(crate) cx: &'a Cx,
    pub(crate) vos: &'a Vos,
    pub(crate) tree: &'a Tree,
    pub(crate) sources: &'a Sources,
}

impl<'a> QuotaQuery<'a> {
    fn terms(&self) -> Terms<'a> {
        Terms::new(self.cx, self.vos, self.tree)
    }

    /// What is asked of the ledger, and of which VO's.
    pub(super) fn asked(&self, now: Now, call: HoldCall) -> Result<HoldContext, Box<QuotaReply>> {
        let record = &call.record;
        if let Err(error) = record.validate() {
            return Err(Box::new(Err(error.to_string())));
        }
        let Some(account) = self.cx.config.identity.resolve(record) else {
            if !self.vos.values().any(|held| held.quota.is_on()) {
                return Err(Box::new(Ok(without_quota(None))));
            }
            let why = "no identity rule says who it belongs to";
            return Err(Box::new(Err(format!("job `{}`: {why}", record.key.job))));
        };
        let on = account.vo.filter(|vo| {
            let held = self.vos.get(vo);
            held.is_some_and(|held| held.quota.is_on())
        });
        let Some(vo) = on else {
            return Err(Box::new(Ok(without_quota(account.vo))));
        };
        if let Err(why) = self.terms().check_capacity(Some(vo), record) {
            return Err(Box::new(Err(why)));
        }
        let wall = record.end.since(record.start);
        let owner = self.cx.config.quotas.get(&vo);
        let is_exempt = call.is_exempt || owner.is_some_and(|owner| owner.exempts(record));
        let rules = self.terms().rules(Some(vo), now.wall);
        let rate = rate(record, &rules, &self.cx.config.charging);
        let rate =
            rate.map_err(|error| Box::new(Err(format!("job `{}`: {error}", record.key.job))))?;
        let job = Asking {
            cores: record.cores,
            wall,
        };
        let queue_max = mutant!(QueueTimeForgotten, QUEUE_MAX, Millis(0));
        let request = HoldRequest {
            charge: CoreMillis(rate.counters(wall).charge),
            job: call.record.key,
            user: account.path.clone(),
            account: call.account,
            price: self.vos[&vo].quota.poster.price(),
            least: self.cx.config.least_price(vo),
            importance: call.importance,
            until: now.wall.after(queue_max).after(wall).after(MARGIN),
            owner: owner.and_then(|owner| owner.mode),
            is_exempt,
            may_wait: call.may_wait,
            is_idle: self.would_idle(now, &account, job),
        };
        Ok(HoldContext {
            vo,
            account,
            job,
            request,
        })
    }

    /// Cores that run jobs or are waited for, over all.
    pub(super) fn load(&self, now: Now) -> Option<Factor> {
        let machines = self.sources.machines(self.cx, self.vos, now)?;
        let busy = machines.total.saturating_sub(machines.free);
        load(busy.saturating_add(machines.waiting), machines.total)
    }
}

impl Parts {
    /// What a hold of a job that is not known yet would be answered, without holding anything; `ahead` is what
    /// others are about to hold of the same account. It waits for nothing: where other members have what it
    /// lacks, and can be asked, the verdict is that it had better wait.
    pub fn check_quota(&self, now: Now, call: HoldCall, ahead: CoreMillis) -> QuotaReply {
        if let Some(why) = self.cx.clock.refuses_all() {
            return Err(why);
        }
        let HoldContext { vo, request, .. } = match self.quota_query().asked(now, call) {
            Ok(found) => found,
            Err(reply) => return *reply,
        };
        let quota = &self.vos[&vo].quota;
        let mut answer = quota.ledger.check(now.wall, &request, ahead);
        if answer.verdict == Verdict::Waiting
            && !self.could_come(now, quota, &answer, (&request.user, ahead))
        {
            let request = HoldRequest {
                may_wait: false,
                ..request
            };
            answer = quota.ledger.check(now.wall, &request, ahead);
        }
        explain(quota, &mut answer);
        held(vo, answer)
    }

    /// Whether others have all that a job of a user lacks, and one of them could be asked for it now.
    fn could_come(
        &self,
        now: Now,
        quota: &Quota,
        answer: &Answer,
        (user, ahead): (&AccountPath, CoreMillis),
    ) -> bool {
        let Some(account) = &answer.account else {
            return false;
        };
        if quota.ledger.is_frozen() {
            return true;
        }
        let totals = quota.ledger.totals_for(account, user, now.wall);
        let there = totals.spendable + totals.on_the_way;
        let connected: Vec<_> = self.peers.gossip.peers().collect();
        let grants = quota.ledger.grants();
        let can_hear = |site, slice: SliceId| {
            connected.contains(&site) && grants.admits(slice.allocation, user)
        };
        let others = quota.ledger.ask(now.wall, account, answer.short, can_hear);
        let spent_here = totals.here.max(u128::from(ahead.0));
        let is_enough = there >= spent_here + u128::from(answer.short.0);
        is_enough && (!others.is_empty() || totals.on_the_way > 0)
    }

    /// What `site` would charge for a job that runs as long as its record says, at the price that it asks now as
    /// far as is known.
    ///
    /// # Errors
    /// Why nobody can say, or why it could not run there.
    pub fn quote(
        &self,
        now: Now,
        record: &UsageRecord,
        importance: Importance,
        site: SiteId,
    ) -> Result<Quote, String> {
        record.validate().map_err(|error| error.to_string())?;
        let account = self.cx.config.identity.resolve(record);
        let account = account.ok_or("no identity rule says who it belongs to")?;
        let vo = account.vo;
        let rules = self.terms().rules(vo, now.wall);
        let told;
        let charging = if site == self.cx.id {
            self.terms().check_capacity(vo, record)?;
            &self.cx.config.charging
        } else {
            told = vo.and_then(|vo| self.vos.charging_at(vo, site));
            told.as_ref()
                .ok_or("the site has published nothing about its machines to the VO")?
        };
        let rate = rate(record, &rules, charging).map_err(|error| error.to_string())?;
        let usual = CoreMillis(rate.counters(record.end.since(record.start)).charge);
        let (price, since) = self.quoted_price(now, &account, importance, site);
        Ok(Quote {
            cost: charge(usual, price, Factor::ONE),
            price,
            since,
        })
    }

    /// What a job of an account would cost at a site, × its charge, and since when the site asks that.
    fn quoted_price(
        &self,
        now: Now,
        account: &Account,
        importance: Importance,
        site: SiteId,
    ) -> (Factor, Option<WallTime>) {
        let vo = account.vo.filter(|vo| self.vos.has_quota(Some(*vo)));
        let Some(vo) = vo else {
            return (Factor::ONE, None);
        };
        let posted = self.price_at(vo, site);
        let asked = posted.map_or(Factor::ONE, |(price, _)| price);
        let since = posted.map(|(_, since)| since);
        let grants = self.vos[&vo].quota.ledger.grants();
        let credit = grants.accounts(&account.path, now.wall).next();
        let terms = credit.and_then(|credit| grants.terms_for(&credit, &account.path, now.wall));
        let least = self.cx.config.least_price(vo);
        let price = terms.map_or(asked, |(_, terms)| of_job(asked, importance, terms, least));
        (price, since)
    }

    /// What a job of usual importance that spends an account costs here now, × its charge.
    pub fn price_of(&self, vo: VoId, account: &AccountPath, now: Now) -> Factor {
        let (vo, path) = (Some(vo), account.clone());
        let (price, _) = self.quoted_price(
            now,
            &Account { vo, path },
            Importance::default(),
            self.cx.id,
        );
        price
    }

    /// What a site asks of a VO's jobs, and since when; `None` of the usual price.
    pub fn price_at(&self, vo: VoId, site: SiteId) -> Option<(Factor, WallTime)> {
        let held = self.vos.get(&vo)?;
        match site == self.cx.id {
            true => held
                .quota
                .posted()
                .map(|posted| (posted.price, posted.since)),
            false => held.published.description(site)?.price,
        }
    }
}

impl Vos {
    /// What jobs cost at `site`, as the VO's members know it.
    pub(crate) fn charging_at(&self, vo: VoId, site: SiteId) -> Option<Charging> {
        let described = self.get(&vo)?.published.description(site)?;
        let hosts = described.hosts.iter();
        Some(Charging {
            prices: described.prices.clone(),
            hosts: hosts
                .map(|(hosts, class)| (Pattern::parse(hosts), class.clone()))
                .collect(),
            ..Charging::default()
        })
    }
}

/// Says what a user could not know from the numbers alone.
pub(super) fn explain(quota: &Quota, answer: &mut Answer) {
    if answer.by == Some(Decider::Owner)
        && let Some(message) = &mut answer.message
    {
        *message += " (so the owner of this site decides)";
    }
    if let Some(message) = answer.message.as_mut().filter(|_| quota.ledger.is_frozen()) {
        *message += &waits_for(quota);
    }
}

/// What a site whose rights are frozen waits for.
pub(super) fn waits_for(quota: &Quota) -> String {
    let unheard = quota.ledger.unheard().count();
    format!(
        " (this site has just started, and spends nothing until heads of {unheard} more sites have been received)"
    )
}

pub(super) fn held(vo: VoId, answer: Answer) -> QuotaReply {
    let (vo, answer) = (Some(vo), Box::new(answer));
    Ok(QuotaAnswer::Held { vo, answer })
}

/// Where no quota says anything: it runs, and nothing is remembered.
pub(super) fn without_quota(vo: Option<VoId>) -> QuotaAnswer {
    let answer = Answer {
        verdict: Verdict::Exempt,
        by: Some(if vo.is_some() {
            Decider::Vo
        } else {
            Decider::Owner
        }),
        account: None,
        parts: Vec::new(),
        short: CoreMillis(0),
        price: Factor::ONE,
        message: None,
    };
    QuotaAnswer::Held {
        vo,
        answer: Box::new(answer),
    }
}
