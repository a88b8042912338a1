//! What a loop has done is told to the node, which shows it with its own metrics.
//!
//! Invariant: that the node does not listen changes nothing; counters go on, and are told next time.
//! Deliberately not here: what is shown (`crate::metrics`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::IgnoredAny;
use tokio::runtime::Handle;

use crate::ask::Control;
use crate::control::answer::SlurmReport;

/// How long the node may take to hear it: no round waits for longer.
const HEARING_MAX: Duration = Duration::from_secs(5);

/// Tells the node. To be called from a thread that may wait.
pub(super) fn tell(control: &Control, report: &SlurmReport) {
    let Ok(body) = serde_json::to_vec(report) else {
        return;
    };
    let heard = Handle::current().block_on(async {
        let heard = control.post::<IgnoredAny>("/v1/slurm", body);
        tokio::time::timeout(HEARING_MAX, heard).await
    });
    // The loop itself has said already if the node is away.
    tracing::debug!(?heard, "the node was told what the loop has done");
}

/// Now, in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    u64::try_from(millis).unwrap_or(u64::MAX)
}
