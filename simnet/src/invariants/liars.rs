//! What a liar can do is bounded.
//!
//! Invariant checked, at honest nodes: the sum that they compute of a VO is at most what honest feeds have offered and
//! the declared capacity of liars over all that history reaches back; their disks stay under a named bound; no push is
//! unpacked beyond 4 MiB (docs/gossip.md); no honest site is said to contradict itself; and where a lie must be named,
//! at rest one of them has told its operator who lies, by the notice that the table of lies says.

use fairmesh_model::{Millis, VoId};
use fairmesh_site::{Notice, Site};

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};
use crate::liar::{LIAR_CORES, Liar, Named, named as lie};
use crate::vo::site_id;

/// Days that history reaches back, and some for clocks that are ahead.
const DAYS: u64 = 460;

/// Cores that a site may charge for each that it has: weights of GPUs and memory make jobs cost more
/// than their cores.
const CHARGED_CORES_MAX: u64 = 40;

/// What honest sites' running jobs are expected to use at most, core-milliseconds a site.
const RUNNING: u128 = 1_000_000_000_000;

/// Bytes on the disk of an honest node: some hundred times what a run of honest members leaves there.
const DISK_BYTES_MAX: usize = 32 << 20;

/// The scale of weights.
const ONE: u128 = 1 << 32;

/// Deep checks of one node between two of these.
const DEEP_BETWEEN: u64 = 16;

#[derive(Default)]
pub(super) struct Bounded {
    passed: u64,
}

fn capacity() -> u64 {
    u64::from(LIAR_CORES) * CHARGED_CORES_MAX * Millis(86_400_000).times(DAYS).0
}

fn check_vo(seen: &Seen<'_>, node: usize, site: &Site, vo: VoId) -> Result<u64, Violation> {
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
    Ok(1)
}

/// Nobody is named for what he has not done.
fn check_names(seen: &Seen<'_>, node: usize, site: &Site) -> Result<u64, Violation> {
    for notice in site.notices() {
        if let Notice::Forked { site, .. } = notice
            && !seen.lies(*site)
        {
            let message = format!("says that site {} contradicts itself", site.short());
            return Err(Violation::at(node, message));
        }
    }
    Ok(1)
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
        if let Some(node) = seen.facts.unpacked.first() {
            let message = "takes a head that only a push of more than 4 MiB, unpacked, has shown";
            return Err(Violation::at(*node, message));
        }
        if seen.liars.is_empty() || !seen.is_due(&mut self.passed, DEEP_BETWEEN) {
            return Ok(());
        }
        for node in seen.nodes() {
            let Some(site) = seen.world.site(node) else {
                continue;
            };
            for vo in site_vos(seen, node) {
                *checks += check_vo(seen, node, site, vo)?;
            }
            *checks += check_names(seen, node, site)?;
            *checks += check_disk(seen, node)?;
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        self.after_step(seen, checks)?;
        let have_lied = |liar: &&Liar| seen.facts.lied.contains(&liar.site);
        for liar in seen.liars.iter().filter(have_lied) {
            let (site, does) = (liar.site, &liar.lie);
            *checks += 1;
            let message = match lie(does).map(|lie| lie.named) {
                Some(Named::For(code, why)) if !is_named(seen, site, code, why) => {
                    format!("nobody has named site {site}, which lies ({does}): `{code}` {why}")
                }
                Some(Named::Nothing) => format!("site {site} counts its own lie ({does})"),
                _ => continue,
            };
            return Err(Violation::of_all(message));
        }
        Ok(())
    }
}

/// Whether an honest site has told its operator so about a site.
fn is_named(seen: &Seen<'_>, site: usize, code: &str, why: &str) -> bool {
    let short = site_id(site).short();
    let mut notices = seen.nodes().flat_map(|node| &seen.world.node(node).notices);
    notices.any(|notice| {
        let text = notice.to_string();
        notice.code() == code && text.contains(&short) && text.contains(why)
    })
}
