//! Reference outputs in `tests/data`, made by llama.cpp and transformers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Model, npy, repo_file};

/// Greedy generation by llama.cpp.
#[derive(Deserialize)]
pub struct Greedy {
    /// One per prompt.
    pub cases: Vec<GreedyCase>,
}

/// One prompt's greedy generation.
#[derive(Deserialize)]
pub struct GreedyCase {
    /// The prompt as text, or a description with a leading `@` where only its ids are known.
    pub prompt: String,
    /// Its ids.
    pub prompt_ids: Vec<u32>,
    /// Ids generated.
    pub ids: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Whether the last one ends the text.
    pub eog: bool,
}

/// DFlash by llama.cpp, or by the reference without caches.
#[derive(Deserialize)]
pub struct DFlash {
    /// One per prompt.
    pub cases: Vec<DFlashCase>,
}

/// One prompt's speculative generation.
#[derive(Deserialize)]
pub struct DFlashCase {
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Ids generated.
    pub ids: Vec<u32>,
    /// Accepted drafts of each round.
    pub accepted_per_step: Vec<usize>,
    /// Drafts of each round; only of the reference.
    #[serde(default)]
    pub drafts: Vec<Vec<u32>>,
}

/// DSpark by llama.cpp, or by the reference without caches.
#[derive(Deserialize)]
pub struct Dspark {
    /// One per prompt.
    pub cases: Vec<DsparkCase>,
}

/// One prompt's generations with blocks of different lengths.
#[derive(Deserialize)]
pub struct DsparkCase {
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Ids generated.
    pub ids: Vec<u32>,
    /// The rounds, by the drafts of a block.
    pub dspark: BTreeMap<usize, DraftRounds>,
}

/// MTP by llama.cpp, or by the reference without caches.
#[derive(Deserialize)]
pub struct Mtp {
    /// One per prompt.
    pub cases: Vec<MtpCase>,
}

/// One prompt's generations with chains of different lengths.
#[derive(Deserialize)]
pub struct MtpCase {
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Ids generated.
    pub ids: Vec<u32>,
    /// The rounds, by the length of chains.
    pub mtp: BTreeMap<usize, DraftRounds>,
}

/// The rounds of a generation.
#[derive(Deserialize)]
pub struct DraftRounds {
    /// Accepted drafts of each.
    pub accepted_per_round: Vec<usize>,
    /// Drafts of each.
    pub drafts: Vec<Vec<u32>>,
}

/// DFlash on a dense target, by llama.cpp or by the reference without caches.
#[derive(Deserialize)]
pub struct Dense {
    /// One per prompt.
    pub cases: Vec<DenseCase>,
}

/// One prompt's generation.
#[derive(Deserialize)]
pub struct DenseCase {
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Ids generated.
    pub ids: Vec<u32>,
    /// The rounds, by llama.cpp.
    dflash: Option<DraftRounds>,
    /// The rounds, by the reference.
    #[serde(flatten)]
    rounds: Option<DraftRounds>,
}

impl DenseCase {
    /// The rounds.
    ///
    /// # Panics
    /// If the file has none.
    pub fn rounds(&self) -> &DraftRounds {
        self.dflash.as_ref().or(self.rounds.as_ref()).unwrap_or_else(|| panic!("no rounds"))
    }
}

/// A text and its ids.
#[derive(Deserialize)]
pub struct TokenizerCase {
    /// The text.
    pub text: String,
    /// Its ids.
    pub ids: Vec<u32>,
}

/// The prompt of the stored logits and hidden states.
#[derive(Deserialize)]
pub struct LogitsPrompt {
    /// Its ids.
    pub ids: Vec<u32>,
}

fn json<T: DeserializeOwned>(name: &str) -> T {
    let path = repo_file("tests/data/expected").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// llama.cpp's greedy generations from `model`.
pub fn greedy(model: Model) -> Greedy {
    json(&format!("greedy-{}.json", model.name()))
}

/// DFlash with `name`, a file of `tests/data/expected` without its extension.
pub fn dflash(name: &str) -> DFlash {
    json(&format!("{name}.json"))
}

/// MTP with `name`, a file of `tests/data/expected` without its extension.
pub fn mtp(name: &str) -> Mtp {
    json(&format!("{name}.json"))
}

/// DSpark with `name`, a file of `tests/data/expected` without its extension.
pub fn dspark(name: &str) -> Dspark {
    json(&format!("{name}.json"))
}

/// DFlash on the dense target with `name`, a file of `tests/data/expected` without its extension.
pub fn dense(name: &str) -> Dense {
    json(&format!("{name}.json"))
}

/// Texts that llama.cpp and the `tokenizers` library encode alike.
pub fn tokenizer_cases() -> Vec<TokenizerCase> {
    json("tokenizer-cases.json")
}

/// The prompt that [`logits`] and [`hidden_states`] belong to.
pub fn logits_prompt() -> Vec<u32> {
    json::<LogitsPrompt>("logits-prompt.json").ids
}

/// Logits of the F16 model by transformers in single precision: `[32, 4096]`.
pub fn logits() -> npy::Array {
    npy::Array::read(&repo_file("tests/data/logits/hf-f16-weights.npy"))
}

/// Embedding, outputs of all layers but the last, and the final norm's output: `[9, 32, 256]`.
pub fn hidden_states() -> npy::Array {
    npy::Array::read(&repo_file("tests/data/logits/hf-hidden-states.npy"))
}
