//! `/tokenize`, `/detokenize`, `/apply-template`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Shared;
use super::body::Fields;
use super::conversation::render;
use super::error::ApiError;
use super::fields::refuse_unsupported;
use super::tools::Tools;

pub(super) async fn tokenize(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let tokens = tokio::task::spawn_blocking(move || {
        let tokenizer = &work.model()?.card.text.tokenizer;
        let content: String = fields.require("content")?;
        let parse = fields.get("parse_special")?.unwrap_or(true);
        let ids = tokenizer.encode(&content, fields.flag("add_special")?, parse)?;
        if !fields.flag("with_pieces")? {
            return Ok::<_, ApiError>(json!(ids));
        }
        let piece = |id: u32| {
            let bytes = tokenizer.token_bytes(id)?;
            // What is no text by itself is told byte by byte.
            let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), Value::from);
            Ok(json!({ "id": id, "piece": piece }))
        };
        ids.into_iter().map(piece).collect()
    });
    let tokens = tokens.await.map_err(|_| ApiError::internal("the text"))??;
    Ok(Json(json!({ "tokens": tokens })))
}

pub(super) async fn detokenize(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let tokens: Vec<u32> = fields.require("tokens")?;
    let content = app.model()?.card.text.tokenizer.decode(&tokens, false)?;
    Ok(Json(json!({ "content": content })))
}

pub(super) async fn apply_template(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let prompt = tokio::task::spawn_blocking(move || {
        refuse_unsupported(&fields)?;
        let model = work.model()?;
        let tools = Tools::read(&fields, model)?.map(|(tools, _)| tools);
        render(&fields, tools.as_ref(), model)
    });
    let prompt = prompt.await.map_err(|_| ApiError::internal("the template"))??;
    Ok(Json(json!({ "prompt": prompt })))
}
