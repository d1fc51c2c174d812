//! Tools that a request offers to the model.

use std::collections::BTreeSet;

use hexflash::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::family::Family;
use super::form::{Form, TEXT};
use super::kinds::Kinds;
use super::python;
use super::refusal::Refusal;
use crate::schema::Schema;

/// The tools of a request.
pub(crate) struct Tools {
    /// As they were given, for the template.
    pub(crate) list: Vec<Value>,
    /// Whether one answer may have several calls.
    pub(crate) parallel: bool,
}

impl Tools {
    pub(crate) fn of(list: Vec<Value>, parallel: bool) -> Self {
        Self { list, parallel }
    }

    /// The form of an answer that is a call of the tool `wanted`, or of any; and `or_text`, which is not said
    /// here. `None` where no grammar is known for the calls.
    pub(crate) fn form(
        &self,
        wanted: Option<&str>,
        family: Family,
        tokenizer: &Tokenizer,
        or_text: bool,
    ) -> Result<Option<Form>, Refusal> {
        let named = self.list.iter().filter_map(|tool| Some((name(tool)?, tool)));
        let (mut chosen, mut ignored) = (Vec::new(), BTreeSet::new());
        for (name, tool) in named.filter(|(name, _)| wanted.is_none_or(|wanted| *name == wanted)) {
            let mut schema = Schema::of(arguments(tool));
            if tool.pointer("/function/strict") == Some(&Value::Bool(true)) {
                let refused = |reason: String| Refusal::unsupported("tools", format!("{name}: {reason}"));
                schema = schema.strict().map_err(refused)?;
            }
            ignored.extend(schema.ignored);
            chosen.push((name, schema.value));
        }
        if chosen.is_empty() {
            return Err(Refusal::wrong("tool_choice", "there is no tool of this name"));
        }
        // Where a tag is no token of its own, models write it as text.
        let token =
            |text: &str| tokenizer.id_of(text).filter(|&id| tokenizer.token_bytes(id) == Ok(text.as_bytes()));
        let text = or_text.then_some(TEXT);
        let ignored = ignored.into_iter().collect::<Vec<_>>().join(", ");
        let ignored = Some(ignored).filter(|ignored| !ignored.is_empty());
        Ok(family.grammar(&chosen, text, token).map(|grammar| Form::of_calls(grammar, ignored)))
    }

    /// Whether there is a tool of this name.
    pub(crate) fn has(&self, wanted: &str) -> bool {
        self.list.iter().any(|tool| name(tool) == Some(wanted))
    }

    /// The name of the tool that a model calls by this name: some put the namespace of functions before it.
    pub(crate) fn resolve<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix("functions.").filter(|bare| !self.has(name) && self.has(bare)).unwrap_or(name)
    }

    /// The name of a tool's parameter number `i`.
    pub(crate) fn parameter(&self, tool: &str, i: usize) -> Option<&str> {
        let parameters = self.schema(tool)?.get("properties")?.as_object()?;
        parameters.keys().nth(i).map(String::as_str)
    }

    /// Whether a tool has a parameter of this name.
    pub(crate) fn has_parameter(&self, tool: &str, name: &str) -> bool {
        self.schema(tool).and_then(|schema| schema.get("properties")?.get(name)).is_some()
    }

    /// The value of an argument that was written as plain text: what the tool's schema calls a text is one,
    /// and all else is JSON, or what Python has in its place, where it can be.
    pub(crate) fn value(&self, tool: &str, parameter: &str, text: &str) -> Value {
        let kinds =
            self.schema(tool).and_then(|root| Kinds::of(root.get("properties")?.get(parameter)?, root, 0));
        let written = text.trim();
        let json = || serde_json::from_str::<Value>(written).ok();
        let value = match kinds {
            None => json(),
            Some(Kinds { text: true, others: false, null, .. }) => {
                Some(Value::Null).filter(|_| null && matches!(written, "null" | "None"))
            }
            Some(kinds) => {
                let value = json().or_else(|| python::value(written)).map(|value| kinds.narrowed(value));
                value.filter(|value| !kinds.text || kinds.have(value))
            }
        };
        value.unwrap_or_else(|| text.into())
    }

    /// The schema of a tool's arguments.
    fn schema(&self, tool: &str) -> Option<&Value> {
        let tool = self.list.iter().find(|found| name(found) == Some(tool))?;
        tool.pointer("/function/parameters")
    }
}

/// The name of a tool.
pub(crate) fn name(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name")?.as_str().filter(|name| !name.is_empty())
}

/// The schema of a tool's arguments.
fn arguments(tool: &Value) -> Value {
    let schema = tool.pointer("/function/parameters").filter(|schema| !schema.is_null());
    let mut schema = schema.cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = schema.as_object_mut() {
        // Arguments are an object, whether the schema says so or not.
        fields.entry("type").or_insert_with(|| "object".into());
    }
    schema
}
