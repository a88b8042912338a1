//! Documents that have expired stay in force, and every answer says so.
//!
//! Invariant checked: a node that goes by a charter or a share policy whose time is over, by its own
//! clock, says that it does; one whose documents are all valid does not. That it goes by them still is
//! checked at rest, when all must hold what was signed last (`liveness`).

use fairmesh_model::{Charter, SharePolicy, Signed, VoId, WallTime};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};
use crate::vo::Vo;

/// Deep checks between two of these.
const DEEP_BETWEEN: u64 = 8;

#[derive(Default)]
pub(super) struct Expired {
    passed: u64,
}

impl Invariant for Expired {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.is_due(&mut self.passed, DEEP_BETWEEN) {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            let now = seen.world.now_at(node);
            let mounted = site_vos(seen, node);
            let held = site.held().filter(|(_, held)| held.charter_version > 0);
            let held: Vec<_> = held.map(|(vo, _)| vo).collect();
            let goes_by = |vo: &&Vo| mounted.contains(&vo.id) && held.contains(&vo.id);
            let vos = seen.world.founded_vos();
            // Whoever has read documents of a VO holds the policy that mounts it.
            let mounts = vos
                .iter()
                .filter(goes_by)
                .filter_map(|vo| vo.spec.mounts.as_ref());
            let mounts: Vec<VoId> = mounts.map(|(_, mount)| mount.vo).collect();
            let read = site.read_documents();
            let read = read
                .filter(|(vo, _)| mounts.contains(vo))
                .map(|(_, bytes)| bytes);
            let own = vos
                .iter()
                .filter(goes_by)
                .flat_map(|vo| site.documents(vo.id));
            let has_expired = own
                .map(|bytes| expires(&bytes))
                .chain(read.map(|bytes| expires(&bytes)))
                .flatten()
                .any(|at| at <= now.wall);
            let says = site.health(now).expired;
            *checks += 1;
            if says != has_expired {
                let message =
                    format!("says that documents have expired: {says}; {has_expired} is right");
                return Err(Violation::at(node, message));
            }
        }
        Ok(())
    }
}

/// Until when a charter or a share policy is valid.
fn expires(bytes: &[u8]) -> Option<WallTime> {
    let charter = Signed::<Charter>::parse(bytes).map(|of| of.claimed().expires);
    charter
        .or_else(|_| Signed::<SharePolicy>::parse(bytes).map(|of| of.claimed().expires))
        .ok()
}
