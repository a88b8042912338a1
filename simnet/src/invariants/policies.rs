//! Policy versions never fall, and each document has its authority's signatures.
//!
//! Invariant checked: the version of the charter in force, of the share policy of each path and of the snapshot at a
//! node never fall, over all its lives, as long as its store was not lost or replaced. Charters and policies that it
//! goes by are, to the byte, those that the authority has signed, with as many keys as the charter before asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{AccountPath, ContentHash, SharePolicy, Signed, Snapshot, VoId};
use fairmesh_site::Site;

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};
use crate::world::StepKind;

#[derive(Debug, Clone, Default)]
struct Versions {
    documents: Option<ContentHash>,
    charter: u64,
    policies: BTreeMap<AccountPath, u64>,
    snapshot: u64,
}

pub(super) struct Policies {
    seen: Vec<BTreeMap<VoId, Versions>>,
}

impl Policies {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            seen: vec![BTreeMap::new(); nodes],
        }
    }

    fn check(&mut self, seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
        let mounted = site_vos(seen, node);
        let mut checks = 0;
        for (vo, held) in site.held() {
            let known = self.seen[node].entry(vo).or_default();
            if !mounted.contains(&vo) || known.documents == held.documents {
                continue;
            }
            checks += 1;
            let documents = site.documents(vo);
            let is_signed = |bytes: &Arc<[u8]>| seen.oracle.documents.is_signed(bytes);
            if !documents.iter().all(is_signed) {
                let message = "goes by a document that its authority has not signed as it must";
                return Err(Violation::at(node, message));
            }
            let (policies, snapshot) = (newest(&documents), snapshot(&documents));
            let fell = known
                .policies
                .iter()
                .find(|(path, version)| policies.get(*path).is_none_or(|now| now < *version));
            if held.charter_version < known.charter {
                let message = format!(
                    "goes by charter {} after {}",
                    held.charter_version, known.charter
                );
                return Err(Violation::at(node, message));
            }
            if let Some((path, version)) = fell {
                let message = format!("no longer goes by version {version} of {path}");
                return Err(Violation::at(node, message));
            }
            // Roles of snapshots do not change here, so nothing may begin anew.
            if snapshot < known.snapshot {
                let message = format!("holds snapshot {snapshot} after {}", known.snapshot);
                return Err(Violation::at(node, message));
            }
            *known = Versions {
                documents: held.documents,
                charter: held.charter_version,
                policies,
                snapshot,
            };
        }
        Ok(checks)
    }
}

/// The version of the snapshot; 0 for none.
fn snapshot(documents: &[Arc<[u8]>]) -> u64 {
    let read = documents
        .iter()
        .map(|bytes| Signed::<Snapshot>::parse(bytes));
    let versions = read.flatten().map(|signed| signed.claimed().version);
    versions.max().unwrap_or(0)
}

fn newest(documents: &[Arc<[u8]>]) -> BTreeMap<AccountPath, u64> {
    let mut versions: BTreeMap<AccountPath, u64> = BTreeMap::new();
    for bytes in documents {
        if let Ok(signed) = Signed::<SharePolicy>::parse(bytes) {
            let policy = signed.claimed();
            let newest = versions.entry(policy.path.clone()).or_default();
            *newest = (*newest).max(policy.version);
        }
    }
    versions
}

impl Invariant for Policies {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.deep && seen.kind != StepKind::Started {
            return Ok(());
        }
        for node in seen.nodes() {
            if let Some(site) = seen.world.site(node) {
                *checks += self.check(seen, node, site)?;
            }
        }
        Ok(())
    }

    fn forgot(&mut self, node: usize, _keeps_side: bool) {
        self.seen[node].clear();
    }
}
