//! `/v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Makes, Model, Shared};
use super::error::ApiError;
use super::fields::Fields;
use super::order::{NO_TEXT, token_id};

/// Most texts of a request, as with OpenAI, and most documents.
pub(super) const MAX_INPUTS: usize = 2048;

/// Form of the vectors.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// Lists of numbers.
    #[default]
    Float,
    /// The bytes of the floats, little endian.
    Base64,
}

/// Fields of a request for vectors.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct VectorFields {
    pub(super) input: Value,
    #[serde(rename = "model")]
    _model: String,
    dimensions: Option<u32>,
    encoding_format: Encoding,
}

pub(super) async fn create(State(app): Shared, mut fields: Fields) -> Result<Json<Value>, ApiError> {
    let asked: VectorFields = fields.take()?;
    let encoding = asked.encoding_format;
    let (vectors, tokens) = vectors(&app, asked).await?;
    let encoded = |vector: &Vec<f32>| match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            STANDARD.encode(bytes).into()
        }
    };
    let one =
        |(index, vector)| json!({ "object": "embedding", "index": index, "embedding": encoded(vector) });
    Ok(Json(json!({
        "object": "list",
        "data": vectors.iter().enumerate().map(one).collect::<Vec<_>>(),
        "model": app.model()?.card.alias,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

/// The vectors of the texts of `input`, and the tokens of all of them, whatever the interface.
pub(super) async fn vectors(app: &Arc<App>, asked: VectorFields) -> Result<(Vec<Vec<f32>>, usize), ApiError> {
    let work = Arc::clone(app);
    let texts = app.work("the texts", move || {
        let model = work.model()?;
        if !matches!(model.makes, Makes::Vectors) {
            return Err(ApiError::switched_off("--embeddings"));
        }
        if asked.dimensions.is_some_and(|wanted| wanted != model.n_embd) {
            let reason = format!("vectors of this model have {} values; drop it", model.n_embd);
            return Err(ApiError::field("dimensions", reason));
        }
        texts(&asked.input, model)
    });
    let texts = texts.await?;
    let tokens = texts.iter().map(Vec::len).sum();
    let answer = app.vectors.ask(texts)?.await;
    Ok((answer.map_err(|_| ApiError::ending())??, tokens))
}

/// The tokens of each text of `input`: a text, its tokens, or a list of such.
fn texts(input: &Value, model: &Model) -> Result<Vec<Vec<u32>>, ApiError> {
    let wrong = |reason: String| ApiError::field("input", reason);
    match input {
        Value::Array(items) if items.is_empty() => Err(wrong("the list is empty".to_owned())),
        Value::Array(items) if items.iter().all(Value::is_number) => Ok(vec![text(input, model)?]),
        Value::Array(items) if items.len() > MAX_INPUTS => {
            Err(wrong(format!("{} texts are too many; send at most {MAX_INPUTS} at a time", items.len())))
        }
        Value::Array(items) => items.iter().map(|item| text(item, model)).collect(),
        one => Ok(vec![text(one, model)?]),
    }
}

/// The tokens of a text. Those of a text in words get what the model's file adds to each text.
fn text(item: &Value, model: &Model) -> Result<Vec<u32>, ApiError> {
    const NAME: &str = "input";
    let tokenizer = &model.card.text.tokenizer;
    let tokens = match item {
        Value::String(text) => {
            model.admit(text)?;
            tokenizer.encode(text, true, true)?
        }
        Value::Array(ids) => {
            ids.iter().map(|id| token_id(NAME, id, tokenizer)).collect::<Result<Vec<_>, _>>()?
        }
        _ => return Err(ApiError::field(NAME, NO_TEXT)),
    };
    if tokens.is_empty() {
        return Err(ApiError::field(NAME, "a text has no tokens; give at least one"));
    }
    if tokens.len() > model.n_ctx {
        return Err(ApiError::too_long(tokens.len(), model.n_ctx));
    }
    Ok(tokens)
}
