//! API keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::error::ApiError;
use crate::options::Options;

/// The gate that requests pass: the keys of the server, and the paths that need none.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) options: Arc<Options>,
    /// Whether everybody may have what is at a path.
    pub(super) is_open: fn(&str) -> bool,
}

/// Lets requests through that name a key, or need none.
pub(super) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let keys = &gate.options.api_keys;
    let is_open = keys.is_empty() || (gate.is_open)(request.uri().path());
    if is_open || given(request.headers()).is_some_and(|key| is_one_of(key, keys)) {
        next.run(request).await
    } else {
        ApiError::no_key().into_response()
    }
}

/// The key of a request: OpenAI's header or Anthropic's.
fn given(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

/// Compares with all keys, in a time that does not tell how much of any is right.
fn is_one_of(given: &[u8], keys: &[String]) -> bool {
    keys.iter().fold(false, |found, key| found | bool::from(key.as_bytes().ct_eq(given)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_have_the_key() {
        let keys = ["first".to_owned(), "second".to_owned()];
        let fine = |name: &'static str, value: &str| {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            given(&headers).is_some_and(|key| is_one_of(key, &keys))
        };
        assert!(fine("authorization", "Bearer second") && fine("authorization", "bearer first"));
        assert!(fine("x-api-key", "first"));
        assert!(
            !fine("authorization", "Bearer secon")
                && !fine("authorization", "Bearer ")
                && !fine("authorization", "first")
        );
        assert!(!fine("x-api-key", "firstsecond"));
    }
}
