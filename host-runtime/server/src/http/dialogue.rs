//! What all routes for conversations have in common: a conversation to the orders for its answers, and what
//! reads those.

use std::sync::Arc;

use super::app::{App, MAX_TEXT, Model};
use super::conversation::{Prompt, render};
use super::error::ApiError;
use super::fields::Fields;
use super::offer;
use super::order::{MAX_ALTERNATIVES, Settings};
use super::unsupported::refuse_in_chats;
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

impl Dialogue {
    /// Reads the fields of `/v1/chat/completions`, to which those of the other routes are translated.
    pub(super) fn prepare(fields: &Fields, app: &App, model: &Model) -> Result<Self, ApiError> {
        refuse_in_chats(fields)?;
        let mut settings = Settings::read(fields, app, model)?;
        settings.logprobs = alternatives(fields)?;
        let offer = offer::read(fields, model, settings.has_form())?;
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
        let Prompt { text: mut rendered, thinks } = render(fields, tools.as_deref(), model)?;
        let apart = thoughts_are_apart(fields, app)?;
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
        let prompt = tokens(&rendered, model)?;
        let orders = settings.orders(vec![prompt], app, model)?;
        Ok(Self { orders, parsers, settings, prompt: rendered })
    }

    /// The orders and the parser of interfaces that have one answer to each request.
    ///
    /// # Errors
    /// The request asks for more.
    pub(super) fn single(mut self) -> Result<(Vec<Order>, Parser), ApiError> {
        match (self.parsers.pop(), self.parsers.is_empty()) {
            (Some(parser), true) => Ok((self.orders, parser)),
            _ => Err(ApiError::unsupported("n", "ask again for another answer")),
        }
    }

    /// Tokens of the prompt that the conversation gives.
    pub(super) fn count(fields: &Fields, model: &Model) -> Result<usize, ApiError> {
        let tools = offer::read(fields, model, false)?.tools;
        let rendered = render(fields, tools.as_ref(), model)?.text;
        if rendered.len() > MAX_TEXT {
            let reason = format!("their prompt has {} bytes; {MAX_TEXT} can be counted", rendered.len());
            return Err(ApiError::field("messages", reason));
        }
        Ok(model.card.text.tokenizer.encode_prompt(&rendered)?.len())
    }
}

/// The tokens of a prompt that may fit the context.
fn tokens(rendered: &str, model: &Model) -> Result<Vec<u32>, ApiError> {
    model.admit(rendered)?;
    Ok(model.card.text.tokenizer.encode_prompt(rendered)?)
}

/// `logprobs` and `top_logprobs`.
fn alternatives(fields: &Fields) -> Result<Option<usize>, ApiError> {
    let top = fields.get::<usize>("top_logprobs")?;
    let wanted = fields.flag("logprobs")?;
    match top {
        Some(n) if n > MAX_ALTERNATIVES => {
            Err(ApiError::field("top_logprobs", format!("ask for at most {MAX_ALTERNATIVES}")))
        }
        Some(n) if n > 0 && !wanted => Err(ApiError::field("top_logprobs", "this needs logprobs: true")),
        top => Ok(wanted.then_some(top.unwrap_or(0))),
    }
}

/// Whether thoughts are to be apart from the answer, which `reasoning_format` says.
fn thoughts_are_apart(fields: &Fields, app: &App) -> Result<bool, ApiError> {
    const NAME: &str = "reasoning_format";
    let format = match fields.get::<String>(NAME)? {
        None => app.options.reasoning,
        Some(format) => format.parse().map_err(|reason: String| ApiError::unsupported(NAME, &reason))?,
    };
    Ok(match format {
        ReasoningFormat::None => false,
        ReasoningFormat::Apart => true,
    })
}
