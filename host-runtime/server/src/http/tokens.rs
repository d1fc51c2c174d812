//! `/tokenize`, `/detokenize`, `/apply-template`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app::{MAX_TEXT, Shared};
use super::dialogue::{Dialogue, Request};
use super::error::ApiError;
use super::fields::Fields;

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

/// A text to split.
#[derive(Deserialize)]
struct Tokenize {
    content: String,
    #[serde(default)]
    add_special: bool,
    parse_special: Option<bool>,
    #[serde(default)]
    with_pieces: bool,
}

/// Tokens to join.
#[derive(Deserialize)]
struct Detokenize {
    tokens: Vec<u32>,
}

pub(super) async fn tokenize(State(app): Shared, mut fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    app.work("the text", move || {
        let tokenizer = &work.model()?.card.text.tokenizer;
        let Tokenize { content, add_special, parse_special, with_pieces } = fields.take()?;
        if content.len() > MAX_TEXT {
            let reason = format!("{} bytes are too many; send at most {MAX_TEXT} at a time", content.len());
            return Err(ApiError::field("content", reason));
        }
        let tokens = tokenizer.encode(&content, add_special, parse_special.unwrap_or(true))?;
        if !with_pieces {
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

pub(super) async fn detokenize(State(app): Shared, mut fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let content = app.work("the tokens", move || {
        let Detokenize { tokens } = fields.take()?;
        if tokens.len() > MAX_TOKENS {
            let reason = format!("{} are too many; send at most {MAX_TOKENS} at a time", tokens.len());
            return Err(ApiError::field("tokens", reason));
        }
        Ok(work.model()?.card.text.tokenizer.decode(&tokens, false)?)
    });
    Ok(Json(json!({ "content": content.await? })))
}

pub(super) async fn apply_template(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let work = Arc::clone(&app);
    let prompt = app.work("the template", move || {
        let request = Request::read(fields)?;
        request.refuse_unknown()?;
        Dialogue::prompt(request, work.model()?)
    });
    Ok(Json(json!({ "prompt": prompt.await? })))
}
