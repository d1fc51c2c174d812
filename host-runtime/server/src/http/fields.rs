//! The JSON body of a request.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use futures_util::StreamExt;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde_json::{Map, Value};

use super::app::App;
use super::error::ApiError;
use crate::connections::Connection;
use crate::options::Options;
use crate::text::kinds::whole;

/// The fields of a JSON object. `null` counts as absent, as clients send it for what they do not set.
///
/// Each part of the server has a struct of those that it knows, and takes them. What is left at the end is
/// known to nobody, and refused where it would change the answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Fields(Map<String, Value>);

/// Bytes beyond the limit that are read and dropped: whoever is still sending does not read the answer.
const DRAINED: usize = 256 << 20;

/// Most that the parts of a body may weigh, by [`weight`]: room for the ids of a prompt of two million
/// tokens. A parsed value takes 72 bytes at least: 32 MB of nothing but `0,` would become more than 1 GB.
const MAX_WEIGHT: usize = 2 << 20;
/// Weight of an object. Even a small one is a table of its own, of some 600 bytes.
const OBJECT_WEIGHT: usize = 8;

/// The bytes of a body.
pub(crate) struct Whole(pub(crate) Vec<u8>);

impl Whole {
    /// Reads the body of a request, `parts` of which are there already.
    pub(crate) async fn read(parts: &Parts, body: Body, options: &Options) -> Result<Self, ApiError> {
        let read = read(body, options.body_bytes, options.idle);
        let bytes = tokio::time::timeout(options.timeout, read).await.unwrap_or_else(|_| Err(late()))?;
        // From here on its client waits, and the connection does not give way to others.
        parts.extensions.get::<Connection>().into_iter().for_each(Connection::has_request);
        Ok(Self(bytes))
    }
}

impl FromRequest<Arc<App>> for Whole {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        Self::read(&parts, body, &app.options).await
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
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        if weight(bytes) > MAX_WEIGHT {
            let message = "the body of the request has too many values; send fewer in one request";
            return Err(ApiError::body(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let parsed = serde_json::from_slice(bytes);
        parsed.map(Self).map_err(|error| ApiError::invalid(format!("the body is no JSON object: {error}")))
    }

    /// Takes the fields that a struct has out of these, so that what no type has is left.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        serde_path_to_error::deserialize(Taking(self)).map_err(|error| wrong(&error))
    }

    /// Takes a field out, whatever it is.
    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// A field that was not taken, if it is there.
    pub(super) fn left(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Adds fields, in the place of those that have their names.
    pub(super) fn extend(&mut self, more: impl IntoIterator<Item = (String, Value)>) {
        self.0.extend(more);
    }
}

/// Source of the fields of a struct, which says which these are.
struct Taking<'f>(&'f mut Fields);

impl<'de> Deserializer<'de> for Taking<'_> {
    type Error = serde_json::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let taken = |name: &&str| match self.0.0.remove_entry(*name)? {
            (_, Value::Null) => None,
            // JavaScript has no other numbers: 5.0 is 5.
            (name, value @ (Value::Number(_) | Value::Array(_))) => Some((name, whole(value))),
            field => Some(field),
        };
        let taken: Map<_, _> = fields.iter().filter_map(taken).collect();
        taken.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        std::mem::take(&mut self.0.0).deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The error that names the field, however deep it is.
fn wrong(error: &serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let (path, reason) = (error.path().to_string(), error.inner().to_string());
    // Only the words say which field is missing; the path ends at what lacks it.
    let Some(missing) = reason.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) else {
        return ApiError::field(&path, in_words(&reason));
    };
    let path = if path == "." { missing.to_owned() } else { format!("{path}.{missing}") };
    ApiError::field(&path, "this field is missing")
}

/// Words of serde about a value, without Rust's names of types.
fn in_words(reason: &str) -> String {
    let Some((found, expected)) = reason.rsplit_once(", expected ") else { return reason.to_owned() };
    let expected = match expected {
        "f32" => "a number",
        "i64" | "i128" | "u32" | "usize" => "a whole number that fits",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

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

    #[derive(Debug, Deserialize, PartialEq)]
    struct Taken {
        name: String,
        n: Option<u32>,
        #[serde(default)]
        parts: Vec<Part>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Part {
        text: String,
    }

    #[test]
    fn a_struct_takes_its_fields_and_leaves_the_others() {
        let body = br#"{"other": 1, "n": 5.0, "name": "a", "name": "b", "parts": null}"#;
        let mut fields = Fields::parse(body).unwrap();
        let taken: Taken = fields.take().unwrap();
        assert_eq!(taken, Taken { name: "b".to_owned(), n: Some(5), parts: Vec::new() });
        assert_eq!(fields.0, Map::from_iter([("other".to_owned(), 1.into())]));
    }

    #[test]
    fn errors_name_the_field_and_what_was_expected() {
        for (body, words) in [
            ("{}", "name: this field is missing"),
            (r#"{"name": null}"#, "name: this field is missing"),
            (r#"{"name": 5}"#, "name: invalid type: integer `5`, expected a string"),
            (
                r#"{"name": "a", "n": 1.5}"#,
                "n: invalid type: floating point `1.5`, expected a whole number that fits",
            ),
            (
                r#"{"name": "a", "n": -1}"#,
                "n: invalid value: integer `-1`, expected a whole number that fits",
            ),
            (r#"{"name": "a", "parts": [{"text": "b"}, {}]}"#, "parts[1].text: this field is missing"),
            (r#"{"name": "a", "parts": [7]}"#, "parts[0]: invalid type: integer `7`, expected an object"),
        ] {
            let error = Fields::parse(body.as_bytes()).unwrap().take::<Taken>().unwrap_err().json();
            assert_eq!(error["error"]["message"], words);
            assert_eq!(error["error"]["param"], words.split(": ").next().unwrap());
        }
    }

    #[test]
    fn what_stands_in_quotes_weighs_nothing() {
        assert_eq!(weight(br#"{"a,[{": "\",[{", "b": [1, 2]}"#), OBJECT_WEIGHT + 3);
        assert_eq!(weight(br#""\\,[" , ["#), 2);
        assert_eq!(weight(b""), 0);
    }
}
