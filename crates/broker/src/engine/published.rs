//! GRUBER's engine as printed, to be compared with: do not place real jobs by it.
//!
//! Its faults are kept, each with a row in the tests. The sum leaves out the VO itself, so that a site which
//! the VO's own jobs have filled passes. Both comparisons are strict, so that the last CPU of a burst limit
//! is never given, and a job that asks for a whole site never passes. An extensible site that stands idle is
//! refused as soon as the epoch's share is used, against the paper's own text.
//! Source: GRUBER (Euro-Par 2005), section 3.1, the pseudo-code.

use super::{Refusal, Request, Verdict};
use crate::view::SiteView;

pub(super) fn judge(site: &SiteView, request: &Request<'_>) -> Verdict {
    let asked = request.cpus();
    // Without an entry EP and BP are 0, and the burst limit refuses any job.
    let Some(standing) = site.vos.get(request.vo) else {
        return Verdict::No(Refusal::NoEntry);
    };
    if standing.epoch_used > u64::from(standing.epoch_share.units()) {
        return Verdict::No(Refusal::Epoch {
            used: standing.epoch_used,
            share: standing.epoch_share,
            would_extend: false,
        });
    }
    let others = site.vos.iter().filter(|(name, _)| &***name != request.vo);
    let held = others.fold(0_u64, |sum, (_, of)| sum.saturating_add(of.burst_used));
    if held.saturating_add(asked) >= site.total {
        let total = site.total;
        return Verdict::No(Refusal::Others { held, asked, total });
    }
    let mine = standing.burst_used;
    if mine.saturating_add(asked) >= standing.burst_limit && !standing.extensible {
        return Verdict::No(Refusal::Burst {
            held: mine,
            waiting: 0,
            asked,
            limit: standing.burst_limit,
            strict: true,
        });
    }
    Verdict::Now { beyond: false }
}
