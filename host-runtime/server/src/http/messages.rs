//! `/v1/messages`: Anthropic's interface.
//!
//! A request is translated to that of `/v1/chat/completions`, so that both become orders by the same code.

mod request;
mod shape;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::answer;
use super::app::Shared;
use super::dialogue::Dialogue;
use super::error::ApiError;
use super::fields::Fields;
use shape::Messages;

pub(super) async fn create(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    answer(app, move |app, model| {
        let request = request::translate(fields)?;
        if request.text.max_tokens.is_none_or(|n| n < 1) {
            return Err(ApiError::field("max_tokens", "this field has to be there, and to be at least 1"));
        }
        let (orders, parser, manner) = Dialogue::prepare(request, app, model)?.single()?;
        let prompt = orders.first().map_or(0, |order| order.prompt.len());
        Ok((orders, Messages::new(model, parser, prompt), manner))
    })
    .await
}

pub(super) async fn count_tokens(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let counted = app.work("the prompt", move || {
        let model = work.writer()?;
        Dialogue::count(request::translate(fields)?, model)
    });
    let n = counted.await?;
    Ok(Json(json!({ "input_tokens": n })))
}
