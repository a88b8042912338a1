//! The FSGrid paper's evaluation, run on the node's own code with gossip.
//!
//! | module | what it is |
//! |---|---|
//! | [`experiment`] | which runs there are |
//! | [`measure`] | what is measured of one run |
//! | [`outcome`] | all runs of all seeds, and their summary |
//! | [`check`] | what must hold, with bands |
//! | [`chart`] | figures 5 to 14 |
//! | [`text`] | tables and JSON |
//!
//! Invariant: everything that is drawn, printed or checked comes from one [`outcome::Outcome`], so a
//! figure never shows other runs than those that were checked.
//!
//! Source: Elmroth & Gardfjäll (2005), section 5. Which figure shows what is our own choice where the
//! paper's order could not be kept; each caption says what it shows.
//!
//! Deliberately not here: how a run works ([`crate::grid`], [`crate::central`]).

pub mod chart;
pub mod check;
pub mod experiment;
pub mod measure;
pub mod outcome;
pub mod text;
