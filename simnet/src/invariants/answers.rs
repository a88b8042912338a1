//! What a site answers is what the papers say, of the usage that there is.
//!
//! Two layers. *Raw*: the cells that a site counts, and what it expects of running jobs, lie between
//! what it must count and what it may, site by site, account by account, window by window and in all
//! counters; at rest the two are equal unless a disk was lost. *Derived*: targets, weighted usage,
//! deviations, ranks and factors of all entries are the oracle's, to the last digit, given the cells
//! that the site itself shows, at any moment.
//!
//! Invariant checked: both. Deliberately not here: what is right (`crate::oracle`).

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, SiteId, VoId};
use fairmesh_site::Site;

use super::{Invariant, Seen, StepKind, Violation};
use crate::oracle::HeldVos;
use crate::oracle::answers::{Row, Running};
use crate::world::World;

mod bands;
mod derived;
mod raw;

/// Deep checks of one node between two of these.
const DEEP_BETWEEN: u64 = 8;

#[derive(Default)]
pub(super) struct Answers {
    passed: u64,
}

/// What is looked at: one site, and what it shows.
struct Look<'a> {
    seen: &'a Seen<'a>,
    node: usize,
    site: &'a Site,
    held: HeldVos<'a>,
    read: HeldVos<'a>,
    rows: Vec<Row>,
    expected: Vec<(VoId, SiteId, AccountPath, u64)>,
    running: Vec<Running>,
    at_rest: bool,
}

impl<'a> Look<'a> {
    fn at(seen: &'a Seen<'a>, node: usize, at_rest: bool) -> Option<Self> {
        let site = seen.world.site(node)?;
        let documents = seen.vos.iter().flat_map(|vo| site.documents(*vo));
        let read = site.read_documents().map(|(_, bytes)| bytes);
        let rows = site.usage_cells().map(|cell| Row {
            site: cell.site,
            account: (cell.vo, cell.path),
            span: cell.span,
            counters: cell.counters,
        });
        let expected = site
            .expected_usage()
            .map(|(vo, of, path, charge)| (vo, of, path.clone(), charge.0));
        let running = site.running_usage();
        let running = running.map(|(of, span, charge)| ((of.vo, of.path.clone()), span, charge));
        Some(Self {
            seen,
            node,
            site,
            held: seen.oracle.documents.in_force(documents),
            read: seen.oracle.documents.in_force(read),
            rows: rows.collect(),
            expected: expected.collect(),
            running: running.collect(),
            at_rest,
        })
    }

    /// Whether any clock is or was wrong.
    fn clocks_off(&self) -> bool {
        clocks_were_wrong(self.seen.world)
    }

    fn wrong(&self, message: impl Into<String>) -> Violation {
        Violation::at(self.node, message)
    }

    fn check(&self) -> Result<u64, Violation> {
        Ok(raw::check(self)? + derived::check(self)?)
    }
}

impl Invariant for Answers {
    fn after_step(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        if let Some(node) = seen.node {
            *checks += raw::check_running(seen, node)?;
            if seen.kind == StepKind::Running {
                *checks += raw::check_list(seen, node)?;
            }
        }
        let (true, Some(node)) = (seen.deep, seen.node) else {
            return Ok(());
        };
        self.passed += 1;
        if self.passed.is_multiple_of(DEEP_BETWEEN)
            && let Some(look) = Look::at(seen, node, false)
        {
            *checks += look.check()?;
        }
        Ok(())
    }

    fn at_rest(&mut self, seen: &Seen<'_>, checks: &mut u64) -> Result<(), Violation> {
        for node in seen.nodes() {
            let look = Look::at(seen, node, true).expect("all run when all is at rest");
            *checks += look.check()? + raw::check_running(seen, node)?;
        }
        Ok(())
    }
}

/// Whether any clock is or was wrong.
pub(crate) fn clocks_were_wrong(world: &World) -> bool {
    let faults = world.faults();
    let clocks = ["clock_jump", "clock_drift"];
    clocks.iter().any(|word| faults.of(word) > 0)
}

/// A VO's name in messages, or that it is none.
fn name(vo: Option<VoId>) -> String {
    vo.map_or("its own accounts".to_owned(), |vo| {
        format!("VO {}", vo.short())
    })
}

type ByAccount<'a, T> = BTreeMap<(SiteId, Option<VoId>, &'a AccountPath), T>;
