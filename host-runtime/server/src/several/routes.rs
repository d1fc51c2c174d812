//! Routes of a server with several models: those that tell of them, and the way of every other request to its
//! model. Names and shapes are those of llama-server's router.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Listed;
use super::stock::{Status, Stock, View};
use crate::guarded::guarded;
use crate::http::error::ApiError;
use crate::http::fields::{Fields, Whole};
use crate::http::json::merged;
use crate::http::router::{around, no_route};
use crate::http::shape::{FINGERPRINT, now};
use crate::http::table::{self, Verb};
use crate::http::{info, ollama};

type Shared = State<Arc<Stock>>;

/// All routes of a server with several models.
pub(crate) fn router(stock: Arc<Stock>) -> Router {
    let options = Arc::clone(&stock.options);
    let own = Router::new()
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/v1/models", get(models))
        .route("/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/models/{*name}", get(model))
        .route("/models/load", post(load))
        .route("/models/unload", post(unload))
        .route("/api/tags", get(tags))
        .route("/api/ps", get(ps))
        .route("/api/version", get(ollama::version));
    around(own.method_not_allowed_fallback(wrong_method).fallback(forward).with_state(stock), &options)
}

/// Part of a request that says which model it is for.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    model: Option<String>,
    /// Whether it may be loaded for the request, if it is not. Who only reads, such as a monitor, loads
    /// nothing without it.
    autoload: Option<bool>,
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let other = if method == Method::POST { Verb::Get } else { Verb::Post };
    ApiError::wrong_method(&method, uri.path(), other.name())
}

/// Sends a request to the model that it names, when it has it. The model is given back with the end of the
/// answer.
async fn forward(State(stock): Shared, request: Request) -> Result<Response, ApiError> {
    let route = table::at(request.uri().path()).ok_or_else(|| no_route(request.uri()))?;
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_read != (route.verb == Verb::Get) || !(is_read || request.method() == Method::POST) {
        return Err(ApiError::wrong_method(request.method(), request.uri().path(), route.verb.name()));
    }
    let (parts, body) = request.into_parts();
    let query = Query::<Asked>::try_from_uri(&parts.uri);
    let Query(mut asked) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let body = if is_read {
        body
    } else {
        let Whole(bytes) = Whole::read(&parts, body, &stock.options).await?;
        let named: Asked = serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::invalid(format!("the body does not name a model: {error}")))?;
        asked.model = named.model.or(asked.model);
        Body::from(bytes)
    };
    let views = stock.views().await?;
    let model = match &asked.model {
        Some(name) => stock.find(name)?,
        None => match only(&views) {
            Some(model) => model,
            None if parts.uri.path() == "/props" => return Ok(props(&stock)),
            None => {
                let names = stock.names();
                return Err(ApiError::field(
                    "model",
                    format!("name the model that is asked; there are {names}"),
                ));
            }
        },
    };
    stock.admit(model, asked.autoload.unwrap_or(stock.autoload && !is_read)).await?;
    let lease = stock.wish(model).await?;
    let routes = TowerToHyperService::new(lease.routes.clone());
    let Ok(response) = routes.call(Request::from_parts(parts, body)).await;
    Ok(guarded(response, lease))
}

/// The model that a request is for which names none: the only one that is loaded, or that there is.
fn only(views: &[View]) -> Option<usize> {
    let is_there = |view: &View| matches!(view.status, Status::Loaded | Status::Loading);
    let there: Vec<_> = (0..views.len()).filter(|&model| is_there(&views[model])).collect();
    match (&there[..], views.len()) {
        ([one], _) => Some(*one),
        (_, 1) => Some(0),
        _ => None,
    }
}

/// Facts of the server, without a model.
fn props(stock: &Stock) -> Response {
    let facts = json!({
        "role": "router",
        "max_instances": stock.most,
        "models_autoload": stock.autoload,
        "default_generation_settings": null,
        "build_info": FINGERPRINT,
        "is_sleeping": false,
    });
    Json(facts).into_response()
}

/// That the server is there: models are loaded as they are asked for.
async fn health(State(stock): Shared) -> Result<Json<Value>, ApiError> {
    stock.views().await?;
    Ok(Json(json!({ "status": "ok" })))
}

async fn models(State(stock): Shared) -> Result<Json<Value>, ApiError> {
    let views = stock.views().await?;
    let data: Vec<_> = stock.listed.iter().zip(&views).map(|(listed, view)| entry(listed, view)).collect();
    Ok(Json(json!({ "object": "list", "data": data })))
}

async fn model(State(stock): Shared, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let model = stock.find(&name)?;
    let views = stock.views().await?;
    Ok(Json(entry(&stock.listed[model], &views[model])))
}

/// A model's entry in the list of models.
fn entry(listed: &Listed, view: &View) -> Value {
    let facts = match view.app.as_ref().map(|app| app.model()) {
        Some(Ok(model)) => info::entry(model),
        _ => json!({
            "id": listed.name,
            "object": "model",
            "created": now(),
            "owned_by": "hexflash",
            "meta": { "size": listed.bytes },
        }),
    };
    let status = match view.status {
        Status::Failed => json!({ "value": Status::Unloaded.name(), "failed": true }),
        status => json!({ "value": status.name() }),
    };
    merged(facts, json!({ "status": status }))
}

/// Begins to load a model, and waits for no more than that it is its turn to be looked at.
async fn load(State(stock): Shared, request: Request) -> Result<Json<Value>, ApiError> {
    let model = named(&stock, request).await?;
    stock.admit(model, true).await?;
    let wish = stock.wish(model);
    // Whatever comes of it, the list of models tells.
    tokio::spawn(wish);
    Ok(Json(json!({ "success": true })))
}

/// Has a model go as soon as nobody has it.
async fn unload(State(stock): Shared, request: Request) -> Result<Json<Value>, ApiError> {
    let model = named(&stock, request).await?;
    if stock.leave(model).await? {
        return Ok(Json(json!({ "success": true })));
    }
    let name = &stock.listed[model].name;
    Err(ApiError::invalid(format!("the model {name:?} is not loaded; /models says which are")))
}

/// The model that the body of a request names.
async fn named(stock: &Stock, request: Request) -> Result<usize, ApiError> {
    let (parts, body) = request.into_parts();
    let Whole(bytes) = Whole::read(&parts, body, &stock.options).await?;
    let Asked { model, .. } = Fields::parse(&bytes)?.take()?;
    stock.find(&model.ok_or_else(|| ApiError::field("model", "this field is missing"))?)
}

/// All models, as Ollama's clients list them.
async fn tags(State(stock): Shared) -> Result<Json<Value>, ApiError> {
    let views = stock.views().await?;
    let one = |(listed, view): (&Listed, &View)| match view.app.as_ref().map(|app| app.model()) {
        Some(Ok(model)) => ollama::entry(model),
        _ => json!({
            "name": listed.name,
            "model": listed.name,
            "size": listed.bytes,
            "details": { "format": "gguf" },
        }),
    };
    Ok(Json(json!({ "models": stock.listed.iter().zip(&views).map(one).collect::<Vec<_>>() })))
}

/// The models that are loaded, as Ollama's clients ask for them.
async fn ps(State(stock): Shared) -> Result<Json<Value>, ApiError> {
    let views = stock.views().await?;
    let loaded: Vec<_> =
        views.iter().filter_map(|view| Some(ollama::loaded(view.app.as_ref()?.model().ok()?))).collect();
    Ok(Json(json!({ "models": loaded })))
}
