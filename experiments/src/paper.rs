//! The FSGrid paper's evaluation, run on the node's own code with gossip.
//!
//! | module | what it is |
//! |---|---|
//! | [`experiment`] | which runs there are |
//! | [`measure`] | what is measured of one run |
//! | [`outcome`] | all runs of all seeds, and their summary |
//! | [`check`] | what must hold, with bands |
//! | [`printed`] | figures 5 to 14 as the paper has them |
//! | [`chart`] | our own figures 5 to 14 |
//! | [`open_ends`] | what the thesis leaves open, as experiments |
//! | [`text`] | tables and JSON |
//!
//! Invariant: everything that is drawn, printed or checked comes from one [`outcome::Outcome`], so a
//! figure never shows other runs than those that were checked.
//!
//! Source: Elmroth & Gardfjäll (2005), section 5. Which of our own figures shows what
//! is our choice; each caption says what it shows.
//!
//! Deliberately not here: how a run works ([`crate::grid`], [`crate::central`]).

pub mod chart;
pub mod check;
pub mod experiment;
pub mod measure;
pub mod open_ends;
pub mod outcome;
pub mod printed;
pub mod text;
