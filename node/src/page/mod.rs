//! The share page: what a node knows of its shares, drawn for people who look, and its metrics for Prometheus, on a
//! TCP listener of its own. It is off unless the owner turns it on.
//!
//! Everything is rendered here, without scripts: a page is one HTML document and one style sheet. Whatever is drawn
//! has its numbers in a table beside it, and these as CSV.
//!
//! Invariants: nothing can be changed through it. A request asks the node's task nothing that grows with the number
//! of accounts; what it does ask is asked once a second, however many look (`gather`). Words of others are escaped by
//! the templates and hold visible characters only. Connections, heads, answers and time have limits.
//!
//! Deliberately not here: jobs, records and quotas (`control.sock` has these, and says to whom).

mod chart;
mod csv;
mod document;
mod documents;
mod entry;
mod figures;
mod find;
mod gather;
mod html;
mod icicle;
mod page_data;
mod server;
mod sites;
mod table;
mod usage;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fairmesh_fairshare::EntryId;
use fairmesh_model::AccountPath;
use maud::Markup;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use server::{CONNECTIONS_MAX, PageServer};

use crate::control::metrics;
use gather::Page;
use page_data::PageData;
use usage::EntryUsage;

const STYLE: &str = include_str!("page.css");

/// The mark in a browser's tab: two shares of a bar.
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#24506b"/><rect x="3" y="4" width="10" height="3" fill="#fff"/><rect x="3" y="9" width="4" height="3" fill="#8ec3e6"/><rect x="8" y="9" width="5" height="3" fill="#f0a35e"/></svg>"##;

/// Scripts, frames and anything from elsewhere are refused by the browser, too.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// What is shown of an entry.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Where it is in the share tree; the root where nothing is said.
    path: Option<String>,
    /// Whom it is compared with.
    versus: Option<String>,
    /// Which part of the entries below it, from 1.
    page: Option<usize>,
    /// What these are ordered by.
    #[serde(default)]
    sort: table::Sort,
}

/// Words that are looked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sought {
    #[serde(default)]
    q: String,
}

/// Parameters of a request; where they make no sense, the refusal is a page.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let query = Query::from_request_parts(parts, state).await;
        let refused = |why: QueryRejection| Refused::new(StatusCode::BAD_REQUEST, why.body_text());
        query.map(|Query(value)| Self(value)).map_err(refused)
    }
}

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    why: String,
}

impl Refused {
    fn new(status: StatusCode, why: impl std::fmt::Display) -> Self {
        let why = fairmesh_model::clean(&why.to_string());
        Self { status, why }
    }
}

impl From<crate::driver::Gone> for Refused {
    fn from(gone: crate::driver::Gone) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, gone)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = html::refusal(self.status, &self.why);
        (self.status, html::answer(body)).into_response()
    }
}

type Answer = Result<Response, Refused>;

fn router(page: Arc<Page>) -> Router {
    let text = |kind: &'static str, text: &'static str| {
        let headers = [
            (header::CONTENT_TYPE, kind),
            (header::CACHE_CONTROL, "max-age=86400"),
        ];
        get(async move || (headers, text))
    };
    let used = |write: fn(&PageData, &EntryUsage) -> Response| {
        get(async move |State(page), Params(wanted)| usage_csv(page, wanted, write).await)
    };
    Router::new()
        .route("/", get(overview))
        .route("/entry", get(entry))
        .route("/find", get(find))
        .route("/shares.csv", get(shares_csv))
        .route("/history.csv", used(csv::history))
        .route("/usage.csv", used(csv::by_site))
        .route("/sites.csv", get(sites_csv))
        .route("/documents.csv", get(documents_csv))
        .route("/metrics", get(metrics))
        .route("/page.css", text("text/css; charset=utf-8", STYLE))
        .route("/icon.svg", text("image/svg+xml", ICON))
        .fallback(async || Refused::new(StatusCode::NOT_FOUND, "there is nothing at this address"))
        .method_not_allowed_fallback(async || {
            Refused::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this page can only be read: GET and HEAD",
            )
        })
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&page),
            server::guard,
        ))
        .layer(axum::middleware::map_response(guarded))
        .with_state(page)
}

/// What every answer says to the browser that has it.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// The page of an entry; the root's has sites, documents and notices, too.
async fn overview(State(page): State<Arc<Page>>) -> Answer {
    of_entry(page, Wanted::default()).await
}

async fn entry(State(page): State<Arc<Page>>, Params(wanted): Params<Wanted>) -> Answer {
    of_entry(page, wanted).await
}

async fn of_entry(page: Arc<Page>, wanted: Wanted) -> Answer {
    let usage = page.usage().await?;
    shown(&page, move |data| {
        let of = found(data, wanted.path.as_deref())?;
        let versus = wanted.versus.as_deref();
        let versus = versus.map(|path| found(data, Some(path))).transpose()?;
        Ok(entry::page(
            data,
            &usage,
            of,
            versus,
            (wanted.page, wanted.sort),
        ))
    })
    .await
}

async fn find(State(page): State<Arc<Page>>, Params(sought): Params<Sought>) -> Answer {
    shown(&page, move |data| Ok(find::page(data, &sought.q))).await
}

async fn shares_csv(State(page): State<Arc<Page>>, Params(wanted): Params<Wanted>) -> Answer {
    let make = move |data: &PageData| Ok(csv::shares(data, found(data, wanted.path.as_deref())?));
    let pieces = page.made(make).await?;
    let pieces = futures::stream::try_unfold((page, pieces), async |(page, pieces)| {
        let next = page.next_of(pieces).await;
        let next = next.map_err(|refused| io::Error::other(refused.why))?;
        Ok::<_, io::Error>(next.map(|(piece, pieces)| (piece, (page, pieces))))
    });
    Ok(csv::csv(Body::from_stream(pieces)))
}

/// What was used behind an entry, as `write` tells it.
async fn usage_csv(
    page: Arc<Page>,
    wanted: Wanted,
    write: fn(&PageData, &EntryUsage) -> Response,
) -> Answer {
    let usage = page.usage().await?;
    let make = move |data: &PageData| {
        let entry = found(data, wanted.path.as_deref())?;
        Ok(write(data, &usage.usage_of(data, entry)))
    };
    page.made(make).await
}

async fn sites_csv(State(page): State<Arc<Page>>) -> Answer {
    page.made(|data| Ok(csv::sites(data))).await
}

async fn documents_csv(State(page): State<Arc<Page>>) -> Answer {
    page.made(|data| Ok(csv::documents(data))).await
}

async fn metrics(State(page): State<Arc<Page>>, Params(wanted): Params<metrics::Wanted>) -> Answer {
    let text = page.metrics(wanted.sites).await?;
    Ok(metrics::answer(text).into_response())
}

/// A page in HTML, made on a thread of its own.
async fn shown(
    page: &Page,
    make: impl FnOnce(&PageData) -> Result<Markup, Refused> + Send + 'static,
) -> Answer {
    let make = move |data: &PageData| Ok(html::answer(make(data)?).into_response());
    page.made(make).await
}

/// The entry that is meant.
fn found(data: &PageData, path: Option<&str>) -> Result<EntryId, Refused> {
    let path = match path {
        None => AccountPath::root(),
        Some(text) => AccountPath::parse(text)
            .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error))?,
    };
    let entry = data.moment.snapshot().entry(&path);
    entry.ok_or_else(|| {
        let why = format!("the share tree has no entry {path}");
        Refused::new(StatusCode::NOT_FOUND, why)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control::Shared;
    use crate::control::tests::World;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_piece_of_the_largest_table_is_made_in_a_turn() {
        let world = World::start().await;
        let shared = Arc::new(Shared::new(world.options.clone()));
        let page = Arc::new(Page::new(shared, Vec::new()));
        let asked = shares_csv(State(Arc::clone(&page)), Params(Wanted::default()));
        let table = asked.await.expect("a table").into_body();
        let turns = page.all_turns().await;
        let mut text = std::pin::pin!(axum::body::to_bytes(table, usize::MAX));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut text).await;
        assert!(early.is_err(), "it is made while others have all turns");
        drop(turns);
        let text = text.await.expect("the table");
        assert!(text.starts_with(b"path,"), "{text:?}");
        world.end().await;
    }
}
