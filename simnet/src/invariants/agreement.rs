//! Strong eventual consistency: the same heads, the same numbers.
//!
//! Invariant checked: what a node counts of another site's usage is a function of what that site and the
//! others have published and it holds, over all nodes and all time. Where two nodes hold the same, they
//! count the same of every site that is neither of them.

use std::collections::HashMap;

use fairmesh_model::{AccountPath, ContentHash, Counters, SiteId, VoId};
use fairmesh_site::Account;

use super::{Invariant, Seen, Violation};

type Held = (VoId, ContentHash, SiteId);

/// The checker.
pub(super) struct Agreement {
    /// What is counted of a site where so much is held, and who was seen to do so first. Only looked up.
    counters: HashMap<Held, (Counters, usize)>,
    /// What each node held, in which of its lives, when it was looked at last. Only looked up.
    looked_at: HashMap<(usize, VoId), (ContentHash, u32)>,
}

impl Agreement {
    pub(super) fn new(_nodes: usize) -> Self {
        Self {
            counters: HashMap::new(),
            looked_at: HashMap::new(),
        }
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
            for status in site.vo_status(seen.world.now_at(node)) {
                let Some(held) = status.counters else {
                    continue;
                };
                let now = (held, seen.world.node(node).life());
                if self.looked_at.insert((node, status.vo), now) == Some(now) {
                    continue;
                }
                let account = Account {
                    vo: Some(status.vo),
                    path: AccountPath::root(),
                };
                let counted = site.usage_by_site(&account).into_iter();
                for (of, counters) in counted.filter(|(of, _)| *of != site.id()) {
                    let first = (counters, node);
                    let (before, who) =
                        *self.counters.entry((status.vo, held, of)).or_insert(first);
                    *checks += 1;
                    if before != counters {
                        let message = format!(
                            "holds the same of VO {} as site {who} did, and counts something else of site {}",
                            status.vo.short(),
                            of.short()
                        );
                        return Err(Violation::at(node, message));
                    }
                }
            }
        }
        Ok(())
    }
}
