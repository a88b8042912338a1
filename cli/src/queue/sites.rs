//! How the sites stand: by a file, or by what the node beside the queue knows.
//!
//! Invariant: what is given out is as old as it says, and as long as it was held; what cannot be read is told of,
//! and what was read before is used.

use std::time::SystemTime;

use fairmesh_api::Grid;
use fairmesh_broker::SiteView;
use fairmesh_model::Millis;

use super::RunArgs;
use crate::emulate::read_as;
use crate::place::known_by_node;

/// The sites, and when they stood so.
pub(super) struct Sites<'a> {
    args: &'a RunArgs,
    grid: Grid,
    at: Option<SystemTime>,
    silence: Option<Millis>,
}

impl<'a> Sites<'a> {
    /// Reads them for the first time.
    pub(super) fn open(args: &'a RunArgs) -> anyhow::Result<Self> {
        let mut sites = Self {
            args,
            grid: Grid::default(),
            at: None,
            silence: args.silence.map(Millis::from_secs),
        };
        match &args.grid {
            Some(file) => sites.grid = read_as(file, Grid::parse)?,
            None => sites.ask()?,
        }
        Ok(sites)
    }

    /// As they were read last.
    pub(super) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// After which a site of which nothing was heard is left out.
    pub(super) fn silence(&self) -> Option<Millis> {
        self.silence
    }

    /// As they stand now.
    pub(super) fn now(&mut self) -> anyhow::Result<Vec<SiteView>> {
        match &self.args.grid {
            Some(file) => {
                let written = std::fs::metadata(file)
                    .and_then(|meta| meta.modified())
                    .ok();
                if written.is_some() && written != self.at {
                    match read_as(file, Grid::parse) {
                        Ok(grid) => self.grid = grid,
                        Err(error) => note!("fairmesh: {error:#}; its last answer is used"),
                    }
                    self.at = written;
                }
            }
            None => {
                if let Err(error) = self.ask() {
                    note!("fairmesh: {error:#}; its last answer is used");
                }
            }
        }
        let since = self
            .at
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        let since = u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        let aged = |site: &SiteView| SiteView {
            age: site.age.map(|age| Millis(age.0.saturating_add(since))),
            ..site.clone()
        };
        Ok(self.grid.sites.iter().map(aged).collect())
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        let control = self.args.node.control();
        // Before the question, so that the answer is never taken for younger than it is.
        let at = SystemTime::now();
        let (grid, silence) = known_by_node(&control, &self.args.vo)?;
        (self.grid, self.at) = (grid, Some(at));
        if self.args.silence.is_none() {
            self.silence = Some(silence);
        }
        Ok(())
    }
}
