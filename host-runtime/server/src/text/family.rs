//! Families of models by how they write calls of tools, and thoughts.
//!
//! The chat template tells the family: it shows earlier calls, or the tools, in the form that the model
//! learnt.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::harmony;
use super::tags::{ARGS, CALL_ID, FUNCTION, PYTHON_TAG, QUOTE, Tags};

/// How the models of a family write calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// JSON between `<tool_call>` and `</tool_call>`: Hermes, Qwen2.5, Qwen3, SmolLM3.
    Json,
    /// `<function=NAME>` with a `<parameter=NAME>` for each argument, between the same tags: Qwen3-Coder,
    /// Qwen3.5.
    Functions,
    /// A list of calls as Python writes them, between `<|tool_call_start|>` and `<|tool_call_end|>`: LFM2.
    Lfm2,
    /// `call:NAME{...}` between `<|tool_call>` and `<tool_call|>`: Gemma 4.
    Gemma,
    /// `[TOOL_CALLS]` and a list of JSON objects: Mistral up to its tokenizer v7.
    MistralList,
    /// `[TOOL_CALLS]`, a name, `[ARGS]` and a JSON object for each call: Mistral from v11 on.
    MistralNames,
    /// A JSON object that is the whole answer, or that follows `<|python_tag|>`: Llama 3.
    Llama,
    /// The form of [`Json`](Self::Json), which a message of the server's asks for: models whose templates
    /// show no calls.
    Generic,
    /// Messages in channels, of which some have a tool as their recipient: gpt-oss.
    Harmony,
}

/// The first one whose words are all in the template is the family. Templates of Llama that were made for the
/// calls of another family have that family's tags, so that Llama comes last.
const MARKS: [(Family, &[&str]); 10] = [
    (Family::Harmony, &["<|channel|>", "<|message|>"]),
    (Family::Gemma, &["<|tool_call>"]),
    (Family::Lfm2, &["<|tool_call_start|>"]),
    (Family::Lfm2, &["<|tool_list_start|>"]),
    (Family::MistralNames, &["[TOOL_CALLS]", "[ARGS]"]),
    (Family::MistralList, &["[TOOL_CALLS]"]),
    (Family::Functions, &["<tool_call>", "<function="]),
    (Family::Json, &["<tool_call>"]),
    (Family::Llama, &["<|start_header_id|>ipython<|end_header_id|>"]),
    // LFM2.5 has tokens for its calls only, and its template shows none.
    (Family::Lfm2, &["List of tools: ["]),
];

impl Family {
    /// The family that a chat template is of, if it is one that is known here.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let is_of = |marks: &[&str]| marks.iter().all(|mark| source.contains(mark));
        MARKS.iter().find(|(_, marks)| is_of(marks)).map(|&(family, _)| family)
    }

    /// The family of a model by its chat template `source` and what that tells.
    pub(crate) fn of_model(told: Option<Self>, source: &str) -> Self {
        let knows_tools = source.contains("tools") || told == Some(Self::Harmony);
        told.filter(|_| knows_tools).unwrap_or(Self::Generic)
    }

    /// The tags around calls, where tags are all that marks them.
    pub(super) fn tags(self) -> Option<Tags> {
        let tags = |open, close| Some(Tags { open, close });
        match self {
            Self::Json | Self::Functions | Self::Generic => tags("<tool_call>", Some("</tool_call>")),
            Self::Lfm2 => tags("<|tool_call_start|>", Some("<|tool_call_end|>")),
            Self::Gemma => tags("<|tool_call>", Some("<tool_call|>")),
            Self::MistralList | Self::MistralNames => tags("[TOOL_CALLS]", None),
            Self::Llama | Self::Harmony => None,
        }
    }

    /// Texts that calls begin with; none where nothing shows it.
    pub(crate) fn begins(self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.tags().into_iter().map(|tags| tags.open).collect();
        match self {
            Self::Functions => all.push(FUNCTION),
            Self::Llama => all.push(PYTHON_TAG),
            _ => {}
        }
        all
    }

    /// Tokens that texts have to show, because calls are found by them, although vocabularies may have them
    /// as tokens that are no text.
    pub(crate) fn shown(self) -> Vec<&'static str> {
        let mut all: Vec<&str> = match self {
            Self::Json | Self::Functions | Self::Generic | Self::Lfm2 | Self::MistralList => Vec::new(),
            Self::Gemma => vec![QUOTE],
            Self::MistralNames => vec![ARGS, CALL_ID],
            Self::Llama => vec![PYTHON_TAG],
            Self::Harmony => harmony::TOKENS.to_vec(),
        };
        if let Some(Tags { open, close }) = self.tags() {
            all.push(open);
            all.extend(close);
        }
        all
    }

    /// The grammar of an answer that is a call of one of `tools`: names, with the schemas of their arguments.
    /// Where there is the name of a grammar `text`, an answer may fit that instead. `token` gives the id of a
    /// token by its text. `None` where calls are in a form that no grammar is known
    /// for here.
    pub(super) fn grammar(
        self,
        tools: &[(&str, Value)],
        text: Option<&str>,
        token: impl Fn(&str) -> Option<u32>,
    ) -> Option<TopLevelGrammar> {
        // A tag that is one token is that token, and else its text.
        let tag = |text: &str| match token(text) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(text),
        };
        // A rule for the call of each tool, with a rule for its arguments: schemas refer to their own parts.
        let rules_of = |begin: &dyn Fn(&str) -> String, end: &str| {
            let mut rules = String::new();
            for (i, (name, _)) in tools.iter().enumerate() {
                let or = if i == 0 { "call:" } else { " |" };
                rules += &format!("{or} {} args{i} {end}", begin(name));
            }
            for (i, (_, schema)) in tools.iter().enumerate() {
                let mut schema = schema.clone();
                if let Some(schema) = schema.as_object_mut() {
                    schema.insert("x-guidance".to_owned(), blanks());
                }
                rules += &format!("\nargs{i}: %json {schema}");
            }
            rules + "\n"
        };
        // Calls that are JSON objects with the arguments under this key.
        let call = |key: &str| {
            rules_of(&|name| quoted(&format!("{{\"name\": {}, \"{key}\": ", quoted(name))), &quoted("}"))
        };
        let named = |before: &dyn Fn(&str) -> String| format!("start: call\n{}", rules_of(before, ""));
        // Texts of harmony have a channel, too.
        let before_text = match self {
            Self::Harmony => format!("{} \"final\" {}", tag("<|channel|>"), tag("<|message|>")),
            _ => String::new(),
        };
        let rules = match self {
            Self::Functions | Self::Gemma => return None,
            Self::Json | Self::Generic => {
                format!("start: \"<tool_call>\\n\" call \"\\n</tool_call>\"\n{}", call("arguments"))
            }
            // These models write JSON, too, where they are asked to.
            Self::Lfm2 => {
                let (open, close) = (tag("<|tool_call_start|>"), tag("<|tool_call_end|>"));
                format!("start: {open} \"[\" call \"]\" {close}\n{}", call("arguments"))
            }
            Self::MistralList => {
                format!("start: {} \"[\" call \"]\"\n{}", tag("[TOOL_CALLS]"), call("arguments"))
            }
            Self::Llama => format!("start: call\n{}", call("parameters")),
            Self::MistralNames => {
                named(&|name| format!("{} {} {}", tag("[TOOL_CALLS]"), quoted(name), tag(ARGS)))
            }
            Self::Harmony => named(&|name| {
                let to = quoted(&format!("commentary to=functions.{name} "));
                let (channel, constrain) = (tag("<|channel|>"), tag("<|constrain|>"));
                format!("{channel} {to} {constrain} \"json\" {}", tag("<|message|>"))
            }),
        };
        let rules = match text {
            Some(name) => rules.replacen("start:", &format!("start: {before_text} @{name} |"), 1),
            None => rules,
        };
        Some(TopLevelGrammar::from_lark(format!("%llguidance {{}}\n{rules}")))
    }
}

/// As models have learnt to write JSON: a blank after each comma and colon, and no others.
fn blanks() -> Value {
    json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " })
}

/// A text as grammars quote it, which is JSON's way.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_tell_their_family() {
        for (source, family) in [
            ("{% if tools %}<tool_call>{...}</tool_call>", Some(Family::Json)),
            ("<tool_call>\n<function=example>", Some(Family::Functions)),
            ("List of tools: <|tool_list_start|>[", Some(Family::Lfm2)),
            ("'List of tools: ['", Some(Family::Lfm2)),
            ("'<|tool_call>call:' + name", Some(Family::Gemma)),
            ("[AVAILABLE_TOOLS] [TOOL_CALLS]", Some(Family::MistralList)),
            ("[TOOL_CALLS]' + name + '[ARGS]", Some(Family::MistralNames)),
            ("<|start_header_id|>ipython<|end_header_id|>", Some(Family::Llama)),
            ("<|start_header_id|>ipython<|end_header_id|> <tool_call>", Some(Family::Json)),
            ("<|start|>assistant<|channel|>final<|message|>", Some(Family::Harmony)),
            ("<start_of_turn>model", None),
            ("<|im_start|>", None),
        ] {
            assert_eq!(Family::of(source), family, "{source}");
        }
    }
}
