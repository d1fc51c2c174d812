//! The text side of a model file: tokenizer, chat template and recommended sampling, from GGUF metadata.

use std::sync::Arc;

use crate::chat::{ChatError, ChatTemplate, Message, RenderOptions};
use crate::gguf::{Array, Gguf, GgufError, Metadata, Value};
use crate::sampler::{SamplerError, SamplerParams};
use crate::tokenizer::{Tokenizer, TokenizerError, TokenizerSpec};

/// Tokenizer and templates of a model.
pub struct TextModel {
    /// The tokenizer, which generations share.
    pub tokenizer: Arc<Tokenizer>,
    /// Source of the chat template, if the file has one.
    pub chat_template: Option<String>,
    /// Sampling defaults: the model's own where it recommends some.
    pub sampling: SamplerParams,
}

/// Metadata that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file itself, or a missing key.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// Sampling settings.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// A conversation with a model whose file has no template for it.
    #[error("the model has no chat template; name one, such as hexflash::text::CHATML")]
    NoChatTemplate,
}

/// The template of models that come without one, when the user asks for it by name.
pub const CHATML: &str = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}";

impl TextModel {
    /// Reads the text side of a model file.
    ///
    /// # Errors
    /// A key is missing or wrong, or the tokenizer is of a kind that hexflash does not know.
    pub fn read(gguf: &Gguf) -> Result<Self, TextError> {
        let meta = gguf.meta();
        let id = |name: &str| meta.u32_opt(&format!("tokenizer.ggml.{name}_token_id"));
        let add_bos = meta.bool_opt("tokenizer.ggml.add_bos_token")?;
        let spec = TokenizerSpec {
            model: meta.require_str("tokenizer.ggml.model")?,
            pre: meta.str_opt("tokenizer.ggml.pre")?.unwrap_or("default"),
            tokens: meta.require_strings("tokenizer.ggml.tokens")?.iter().collect(),
            token_types: meta.array_i32("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: meta.strings("tokenizer.ggml.merges")?.map(|m| m.iter().collect()).unwrap_or_default(),
            scores: scores(meta)?,
            add_space_prefix: meta.bool_opt("tokenizer.ggml.add_space_prefix")?,
            bos: id("bos")?,
            eos: id("eos")?,
            eot: id("eot")?,
            eom: id("eom")?,
            unk: id("unknown")?,
            pad: id("padding")?,
            mask: id("mask")?,
            fim_pre: id("fim_pre")?.or(id("prefix")?),
            fim_suf: id("fim_suf")?.or(id("suffix")?),
            fim_mid: id("fim_mid")?.or(id("middle")?),
            fim_rep: id("fim_rep")?,
            fim_sep: id("fim_sep")?,
            // Behind each of these lies another file.
            extra_eog: [id("fim_pad")?, id("fim_rep")?, id("fim_sep")?].into_iter().flatten().collect(),
            add_bos,
            add_eos: meta.bool_or("tokenizer.ggml.add_eos_token", false)?,
        };
        Ok(Self {
            tokenizer: Arc::new(Tokenizer::new(&spec)?),
            chat_template: meta.str_opt("tokenizer.chat_template")?.map(str::to_owned),
            sampling: SamplerParams::with_defaults_from(|key| meta.number_opt(key).map_err(TextError::from))?,
        })
    }

    /// A prompt's tokens; special tokens are recognised by their text.
    ///
    /// # Errors
    /// The text cannot be split.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, TextError> {
        Ok(self.tokenizer.encode(prompt, true, true)?)
    }

    /// The tokens of a conversation in the chat format of the template `source`.
    ///
    /// # Errors
    /// The template does not compile, or refuses the messages.
    pub fn encode_chat(
        &self,
        source: &str,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Vec<u32>, TextError> {
        Ok(self.tokenizer.encode_prompt(&self.render_chat(source, messages, options)?)?)
    }

    /// The text of a conversation in the chat format of the template `source`.
    ///
    /// # Errors
    /// The template does not compile, or refuses the messages.
    pub fn render_chat(
        &self,
        source: &str,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        Ok(self.template(source)?.render(messages, options)?)
    }

    /// The chat template `source`, with this model's special tokens.
    ///
    /// # Errors
    /// It does not compile.
    pub fn template(&self, source: &str) -> Result<ChatTemplate, TextError> {
        let special = self.tokenizer.special_ids();
        let text = |id: Option<u32>| {
            let bytes = id.and_then(|id| self.tokenizer.token_bytes(id).ok()).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        Ok(ChatTemplate::new(source, &text(special.bos), &text(special.eos))?)
    }
}

/// The scores of tokens: floats, or whole numbers in the files of some converters.
fn scores(meta: &Metadata) -> Result<Vec<f32>, GgufError> {
    let key = "tokenizer.ggml.scores";
    match meta.get(key) {
        Some(Value::Array(Array::I32(scores))) => Ok(scores.iter().map(|&score| score as f32).collect()),
        _ => Ok(meta.array_f32(key)?.unwrap_or_default()),
    }
}
