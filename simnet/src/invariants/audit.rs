//! What members publish of corrections is what was taken back.
//!
//! Invariant checked, at rest: of each honest site and account every other node holds entries of an audit that amount
//! to no more than may be refunded, and to no less than was taken back for certain, and of as many jobs. The site
//! itself knows each job that it has taken back. Deliberately not here: who took it back, and why.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{AccountPath, VoId};
use fairmesh_site::AuditEntry;

use super::lost::site_vos;
use super::{Invariant, Seen, Violation};

pub(super) struct Audit;

impl Invariant for Audit {
    fn after_step(&mut self, _seen: &Seen<'_>, _checks: &mut u64) -> Result<(), Violation> {
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for node in seen.nodes() {
            let site = seen.world.site(node).expect("all run when all is at rest");
            for job in seen.oracle.jobs_taken_back(node) {
                *checks += 1;
                if !site.has_refunds(job) {
                    let message = format!("has forgotten that job {} was taken back", job.job);
                    return Err(Violation::at(node, message));
                }
            }
            for vo in site_vos(seen, node) {
                let members = site.audit_of_members(vo);
                for (id, entries) in members.filter(|(id, _)| !seen.lies(*id)) {
                    if let Some(of) = seen.world.index_of(id) {
                        *checks += check(seen, (node, of, vo), &entries)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a node holds of the audit of the site `of`.
fn check(
    seen: &Seen<'_>,
    (node, of, vo): (usize, usize, VoId),
    entries: &[AuditEntry],
) -> Result<u64, Violation> {
    let mut told: BTreeMap<&AccountPath, (u64, u64)> = BTreeMap::new();
    for entry in entries {
        let sum = told.entry(&entry.path).or_default();
        *sum = (sum.0 + entry.charge, sum.1 + entry.jobs);
    }
    // Corrections that have left the history, or that only a lost store had, are not published.
    let is_certain = seen.oracle.losses(of) == 0 && seen.oracle.first_window(Some(vo)) == 0;
    let certain = seen.oracle.taken_back(of).iter();
    let certain = certain.filter(|((of, _), _)| is_certain && *of == Some(vo));
    let certain: BTreeMap<_, _> = certain.map(|((_, path), amount)| (path, *amount)).collect();
    let most = seen.oracle.most_cells(of, Some(vo));
    let paths: BTreeSet<_> = told.keys().chain(certain.keys()).copied().collect();
    for path in &paths {
        let windows = most
            .and_then(|cells| cells.get(*path))
            .into_iter()
            .flatten();
        let most: u64 = windows.map(|(_, of)| of.refunds).sum();
        let [certain, told] = [&certain, &told].map(|of| of.get(path).copied().unwrap_or_default());
        if !(certain.0..=most).contains(&told.0) || told.1 < certain.1 {
            let message = format!(
                "holds that site {of} took back {told:?} (core-ms, jobs) of {path}; it was {certain:?} to {most} core-ms"
            );
            return Err(Violation::at(node, message));
        }
    }
    Ok(paths.len() as u64)
}
