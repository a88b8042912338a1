//! The engine that a broker should use: every job counts, the last CPU is given, and an idle site is used.
//!
//! Deliberately not here: age beyond silence. A view that is old but not silent is believed as it is, and
//! its age stands beside the answer.

use fairmesh_model::{Millis, mutant, mutated};

use super::{Refusal, Request, Verdict};
use crate::sla::{Sign, Standing};
use crate::view::SiteView;

pub(super) fn judge(site: &SiteView, request: &Request<'_>, silence: Option<Millis>) -> Verdict {
    // A view without an age is one that somebody wrote by hand; he knows how old it is.
    let is_silent = silence
        .zip(site.age)
        .is_some_and(|(silence, age)| age > silence);
    if is_silent && !mutated!(SilentBelieved) {
        return Verdict::No(Refusal::Silent { age: site.age });
    }
    let Some(standing) = site.vos.get(request.vo) else {
        return Verdict::No(Refusal::NoEntry);
    };
    if let Some(refusal) = misfit(site, request) {
        return Verdict::No(refusal);
    }
    match binding(site, standing, request.cpus()) {
        Ok(beyond) => start(site, request, standing, beyond),
        Err(refusal) => Verdict::No(refusal),
    }
}

/// Why the site's machines could never run the job.
fn misfit(site: &SiteView, request: &Request<'_>) -> Option<Refusal> {
    let (asked, total) = (request.cpus(), site.total);
    if asked > total {
        return Some(Refusal::TooLarge { asked, total });
    }
    let machines = site.machines.as_deref()?;
    let mut suitable = machines.suitable(&request.job);
    let fits = suitable.any(|(.., classes)| classes != 0) || mutated!(AnyMachineFits);
    (!fits).then_some(Refusal::FitsNowhere)
}

/// Whether the SLA lets the VO have the CPUs, and if so whether they lie beyond the epoch's share.
fn binding(site: &SiteView, standing: &Standing, asked: u64) -> Result<bool, Refusal> {
    // Beyond what is granted only CPUs that nobody waits for.
    let nobody_waits = site.waiting == 0;
    let extended = standing.extensible && (nobody_waits || mutated!(ExtendedInContention));
    let held = standing.burst_used;
    // The VO's own jobs that wait there start before this one, whoever sent them: a limit that held only what runs
    // would be passed by as much as waits.
    let waiting = mutant!(OwnWaitingUncounted, standing.waiting, 0);
    let within = held.saturating_add(waiting).saturating_add(asked)
        <= mutant!(
            LastCpuKept,
            standing.burst_limit,
            standing.burst_limit.saturating_sub(1)
        );
    if !(within || extended || mutated!(BurstUnchecked)) {
        return Err(Refusal::Burst {
            held,
            waiting,
            asked,
            limit: standing.burst_limit,
            strict: false,
        });
    }
    if !standing.is_over() || mutated!(EpochUnchecked) {
        return Ok(false);
    }
    // A target may be passed where nobody else asks; over it the VO stands last, which is behind all who wait.
    let is_target = standing.sign == Sign::Target && nobody_waits;
    match extended || is_target {
        true => Ok(true),
        false => Err(over(standing)),
    }
}

/// NOW where the CPUs are free for this VO; else WAIT, but not for what lies beyond the epoch's share.
fn start(site: &SiteView, request: &Request<'_>, standing: &Standing, beyond: bool) -> Verdict {
    let ahead = mutant!(WaitingJumped, site.waiting, 0);
    let reserved = mutant!(GuaranteeIgnored, site.reserved_for_others(request.vo), 0);
    let idle = mutant!(
        OwnJobsUncounted,
        site.idle(),
        site.total.saturating_sub(site.held() - standing.burst_used)
    );
    let free = idle.saturating_sub(ahead).saturating_sub(reserved);
    if free >= request.cpus() {
        Verdict::Now { beyond }
    } else if beyond {
        Verdict::No(over(standing))
    } else {
        Verdict::Wait {
            estimate: site.wait,
        }
    }
}

fn over(standing: &Standing) -> Refusal {
    Refusal::Epoch {
        used: standing.epoch_used,
        share: standing.epoch_share,
        would_extend: standing.extensible || standing.sign == Sign::Target,
    }
}
