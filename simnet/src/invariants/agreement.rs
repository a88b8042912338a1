//! Strong eventual consistency: the same delivered set, the same counters.
//!
//! Invariant checked: counters are a function of the documents held and of the version vector with
//! its forks, over all nodes and all time. Both are what probes carry as hashes, so every probe and
//! every answer to one is a check. In swarms no history is shorter than a run, so the day on which a
//! node last forgot something plays no part.

use std::collections::HashMap;

use fairmesh_model::VoId;

use super::{Invariant, Seen, Violation};

type Held = (VoId, [u8; 8], [u8; 8]);

/// The checker.
pub(super) struct Agreement {
    /// What counters go with what is held, and who said so first. Only looked up.
    counters: HashMap<Held, ([u8; 8], usize)>,
}

impl Agreement {
    pub(super) fn new(_nodes: usize) -> Self {
        Self {
            counters: HashMap::new(),
        }
    }
}

impl Invariant for Agreement {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for probe in &seen.facts.probes {
            let summary = probe.summary;
            let held = (probe.vo, summary.documents, summary.usage);
            let first = (summary.counters, probe.node);
            let (counters, who) = *self.counters.entry(held).or_insert(first);
            *checks += 1;
            if counters != summary.counters {
                let message = format!(
                    "holds the same of VO {} as site {who} did, and has other counters",
                    probe.vo.short()
                );
                return Err(Violation::at(probe.node, message));
            }
        }
        Ok(())
    }
}
