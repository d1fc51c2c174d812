//! Ollama's interface, for front ends that know no other: `/api/chat`, `/api/generate`, `/api/embed`, and
//! what they ask of the model.
//!
//! A request is translated to that of `/v1/chat/completions`, as Anthropic's are. Answers come as
//! lines of JSON.

mod request;
mod shape;

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Manner, answer};
use super::app::{App, Makes, Model, Shared};
use super::dialogue::Dialogue;
use super::embeddings::{self, VectorFields};
use super::error::ApiError;
use super::fields::Fields;
use super::order::{Settings, prompts};
use crate::scheduler::order::Order;
use crate::text::parser::Parser;
use request::Asked;
use shape::Ollama;

pub(super) async fn chat(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    answer(app, move |app, model| prepare(request::of_chat(fields)?, true, app, model)).await
}

pub(super) async fn generate(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    answer(app, move |app, model| {
        prepare(request::of_prompt(fields, model.card.template.is_some())?, false, app, model)
    })
    .await
}

fn prepare(
    Asked { request, raw, is_empty }: Asked,
    is_chat: bool,
    app: &App,
    model: &Model,
) -> Result<(Vec<Order>, Ollama, Manner), ApiError> {
    let shape = |parser| Ollama::new(&model.card.alias, is_chat, parser);
    let nothing = || shape(Parser::new(None, None));
    if is_empty {
        return Ok((Vec::new(), nothing(), Manner::default()));
    }
    if let Some(text) = raw {
        request.refuse_unknown()?;
        let settings = Settings::of(request.text, request.form, app, model)?;
        let orders = settings.orders(prompts(&text.into(), app, model)?, app, model)?;
        if orders.len() > 1 {
            return Err(ApiError::unsupported("n", "ask again for another answer"));
        }
        return Ok((orders, nothing(), settings.manner()));
    }
    let (orders, parser, manner) = Dialogue::prepare(request, app, model)?.single()?;
    Ok((orders, shape(parser), manner))
}

/// Vectors of texts.
pub(super) async fn embed(State(app): Shared, mut fields: Fields) -> Result<Json<Value>, ApiError> {
    let start = Instant::now();
    let (vectors, tokens) = embeddings::vectors(&app, fields.take()?).await?;
    Ok(Json(json!({
        "model": app.model()?.card.alias,
        "embeddings": vectors,
        "total_duration": start.elapsed().as_nanos() as u64,
        "load_duration": 0,
        "prompt_eval_count": tokens,
    })))
}

#[derive(Deserialize)]
struct Prompt {
    prompt: String,
}

/// The vector of a text, as older clients ask for it.
pub(super) async fn embed_one(State(app): Shared, mut fields: Fields) -> Result<Json<Value>, ApiError> {
    let Prompt { prompt } = fields.take()?;
    let mut asked: VectorFields = fields.take()?;
    asked.input = prompt.into();
    let (vectors, _) = embeddings::vectors(&app, asked).await?;
    Ok(Json(json!({ "embedding": vectors.into_iter().next() })))
}

pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// The one model.
pub(super) async fn tags(State(app): Shared) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "models": [entry(app.model()?)] })))
}

/// The models that are loaded: the one.
pub(super) async fn ps(State(app): Shared) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "models": [loaded(app.model()?)] })))
}

/// Entry of a model that is loaded.
pub(crate) fn loaded(model: &Model) -> Value {
    let mut entry = entry(model);
    entry["size_vram"] = model.card.bytes.into();
    entry["context_length"] = model.n_ctx.into();
    entry
}

/// Facts about the model. Any name will do, as there is one.
pub(super) async fn show(State(app): Shared, _: Fields) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let card = &model.card;
    let source = card.template.as_ref().map_or("", |(_, source)| source);
    let mut capabilities = match model.makes {
        Makes::Texts => vec!["completion"],
        Makes::Vectors => vec!["embedding"],
        // Ollama has no word for it.
        Makes::Scores(_) => Vec::new(),
    };
    if matches!(model.makes, Makes::Texts) {
        capabilities.extend(model.encoder.is_some().then_some("vision"));
        capabilities.extend(card.family.is_some().then_some("tools"));
        capabilities.extend(source.contains("</think>").then_some("thinking"));
    }
    let arch = &card.arch;
    let mut info = serde_json::Map::new();
    info.insert("general.architecture".to_owned(), arch.as_str().into());
    info.insert("general.parameter_count".to_owned(), card.n_params.into());
    info.insert(format!("{arch}.context_length"), model.n_ctx_train.into());
    info.insert(format!("{arch}.embedding_length"), model.n_embd.into());
    Ok(Json(json!({
        "modelfile": "",
        "parameters": "",
        "template": source,
        "details": details(model),
        "model_info": info,
        "capabilities": capabilities,
    })))
}

pub(crate) fn entry(model: &Model) -> Value {
    let card = &model.card;
    json!({ "name": card.alias, "model": card.alias, "size": card.bytes, "details": details(model) })
}

fn details(model: &Model) -> Value {
    let card = &model.card;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": card.arch,
        "families": [card.arch],
        "parameter_size": parameters(card.n_params),
    })
}

/// A number of parameters, as names of models have it.
fn parameters(n: u64) -> String {
    match n {
        1_000_000_000.. => format!("{:.1}B", n as f64 / 1e9),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}
