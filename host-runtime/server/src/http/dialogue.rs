//! What all routes for conversations have in common: a conversation to the orders for its answers, and what
//! reads those.

use std::sync::Arc;

use hexflash::picture::{MARKER, PLACE};
use serde::Deserialize;

use super::answer::Manner;
use super::app::{App, MAX_TEXT, Model};
use super::conversation::{ChatFields, Prompt, render};
use super::error::ApiError;
use super::fields::Fields;
use super::form::FormFields;
use super::offer::{ToolFields, offer};
use super::order::{Settings, TextFields, alternatives};
use super::pictures;
use super::unsupported::{ALWAYS, CHATS, refuse};
use crate::options::ReasoningFormat;
use crate::scheduler::order::Order;
use crate::text::calls::reader::Reader;
use crate::text::family::Family;
use crate::text::harmony;
use crate::text::parser::Parser;
use crate::text::thoughts::Thoughts;

/// A conversation that can be answered.
pub(super) struct Dialogue {
    pub(super) orders: Vec<Order>,
    /// What finds thoughts and calls in each of the texts.
    pub(super) parsers: Vec<Parser>,
    pub(super) settings: Settings,
    /// The text before the answers.
    pub(super) prompt: String,
}

/// A request for answers to a conversation, by OpenAI's names.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) text: TextFields,
    pub(super) form: FormFields,
    pub(super) tools: ToolFields,
    pub(super) chat: ChatFields,
    pub(super) answer: AnswerFields,
    /// Fields that nobody knows.
    rest: Fields,
}

/// Fields about what is told in answers to conversations.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct AnswerFields {
    pub(super) logprobs: bool,
    top_logprobs: usize,
    /// Where thoughts go.
    reasoning_format: Option<String>,
    /// Whether to tell where tokens came from.
    pub(super) token_origins: bool,
    /// Whether to tell the prompt.
    pub(super) verbose: bool,
}

impl Request {
    /// The fields of a request that its interface does not have for itself.
    pub(super) fn read(mut fields: Fields) -> Result<Self, ApiError> {
        Ok(Self {
            text: fields.take()?,
            form: fields.take()?,
            tools: fields.take()?,
            chat: fields.take()?,
            answer: fields.take()?,
            rest: fields,
        })
    }

    /// Refuses what would change the answer and is not known.
    pub(super) fn refuse_unknown(&self) -> Result<(), ApiError> {
        refuse(&self.rest, &ALWAYS)?;
        refuse(&self.rest, &CHATS)
    }
}

impl Dialogue {
    /// Prepares a request, to which those of all interfaces for conversations are translated.
    pub(super) fn prepare(request: Request, app: &App, model: &Model) -> Result<Self, ApiError> {
        request.refuse_unknown()?;
        let Request { text, form, tools, chat, answer, .. } = request;
        let mut settings = Settings::of(text, form, app, model)?;
        settings.logprobs = answer.alternatives()?;
        let apart = answer.thoughts_are_apart(app)?;
        let offer = offer(tools, model, settings.has_form())?;
        if !offer.left_out.is_empty() {
            let kinds = offer.left_out.join(", ");
            settings.warn(format!("these kinds of tools are not run here and were left out: {kinds}"));
        }
        // A form that the request gives is that of a text. Where the model may call, calls are looked for.
        let has_form = settings.has_form() && offer.call.is_none();
        match offer.call {
            Some(call) => settings.call(call, offer.must_call)?,
            None if has_form && offer.tools.is_some() => {
                settings.warn("an answer of a form cannot be a call with this model".to_owned());
            }
            None => {}
        }
        let tools = offer.tools.map(Arc::new);
        let Prompt { text: mut rendered, thinks, pictures } = render(chat, tools.as_deref(), model)?;
        let (source, family) = (model.card.template_source(), model.card.calls());
        let harmony = family == Family::Harmony;
        if harmony && has_form && rendered.ends_with(harmony::OPENED) {
            rendered.push_str(harmony::FINAL);
        }
        let thoughts = if apart && !harmony && !settings.has_form() {
            let begins = if tools.is_some() { family.begins() } else { Vec::new() };
            let thoughts = Thoughts::after(&rendered, source).map(|thoughts| thoughts.holding(begins));
            if thinks { thoughts.map(Thoughts::begun) } else { thoughts }
        } else {
            None
        };
        let reader = || match &tools {
            _ if has_form => None,
            tools if harmony => Some(Reader::harmony(&rendered, tools.clone(), apart)),
            tools => tools.as_ref().map(|tools| Reader::new(family, Arc::clone(tools))),
        };
        let parser = |_| Parser::new(thoughts.clone(), reader());
        let parsers: Vec<Parser> = (0..settings.n).map(parser).collect();
        if let Some(parser) = parsers.first() {
            settings.show(&parser.shown(family), model);
        }
        if pictures.is_empty() {
            let prompt = tokens(&rendered, model)?;
            let orders = settings.orders(vec![prompt], app, model)?;
            return Ok(Self { orders, parsers, settings, prompt: rendered });
        }
        model.admit(&rendered)?;
        let shown = pictures::prompt(&rendered, &pictures, model)?;
        let mut orders = settings.orders(vec![shown.tokens().to_vec()], app, model)?;
        orders.iter_mut().for_each(|order| order.pictures = Some(Box::new(shown.clone())));
        Ok(Self { orders, parsers, settings, prompt: rendered.replace(PLACE, MARKER) })
    }

    /// Orders, parser and manner for interfaces that have one answer to each request.
    ///
    /// # Errors
    /// The request asks for more.
    pub(super) fn single(mut self) -> Result<(Vec<Order>, Parser, Manner), ApiError> {
        match (self.parsers.pop(), self.parsers.is_empty()) {
            (Some(parser), true) => Ok((self.orders, parser, self.settings.manner())),
            _ => Err(ApiError::unsupported("n", "ask again for another answer")),
        }
    }

    /// The prompt that a conversation gives, of which no answer is wanted.
    pub(super) fn prompt(request: Request, model: &Model) -> Result<String, ApiError> {
        Ok(Self::rendered(request, model)?.text.replace(PLACE, MARKER))
    }

    fn rendered(request: Request, model: &Model) -> Result<Prompt, ApiError> {
        let tools = offer(request.tools, model, false)?.tools;
        render(request.chat, tools.as_ref(), model)
    }

    /// Tokens of that prompt, whatever else is in the request.
    pub(super) fn count(request: Request, model: &Model) -> Result<usize, ApiError> {
        let Prompt { text: rendered, pictures, .. } = Self::rendered(request, model)?;
        if rendered.len() > MAX_TEXT {
            let reason = format!("their prompt has {} bytes; {MAX_TEXT} can be counted", rendered.len());
            return Err(ApiError::field("messages", reason));
        }
        if !pictures.is_empty() {
            return Ok(pictures::prompt(&rendered, &pictures, model)?.tokens().len());
        }
        Ok(model.card.text.tokenizer.encode_prompt(&rendered)?.len())
    }
}

/// The tokens of a prompt that may fit the context.
fn tokens(rendered: &str, model: &Model) -> Result<Vec<u32>, ApiError> {
    model.admit(rendered)?;
    Ok(model.card.text.tokenizer.encode_prompt(rendered)?)
}

impl AnswerFields {
    /// Alternatives of each token whose probabilities are wanted, if any are.
    fn alternatives(&self) -> Result<Option<usize>, ApiError> {
        const NAME: &str = "top_logprobs";
        match alternatives(NAME, self.top_logprobs)? {
            n if n > 0 && !self.logprobs => Err(ApiError::field(NAME, "this needs logprobs: true")),
            n => Ok(self.logprobs.then_some(n)),
        }
    }

    fn thoughts_are_apart(&self, app: &App) -> Result<bool, ApiError> {
        let wrong = |reason: String| ApiError::unsupported("reasoning_format", &reason);
        let format =
            self.reasoning_format.as_ref().map(|format| format.parse().map_err(wrong)).transpose()?;
        Ok(format.unwrap_or(app.options.reasoning) == ReasoningFormat::Apart)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value};

    use super::*;
    use crate::http::unsupported::TEXTS;

    #[test]
    fn what_is_refused_is_known_to_nobody() {
        let named = [&ALWAYS[..], &CHATS, &TEXTS].concat().into_iter().flat_map(|(names, ..)| names);
        let named: BTreeSet<&str> = named.copied().collect();
        let fields: Map<_, _> = named.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
        let body = Value::from(fields).to_string();
        let Request { mut rest, .. } = Request::read(Fields::parse(body.as_bytes()).unwrap()).unwrap();
        let known: Vec<&str> = named.into_iter().filter(|name| rest.remove(name).is_none()).collect();
        // Chats know these, and other texts have no use for them.
        assert_eq!(known, ["messages", "tool_choice", "tools"]);
    }
}
