//! Tools that a request offers to the model, and which of them it may, or has to, call.

use std::collections::BTreeSet;

use serde_json::Value;

use super::app::Model;
use super::error::ApiError;
use super::fields::Fields;
use crate::text::form::Form;
use crate::text::tools::{Tools, name};

/// Most tools of a request, as OpenAI has it.
const MAX_TOOLS: usize = 128;

/// The kind of tools that a client runs itself.
const FUNCTION: &str = "function";

/// What the tools of a request come to.
#[derive(Default)]
pub(super) struct Offer {
    /// Those that the model is told of, if there are any.
    pub(super) tools: Option<Tools>,
    /// The form of a call, where answers are kept to one.
    pub(super) call: Option<Form>,
    /// Whether the answer must be a call.
    pub(super) must_call: bool,
    /// Kinds of tools that were left out, each once.
    pub(super) left_out: Vec<String>,
}

/// What `tool_choice` says.
enum Choice {
    /// The model decides.
    Auto,
    /// There are no tools after all.
    None,
    /// There must be a call: of this tool, or of any.
    Required(Option<String>),
}

/// What the tools of a request come to; `has_form` says that its texts are to have a form.
pub(super) fn read(fields: &Fields, model: &Model, has_form: bool) -> Result<Offer, ApiError> {
    let mut list: Vec<Value> = fields.get("tools")?.unwrap_or_default();
    let choice = choice(fields)?;
    if list.len() > MAX_TOOLS {
        return Err(ApiError::field("tools", format!("offer at most {MAX_TOOLS}")));
    }
    let left_out = take_others(&mut list);
    if list.is_empty() {
        return match choice {
            Choice::Required(_) => Err(ApiError::field("tool_choice", "there are no tools to choose from")),
            Choice::Auto | Choice::None => Ok(Offer { left_out, ..Offer::default() }),
        };
    }
    if let Some(wrong) = list.iter().position(|tool| name(tool).is_none()) {
        let reason = format!("number {wrong} is no function with a name");
        return Err(ApiError::field("tools", reason));
    }
    let (tokenizer, family) = (&model.card.text.tokenizer, model.card.calls());
    let tools = Tools::of(list, fields.get("parallel_tool_calls")?.unwrap_or(true));
    let (must_call, call) = match choice {
        Choice::None => return Ok(Offer { left_out, ..Offer::default() }),
        Choice::Auto if has_form => (false, tools.form(None, family, tokenizer, true)?),
        Choice::Auto => (false, None),
        Choice::Required(wanted) => {
            let call = tools.form(wanted.as_deref(), family, tokenizer, false)?;
            let hint = "this model's calls are no JSON, which alone can be enforced; use auto";
            (true, Some(call.ok_or_else(|| ApiError::unsupported("tool_choice", hint))?))
        }
    };
    Ok(Offer { tools: Some(tools), call, must_call, left_out })
}

/// Takes out tools that are no functions, and gives their kinds, each once. Clients offer those that their
/// own servers run (searches, shells, namespaces of such) whether they are needed or not, and a model that
/// does not know of them does without.
fn take_others(list: &mut Vec<Value>) -> Vec<String> {
    let kind = |tool: &Value| tool.get("type").and_then(Value::as_str).map(str::to_owned);
    let mut kinds = BTreeSet::new();
    list.retain(|tool| match kind(tool) {
        Some(kind) if kind != FUNCTION => {
            kinds.insert(kind);
            false
        }
        _ => true,
    });
    kinds.into_iter().collect()
}

fn choice(fields: &Fields) -> Result<Choice, ApiError> {
    let wrong = || ApiError::field("tool_choice", "give auto, none, required, or a function with its name");
    match fields.raw("tool_choice") {
        None => Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(Choice::Auto),
            "none" => Ok(Choice::None),
            "required" => Ok(Choice::Required(None)),
            _ => Err(wrong()),
        },
        Some(tool) => Ok(Choice::Required(Some(name(tool).ok_or_else(wrong)?.to_owned()))),
    }
}
