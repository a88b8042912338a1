//! Waiting until the node knows its own past.
//!
//! Invariant: a loop that starts, or whose node has lost records, reports nothing before the other sites have sent what
//! they hold of this one, or ten seconds are over: the node knows then which jobs its counters have, and counts none of
//! them twice. Deliberately not here: how the node learns it.

use std::time::Duration;

use fairmesh_api::client::{AskError, Control};
use serde::Deserialize;

/// How long a loop waits: most sites answer within a second, and where none does nothing can have come back from it.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two requests.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// What the node reports of its VOs, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    vos: Vec<Past>,
}

#[derive(Debug, Deserialize)]
struct Past {
    /// A node of an earlier release does not report it.
    #[serde(default = "yes")]
    past_known: bool,
}

const fn yes() -> bool {
    true
}

/// Waits until the node has received what the other sites hold of it, and warns if that takes too long.
///
/// # Errors
/// If the node is away.
pub async fn wait(control: &Control, name: &str) -> Result<(), AskError> {
    let until = tokio::time::Instant::now() + WAIT_MAX;
    loop {
        let (status, _): (Status, _) = control.get("/v1/status", &[]).await?;
        if status.vos.iter().all(|vo| vo.past_known) {
            return Ok(());
        }
        if tokio::time::Instant::now() > until {
            tracing::warn!(
                "{name}: not every connected site has said what it holds of this one; if the data folder was \
                 lost, what is reported before counts twice where one holds more"
            );
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
