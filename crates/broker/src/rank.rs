//! Which of several sites may have a job, the best first, and why the others may not.
//!
//! An engine says of each site whether the job may go there, what the job wishes leaves out sites that meet
//! nothing of it, and a selector puts the others in order.
//!
//! Invariant: every site is in the answer once, with its verdict; those that may not have the job go by name.
//! Deliberately not here: where views come from, and what a job costs.

use fairmesh_model::{Millis, WallTime};

use crate::engine::{Engine, Refusal, Request, Verdict, judge};
use crate::selector::{Candidate, Chooser, Draw, Selector};
use crate::view::SiteView;

/// A site that is to be judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// What is known of it.
    pub view: SiteView,
    /// Partial utility of its best class in millionths, where the job wishes anything; 0 where nothing is met.
    pub utility: Option<u32>,
    /// Whether the broker is this site's own.
    pub own: bool,
    /// When what is known was so, by the broker's clock.
    pub known_at: WallTime,
}

/// By what sites are judged and ordered.
#[derive(Debug, Clone, Copy)]
pub struct Ranking<'a> {
    /// Which engine decides what is available.
    pub engine: Engine,
    /// Views older than this are not used.
    pub silence: Option<Millis>,
    /// How sites are ordered, and what was sent to them before.
    pub chooser: &'a Chooser,
}

/// What is said of each site, by its index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranked {
    /// Those that may have the job, the best first.
    pub taken: Vec<(usize, Verdict)>,
    /// Those that may not, by name.
    pub refused: Vec<(usize, Verdict)>,
}

/// Judges and orders sites for a job.
pub fn rank(sites: &[&Known], request: &Request<'_>, by: Ranking<'_>, draw: Draw<'_>) -> Ranked {
    let verdict = |known: &&Known| match known.utility {
        // The baseline asks nobody.
        _ if by.chooser.selector == Selector::Naive => Verdict::Now { beyond: false },
        Some(0) => Verdict::No(Refusal::NothingMet),
        _ => judge(by.engine, &known.view, request, by.silence),
    };
    let judged = sites.iter().map(verdict).enumerate();
    let (mut refused, taken): (Vec<_>, Vec<_>) =
        judged.partition(|(_, verdict)| matches!(verdict, Verdict::No(_)));
    refused.sort_by(|(a, _), (b, _)| sites[*a].view.name.cmp(&sites[*b].view.name));
    let candidate = |(index, verdict): &(usize, Verdict)| Candidate {
        now: verdict.is_now(),
        utility: sites[*index].utility.unwrap_or_default(),
        own: sites[*index].own,
        known_at: sites[*index].known_at,
        ..Candidate::of(&sites[*index].view)
    };
    let candidates: Vec<_> = taken.iter().map(candidate).collect();
    let order = by.chooser.rank(&candidates, request.wall, draw).into_iter();
    Ranked {
        taken: order.map(|index| taken[index].clone()).collect(),
        refused,
    }
}
