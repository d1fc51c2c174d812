//! Texts to clients: all at once, or as events while they come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hexflash::generate::Finish;
use serde_json::Value;

use super::App;
use super::error::ApiError;
use super::shape::{Shape, Text, timings, with};
use crate::scheduler::{Answers, News, Order, Outcome, Piece, Update};

/// Submits orders and answers with what becomes of them.
pub(super) async fn answer(
    app: &Arc<App>,
    orders: Vec<Order>,
    shape: impl Shape,
    streamed: bool,
) -> Result<Response, ApiError> {
    let answers = app.scheduler.submit(orders)?;
    if streamed {
        return Ok(events(app, answers, shape));
    }
    whole(answers, shape).await
}

/// Waits for all texts.
async fn whole(mut answers: Answers, mut shape: impl Shape) -> Result<Response, ApiError> {
    let mut pieces: Vec<Piece> = (0..answers.choices()).map(|_| Piece::default()).collect();
    let mut outcomes: Vec<Option<Outcome>> = pieces.iter().map(|_| None).collect();
    while outcomes.iter().any(Option::is_none) {
        let Update { choice, news, .. } = answers.next().await.ok_or_else(ApiError::ending)?;
        match news {
            News::Progress(_) => {}
            News::Piece(piece) => {
                let all = &mut pieces[choice];
                all.text.push_str(&piece.text);
                all.tokens.extend(piece.tokens);
                all.origins.extend(piece.origins);
                all.logprobs.extend(piece.logprobs);
            }
            News::Done(outcome) if outcome.finish == Finish::Interrupted => return Err(ApiError::ending()),
            News::Done(outcome) => outcomes[choice] = Some(*outcome),
            News::Failed(failure) => return Err(failure.into()),
        }
    }
    let texts: Vec<Text> = pieces
        .into_iter()
        .zip(outcomes.into_iter().flatten())
        .map(|(all, outcome)| Text { all, outcome })
        .collect();
    Ok(Json(shape.whole(&texts)).into_response())
}

/// A stream of events.
struct Events<S> {
    answers: Answers,
    shape: S,
    outcomes: Vec<Option<Outcome>>,
    /// Events that are ready.
    ready: VecDeque<Event>,
    over: bool,
}

fn events(app: &App, answers: Answers, shape: impl Shape) -> Response {
    let choices = answers.choices();
    let mut events = Events {
        outcomes: (0..choices).map(|_| None).collect(),
        ready: VecDeque::new(),
        over: false,
        answers,
        shape,
    };
    for choice in 0..choices {
        let begin = events.shape.begin(choice);
        begin.iter().for_each(|value| events.push(value));
    }
    let mut alive = KeepAlive::new().interval(app.options.ping);
    if let Some(ping) = events.shape.ping() {
        alive = alive.event(events.event(&ping));
    }
    let all = stream::unfold(events, async |mut events| {
        let event = events.next().await?;
        Some((Ok::<_, Infallible>(event), events))
    });
    Sse::new(all).keep_alive(alive).into_response()
}

impl<S: Shape> Events<S> {
    fn event(&self, value: &Value) -> Event {
        let event = match value.get("type").and_then(Value::as_str) {
            Some(name) if self.shape.names_events() => Event::default().event(name),
            _ => Event::default(),
        };
        event.data(value.to_string())
    }

    fn push(&mut self, value: &Value) {
        self.ready.push_back(self.event(value));
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            match self.answers.next().await {
                Some(update) => self.take(update),
                None => self.fail(ApiError::ending()),
            }
        }
    }

    fn take(&mut self, Update { choice, news, times }: Update) {
        let timed = |value: Value| match &times {
            Some(times) => with(value, "timings", timings(times)),
            None => value,
        };
        match news {
            News::Progress(progress) => {
                let value = self.shape.progress(choice, &progress);
                value.into_iter().map(timed).for_each(|value| self.push(&value));
            }
            News::Piece(piece) => {
                let values = self.shape.piece(choice, &piece);
                values.into_iter().map(timed).for_each(|value| self.push(&value));
            }
            News::Done(outcome) if outcome.finish == Finish::Interrupted => self.fail(ApiError::ending()),
            News::Done(outcome) => {
                let values = self.shape.end(choice, &outcome);
                values.iter().for_each(|value| self.push(value));
                self.outcomes[choice] = Some(*outcome);
                self.end_if_complete();
            }
            News::Failed(failure) => self.fail(failure.into()),
        }
    }

    fn end_if_complete(&mut self) {
        let outcomes: Option<Vec<&Outcome>> = self.outcomes.iter().map(Option::as_ref).collect();
        let Some(outcomes) = outcomes else { return };
        if let Some(last) = self.shape.last(&outcomes) {
            self.push(&last);
        }
        if self.shape.says_done() {
            self.ready.push_back(Event::default().data("[DONE]"));
        }
        self.over = true;
    }

    /// Ends the stream with an error. Its texts end, too, as nobody reads any more.
    fn fail(&mut self, error: ApiError) {
        let event = self.shape.error(&error);
        self.push(&event);
        self.over = true;
    }
}
