//! Fields that would change the answer, and that this server does not know what to do with. They are refused:
//! an answer that is not what was asked for is worse than none. All other fields are ignored, as clients of
//! OpenAI expect.

use serde_json::Value;

use super::body::Fields;
use super::error::ApiError;

/// A field, the values of it that ask for nothing, and what to do instead.
type Unsupported = (&'static str, fn(&Value) -> bool, &'static str);

const DROP: &str = "drop it";
const SAMPLERS: &str = "drop it: there are temperature, top_k, top_p, min_p and penalties";
const TEXT: &str = "drop it: answers are text";
const FORM: &str = "use response_format, json_schema or grammar";
const TOOLS: &str = "use tools, in a chat";

const UNSUPPORTED: [Unsupported; 40] = [
    ("functions", is_empty, TOOLS),
    ("function_call", |value| value == "none" || value == "auto", TOOLS),
    ("modalities", |value| value.as_array().is_some_and(|all| all.iter().all(|m| m == "text")), TEXT),
    ("audio", is_empty, TEXT),
    ("image_data", is_empty, "drop it: prompts are text"),
    ("suffix", is_empty, "drop it: texts are continued, not filled in"),
    ("input_prefix", is_empty, "drop it: texts are continued, not filled in"),
    ("input_suffix", is_empty, "drop it: texts are continued, not filled in"),
    ("echo", is_false, "put the prompt before the answer yourself"),
    ("best_of", |value| *value == 1, "ask for n answers, and choose"),
    ("samplers", is_empty, SAMPLERS),
    ("mirostat", is_zero, SAMPLERS),
    ("typical_p", is_one, SAMPLERS),
    ("tfs_z", is_one, SAMPLERS),
    ("top_n_sigma", |value| value.as_f64().is_some_and(|value| value <= 0.0), SAMPLERS),
    ("xtc_probability", is_zero, SAMPLERS),
    ("dry_multiplier", is_zero, SAMPLERS),
    ("dynatemp_range", is_zero, SAMPLERS),
    ("min_keep", is_zero, SAMPLERS),
    ("adaptive_target", |value| value.as_f64().is_some_and(|value| value < 0.0), SAMPLERS),
    ("post_sampling_probs", is_false, "probabilities are those of the model"),
    ("lora", is_empty, DROP),
    ("n_discard", is_zero, "a context that is full ends the text"),
    ("n_indent", is_zero, DROP),
    (
        "t_max_predict_ms",
        |value| value.as_f64().is_some_and(|value| value <= 0.0),
        "bound the answer by max_tokens",
    ),
    (
        "reasoning_budget",
        |value| value.as_i64().is_some_and(|n| n < 0),
        "switch thinking off with chat_template_kwargs",
    ),
    (
        "thinking_budget_tokens",
        |value| value.as_i64().is_some_and(|n| n < 0),
        "switch thinking off with chat_template_kwargs",
    ),
    ("web_search_options", |_| false, DROP),
    ("grammar_lazy", is_false, "a grammar holds from the first token on"),
    ("guided_json", is_empty, FORM),
    ("guided_regex", is_empty, FORM),
    ("guided_choice", is_empty, FORM),
    ("guided_grammar", is_empty, FORM),
    ("structured_outputs", is_empty, FORM),
    ("repetition_penalty", is_one, "use repeat_penalty"),
    ("min_tokens", is_zero, "forbid what ends a text with ignore_eos"),
    ("stop_token_ids", is_empty, "use stop"),
    ("bad_words", is_empty, "use logit_bias"),
    ("use_beam_search", is_false, DROP),
    ("include_stop_str_in_output", is_false, DROP),
];

/// The same, of what only chats have.
const CHATS_ONLY: [Unsupported; 2] =
    [("tools", is_empty, TOOLS), ("tool_choice", |value| value == "none" || value == "auto", TOOLS)];

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_false(value: &Value) -> bool {
    *value == false
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

/// That a request asks for nothing that it would not get.
pub(super) fn refuse_unsupported(fields: &Fields) -> Result<(), ApiError> {
    refuse(fields, &UNSUPPORTED)
}

/// That a request that is no chat asks for nothing that only chats have.
pub(super) fn refuse_chats_only(fields: &Fields) -> Result<(), ApiError> {
    refuse(fields, &CHATS_ONLY)
}

fn refuse(fields: &Fields, table: &[Unsupported]) -> Result<(), ApiError> {
    for &(name, asks_nothing, hint) in table {
        if fields.raw(name).is_some_and(|value| !asks_nothing(value)) {
            return Err(ApiError::unsupported(name, hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> bool {
        let fields = Fields::parse(body.as_bytes()).unwrap();
        refuse_unsupported(&fields).and_then(|()| refuse_chats_only(&fields)).is_err()
    }

    #[test]
    fn values_that_ask_for_nothing_are_fine() {
        let fine = r#"{"tools": [], "tool_choice": "auto", "guided_json": {},
            "echo": false, "mirostat": 0, "typical_p": 1.0, "dry_multiplier": 0.0, "top_n_sigma": -1,
            "suffix": null, "user": "x", "store": true, "metadata": {"a": "b"}}"#;
        assert!(!refused(fine));
    }

    #[test]
    fn values_that_ask_for_something_are_refused() {
        for body in [
            r#"{"tools": [{"type": "function"}]}"#,
            r#"{"tool_choice": {"type": "function"}}"#,
            r#"{"guided_regex": "a+"}"#,
            r#"{"mirostat": 2}"#,
            r#"{"echo": true}"#,
            r#"{"typical_p": 0.9}"#,
            r#"{"modalities": ["text", "audio"]}"#,
        ] {
            assert!(refused(body), "{body}");
        }
    }
}
