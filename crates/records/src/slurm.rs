//! Slurm: `sacct`, `squeue`, `scontrol show jobs`, and the job completion plug-ins that need no database.
//!
//! Invariant: one run of a job has one key from all of them, the raw job id and the submit time:
//! Slurm gives a requeued job a new submit time, an array task its own raw id when it starts, and
//! each component of a heterogeneous job its own. Seen on Slurm 22.05.
//!
//! Deliberately not here: running the commands. Run them with `SLURM_TIME_FORMAT=%s` in the environment: times in
//! seconds since the epoch need no zone and come once even when clocks are put back.

mod job_id;
mod jobcomp;
mod jobcomp_json;
mod list;
mod sacct;
mod sacct_json;
mod scontrol;
mod script;
mod squeue;
#[cfg(test)]
mod tests;
mod tres;

pub use job_id::array_tasks;
pub use sacct::SACCT_FORMAT;
pub use script::script_record;
pub use squeue::SQUEUE_FORMAT;
pub use tres::Tres;

pub(crate) use jobcomp::JobcompLine;
pub(crate) use jobcomp_json::JobcompDocument;
pub(crate) use list::begins_sacct;
pub(crate) use sacct::SacctLines;
pub(crate) use sacct_json::SacctJob;
pub(crate) use scontrol::{NO_JOBS, ScontrolJob, begins_list};
pub(crate) use script::ScriptBlock;
pub(crate) use squeue::SqueueLine;
