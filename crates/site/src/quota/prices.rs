//! What the owner asks of a VO's jobs at the moment, and who stands behind the others.
//!
//! Invariant: what is published of the price is what the next hold would have, within a look at the time; a VO
//! without allocations has neither a price nor bands.
//! Deliberately not here: the price of a job (`fairmesh-quota`), and the order of accounts (`fairmesh-fairshare`).

use std::sync::Arc;

use fairmesh_model::{
    AccountPath, CoreMillis, Factor, Importance, Now, SiteId, UsageRecord, VoId, WallTime, mutant,
    mutated,
};
use fairmesh_quota::Funded;
use fairmesh_quota::price::{Pricing, charge, load, of_job};

use crate::charge::rate;
use crate::describe::describe;
use crate::identity::Account;
use crate::site::Site;

/// Which entries of the site's tree are within their quotas, in the VOs for which the owner wants these in front.
#[derive(Debug, Clone, Default)]
pub struct Bands(Vec<(AccountPath, Arc<Funded>)>);

impl Bands {
    /// Whether nobody stands behind anybody because of a quota.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these are the same: no work for all entries is needed to say so.
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        let mut pairs =
            pairs.map(|((at, of), (other, others))| at == other && Arc::ptr_eq(of, others));
        self.0.len() == other.0.len() && pairs.all(|is_same| is_same)
    }

    /// Whether an entry is within its quota, or held to none.
    pub fn is_within(&self, entry: &AccountPath) -> bool {
        let mut vos = self.0.iter();
        vos.all(|(mount, funded)| {
            let of_vo = entry.relative_to(mount);
            of_vo.is_none_or(|account| funded.is_within(&account))
        })
    }
}

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

impl Site {
    /// Who is within his quota.
    pub fn bands(&self) -> Bands {
        let view = self.view();
        let of_vo = self.vos.iter().filter_map(|(vo, held)| {
            let funded = held.quota.funded.as_ref()?;
            Some((view.mounts().get(vo)?.clone(), Arc::clone(funded)))
        });
        Bands(of_vo.collect())
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
            told = vo.and_then(|vo| self.charging_at(vo, site));
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
        let vo = account.vo.filter(|vo| self.has_quota(Some(*vo)));
        let Some(vo) = vo else {
            return (Factor::ONE, None);
        };
        let posted = self.price_at(vo, site);
        let asked = posted.map_or(Factor::ONE, |(price, _)| price);
        let since = posted.map(|(_, since)| since);
        let grants = self.vos[&vo].quota.ledger.grants();
        let credit = grants.accounts(&account.path, now.wall).next();
        let terms = credit.and_then(|credit| grants.terms_for(&credit, &account.path, now.wall));
        let least = self.least_price(vo);
        let price = terms.map_or(asked, |(_, terms)| of_job(asked, importance, terms, least));
        (price, since)
    }

    /// What a price does not fall below because a job is unimportant. Other sites' is taken to be this one's.
    pub(super) fn least_price(&self, vo: VoId) -> Factor {
        let owner = self.cx.config.quotas.get(&vo);
        owner.map_or(Pricing::Fixed.least(), |owner| owner.pricing.least())
    }

    /// Looks at the hour and at the load; a new price is published.
    pub(super) fn post_price(&mut self, now: Now, vo: VoId) {
        let owner = self.cx.config.quotas.get(&vo);
        let pricing = owner.map_or(Pricing::Fixed, |owner| owner.pricing.clone());
        let load = match pricing {
            Pricing::Load(_) => self.load(now),
            Pricing::Fixed | Pricing::Calendar(_) => None,
        };
        let quota = &mut self.vos.listed(vo).quota;
        quota.poster.look(now, &pricing, load);
        if quota.posted() != quota.described && !mutated!(PriceUndescribed) {
            describe(&self.cx.config, &mut self.own, &mut self.vos, vo);
        }
    }

    /// Cores that run jobs or are waited for, over all.
    fn load(&self, now: Now) -> Option<Factor> {
        let machines = self.machines(now)?;
        let busy = machines.total.saturating_sub(machines.free);
        load(busy.saturating_add(machines.waiting), machines.total)
    }

    /// Looks who has anything left.
    pub(super) fn follow_funded(&mut self, now: Now, vo: VoId) {
        let owner = self.cx.config.quotas.get(&vo);
        let wants = owner.is_some_and(|owner| owner.bands && !owner.is_off);
        let quota = &mut self.vos.listed(vo).quota;
        if !wants || !quota.is_on {
            quota.funded = None;
            return;
        }
        // While nothing may be spent it is not known who has nothing left.
        if quota.ledger.is_frozen() {
            return;
        }
        let funded = quota.ledger.funded_allocations(now.wall);
        let is_same = |of: &Arc<Funded>| *of.allocations() == funded;
        let is_known = |of| mutant!(BandsStale, is_same(of), true);
        if !quota.funded.as_ref().is_some_and(is_known) {
            quota.funded = Some(Arc::new(quota.ledger.funded(now.wall)));
        }
    }
}
