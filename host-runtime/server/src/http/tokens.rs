//! `/tokenize`, `/detokenize`, `/apply-template`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::app::{MAX_TEXT, Shared};
use super::conversation::render;
use super::error::ApiError;
use super::fields::Fields;
use super::offer;
use super::unsupported::{refuse_in_chats, refuse_unsupported};

/// Most tokens that `/detokenize` joins: more than a context of a million tokens holds.
const MAX_TOKENS: usize = 2 << 20;

/// Answers of `/tokenize`. They are written at once: as JSON's own values, tokens would take 72 bytes each
/// and more.
#[derive(Serialize)]
#[serde(untagged)]
enum Tokens<'t> {
    Ids { tokens: Vec<u32> },
    Pieces { tokens: Vec<Piece<'t>> },
}

#[derive(Serialize)]
struct Piece<'t> {
    id: u32,
    piece: PieceText<'t>,
}

/// Piece of a token, which is told byte by byte where it is no text by itself.
#[derive(Serialize)]
#[serde(untagged)]
enum PieceText<'t> {
    Text(&'t str),
    Bytes(&'t [u8]),
}

/// A JSON text, as an answer.
fn written(value: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_string(value).map_err(|_| ApiError::internal("the answer"))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

pub(super) async fn tokenize(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    app.work("the text", move || {
        let tokenizer = &work.model()?.card.text.tokenizer;
        let content: String = fields.require("content")?;
        if content.len() > MAX_TEXT {
            let reason = format!("{} bytes are too many; send at most {MAX_TEXT} at a time", content.len());
            return Err(ApiError::field("content", reason));
        }
        let parse = fields.get("parse_special")?.unwrap_or(true);
        let tokens = tokenizer.encode(&content, fields.flag("add_special")?, parse)?;
        if !fields.flag("with_pieces")? {
            return written(&Tokens::Ids { tokens });
        }
        let piece = |id: u32| {
            let bytes = tokenizer.token_bytes(id)?;
            let piece = std::str::from_utf8(bytes).map_or(PieceText::Bytes(bytes), PieceText::Text);
            Ok::<_, ApiError>(Piece { id, piece })
        };
        let tokens = tokens.into_iter().map(piece).collect::<Result<_, _>>()?;
        written(&Tokens::Pieces { tokens })
    })
    .await
}

pub(super) async fn detokenize(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let content = app.work("the tokens", move || {
        let count = fields.raw("tokens").and_then(Value::as_array).map_or(0, Vec::len);
        if count > MAX_TOKENS {
            let reason = format!("{count} are too many; send at most {MAX_TOKENS} at a time");
            return Err(ApiError::field("tokens", reason));
        }
        let tokens: Vec<u32> = fields.require("tokens")?;
        Ok(work.model()?.card.text.tokenizer.decode(&tokens, false)?)
    });
    Ok(Json(json!({ "content": content.await? })))
}

pub(super) async fn apply_template(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let prompt = app.work("the template", move || {
        refuse_unsupported(&fields)?;
        refuse_in_chats(&fields)?;
        let model = work.model()?;
        let tools = offer::read(&fields, model, false)?.tools;
        render(&fields, tools.as_ref(), model).map(|prompt| prompt.text)
    });
    Ok(Json(json!({ "prompt": prompt.await? })))
}
