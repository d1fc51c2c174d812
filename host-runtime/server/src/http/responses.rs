//! `/v1/responses`: OpenAI's newer interface.
//!
//! A request is translated to that of `/v1/chat/completions`. This server keeps no answers: each
//! request has to bring the whole conversation.

mod request;
mod shape;

use axum::extract::State;
use axum::response::Response;

use super::answer::answer;
use super::app::Shared;
use super::dialogue::Dialogue;
use super::error::ApiError;
use super::fields::Fields;
use shape::Answer;

pub(super) async fn create(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    answer(app, move |app, model| {
        let (request, echo) = request::translate(fields)?;
        let dialogue = Dialogue::prepare(request, app, model);
        let (orders, parser, manner) = dialogue.map_err(|error| error.of_messages_in("input"))?.single()?;
        Ok((orders, Answer::new(model, parser, echo), manner))
    })
    .await
}
