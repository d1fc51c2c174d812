//! Routes, and what all of them share.

mod answer;
mod auth;
mod blocks;
mod body;
mod calls;
mod chat;
mod completions;
mod conversation;
mod dialogue;
mod error;
mod family;
mod fields;
mod form;
mod history;
mod info;
mod logprobs;
mod messages;
mod native;
mod order;
mod page;
mod responses;
mod shape;
mod slots;
mod text;
mod thoughts;
mod tools;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use hexflash::engine::{Engine, MemoryPlan};
use hexflash::tokenizer::Tokenizer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::grammar::Grammars;
use crate::scheduler::Scheduler;
use crate::{Card, CorsOrigins, Options};
use error::ApiError;
pub(crate) use family::Family;

/// What all routes share.
pub(crate) struct App {
    options: Options,
    scheduler: Arc<Scheduler>,
    model: OnceLock<Model>,
    started: SystemTime,
}

/// The model, once it is loaded.
struct Model {
    card: Card,
    n_ctx: usize,
    n_ctx_train: u32,
    n_vocab: u32,
    n_embd: u32,
    slots: usize,
    speculates: bool,
    memory: MemoryPlan,
    /// The device, in one line.
    device: String,
    /// Bytes of the longest token.
    longest_token: usize,
    /// Made when first asked for.
    grammars: OnceLock<Result<Grammars, String>>,
}

impl App {
    pub(crate) fn new(options: Options, scheduler: Arc<Scheduler>) -> Self {
        Self { options, scheduler, model: OnceLock::new(), started: SystemTime::now() }
    }

    /// The model is there.
    pub(crate) fn is_ready(&self, card: Card, engine: &Engine) {
        let config = engine.config();
        let model = Model {
            n_ctx: engine.n_ctx() as usize,
            n_ctx_train: config.n_ctx_train,
            n_vocab: config.n_vocab,
            n_embd: config.n_embd,
            slots: engine.sequences().len(),
            speculates: engine.speculates(),
            memory: engine.memory().clone(),
            device: engine.device().info().description.clone(),
            longest_token: longest_token(&card.text.tokenizer),
            grammars: OnceLock::new(),
            card,
        };
        // There is one model in the life of a server.
        let _ = self.model.set(model);
    }

    /// What clients learn of the model, if it is loaded.
    pub(crate) fn card(&self) -> Option<&Card> {
        self.model.get().map(|model| &model.card)
    }

    /// The model, if it is loaded.
    fn model(&self) -> Result<&Model, ApiError> {
        self.model.get().ok_or_else(ApiError::loading)
    }
}

/// Bytes of the longest token.
fn longest_token(tokenizer: &Tokenizer) -> usize {
    let ids = 0..tokenizer.vocab_size() as u32;
    ids.filter_map(|id| tokenizer.token_bytes(id).ok()).map(<[u8]>::len).max().unwrap_or(0).max(1)
}

impl Model {
    /// That a prompt is not so long that its tokens need not be counted: that takes a second for a few
    /// million of them.
    ///
    /// # Errors
    /// It does not fit the context.
    fn admit(&self, prompt: &str) -> Result<(), ApiError> {
        let least = prompt.len() / self.longest_token;
        if least < self.n_ctx { Ok(()) } else { Err(ApiError::too_long(least, self.n_ctx)) }
    }
}

type Shared = State<Arc<App>>;

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let cors = cors(&app.options.cors);
    let page = if app.options.page { page::routes() } else { Router::new() };
    page.route("/health", get(info::health))
        .route("/v1/health", get(info::health))
        .route("/models", get(info::models))
        .route("/v1/models", get(info::models))
        .route("/props", get(info::props))
        .route("/slots", get(info::slots))
        .route("/slots/{id}", post(slots::act))
        .route("/metrics", get(info::metrics))
        .route("/chat/completions", post(chat::route))
        .route("/v1/chat/completions", post(chat::route))
        .route("/chat/completions/input_tokens", post(chat::count))
        .route("/v1/chat/completions/input_tokens", post(chat::count))
        .route("/v1/completions", post(completions::route))
        .route("/completion", post(native::route))
        .route("/completions", post(native::route))
        .route("/tokenize", post(text::tokenize))
        .route("/detokenize", post(text::detokenize))
        .route("/apply-template", post(text::apply_template))
        .merge(messages::routes())
        .merge(responses::routes())
        .fallback(async |request: Request| ApiError::no_route(request.uri().path()))
        .method_not_allowed_fallback(async |method: Method, request: Request| {
            ApiError::wrong_method(&method, request.uri().path())
        })
        .layer(from_fn_with_state(Arc::clone(&app), auth::check))
        .layer(cors)
        .layer(CatchPanicLayer::custom(|_| ApiError::internal("this request").into_response()))
        .layer(from_fn(messages::errors))
        .layer(from_fn(log))
        .with_state(app)
}

/// What pages of other servers may do.
fn cors(origins: &CorsOrigins) -> CorsLayer {
    let origin = match origins {
        CorsOrigins::Any => AllowOrigin::any(),
        CorsOrigins::Local => AllowOrigin::predicate(|origin, _| is_local(origin)),
        CorsOrigins::Only(list) => AllowOrigin::list(list.iter().cloned()),
    };
    // A wildcard would leave out the header of the key.
    let headers = AllowHeaders::mirror_request();
    CorsLayer::new().allow_origin(origin).allow_methods([Method::GET, Method::POST]).allow_headers(headers)
}

/// Whether a page is one of this machine.
fn is_local(origin: &HeaderValue) -> bool {
    let Ok(uri) = origin.to_str().unwrap_or_default().parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The access log. The time of a stream is that to its beginning.
async fn log(request: Request, next: middleware::Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let start = Instant::now();
    let response = next.run(request).await;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    tracing::info!("{method} {path} {} {ms:.1} ms", response.status().as_u16());
    response
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_are_known_by_their_host_alone() {
        let is_local = |origin: &'static str| is_local(&HeaderValue::from_static(origin));
        for origin in
            ["http://localhost", "https://localhost:8080", "http://127.0.0.1:3000", "http://[::1]:1"]
        {
            assert!(is_local(origin), "{origin}");
        }
        for origin in ["http://notlocalhost", "http://localhost.example.org", "http://192.0.2.1", "null", ""]
        {
            assert!(!is_local(origin), "{origin}");
        }
    }
}
