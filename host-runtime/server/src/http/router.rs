//! The router: the routes of the table, and what goes on around each of them.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::error::ApiError;
use super::table::{self, Dialect, ROUTES, Route, Verb};
use super::{auth, origin, page};
use crate::connections;
use crate::options::Options;

/// All routes of a server with one model.
pub(crate) fn router(app: Arc<App>) -> Router {
    let options = Arc::clone(&app.options);
    around(routes(app), &options)
}

/// The routes of the table, which answer with this model.
pub(crate) fn routes(app: Arc<App>) -> Router {
    let add = |router, route: &Route| {
        route.paths().fold(router, |router: Router<_>, path| router.route(path, route.handler()))
    };
    ROUTES
        .iter()
        .fold(Router::new(), add)
        .fallback(async |uri: Uri| no_route(&uri))
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

/// Nothing is where a request asks.
pub(crate) fn no_route(uri: &Uri) -> ApiError {
    ApiError::no_route(uri.path(), &table::instead_of(uri.path()))
}

/// Routes with the page for browsers, and with what goes on around every request.
pub(crate) fn around(routes: Router, options: &Arc<Options>) -> Router {
    let page = if options.page { page::routes() } else { Router::new() };
    // The page's own paths come first.
    page.method_not_allowed_fallback(wrong_method)
        .fallback_service(routes)
        .layer(from_fn_with_state(auth::Gate { options: Arc::clone(options), is_open }, auth::check))
        .layer(from_fn_with_state(Arc::clone(options), origin::check))
        .layer(origin::cors(&options.cors))
        .layer(CatchPanicLayer::custom(|_| ApiError::internal("this request").into_response()))
        .layer(from_fn(errors))
        .layer(from_fn(log))
        .layer(from_fn(connections::follow))
}

/// Whether everybody may have what is at `path`. The page has nothing secret in it: it asks its user for a
/// key.
fn is_open(path: &str) -> bool {
    page::is_part(path) || table::at(path).is_some_and(|route| route.is_open)
}

async fn wrong_method(method: Method, request: Request) -> ApiError {
    let path = request.uri().path();
    // The files of the page can only be read.
    let verb = table::at(path).map_or(Verb::Get, |route| route.verb);
    ApiError::wrong_method(&method, path, verb.name())
}

/// Writes errors as clients of the route's dialect expect them, whoever made them.
async fn errors(request: Request, next: Next) -> Response {
    let dialect = table::dialect_at(request.uri().path());
    let response = next.run(request).await;
    let error = match dialect {
        // llama-server's errors are OpenAI's.
        Dialect::OpenAi | Dialect::Llama => None,
        Dialect::Ollama => response.extensions().get::<ApiError>().map(ApiError::ollama),
        Dialect::Anthropic => response.extensions().get::<ApiError>().map(ApiError::anthropic),
    };
    let Some(error) = error else { return response };
    let (mut head, _) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    (head, Json(error)).into_response()
}

/// The access log. The time of a stream is that to its beginning.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let start = Instant::now();
    let response = next.run(request).await;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    tracing::info!("{method} {path} {} {ms:.1} ms", response.status().as_u16());
    response
}
