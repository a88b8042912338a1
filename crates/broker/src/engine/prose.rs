//! What GRUBER's text says beside its pseudo-code: a third algorithm, which looks at waiting jobs.
//!
//! A site that has fewer CPUs waited for than free is available at once to a VO whose SLA is extensible.
//! Otherwise a VO under its allocation may send jobs, which start after a while; at or over it the site is
//! not available, for nobody knows how long its jobs will run. The job's size plays no part, and nor does the
//! epoch. The allocation is the burst limit.
//! Source: GRUBER (Euro-Par 2005), section 3.1, the text.

use super::{Refusal, Request, Verdict};
use crate::view::SiteView;

pub(super) fn judge(site: &SiteView, request: &Request<'_>) -> Verdict {
    let Some(standing) = site.vos.get(request.vo) else {
        return Verdict::No(Refusal::NoEntry);
    };
    if site.waiting < site.idle() && standing.extensible {
        return Verdict::Now { beyond: false };
    }
    if standing.burst_used < standing.burst_limit {
        return Verdict::Wait {
            estimate: site.wait,
        };
    }
    Verdict::No(Refusal::Burst {
        held: standing.burst_used,
        waiting: 0,
        asked: request.cpus(),
        limit: standing.burst_limit,
        strict: false,
    })
}
