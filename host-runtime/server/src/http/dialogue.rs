//! What all routes for conversations have in common: a conversation to the orders for its answers, and what
//! reads those.

use std::sync::Arc;

use super::body::Fields;
use super::calls::{Part, Reader, harmony};
use super::conversation::render;
use super::error::ApiError;
use super::family::Family;
use super::order::{MAX_ALTERNATIVES, Settings};
use super::thoughts::{Split, Thoughts};
use super::tools::Tools;
use super::{App, Model, form};
use crate::ReasoningFormat;
use crate::scheduler::Order;

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
        let mut settings = Settings::read(fields, app, model)?;
        settings.logprobs = alternatives(fields)?;
        // A form that the request gives is that of the text, and another one makes it a call.
        let has_form = settings.has_form();
        let mut tools = None;
        if let Some((offered, must_call)) = Tools::read(fields, model)? {
            if let Some(grammar) = must_call {
                settings.require(form::compile(grammar, "tools", model)?, "tool_choice")?;
            }
            tools = Some(Arc::new(offered));
        }
        let mut rendered = render(fields, tools.as_deref(), model)?;
        let apart = thoughts_are_apart(fields, app)?;
        let harmony = model.card.family == Some(Family::Harmony);
        if harmony && has_form && rendered.ends_with(harmony::OPENED) {
            rendered.push_str(harmony::FINAL);
        }
        let thoughts = match model.card.template.as_ref() {
            Some((_, source)) if apart && !harmony && !settings.has_form() => {
                Thoughts::after(&rendered, source)
            }
            _ => None,
        };
        let reader = || match (model.card.family, &tools) {
            (Some(Family::Harmony), tools) if !has_form => {
                Some(Reader::harmony(&rendered, tools.clone(), apart))
            }
            (Some(family), Some(tools)) if !has_form => Some(Reader::new(family, Arc::clone(tools))),
            _ => None,
        };
        let parser = |_| Parser { thoughts: thoughts.clone(), calls: reader() };
        let parsers: Vec<Parser> = (0..settings.n).map(parser).collect();
        if let Some(Parser { thoughts, calls }) = parsers.first() {
            settings.show(thoughts.as_ref().map_or(&[], Thoughts::shown), model);
            let family = model.card.family.filter(|_| calls.is_some());
            settings.show(&family.map(Family::shown).unwrap_or_default(), model);
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
        let tools = Tools::read(fields, model)?.map(|(tools, _)| tools);
        let rendered = render(fields, tools.as_ref(), model)?;
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

/// Finds thoughts in a text if its model thinks, and calls if there are tools.
pub(super) struct Parser {
    thoughts: Option<Thoughts>,
    calls: Option<Reader>,
}

impl Parser {
    /// The parts that `text` completes.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        let split = match &mut self.thoughts {
            Some(thoughts) => thoughts.push(text),
            None => Split { answer: text.to_owned(), ..Split::default() },
        };
        self.parts(split)
    }

    /// What is left when the text has ended.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let split = self.thoughts.as_mut().map(Thoughts::finish).unwrap_or_default();
        let mut parts = self.parts(split);
        parts.extend(self.calls.iter_mut().flat_map(Reader::finish));
        parts
    }

    fn parts(&mut self, Split { thought, answer }: Split) -> Vec<Part> {
        let mut parts = Vec::new();
        if !thought.is_empty() {
            parts.push(Part::Thought(thought));
        }
        match &mut self.calls {
            _ if answer.is_empty() => {}
            Some(calls) => parts.extend(calls.push(&answer)),
            None => parts.push(Part::Text(answer)),
        }
        parts
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        self.calls.as_ref().map_or(0, Reader::calls)
    }
}
