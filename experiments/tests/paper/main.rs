//! The evaluation of the FSGrid paper, on small Grids and short runs.
//!
//! Invariant: no test here needs the figures that a full run gives; those are what `simnet paper`
//! checks. Deliberately not here: bands measured over days.

mod agreement;
mod doctored;
mod printed;
mod repeat;
mod support;
