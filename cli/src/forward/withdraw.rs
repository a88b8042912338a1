//! A user takes a job back: what is told of it until it is known what came of that.

use std::io::Write;

use anyhow::bail;
use fairmesh_api::client::Control;
use fairmesh_api::words::ID_DIGITS_MIN;
use fairmesh_api::{Answer, ForwardBody, ForwardedBody, WithdrawAsk};
use fairmesh_model::clean;

use super::{WithdrawArgs, follow};
use crate::ask::unless_refused;
use crate::output::Exit;

pub(super) async fn run(args: &WithdrawArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = args.node.control();
    let Some(job) = find(&control, &args.job).await? else {
        note!(
            "no job {} is known here: name its key, or {ID_DIGITS_MIN} digits of its name or more",
            clean(&args.job)
        );
        return Ok(Exit::Failure);
    };
    let body = serde_json::to_vec(&WithdrawAsk { job: job.job })?;
    let asked = control.post::<Answer<ForwardBody>>("/v1/forward/withdraw", body);
    let Some(answer) = unless_refused(asked.await.map_err(Into::into))? else {
        return Ok(Exit::Failure);
    };
    let is_known =
        |job: &ForwardedBody| job.state == "failed" || job.withdrawal.as_deref() != Some("wanted");
    let answer = follow(&control, answer, args.wait, is_known).await?;
    let Some(job) = answer.body.jobs.first() else {
        bail!("the node has forgotten the job");
    };
    writeln!(out, "{}", words(job))?;
    Ok(match job.state.as_str() {
        "failed" => Exit::Success,
        _ => Exit::Failure,
    })
}

/// The job that is meant, by its name in the mesh or the beginning of that, or by its user's key.
async fn find(control: &Control, wanted: &str) -> anyhow::Result<Option<ForwardedBody>> {
    let parameters = [("own", Some(wanted))];
    let asked = control.get::<Answer<ForwardBody>>("/v1/forward", &parameters);
    let (answer, _) = asked.await?;
    let mut found = answer.body.jobs.into_iter();
    let first = found.next();
    if first.is_some() && found.next().is_some() {
        bail!("several jobs are meant by {}", clean(wanted));
    }
    Ok(first)
}

fn words(job: &ForwardedBody) -> String {
    let (key, site) = (clean(&job.key), job.site.as_deref().map(clean));
    let site = site.unwrap_or_default();
    let batch = job.batch.as_deref().map(clean).unwrap_or_default();
    match (job.state.as_str(), job.withdrawal.as_deref()) {
        ("failed", _) => {
            let why = job.why.as_deref().map(clean).unwrap_or_default();
            format!("job {key} runs nowhere: {why}")
        }
        ("submitted", Some("answered")) => {
            format!("job {key} stays with the batch system of {site} as {batch}")
        }
        _ => format!("job {key} is to be taken back; {site} has not said yet what came of it"),
    }
}
