//! Fields that would change the answer, and that this server does not know what to do with. They are refused:
//! an answer that is not what was asked for is worse than none. All other fields are ignored, as clients of
//! OpenAI expect.
//!
//! Most tables are for what is left of a request, when all that know fields have taken theirs.

use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;

/// Fields, the values of them that ask for nothing, and what to do instead.
pub(super) type Unsupported = (&'static [&'static str], fn(&Value) -> bool, &'static str);

const DROP: &str = "drop it";
const SAMPLERS: &str = "drop it: there are temperature, top_k, top_p, min_p and penalties";
const TEXT: &str = "drop it: answers are text";
const FORM: &str = "use response_format, json_schema or grammar";
const TOOLS: &str = "use tools, in a chat";
const IDS: &str = "use token_origins, or return_tokens in /completion";
const WHOLE: &str = "it keeps no answers; send the whole conversation as input";
const KEPT: &str = "it keeps no answers; set it to false";
const CHAT: &str = "use /v1/chat/completions";
const INFILL: &str = "use /infill, with input_prefix and input_suffix";
const PICTURES: &str = "drop it: prompts are text";
const THINKING: &str = "switch thinking off with enable_thinking, or bound the answer by max_tokens";

/// Fields that requests for texts may not have left.
pub(super) const ALWAYS: [Unsupported; 44] = [
    (&["tools", "functions"], is_empty, TOOLS),
    (&["tool_choice", "function_call"], is_free, TOOLS),
    (&["messages"], is_empty, CHAT),
    (&["modalities"], |value| value.as_array().is_some_and(|all| all.iter().all(|m| m == "text")), TEXT),
    (&["audio"], is_empty, TEXT),
    (
        &["image_data", "images", "image", "image_url", "multi_modal_data", "mm_processor_kwargs", "media"],
        is_empty,
        PICTURES,
    ),
    (&["suffix", "input_prefix", "input_suffix"], is_empty, INFILL),
    (&["echo"], is_false, "put the prompt before the answer yourself"),
    (&["best_of"], |value| *value == 1, "ask for n answers, and choose"),
    (&["samplers", "repetition_detection"], is_empty, SAMPLERS),
    (&["mirostat", "xtc_probability", "dry_multiplier", "dynatemp_range", "min_keep"], is_zero, SAMPLERS),
    (&["typical_p", "tfs_z", "length_penalty"], is_one, SAMPLERS),
    (&["top_n_sigma"], |value| value.as_f64().is_some_and(|n| n <= 0.0), SAMPLERS),
    (&["adaptive_target"], is_negative, SAMPLERS),
    (&["post_sampling_probs"], is_false, "probabilities are those of the model"),
    (&["lora"], is_empty, DROP),
    (&["n_discard"], is_zero, "a context that is full ends the text"),
    (&["n_indent"], is_zero, DROP),
    (
        &["t_max_predict_ms"],
        |value| value.as_f64().is_some_and(|n| n <= 0.0),
        "bound the answer by max_tokens",
    ),
    (
        &["reasoning_budget", "thinking_budget_tokens", "thinking_token_budget", "max_thinking_tokens"],
        is_negative,
        THINKING,
    ),
    (&["web_search_options"], never, DROP),
    (&["grammar_lazy"], is_false, "a grammar holds from the first token on"),
    (&["repetition_penalty"], is_one, "use repeat_penalty"),
    (&["min_tokens"], is_zero, "forbid what ends a text with ignore_eos"),
    (&["stop_token_ids"], is_empty, "use stop"),
    (&["bad_words"], is_empty, "use logit_bias"),
    (&["use_beam_search", "include_stop_str_in_output"], is_false, DROP),
    (&["prompt_embeds"], is_empty, "give the prompt as text or tokens"),
    (&["allowed_token_ids"], is_empty, "use a grammar, or logit_bias"),
    (&["skip_special_tokens"], is_true, "drop it: control tokens are not shown"),
    (&["spaces_between_special_tokens"], |value| value.is_boolean(), "drop it: control tokens are not shown"),
    (&["detokenize"], is_true, "drop it: answers are text"),
    (&["early_stopping"], is_false, SAMPLERS),
    (&["logits_processors", "logits_processor_pattern"], is_empty, "use logit_bias, or a grammar"),
    (&["truncate_prompt_tokens"], never, "shorten the prompt"),
    (&["prompt_logprobs"], is_false, "probabilities are those of the answer"),
    (&["return_token_ids", "return_tokens_as_token_ids"], is_false, IDS),
    (&["include_reasoning"], is_true, "use reasoning_format, or switch thinking off with enable_thinking"),
    (&["structural_tag", "regex", "ebnf"], is_empty, FORM),
    (&["grammar_triggers"], is_empty, "a grammar holds from the first token on"),
    (&["parse_tool_calls"], is_true, "leave the tools out to get the text of calls"),
    (&["max_tool_calls"], never, "use parallel_tool_calls: false for one call"),
    (&["max_output_tokens", "max_new_tokens"], never, "use max_tokens"),
    (&["context_shift"], is_false, "a context that is full ends the text"),
];

/// Fields that chats may not have left.
pub(super) const CHATS: [Unsupported; 5] = [
    (&["system"], is_empty, "make it the first of the messages"),
    (&["instructions"], is_empty, "make them the first of the messages"),
    (&["chat_template"], is_empty, "start the server with --chat-template"),
    (&["documents"], is_empty, "put them into messages"),
    (&["add_special_tokens"], is_false, "drop it: the chat template has them"),
];

/// Fields that requests for what follows a text may not have left.
pub(super) const TEXTS: [Unsupported; 1] = [(&["add_special_tokens"], is_true, "give the prompt as tokens")];

/// Fields that requests to `/v1/messages` may not have.
pub(super) const MESSAGES: [Unsupported; 1] =
    [(&["mcp_servers", "container"], is_empty, "use tools that your program runs itself")];

/// Fields that requests to `/v1/responses` may not have.
pub(super) const RESPONSES: [Unsupported; 3] = [
    (&["previous_response_id", "conversation", "prompt"], never, WHOLE),
    (&["store", "background"], is_false, KEPT),
    (&["truncation"], |value| value == "disabled", "shorten the input, or set it to disabled"),
];

/// Fields that requests in Ollama's form may not have: its answers have no place for probabilities.
pub(super) const OLLAMA: [Unsupported; 3] = [
    (&["logprobs", "top_logprobs"], |value| *value == false || *value == 0, CHAT),
    (&["template"], is_empty, "start the server with --chat-template"),
    (&["context"], is_empty, "use /api/chat, which gets the whole conversation"),
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

/// No value asks for nothing.
fn never(_: &Value) -> bool {
    false
}

/// A choice of tools where there are none.
fn is_free(value: &Value) -> bool {
    value == "none" || value == "auto"
}

fn is_negative(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value < 0.0)
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

/// Refuses a request that asks for something it would not get.
pub(super) fn refuse(fields: &Fields, table: &[Unsupported]) -> Result<(), ApiError> {
    for &(names, asks_nothing, hint) in table {
        let asks = |name: &&&str| fields.left(name).is_some_and(|value| !asks_nothing(value));
        if let Some(name) = names.iter().find(asks) {
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
        refuse(&fields, &ALWAYS).and_then(|()| refuse(&fields, &TEXTS)).is_err()
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
