//! `/completion`: llama-server's own.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hexflash::generate::Finish;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::answer;
use super::app::{App, Model, Shared};
use super::error::ApiError;
use super::fields::Fields;
use super::json::{merged, with};
use super::logprobs;
use super::order::{Settings, alternatives, prompts};
use super::shape::{Head, Shape, Text, timings, with_progress};
use crate::scheduler::news::{Outcome, Piece, Progress};
use crate::scheduler::order::Order;

/// Most fields that an answer may be asked for by name. Each is copied, the prompt as often as it is named.
const MAX_WANTED: usize = 64;

/// Fields of this interface alone.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Own {
    n_probs: Option<usize>,
    logprobs: Option<usize>,
    return_tokens: bool,
    /// The only fields that are wanted at the end.
    response_fields: Vec<String>,
}

pub(super) async fn route(State(app): Shared, mut fields: Fields) -> Result<Response, ApiError> {
    let prompt = fields.remove("prompt").unwrap_or_default();
    complete(app, fields, None, move |_, app, model| prompts(&prompt, app, model)).await
}

/// Answers a request for what follows its prompts, which `prompts` makes. The client is told the warning.
pub(super) async fn complete<P>(
    app: Arc<App>,
    mut fields: Fields,
    warning: Option<String>,
    prompts: P,
) -> Result<Response, ApiError>
where
    P: FnOnce(&Settings, &App, &Model) -> Result<Vec<Vec<u32>>, ApiError> + Send + 'static,
{
    answer(app, move |app, model| {
        let own: Own = fields.take()?;
        let mut settings = Settings::read(fields, app, model)?;
        warning.into_iter().for_each(|warning| settings.warn(warning));
        let n_probs = alternatives("n_probs", own.n_probs.or(own.logprobs).unwrap_or(0))?;
        if own.response_fields.len() > MAX_WANTED {
            return Err(ApiError::field("response_fields", format!("name at most {MAX_WANTED} fields")));
        }
        settings.logprobs = (n_probs > 0).then_some(n_probs);
        let orders = settings.orders(prompts(&settings, app, model)?, app, model)?;
        let prompt = |order: &Order| model.card.text.tokenizer.decode(&order.prompt, false);
        let shape = Native {
            head: Head::new("cmpl-", model),
            settings: settings.as_json(model),
            prompts: orders.iter().map(prompt).collect::<Result<_, _>>()?,
            has_new_line: vec![false; orders.len()],
            tokens: own.return_tokens,
            wanted: own.response_fields,
        };
        Ok((orders, shape, settings.manner()))
    })
    .await
}

/// llama-server's completions.
struct Native {
    head: Head,
    /// What the request has set, and what it has left as it is.
    settings: Value,
    /// The text before each of the texts.
    prompts: Vec<String>,
    /// Whether each of them has a line break in what was sent.
    has_new_line: Vec<bool>,
    /// Whether the ids of tokens are wanted in whole answers; pieces have them always.
    tokens: bool,
    /// The only fields that are wanted at the end; all if there are none. `a/b` is field `b` of field `a`.
    wanted: Vec<String>,
}

impl Native {
    fn piece(&mut self, index: usize, piece: &Piece, tokens: bool) -> Value {
        if let Some(found) = self.has_new_line.get_mut(index) {
            *found |= piece.text.contains('\n');
        }
        let ids: &[u32] = if tokens { &piece.tokens } else { &[] };
        let value = json!({ "index": index, "content": piece.text, "tokens": ids });
        match piece.logprobs.as_slice() {
            [] => value,
            list => with(value, "completion_probabilities", logprobs::list(&self.head.tokenizer, list)),
        }
    }

    fn end(&self, index: usize, value: Value, outcome: &Outcome) -> Value {
        let prompt = outcome.times.cached + outcome.times.stats.prompt_tokens;
        let stop_type = match outcome.finish {
            Finish::Eog => "eos",
            Finish::Stop => "word",
            Finish::Length | Finish::Context => "limit",
            Finish::Interrupted => "none",
        };
        let end = json!({
            "stop": true,
            "stop_type": stop_type,
            "stopping_word": outcome.stop.as_deref().unwrap_or_default(),
            "id_slot": outcome.slot,
            "model": self.head.model,
            "prompt": self.prompts.get(index),
            "has_new_line": self.has_new_line.get(index),
            "tokens_predicted": outcome.times.stats.generated_tokens,
            "tokens_evaluated": prompt,
            "tokens_cached": outcome.times.stats.context_tokens,
            "truncated": false,
            "generation_settings": self.settings,
            "timings": timings(&outcome.times),
        });
        let value = merged(value, end);
        if self.wanted.is_empty() {
            return value;
        }
        let field = |path: &String| Some((path.clone(), value.pointer(&format!("/{path}"))?.clone()));
        self.wanted.iter().filter_map(field).collect::<Map<_, _>>().into()
    }
}

impl Shape for Native {
    fn progress(&mut self, choice: usize, progress: &Progress) -> Option<Value> {
        let nothing = Self::piece(self, choice, &Piece::default(), true);
        Some(with_progress(with(nothing, "stop", false.into()), progress))
    }

    fn piece(&mut self, choice: usize, piece: &Piece) -> Vec<Value> {
        vec![with(Self::piece(self, choice, piece, true), "stop", false.into())]
    }

    fn end(&mut self, choice: usize, outcome: &Outcome) -> Vec<Value> {
        let last = Self::piece(self, choice, &Piece::default(), false);
        vec![Self::end(self, choice, last, outcome)]
    }

    fn says_done(&self) -> bool {
        false
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        let one = |(index, text): (usize, &Text)| {
            let all = Self::piece(self, index, &text.all, self.tokens);
            Self::end(self, index, all, &text.outcome)
        };
        let mut all: Vec<Value> = texts.iter().enumerate().map(one).collect();
        if all.len() == 1 { all.remove(0) } else { all.into() }
    }
}
