//! Thoughts before an answer, between two tags, taken apart from it while both come.

/// What stands around thoughts, and the tokens that have to be shown for it to be found.
#[derive(Clone, Copy, Debug)]
struct Tags {
    open: &'static str,
    close: &'static str,
    tokens: [&'static str; 2],
}

/// Of Qwen, SmolLM3, LFM2.5 and others; of Gemma 4. The template of a model that thinks has the second one.
const TAGS: [Tags; 2] = [
    Tags { open: "<think>", close: "</think>", tokens: ["<think>", "</think>"] },
    Tags { open: "<|channel>thought\n", close: "<channel|>", tokens: ["<|channel>", "<channel|>"] },
];

/// Where a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At its beginning: it may open with thoughts.
    Before,
    /// In the thoughts.
    Inside,
    /// Behind them, with nothing but blanks since.
    Between,
    /// In the answer.
    Answer,
}

/// Takes thoughts out of a text.
#[derive(Clone, Debug)]
pub(crate) struct Thoughts {
    tags: Tags,
    place: Place,
    /// Texts that calls begin with. Thoughts that have one are held back from there on: where they are not
    /// closed, a call is what they end with.
    begins: Vec<&'static str>,
    /// What may be a tag, or blanks around one.
    held: String,
}

/// What a piece of text has brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) thought: String,
    pub(crate) answer: String,
}

impl Thoughts {
    /// For the answer to a prompt of the chat template `source`; `None` if its model does not think.
    pub(crate) fn after(prompt: &str, source: &str) -> Option<Self> {
        let tags = *TAGS.iter().find(|tags| source.contains(tags.close))?;
        // Many templates open the thoughts themselves, or close them where none are wanted.
        let prompt = prompt.trim_end();
        let place = if prompt.ends_with(tags.open.trim_end()) {
            Place::Inside
        } else if prompt.ends_with(tags.close) {
            Place::Answer
        } else {
            Place::Before
        };
        Some(Self { tags, place, begins: Vec::new(), held: String::new() })
    }

    /// Thoughts that have begun.
    pub(crate) fn begun(self) -> Self {
        Self { place: Place::Inside, ..self }
    }

    /// Tags around thoughts.
    pub(crate) fn around(&self) -> (&'static str, &'static str) {
        (self.tags.open, self.tags.close)
    }

    /// Thoughts in which calls may begin so.
    pub(crate) fn holding(self, begins: Vec<&'static str>) -> Self {
        Self { begins, ..self }
    }

    /// Whether the thoughts are open.
    pub(crate) fn is_open(&self) -> bool {
        self.place == Place::Inside
    }

    /// Tokens that the text has to show.
    pub(crate) fn shown(&self) -> &[&'static str] {
        &self.tags.tokens
    }

    /// What `text` completes.
    pub(crate) fn push(&mut self, text: &str) -> Split {
        let Tags { open, close, .. } = self.tags;
        self.held.push_str(text);
        let mut split = Split::default();
        if self.place == Place::Before {
            let begun = self.held.trim_start();
            if let Some(rest) = begun.strip_prefix(open) {
                self.held = rest.to_owned();
                self.place = Place::Inside;
            } else if !open.starts_with(begun) {
                self.place = Place::Answer;
            }
        }
        if self.place == Place::Inside {
            if let Some((thought, rest)) = self.held.split_once(close) {
                split.thought = thought.trim_end().to_owned();
                self.held = rest.to_owned();
                self.place = Place::Between;
            } else {
                let tags = self.begins.iter().chain([&close]);
                let keep = tags.map(|tag| overlap(&self.held, tag)).max().unwrap_or(0);
                let safe = self.call().unwrap_or(self.held.len() - keep);
                let safe = self.held[..safe].trim_end().len();
                split.thought = self.held.drain(..safe).collect();
            }
        }
        if self.place == Place::Between {
            self.held = self.held.trim_start().to_owned();
            if !self.held.is_empty() {
                self.place = Place::Answer;
            }
        }
        if self.place == Place::Answer {
            split.answer = std::mem::take(&mut self.held);
        }
        split
    }

    /// Place where a call begins in what is held.
    fn call(&self) -> Option<usize> {
        self.begins.iter().filter_map(|begin| self.held.find(begin)).min()
    }

    /// Gives what is left when the text has ended. What may be calls in thoughts that are open is in the
    /// answer.
    pub(crate) fn finish(&mut self) -> Split {
        let call = self.call();
        let mut rest = std::mem::take(&mut self.held);
        match self.place {
            Place::Inside if call.is_some() => {
                let answer = rest.split_off(call.unwrap_or_default());
                Split { thought: rest, answer }
            }
            Place::Inside => Split { thought: rest, ..Split::default() },
            Place::Before | Place::Between | Place::Answer => Split { answer: rest, ..Split::default() },
        }
    }
}

/// Bytes at the end of `text` that begin `tag`.
pub(crate) fn overlap(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|&n| text.ends_with(&tag[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "... <think> ... </think> ...";

    #[track_caller]
    fn check(prompt: &str, text: &str, thought: &str, answer: &str) {
        check_of(TEMPLATE, prompt, text, thought, answer);
    }

    #[track_caller]
    fn check_of(template: &str, prompt: &str, text: &str, thought: &str, answer: &str) {
        let characters: Vec<char> = text.chars().collect();
        for n in [1, 2, 3, 5, 1000] {
            let mut thoughts = Thoughts::after(prompt, template).unwrap();
            let mut pieces: Vec<Split> =
                characters.chunks(n).map(|piece| thoughts.push(&piece.iter().collect::<String>())).collect();
            pieces.push(thoughts.finish());
            let all = |part: fn(&Split) -> &str| pieces.iter().map(part).collect::<String>();
            let found = Split { thought: all(|split| &split.thought), answer: all(|split| &split.answer) };
            let expected = Split { thought: thought.to_owned(), answer: answer.to_owned() };
            assert_eq!(found, expected, "pieces of {n}");
        }
    }

    #[test]
    fn thoughts_are_taken_out_whoever_opens_them() {
        check(
            "assistant\n<think>\n",
            "Hm < é.\n\nSo.\n</think>\n\nYes </think>.",
            "Hm < é.\n\nSo.",
            "Yes </think>.",
        );
        check("assistant\n", "\n<think>Hm.</think>Yes.\n", "Hm.", "Yes.\n");
    }

    #[test]
    fn gemma_thinks_in_a_channel() {
        let template = "<|channel>thought\n ... <channel|>";
        check_of(template, "<|turn>model\n", "<|channel>thought\nHm.<channel|>Yes.", "Hm.", "Yes.");
        check_of(template, "<|turn>model\n<|channel>thought\n<channel|>", "Yes.", "", "Yes.");
        check_of(template, "<|turn>model\n", "<|channel is no tag", "", "<|channel is no tag");
    }

    #[test]
    fn a_call_in_thoughts_that_are_never_closed_is_held_for_its_reader() {
        let read = |text: &str| {
            let mut thoughts = Thoughts::after("<think>\n", TEMPLATE).unwrap().holding(vec!["<tool_call>"]);
            let mut all = (String::new(), String::new());
            for piece in text.split_inclusive('l') {
                let Split { thought, answer } = thoughts.push(piece);
                all = (all.0 + &thought, all.1 + &answer);
            }
            let Split { thought, answer } = thoughts.finish();
            (all.0 + &thought, all.1 + &answer, thoughts.is_open())
        };
        let (thought, answer, is_open) = read("Hm, all.\n<tool_call>{}</tool_call>");
        assert_eq!(
            (thought.trim_end(), answer.as_str(), is_open),
            ("Hm, all.", "<tool_call>{}</tool_call>", true)
        );
        let (thought, answer, is_open) = read("Use <tool_call>.</think>\nYes.");
        assert_eq!((thought.as_str(), answer.as_str(), is_open), ("Use <tool_call>.", "Yes.", false));
    }

    #[test]
    fn a_text_without_thoughts_is_an_answer() {
        check("assistant\n", "Yes, <think> is a tag.</think>", "", "Yes, <think> is a tag.</think>");
        check("assistant\n", "<thi", "", "<thi");
        check("<think>\n\n</think>\n\n", "<think>Yes.", "", "<think>Yes.");
        assert!(Thoughts::after("assistant\n", "no tags here").is_none());
    }

    #[test]
    fn a_text_that_ends_within_its_thoughts_has_no_answer() {
        check("<think>\n", "Hm. </thi", "Hm. </thi", "");
        check("<think>\n", "Hm.</think>\n", "Hm.", "");
    }
}
