//! Where a job should run: a pure broker that every node can ask with what it holds.
//!
//! Usage SLAs say what a consumer may have at a site (`sla`). An engine says of each site whether a job
//! could start there now, would wait, or is refused (`engine`), a selector puts the sites in order
//! (`selector`), partial utility says how much of what a job wishes a machine has (`utility`). A job may
//! be forwarded from site to site (`forward`), and a queue on the submit host keeps the limits of a VO and
//! its groups (`queue`).
//!
//! Invariants: integers only; nothing here reads a clock or draws a number, both are handed in; of two
//! brokers with the same views, history and draws both answer alike; each refusal has its reason.
//!
//! Deliberately not here: where views come from, the submit command, files. What a job costs is
//! `fairmesh-fairshare`'s; a request holds the job that is charged there.
//! Sources: Dumitrescu and Foster, "GRUBER: A Grid Resource Usage SLA Broker" (Euro-Par 2005), sections 2
//! and 3; Vasques, "A Decentralized Utility-based Grid Scheduling Algorithm" (draft).
#![warn(clippy::float_arithmetic, clippy::cast_possible_truncation)]

pub mod disk;
pub mod engine;
pub mod forward;
pub mod machines;
pub mod queue;
pub mod rank;
pub mod selector;
pub mod sla;
pub mod utility;
pub mod view;
pub mod weigh;
mod wish;

pub use engine::{Engine, Refusal, Request, Verdict, judge};
pub use machines::Machines;
pub use rank::{Known, Ranked, Ranking, rank};
pub use selector::{Candidate, Chooser, Draw, Selector};
pub use sla::{Sign, Sla, SlaEntry, SlaError, Standing};
pub use view::SiteView;

#[cfg(all(test, feature = "mutants"))]
mod mutants;
