//! Families of models by how they write calls of tools, and thoughts.
//!
//! The chat template tells the family: it shows earlier calls, or the tools, in the form that the model
//! learnt.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::calls::gemma;
use super::calls::harmony;
use super::calls::tags::Tags;

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

/// What a call begins with in answers of Llama that are no JSON from their first character on.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

/// Between a name and its arguments, with Mistral.
pub(super) const ARGS: &str = "[ARGS]";

impl Family {
    /// The family that a chat template is of, if it is one that is known here.
    pub(crate) fn of(source: &str) -> Option<Self> {
        let is_of = |marks: &[&str]| marks.iter().all(|mark| source.contains(mark));
        MARKS.iter().find(|(_, marks)| is_of(marks)).map(|&(family, _)| family)
    }

    /// The tags around calls, where tags are all that marks them.
    pub(super) fn tags(self) -> Option<Tags> {
        let tags = |open, close| Some(Tags { open, close });
        match self {
            Self::Json | Self::Functions => tags("<tool_call>", Some("</tool_call>")),
            Self::Lfm2 => tags("<|tool_call_start|>", Some("<|tool_call_end|>")),
            Self::Gemma => tags("<|tool_call>", Some("<tool_call|>")),
            Self::MistralList | Self::MistralNames => tags("[TOOL_CALLS]", None),
            Self::Llama | Self::Harmony => None,
        }
    }

    /// Tokens that texts have to show, because calls are found by them, although vocabularies may have them
    /// as tokens that are no text.
    pub(super) fn shown(self) -> Vec<&'static str> {
        let mut all: Vec<&str> = match self {
            Self::Json | Self::Functions | Self::Lfm2 | Self::MistralList => Vec::new(),
            Self::Gemma => vec![gemma::QUOTE],
            Self::MistralNames => vec![ARGS, "[CALL_ID]"],
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
    /// `token` gives the id of a token by its text. `None` where calls are in a form that no grammar is known
    /// for here.
    pub(super) fn grammar(
        self,
        tools: &[(&str, Value)],
        token: impl Fn(&str) -> Option<u32>,
    ) -> Option<TopLevelGrammar> {
        // A tag that is one token is that token, and else its text.
        let tag = |text: &str| match token(text) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(text),
        };
        let call = |arguments: &str| {
            let calls: Vec<Value> =
                tools.iter().map(|(name, schema)| schema_of_call(name, arguments, schema)).collect();
            let schema = json!({ "anyOf": calls, "x-guidance": blanks() });
            format!("call: %json {schema}\n")
        };
        // A rule for the arguments of each tool; `before` is what comes between the tag and them.
        let named = |before: &dyn Fn(&str) -> String| {
            let mut rules = String::from("start:");
            for (i, (name, _)) in tools.iter().enumerate() {
                let or = if i == 0 { "" } else { " |" };
                rules += &format!("{or} {} args{i}", before(name));
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
        let rules = match self {
            Self::Functions | Self::Gemma => return None,
            Self::Json => {
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
                quoted(&format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"))
            }),
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

/// JSON that calls a tool whose arguments are under `key`.
fn schema_of_call(name: &str, key: &str, arguments: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "const": name }, key: arguments },
        "required": ["name", key],
        "additionalProperties": false,
    })
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
