//! What a liar can do is bounded.
//!
//! Invariant checked, at honest nodes: what they count of a liar is at most its declared capacity over
//! all that history reaches back; the sum that they compute of a VO is at most what honest feeds have
//! offered and the capacity of liars; their disks stay under a named bound; and where a lie must be
//! named, at rest one of them has told its operator who lies.

use fairmesh_model::{AccountPath, Millis, VoId};
use fairmesh_site::{Account, Site};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};
use crate::liar::{LIAR_CORES, named};
use crate::vo::site_id;

/// Days that history reaches back, and some for clocks that are ahead.
const DAYS: u64 = 460;

/// What a site may claim beyond its capacity, in halves: charges may be more than cores by time.
const SLACK_HALVES: u64 = 4;

/// What honest sites' running jobs are expected to use at most, core-milliseconds a site.
const RUNNING: u128 = 1_000_000_000_000;

/// Bytes on the disk of an honest node: some hundred times what a run of honest members leaves there.
const DISK_BYTES_MAX: usize = 32 << 20;

/// The scale of weights.
const ONE: u128 = 1 << 32;

/// Deep checks of one node between two of these.
const DEEP_BETWEEN: u64 = 16;

/// The checker.
pub(super) struct Bounded {
    passed: u64,
}

impl Bounded {
    pub(super) fn new(_nodes: usize) -> Self {
        Self { passed: 0 }
    }
}

fn capacity() -> u64 {
    let ms = Millis(86_400_000).times(DAYS).0;
    u64::from(LIAR_CORES) * ms / 2 * SLACK_HALVES
}

fn check_vo(seen: &Seen<'_>, node: usize, site: &Site, vo: VoId) -> Result<u64, Violation> {
    let account = Account {
        vo: Some(vo),
        path: AccountPath::root(),
    };
    let counted = site.usage_by_site(&account);
    for liar in seen.liars {
        let charge = counted.get(&site_id(liar.site)).map_or(0, |sum| sum.charge);
        if charge > capacity() {
            let message = format!(
                "counts {charge} core-ms of site {}, whose capacity allows {}",
                liar.site,
                capacity()
            );
            return Err(Violation::at(node, message));
        }
    }
    let honest: u128 = (0..seen.world.nodes().len())
        .flat_map(|of| seen.oracle.most(of, Some(vo)).into_values())
        .map(u128::from)
        .sum();
    let liars = u128::from(capacity()) * seen.liars.len() as u128;
    let running = RUNNING * seen.world.nodes().len() as u128;
    let most = 2 * honest + liars + running;
    let view = site.view();
    let Some(mount) = view.mounts().get(&vo) else {
        return Ok(1);
    };
    let snapshot = site.snapshot();
    let entry = snapshot.ids().find(|entry| snapshot.path(*entry) == mount);
    let sum = entry.map_or(0, |entry| snapshot.sums(entry).global) / ONE;
    if sum > most {
        let message = format!(
            "computes {sum} core-ms for VO {}; {most} is possible",
            vo.short()
        );
        return Err(Violation::at(node, message));
    }
    Ok(2)
}

fn check_disk(seen: &Seen<'_>, node: usize) -> Result<u64, Violation> {
    let rows = seen.world.node(node).disk.rows();
    let bytes: usize = rows
        .iter()
        .map(|(_, key, value)| key.len() + value.len())
        .sum();
    if bytes > DISK_BYTES_MAX {
        let message = format!("keeps {bytes} bytes; {DISK_BYTES_MAX} is the limit");
        return Err(Violation::at(node, message));
    }
    Ok(1)
}

impl Invariant for Bounded {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if !seen.deep || seen.liars.is_empty() {
            return Ok(());
        }
        self.passed += 1;
        if seen.node.is_some() && !self.passed.is_multiple_of(DEEP_BETWEEN) {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            for vo in site_vos(seen, node) {
                *checks += check_vo(seen, node, site, vo)?;
            }
            *checks += check_disk(seen, node)?;
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.after_step(seen, checks)?;
        let must_be_named = |lie: &str| named(lie).is_some_and(|lie| lie.is_named);
        for liar in seen.liars.iter().filter(|liar| must_be_named(&liar.lie)) {
            let short = site_id(liar.site).short();
            let notices = seen.nodes().flat_map(|node| &seen.world.node(node).notices);
            *checks += 1;
            if !notices
                .into_iter()
                .any(|notice| notice.to_string().contains(&short))
            {
                let message = format!(
                    "nobody has named site {}, which lies: {}",
                    liar.site, liar.lie
                );
                return Err(Violation::of_all(message));
            }
        }
        Ok(())
    }
}
