//! Ollama's interface, for front ends that know no other: `/api/chat`, `/api/generate`, `/api/embed`, and
//! what they ask of the model.
//!
//! A request is translated to the fields of `/v1/chat/completions`, as Anthropic's are. Answers come as
//! lines of JSON.

mod request;
mod shape;

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answer::{Manner, answer};
use super::app::{App, Model, Shared};
use super::dialogue::Dialogue;
use super::embeddings;
use super::error::ApiError;
use super::fields::Fields;
use super::order::{Settings, prompts};
use crate::scheduler::order::Order;
use crate::text::parser::Parser;
use request::Asked;
use shape::Ollama;

/// Work for a request.
enum Prepared {
    Orders(Box<(Vec<Order>, Ollama, Manner)>),
    /// Nothing: the answer.
    Loaded(Value),
}

pub(super) async fn chat(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = app.work("the prompt", move || {
        let model = work.writer()?;
        prepare(request::of_chat(fields)?, true, &work, model)
    });
    write(&app, prepared.await?).await
}

pub(super) async fn generate(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = app.work("the prompt", move || {
        let model = work.writer()?;
        prepare(request::of_prompt(fields, model.card.template.is_some())?, false, &work, model)
    });
    write(&app, prepared.await?).await
}

fn prepare(asked: Asked, is_chat: bool, app: &App, model: &Model) -> Result<Prepared, ApiError> {
    let Asked { fields, raw, is_empty } = asked;
    let shape = |parser| Ollama::new(&model.card.alias, is_chat, parser);
    let nothing = || Parser::new(None, None);
    if is_empty {
        return Ok(Prepared::Loaded(shape(nothing()).loaded()));
    }
    if raw {
        let settings = Settings::read(&fields, app, model)?;
        let prompts = prompts(&fields.require::<Value>("prompt")?, app, model)?;
        let orders = settings.orders(prompts, app, model)?;
        if orders.len() > 1 {
            return Err(ApiError::unsupported("n", "ask again for another answer"));
        }
        return Ok(Prepared::Orders(Box::new((orders, shape(nothing()), settings.manner()))));
    }
    let dialogue = Dialogue::prepare(&fields, app, model)?;
    let manner = dialogue.settings.manner();
    let (orders, parser) = dialogue.single()?;
    Ok(Prepared::Orders(Box::new((orders, shape(parser), manner))))
}

async fn write(app: &Arc<App>, prepared: Prepared) -> Result<Response, ApiError> {
    match prepared {
        Prepared::Orders(prepared) => {
            let (orders, shape, manner) = *prepared;
            answer(app, orders, shape, manner).await
        }
        Prepared::Loaded(value) => Ok(Json(value).into_response()),
    }
}

/// Vectors of texts.
pub(super) async fn embed(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let start = Instant::now();
    let input = fields.require("input")?;
    let (vectors, tokens) = embeddings::vectors(&app, fields, input).await?;
    Ok(Json(json!({
        "model": app.model()?.card.alias,
        "embeddings": vectors,
        "total_duration": start.elapsed().as_nanos() as u64,
        "load_duration": 0,
        "prompt_eval_count": tokens,
    })))
}

/// The vector of a text, as older clients ask for it.
pub(super) async fn embed_one(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let prompt: String = fields.require("prompt")?;
    let (vectors, _) = embeddings::vectors(&app, fields, prompt.into()).await?;
    Ok(Json(json!({ "embedding": vectors.into_iter().next() })))
}

pub(super) async fn version(State(_): Shared) -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// The one model.
pub(super) async fn tags(State(app): Shared) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "models": [entry(app.model()?)] })))
}

/// The models that are loaded: the one.
pub(super) async fn ps(State(app): Shared) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let mut entry = entry(model);
    entry["size_vram"] = model.card.bytes.into();
    entry["context_length"] = model.n_ctx.into();
    Ok(Json(json!({ "models": [entry] })))
}

/// Facts about the model. Any name will do, as there is one.
pub(super) async fn show(State(app): Shared, fields: Fields) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    fields.first::<String>(&["model", "name"])?;
    let card = &model.card;
    let source = card.template.as_ref().map_or("", |(_, source)| source);
    let mut capabilities = vec![if model.makes_vectors { "embedding" } else { "completion" }];
    if !model.makes_vectors && card.family.is_some() {
        capabilities.push("tools");
    }
    if !model.makes_vectors && source.contains("</think>") {
        capabilities.push("thinking");
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

fn entry(model: &Model) -> Value {
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
