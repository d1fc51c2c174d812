//! Tools that a request offers to the model.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::Model;
use super::body::Fields;
use super::error::ApiError;
use super::family::Family;

/// Most tools of a request, as OpenAI has it.
const MAX_TOOLS: usize = 128;

/// The tools of a request.
pub(super) struct Tools {
    /// As they were given, for the template.
    pub(super) list: Vec<Value>,
    /// Whether one answer may have several calls.
    pub(super) parallel: bool,
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

impl Tools {
    pub(super) fn of(list: Vec<Value>, parallel: bool) -> Self {
        Self { list, parallel }
    }

    /// The tools, and the grammar of an answer that must call one.
    pub(super) fn read(
        fields: &Fields,
        model: &Model,
    ) -> Result<Option<(Self, Option<TopLevelGrammar>)>, ApiError> {
        let list: Vec<Value> = fields.get("tools")?.unwrap_or_default();
        let choice = choice(fields)?;
        if list.is_empty() {
            return match choice {
                Choice::Required(_) => {
                    Err(ApiError::field("tool_choice", "there are no tools to choose from"))
                }
                Choice::Auto | Choice::None => Ok(None),
            };
        }
        if list.len() > MAX_TOOLS {
            return Err(ApiError::field("tools", format!("offer at most {MAX_TOOLS}")));
        }
        if let Some(wrong) = list.iter().position(|tool| name(tool).is_none()) {
            let reason = format!("number {wrong} is no function with a name");
            return Err(ApiError::field("tools", reason));
        }
        let source = model.card.template.as_ref().map_or("", |(_, source)| source);
        let Some(family) = model.card.family.filter(|_| source.contains("tools")) else {
            let hint = "the model's chat template has no calls in a form that is known here; describe the \
                        tools in a message";
            return Err(ApiError::unsupported("tools", hint));
        };
        let tools = Self::of(list, fields.get("parallel_tool_calls")?.unwrap_or(true));
        match choice {
            Choice::None => Ok(None),
            Choice::Auto => Ok(Some((tools, None))),
            Choice::Required(wanted) => {
                let grammar = tools.grammar(wanted.as_deref(), family, model)?;
                Ok(Some((tools, Some(grammar))))
            }
        }
    }

    /// Answers that are a call of the tool `wanted`, or of any.
    fn grammar(
        &self,
        wanted: Option<&str>,
        family: Family,
        model: &Model,
    ) -> Result<TopLevelGrammar, ApiError> {
        let named = self.list.iter().filter_map(|tool| Some((name(tool)?, arguments(tool))));
        let chosen: Vec<_> = named.filter(|(name, _)| wanted.is_none_or(|wanted| *name == wanted)).collect();
        if chosen.is_empty() {
            return Err(ApiError::field("tool_choice", "there is no tool of this name"));
        }
        let tokenizer = &model.card.text.tokenizer;
        // Where a tag is no token of its own, models write it as text.
        let token =
            |text: &str| tokenizer.id_of(text).filter(|&id| tokenizer.token_bytes(id) == Ok(text.as_bytes()));
        family.grammar(&chosen, token).ok_or_else(|| {
            let hint = "this model's calls are no JSON, which alone can be enforced; use auto";
            ApiError::unsupported("tool_choice", hint)
        })
    }

    /// Whether there is a tool of this name.
    pub(super) fn has(&self, wanted: &str) -> bool {
        self.list.iter().any(|tool| name(tool) == Some(wanted))
    }

    /// The name of a tool's parameter number `i`.
    pub(super) fn parameter(&self, tool: &str, i: usize) -> Option<&str> {
        let tool = self.list.iter().find(|found| name(found) == Some(tool))?;
        let parameters = tool.pointer("/function/parameters/properties")?.as_object()?;
        parameters.keys().nth(i).map(String::as_str)
    }

    /// The value of an argument that was written as plain text: what the tool's schema calls a text is one,
    /// and all else is JSON where it can be.
    pub(super) fn value(&self, tool: &str, parameter: &str, text: &str) -> Value {
        let tool = self.list.iter().find(|found| name(found) == Some(tool));
        let kind = tool.and_then(|tool| {
            tool.pointer("/function/parameters/properties")?.get(parameter)?.get("type")?.as_str()
        });
        match kind {
            Some("string") => text.into(),
            _ => serde_json::from_str(text.trim()).unwrap_or_else(|_| text.into()),
        }
    }
}

/// The name of a tool.
fn name(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name")?.as_str().filter(|name| !name.is_empty())
}

/// The schema of a tool's arguments.
fn arguments(tool: &Value) -> Value {
    tool.pointer("/function/parameters").cloned().unwrap_or_else(|| json!({ "type": "object" }))
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
