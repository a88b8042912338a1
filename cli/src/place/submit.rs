//! Handing a job in: it goes to the best site that takes jobs of its VO from others.
//!
//! Invariant: the key is told before anything is sent, so that whoever is cut off can ask, or hand the same job in
//! again.

use std::io::Write;

use fairmesh_api::{Answer, ForwardAsk, ForwardBody, ForwardedBody};
use fairmesh_model::clean;

use super::PlaceArgs;
use crate::ask::unless_refused;
use crate::forward::{follow, tried};
use crate::output::Exit;

pub(super) async fn run(
    args: &PlaceArgs,
    mut ask: ForwardAsk,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let control = args.ask.control();
    let key = match ask.key.take() {
        Some(key) => key,
        // One that no other job has.
        None => format!("j-{:016x}", getrandom::u64()?),
    };
    note!("fairmesh: the job's key is {}", clean(&key));
    ask.key = Some(key);
    let asked = control.post::<Answer<ForwardBody>>("/v1/forward", serde_json::to_vec(&ask)?);
    let Some(answer) = unless_refused(asked.await.map_err(Into::into))? else {
        return Ok(Exit::Failure);
    };
    let is_over = |job: &ForwardedBody| matches!(job.state.as_str(), "submitted" | "failed");
    let answer = follow(&control, answer, args.wait, is_over).await?;
    let is_failed = answer.body.jobs.iter().any(|job| job.state == "failed");
    if args.ask.output.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    } else {
        for job in &answer.body.jobs {
            writeln!(out, "{}", words(job))?;
        }
    }
    Ok(if is_failed {
        Exit::Failure
    } else {
        Exit::Success
    })
}

fn words(job: &ForwardedBody) -> String {
    let name: String = job.job.chars().take(16).collect();
    let site = job.site.as_deref().map(clean).unwrap_or_default();
    let batch = job.batch.as_deref().map(clean).unwrap_or_default();
    let state = match job.state.as_str() {
        "submitted" if batch.is_empty() => format!("is with the batch system of {site}"),
        "submitted" => format!("is with the batch system of {site} as {batch}"),
        "failed" => {
            let why = job.why.as_deref().map(clean).unwrap_or_default();
            format!("was given up: {why}{}", tried(&job.tried))
        }
        "here" => format!("is at {site}, to be handed to the batch system"),
        "sent" => format!("was sent to {site}, which has not acknowledged it"),
        _ => format!("was taken by {site}, which has not reported what became of it"),
    };
    let more = match job.state.as_str() {
        "submitted" | "failed" => "",
        _ => ": see `fairmesh forward status`",
    };
    format!("job {} ({name}) {state}{more}", clean(&job.key))
}
