//! Jobs that the quota does not cover: whether they run, whose rule decides, and how they are ranked.
//!
//! Sources: the strict and the soft mode, and the site's last word, are SGAS's (Gardfjäll's thesis, Umeå
//! University, section 3.2); the advisory mode, the test for idle machines and the two bands are our own.

use fairmesh_model::{AllocationId, CoreMillis, Millis, QuotaMode, Share, mutant};

use crate::mark::{Decider, Verdict};

/// The facts for a decision about a job that lacks rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Case {
    /// Whether the owner exempts the user, the group or the queue.
    pub is_exempt: bool,
    /// The mode in the owner's configuration, if any.
    pub owner: Option<QuotaMode>,
    /// The allocation and its mode; `None` if no allocation covers the user.
    pub allocation: Option<(AllocationId, Option<QuotaMode>)>,
    /// Whether rights may arrive, and the scheduler can hold the job until then.
    pub may_wait: bool,
    /// Whether the requested machines would be idle ([`Machines::would_idle`]).
    pub is_idle: bool,
    /// Core-milliseconds of rights that the job lacks.
    pub short: CoreMillis,
    /// Core-milliseconds that this site's jobs of the account owe, and may come to owe.
    pub overdraft: CoreMillis,
    /// The most that `overdraft` may be at this site.
    pub overdraft_max: CoreMillis,
}

/// Decides about the job, and says whose rule decided.
pub fn decide(case: &Case) -> (Verdict, Decider) {
    if case.is_exempt {
        return (Verdict::Exempt, Decider::Owner);
    }
    // The owner's mode comes first: the machines are the owner's, whatever a VO grants.
    let of_allocation = case
        .allocation
        .and_then(|(id, mode)| Some((mode?, Decider::Allocation(id))));
    let of_owner = case.owner.map(|mode| (mode, Decider::Owner));
    let (first, second) = mutant!(
        OwnerOverruled,
        (of_owner, of_allocation),
        (of_allocation, of_owner)
    );
    let (mode, by) = first.or(second).unwrap_or((QuotaMode::Strict, Decider::Vo));
    // Before any overdraft: a job that can wait should not make a debt for rights that are about to arrive.
    if case.may_wait {
        return (Verdict::Waiting, by);
    }
    let owes = case.overdraft.plus(case.short);
    let has_room = mutant!(OverdraftUnbounded, owes <= case.overdraft_max, true);
    // Without an allocation no row could count the debt.
    let has_room = has_room && case.allocation.is_some();
    let verdict = match mode {
        QuotaMode::Advisory => Verdict::OverQuota,
        QuotaMode::Soft if has_room => Verdict::OverQuota,
        _ if case.is_idle => Verdict::Idle,
        _ => Verdict::Refused,
    };
    (verdict, by)
}

/// The facts for the question whether machines would be idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machines {
    /// Whether a job within its quota waits that these machines could run.
    pub is_wanted: bool,
    /// Number of free cores.
    pub free: u32,
    /// Number of all cores.
    pub cores: u32,
    /// The part of all cores that stays free for jobs within their quota.
    pub reserve: Share,
    /// The longest time that a job beyond its quota may run here: it occupies machines that others may want soon.
    pub run_max: Millis,
}

impl Machines {
    /// Whether a job of `cores` cores and `wall` time would run only on machines that no job within its quota wants.
    pub fn would_idle(&self, cores: u32, wall: Millis) -> bool {
        let units = u64::from(Share::ONE);
        // Rounded up, so that a small site keeps a core free too.
        let reserve = (u64::from(self.cores) * u64::from(self.reserve.units())).div_ceil(units);
        let reserve = mutant!(ReserveGiven, reserve, 0);
        let fits = u64::from(self.free) >= u64::from(cores) + reserve;
        let is_short = mutant!(IdleForLong, wall <= self.run_max, true);
        mutant!(WantedGiven, !self.is_wanted, true) && fits && is_short
    }
}

/// The factor for a scheduler: all jobs within their quota rank before all others, and both groups in fairshare's
/// order. The upper half of the range is for those within their quota. `factor` and the result are in units of 10^-9.
pub fn band(factor: Share, is_within: bool) -> Share {
    let half = mutant!(BandsSwapped, is_within, !is_within);
    let units = (if half { Share::ONE } else { 0 } + factor.units()) / 2;
    Share::from_units(units).unwrap_or(Share::WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation() -> AllocationId {
        AllocationId::from_bytes([1; 32])
    }

    #[test]
    fn owners_come_before_allocations_and_these_before_the_vo() {
        use QuotaMode::{Advisory, Soft, Strict};
        let id = Decider::Allocation(allocation());
        let short = |short, owner, mode, idle, wait| Case {
            owner,
            allocation: Some((allocation(), mode)),
            is_idle: idle,
            may_wait: wait,
            short: CoreMillis(short),
            overdraft: CoreMillis(60),
            overdraft_max: CoreMillis(100),
            ..Case::default()
        };
        for (case, verdict, by) in [
            (
                short(1, None, None, false, false),
                Verdict::Refused,
                Decider::Vo,
            ),
            (
                short(1, None, None, true, false),
                Verdict::Idle,
                Decider::Vo,
            ),
            (
                short(1, None, Some(Strict), false, false),
                Verdict::Refused,
                id,
            ),
            (
                short(40, None, Some(Soft), false, false),
                Verdict::OverQuota,
                id,
            ),
            (
                short(41, None, Some(Soft), false, false),
                Verdict::Refused,
                id,
            ),
            (short(41, None, Some(Soft), true, false), Verdict::Idle, id),
            (
                short(999, None, Some(Advisory), false, false),
                Verdict::OverQuota,
                id,
            ),
            (
                short(999, Some(Strict), Some(Advisory), false, false),
                Verdict::Refused,
                Decider::Owner,
            ),
            (
                short(999, Some(Advisory), Some(Strict), false, false),
                Verdict::OverQuota,
                Decider::Owner,
            ),
            (
                short(1, None, Some(Strict), true, true),
                Verdict::Waiting,
                id,
            ),
        ] {
            assert_eq!(decide(&case), (verdict, by), "{case:?}");
            let exempt = Case {
                is_exempt: true,
                ..case
            };
            assert_eq!(decide(&exempt), (Verdict::Exempt, Decider::Owner));
        }
        let nobodys = Case {
            owner: Some(Soft),
            ..Case::default()
        };
        assert_eq!(decide(&nobodys), (Verdict::Refused, Decider::Owner));
    }

    #[test]
    fn machines_idle_where_nobody_within_quota_wants_them() {
        let machines = Machines {
            is_wanted: false,
            free: 15,
            cores: 100,
            reserve: Share::from_percent(5).expect("at most 100"),
            run_max: Millis::from_secs(3_600),
        };
        let hour = Millis::from_secs(3_600);
        assert!(machines.would_idle(10, hour));
        assert!(!machines.would_idle(11, hour));
        assert!(!machines.would_idle(10, Millis::from_secs(3_601)));
        assert!(
            !Machines {
                is_wanted: true,
                ..machines
            }
            .would_idle(10, hour)
        );
    }

    #[test]
    fn those_within_their_quota_come_first() {
        let factor = |units| Share::from_units(units).expect("at most 1");
        for (units, within, expected) in [
            (400_000_000, false, 200_000_000),
            (400_000_000, true, 700_000_000),
            (0, true, 500_000_000),
            (Share::ONE, true, Share::ONE),
            (Share::ONE, false, 500_000_000),
        ] {
            assert_eq!(
                band(factor(units), within).units(),
                expected,
                "{units} {within}"
            );
        }
    }
}
