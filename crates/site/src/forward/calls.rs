//! Calls about jobs that are passed on, and their answers.

use std::collections::BTreeSet;

use fairmesh_model::{ContentHash, SiteId, VoId};

use super::offer::{JobRequest, Offer};
use super::rows::{Stage, Withdrawal};

/// A call about jobs that are passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardCall {
    /// Find a place for this, with so many hops at most.
    HandIn(Box<JobRequest>, Option<u8>),
    /// What came of a job that was here to be handed to the batch system.
    Settle(ContentHash, Settlement),
    /// Its user takes a job back that was handed in here.
    Withdraw(ContentHash),
    /// Whether a job that the batch system has was withdrawn from it.
    Withdrew(ContentHash, bool),
}

/// The batch system's verdict on a job that was handed to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It accepted the job, under this id.
    Submitted(String),
    /// It refused the job and certainly does not run it, so the job goes to another site. The text says why.
    Refused(String),
    /// Whether it accepted the job is unknown, so the job goes nowhere else: two sites might run it.
    InDoubt(String),
}

/// What a call comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardAnswer {
    /// The job's name in the mesh.
    HandedIn(ContentHash),
    /// The batch system's verdict is noted.
    Settled,
}

/// The answer to a call; an error says what is wrong with the call, and that nothing was done.
pub type ForwardReply = Result<ForwardAnswer, String>;

/// A job, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedJob {
    /// Its name in the mesh.
    pub id: ContentHash,
    /// The VO that the job runs in.
    pub vo: VoId,
    /// Its user's name for it.
    pub key: String,
    /// The user's name at the site where the job was handed in.
    pub user: String,
    /// CPUs that it asks for.
    pub cpus: u32,
    /// Whether it was handed in here: its user is one of this site.
    pub is_own: bool,
    /// Who sent it; somebody also where it was handed in here and came back.
    pub from: BTreeSet<SiteId>,
    /// How far the job has come.
    pub stage: Stage,
    /// Whether its user takes it back.
    pub withdrawal: Withdrawal,
}

/// A job that is to be handed to the batch system here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HereJob {
    /// Its name in the mesh.
    pub id: ContentHash,
    /// A number that tells its visits to this site apart.
    pub visit: u8,
    /// The class that it was assigned to; empty where it wishes nothing.
    pub class: String,
    /// What it asks for, and who answers for it.
    pub offer: Offer,
    /// Its user takes it back, or its offer has ended: it is not to be handed over any more.
    pub is_withdrawn: bool,
}

/// A job that the batch system here has, and whose user takes it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawn {
    /// Its name in the mesh.
    pub id: ContentHash,
    /// A number that tells its visits to this site apart.
    pub visit: u8,
    /// Its user's name for it, and whose it is.
    pub key: String,
    /// The user's name at the site where the job was handed in.
    pub user: String,
    /// The batch system's name for it.
    pub batch: String,
}
