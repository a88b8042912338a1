//! `GET /v1/documents[?vo=]` and `POST /v1/documents`: signed documents, as they were signed.
//!
//! Invariant: the bytes are passed on as they came; whether they are valid is the site's to say.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fairmesh_model::{Allocation, Charter, SharePolicy, Signed, Snapshot, VoId};
use serde::Deserialize;

use super::State;
use super::access::Peer;
use super::answer::{DocumentBody, DocumentsBody, PublishedBody};
use super::beside::{Beside, Wanted};
use super::corrections::attributed;
use super::error::ApiError;
use super::extract::{Params, whole};
use super::rests_on::{answer, rests_on};
use super::text::clean;
use super::usage::find_vos;

/// Largest document: the largest kind may have 3 MiB, and its envelope some.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    vo: Option<String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    beside: Beside,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let (rests_on, found) = shared
        .node()
        .ask(move |site, now| {
            let vos = match &query.vo {
                Some(wanted) => find_vos(site, now, wanted),
                None => Ok(site
                    .vo_status(now)
                    .into_iter()
                    .map(|status| status.vo)
                    .collect()),
            };
            let is_all = query.vo.is_none();
            let documents = |vos: Vec<VoId>| -> Vec<(VoId, Arc<[u8]>)> {
                let of = |vo: VoId| site.documents(vo).into_iter().map(move |bytes| (vo, bytes));
                let read = site.read_documents().filter(|_| is_all);
                vos.into_iter().flat_map(of).chain(read).collect()
            };
            (rests_on(site, now), vos.map(documents))
        })
        .await?;
    let found = found?;
    // A large policy takes a while to read.
    let read = move |wanted: &Wanted| {
        let bodies = found.iter().take_while(|_| wanted.is());
        let documents = bodies.map(|(vo, bytes)| document_body(*vo, bytes));
        Ok(DocumentsBody {
            documents: documents.collect(),
        })
    };
    beside.answer("documents", rests_on, read).await
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let idle_max = shared.options.limits.body_idle_max;
    let bytes = whole(body, DOCUMENT_BYTES_MAX, idle_max).await?;
    let published = shared
        .node()
        .publish(bytes.to_vec(), &attributed(None, peer))
        .await?;
    let message = published.map_err(|why| {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, why)
            .hint("`fairmesh policy verify` says what a document lacks")
    })?;
    let rests_on = shared.node().ask(rests_on).await?;
    let message = clean(&message);
    Ok(answer("published", rests_on, PublishedBody { message }))
}

fn document_body(vo: VoId, bytes: &[u8]) -> DocumentBody {
    let (kind, path, version, hash) = if let Ok(charter) = Signed::<Charter>::parse(bytes) {
        let version = charter.claimed().version;
        (
            "charter",
            "/".to_owned(),
            version,
            charter.hash().to_string(),
        )
    } else if let Ok(policy) = Signed::<SharePolicy>::parse(bytes) {
        let (path, version) = (policy.claimed().path.to_string(), policy.claimed().version);
        ("share-policy", path, version, policy.hash().to_string())
    } else if let Ok(allocation) = Signed::<Allocation>::parse(bytes) {
        let body = allocation.claimed();
        let hash = allocation.hash().to_string();
        ("allocation", body.path.to_string(), body.version, hash)
    } else if let Ok(snapshot) = Signed::<Snapshot>::parse(bytes) {
        let (version, hash) = (snapshot.claimed().version, snapshot.hash().to_string());
        ("snapshot", "/".to_owned(), version, hash)
    } else {
        ("unknown", String::new(), 0, String::new())
    };
    DocumentBody {
        vo: vo.to_string(),
        kind: kind.to_owned(),
        path,
        version,
        hash,
        bytes: hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes everything");
            text
        })
}
