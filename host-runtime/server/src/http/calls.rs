//! Calls of tools in what a model writes, read while it comes.
//!
//! Many families write a call between `<tool_call>` and `</tool_call>`: as JSON with a name and arguments
//! (Hermes, Qwen2.5, Qwen3, SmolLM3), or as `<function=NAME>` with a `<parameter=NAME>` for each argument
//! (Qwen3-Coder, Qwen3.5). What looks like a call and is none stays text.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::thoughts::overlap;
use super::tools::Tools;

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";
/// The beginning of the second form.
pub(super) const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
const END_FUNCTION: &str = "</function>";
const END_PARAMETER: &str = "</parameter>";

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// What the model thinks before it answers.
    Thought(String),
    Text(String),
    Call(Call),
}

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    /// A JSON object, as text.
    pub(super) arguments: String,
}

/// Reads an answer.
pub(super) struct Reader {
    tools: Arc<Tools>,
    /// What may become a call.
    held: String,
    /// Whether `held` is behind an opening tag.
    inside: bool,
    /// Blanks before that tag.
    blanks: String,
    /// Calls so far.
    pub(super) calls: usize,
}

impl Reader {
    pub(super) fn new(tools: Arc<Tools>) -> Self {
        Self { tools, held: String::new(), inside: false, blanks: String::new(), calls: 0 }
    }

    /// The parts that `text` completes.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        loop {
            let tag = if self.inside { CLOSE } else { OPEN };
            let Some(at) = self.held.find(tag) else { break };
            let mut before: String = self.held.drain(..at + tag.len()).collect();
            before.truncate(at);
            match self.inside {
                true => self.take_call(&before, true, &mut parts),
                false => {
                    let text = before.trim_end();
                    before[text.len()..].clone_into(&mut self.blanks);
                    self.take_text(text, &mut parts);
                }
            }
            self.inside = !self.inside;
        }
        if !self.inside {
            // Blanks before a call are none of the answer's, and the end may be the beginning of a tag.
            let safe = self.held.len() - overlap(&self.held, OPEN);
            let safe = self.held[..safe].trim_end().len();
            let text: String = self.held.drain(..safe).collect();
            self.take_text(&text, &mut parts);
        }
        parts
    }

    /// What is left when the answer has ended. A call may lack its closing tag then.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let rest = std::mem::take(&mut self.held);
        match self.inside {
            true => self.take_call(&rest, false, &mut parts),
            false => self.take_text(&rest, &mut parts),
        }
        self.inside = false;
        parts
    }

    /// Whether there was a call, and another one is not wanted.
    fn is_over(&self) -> bool {
        self.calls > 0 && !self.tools.parallel
    }

    fn take_text(&mut self, text: &str, parts: &mut Vec<Part>) {
        // Blanks between calls are no text.
        let is_blank = self.calls > 0 && text.trim().is_empty();
        if !text.is_empty() && !is_blank && !self.is_over() {
            parts.push(Part::Text(text.to_owned()));
        }
    }

    fn take_call(&mut self, block: &str, closed: bool, parts: &mut Vec<Part>) {
        if self.is_over() {
            return;
        }
        match parse(block.trim(), &self.tools) {
            Some(call) => {
                self.calls += 1;
                parts.push(Part::Call(call));
            }
            None => {
                let close = if closed { CLOSE } else { "" };
                parts.push(Part::Text(format!("{}{OPEN}{block}{close}", self.blanks)));
            }
        }
    }
}

fn parse(block: &str, tools: &Tools) -> Option<Call> {
    match block.strip_prefix(FUNCTION) {
        Some(rest) => parse_tags(rest, tools),
        None => parse_json(block),
    }
}

fn parse_json(block: &str) -> Option<Call> {
    let call: Map<String, Value> = serde_json::from_str(block).ok()?;
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(arguments) => arguments.to_string(),
    };
    Some(Call { name, arguments })
}

/// What follows `<function=`.
fn parse_tags(rest: &str, tools: &Tools) -> Option<Call> {
    let (name, mut rest) = rest.split_once('>')?;
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.starts_with(END_FUNCTION) {
            return Some(Call { name: name.to_owned(), arguments: Value::Object(arguments).to_string() });
        }
        let (parameter, after) = rest.strip_prefix(PARAMETER)?.split_once('>')?;
        let (text, after) = after.split_once(END_PARAMETER)?;
        // A line break on each side belongs to the form.
        let text = text.strip_prefix('\n').unwrap_or(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        arguments.insert(parameter.to_owned(), tools.value(name, parameter, text));
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reader(parallel: bool) -> Reader {
        let tool = json!({ "type": "function", "function": { "name": "find", "parameters": { "properties": {
            "text": { "type": "string" }, "n": { "type": "integer" } } } } });
        Reader::new(Arc::new(Tools::of(vec![tool], parallel)))
    }

    /// The parts of a text that comes in pieces of so many characters; texts that follow each other are one.
    fn read(text: &str, n: usize, parallel: bool) -> Vec<Part> {
        let mut reader = reader(parallel);
        let characters: Vec<char> = text.chars().collect();
        let mut parts = Vec::new();
        for piece in characters.chunks(n) {
            parts.extend(reader.push(&piece.iter().collect::<String>()));
        }
        parts.extend(reader.finish());
        parts.into_iter().fold(Vec::new(), |mut all, part| {
            match (all.last_mut(), part) {
                (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
                (_, part) => all.push(part),
            }
            all
        })
    }

    #[track_caller]
    fn check(text: &str, expected: &[Part]) {
        for n in [1, 2, 3, 7, 1000] {
            assert_eq!(read(text, n, true), expected, "pieces of {n}");
        }
    }

    fn call(name: &str, arguments: &str) -> Part {
        Part::Call(Call { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    const ONE: &str =
        "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"é<\", \"n\": 3}}\n</tool_call>";
    const TWO: &str = "<tool_call>\n<function=find>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n3\n\
        </parameter>\n</function>\n</tool_call>";

    #[test]
    fn both_forms_are_read() {
        check(ONE, &[call("find", r#"{"text":"é<","n":3}"#)]);
        // The schema says what is a text.
        check(TWO, &[call("find", r#"{"text":"12","n":3}"#)]);
        check(
            &format!("Let me see.\n\n{ONE}\n{TWO}\n"),
            &[
                text("Let me see."),
                call("find", r#"{"text":"é<","n":3}"#),
                call("find", r#"{"text":"12","n":3}"#),
            ],
        );
    }

    #[test]
    fn a_call_that_ends_with_the_answer_needs_no_closing_tag() {
        check(ONE.strip_suffix(CLOSE).unwrap(), &[call("find", r#"{"text":"é<","n":3}"#)]);
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for other in [
            "a < b, <tool",
            "plain\n",
            "No \n\n<tool_call>nonsense</tool_call> and more",
            "<tool_call>\n{\"name\": 7}\n</tool_call>",
            "<tool_call>\n{\"name\": \"find\", \"arg",
            "<tool_call><function=find><parameter=n>3</tool_call>",
            "</tool_call>",
        ] {
            check(other, &[text(other)]);
        }
    }

    #[test]
    fn one_call_is_one_call() {
        let two = format!("{ONE}\n{TWO}\nand text");
        assert_eq!(read(&two, 5, false), [call("find", r#"{"text":"é<","n":3}"#)]);
    }
}
