//! Tools that a request offers to the model.

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

use super::Model;
use super::body::Fields;
use super::calls::{CLOSE, FUNCTION, OPEN};
use super::error::ApiError;

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
        if !(source.contains(OPEN) && source.contains("tools")) {
            let hint = "the model's chat template has no calls in a form that is known here; \
                        describe the tools in \
                a message";
            return Err(ApiError::unsupported("tools", hint));
        }
        let tools = Self::of(list, fields.get("parallel_tool_calls")?.unwrap_or(true));
        match choice {
            Choice::None => Ok(None),
            Choice::Auto => Ok(Some((tools, None))),
            Choice::Required(_) if source.contains(FUNCTION) => {
                let hint = "this model's calls are no JSON, which alone can be enforced; use auto";
                Err(ApiError::unsupported("tool_choice", hint))
            }
            Choice::Required(wanted) => {
                let grammar = tools.grammar(wanted.as_deref())?;
                Ok(Some((tools, Some(grammar))))
            }
        }
    }

    /// Answers that are a call of the tool `wanted`, or of any.
    fn grammar(&self, wanted: Option<&str>) -> Result<TopLevelGrammar, ApiError> {
        let chosen = self.list.iter().filter(|tool| wanted.is_none_or(|wanted| name(tool) == Some(wanted)));
        let calls: Vec<Value> = chosen.map(schema_of_call).collect();
        if calls.is_empty() {
            return Err(ApiError::field("tool_choice", "there is no tool of this name"));
        }
        // As models have learnt to write calls: a blank after each comma and colon, and no others.
        let blanks = json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " });
        let schema = json!({ "anyOf": calls, "x-guidance": blanks });
        let lark =
            format!("%llguidance {{}}\nstart: \"{OPEN}\\n\" call \"\\n{CLOSE}\"\ncall: %json {schema}\n");
        Ok(TopLevelGrammar::from_lark(lark))
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

/// JSON that calls a tool.
fn schema_of_call(tool: &Value) -> Value {
    let arguments =
        tool.pointer("/function/parameters").cloned().unwrap_or_else(|| json!({ "type": "object" }));
    json!({
        "type": "object",
        "properties": { "name": { "const": name(tool) }, "arguments": arguments },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    })
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

/// Calls of earlier turns as templates expect them: with arguments that are objects and not their text.
pub(super) fn open_arguments(message: &mut Map<String, Value>) {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(object) =
                arguments.as_str().and_then(|text| serde_json::from_str::<Map<_, _>>(text).ok())
        {
            *arguments = object.into();
        }
    }
}
