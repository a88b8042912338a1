//! The parameters behind `?` and small bodies, with our errors instead of the framework's.

use std::num::NonZeroUsize;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use fairmesh_model::{AccountPath, Origin};
use fairmesh_site::Words;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Shared;
use super::error::ApiError;

/// Parameters of a request; unknown ones are refused, so a misspelt filter never means "all".
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(value)| Self(value))
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()))
    }
}

/// A body that is read whole, within limits of size and time.
pub(super) async fn whole(
    body: Body,
    bytes_max: usize,
    time_max: Duration,
) -> Result<Bytes, ApiError> {
    let read = tokio::time::timeout(time_max, axum::body::to_bytes(body, bytes_max)).await;
    let read = read.map_err(|_| {
        let error = "the body did not arrive in time";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, error)
    })?;
    read.map_err(|error| {
        let error = format!("the body could not be read whole: {error}");
        let hint = format!("it has at most {bytes_max} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error).hint(hint)
    })
}

/// A body of JSON.
pub(super) async fn json<T: DeserializeOwned>(
    shared: &Shared,
    body: Body,
    bytes_max: usize,
) -> Result<T, ApiError> {
    let bytes = whole(body, bytes_max, shared.options.limits.body_idle_max).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::bad_request(format!("not understood: {error}")))
}

/// No parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// An entry, by the batch system's words or by its path in the site's tree.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) path: Option<String>,
    pub(super) origin: Origin,
    pub(super) queue: Option<String>,
    pub(super) qos: Option<String>,
}

impl Wanted {
    /// The job's words.
    pub(super) fn words(&self) -> Words<'_> {
        Words {
            queue: self.queue.as_deref(),
            qos: self.qos.as_deref(),
            ..Words::from(&self.origin)
        }
    }
}

/// A page of a long list: of what comes behind a path, so much at most.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) after: Option<AccountPath>,
    pub(super) most: usize,
}

impl Page {
    /// Of the parameters `after` and `limit`; without the latter, and at most, `most`.
    pub(super) fn of(
        after: Option<&str>,
        limit: Option<NonZeroUsize>,
        most: usize,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            after: after.map(parse_path).transpose()?,
            most: limit.map_or(most, |limit| limit.get().min(most)),
        })
    }

    /// Cuts a list to the page; its last one then, behind which the next page begins, where there was more.
    pub(super) fn cut<'a, T>(&self, list: &'a mut Vec<T>) -> Option<&'a T> {
        let is_more = list.len() > self.most;
        list.truncate(self.most);
        list.last().filter(|_| is_more)
    }
}

/// A path as a parameter.
pub(super) fn parse_path(text: &str) -> Result<AccountPath, ApiError> {
    AccountPath::parse(text)
        .map_err(|error| ApiError::bad_request(error).hint("write a path such as /VO-A/P-A1"))
}
