//! Errors as clients of OpenAI and of llama-server expect them.

use axum::Json;
use axum::http::header::{self, HeaderName};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hexflash::Blame;
use hexflash::chat::ChatError;
use hexflash::text::TextError;
use hexflash::tokenizer::TokenizerError;
use serde_json::{Value, json};

use super::json::with;
use crate::scheduler::news::Failure;
use crate::scheduler::queue::Refused;
use crate::text::refusal::Refusal;

/// Seconds after which a client that was refused may ask again.
const RETRY_AFTER: u32 = 1;

/// A request that is answered with an error.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    /// llama-server's name for this kind of error.
    kind: &'static str,
    message: String,
    /// The field that is wrong.
    param: Option<String>,
    /// Tokens of a prompt that is too long, and of the context.
    lengths: Option<(usize, usize)>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, lengths: None }
    }

    /// The request makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field has a value that it cannot have.
    pub(crate) fn field(name: &str, reason: impl std::fmt::Display) -> Self {
        Self { param: Some(name.to_owned()), ..Self::invalid(format!("{name}: {reason}")) }
    }

    /// A field asks for something that this server does not do.
    pub(crate) fn unsupported(name: &str, hint: &str) -> Self {
        let message = format!("{name} is not supported by this server; {hint}");
        let error = Self::new(StatusCode::BAD_REQUEST, "unsupported", message);
        Self { param: Some(name.to_owned()), ..error }
    }

    /// A field has an image, or something else that is no text.
    pub(crate) fn no_images(name: &str) -> Self {
        Self::unsupported(
            name,
            "image input is not supported: send text alone, or start the server with an encoder (--mmproj)",
        )
    }

    /// This error, for a request that has the messages of a chat in another field.
    pub(crate) fn of_messages_in(self, field: &str) -> Self {
        const MESSAGES: &str = "messages";
        if self.param.as_deref() != Some(MESSAGES) {
            return self;
        }
        let message = match self.message.strip_prefix(MESSAGES) {
            Some(rest) => format!("{field}{rest}"),
            None => self.message,
        };
        Self { message, param: Some(field.to_owned()), ..self }
    }

    /// The prompt has `n_prompt` tokens or more, which is too long.
    pub(crate) fn too_long(n_prompt: usize, n_ctx: usize) -> Self {
        let message = format!(
            "the prompt has at least {n_prompt} tokens, and the context {n_ctx}; shorten it, \
             or start the server with a larger context (-c)"
        );
        let error = Self::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message);
        Self { lengths: Some((n_prompt, n_ctx)), ..error }
    }

    /// The model is not there yet.
    pub(crate) fn loading() -> Self {
        Self::unavailable("Loading model")
    }

    /// It may work later.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// The server is about to end.
    pub(crate) fn ending() -> Self {
        Self::unavailable("the server is shutting down; ask another one, or ask again later")
    }

    /// Something went wrong here.
    pub(crate) fn internal(what: &str) -> Self {
        let message = format!("the server failed at {what}; this is a bug of hexflash, please report it");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// A route that was not switched on.
    pub(crate) fn switched_off(flag: &str) -> Self {
        let message = format!("this server was started without it; start it with {flag}");
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// A request that the model is not made for.
    pub(super) fn not_supported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// No key, or a wrong one.
    pub(crate) fn no_key() -> Self {
        let message =
            "Invalid API Key: give one that the server was started with, as Authorization: Bearer KEY";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
    }

    /// A page, or a name of the server, that is a stranger's.
    pub(crate) fn foreign(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// A body that does not say that it is JSON.
    pub(crate) fn no_json() -> Self {
        let message = "the body of a request is JSON, and has to say so; send the header \
                       Content-Type: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// The client has not read its answer while others waited.
    pub(crate) fn slow_reader() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout_error",
            "the text was ended because it was not read and its place was needed; read faster, or ask again",
        )
    }

    /// The model is there, and cannot be loaded.
    pub(crate) fn no_load(name: &str, reason: &str) -> Self {
        let message = format!("the model {name:?} cannot be loaded: {reason}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// There is no model of this name.
    pub(crate) fn no_model(name: &str, there: &str) -> Self {
        let message = format!("there is no model {name:?} here; this server has {there:?}");
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// There is no such route; there are these.
    pub(crate) fn no_route(path: &str, there: &[&str]) -> Self {
        let there = there.join(", ");
        let message = format!("there is nothing at {path}; this server has {there}, and others");
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// The route at `path` has the method `other`.
    pub(crate) fn wrong_method(method: &Method, path: &str, other: &str) -> Self {
        let message = format!("{path} does not answer {method}; use {other}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    /// The body cannot be read.
    pub(crate) fn body(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    /// The error as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({
            "code": self.status.as_u16(),
            "message": self.message,
            "type": self.kind,
            "param": self.param,
        });
        if let Some((n_prompt, n_ctx)) = self.lengths {
            error = with(with(error, "n_prompt_tokens", n_prompt.into()), "n_ctx", n_ctx.into());
        }
        json!({ "error": error })
    }

    /// The error as Ollama's clients expect it.
    pub(super) fn ollama(&self) -> Value {
        json!({ "error": self.message })
    }

    /// The error as Anthropic's clients expect it.
    pub(super) fn anthropic(&self) -> Value {
        let kind = match self.status.as_u16() {
            400 | 405 | 408 | 415 => "invalid_request_error",
            403 => "permission_error",
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            503 => "overloaded_error",
            _ => "api_error",
        };
        json!({ "type": "error", "error": { "type": kind, "message": self.message } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self.json())).into_response();
        // For those who write errors in another shape.
        response.extensions_mut().insert(self);
        let (name, value): (HeaderName, _) = match status {
            StatusCode::SERVICE_UNAVAILABLE => (header::RETRY_AFTER, RETRY_AFTER.to_string()),
            StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, "Bearer".to_owned()),
            _ => return response,
        };
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full(n) => Self::unavailable(format!(
                "{n} requests wait already; ask again in a moment, or another server"
            )),
            Refused::Closed => Self::ending(),
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure.blame {
            Blame::Input => Self::invalid(failure.message),
            Blame::System | Blame::Cancelled => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", failure.message)
            }
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Wrong { field, reason } => Self::field(field, reason),
            Refusal::Unsupported { field, hint } => Self::unsupported(field, &hint),
        }
    }
}

impl From<TokenizerError> for ApiError {
    fn from(error: TokenizerError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<ChatError> for ApiError {
    fn from(error: ChatError) -> Self {
        Self::invalid(error.to_string())
    }
}
