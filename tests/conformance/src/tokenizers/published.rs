//! A published tokenizer (`tokenizer.json`): as Hugging Face's library runs it, and as a GGUF vocabulary.
//!
//! Nothing of it is part of hexflash. The pattern for words is the file's own, matched by Oniguruma as in the
//! library's Python package; merging, special tokens, normalization and SentencePiece's rules are the
//! library's.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use onig::Regex;
use serde_json::Value;
use tokenizers::pattern::Pattern;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, Offsets,
    PostProcessorWrapper, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior, Tokenizer,
    TokenizerBuilder, TokenizerImpl,
};

use crate::compare::vocabulary::{BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary};

/// The library with words that are cut by [`Words`].
pub type Reference =
    TokenizerImpl<ModelWrapper, NormalizerWrapper, Words, PostProcessorWrapper, DecoderWrapper>;

/// What is in the file.
pub struct Published {
    /// As the library reads it.
    whole: Tokenizer,
    /// The pattern for words, if there is one.
    pattern: Option<String>,
    /// As a GGUF has it.
    pub vocabulary: Vocabulary,
    /// What stands for special tokens in texts.
    pub specials: Vec<String>,
    /// Whether texts are composed (NFC) before anything else, which neither hexflash nor llama.cpp does.
    composes: bool,
}

/// Words cut by a pattern and spelled in the alphabet for bytes; or the text as a whole.
pub struct Words(Option<Regex>);

/// The pattern for the library's own splitting.
struct Matches<'r>(&'r Regex);

impl Pattern for Matches<'_> {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        let (mut found, mut end) = (Vec::new(), 0);
        for (start, stop) in self.0.find_iter(inside) {
            if end < start {
                found.push(((end, start), false));
            }
            found.push(((start, stop), true));
            end = stop;
        }
        if end < inside.len() || inside.is_empty() {
            found.push(((end, inside.len()), false));
        }
        Ok(found)
    }
}

impl PreTokenizer for Words {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        let Some(regex) = &self.0 else { return Ok(()) };
        text.split(|_, part| part.split(Matches(regex), SplitDelimiterBehavior::Isolated))?;
        ByteLevel::new(false, false, false).pre_tokenize(text)
    }
}

impl Published {
    /// Reads `tokenizer.json` in `dir`. `named` is the value for `tokenizer.ggml.pre`, or one of the other
    /// models, `llama` and `gemma4`.
    pub fn read(dir: &Path, named: &str) -> Result<Self, String> {
        let path = dir.join("tokenizer.json");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let json: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let whole: Tokenizer = text.parse().map_err(|e| format!("{}: {e}", path.display()))?;
        let composes = json["normalizer"]["type"] == "NFC";
        let specials = each(&json["added_tokens"], |token| Some(token["content"].as_str()?.to_owned()))?;
        let vocabulary = vocabulary(&json, named)?;
        let pattern = json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].as_str();
        let pattern = pattern.map(str::to_owned);
        Ok(Self { whole, pattern, vocabulary, specials, composes })
    }

    /// The library's tokenizer, where the added tokens that `is_hidden` names are text unless they are asked
    /// for. Which these are is no matter of ids: converters, llama.cpp and hexflash tell it by their texts,
    /// too, as the file's own flags are often wrong.
    pub fn reference(&self, is_hidden: impl Fn(u32) -> bool) -> Result<Reference, String> {
        let words = self.pattern.as_deref().map(Regex::new).transpose().map_err(|e| e.to_string())?;
        let mut reference = TokenizerBuilder::new()
            .with_model(self.whole.get_model().clone())
            .with_normalizer(self.whole.get_normalizer().cloned())
            .with_pre_tokenizer(Some(Words(words)))
            .with_post_processor(self.whole.get_post_processor().cloned())
            .with_decoder(self.whole.get_decoder().cloned())
            .build()
            .map_err(|e| e.to_string())?;
        let mut added: Vec<(u32, AddedToken)> = self.whole.get_added_tokens_decoder().into_iter().collect();
        added.sort_by_key(|(id, _)| *id);
        for (id, token) in &mut added {
            token.special = is_hidden(*id);
        }
        let tokens: Vec<AddedToken> = added.iter().map(|(_, token)| token.clone()).collect();
        reference.add_tokens(tokens).map_err(|e| e.to_string())?;
        match added.iter().find(|(id, token)| reference.token_to_id(&token.content) != Some(*id)) {
            None => Ok(reference),
            Some((id, token)) => Err(format!("{:?} should be token {id}", token.content)),
        }
    }

    /// Whether tokens are plain text with U+2581 for blanks.
    pub fn is_plain(&self) -> bool {
        self.vocabulary.model != "gpt2"
    }

    /// A text as the file's normalizer composes it, if it does.
    pub fn composed(&self, text: &str) -> Result<String, String> {
        let mut text = NormalizedString::from(text);
        if let Some(normalizer) = self.whole.get_normalizer().filter(|_| self.composes) {
            normalizer.normalize(&mut text).map_err(|e| e.to_string())?;
        }
        Ok(text.get().to_owned())
    }
}

/// The library's ids; with `special`, hidden tokens in the text are read as such.
pub fn ids(reference: &mut Reference, text: &str, special: bool) -> Result<Vec<u32>, String> {
    reference.set_encode_special_tokens(!special);
    let encoding = reference.encode_fast(text, false).map_err(|e| e.to_string())?;
    Ok(encoding.get_ids().to_vec())
}

/// Entries of a list, each of which must have what `of` finds.
fn each<T>(list: &Value, of: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>, String> {
    let list = list.as_array().ok_or("tokenizer.json lacks a list")?;
    let entry = |value| of(value).ok_or_else(|| format!("tokenizer.json has an entry {value}"));
    list.iter().map(entry).collect()
}

/// The GGUF vocabulary that a converter makes of the file.
fn vocabulary(json: &Value, named: &str) -> Result<Vocabulary, String> {
    let known = json["model"]["vocab"].as_object().ok_or("tokenizer.json lacks a vocabulary")?;
    let mut texts: HashMap<u64, (String, i32)> = HashMap::new();
    let is_plain = matches!(named, "llama" | "gemma4");
    for (text, id) in known {
        let kind = if is_plain && is_byte(text) { BYTE } else { NORMAL };
        texts.insert(id.as_u64().ok_or("an id is no number")?, (text.clone(), kind));
    }
    let unknown = json["model"]["unk_token"].as_str();
    let added = each(&json["added_tokens"], |token| {
        Some((token["id"].as_u64()?, token["content"].as_str()?.to_owned(), token["special"].as_bool()?))
    })?;
    for (id, text, special) in added {
        // Converters go by the look, too.
        let looks_special = text.starts_with("<|") && text.ends_with("|>");
        let kind = if Some(text.as_str()) == unknown {
            UNKNOWN
        } else if special || looks_special {
            CONTROL
        } else if named == "gemma4" && text.contains('\u{2581}') {
            // Runs of blanks, which the merges give.
            NORMAL
        } else {
            USER_DEFINED
        };
        // SentencePiece's are compared with the text itself, which has blanks.
        let text =
            if named == "llama" && kind == USER_DEFINED { text.replace('\u{2581}', " ") } else { text };
        texts.insert(id, (text, kind));
    }
    let merges = each(&json["model"]["merges"], |merge| match merge {
        Value::String(merge) => Some(merge.clone()),
        merge => Some(format!("{} {}", merge[0].as_str()?, merge[1].as_str()?)),
    })?;
    let (tokens, types): (Vec<_>, Vec<_>) = (0..texts.len() as u64)
        .map(|id| texts.remove(&id).ok_or_else(|| format!("no token has id {id}")))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let (model, pre) = match named {
        "llama" => ("llama", "default"),
        "gemma4" => ("gemma4", "gemma4"),
        pre => (
            "gpt2",
            hexflash::tokenizer::PreTokenizer::names()
                .find(|name| *name == pre)
                .ok_or("hexflash knows no such name")?,
        ),
    };
    let mut vocabulary = Vocabulary { model, pre, tokens, types, ..Vocabulary::default() };
    if model == "llama" {
        vocabulary.scores = scores(&vocabulary, &merges)?;
        vocabulary.more.push(("add_space_prefix", false.into()));
    } else {
        vocabulary.merges = merges;
    }
    // Texts are encoded without it; these vocabularies want one to exist.
    let bos = vocabulary.types.iter().position(|kind| *kind == CONTROL).ok_or("no token is special")? as u32;
    vocabulary.more.extend([("bos_token_id", bos.into()), ("eos_token_id", bos.into())]);
    Ok(vocabulary)
}

/// Whether a token stands for a single byte.
fn is_byte(text: &str) -> bool {
    text.len() == 6 && text.starts_with("<0x") && text.ends_with('>')
}

/// SentencePiece's scores. The library's merges were made of them: all that give a token have its rank, and a
/// token with a higher score comes first. Tokens that their makers added are cut out of texts before.
fn scores(vocabulary: &Vocabulary, merges: &[String]) -> Result<Vec<f32>, String> {
    let kinds = vocabulary.tokens.iter().zip(&vocabulary.types);
    let normal: HashSet<_> = kinds.filter(|(_, kind)| **kind == NORMAL).map(|(text, _)| text).collect();
    let mut ranks: HashMap<String, usize> = HashMap::new();
    let mut last = String::new();
    // The blank between the parts is the only one.
    for text in merges.iter().map(|merge| merge.replacen(' ', "", 1)).filter(|text| normal.contains(text)) {
        let rank = ranks.len();
        if text != last && ranks.insert(text.clone(), rank).is_some() {
            return Err(format!("the merges that give {text:?} are apart: these are no ranks of scores"));
        }
        last = text;
    }
    let rank = |token| ranks.get(token).copied().unwrap_or(ranks.len());
    Ok(vocabulary.tokens.iter().map(|token| -(rank(token) as f32)).collect())
}
