//! Why a request failed: `{"error": "…", "hint": "…"}`, with a status that fits.
//!
//! Invariant: what a client or a peer wrote is quoted cleaned and cut, so that it is safe to print.

use std::fmt::Display;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fairmesh_api::ErrorBody;
use fairmesh_model::clean;

use crate::driver::Gone;

/// A request that failed.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: String,
    hint: Option<String>,
}

impl ApiError {
    /// `error` in words, for people.
    pub(crate) fn new(status: StatusCode, error: impl Display) -> Self {
        Self {
            status,
            error: clean(&error.to_string()),
            hint: None,
        }
    }

    /// The client asked for something that makes no sense.
    pub(crate) fn bad_request(error: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// What was asked for is not there.
    pub(crate) fn not_found(error: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// The node is at fault.
    pub(crate) fn internal(error: impl Display) -> Self {
        tracing::error!(%error, "a request on the control socket failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Gone> for ApiError {
    fn from(gone: Gone) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, gone)
            .hint("it is stopping, or its store has failed: see its log")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: self.error,
            hint: self.hint,
        };
        (self.status, Json(body)).into_response()
    }
}
