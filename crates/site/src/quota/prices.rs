//! The owner's current price for a VO's jobs, and which entries rank behind the others.
//!
//! Invariant: the published price is that of the next hold, within one tick. A VO without allocations has neither a
//! price nor bands. Deliberately not here: the price of a job (`fairmesh-quota`), and the order of accounts
//! (`fairmesh-fairshare`).

use std::sync::Arc;

use fairmesh_model::{AccountPath, Now, VoId, mutant, mutated};
use fairmesh_quota::Funded;
use fairmesh_quota::price::Pricing;

use crate::describe::describe;
use crate::parts::Parts;
use crate::quota::handler::QuotaHandler;

/// The entries of the site's tree that are within their quotas, for the VOs in which the owner ranks these first.
#[derive(Debug, Clone, Default)]
pub struct Bands(Vec<(AccountPath, Arc<Funded>)>);

impl Bands {
    /// Whether quotas do not influence the order at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both are the same. By pointers, because a comparison of all entries would cost more than it saves.
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        let mut pairs =
            pairs.map(|((at, of), (other, others))| at == other && Arc::ptr_eq(of, others));
        self.0.len() == other.0.len() && pairs.all(|is_same| is_same)
    }

    /// Whether an entry is within its quota, or has none.
    pub fn is_within(&self, entry: &AccountPath) -> bool {
        let mut vos = self.0.iter();
        vos.all(|(mount, funded)| {
            let of_vo = entry.relative_to(mount);
            of_vo.is_none_or(|account| funded.is_within(&account))
        })
    }
}

impl Parts {
    /// Who is within his quota.
    pub fn bands(&self) -> Bands {
        let view = &self.shares.tree.view;
        let of_vo = self.vos.iter().filter_map(|(vo, held)| {
            let funded = held.quota.funded.as_ref()?;
            Some((view.mounts().get(vo)?.clone(), Arc::clone(funded)))
        });
        Bands(of_vo.collect())
    }
}

impl QuotaHandler<'_> {
    /// Updates the price for the hour or the load, and publishes a new one.
    pub(super) fn post_price(&mut self, now: Now, vo: VoId) {
        let owner = self.cx.config.quotas.get(&vo);
        let pricing = owner.map_or(Pricing::Fixed, |owner| owner.pricing.clone());
        let load = match pricing {
            Pricing::Load(_) => self.query().load(now),
            Pricing::Fixed | Pricing::Calendar(_) => None,
        };
        let quota = &mut self.vos.listed(vo).quota;
        quota.poster.look(now, &pricing, load);
        if quota.posted() != quota.described && !mutated!(PriceUndescribed) {
            describe(&self.cx.config, self.own, self.vos, vo);
        }
    }

    /// Updates which accounts are within their quota.
    pub(super) fn follow_funded(&mut self, now: Now, vo: VoId) {
        let owner = self.cx.config.quotas.get(&vo);
        let wants = owner.is_some_and(|owner| owner.bands && !owner.is_off);
        let quota = &mut self.vos.listed(vo).quota;
        if !wants || !quota.is_on {
            quota.funded = None;
            return;
        }
        // While frozen every account has nothing left, which would turn the order upside down; the last state stays.
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
