//! Where jobs should run: the experiments of two papers around the real broker.
//!
//! | module | what it is |
//! |---|---|
//! | [`site`] | one pretended site: others' load, a batch system, what it says of itself |
//! | [`hosts`] | submit hosts with the broker's own queue manager, and the sites that they send to |
//! | [`measure`] | what is measured of a run |
//! | [`printed`] | the figures that GRUBER's paper prints |
//! | [`gruber`] | its experiments: six selectors, three kinds of Grid, one and four submit hosts |
//! | [`stale`] | views of different ages |
//! | [`liars`] | sites that say that all their CPUs are free |
//! | [`wishes`] | what the experiment with partial utility draws |
//! | [`clusters`] | four clusters that pass jobs on by the broker's own forwarding |
//! | [`utility`] | partial utility against one option and against all or nothing |
//!
//! The engine, the selectors and the queue manager are those that nodes run (`fairmesh-broker`); what is pretended is
//! what lies around them.
//!
//! Invariant: one seed gives one run, and the jobs, the sites' loads and which attempts fail do not depend on the
//! selector. No group is ever above its limit, nor the VO above its own: counted by what was submitted and what sites
//! have given back, after every submission.
//!
//! Deliberately not here: gossip. A view is made anew at fixed times and is there at once; its age is the experiment's.
//! Sources: Dumitrescu and Foster, "GRUBER: A Grid Resource Usage SLA Broker" (Euro-Par 2005), section 4; Vasques, "A
//! Decentralized Utility-based Grid Scheduling Algorithm" (draft).

pub mod clusters;
pub mod gruber;
pub mod hosts;
pub mod liars;
pub mod measure;
pub mod printed;
pub mod site;
pub mod stale;
#[cfg(test)]
mod tests;
pub mod utility;
pub mod wishes;

use crate::experiment::{Experiment, Extent};

/// All of them, by name.
pub const EXPERIMENTS: [Experiment; 4] = [
    ("gruber", gruber::experiment),
    ("stale", stale::experiment),
    ("liars", liars::experiment),
    ("utility", utility::experiment),
];
