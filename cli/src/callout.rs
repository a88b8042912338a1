//! How the programs that a batch system calls before a job ask the node to hold what it may cost.
//!
//! Invariant: what is broken is never taken for a refusal: the caller's `on_silence` says what becomes of the job
//! then. Deliberately not here: how a batch system's job is described (`fairmesh_schedulers::slurm::quota`,
//! `arc::job`).

use std::time::Duration;

use fairmesh_api::client::Control;
use fairmesh_api::{Answer, HoldBody};
use fairmesh_model::clean;
pub(crate) use fairmesh_schedulers::slurm::quota::{UNLIMITED_S, wall_s};
use serde_json::Value;

/// How long the node may take over a hold: two seconds for rights of other sites, and the rest for a machine on
/// which many jobs start at once.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// What the node says of a job.
pub(crate) enum Said {
    /// The job may run now.
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
        Ok(Err(error)) => match error.fault_of_call() {
            Some(why) => Said::Refused(why.to_owned()),
            None => Said::Nothing(error.to_string()),
        },
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A job of which the node says that it makes no sense must not start for that.
    #[tokio::test]
    async fn what_the_node_refuses_of_a_job_is_a_refusal_and_what_is_broken_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        let statuses = [400, 413, 422, 403, 404, 408, 429, 503];
        std::thread::spawn(move || {
            for status in statuses {
                let (mut stream, _) = listener.accept().expect("a call");
                let _ = stream.read(&mut [0; 4_096]).expect("a request");
                let head = format!("HTTP/1.1 {status} No\r\ncontent-length: 16\r\n\r\n");
                let answer = head + r#"{"error": "why"}"#;
                stream.write_all(answer.as_bytes()).expect("sent");
            }
        });
        let mut refused = Vec::new();
        for status in statuses {
            match hold(&Control::new(socket.clone()), &Value::Null, "-t").await {
                Said::Refused(why) => refused.push((status, why)),
                Said::Nothing(_) => {}
                Said::Runs => panic!("{status} lets it run"),
            }
        }
        let why = || "why".to_owned();
        assert_eq!(refused, [(400, why()), (413, why()), (422, why())]);
    }
}
