//! A layer between the world and its sites that can be made to lie.
//!
//! Checkers are trusted only as far as each has been seen to catch a bug that was put here on
//! purpose. Every method does nothing by default.
//!
//! Invariant: a world without a tamper and one with the default methods have the same trace.
//! Deliberately not here: the bugs.

use fairmesh_model::{Incarnation, JobKey};
use fairmesh_site::{Effect, Event, JobMark, Row, Site};

use crate::vo::Vo;

/// What a site is about to be started with.
#[derive(Debug)]
pub struct RestartPlan {
    /// The incarnation that the driver chose.
    pub incarnation: Incarnation,
    /// The driver's random bits.
    pub random: u64,
    /// What the store holds, without the marks of jobs.
    pub rows: Vec<Row>,
}

/// Changes what goes into sites and what comes out of them.
pub trait Tamper {
    /// Before a site gets an event.
    fn event(&mut self, _node: usize, _event: &mut Event) {}

    /// When a site gets this event: it answers from what it holds now.
    fn handles(&mut self, _node: usize, _event: &Event, _site: &Site, _vos: &[Vo]) {}

    /// Before a site's effects are carried out.
    fn effects(&mut self, _node: usize, _effects: &mut Vec<Effect>) {}

    /// Before a site is started on its store.
    fn restart(&mut self, _node: usize, _plan: &mut RestartPlan) {}

    /// When the mark of a job was looked up.
    fn mark(&mut self, _node: usize, _job: &JobKey, _mark: &mut Option<JobMark>) {}
}
