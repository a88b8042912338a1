//! Whoever lacks what a VO's snapshot names says so.
//!
//! Invariant checked: a node says that nobody vouches for what it goes by exactly where a VO that it takes part in
//! has somebody who signs snapshots, and the node holds none, holds one whose time is over or has not begun by its
//! own clock, or lacks a document that it names and holds none that is newer, there or further up. What is held is
//! read from the documents' bytes, and nothing of how the node compares them. That all hold what was signed last at
//! rest is checked by `liveness`, and that versions do not fall by `policies`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairmesh_model::{AccountPath, Charter, ContentHash, SharePolicy, Signed, Snapshot, WallTime};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

/// Deep checks between two of these.
const DEEP_BETWEEN: u64 = 8;

/// How far ahead a snapshot may have been signed before it is remarked on.
const AHEAD_MS: u64 = 300_000;

#[derive(Default)]
pub(super) struct Vouched {
    passed: u64,
}

/// What is held of a VO, as far as snapshots name it.
#[derive(Default)]
struct Held {
    hashes: BTreeSet<ContentHash>,
    charter: Option<Charter>,
    policies: BTreeMap<AccountPath, u64>,
    snapshot: Option<Snapshot>,
}

impl Held {
    fn read(documents: &[Arc<[u8]>]) -> Self {
        let mut held = Self::default();
        for bytes in documents {
            if let Ok(signed) = Signed::<Charter>::parse(bytes) {
                held.hashes.insert(signed.hash());
                let newest = held.charter.as_ref().map_or(0, |of| of.version);
                if signed.claimed().version > newest {
                    held.charter = Some(signed.claimed().clone());
                }
            } else if let Ok(signed) = Signed::<SharePolicy>::parse(bytes) {
                held.hashes.insert(signed.hash());
                let (path, version) = (signed.claimed().path.clone(), signed.claimed().version);
                let newest = held.policies.entry(path).or_default();
                *newest = version.max(*newest);
            } else if let Ok(signed) = Signed::<Snapshot>::parse(bytes) {
                held.snapshot = Some(signed.claimed().clone());
            }
        }
        held
    }

    /// Whether nobody vouches for it at `now`, and why.
    fn unvouched(&self, now: WallTime) -> Option<String> {
        let charter = self.charter.as_ref()?;
        charter.snapshot.as_ref()?;
        let Some(snapshot) = &self.snapshot else {
            return Some("it holds no snapshot".to_owned());
        };
        if now >= snapshot.expires || snapshot.issued.0 > now.0 + AHEAD_MS {
            return Some("its snapshot is not valid now".to_owned());
        }
        if !self.hashes.contains(&snapshot.charter.hash) {
            return Some("it lacks the charter that its snapshot names".to_owned());
        }
        if charter.version > snapshot.charter.version {
            return None;
        }
        let version = |path: &AccountPath| self.policies.get(path).copied().unwrap_or(0);
        let is_newer = |path: &AccountPath| {
            let named = snapshot.policies.get(path).map_or(0, |named| named.version);
            version(path) > named
        };
        let mut lacked = snapshot.policies.iter().filter(|(path, named)| {
            !self.hashes.contains(&named.hash) && !path.ancestors().any(|above| is_newer(&above))
        });
        let (path, _) = lacked.next()?;
        Some(format!(
            "it lacks the policy of {path} that its snapshot names"
        ))
    }
}

impl Invariant for Vouched {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.is_due(&mut self.passed, DEEP_BETWEEN) {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            let now = seen.world.now_at(node);
            let vos = site_vos(seen, node).into_iter();
            let mut why = vos.filter_map(|vo| Held::read(&site.documents(vo)).unvouched(now.wall));
            let (says, why) = (site.health(now).unvouched, why.next());
            *checks += 1;
            if says != why.is_some() {
                let why = why.unwrap_or_else(|| "it lacks nothing".to_owned());
                let message = format!("says that nobody vouches for its documents: {says}; {why}");
                return Err(Violation::at(node, message));
            }
        }
        Ok(())
    }
}
