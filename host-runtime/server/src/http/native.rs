//! `/completion`: llama-server's own.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hexflash::generate::Finish;
use serde_json::{Value, json};

use super::answer::answer;
use super::body::Fields;
use super::error::ApiError;
use super::fields::refuse_chats_only;
use super::order::{MAX_ALTERNATIVES, Settings, prompts};
use super::shape::{Head, Shape, Text, timings, with};
use super::{Shared, logprobs};
use crate::scheduler::{Outcome, Piece};

pub(super) async fn route(State(app): Shared, fields: Fields) -> Result<Response, ApiError> {
    let work = Arc::clone(&app);
    let prepared = tokio::task::spawn_blocking(move || {
        let model = work.model()?;
        refuse_chats_only(&fields)?;
        let mut settings = Settings::read(&fields, model)?;
        let n_probs = fields.first::<usize>(&["n_probs", "logprobs"])?.unwrap_or(0);
        if n_probs > MAX_ALTERNATIVES {
            return Err(ApiError::field("n_probs", format!("ask for at most {MAX_ALTERNATIVES}")));
        }
        settings.logprobs = (n_probs > 0).then_some(n_probs);
        let prompts = prompts(&fields.require::<Value>("prompt")?, model)?;
        let orders = settings.orders(prompts, &work, model)?;
        let shape = Native {
            head: Head::new("cmpl-", model),
            model: model.card.alias.clone(),
            n_ctx: model.n_ctx,
            tokens: fields.flag("return_tokens")?,
        };
        Ok((orders, shape, settings.stream))
    });
    let (orders, shape, stream) = prepared.await.map_err(|_| ApiError::internal("the prompt"))??;
    answer(&app, orders, shape, stream).await
}

/// llama-server's completions.
struct Native {
    head: Head,
    model: String,
    n_ctx: usize,
    /// Whether the ids of tokens are wanted in whole answers; pieces have them always.
    tokens: bool,
}

impl Native {
    fn piece(&self, index: usize, piece: &Piece, tokens: bool) -> Value {
        let ids: &[u32] = if tokens { &piece.tokens } else { &[] };
        let value = json!({ "index": index, "content": piece.text, "tokens": ids });
        match piece.logprobs.as_slice() {
            [] => value,
            list => with(value, "completion_probabilities", logprobs::list(&self.head.tokenizer, list)),
        }
    }

    fn end(&self, mut value: Value, outcome: &Outcome) -> Value {
        let prompt = outcome.cached + outcome.stats.prompt_tokens;
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
            "model": self.model,
            "tokens_predicted": outcome.stats.generated_tokens,
            "tokens_evaluated": prompt,
            "tokens_cached": outcome.stats.context_tokens,
            "truncated": false,
            "generation_settings": { "n_ctx": self.n_ctx },
            "timings": timings(outcome),
        });
        if let (Value::Object(value), Value::Object(end)) = (&mut value, end) {
            value.extend(end);
        }
        value
    }
}

impl Shape for Native {
    fn piece(&mut self, choice: usize, piece: &Piece) -> Vec<Value> {
        vec![with(Self::piece(self, choice, piece, true), "stop", false.into())]
    }

    fn end(&mut self, choice: usize, outcome: &Outcome) -> Vec<Value> {
        vec![Self::end(self, Self::piece(self, choice, &Piece::default(), false), outcome)]
    }

    fn says_done(&self) -> bool {
        false
    }

    fn whole(&mut self, texts: &[Text]) -> Value {
        let one = |(index, text): (usize, &Text)| {
            Self::end(self, Self::piece(self, index, &text.all, self.tokens), &text.outcome)
        };
        let mut all: Vec<Value> = texts.iter().enumerate().map(one).collect();
        if all.len() == 1 { all.remove(0) } else { all.into() }
    }
}
