//! Tokenizers of both on random vocabularies: the same ids for any text, the same bytes for any id.

use std::path::Path;

use hexflash::gguf::Gguf;
use hexflash::text::TextModel;
use hexflash_oracle::llama::Model;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use super::random::{self, Architecture, CONTROL, ModelShape, NORMAL, Vocabulary, WeightType, byte_char};

/// Types of tokens.
const UNKNOWN: i32 = 2;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// A model that nobody runs: its vocabulary is what counts.
const SMALL: ModelShape = ModelShape {
    architecture: Architecture::Llama,
    layers: 1,
    interval: 1,
    width: 32,
    ff: 32,
    heads: 1,
    kv_heads: 1,
    head: 32,
    window: 0,
    key_heads: 1,
    value_heads: 1,
    state: 32,
    taps: 4,
    vocab: 0,
    context: 16,
    weights: WeightType::F32,
    embedding_type: None,
    expert_type: None,
    untied: false,
    biases: false,
    scaling: None,
    experts: 1,
    used: 1,
    expert_ff: 32,
    dense_layers: 0,
    fused_experts: false,
    shared: 0,
    per_layer: 32,
    seed: 1,
};

/// What texts are made of, and vocabularies learn from.
const PARTS: &[&str] = &[
    "the ",
    "token",
    "izer",
    " of",
    " a model",
    "I'll",
    "DON'T",
    "we've ",
    "it's",
    "'S",
    "'",
    "x'd",
    "Hello",
    "parseHTTPServer",
    "snake_case",
    "CamelCase",
    "{}",
    "();\n",
    "    ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "  \n ",
    " ",
    "  ",
    "   ",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "\u{b}",
    "\u{c}",
    "0",
    "1",
    "42",
    "12345678",
    " 7",
    "3.14159",
    "٣٤",
    "Ⅷ",
    "½",
    "²",
    "ü",
    "é",
    "e\u{301}",
    "Größe",
    "naïve",
    "ŠĐ",
    "Привет",
    "мир",
    "ΑΒΓ",
    "αβγ",
    "你好",
    "世界",
    "こんにちは",
    "カタカナ",
    "안녕",
    "하세요",
    "مرحبا",
    "שלום",
    "हिन्दी",
    "ไทย",
    "😀",
    "👨‍👩‍👧",
    "🇩🇪",
    "✨",
    "—",
    "…",
    "“quoted”",
    "!",
    "?!",
    "...",
    "://",
    "/",
    "\\",
    "#",
    "@",
    "$100",
    "50%",
    "a+b=c",
    "<",
    ">",
    "<|",
    "|>",
    "<s>",
    "</s>",
    "<|im_end|>",
    "<user>",
    "<0x41>",
    "\u{2581}",
    "\u{2581}\u{2581}",
    "\0",
    "\u{7f}",
    "\u{fffd}",
    "[INST]",
    "  <user>  ",
    "fn main() {\n    println!(\"{}\", 1);\n}\n",
];

struct Random(Pcg64Mcg);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    fn text(&mut self, parts: usize) -> String {
        let n = self.below(parts + 1);
        (0..n).map(|_| PARTS[self.below(PARTS.len())]).collect()
    }

    /// Up to `most` characters of a text.
    fn part(&mut self, most: usize) -> Vec<char> {
        let text: Vec<char> = self.text(6).chars().collect();
        if text.is_empty() {
            return text;
        }
        let start = self.below(text.len());
        let n = 1 + self.below(most.min(text.len() - start));
        text[start..start + n].to_vec()
    }
}

/// The special tokens of every vocabulary here.
const SPECIAL: [(&str, i32); 5] = [
    ("<|im_end|>", CONTROL),
    ("<user>", USER_DEFINED),
    ("[INST]", CONTROL),
    ("    ", USER_DEFINED),
    ("<reserved>", UNUSED),
];

/// Bytes, and merges of what stands in texts, some of them with another rank than they were found at.
fn byte_level(pre: &'static str, random: &mut Random) -> Vocabulary {
    let mut v = Vocabulary { model: "gpt2", pre, ..Vocabulary::default() };
    let add = |text: String, kind: i32, v: &mut Vocabulary| {
        let new = !v.tokens.contains(&text);
        if new {
            v.tokens.push(text);
            v.types.push(kind);
        }
        new
    };
    for byte in 0..=255 {
        add(byte_char(byte).to_string(), NORMAL, &mut v);
    }
    for _ in 0..400 {
        let part: String = random.part(6).into_iter().collect();
        let spelled: Vec<String> = part.bytes().map(|byte| byte_char(byte).to_string()).collect();
        // One merge after the other, on either side.
        let (mut start, mut end) = (spelled.len() / 2, spelled.len() / 2 + 1);
        while end - start < spelled.len() {
            let left = end == spelled.len() || start > 0 && random.below(2) == 0;
            let known = spelled[start..end].concat();
            let merge = if left {
                start -= 1;
                format!("{} {known}", spelled[start])
            } else {
                end += 1;
                format!("{known} {}", spelled[end - 1])
            };
            add(spelled[start..end].concat(), NORMAL, &mut v);
            if !v.merges.contains(&merge) {
                v.merges.push(merge);
            }
        }
    }
    for _ in 0..v.merges.len() / 8 {
        let (a, b) = (random.below(v.merges.len()), random.below(v.merges.len()));
        v.merges.swap(a, b);
    }
    // Words that are tokens without merges, which some vocabularies take whole.
    for word in ["Hello", "Ġof", "12345678", "123"] {
        add(word.to_owned(), NORMAL, &mut v);
    }
    for (text, kind) in [("<s>", CONTROL), ("</s>", CONTROL)].iter().chain(&SPECIAL) {
        add((*text).to_owned(), *kind, &mut v);
    }
    let id = |text: &str, v: &Vocabulary| v.tokens.iter().position(|t| t == text).unwrap() as u32;
    v.more = vec![("bos_token_id", id("<s>", &v).into()), ("eos_token_id", id("</s>", &v).into())];
    v
}

/// Roles, bytes, and pieces of texts; many scores are equal.
fn sentence_pieces(random: &mut Random, bytes: bool) -> Vocabulary {
    let mut v = Vocabulary { model: "llama", pre: "default", ..Vocabulary::default() };
    let add = |text: String, kind: i32, score: f32, v: &mut Vocabulary| {
        // For llama.cpp a token ends with a 0.
        if !v.tokens.contains(&text) && !text.contains('\0') && !text.is_empty() {
            v.tokens.push(text);
            v.types.push(kind);
            v.scores.push(score);
        }
    };
    for (text, kind) in [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)] {
        add(text.to_owned(), kind, 0.0, &mut v);
    }
    if bytes {
        (0..=255u8).for_each(|byte| add(format!("<0x{byte:02X}>"), BYTE, 0.0, &mut v));
    } else {
        let all: std::collections::BTreeSet<char> = PARTS.concat().replace(' ', "\u{2581}").chars().collect();
        all.into_iter().for_each(|c| add(c.to_string(), NORMAL, -1e4, &mut v));
    }
    for _ in 0..900 {
        let part: String = random.part(8).into_iter().collect();
        let score = -(random.below(60) as f32) * 0.5;
        add(part.replace(' ', "\u{2581}"), NORMAL, score, &mut v);
    }
    for (text, kind) in SPECIAL {
        add(text.to_owned(), kind, 0.0, &mut v);
    }
    v
}

/// Bytes, characters, and what random merges of neighbours make of them.
fn merged_pieces(random: &mut Random) -> Vocabulary {
    let mut v = Vocabulary { model: "gemma4", pre: "gemma4", ..Vocabulary::default() };
    let add = |text: String, kind: i32, v: &mut Vocabulary| {
        if !v.tokens.contains(&text) && !text.contains('\0') && !text.is_empty() {
            v.tokens.push(text);
            v.types.push(kind);
        }
    };
    for (text, kind) in [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)] {
        add(text.to_owned(), kind, &mut v);
    }
    (0..=255u8).for_each(|byte| add(format!("<0x{byte:02X}>"), BYTE, &mut v));
    ["\n", "\n\n", "\n\n\n\n"].into_iter().for_each(|breaks| add(breaks.to_owned(), NORMAL, &mut v));
    // Not all characters are tokens; merges know no line breaks.
    let mut pieces: Vec<String> = Vec::new();
    for _ in 0..900 {
        let part: Vec<char> =
            random.part(8).into_iter().map(|c| if c == ' ' { '\u{2581}' } else { c }).collect();
        for c in part.iter().filter(|c| **c != '\n' && **c != '\0') {
            pieces.push(c.to_string());
        }
        if pieces.len() < 2 {
            continue;
        }
        let at = pieces.len() - 2 - random.below(pieces.len() - 1).min(20);
        let (left, right) = (pieces[at].clone(), pieces[at + 1].clone());
        v.merges.push(format!("{left} {right}"));
        let joined = format!("{left}{right}");
        for text in [left, right, joined.clone()] {
            add(text, NORMAL, &mut v);
        }
        pieces.push(joined);
    }
    for (text, kind) in SPECIAL {
        add(text.to_owned(), kind, &mut v);
    }
    v.more =
        vec![("bos_token_id", 2u32.into()), ("eos_token_id", 1u32.into()), ("unknown_token_id", 3u32.into())];
    v
}

/// Both on a vocabulary: every id, and random texts. Texts for which `fair` says no are left out.
fn compare(vocabulary: &Vocabulary, path: &Path, random: &mut Random, fair: fn(&str) -> bool) {
    let shape = ModelShape { vocab: vocabulary.tokens.len() as u32, ..SMALL };
    random::write_with(&shape, vocabulary, path).unwrap();
    let ours = TextModel::read(&Gguf::open(path).unwrap()).unwrap().tokenizer;
    let theirs = Model::load(path).unwrap();
    let what = format!("{} {}", vocabulary.model, vocabulary.pre);
    for id in 0..theirs.n_vocab() as u32 {
        assert_eq!(ours.token_bytes(id).unwrap(), theirs.piece(id as i32), "{what}: bytes of {id}");
        assert_eq!(ours.eog().contains(id), theirs.is_eog(id as i32), "{what}: end of {id}");
    }
    let mut texts: Vec<String> = PARTS.iter().map(|part| (*part).to_owned()).collect();
    texts.push(String::new());
    texts.extend((0..1500).map(|_| random.text(12)));
    for text in texts.iter().filter(|text| fair(text)) {
        for special in [false, true] {
            let ids = ours.encode(text, special, special).unwrap();
            let expected = theirs.tokenize(text, special).unwrap();
            let expected: Vec<u32> = expected.into_iter().map(|id| id as u32).collect();
            assert_eq!(ids, expected, "{what}: {text:?}, special tokens {special}");
            let lossy = theirs.detokenize(&ids.iter().map(|&id| id as i32).collect::<Vec<_>>());
            assert_eq!(ours.decode(&ids, false).unwrap(), lossy, "{what}: {text:?}");
        }
    }
    // Any ids, whose bytes are text in part at most.
    for _ in 0..300 {
        let ids: Vec<i32> = (0..random.below(12)).map(|_| random.below(theirs.n_vocab()) as i32).collect();
        let found = ours.decode(&ids.iter().map(|&id| id as u32).collect::<Vec<_>>(), false).unwrap();
        assert_eq!(found, theirs.detokenize(&ids), "{what}: {ids:?}");
    }
}

fn random(seed: u128) -> Random {
    Random(Pcg64Mcg::new(seed << 64 | 0x9e37_79b9_7f4a_7c15))
}

#[test]
fn byte_level_vocabularies_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for pre in ["qwen35", "qwen2", "llama-bpe", "lfm2", "smaug-bpe", "glm4", "gpt-2", "smollm"] {
        for seed in 0..2 {
            let mut random = random(seed);
            compare(&byte_level(pre, &mut random), &path, &mut random, |_| true);
        }
    }
}

/// In these llama.cpp takes all letters but a to z, or A to Z, for upper or lower case, and marks for none.
#[test]
fn vocabularies_that_tell_cases_apart_give_the_same_ids_for_ascii() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for pre in ["gpt-4o", "tekken"] {
        let mut random = random(7);
        let plain = |text: &str| text.chars().all(|c| c.is_ascii() || c.is_whitespace());
        compare(&byte_level(pre, &mut random), &path, &mut random, plain);
    }
}

#[test]
fn sentence_piece_vocabularies_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for seed in 0..4u32 {
        let mut random = random(seed.into());
        let mut vocabulary = sentence_pieces(&mut random, seed != 3);
        vocabulary.more = match seed {
            0 => vec![],
            1 => vec![("add_space_prefix", false.into()), ("add_eos_token", true.into())],
            2 => vec![("add_bos_token", false.into()), ("remove_extra_whitespaces", true.into())],
            _ => vec![("bos_token_id", 2u32.into()), ("eos_token_id", 1u32.into())],
        };
        // What no token expresses is an error in hexflash, and ends the process in llama.cpp.
        let fair: fn(&str) -> bool = if seed == 3 { |text| !text.contains('\0') } else { |_| true };
        compare(&vocabulary, &path, &mut random, fair);
    }
}

#[test]
fn sentence_piece_vocabularies_with_merges_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for seed in 0..3u32 {
        let mut random = random(seed.into());
        let mut vocabulary = merged_pieces(&mut random);
        if seed == 1 {
            // Models that are said to need none get one all the same.
            vocabulary.more.push(("add_bos_token", false.into()));
        }
        compare(&vocabulary, &path, &mut random, |text| !text.contains('\0'));
    }
}
