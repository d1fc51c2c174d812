//! `/v1/responses`: OpenAI's newer interface.
//!
//! A request is translated to the fields of `/v1/chat/completions`. This server keeps no answers: each
//! request has to bring the whole conversation.

mod request;
mod shape;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;

use super::answer::answer;
use super::body::Fields;
use super::dialogue::Dialogue;
use super::error::ApiError;
use super::{App, Shared};
use shape::Answer;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/v1/responses", post(create)).route("/responses", post(create))
}

async fn create(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = tokio::task::spawn_blocking(move || {
        let model = work.model()?;
        let (fields, echo) = request::translate(fields)?;
        let dialogue = Dialogue::prepare(&fields, &work, model)?;
        let stream = dialogue.settings.stream;
        let (orders, parser) = dialogue.single()?;
        Ok::<_, ApiError>((orders, Answer::new(model, parser, echo), stream))
    });
    let (orders, shape, stream) = prepared.await.map_err(|_| ApiError::internal("the prompt"))??;
    answer(&app, orders, shape, stream).await
}
