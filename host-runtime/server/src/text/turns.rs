//! Conversations as chat templates take them: with system messages where a template shows them, and contents
//! as the parts or texts that it goes through.

use hexflash::chat::{ChatError, ChatTemplate, Contents, Message, RenderOptions};
use serde_json::json;

/// Who gives rules. The second is OpenAI's name for those of programs.
pub(crate) const SYSTEM: &str = "system";
pub(crate) const DEVELOPER: &str = "developer";

/// Renders a conversation with its system messages where they are, if the template takes and shows them
/// there, and else as one, at the beginning or in the first message.
pub(crate) fn rendered(
    template: &ChatTemplate,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<String, ChatError> {
    let is_system = |message: &Message| message.role == SYSTEM || message.role == DEVELOPER;
    let places: Vec<usize> =
        messages.iter().enumerate().filter(|(_, message)| is_system(message)).map(|(at, _)| at).collect();
    let first = template.render(messages, options);
    let are_usual = matches!(places[..], [] | [0]);
    let is_refused = |result: &Result<String, ChatError>| {
        matches!(result, Err(ChatError::Refused { .. } | ChatError::Render { .. }))
    };
    let has = |prompt: &str, message: &Message| match message.parts.as_slice() {
        [] => prompt.contains(message.content.trim()),
        parts => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .all(|text| prompt.contains(text.trim())),
    };
    let is_lost = |prompt: &String| places.iter().any(|&at| !has(prompt, &messages[at]));
    if places.is_empty() || (first.is_err() && !is_refused(&first)) {
        return first;
    }
    if first.is_ok() && (are_usual || !first.as_ref().is_ok_and(is_lost)) {
        return first;
    }
    let all: Vec<&str> = places.iter().map(|&at| messages[at].content.as_str()).collect();
    let all = all.join("\n\n");
    let mut others: Vec<Message> = messages.iter().filter(|message| !is_system(message)).cloned().collect();
    if !are_usual {
        let merged = Message::new(messages[places[0]].role.clone(), all.clone());
        let merged: Vec<Message> = std::iter::once(merged).chain(others.iter().cloned()).collect();
        let second = template.render(&merged, options);
        if second.is_ok() {
            return second;
        }
    }
    if let (true, Some(user)) = (first.is_err(), others.iter_mut().find(|message| message.role == "user")) {
        user.content = format!("{all}\n\n{}", user.content);
        user.parts = Vec::new();
        let third = template.render(&others, options);
        if third.is_ok() {
            return third;
        }
    }
    first
}

/// Gives templates the parts of contents that they go through by themselves, and texts to all others.
pub(crate) fn hand_over_parts(messages: &mut [Message], contents: Contents) {
    for message in messages {
        if !contents.parts {
            message.parts.clear();
        } else if !contents.texts && message.parts.is_empty() && !message.content.is_empty() {
            message.parts = vec![json!({ "type": "text", "text": message.content })];
        }
    }
}
