//! The JSON body of a request.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::App;
use super::error::ApiError;

/// The fields of a JSON object. `null` counts as absent, as clients send it for what they do not set.
pub(super) struct Fields(Map<String, Value>);

/// Bytes beyond the limit that are read and dropped: whoever is still sending does not read the answer.
const DRAINED: usize = 256 << 20;

impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (limit, patience) = (app.options.body_bytes, app.options.timeout);
        let read = tokio::time::timeout(patience, read(request.into_body(), limit)).await;
        let bytes = read.unwrap_or_else(|_| {
            let message = "the body of the request did not come in time; send it at once";
            Err(ApiError::body(StatusCode::REQUEST_TIMEOUT, message))
        })?;
        Self::parse(&bytes)
    }
}

/// A body of at most `limit` bytes.
async fn read(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let failed = |error| format!("the body of the request cannot be read: {error}; send it again");
        let chunk = chunk.map_err(|error| ApiError::body(StatusCode::BAD_REQUEST, failed(error)))?;
        length += chunk.len();
        if length <= limit {
            bytes.extend_from_slice(&chunk);
        } else if length > limit + DRAINED {
            break;
        } else {
            bytes = Vec::new();
        }
    }
    if length <= limit {
        return Ok(bytes);
    }
    let message = format!("the body of the request is longer than {limit} bytes; shorten it");
    Err(ApiError::body(StatusCode::PAYLOAD_TOO_LARGE, message))
}

impl Fields {
    /// Fields that were made here.
    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// All fields.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.0
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let parsed = serde_json::from_slice(bytes);
        parsed.map(Self).map_err(|error| ApiError::invalid(format!("the body is no JSON object: {error}")))
    }

    /// A field, if it is there.
    pub(super) fn raw(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field as a value of a type.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let value = self.raw(name).map(T::deserialize).transpose();
        value.map_err(|error| ApiError::field(name, error))
    }

    /// A field that must be there.
    pub(super) fn require<T: DeserializeOwned>(&self, name: &str) -> Result<T, ApiError> {
        self.get(name)?.ok_or_else(|| ApiError::field(name, "this field is missing"))
    }

    /// The first of several names of a field.
    pub(super) fn first<T: DeserializeOwned>(&self, names: &[&str]) -> Result<Option<T>, ApiError> {
        names.iter().find_map(|name| self.get(name).transpose()).transpose()
    }

    /// A switch, off unless it is set.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.get(name)?.unwrap_or(false))
    }
}
