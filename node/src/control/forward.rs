//! `POST /v1/forward` and `GET /v1/forward[?job=|own=]`: jobs for the mesh, and where they are; `POST /v1/forward/withdraw`:
//! one that its user takes back; `GET` and `POST /v1/forward/here`: what whoever hands jobs to the batch system asks and says.
//!
//! Invariant: what is answered is durable, and a job that is handed in again under its key is the same job. A user
//! hands in jobs in his own name, and none that another's account pays for; writers in any. What jobs run is shown to
//! writers only.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fairmesh_api::words::is_id;
use fairmesh_api::{
    ForwardAsk, ForwardBody, ForwardSettledBody, ForwardedBody, HereBody, HereJobBody, SettledAsk,
    TriedBody, WithdrawAsk, WithdrawnBody,
};
use fairmesh_model::{ContentHash, Millis, Now, Origin, SiteId, clean};
use fairmesh_site::{
    Account, End, ForwardAnswer, ForwardCall, ForwardReply, ForwardedJob, HereJob, JobRequest,
    Settlement, Site, Stage, Withdrawal,
};
use serde::Deserialize;

use super::access::{Peer, is_writer};
use super::error::ApiError;
use super::extract::{Params, json};
use super::rests_on::{answer, site_name};
use super::usage::find_vo;
use super::{Shared, State};
use crate::control::requirements;
use crate::privacy::{PrivateData, Visibility};

/// Largest job: what it runs, and its wishes.
const ASK_BYTES_MAX: usize = 512 << 10;

/// Most jobs that are given out at once: a question must not keep the node's task.
const HERE_MAX: usize = 32;

/// Most jobs that are listed at once: bounds the answer. Those that were handed in here come first, which are fewer than
/// twice as many.
const LISTED_MAX: usize = 4_096;

/// A job by its name in the mesh, or one that was handed in here by its key or the beginning of its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    job: Option<String>,
    own: Option<String>,
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let mut ask: ForwardAsk = json(&shared, body, ASK_BYTES_MAX).await?;
    ask.job.user = Some(user_of(&shared, peer, ask.job.user.take()).await?);
    let is_writer = is_writer(&shared, peer);
    if !is_writer && (ask.job.group.is_some() || ask.job.subject.is_some()) {
        let error = "a group or a subject of yours is not known here";
        let hint =
            "leave them out: only root, the node's own user and sockets.writers vouch for them";
        return Err(ApiError::new(StatusCode::FORBIDDEN, error).hint(hint));
    }
    let ttl = ask.ttl;
    let errand = shared
        .node()
        .ask(move |site, now| errand(site, now, ask, is_writer));
    let errand = Box::new(errand.await??);
    let call = ForwardCall::HandIn(errand, ttl);
    let ForwardAnswer::HandedIn(job) = taken(shared.node().forward(call).await?)? else {
        unreachable!("a job that is handed in is answered by its name")
    };
    // His own, or a writer's.
    listed(&shared, Some(job), |_| true).await
}

/// A user takes back a job of his own; writers anybody's.
pub(super) async fn post_withdraw(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let ask: WithdrawAsk = json(&shared, body, ASK_BYTES_MAX).await?;
    let job: ContentHash = ask.job.parse().map_err(ApiError::bad_request)?;
    let user = shared
        .node()
        .ask(move |site, _| site.forwarded_job(job).map(|of| of.user));
    let Some(user) = user.await? else {
        return Err(ApiError::not_found(format!("no job {job} is known here")));
    };
    user_of(&shared, peer, Some(user)).await?;
    taken(shared.node().forward(ForwardCall::Withdraw(job)).await?)?;
    listed(&shared, Some(job), |_| true).await
}

/// Whose job it is: a writer may say that, and everybody else hands in his own.
async fn user_of(shared: &Shared, peer: Peer, wanted: Option<String>) -> Result<String, ApiError> {
    let is_writer = is_writer(shared, peer);
    if let Some(wanted) = wanted.clone().filter(|_| is_writer) {
        return Ok(wanted);
    }
    let name = match peer.uid {
        Some(uid) => shared.resolver.name(uid).await,
        None => None,
    };
    match (wanted, name) {
        (None, Some(name)) => Ok(name),
        (Some(wanted), Some(name)) if wanted == name => Ok(name),
        (Some(wanted), Some(name)) => {
            let error = format!("{name} may not hand in jobs of {wanted}, or take them back");
            let hint = "only root, the node's own user and sockets.writers do that for others";
            Err(ApiError::new(StatusCode::FORBIDDEN, error).hint(hint))
        }
        (_, None) => {
            let error = "the system does not know who you are";
            Err(ApiError::new(StatusCode::FORBIDDEN, error))
        }
    }
}

/// A job as it travels.
fn errand(site: &Site, now: Now, ask: ForwardAsk, is_writer: bool) -> Result<JobRequest, ApiError> {
    let ForwardAsk { key, run, job, .. } = ask;
    let wall = Millis::from_secs(job.wall_s);
    let requirements = requirements(&job.require, wall).map_err(ApiError::bad_request)?;
    let user = job.user.unwrap_or_default();
    let origin = Origin {
        user: Some(user.clone()),
        account: job.account,
        group: job.group,
        subject: job.subject,
    };
    let account = site.view().account(&origin);
    let is_of_another = |of: &Account| site.view().is_of_another(&user, of);
    if !is_writer && account.as_ref().is_some_and(is_of_another) {
        let error = "who pays for the job by the identity rules is somebody else than its user";
        let hint = "name a batch account that is yours";
        return Err(ApiError::new(StatusCode::FORBIDDEN, error).hint(hint));
    }
    let wanted = job.vo.as_deref();
    let wanted = wanted
        .map(|wanted| find_vo(site, now, wanted))
        .transpose()?;
    let account = account.filter(|of| of.vo.is_some() && (wanted.is_none() || of.vo == wanted));
    let Some((vo, path)) = account.and_then(|of| Some((of.vo?, of.path))) else {
        let error = "it is not known who pays for the job in which VO";
        let hint = "name a user and account that an identity rule of this site maps into the VO";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error).hint(hint));
    };
    Ok(JobRequest {
        vo,
        key: key.ok_or_else(|| ApiError::bad_request("a job has a key"))?,
        user,
        path,
        cpus: job.cpus,
        nodes: job.nodes,
        gpus: job.gpus,
        mem_mib: job.mem_mib,
        disk_mib: job.disk_mib,
        wall_s: job.wall_s,
        queue: job.queue,
        properties: job.properties,
        requirements,
        normalised: job.normalised,
        run: run.unwrap_or_default(),
    })
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    Params(query): Params<Query>,
) -> Result<impl IntoResponse, ApiError> {
    let job = query.job.as_deref().map(str::parse).transpose();
    let asked = Arc::new((visibility, query.own));
    let seen = move |of: &ForwardedJob| {
        let (visibility, own) = &*asked;
        let is_named = own
            .as_deref()
            .is_none_or(|own| of.is_own && is_meant(of, own));
        // A user of another site may have the same name as one of this. Whose account it is only its origin knows.
        is_named && (!visibility.hides(PrivateData::Jobs) || (of.is_own && visibility.is(&of.user)))
    };
    listed(&shared, job.map_err(ApiError::bad_request)?, seen).await
}

/// Whether a job is called so: by its key, or the beginning of its name.
fn is_meant(of: &ForwardedJob, wanted: &str) -> bool {
    of.key == wanted || is_id(&of.id.to_string(), wanted)
}

/// A question must not keep the node's task: it only lists names, and goes through jobs some at a time.
async fn listed(
    shared: &Shared,
    job: Option<ContentHash>,
    is_seen: impl Fn(&ForwardedJob) -> bool + Clone + Send + 'static,
) -> Result<Response, ApiError> {
    let all = move |site: &Site, _| {
        let all = || site.forwarded_ids().collect();
        Ok(job.map_or_else(all, |job| vec![job]))
    };
    let (rests_on, all) = shared.ask(all).await?;
    let seen = move |site: &Site, _, some: &mut dyn Iterator<Item = ContentHash>| {
        let is_seen = |id: &ContentHash| site.forwarded_job(*id).is_some_and(|of| is_seen(&of));
        some.filter(is_seen).collect()
    };
    let mut seen = shared.node().ask_of_each(all, seen).await?;
    seen.truncate(LISTED_MAX);
    let bodies = |site: &Site, _, some: &mut dyn Iterator<Item = ContentHash>| {
        let jobs = some.filter_map(|id| site.forwarded_job(id));
        jobs.map(|of| body(site, &of)).collect::<Vec<_>>()
    };
    let jobs = shared.node().ask_of_each(seen, bodies).await?;
    if let (Some(job), true) = (job, jobs.is_empty()) {
        return Err(ApiError::not_found(format!("no job {job} is known here")));
    }
    Ok(answer("forward", rests_on, ForwardBody { jobs }).into_response())
}

fn body(site: &Site, of: &ForwardedJob) -> ForwardedBody {
    let name = |id: &SiteId| site_name(site, *id).unwrap_or_else(|| id.to_string());
    let mut body = ForwardedBody {
        job: of.id.to_string(),
        key: clean(&of.key),
        user: clean(&of.user),
        vo: of.vo.to_string(),
        cpus: of.cpus,
        from: of.from.iter().map(name).collect(),
        state: String::new(),
        site: None,
        batch: None,
        why: None,
        tried: Vec::new(),
        withdrawal: match of.withdrawal {
            Withdrawal::None => None,
            Withdrawal::Wanted => Some("wanted".to_owned()),
            Withdrawal::Answered => Some("answered".to_owned()),
        },
    };
    let (state, at) = match &of.stage {
        Stage::Here { .. } => ("here", Some(name(&site.id()))),
        Stage::Sent(to) => ("sent", Some(name(to))),
        Stage::Passed(to) => ("taken", Some(name(to))),
        Stage::Ended(End::Submitted { site, batch }) => {
            body.batch = Some(clean(batch));
            ("submitted", Some(name(site)))
        }
        Stage::Ended(End::Failed { why, tried }) => {
            body.why = Some(clean(why));
            let tried = tried.iter().map(|of| TriedBody {
                site: of
                    .site
                    .parse()
                    .map_or_else(|_| clean(&of.site), |id| name(&id)),
                said: of.said.as_deref().map(clean),
            });
            body.tried = tried.collect();
            ("failed", None)
        }
    };
    (body.state, body.site) = (state.to_owned(), at);
    body
}

pub(super) async fn get_here(
    axum::extract::State(shared): State,
) -> Result<impl IntoResponse, ApiError> {
    let names = shared.options.settings.borrow().vos.clone();
    let here = move |site: &Site, _| {
        let body = |of: HereJob| {
            let job = of.offer.job;
            let origin = of.offer.origin;
            HereJobBody {
                job: of.id.to_string(),
                visit: of.visit,
                class: of.class,
                vo: names
                    .get(&job.vo)
                    .cloned()
                    .unwrap_or_else(|| job.vo.to_string()),
                origin: origin.to_string(),
                origin_name: site
                    .site_name_in(job.vo, origin)
                    .map_or_else(String::new, clean),
                key: job.key,
                user: job.user,
                path: job.path.to_string(),
                cpus: job.cpus,
                nodes: job.nodes,
                gpus: job.gpus,
                mem_mib: job.mem_mib,
                disk_mib: job.disk_mib,
                wall_s: job.wall_s,
                queue: job.queue,
                properties: job.properties,
                run: job.run,
                withdrawn: of.is_withdrawn,
            }
        };
        let jobs = site.forwarded_here().take(HERE_MAX).map(body);
        let withdrawn = site.to_withdraw().take(HERE_MAX).map(|of| WithdrawnBody {
            job: of.id.to_string(),
            visit: of.visit,
            key: of.key,
            user: of.user,
            batch: of.batch,
        });
        let (jobs, withdrawn) = (jobs.collect(), withdrawn.collect());
        Ok(HereBody { jobs, withdrawn })
    };
    let (rests_on, body) = shared.ask(here).await?;
    Ok(answer("forward-here", rests_on, body))
}

pub(super) async fn post_here(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let ask: SettledAsk = json(&shared, body, ASK_BYTES_MAX).await?;
    let job = ask.job.parse().map_err(ApiError::bad_request)?;
    let call = match (ask.submitted, ask.refused, ask.in_doubt, ask.withdrew) {
        (Some(batch), None, None, None) => ForwardCall::Settle(job, Settlement::Submitted(batch)),
        (None, Some(why), None, None) => ForwardCall::Settle(job, Settlement::Refused(why)),
        (None, None, Some(why), None) => ForwardCall::Settle(job, Settlement::InDoubt(why)),
        (None, None, None, Some(withdrew)) => ForwardCall::Withdrew(job, withdrew),
        _ => {
            let error = "say one of submitted, refused, in_doubt and withdrew";
            return Err(ApiError::bad_request(error));
        }
    };
    tracing::info!(?call, "what came of a forwarded job at the batch system");
    taken(shared.node().forward(call).await?)?;
    let body = ForwardSettledBody {};
    shared.answer("forward-settled", body).await
}

fn taken(reply: ForwardReply) -> Result<ForwardAnswer, ApiError> {
    reply.map_err(|why| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, why))
}

#[cfg(test)]
mod tests {
    use fairmesh_model::VoId;

    use super::*;

    #[test]
    fn a_job_is_named_by_its_key_or_by_eight_digits() {
        let job = ForwardedJob {
            id: ContentHash::from_bytes([0xc0; 32]),
            vo: VoId::from_bytes([0; 32]),
            key: "4711".to_owned(),
            user: "ann".to_owned(),
            cpus: 1,
            is_own: true,
            from: Default::default(),
            stage: Stage::Here {
                class: String::new(),
            },
            withdrawal: Withdrawal::None,
        };
        for wanted in ["4711", "c0c0c0c0", &job.id.to_string()] {
            assert!(is_meant(&job, wanted), "{wanted}");
        }
        for wanted in ["", "c", "c0c0c0c", "471", "c0c0c0c1"] {
            assert!(!is_meant(&job, wanted), "{wanted}");
        }
    }
}
