//! Routes that tell of the server and the model.

use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::app::{Model, Shared};
use super::error::ApiError;
use super::json::{merged, with};
use super::logprobs;
use super::order::sampled;
use super::shape::{FINGERPRINT, now};
use crate::card::Card;
use crate::options::Options;
use crate::scheduler::news::SlotView;

/// Prometheus' plain text, which all that read its figures know.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn health(State(app): Shared) -> Result<Json<Value>, ApiError> {
    app.model()?;
    if app.scheduler.is_closed() {
        return Err(ApiError::ending());
    }
    Ok(Json(json!({ "status": "ok" })))
}

pub(super) async fn models(State(app): Shared) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "object": "list", "data": [entry(app.model()?)] })))
}

/// The model by its name, which may have slashes in it.
pub(super) async fn model(State(app): Shared, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let Card { alias, aliases, .. } = &model.card;
    if name == *alias || aliases.contains(&name) {
        Ok(Json(entry(model)))
    } else {
        Err(ApiError::no_model(&name, alias))
    }
}

/// What the list of models says of one.
pub(crate) fn entry(model: &Model) -> Value {
    let card = &model.card;
    json!({
        "id": card.alias,
        "aliases": card.aliases,
        "tags": card.tags,
        "object": "model",
        "created": now(),
        "owned_by": "hexflash",
        "meta": {
            "n_vocab": model.n_vocab,
            "n_ctx": model.n_ctx,
            "n_ctx_train": model.n_ctx_train,
            "n_embd": model.n_embd,
            "n_params": card.n_params,
            "size": card.bytes,
            "ftype": card.file_type,
            "name": card.name,
        },
    })
}

pub(super) async fn props(State(app): Shared) -> Result<Json<Value>, ApiError> {
    let model = app.model()?;
    let card = &model.card;
    let special = card.text.tokenizer.special_ids();
    let text = |id: Option<u32>| id.map(|id| logprobs::text(&card.text.tokenizer, id));
    Ok(Json(json!({
        "default_generation_settings": { "n_ctx": model.n_ctx, "params": params(model, &app.options) },
        "total_slots": model.slots,
        "model_alias": card.alias,
        "model_path": card.path,
        "model_ftype": card.file_type,
        "modalities": { "vision": model.encoder.is_some(), "audio": false },
        "chat_template": card.template.as_ref().map_or("", |(_, source)| source),
        "bos_token": text(special.bos),
        "eos_token": text(special.eos),
        "endpoint_slots": app.options.slots,
        "endpoint_metrics": app.options.metrics,
        "build_info": FINGERPRINT,
        "is_sleeping": false,
        "cache_ram_bytes": app.options.cache_ram,
        "device": model.device,
        "memory": model.memory,
    })))
}

/// How texts are written if a request does not say.
fn params(model: &Model, options: &Options) -> Value {
    let most = options.max_tokens.map_or_else(|| json!(-1), |n| json!(n));
    merged(sampled(&model.card.text.sampling), json!({ "n_predict": most, "speculative": model.speculates }))
}

pub(super) async fn slots(State(app): Shared) -> Result<Json<Value>, ApiError> {
    if !app.options.slots {
        return Err(ApiError::switched_off("--slots"));
    }
    let model = app.model()?;
    let slots = app.scheduler.slots().into_iter().enumerate();
    let one = |(id, slot): (usize, SlotView)| {
        let slot = serde_json::to_value(slot).map_err(|_| ApiError::internal("the slots"))?;
        let slot = with(with(slot, "id", id.into()), "n_ctx", model.n_ctx.into());
        Ok(with(slot, "speculative", model.speculates.into()))
    };
    slots.map(one).collect::<Result<Value, ApiError>>().map(Json)
}

pub(super) async fn metrics(State(app): Shared) -> Result<Response, ApiError> {
    if !app.options.metrics {
        return Err(ApiError::switched_off("--metrics"));
    }
    app.model()?;
    let processing = app.scheduler.slots().iter().filter(|slot| slot.is_processing).count();
    let text = app.scheduler.metrics.text(processing, app.scheduler.waiting());
    let started = app.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let headers = [
        (header::CONTENT_TYPE.as_str(), METRICS_TYPE.to_owned()),
        ("process-start-time-unix", started.to_string()),
    ];
    Ok((headers, text).into_response())
}
