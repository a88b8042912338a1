//! Experiments on the simulator: what Fairmesh's sites do in the Grids of papers and of recorded logs.
//!
//! | module | what it is |
//! |---|---|
//! | [`experiment`] | what experiments have in common: cases by seeds, tables, pictures and claims |
//! | [`figures`] | one figure as a table and as a picture |
//! | [`grid`] | clusters whose schedulers ask their own site's node who is next |
//! | [`central`] | the all-knowing scheduler that gossip is measured against |
//! | [`paper`] | the FSGrid paper's evaluation: runs, measures, checks, figures |
//! | [`quotas`] | what quotas do in a Grid |
//! | [`placement`] | where jobs should run: the experiments of two papers |
//! | [`whatif`] | recorded load under an old and a new policy |
//! | [`charging`] | recorded jobs under two rules of charging |
//! | [`scale`] | how far and how fast a change travels among a thousand sites |
//! | [`campaign`] | runs that are spread over many processes, and putting them together |
//! | [`cli`] | their command lines |
//!
//! Invariant: one seed gives the same tables and pictures, byte for byte, on any machine and any number of threads.
//! Deliberately not here: the simulator itself (`simnet`), which knows of no experiment.

pub mod experiment;
pub mod figures;

pub mod central;
pub mod grid;

pub mod charging;
pub mod paper;
pub mod placement;
pub mod quotas;
pub mod scale;
pub mod whatif;

pub mod campaign;
pub mod cli;
