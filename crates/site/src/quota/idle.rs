//! Whether a job beyond its quota would run on machines that no job within its quota wants.
//!
//! The decision uses the scheduler's last report of running and waiting jobs, and counts what was given away since. For
//! waiting jobs only the account is known. An account with rights left, or without a quota, counts as within its quota;
//! the requesting job's own account does not.
//!
//! Invariant: no machine counts as idle if the owner has not allowed it, or the scheduler's report is too old.

use fairmesh_model::{AccountPath, Now, VoId};
use fairmesh_quota::decision::Machines;

use crate::identity::Account;
use crate::quota::calls::Asking;
use crate::quota::query::QuotaQuery;

impl QuotaQuery<'_> {
    /// Whether the job's machines would stand idle.
    pub(super) fn would_idle(&self, now: Now, account: &Account, job: Asking) -> bool {
        let owner = account.vo.and_then(|vo| self.cx.config.quotas.get(&vo));
        let Some(rules) = owner.and_then(|owner| owner.idle) else {
            return false;
        };
        let Some(machines) = self.sources.machines(self.cx, self.vos, now) else {
            return false;
        };
        let own = self.vos.credit_of(now, Some(account));
        let is_within = |credit: &Option<(VoId, AccountPath)>| match credit {
            None => true,
            Some((vo, path)) => {
                let quota = self.vos.get(vo).map(|held| &held.quota);
                quota.is_none_or(|quota| quota.ledger.is_within(path, now.wall))
            }
        };
        let is_wanted = self
            .sources
            .waits(&self.cx.config, now)
            .any(|(credit, cores)| *cores > 0 && *credit != own && is_within(credit));
        let free = machines.free.saturating_sub(self.sources.given());
        Machines {
            is_wanted,
            free: u32::try_from(free).unwrap_or(u32::MAX),
            cores: u32::try_from(machines.total).unwrap_or(u32::MAX),
            reserve: rules.reserve,
            run_max: rules.run_max,
        }
        .would_idle(job.cores, job.wall)
    }
}
