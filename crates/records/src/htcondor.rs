//! HTCondor's history: ads as JSON, as `Name = value` lines and as XML, and lines of fields.
//!
//! Invariant: an ad is read the same whichever way it is written, names without regard to case. An
//! attribute that is an expression and not a value is as good as absent.
//!
//! A job may run several times: it has one ad in the end, with its first start and the wall-clock
//! time of all runs together, which is what it held its slot for.

mod ad;
mod json;
mod text;
mod xml;

pub(crate) use json::AdObject;
pub(crate) use text::{AdLines, FieldLine};
pub(crate) use xml::AdElements;
