//! The JSON body of a request.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::App;
use super::error::ApiError;

/// The fields of a JSON object. `null` counts as absent, as clients send it for what they do not set.
pub(super) struct Fields(Map<String, Value>);

impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let read = tokio::time::timeout(app.options.timeout, Bytes::from_request(request, app)).await;
        let Ok(read) = read else {
            let message = "the body of the request did not come in time; send it at once";
            return Err(ApiError::body(StatusCode::REQUEST_TIMEOUT, message));
        };
        let bytes = read.map_err(|refused| match refused.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let most = app.options.body_bytes;
                let message = format!("the body of the request is longer than {most} bytes; shorten it");
                ApiError::body(StatusCode::PAYLOAD_TOO_LARGE, message)
            }
            status => ApiError::body(status, refused.body_text()),
        })?;
        Self::parse(&bytes)
    }
}

impl Fields {
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
