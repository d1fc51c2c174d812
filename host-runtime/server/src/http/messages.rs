//! `/v1/messages`: Anthropic's interface.
//!
//! A request is translated to the fields of `/v1/chat/completions`, so that both read conversations, tools
//! and settings by the same code.

mod request;
mod shape;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::answer::answer;
use super::body::Fields;
use super::dialogue::Dialogue;
use super::error::ApiError;
use super::{App, Shared};
use shape::Messages;

/// Where the routes are.
const PATH: &str = "/v1/messages";

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route(PATH, post(create)).route("/v1/messages/count_tokens", post(count_tokens))
}

/// Writes the errors of these routes as Anthropic's clients expect them, whoever made them.
pub(super) async fn errors(request: Request, next: Next) -> Response {
    let is_ours = request.uri().path().starts_with(PATH);
    let response = next.run(request).await;
    let error = response.extensions().get::<ApiError>().filter(|_| is_ours).map(ApiError::anthropic);
    let Some(error) = error else { return response };
    let (mut head, _) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    (head, Json(error)).into_response()
}

async fn create(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = tokio::task::spawn_blocking(move || {
        let model = work.model()?;
        let max_tokens: i64 = fields.require("max_tokens")?;
        if max_tokens < 1 {
            return Err(ApiError::field("max_tokens", "ask for at least one token"));
        }
        let fields = request::translate(fields)?;
        let dialogue = Dialogue::prepare(&fields, &work, model)?;
        let stream = dialogue.settings.stream;
        let (orders, parser) = dialogue.single()?;
        let prompt = orders.first().map_or(0, |order| order.prompt.len());
        Ok((orders, Messages::new(model, parser, prompt), stream))
    });
    let (orders, shape, stream) = prepared.await.map_err(|_| ApiError::internal("the prompt"))??;
    answer(&app, orders, shape, stream).await
}

async fn count_tokens(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let counted = tokio::task::spawn_blocking(move || {
        let model = work.model()?;
        Dialogue::count(&request::translate(fields)?, model)
    });
    let n = counted.await.map_err(|_| ApiError::internal("the prompt"))??;
    Ok(Json(json!({ "input_tokens": n })))
}
