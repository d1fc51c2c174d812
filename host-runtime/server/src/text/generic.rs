//! Tools for models whose chat templates know none: a system message has them, with the form of a call, and
//! earlier calls and their results are texts.

use hexflash::chat::Message;
use serde_json::{Value, json};

use super::tools::Tools;
use super::turns::SYSTEM;

/// Who gives the model what its tools have said.
const USER: &str = "user";

/// Writes tools, calls and results into the texts of messages.
pub(crate) fn write(messages: &mut Vec<Message>, tools: Option<&Tools>) {
    let mut all: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut results_are_last = false;
    for mut message in messages.drain(..) {
        let is_result = message.role == "tool";
        write_calls(&mut message);
        if is_result {
            message.role = USER.to_owned();
            message.content = format!("<tool_response>\n{}\n</tool_response>", message.content);
            message.parts = Vec::new();
            message.extra.remove("tool_call_id");
        }
        // Most of these templates want users and assistants to take turns.
        match all.last_mut().filter(|_| results_are_last && message.role == USER) {
            Some(last) => last.content = format!("{}\n{}", last.content, message.content),
            None => all.push(message),
        }
        results_are_last =
            is_result || (results_are_last && all.last().is_some_and(|last| last.role == USER));
    }
    *messages = all;
    if let Some(tools) = tools {
        let told = told(tools);
        match messages.first_mut().filter(|first| first.role == SYSTEM) {
            Some(first) => {
                first.content = format!("{}\n\n{told}", first.content);
                first.parts = Vec::new();
            }
            None => messages.insert(0, Message::new(SYSTEM, told)),
        }
    }
}

/// Calls as the model writes them.
fn write_calls(message: &mut Message) {
    let Some(Value::Array(calls)) = message.extra.remove("tool_calls") else { return };
    let written = calls.iter().filter_map(|call| {
        let function = call.get("function")?;
        let call = json!({ "name": function.get("name")?, "arguments": function.get("arguments") });
        Some(format!("<tool_call>\n{call}\n</tool_call>"))
    });
    let said = Some(message.content.clone()).filter(|said| !said.is_empty());
    message.content = said.into_iter().chain(written).collect::<Vec<_>>().join("\n");
    message.parts = Vec::new();
}

/// Text that tells the model of its tools.
fn told(tools: &Tools) -> String {
    let list: Vec<String> =
        tools.list.iter().filter_map(|tool| Some(tool.get("function")?.to_string())).collect();
    let several =
        if tools.parallel { "Several calls follow one another." } else { "Make one call at a time." };
    format!(
        "You can call these functions, each given as JSON:\n<tools>\n{}\n</tools>\nTo call one, answer with \
         its name and its arguments as a JSON object between tags:\n<tool_call>\n\
         {{\"name\": NAME, \"arguments\": ARGUMENTS}}\n</tool_call>\n{several} \
         Results come between <tool_response> and </tool_response>.",
        list.join("\n")
    )
}
