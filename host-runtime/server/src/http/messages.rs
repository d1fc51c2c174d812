//! `/v1/messages`: Anthropic's interface.
//!
//! A request is translated to the fields of `/v1/chat/completions`, so that both read conversations, tools
//! and settings by the same code.

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
    let work = Arc::clone(&app);
    let prepared = app.work("the prompt", move || {
        let model = work.writer()?;
        let max_tokens: i64 = fields.require("max_tokens")?;
        if max_tokens < 1 {
            return Err(ApiError::field("max_tokens", "ask for at least one token"));
        }
        let fields = request::translate(fields)?;
        let dialogue = Dialogue::prepare(&fields, &work, model)?;
        let manner = dialogue.settings.manner();
        let (orders, parser) = dialogue.single()?;
        let prompt = orders.first().map_or(0, |order| order.prompt.len());
        Ok((orders, Messages::new(model, parser, prompt), manner))
    });
    let (orders, shape, manner) = prepared.await?;
    answer(&app, orders, shape, manner).await
}

pub(super) async fn count_tokens(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let counted = app.work("the prompt", move || {
        let model = work.writer()?;
        Dialogue::count(&request::translate(fields)?, model)
    });
    let n = counted.await?;
    Ok(Json(json!({ "input_tokens": n })))
}
