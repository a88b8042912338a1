//! Answers carry true age and coverage.
//!
//! Invariant checked: what a node says it last heard of a site is no younger than what that site has
//! signed and the node can hold; and it counts the charter's sites, and those it has heard, rightly.

use std::collections::{BTreeMap, HashMap};

use fairmesh_model::{SiteId, StreamId, VoId};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

/// The checker.
pub(super) struct Coverage {
    /// Up to each position of a stream, the latest moment that was signed.
    at: BTreeMap<(VoId, StreamId), BTreeMap<u64, u64>>,
    /// The latest sheet of each site. Only looked up.
    sheets: HashMap<(VoId, SiteId), u64>,
}

impl Coverage {
    pub(super) fn new(_nodes: usize) -> Self {
        Self {
            at: BTreeMap::new(),
            sheets: HashMap::new(),
        }
    }

    fn signed(&mut self, vo: VoId, stream: StreamId, seq: u64, at_ms: u64) {
        let moments = self.at.entry((vo, stream)).or_default();
        let before = moments.range(..=seq).next_back().map_or(0, |(_, at)| *at);
        moments.insert(seq, before.max(at_ms));
    }

    fn learn(&mut self, seen: &Seen<'_>) {
        for batch in &seen.facts.batches {
            if let Some(body) = &batch.body {
                self.signed(batch.id.vo, batch.id.stream, body.seq.0, body.at.0);
            }
        }
        for signed in &seen.facts.signed {
            match signed.of {
                Some((stream, seq)) => self.signed(signed.vo, stream, seq, signed.at_ms),
                None => {
                    let last = self.sheets.entry((signed.vo, signed.site)).or_default();
                    *last = (*last).max(signed.at_ms);
                }
            }
        }
    }

    /// The latest moment that a node which has ever held so much of a site can know of.
    fn latest(&self, vo: VoId, site: SiteId) -> u64 {
        let streams = self.at.range((vo, first(site))..);
        let streams = streams.take_while(|((of, stream), _)| *of == vo && stream.site == site);
        let newest = streams.filter_map(|(_, moments)| moments.values().next_back());
        let sheet = self.sheets.get(&(vo, site)).copied().unwrap_or(0);
        newest.copied().max().unwrap_or(0).max(sheet)
    }
}

fn first(site: SiteId) -> StreamId {
    StreamId {
        site,
        incarnation: fairmesh_model::Incarnation(0),
    }
}

impl Invariant for Coverage {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.learn(seen);
        if !seen.deep {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            for vo in site_vos(seen, node) {
                let coverage = site.coverage_of(vo);
                *checks += 1;
                let heard = u32::try_from(coverage.heard.len()).unwrap_or(u32::MAX);
                if heard != coverage.sites_heard || heard > coverage.sites_total {
                    let message = format!(
                        "claims to have heard {} of {} sites, and names {heard}",
                        coverage.sites_heard, coverage.sites_total
                    );
                    return Err(Violation::at(node, message));
                }
                for (of, at) in coverage.heard.iter().filter(|(of, _)| !seen.lies(**of)) {
                    let latest = self.latest(vo, *of);
                    if at.0 > latest {
                        let message = format!(
                            "claims to have heard site {} at {}, which last signed at {latest}",
                            of.short(),
                            at.0
                        );
                        return Err(Violation::at(node, message));
                    }
                }
            }
        }
        Ok(())
    }
}
