//! The JSON body of a request.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::app::App;
use super::error::ApiError;
use crate::connections::Connection;
use crate::text::kinds::whole;

/// The fields of a JSON object. `null` counts as absent, as clients send it for what they do not set.
pub(super) struct Fields(Map<String, Value>);

/// Bytes beyond the limit that are read and dropped: whoever is still sending does not read the answer.
const DRAINED: usize = 256 << 20;

/// Most that the parts of a body may weigh, by [`weight`]: room for the ids of a prompt of two million
/// tokens. A parsed value takes 72 bytes at least: 32 MB of nothing but `0,` would become more than 1 GB.
const MAX_WEIGHT: usize = 2 << 20;
/// Weight of an object. Even a small one is a table of its own, of some 600 bytes.
const OBJECT_WEIGHT: usize = 8;

/// The bytes of a body.
pub(super) struct Whole(pub(super) Vec<u8>);

impl FromRequest<Arc<App>> for Whole {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let options = &app.options;
        let connection = request.extensions().get::<Connection>().cloned();
        let read = read(request.into_body(), options.body_bytes, options.idle);
        let bytes = tokio::time::timeout(options.timeout, read).await.unwrap_or_else(|_| Err(late()))?;
        // From here on its client waits, and the connection does not give way to others.
        connection.iter().for_each(Connection::has_request);
        Ok(Self(bytes))
    }
}

impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let Whole(bytes) = Whole::from_request(request, app).await?;
        Self::parse(&bytes)
    }
}

/// A body that takes too long.
fn late() -> ApiError {
    let message = "the body of the request did not come in time; send it at once";
    ApiError::body(StatusCode::REQUEST_TIMEOUT, message)
}

/// A body of at most `limit` bytes, whose client sends something at least every `idle`.
async fn read(body: Body, limit: usize, idle: Duration) -> Result<Vec<u8>, ApiError> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = tokio::time::timeout(idle, chunks.next()).await.map_err(|_| late())? {
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

/// How much memory a JSON text takes when it is parsed, as far as that is not its length: the number of its
/// values, where objects count for more. Each value but the first comes after a comma or a bracket.
fn weight(text: &[u8]) -> usize {
    let (mut weight, mut quoted, mut bytes) = (0_usize, false, text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => _ = bytes.next(),
            b',' | b'[' if !quoted => weight += 1,
            b'{' if !quoted => weight += OBJECT_WEIGHT,
            _ => {}
        }
    }
    weight
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
        if weight(bytes) > MAX_WEIGHT {
            let message = "the body of the request has too many values; send fewer in one request";
            return Err(ApiError::body(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let parsed = serde_json::from_slice(bytes);
        parsed.map(Self).map_err(|error| ApiError::invalid(format!("the body is no JSON object: {error}")))
    }

    /// A field, if it is there.
    pub(super) fn raw(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field as a value of a type.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let read = T::deserialize(value).or_else(|error| match value {
            // JavaScript has no other numbers: 5.0 is 5.
            Value::Number(_) | Value::Array(_) => T::deserialize(whole(value.clone())).map_err(|_| error),
            _ => Err(error),
        });
        read.map(Some).map_err(|error| ApiError::field(name, error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_values_are_refused_before_they_are_parsed() {
        let of = |item: &str, n: usize| format!(r#"{{"a": [{}{item}]}}"#, format!("{item},").repeat(n));
        assert!(Fields::parse(of("0", 1 << 20).as_bytes()).is_ok());
        for item in ["0", "[]", r#"{"":0}"#] {
            let refused = Fields::parse(of(item, 2 << 20).as_bytes()).err().unwrap().json();
            assert_eq!(refused["error"]["code"], 413, "{item}: {refused}");
        }
    }

    #[test]
    fn what_stands_in_quotes_weighs_nothing() {
        assert_eq!(weight(br#"{"a,[{": "\",[{", "b": [1, 2]}"#), OBJECT_WEIGHT + 3);
        assert_eq!(weight(br#""\\,[" , ["#), 2);
        assert_eq!(weight(b""), 0);
    }
}
