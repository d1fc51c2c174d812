//! A text of a conversation to its parts, while it comes.

use hexflash::generate::Finish;

use super::calls::reader::Reader;
use super::family::Family;
use super::part::Part;
use super::thoughts::{Split, Thoughts};

/// A parser of a text: it finds thoughts if the model thinks, and calls if there are tools.
pub(crate) struct Parser {
    thoughts: Option<Thoughts>,
    calls: Option<Reader>,
}

impl Parser {
    /// A parser of a text in which there may be such thoughts and calls.
    pub(crate) fn new(thoughts: Option<Thoughts>, calls: Option<Reader>) -> Self {
        Self { thoughts, calls }
    }

    /// Tokens that a text has to show so that all of this is found in it.
    pub(crate) fn shown(&self, family: Family) -> Vec<&'static str> {
        let thoughts = self.thoughts.as_ref().map_or(&[][..], Thoughts::shown);
        let calls = self.calls.as_ref().map(|_| family.shown()).unwrap_or_default();
        thoughts.iter().copied().chain(calls).collect()
    }

    /// The parts that `text` completes.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        let split = match &mut self.thoughts {
            Some(thoughts) => thoughts.push(text),
            None => Split { answer: text.to_owned(), ..Split::default() },
        };
        self.parts(split)
    }

    /// Gives the parts that are left when the text has ended for this reason.
    pub(crate) fn finish(&mut self, finish: Finish) -> Vec<Part> {
        let is_cut = !matches!(finish, Finish::Eog | Finish::Stop);
        let split = self.thoughts.as_mut().map(Thoughts::finish).unwrap_or_default();
        let never_closed = self.thoughts.as_ref().is_some_and(Thoughts::is_open);
        let mut parts = self.parts(split);
        parts.extend(self.calls.iter_mut().flat_map(|calls| calls.finish(is_cut)));
        // Thoughts that are never closed may end with calls, and have no answer behind them.
        let open = |part| match part {
            Part::Text(text) if never_closed => Part::Thought(text),
            part => part,
        };
        parts.into_iter().map(open).collect()
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
    pub(crate) fn calls(&self) -> usize {
        self.calls.as_ref().map_or(0, Reader::calls)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::part::Call;
    use super::super::tools::Tools;
    use super::*;

    /// The parts of an answer that begins in thoughts, in pieces of `n` bytes.
    fn read(answer: &str, n: usize, finish: Finish) -> Vec<Part> {
        let tools = vec![json!({ "type": "function", "function": { "name": "now" } })];
        let thoughts = Thoughts::after("<think>\n", "<think></think>");
        let mut parser = Parser {
            thoughts: thoughts.map(|thoughts| thoughts.holding(Family::Functions.begins())),
            calls: Some(Reader::new(Family::Functions, Arc::new(Tools::of(tools, true)))),
        };
        let mut parts = Vec::new();
        for piece in answer.as_bytes().chunks(n) {
            parts.extend(parser.push(std::str::from_utf8(piece).unwrap()));
        }
        parts.extend(parser.finish(finish));
        parts
    }

    #[test]
    fn a_call_in_thoughts_that_are_never_closed_is_one() {
        let call = || Part::Call(Call { name: "now".to_owned(), arguments: "{}".to_owned() });
        for answer in [
            "Hm.\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
            "Hm.\n<function=now>\n</function>",
        ] {
            for n in [1, 2, 7, 100] {
                let parts = read(answer, n, Finish::Eog);
                assert_eq!(parts.last(), Some(&call()), "{parts:?}");
                assert!(
                    parts[..parts.len() - 1].iter().all(|part| matches!(part, Part::Thought(_))),
                    "{parts:?}"
                );
            }
        }
        // One that they mention is none, and neither is one that was cut off.
        let parts = read("A <tool_call> is it.</think>\nYes.", 3, Finish::Eog);
        assert!(!parts.contains(&call()) && matches!(parts.last(), Some(Part::Text(_))), "{parts:?}");
        let parts = read("Hm.\n<tool_call>\n<function=now>\n", 3, Finish::Length);
        assert!(parts.iter().all(|part| matches!(part, Part::Thought(_))), "{parts:?}");
    }
}
