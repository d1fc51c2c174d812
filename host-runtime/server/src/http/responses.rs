//! `/v1/responses`: OpenAI's newer interface.
//!
//! A request is translated to the fields of `/v1/chat/completions`. This server keeps no answers: each
//! request has to bring the whole conversation.

mod request;
mod shape;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::answer::answer;
use super::app::Shared;
use super::dialogue::Dialogue;
use super::error::ApiError;
use super::fields::Fields;
use shape::Answer;

pub(super) async fn create(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = app.work("the prompt", move || {
        let model = work.writer()?;
        let (fields, echo) = request::translate(fields)?;
        let dialogue = Dialogue::prepare(&fields, &work, model)?;
        let manner = dialogue.settings.manner();
        let (orders, parser) = dialogue.single()?;
        Ok::<_, ApiError>((orders, Answer::new(model, parser, echo), manner))
    });
    let (orders, shape, manner) = prepared.await?;
    answer(&app, orders, shape, manner).await
}
