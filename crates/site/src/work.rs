//! Long pure work that a driver does beside the site.
//!
//! The task that owns the site answers everybody, so no event may take long. What is long and needs nothing
//! but a few values is handed out with [`crate::Effect::Work`]; the driver runs it on another thread and
//! hands what comes of it back with [`crate::Event::Done`]. Until then the site goes on as before.
//!
//! Invariant: what comes of it depends on the value alone, never on when or where it is run, and a node
//! that ends meanwhile has lost nothing: what it was made of is durable before it is handed out.

use fairmesh_model::VoId;

use crate::document::Document;
use crate::published::{Sum, Summed};
use crate::shares::building::Blueprint;
use crate::shares::tree::Tree;

/// Something to work out.
#[derive(Debug)]
pub struct Work(Task);

/// What has come of it.
#[derive(Debug)]
pub struct Done(pub(crate) Outcome);

#[derive(Debug)]
enum Task {
    Read(Vec<u8>),
    Build(Blueprint),
    Sum(VoId, Box<Sum>),
}

#[derive(Debug)]
pub(crate) enum Outcome {
    /// A document; `None` for bytes that are none.
    Read(Option<Document>),
    /// A tree without usage.
    Built(Box<Tree>),
    /// A day of a member.
    Summed(VoId, Box<Summed>),
}

impl Work {
    pub(crate) fn read(bytes: Vec<u8>) -> Self {
        Self(Task::Read(bytes))
    }

    pub(crate) fn build(blueprint: Blueprint) -> Self {
        Self(Task::Build(blueprint))
    }

    /// Sums up a large day of a member.
    pub(crate) fn sum(vo: VoId, sum: Box<Sum>) -> Self {
        Self(Task::Sum(vo, sum))
    }

    /// Works it out: some tenths of a second for the largest.
    pub fn run(self) -> Done {
        Done(match self.0 {
            Task::Read(bytes) => Outcome::Read(Document::read(&bytes)),
            Task::Build(blueprint) => Outcome::Built(Box::new(Tree::build(&blueprint))),
            Task::Sum(vo, sum) => Outcome::Summed(vo, Box::new(sum.run())),
        })
    }
}
