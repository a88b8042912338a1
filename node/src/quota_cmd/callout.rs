//! How the programs that a batch system calls before a job ask the node to hold what it may cost.
//!
//! Invariant: what is broken is never taken for a refusal: the caller's `on_silence` says what becomes of the job
//! then. Deliberately not here: how a batch system's job is described (`fairmesh_schedulers::slurm::quota`, `arc::job`).

use std::time::Duration;

pub(crate) use fairmesh_schedulers::slurm::quota::UNLIMITED_S;
use serde::Deserialize;
use serde_json::Value;

use crate::ask::{AskError, Control};
use crate::control::answer::{Answer, HoldBody};
use crate::control::clean;

/// How long the node may take over a hold: two seconds for rights of other sites, and the rest for a machine on
/// which many jobs start at once.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// What becomes of jobs while the node does not say whether their quota covers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnSilence {
    /// They run; what they cost is charged afterwards.
    #[default]
    Run,
    /// They are refused at submission, and do not start.
    Refuse,
}

/// What the node says of a job.
pub(crate) enum Said {
    /// It may run.
    Runs,
    /// It may not, and why.
    Refused(String),
    /// The node did not say, and why.
    Nothing(String),
}

/// Holds what a job may cost. Whoever is refused for want of a time limit is told to give one by `limit_by`.
pub(crate) async fn hold(control: &Control, call: &Value, limit_by: &str) -> Said {
    let body = serde_json::to_vec(call).unwrap_or_default();
    let asked = control.post::<Answer<HoldBody>>("/v1/quota/hold", body);
    match tokio::time::timeout(HOLD_MAX, asked).await {
        Err(_) => Said::Nothing(format!("the node did not answer within {HOLD_MAX:?}")),
        Ok(Ok(answer)) if answer.body.runs => Said::Runs,
        Ok(Ok(answer)) => Said::Refused(reason(&answer.body, call, limit_by)),
        // The node has understood, and will say the same again.
        Ok(Err(AskError::Refused {
            status: 422, error, ..
        })) => Said::Refused(error),
        Ok(Err(error)) => Said::Nothing(error.to_string()),
    }
}

fn reason(body: &HoldBody, call: &Value, limit_by: &str) -> String {
    let mut why = match &body.message {
        Some(message) => clean(message),
        None => clean(&body.verdict),
    };
    if call["wall_s"] == UNLIMITED_S {
        why += &format!(" (it has no time limit, so it would have to hold a year's: {limit_by})");
    }
    why
}
