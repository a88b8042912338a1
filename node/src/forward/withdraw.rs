//! A user takes a job back: what is told of it until it is known what came of that.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::WithdrawArgs;
use crate::ask::{Control, control, unless_refused};
use crate::control::answer::{Answer, ForwardBody, ForwardedBody, WithdrawAsk};
use crate::control::clean;
use crate::output::Exit;

/// How often it is asked what came of it.
const POLL: Duration = Duration::from_millis(250);

pub(super) async fn run(args: &WithdrawArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = control(args.socket.as_ref());
    let Some(job) = find(&control, &args.job).await? else {
        eprintln!("no job {} is known here", clean(&args.job));
        return Ok(Exit::Failure);
    };
    let began = Instant::now();
    let body = serde_json::to_vec(&WithdrawAsk { job: job.job })?;
    let asked = control.post::<Answer<ForwardBody>>("/v1/forward/withdraw", body);
    let Some(mut answer) = unless_refused(asked.await.map_err(Into::into))? else {
        return Ok(Exit::Failure);
    };
    loop {
        let Some(job) = answer.body.jobs.first() else {
            bail!("the node has forgotten the job");
        };
        let is_waited = began.elapsed() >= Duration::from_secs(args.wait);
        let is_known = job.state == "failed" || job.withdrawal.as_deref() != Some("wanted");
        if is_known || is_waited {
            writeln!(out, "{}", words(job))?;
            return Ok(match job.state.as_str() {
                "failed" => Exit::Success,
                _ => Exit::Failure,
            });
        }
        let parameters = [("job", Some(job.job.clone()))];
        let parameters = parameters
            .each_ref()
            .map(|(name, id)| (*name, id.as_deref()));
        tokio::time::sleep(POLL).await;
        (answer, _) = control.get("/v1/forward", &parameters).await?;
    }
}

/// The job that is meant, by its name in the mesh or the beginning of it, or by its user's key.
async fn find(control: &Control, wanted: &str) -> anyhow::Result<Option<ForwardedBody>> {
    let parameters = [];
    let asked = control.get::<Answer<ForwardBody>>("/v1/forward", &parameters);
    let (answer, _) = asked.await?;
    let is_meant = |job: &ForwardedBody| job.key == wanted || job.job.starts_with(wanted);
    let mut found = answer.body.jobs.into_iter().filter(is_meant);
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
