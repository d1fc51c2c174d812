//! Tools that a request offers to the model, and which of them it may, or has to, call.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::app::Model;
use super::error::ApiError;
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

/// Fields about tools.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct ToolFields {
    pub(super) tools: Vec<Value>,
    pub(super) tool_choice: Choice,
    pub(super) parallel_tool_calls: Option<bool>,
}

/// What `tool_choice` says.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(try_from = "Value")]
pub(super) enum Choice {
    /// The model decides.
    #[default]
    Auto,
    /// There are no tools after all.
    None,
    /// There must be a call: of this tool, or of any.
    Required(Option<String>),
}

/// What the tools of a request come to; `has_form` says that its texts are to have a form.
pub(super) fn offer(fields: ToolFields, model: &Model, has_form: bool) -> Result<Offer, ApiError> {
    let ToolFields { tools: mut list, tool_choice: choice, parallel_tool_calls } = fields;
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
    let tools = Tools::of(list, parallel_tool_calls.unwrap_or(true));
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

impl TryFrom<Value> for Choice {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match (value.as_str(), name(&value)) {
            (Some("auto"), _) => Ok(Self::Auto),
            (Some("none"), _) => Ok(Self::None),
            (Some("required"), _) => Ok(Self::Required(None)),
            (_, Some(name)) => Ok(Self::Required(Some(name.to_owned()))),
            _ => Err("give auto, none, required, or a function with its name"),
        }
    }
}
