//! `GET /v1/documents[?vo=]` and `POST /v1/documents`: signed documents, as they were signed.
//!
//! Invariant: the bytes are passed on as they came; whether they are valid is the site's to say.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fairmesh_api::{DocumentBody, DocumentsBody, PublishedBody};
use fairmesh_model::{
    AccountPath, Allocation, Charter, ContentHash, Now, SharePolicy, Signed, SiteId, Snapshot,
    VoId, WallTime, clean,
};
use fairmesh_policy::DocumentKind;
use fairmesh_site::Site;
use serde::Deserialize;

use super::State;
use super::access::Peer;
use super::blocking::{BlockingAnswer, CancelFlag};
use super::corrections::attributed;
use super::error::ApiError;
use super::extract::{Params, whole};
use super::quota::word;
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
    blocking: BlockingAnswer,
    Params(query): Params<Query>,
) -> Result<Response, ApiError> {
    let held = move |site: &Site, now: Now| held(site, now, query.vo.as_deref());
    let (rests_on, found) = shared.ask(held).await?;
    // A large policy takes a while to read.
    let read = move |cancel: &CancelFlag| {
        let bodies = found.iter().take_while(|_| !cancel.is_set());
        let documents = bodies.map(|(vo, bytes)| document_body(*vo, bytes));
        Ok(DocumentsBody {
            documents: documents.collect(),
        })
    };
    blocking.answer("documents", rests_on, read).await
}

/// Documents as they were signed, each with the VO that it is of.
type Held = Vec<(VoId, Arc<[u8]>)>;

/// The documents of the VOs that `wanted` names; all that are held where it names none.
fn held(site: &Site, now: Now, wanted: Option<&str>) -> Result<Held, ApiError> {
    let vos = find_vos(site, now, wanted)?.into_iter();
    let of = |(vo, _)| site.documents(vo).into_iter().map(move |bytes| (vo, bytes));
    let read = site.read_documents().filter(|_| wanted.is_none());
    Ok(vos.flat_map(of).chain(read).collect())
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
    let message = clean(&message);
    shared.answer("published", PublishedBody { message }).await
}

fn document_body(vo: VoId, bytes: &[u8]) -> DocumentBody {
    let of = Document::read(bytes);
    let of = of.as_ref();
    DocumentBody {
        vo: vo.to_string(),
        kind: of.map_or("unknown".to_owned(), |of| word(&of.kind)),
        path: of.map_or(String::new(), |of| of.path.to_string()),
        version: of.map_or(0, |of| of.version),
        hash: of.map_or(String::new(), |of| of.hash.to_string()),
        bytes: hex(bytes),
    }
}

/// What a signed document says of itself.
pub(crate) struct Document {
    pub(crate) kind: DocumentKind,
    /// What it divides or grants.
    pub(crate) path: AccountPath,
    pub(crate) version: u64,
    pub(crate) expires: WallTime,
    pub(crate) hash: ContentHash,
    /// Member sites and their cores, of a charter.
    pub(crate) cores: Vec<(SiteId, u32)>,
}

impl Document {
    /// Reads one; `None` for bytes that are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let document = |kind, path, (version, expires), hash| Self {
            kind,
            path,
            version,
            expires,
            hash,
            cores: Vec::new(),
        };
        let root = AccountPath::root();
        if let Ok(signed) = Signed::<Charter>::parse(bytes) {
            let of = signed.claimed();
            let dates = (of.version, of.expires);
            return Some(Self {
                cores: of.sites.iter().map(|it| (it.site, it.cores)).collect(),
                ..document(DocumentKind::Charter, root, dates, signed.hash())
            });
        }
        if let Ok(signed) = Signed::<SharePolicy>::parse(bytes) {
            let of = signed.claimed();
            let (path, dates) = (of.path.clone(), (of.version, of.expires));
            let kind = DocumentKind::SharePolicy;
            return Some(document(kind, path, dates, signed.hash()));
        }
        if let Ok(signed) = Signed::<Allocation>::parse(bytes) {
            let of = signed.claimed();
            let (path, dates) = (of.path.clone(), (of.version, of.expires));
            let kind = DocumentKind::Allocation;
            return Some(document(kind, path, dates, signed.hash()));
        }
        let signed = Signed::<Snapshot>::parse(bytes).ok()?;
        let dates = (signed.claimed().version, signed.claimed().expires);
        Some(document(DocumentKind::Snapshot, root, dates, signed.hash()))
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
