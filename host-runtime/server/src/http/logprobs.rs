//! Probabilities of tokens, in the three forms that clients know.

use hexflash::sampler::TokenLogprob;
use hexflash::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::json::with;

/// What OpenAI tells of a token that cannot come: JSON has no infinity.
const NEVER: f32 = -9999.0;

/// Bytes of a token; none for an id that the tokenizer does not have.
fn bytes(tokenizer: &Tokenizer, token: u32) -> &[u8] {
    tokenizer.token_bytes(token).unwrap_or_default()
}

/// Its text, as far as it is text.
pub(super) fn text(tokenizer: &Tokenizer, token: u32) -> String {
    String::from_utf8_lossy(bytes(tokenizer, token)).into_owned()
}

/// A token with its probability.
fn entry(tokenizer: &Tokenizer, token: u32, logprob: f32) -> Value {
    json!({
        "id": token,
        "token": text(tokenizer, token),
        "bytes": bytes(tokenizer, token),
        "logprob": logprob.max(NEVER),
    })
}

/// Tokens as chats tell of them, and llama-server's `completion_probabilities`.
pub(super) fn list(tokenizer: &Tokenizer, tokens: &[TokenLogprob]) -> Value {
    let one = |token: &TokenLogprob| {
        let top = token.top.iter().map(|&(id, logprob)| entry(tokenizer, id, logprob)).collect();
        let entry = entry(tokenizer, token.token, token.logprob);
        with(entry, "top_logprobs", top)
    };
    tokens.iter().map(one).collect()
}

/// Tokens as OpenAI's completions tell of them; the first begins at byte `offset` of the text.
pub(super) fn columns(tokenizer: &Tokenizer, tokens: &[TokenLogprob], mut offset: usize) -> Value {
    let mut offsets = Vec::with_capacity(tokens.len());
    for token in tokens {
        offsets.push(offset);
        offset += bytes(tokenizer, token.token).len();
    }
    let top = |token: &TokenLogprob| -> Map<String, Value> {
        let pair = |&(id, logprob): &(u32, f32)| (text(tokenizer, id), logprob.max(NEVER).into());
        token.top.iter().map(pair).collect()
    };
    json!({
        "tokens": tokens.iter().map(|token| text(tokenizer, token.token)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.logprob.max(NEVER)).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
