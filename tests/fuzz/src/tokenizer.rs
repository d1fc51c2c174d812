//! Tokenizers: text survives, and any vocabulary is refused or usable.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arbitrary::{Result, Unstructured};
use hexflash::gguf::Gguf;
use hexflash::text::TextModel;
use hexflash::tokenizer::{TokenStream, Tokenizer, TokenizerSpec};

/// The tokenizer of the model that ships with hexflash.
static SHIPPED: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-hybrid-q8_0.gguf");
    let model = Gguf::open(&path).expect("a shipped model");
    TextModel::read(&model).expect("its tokenizer").tokenizer
});

const PRE: [&str; 6] = ["qwen35", "qwen2", "llama-bpe", "gpt-4o", "deepseek-r1-qwen", "default"];

/// One byte says what follows: text for the shipped tokenizer, or a vocabulary and text for it.
pub fn check(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    if mode % 2 == 0 {
        survives(&SHIPPED, &String::from_utf8_lossy(rest), true);
    } else {
        // An input that ends too soon tells nothing.
        let _ = vocabulary(&mut Unstructured::new(rest));
    }
}

/// Text comes back whole where the vocabulary has every byte; nothing panics in any case.
fn survives(tokenizer: &Tokenizer, text: &str, whole: bool) {
    for parse_special in [false, true] {
        let Ok(ids) = tokenizer.encode(text, false, parse_special) else {
            assert!(!whole, "{text:?} cannot be encoded");
            continue;
        };
        let decoded = tokenizer.decode(&ids, false).expect("ids of the tokenizer itself");
        assert!(!whole || decoded == text, "{text:?} came back as {decoded:?}");
        let mut stream = TokenStream::new(tokenizer, false);
        let mut streamed: String = ids.iter().map(|&id| stream.push(id).expect("as above")).collect();
        streamed.push_str(&stream.finish());
        assert_eq!(streamed, decoded);
        let hidden = tokenizer.decode(&ids, true).expect("as above");
        assert!(hidden.len() <= decoded.len());
    }
    let _ = tokenizer.encode_prompt(text);
}

fn vocabulary(u: &mut Unstructured<'_>) -> Result<()> {
    let bytes = byte_tokens();
    let text = |u: &mut Unstructured<'_>| -> Result<String> {
        Ok(match u.int_in_range(0..=3)? {
            0 => String::from_utf8_lossy(u.bytes(1)?).into_owned(),
            1 => {
                ["<|im_end|>", "<0x41>", "</s>", "Ġa", " "][usize::from(u.int_in_range(0..=4u8)?)].to_owned()
            }
            2 => "ab".repeat(usize::from(u.int_in_range(0..=3u8)?)),
            _ => u.arbitrary::<&str>()?.chars().take(12).collect(),
        })
    };
    let texts = |u: &mut Unstructured<'_>, most: u8| -> Result<Vec<String>> {
        let n = u.int_in_range(0..=most)?;
        (0..n).map(|_| text(u)).collect()
    };
    let own = texts(u, 20)?;
    let whole = u.ratio(3, 4)?;
    let tokens: Vec<&str> = if whole {
        bytes.iter().chain(&own).map(String::as_str).collect()
    } else {
        own.iter().map(String::as_str).collect()
    };
    let merges: Vec<_> =
        texts(u, 12)?.into_iter().zip(texts(u, 12)?).map(|(a, b)| format!("{a} {b}")).collect();
    let mut spec = TokenizerSpec {
        model: "gpt2",
        pre: PRE[usize::from(u.int_in_range(0..=5u8)?)],
        merges: merges.iter().map(String::as_str).collect(),
        ..TokenizerSpec::default()
    };
    if u.arbitrary()? {
        let types = own.iter().map(|_| u.int_in_range(-1..=7)).collect::<Result<Vec<i32>>>()?;
        spec.token_types = vec![1; tokens.len() - own.len()];
        spec.token_types.extend(types);
    }
    let id = |u: &mut Unstructured<'_>| -> Result<Option<u32>> {
        Ok(if u.arbitrary()? { Some(u.int_in_range(0..=tokens.len() as u32)?) } else { None })
    };
    (spec.bos, spec.eos, spec.eot) = (id(u)?, id(u)?, id(u)?);
    spec.extra_eog = id(u)?.into_iter().collect();
    (spec.add_bos, spec.add_eos) = (u.arbitrary()?, u.arbitrary()?);
    if u.arbitrary()? {
        spec.model = "llama";
        spec.add_space_prefix = u.arbitrary()?;
        let score = |_| u.int_in_range(-8..=8).map(|score: i32| score as f32);
        spec.scores = (0..tokens.len()).map(score).collect::<Result<_>>()?;
    }
    spec.tokens = tokens;
    match Tokenizer::new(&spec) {
        Ok(tokenizer) => {
            let text = String::from_utf8_lossy(u.bytes(u.len()).unwrap_or_default()).into_owned();
            survives(&tokenizer, &text, false);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
    Ok(())
}

/// The byte alphabet in the order GPT-2 vocabularies list it.
fn byte_tokens() -> Vec<String> {
    let printable = |b: &u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let own = (0..=255u8).filter(printable).map(|b| char::from(b).to_string());
    let moved = (0x100..0x144).filter_map(|c| char::from_u32(c)).map(|c| c.to_string());
    own.chain(moved).collect()
}
