//! `/infill`: the text between two texts, as editors ask for it.

use axum::extract::State;
use axum::response::Response;
use hexflash::tokenizer::InfillIds;
use serde::Deserialize;
use serde_json::Value;

use super::app::{Model, Shared};
use super::error::ApiError;
use super::fields::Fields;
use super::native::complete;
use super::order::Settings;

/// Most tokens that prefix and suffix share: llama-server's batch, so that both servers show a model the same
/// part of a text. In contexts below twice as many they share half of it.
const WINDOW: usize = 2048;
/// Most pieces of other files.
const MAX_EXTRA: usize = 1024;
/// Names of the repository and of the file with the gap. Requests have none, and llama-server says these.
const REPOSITORY: &str = "myproject\n";
const FILE: &str = "filename\n";
/// Words before a piece of another file, for models without a mark for them.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

/// Fields that editors always send, and that are not kept to.
const IGNORED: [&str; 4] = ["samplers", "n_indent", "t_max_prompt_ms", "t_max_predict_ms"];

/// A piece of another file.
#[derive(Deserialize)]
struct Extra {
    text: String,
    filename: Option<String>,
}

/// A text with a gap.
#[derive(Deserialize)]
struct Gap {
    input_prefix: String,
    /// Text typed since the prefix was taken.
    #[serde(default)]
    prompt: String,
    input_suffix: String,
    #[serde(default)]
    input_extra: Vec<Extra>,
}

pub(super) async fn route(State(app): Shared, mut fields: Fields) -> Result<Response, ApiError> {
    let gap: Gap = fields.take()?;
    if gap.input_extra.len() > MAX_EXTRA {
        return Err(ApiError::field("input_extra", format!("give at most {MAX_EXTRA} pieces")));
    }
    let warning = take_ignored(&mut fields);
    complete(app, fields, warning, move |settings, _, model| Ok(vec![gap.prompt(settings, model)?])).await
}

/// Takes out the fields that are not kept to; a warning of those that ask for something.
fn take_ignored(fields: &mut Fields) -> Option<String> {
    let asks = |value: Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        other => other.as_f64() != Some(0.0),
    };
    let ignored: Vec<_> = IGNORED.into_iter().filter(|name| fields.remove(name).is_some_and(asks)).collect();
    (!ignored.is_empty()).then(|| format!("not kept to: {}", ignored.join(", ")))
}

impl Gap {
    /// The prompt: pieces of other files, the end of the prefix, the beginning of the suffix, each behind its
    /// mark.
    fn prompt(&self, settings: &Settings, model: &Model) -> Result<Vec<u32>, ApiError> {
        let tokenizer = &model.card.text.tokenizer;
        let Some(ids) = tokenizer.special_ids().infill else {
            let hint = "serve a model that was trained to fill in texts, such as Qwen 2.5 Coder";
            return Err(ApiError::not_supported(format!("the model has no tokens for a gap; {hint}")));
        };
        let window = WINDOW.min(model.n_ctx / 2);
        // Marks that are written in a text are text.
        let tokens = |text: &str| {
            model.admit(text)?;
            Ok::<_, ApiError>(tokenizer.encode(text, false, false)?)
        };
        let typed = tokens(&self.prompt)?;
        let mut prefix = tokens(&self.input_prefix)?;
        prefix.drain(..prefix.len().saturating_sub(3 * (window / 4)));
        let mut suffix = tokens(&self.input_suffix)?;
        suffix.truncate((window / 4).saturating_sub(2 + typed.len()));

        let answer = settings.limits.max_tokens.unwrap_or(0);
        let room = model.n_ctx.saturating_sub(window).saturating_sub(answer.saturating_mul(2));
        let mut prompt = Vec::new();
        if tokenizer.adds_bos() {
            prompt.extend(tokenizer.special_ids().bos);
        }
        prompt.extend(self.others(ids, room, tokens)?);
        prompt.push(ids.prefix);
        prompt.append(&mut prefix);
        prompt.extend(typed);
        prompt.push(ids.suffix);
        prompt.append(&mut suffix);
        prompt.push(ids.middle);
        Ok(prompt)
    }

    /// At most `room` tokens of other files: the last ones. Those that have no room are not looked at.
    fn others(
        &self,
        ids: InfillIds,
        room: usize,
        tokens: impl Fn(&str) -> Result<Vec<u32>, ApiError>,
    ) -> Result<Vec<u32>, ApiError> {
        let named = |mark: Option<u32>, name: &str| -> Result<Vec<u32>, ApiError> {
            let Some(mark) = mark else { return Ok(Vec::new()) };
            Ok([vec![mark], tokens(name)?].concat())
        };
        // From the last piece to the first.
        let mut pieces = vec![named(ids.file, FILE)?];
        let mut length = pieces[0].len();
        for extra in self.input_extra.iter().rev() {
            if length >= room {
                break;
            }
            let mut piece = match ids.file {
                Some(_) => named(ids.file, &format!("{}\n", extra.filename.as_deref().unwrap_or("tmp")))?,
                None => tokens(SNIPPET)?,
            };
            piece.extend(tokens(&extra.text)?);
            length += piece.len();
            pieces.push(piece);
        }
        pieces.push(named(ids.repository, REPOSITORY)?);
        pieces.reverse();
        let mut all = pieces.concat();
        all.drain(..all.len().saturating_sub(room));
        Ok(all)
    }
}
