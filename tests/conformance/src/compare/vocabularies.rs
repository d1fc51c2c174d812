//! Tokenizers of both on random vocabularies: the same ids for any text, the same bytes for any id.

use std::path::Path;

use hexflash::gguf::Gguf;
use hexflash::text::TextModel;
use hexflash::tokenizer::PreTokenizer;
use hexflash_oracle::llama::Model;

use super::random::{self, ModelShape};
use super::vocabulary::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary, byte_char};
use crate::tokenizers::NOBODYS;
use crate::tokenizers::texts::{PARTS, Random};

/// Up to `most` characters of a random text.
fn part(random: &mut Random, most: usize) -> Vec<char> {
    let text: Vec<char> = random.text(6).chars().collect();
    if text.is_empty() {
        return text;
    }
    let start = random.below(text.len());
    let n = 1 + random.below(most.min(text.len() - start));
    text[start..start + n].to_vec()
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
        let part: String = part(random, 6).into_iter().collect();
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
        let part: String = part(random, 8).into_iter().collect();
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
            part(random, 8).into_iter().map(|c| if c == ' ' { '\u{2581}' } else { c }).collect();
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
    let shape = ModelShape { vocab: vocabulary.tokens.len() as u32, ..NOBODYS };
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

#[test]
fn byte_level_vocabularies_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    // A seed for each name: rules with several names are compared with several.
    let names = PreTokenizer::names().filter(|pre| !CASED.contains(pre) && *pre != "gemma4");
    for (seed, pre) in (0..).zip(names) {
        let mut random = Random::new(seed);
        compare(&byte_level(pre, &mut random), &path, &mut random, |_| true);
    }
}

/// Pre-tokenizers that end words where lower case meets upper case.
const CASED: [&str; 6] = ["gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie", "tekken"];

/// In these llama.cpp takes all letters but a to z, or A to Z, for upper or lower case, and marks for none.
#[test]
fn vocabularies_that_tell_cases_apart_give_the_same_ids_for_ascii() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for pre in CASED {
        let mut random = Random::new(7);
        let plain = |text: &str| text.chars().all(|c| c.is_ascii() || c.is_whitespace());
        compare(&byte_level(pre, &mut random), &path, &mut random, plain);
    }
}

#[test]
fn sentence_piece_vocabularies_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for seed in 0..4u32 {
        let mut random = Random::new(seed.into());
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
        let mut random = Random::new(seed.into());
        let mut vocabulary = merged_pieces(&mut random);
        if seed == 1 {
            // Models that are said to need none get one all the same.
            vocabulary.more.push(("add_bos_token", false.into()));
        }
        compare(&vocabulary, &path, &mut random, |text| !text.contains('\0'));
    }
}
