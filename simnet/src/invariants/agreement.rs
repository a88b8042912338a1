//! Strong eventual consistency: the same heads, the same numbers.
//!
//! Invariant checked: what a node counts of another site's usage is a function of what that site and the
//! others have published and it holds, over all nodes and all time. Where two nodes hold the same, they
//! count the same of every site that is neither of them, and probe with the same summary, so that they
//! have nothing to ask each other.

use std::collections::HashMap;

use fairmesh_model::{AccountPath, ContentHash, Counters, SiteId, VoId, cbor};
use fairmesh_site::{Account, Holding, Site};

use super::{Invariant, Seen, Violation};

type Held = (VoId, ContentHash, SiteId);

#[derive(Default)]
pub(super) struct Agreement {
    /// What is counted of a site where so much is held, and who was seen to do so first. Only looked up,
    /// as are the others.
    counters: HashMap<Held, (Counters, usize)>,
    /// What each node held, in which of its lives, when it was looked at last.
    looked_at: HashMap<(usize, VoId), (ContentHash, u32)>,
    /// What goes with heads and documents, and who had it first.
    summaries: HashMap<ContentHash, (ContentHash, usize)>,
}

impl Agreement {
    fn check_counters(
        &mut self,
        (node, life): (usize, u32),
        site: &Site,
        (vo, held): (VoId, &Holding),
    ) -> Result<u64, Violation> {
        let Some(held) = held.counters else {
            return Ok(0);
        };
        let now = (held, life);
        if self.looked_at.insert((node, vo), now) == Some(now) {
            return Ok(0);
        }
        let account = Account {
            vo: Some(vo),
            path: AccountPath::root(),
        };
        let mut checks = 0;
        let counted = site.usage_by_site(&account).into_iter();
        for (of, counters) in counted.filter(|(of, _)| *of != site.id()) {
            let first = (counters, node);
            let (before, who) = *self.counters.entry((vo, held, of)).or_insert(first);
            checks += 1;
            if before != counters {
                let message = format!(
                    "holds the same of VO {} as site {who} did, and counts something else of site {}",
                    vo.short(),
                    of.short()
                );
                return Err(Violation::at(node, message));
            }
        }
        Ok(checks)
    }

    fn check_summary(
        &mut self,
        node: usize,
        site: &Site,
        held: &[(VoId, Holding)],
    ) -> Result<u64, Violation> {
        let row = |(vo, held): &(VoId, Holding)| {
            let heads = held.heads.iter();
            let heads = heads.map(|(stream, seq)| (stream.site, stream.incarnation, *seq));
            (*vo, held.documents, heads.collect::<Vec<_>>())
        };
        let held: Vec<_> = held.iter().map(row).collect();
        let held = ContentHash::of(&cbor::to_vec(&held));
        let summary = site.holdings();
        let (before, who) = *self.summaries.entry(held).or_insert((summary, node));
        if before != summary {
            let message = format!("holds what site {who} did, and says that it holds otherwise");
            return Err(Violation::at(node, message));
        }
        Ok(1)
    }
}

impl Invariant for Agreement {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.deep {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            let held: Vec<(VoId, Holding)> = site.held().collect();
            // What is held counts when the site has come to it.
            for (vo, held) in held.iter().filter(|(vo, _)| !site.is_counting(*vo)) {
                let life = seen.world.node(node).life();
                *checks += self.check_counters((node, life), site, (*vo, held))?;
            }
            // Proofs of forks are in the summary and not in the heads: there are none of honest sites.
            if seen.liars.is_empty() {
                *checks += self.check_summary(node, site, &held)?;
            }
        }
        Ok(())
    }
}
