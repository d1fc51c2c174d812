//! Messages of a conversation in JSON: as in requests to a server of OpenAI's interface, and as `hexflash
//! chat` saves them.

use hexflash::Error;
use hexflash::Model;
use hexflash::chat::{Message, RenderOptions};
use hexflash::text::{CHATML, TextError};
use serde_json::{Map, Value as Json, json};

use crate::boundary::Outcome;
use crate::failure::Failure;
use crate::fields::Fields;

/// Chat template, and what it gets besides the messages.
#[derive(Clone)]
pub(crate) struct Format {
    /// Source of a template; `None` for the model's own.
    template: Option<String>,
    options: RenderOptions,
}

impl Format {
    /// Format among other keys.
    ///
    /// # Errors
    /// A value is wrong.
    pub(crate) fn take(fields: &mut Fields) -> Outcome<Self> {
        let template: Option<String> = fields.take("chat_template")?;
        let template = template.map(|source| if source == "chatml" { CHATML.to_owned() } else { source });
        let mut options = RenderOptions::for_answer();
        options.kwargs = fields.take("chat_template_kwargs")?.unwrap_or_default();
        if let Some(tools) = fields.take::<Vec<Map<String, Json>>>("tools")? {
            options = options.with("tools", tools.into_iter().map(Json::Object).collect::<Vec<_>>());
        }
        Ok(Self { template, options })
    }

    /// The tokens of a conversation up to where the model's answer begins.
    ///
    /// # Errors
    /// There is no template, or it refuses the messages.
    pub(crate) fn encode(&self, model: &Model, messages: &[Message]) -> Outcome<Vec<u32>> {
        let text = model.text();
        let own = text.chat_template.as_deref();
        let template = self.template.as_deref().or(own).ok_or_else(|| {
            let remedy = "give a \"chat_template\", such as chatml";
            Failure::input(format!("the model has no chat template of its own; {remedy}"))
        })?;
        let encode =
            || -> Result<Vec<u32>, TextError> { text.encode_chat(template, messages, &self.options) };
        Ok(encode().map_err(Error::from)?)
    }
}

/// Messages of a list, or of an object with a list of that name.
///
/// # Errors
/// It is neither, or an entry is no message.
pub(crate) fn parse(text: &str) -> Outcome<Vec<Message>> {
    let wrong = |why: &dyn std::fmt::Display| {
        let form = r#"[{"role": "user", "content": "..."}]"#;
        Failure::input(format!("messages cannot be used ({why}); give a list such as {form}"))
    };
    let parsed = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    let list = match parsed {
        Json::Array(list) => list,
        Json::Object(mut object) => match object.shift_remove("messages") {
            Some(Json::Array(list)) if object.is_empty() => list,
            _ => return Err(wrong(&"an object must have a list \"messages\" and nothing else")),
        },
        _ => return Err(wrong(&"it is no list")),
    };
    list.into_iter()
        .enumerate()
        .map(|(i, message)| one(message).map_err(|why| wrong(&format!("entry {i}: {why}"))))
        .collect()
}

/// A message. Where it calls tools alone, it may have no content; a content of parts counts as their text.
fn one(mut message: Json) -> Result<Message, String> {
    let fields = message.as_object_mut().ok_or("it is no object")?;
    let content = match fields.get("content") {
        None | Some(Json::Null) if fields.contains_key("tool_calls") => Some(String::new()),
        Some(Json::Array(parts)) => Some(parts.iter().map(text_of).collect::<Result<_, _>>()?),
        _ => None,
    };
    if let Some(content) = content {
        fields.insert("content".to_owned(), content.into());
    }
    serde_json::from_value(message).map_err(|error| error.to_string())
}

fn text_of(part: &Json) -> Result<&str, String> {
    let is_text = part.get("type").and_then(Json::as_str) == Some("text");
    let text = part.get("text").and_then(Json::as_str).filter(|_| is_text);
    text.ok_or_else(|| "a part of its content is no text, and models here read texts alone".to_owned())
}

/// The JSON of messages, which [`parse`] reads.
pub(crate) fn write(messages: &[Message]) -> String {
    json!({ "messages": messages }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let call = r#"{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}"#;
        let parts =
            r#"{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#;
        let messages =
            parse(&format!(r#"[{{"role": "system", "content": "\u0000"}}, {call}, {parts}]"#)).unwrap();
        assert_eq!(messages[0], Message::new("system", "\0"));
        assert_eq!((messages[1].content.as_str(), messages[1].extra.len()), ("", 1));
        assert_eq!(messages[2], Message::new("user", "ab"));
        assert_eq!(parse(&write(&messages)).unwrap(), messages);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("{", "EOF"),
            ("3", "it is no list"),
            (r#"{"messages": [], "model": "x"}"#, "nothing else"),
            (r#"[{"role": "user", "content": "a"}, 1]"#, "entry 1: it is no object"),
            (r#"[{"role": "user"}]"#, "entry 0: missing field `content`"),
            (r#"[{"content": "a"}]"#, "entry 0: missing field `role`"),
            (r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#, "read texts alone"),
        ] {
            let text = format!("{:?}", parse(text).unwrap_err());
            assert!(text.contains(part) && text.contains("messages cannot be used"), "{text}");
        }
    }
}
