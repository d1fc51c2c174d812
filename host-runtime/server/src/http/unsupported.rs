//! Fields that would change the answer, and that this server does not know what to do with. They are refused:
//! an answer that is not what was asked for is worse than none. All other fields are ignored, as clients of
//! OpenAI expect.

use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;

/// A field, the values of it that ask for nothing, and what to do instead.
type Unsupported = (&'static str, fn(&Value) -> bool, &'static str);

const DROP: &str = "drop it";
const SAMPLERS: &str = "drop it: there are temperature, top_k, top_p, min_p and penalties";
const TEXT: &str = "drop it: answers are text";
const FORM: &str = "use response_format, json_schema or grammar";
const TOOLS: &str = "use tools, in a chat";
const INFILL: &str = "use /infill, with input_prefix and input_suffix";
const PICTURES: &str = "drop it: prompts are text";
const THINKING: &str = "switch thinking off with enable_thinking, or bound the answer by max_tokens";

const UNSUPPORTED: [Unsupported; 67] = [
    ("functions", is_empty, TOOLS),
    ("function_call", |value| value == "none" || value == "auto", TOOLS),
    ("modalities", |value| value.as_array().is_some_and(|all| all.iter().all(|m| m == "text")), TEXT),
    ("audio", is_empty, TEXT),
    ("image_data", is_empty, "drop it: prompts are text"),
    ("suffix", is_empty, INFILL),
    ("input_prefix", is_empty, INFILL),
    ("input_suffix", is_empty, INFILL),
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
    ("repetition_penalty", is_one, "use repeat_penalty"),
    ("min_tokens", is_zero, "forbid what ends a text with ignore_eos"),
    ("stop_token_ids", is_empty, "use stop"),
    ("bad_words", is_empty, "use logit_bias"),
    ("use_beam_search", is_false, DROP),
    ("include_stop_str_in_output", is_false, DROP),
    ("images", is_empty, PICTURES),
    ("image", is_empty, PICTURES),
    ("image_url", is_empty, PICTURES),
    ("multi_modal_data", is_empty, PICTURES),
    ("mm_processor_kwargs", is_empty, PICTURES),
    ("media", is_empty, PICTURES),
    ("prompt_embeds", is_empty, "give the prompt as text or tokens"),
    ("allowed_token_ids", is_empty, "use a grammar, or logit_bias"),
    ("skip_special_tokens", is_true, "drop it: control tokens are not shown"),
    ("spaces_between_special_tokens", |value| value.is_boolean(), "drop it: control tokens are not shown"),
    ("detokenize", is_true, "drop it: answers are text"),
    ("length_penalty", is_one, SAMPLERS),
    ("early_stopping", is_false, SAMPLERS),
    ("repetition_detection", is_empty, SAMPLERS),
    ("logits_processors", is_empty, "use logit_bias, or a grammar"),
    ("logits_processor_pattern", is_empty, "use logit_bias, or a grammar"),
    ("truncate_prompt_tokens", |_| false, "shorten the prompt"),
    ("prompt_logprobs", is_false, "probabilities are those of the answer"),
    ("return_token_ids", is_false, "use token_origins, or return_tokens in /completion"),
    ("return_tokens_as_token_ids", is_false, "use token_origins, or return_tokens in /completion"),
    ("include_reasoning", is_true, "use reasoning_format, or switch thinking off with enable_thinking"),
    ("thinking_token_budget", |value| value.as_i64().is_some_and(|n| n < 0), THINKING),
    ("max_thinking_tokens", |value| value.as_i64().is_some_and(|n| n < 0), THINKING),
    ("structural_tag", is_empty, FORM),
    ("grammar_triggers", is_empty, "a grammar holds from the first token on"),
    ("parse_tool_calls", is_true, "leave the tools out to get the text of calls"),
    ("max_tool_calls", |_| false, "use parallel_tool_calls: false for one call"),
    ("max_output_tokens", |_| false, "use max_tokens"),
    ("max_new_tokens", |_| false, "use max_tokens"),
    ("context_shift", is_false, "a context that is full ends the text"),
    ("regex", is_empty, FORM),
    ("ebnf", is_empty, FORM),
];

/// Fields of chats that are not supported.
const CHATS: [Unsupported; 5] = [
    ("system", is_empty, "make it the first of the messages"),
    ("instructions", is_empty, "make them the first of the messages"),
    ("chat_template", is_empty, "start the server with --chat-template"),
    ("documents", is_empty, "put them into messages"),
    ("add_special_tokens", is_false, "drop it: the chat template has them"),
];

/// Fields like those, of what only chats have.
const CHATS_ONLY: [Unsupported; 4] = [
    ("tools", is_empty, TOOLS),
    ("tool_choice", |value| value == "none" || value == "auto", TOOLS),
    ("messages", is_empty, "use /v1/chat/completions"),
    ("add_special_tokens", is_true, "give the prompt as tokens"),
];

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

fn is_true(value: &Value) -> bool {
    *value == true
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

/// Refuses a chat that asks for something it would not get.
pub(super) fn refuse_in_chats(fields: &Fields) -> Result<(), ApiError> {
    refuse(fields, &CHATS)
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
        let fine = r#"{"tools": [], "tool_choice": "auto", "structural_tag": null,
            "echo": false, "mirostat": 0, "typical_p": 1.0, "dry_multiplier": 0.0, "top_n_sigma": -1,
            "images": [], "skip_special_tokens": true, "length_penalty": 1, "include_reasoning": true,
            "suffix": null, "user": "x", "store": true, "metadata": {"a": "b"}}"#;
        assert!(!refused(fine));
    }

    #[test]
    fn values_that_ask_for_something_are_refused() {
        for body in [
            r#"{"tools": [{"type": "function"}]}"#,
            r#"{"tool_choice": {"type": "function"}}"#,
            r#"{"structural_tag": {"a": 1}}"#,
            r#"{"mirostat": 2}"#,
            r#"{"echo": true}"#,
            r#"{"typical_p": 0.9}"#,
            r#"{"modalities": ["text", "audio"]}"#,
            r#"{"images": ["x"]}"#,
            r#"{"allowed_token_ids": [1]}"#,
            r#"{"skip_special_tokens": false}"#,
            r#"{"prompt_logprobs": 0}"#,
            r#"{"include_reasoning": false}"#,
            r#"{"truncate_prompt_tokens": 5}"#,
        ] {
            assert!(refused(body), "{body}");
        }
    }
}
