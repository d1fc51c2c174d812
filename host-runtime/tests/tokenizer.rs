//! Tokenizer behaviour on small vocabularies made for each test.

use std::sync::LazyLock;

use hexflash::tokenizer::{TokenKind, TokenStream, Tokenizer, TokenizerError, TokenizerSpec};
use proptest::prelude::*;

/// The byte alphabet in the order GPT-2 vocabularies list it.
fn byte_tokens() -> Vec<String> {
    let printable = |b: &u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let own = (0..=255u8).filter(printable).map(|b| char::from(b).to_string());
    let moved = (0x100..0x144).map(|c| char::from_u32(c).unwrap().to_string());
    own.chain(moved).collect()
}

/// A vocabulary of all bytes, the results of `merges`, and special tokens with their types.
struct Vocabulary {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
}

impl Vocabulary {
    fn new(merges: &[&str], specials: &[(&str, i32)]) -> Self {
        let mut tokens = byte_tokens();
        tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
        let mut types = vec![1; tokens.len()];
        for (text, kind) in specials {
            tokens.push((*text).to_owned());
            types.push(*kind);
        }
        Self { tokens, types, merges: merges.iter().map(|m| (*m).to_owned()).collect() }
    }

    fn spec<'a>(&'a self, pre: &'a str) -> TokenizerSpec<'a> {
        TokenizerSpec {
            model: "gpt2",
            pre,
            tokens: self.tokens.iter().map(String::as_str).collect(),
            token_types: self.types.clone(),
            merges: self.merges.iter().map(String::as_str).collect(),
            add_bos: Some(false),
            ..Default::default()
        }
    }

    fn tokenizer(&self, pre: &str) -> Tokenizer {
        Tokenizer::new(&self.spec(pre)).unwrap()
    }
}

/// The texts of the tokens that `text` is encoded to.
fn pieces(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text, false, true).unwrap();
    ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap()).into_owned()).collect()
}

fn error(change: impl FnOnce(&mut TokenizerSpec<'_>)) -> TokenizerError {
    let vocabulary = Vocabulary::new(&["a b"], &[]);
    let mut spec = vocabulary.spec("qwen35");
    change(&mut spec);
    let error = Tokenizer::new(&spec).unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn merges_apply_by_rank_and_never_across_words() {
    let tokenizer = Vocabulary::new(&["b c", "a b", "a bc", "Ġ a"], &[]).tokenizer("qwen2");
    assert_eq!(pieces(&tokenizer, "abc ab a"), ["abc", " ", "ab", " a"]);
}

#[test]
fn the_best_rank_of_a_repeated_rule_counts() {
    let mut vocabulary = Vocabulary::new(&["a b", "b c"], &[]);
    vocabulary.merges.push("a b".to_owned());
    assert_eq!(pieces(&vocabulary.tokenizer("qwen2"), "abc"), ["ab", "c"]);
}

#[test]
fn pre_tokenizers_decide_what_can_merge() {
    let vocabulary = Vocabulary::new(&["1 2", "12 3", "e Ì", "eÌ ģ"], &[]);
    let split = |pre: &str, text: &str| pieces(&vocabulary.tokenizer(pre), text);
    assert_eq!(split("qwen35", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(split("llama3", "1234"), ["123", "4"]);
    assert_eq!(split("gpt-4o", "1234"), ["123", "4"]);
    assert_eq!(split("qwen35", "e\u{301}"), ["e\u{301}"], "the mark is part of the word");
    assert_eq!(split("deepseek-r1-qwen", "e\u{301}").len(), 3, "the mark is a word of its own");
}

#[test]
fn llama_takes_a_word_that_is_a_token_whole() {
    let mut vocabulary = Vocabulary::new(&["a b"], &[]);
    vocabulary.tokens.push("abc".to_owned());
    vocabulary.types.push(1);
    assert_eq!(pieces(&vocabulary.tokenizer("llama-bpe"), "abc"), ["abc"]);
    assert_eq!(pieces(&vocabulary.tokenizer("qwen2"), "abc"), ["ab", "c"]);
}

#[test]
fn smollm_cuts_digits_out_before_words() {
    let vocabulary = Vocabulary::new(&["1 2", "Ġ 1", "Ġ a"], &[]);
    assert_eq!(pieces(&vocabulary.tokenizer("smollm"), "12 1 a"), ["1", "2", " ", "1", " a"]);
    assert_eq!(pieces(&vocabulary.tokenizer("gpt-2"), "12 1 a"), ["12", " 1", " a"]);
}

#[test]
fn names_of_pre_tokenizers_say_what_else_is_usual() {
    let mut vocabulary = Vocabulary::new(&["a b"], &[("<s>", 3)]);
    vocabulary.tokens.push("abc".to_owned());
    vocabulary.types.push(1);
    for (pre, adds_bos, takes_whole) in [
        ("llama-bpe", true, true),
        ("falcon3", true, true),
        ("tekken", true, true),
        ("glm4", false, true),
        ("smaug-bpe", false, false),
        ("smollm", false, false),
    ] {
        let mut spec = vocabulary.spec(pre);
        (spec.bos, spec.add_bos) = (Some(257), None);
        let tokenizer = Tokenizer::new(&spec).unwrap();
        assert_eq!(
            (tokenizer.adds_bos(), pieces(&tokenizer, "abc") == ["abc"]),
            (adds_bos, takes_whole),
            "{pre}"
        );
    }
}

/// A vocabulary as SentencePiece makes them: roles, bytes, then pieces with falling scores.
fn sentence_pieces(pieces: &[&str]) -> Vocabulary {
    let roles = [("<unk>", 2), ("<s>", 3), ("</s>", 3)];
    let bytes = (0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), 6));
    let all = roles.map(|(text, kind)| (text.to_owned(), kind)).into_iter().chain(bytes);
    let (tokens, types) = all.chain(pieces.iter().map(|piece| ((*piece).to_owned(), 1))).unzip();
    Vocabulary { tokens, types, merges: Vec::new() }
}

impl Vocabulary {
    fn scored(&self) -> TokenizerSpec<'_> {
        let scores = (0..self.tokens.len()).map(|id| -(id.saturating_sub(258) as f32)).collect();
        TokenizerSpec { model: "llama", pre: "default", scores, add_bos: None, ..self.spec("") }
    }
}

#[test]
fn sentence_pieces_merge_by_score_and_bytes_stand_in_for_the_rest() {
    let vocabulary = sentence_pieces(&["▁a", "ab", "▁", "a", "b", "▁ab", "\n"]);
    let tokenizer = Tokenizer::new(&vocabulary.scored()).unwrap();
    assert_eq!(pieces(&tokenizer, "ab a"), [" ab", " a"]);
    assert_eq!(pieces(&tokenizer, "é\n"), [" ", "\u{fffd}", "\u{fffd}", "\n"]);
    let ids = tokenizer.encode("é\n", true, true).unwrap();
    assert_eq!(ids, [1, 261, 3 + 0xc3, 3 + 0xa9, 265], "BOS is usual");
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), " é\n");
    assert_eq!(tokenizer.encode("", true, true).unwrap(), [1]);
    assert!(tokenizer.eog().contains(2), "and </s> is usual");
    assert_eq!(tokenizer.id_of("▁ab"), Some(264));
    assert_eq!(tokenizer.special_ids().unk, Some(0));
}

#[test]
fn a_blank_goes_before_text_that_follows_nothing_or_a_special_token() {
    let mut vocabulary = sentence_pieces(&["▁a", "▁", "a"]);
    vocabulary.tokens.push("<x>".to_owned());
    vocabulary.types.push(4);
    let text = |prefix: Option<bool>, text: &str| {
        let mut spec = vocabulary.scored();
        (spec.add_bos, spec.add_space_prefix) = (Some(false), prefix);
        pieces(&Tokenizer::new(&spec).unwrap(), text)
    };
    assert_eq!(text(None, "a<x>a</s>a"), [" a", "<x>", " a", "</s>", " a"]);
    assert_eq!(text(Some(true), "a a"), [" a", " a"]);
    assert_eq!(text(Some(false), "a<x>a a"), ["a", "<x>", "a", " a"]);
    assert_eq!(text(None, " a"), [" ", " a"], "besides the blanks of the text");
}

#[test]
fn a_sentence_piece_vocabulary_without_bytes_refuses_what_it_cannot_say() {
    let vocabulary = Vocabulary { tokens: vec!["a".to_owned()], types: vec![1], merges: Vec::new() };
    let spec = TokenizerSpec { add_space_prefix: Some(false), add_bos: Some(false), ..vocabulary.scored() };
    let tokenizer = Tokenizer::new(&spec).unwrap();
    assert_eq!(tokenizer.special_ids().bos, None, "no such id");
    assert_eq!(tokenizer.encode("aa", true, true).unwrap(), [0, 0]);
    let error = tokenizer.encode("ab", true, true).unwrap_err();
    assert_eq!(error, TokenizerError::Unencodable { byte: b'b', word: "b".to_owned() });
    let spec = TokenizerSpec { add_bos: None, ..vocabulary.scored() };
    assert_eq!(Tokenizer::new(&spec).unwrap_err(), TokenizerError::MissingSpecial { role: "bos" });
}

#[test]
fn special_tokens_are_cut_out_first() {
    let vocabulary =
        Vocabulary::new(&["a b"], &[("<|im_end|>", 3), ("<tool>", 4), ("<|im_end|>x", 3), ("plain", 1)]);
    let tokenizer = vocabulary.tokenizer("qwen35");
    assert_eq!(pieces(&tokenizer, "ab<|im_end|>ab<tool>"), ["ab", "<|im_end|>", "ab", "<tool>"]);
    assert_eq!(pieces(&tokenizer, "<|im_end|>x"), ["<|im_end|>x"], "the longer one");
    assert_eq!(pieces(&tokenizer, "plain").len(), 5, "a normal token is reached by merges only");

    let unparsed = tokenizer.encode("<|im_end|><tool>", false, false).unwrap();
    assert_eq!(unparsed.len(), 11, "ten characters, and user defined tokens are always parsed");
    assert_eq!(tokenizer.decode(&unparsed, true).unwrap(), "<|im_end|><tool>");

    let parsed = tokenizer.encode("a<|im_end|>", false, true).unwrap();
    assert_eq!(tokenizer.decode(&parsed, true).unwrap(), "a");
    assert_eq!(tokenizer.decode(&parsed, false).unwrap(), "a<|im_end|>");
    assert!(tokenizer.eog().contains(parsed[1]));
    assert_eq!(tokenizer.kind(parsed[1]), Some(TokenKind::Control));
}

#[test]
fn bos_and_eos_are_added_on_request() {
    let vocabulary = Vocabulary::new(&[], &[("<s>", 3), ("</s>", 3)]);
    let mut spec = vocabulary.spec("llama-bpe");
    (spec.bos, spec.eos, spec.add_bos, spec.add_eos) = (Some(256), Some(257), None, true);
    let tokenizer = Tokenizer::new(&spec).unwrap();
    assert!(tokenizer.adds_bos(), "llama's rules when the file does not say");
    assert_eq!(tokenizer.encode("!", true, true).unwrap(), [256, 0, 257]);
    assert_eq!(tokenizer.encode("", true, true).unwrap(), [256, 257]);
    assert_eq!(tokenizer.encode("!", false, true).unwrap(), [0]);
    assert_eq!(tokenizer.encode_prompt("!").unwrap(), [256, 0]);
    assert_eq!(tokenizer.encode_prompt("<s>!").unwrap(), [256, 0], "the template's BOS is enough");
}

#[test]
fn unused_byte_and_empty_tokens_decode() {
    let mut vocabulary = Vocabulary::new(&[], &[("<0x41>", 6), ("[reserved]", 5), ("", 5), ("", 5)]);
    vocabulary.tokens.push("<0xzz>".to_owned());
    vocabulary.types.push(6);
    let tokenizer = vocabulary.tokenizer("qwen2");
    assert_eq!(tokenizer.decode(&[256, 257, 258, 259, 260], false).unwrap(), "A<0xzz>");
}

#[test]
fn a_stream_shows_whole_characters_only() {
    let tokenizer = Vocabulary::new(&[], &[("<|im_end|>", 3)]).tokenizer("qwen2");
    let ids = tokenizer.encode("é🦀<|im_end|>", false, true).unwrap();
    let mut stream = TokenStream::new(&tokenizer, true);
    let shown: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    assert_eq!(shown, ["", "é", "", "", "", "🦀", ""]);
    stream.push(ids[2]).unwrap();
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn hostile_vocabularies_are_refused() {
    use TokenizerError as E;
    assert!(matches!(error(|s| s.model = "t5"), E::UnsupportedModel { model } if model == "t5"));
    assert_eq!(error(|s| s.model = "llama"), E::ScoreCount { scores: 0, tokens: 257 });
    let score = |value: f32| {
        error(|s| {
            s.model = "llama";
            s.scores = vec![0.0; 257];
            s.scores[3] = value;
        })
    };
    assert_eq!(score(f32::NAN), E::Score { id: 3, found: "NaN".to_owned() });
    assert_eq!(score(f32::INFINITY), E::Score { id: 3, found: "inf".to_owned() });
    assert!(matches!(error(|s| s.pre = "x"), E::UnsupportedPre { pre } if pre == "x"));
    let empty = error(|s| {
        s.tokens.clear();
        s.token_types.clear();
    });
    assert_eq!(empty, E::EmptyVocabulary);
    let short = error(|s| {
        s.token_types.pop();
    });
    assert_eq!(short, E::TypeCount { types: 256, tokens: 257 });
    assert_eq!(error(|s| s.token_types[3] = 9), E::TokenType { id: 3, found: 9 });
    assert_eq!(error(|s| s.token_types[3] = -1), E::TokenType { id: 3, found: -1 });
    let twice = error(|s| s.tokens[1] = s.tokens[0]);
    assert_eq!(twice, E::DuplicateToken { text: "!".to_owned(), first: 0, second: 1 });
    for text in ["", "ab", " b", "a ", "a b c", " "] {
        let merge = error(|s| s.merges.push(text));
        assert_eq!(merge, E::MalformedMerge { index: 1, text: text.to_owned() });
    }
    for (rule, token) in [("a zz", "zz"), ("zz a", "zz"), ("a c", "ac")] {
        assert_eq!(error(|s| s.merges.push(rule)), E::UnknownMergeToken { token: token.to_owned() });
    }
    let range = |role| E::SpecialOutOfRange { role, id: 257, vocab: 257 };
    assert_eq!(error(|s| s.bos = Some(257)), range("bos"));
    assert_eq!(error(|s| s.mask = Some(257)), range("mask"));
    assert_eq!(error(|s| s.extra_eog = vec![257]), range("eog"));
    assert_eq!(error(|s| s.add_bos = Some(true)), E::MissingSpecial { role: "bos" });
    assert_eq!(error(|s| s.add_eos = true), E::MissingSpecial { role: "eos" });
}

#[test]
fn ids_and_bytes_outside_the_vocabulary_are_errors() {
    let mut vocabulary = Vocabulary::new(&[], &[]);
    let tokenizer = vocabulary.tokenizer("qwen2");
    let outside = TokenizerError::IdOutOfRange { id: 256, vocab: 256 };
    assert_eq!(tokenizer.decode(&[0, 256], false), Err(outside.clone()));
    assert_eq!(TokenStream::new(&tokenizer, false).push(256), Err(outside));

    vocabulary.tokens.retain(|token| token != "z");
    vocabulary.types.pop();
    let missing = vocabulary.tokenizer("qwen2").encode("a pizza", false, false).unwrap_err();
    assert_eq!(missing, TokenizerError::Unencodable { byte: b'z', word: " pizza".to_owned() });
}

/// One tokenizer for each pre-tokenizer, built once: compiling the patterns dominates small tests.
static EACH: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let vocabulary = Vocabulary::new(&["a b", "Ġ a", "Ġa b", "1 2", "Ã ©"], &[("<|im_end|>", 3), ("<t>", 4)]);
    ["qwen35", "qwen2", "llama-bpe", "gpt-4o", "tekken", "gpt-2", "smollm"]
        .map(|pre| vocabulary.tokenizer(pre))
        .into()
});

proptest! {
    #[test]
    fn text_survives_encoding(text in prop_oneof![any::<String>(), "([ab12é <|>\n]|<t>|<\\|im_end\\|>){0,20}"]) {
        for tokenizer in EACH.iter() {
            for parse_special in [false, true] {
                let ids = tokenizer.encode(&text, false, parse_special).unwrap();
                prop_assert_eq!(&tokenizer.decode(&ids, false).unwrap(), &text);
            }
        }
    }
}

#[test]
fn a_server_can_share_what_is_loaded() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<hexflash::chat::ChatTemplate>();
    shared::<hexflash::sampler::Sampler>();
}
