//! Answers to ten questions, in the chat format of the model's file.

use hexflash::chat::{Message, RenderOptions};
use hexflash::text::{CHATML, TextModel};

use super::pair::{Greedy, Pair};

/// Questions as people ask them, in several scripts, and about code.
const QUESTIONS: [&str; 10] = [
    "Why is the sky blue?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Give me three tips for better sleep.",
    "Translate \"Good morning, my friend\" into French.",
    "What is 17 + 25? Answer with the number only.",
    "Summarize in one sentence: Rust is a language that checks the lifetime of every reference when a \
     program is compiled, so that no reference outlives what it refers to.",
    "Was ist die Hauptstadt von Österreich?",
    "用一句话介绍北京。",
    "Fix this code: `for i in range(10) print(i)`",
    "Tell me a short story about a lighthouse.",
];

/// Text in many scripts, and code.
const SCRIPTS: &str = include_str!("../../../data/languages.txt");
const CODE: &str = include_str!("pair.rs");

/// Greedy answers of both, each of `n` tokens.
///
/// # Errors
/// The tokenizers part on a question, or on a page of mixed scripts and code; or a model fails.
pub fn answers(pair: &mut Pair, n: usize) -> Result<Vec<(&'static str, Greedy)>, String> {
    let model = TextModel::read(pair.gguf()).map_err(|e| e.to_string())?;
    let template = model.chat_template.as_deref().unwrap_or(CHATML);
    pair.tokenize(SCRIPTS)?;
    pair.tokenize(CODE)?;
    let mut found = Vec::new();
    for question in QUESTIONS {
        pair.tokenize(question)?;
        let messages = [Message::new("user", question)];
        let ids = model.encode_chat(template, &messages, &RenderOptions::for_answer());
        let ids: Vec<i32> = ids.map_err(|e| e.to_string())?.into_iter().map(|id| id as i32).collect();
        found.push((question, pair.greedy_after(&ids, n)?));
    }
    Ok(found)
}
