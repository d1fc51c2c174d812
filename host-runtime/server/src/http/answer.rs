//! Texts to clients: all at once, or as events while they come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::http::header::{self, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hexflash::generate::Finish;
use serde_json::Value;

use super::app::{App, Model};
use super::error::ApiError;
use super::json::with;
use super::shape::{Shape, Text, timings};
use crate::scheduler::news::{News, Outcome, Piece, Update};
use crate::scheduler::order::Order;
use crate::scheduler::shared::Answers;

/// The header for what was ignored, and what its value begins with: a code for anything, and who warns.
const WARNING_HEADER: HeaderName = header::WARNING;
const WARNING: &str = "199 hexflash";
/// Most characters of it: some of them are the client's own.
const MAX_WARNING: usize = 400;

/// Content type of lines of JSON.
const LINES: &str = "application/x-ndjson";

/// How a request is answered.
#[derive(Default)]
pub(super) struct Manner {
    /// Piece by piece.
    pub(super) stream: bool,
    /// Words for the client about what it asked for and does not get.
    pub(super) warnings: Vec<String>,
}

/// Answers a request with texts: their orders, the shape of the answer, and its manner. To prepare them may
/// take long, for the sake of templates and long texts.
pub(super) async fn answer<S: Shape>(
    app: Arc<App>,
    prepare: impl FnOnce(&App, &Model) -> Result<(Vec<Order>, S, Manner), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = app.work("the prompt", move || prepare(&work, work.writer()?));
    let (orders, shape, Manner { stream, warnings }) = prepared.await?;
    let answers = app.scheduler.submit(orders)?;
    let mut response = if stream { events(&app, answers, shape) } else { whole(answers, shape).await? };
    for warning in warnings {
        let text: String = warning
            .chars()
            .filter(|c| (c.is_ascii_graphic() && *c != '"' && *c != '\\') || *c == ' ')
            .take(MAX_WARNING)
            .collect();
        if let Ok(value) = format!("{WARNING} \"{text}\"").parse() {
            response.headers_mut().append(WARNING_HEADER, value);
        }
    }
    Ok(response)
}

/// Waits for all texts.
async fn whole(mut answers: Answers, mut shape: impl Shape) -> Result<Response, ApiError> {
    let mut pieces: Vec<Piece> = (0..answers.choices()).map(|_| Piece::default()).collect();
    let mut outcomes: Vec<Option<Outcome>> = pieces.iter().map(|_| None).collect();
    while outcomes.iter().any(Option::is_none) {
        let Some(Update { choice, news, .. }) = answers.next().await else {
            return Err(if answers.were_given_up() { ApiError::slow_reader() } else { ApiError::ending() });
        };
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

/// Item of a stream.
enum Told {
    Value(Value),
    /// That there is no more.
    Done,
}

/// A stream of events, or of lines.
struct Events<S> {
    answers: Answers,
    shape: S,
    outcomes: Vec<Option<Outcome>>,
    /// Items that are ready to be sent.
    ready: VecDeque<Told>,
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
        events.push_all(begin);
    }
    if events.shape.is_lines() {
        let lines = stream::unfold(events, async |mut events| {
            let line = match events.next().await? {
                Told::Value(value) => format!("{value}\n"),
                Told::Done => String::new(),
            };
            Some((Ok::<_, Infallible>(line), events))
        });
        return ([(header::CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response();
    }
    let mut alive = KeepAlive::new().interval(app.options.ping);
    if let Some(ping) = events.shape.ping() {
        alive = alive.event(events.event(&ping));
    }
    let all = stream::unfold(events, async |mut events| {
        let event = match events.next().await? {
            Told::Value(value) => events.event(&value),
            Told::Done => Event::default().data("[DONE]"),
        };
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

    fn push_all(&mut self, values: impl IntoIterator<Item = Value>) {
        self.ready.extend(values.into_iter().map(Told::Value));
    }

    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Some(told);
            }
            if self.over {
                return None;
            }
            match self.answers.next().await {
                Some(update) => self.take(update),
                // The worker has given this client up, which has read on only now.
                None if self.answers.were_given_up() => self.fail(ApiError::slow_reader()),
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
                self.push_all(value.into_iter().map(timed));
            }
            News::Piece(piece) => {
                let values = self.shape.piece(choice, &piece);
                self.push_all(values.into_iter().map(timed));
            }
            News::Done(outcome) if outcome.finish == Finish::Interrupted => self.fail(ApiError::ending()),
            News::Done(outcome) => {
                let values = self.shape.end(choice, &outcome);
                self.push_all(values);
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
            self.push_all([last]);
        }
        if self.shape.says_done() {
            self.ready.push_back(Told::Done);
        }
        self.over = true;
    }

    /// Ends the stream with an error. Its texts end, too, as nobody reads any more.
    fn fail(&mut self, error: ApiError) {
        let event = self.shape.error(&error);
        self.push_all([event]);
        self.over = true;
    }
}
