//! The model that is served: its engine, and what routes tell of it.

use std::path::PathBuf;

use hexflash::Error;
use hexflash::chat::ChatTemplate;
use hexflash::embed::Embedder;
use hexflash::engine::Engine;
use hexflash::gguf::Gguf;
use hexflash::rerank::Reranker;
use hexflash::speculation::Speculation;
use hexflash::text::{TextError, TextModel};
use serde_json::{Map, Value};

use crate::text::family::Family;

/// A model, ready to be served.
pub struct Served {
    /// Facts that clients learn of it.
    pub card: Card,
    /// Work that it does.
    pub work: Work,
}

/// Work of a server: it writes texts, makes vectors of them, or scores them.
pub enum Work {
    /// Texts are written.
    Texts {
        /// The engine, with as many sequences as requests are to run at once.
        engine: Engine,
        /// Makes the speculation of each request.
        drafts: Box<dyn Fn() -> Speculation + Send>,
    },
    /// Vectors are made (`--embeddings`).
    Vectors(Embedder),
    /// Documents are scored (`--reranking`).
    Scores(Reranker),
}

impl Served {
    /// A model that writes texts: `drafts` makes the speculation of each request.
    pub fn texts(card: Card, engine: Engine, drafts: impl Fn() -> Speculation + Send + 'static) -> Self {
        Self { card, work: Work::Texts { engine, drafts: Box::new(drafts) } }
    }
}

/// What clients learn of a model, and what texts of it need.
pub struct Card {
    /// Name in answers.
    pub alias: String,
    /// All names of it, for the list of models; none are needed.
    pub aliases: Vec<String>,
    /// Words about it, for the list of models.
    pub tags: Vec<String>,
    /// File of the model.
    pub path: PathBuf,
    /// Tokenizer and recommended sampling.
    pub text: TextModel,
    /// The chat template that is used, if there is one, and its source.
    pub(crate) template: Option<(ChatTemplate, String)>,
    /// How the model writes calls, if the template tells.
    pub(crate) family: Option<Family>,
    /// Arguments of the chat template that requests can replace.
    pub template_args: Map<String, Value>,
    /// Numbers in its tensors.
    pub(crate) n_params: u64,
    /// Bytes of its tensors.
    pub(crate) bytes: u64,
    /// `general.file_type` by number, if the file says.
    pub(crate) file_type: Option<u32>,
    /// `general.architecture`.
    pub(crate) arch: String,
    /// `general.name`, if the file says.
    pub(crate) name: Option<String>,
}

impl Card {
    /// The card of a model file, with its own chat template if it has one.
    ///
    /// # Errors
    /// Its text side cannot be used.
    pub fn read(gguf: &Gguf) -> Result<Self, Error> {
        let text = TextModel::read(gguf)?;
        let path = gguf.path().to_owned();
        let meta = gguf.meta();
        let mut card = Self {
            alias: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            aliases: Vec::new(),
            tags: Vec::new(),
            path,
            template: None,
            family: None,
            template_args: Map::new(),
            n_params: gguf.tensors().map(|tensor| tensor.elements()).sum(),
            bytes: gguf.tensors().map(|tensor| tensor.size).sum(),
            file_type: meta.u32_opt("general.file_type").ok().flatten(),
            arch: meta.str_opt("general.architecture").ok().flatten().unwrap_or_default().to_owned(),
            name: meta.str_opt("general.name").ok().flatten().map(str::to_owned),
            text,
        };
        if let Some(source) = card.text.chat_template.clone() {
            // Who never asks for a chat can do with a template that does not compile.
            if let Err(error) = card.set_template(source) {
                tracing::warn!("the model's chat template cannot be used: {error}");
            }
        }
        Ok(card)
    }

    /// Uses another chat template than the model's.
    ///
    /// # Errors
    /// It does not compile.
    pub fn set_template(&mut self, source: String) -> Result<(), TextError> {
        let template = self.text.template(&source)?;
        self.family = Family::of(&source);
        self.template = Some((template, source));
        Ok(())
    }

    /// The source of the chat template; empty if there is none.
    pub(crate) fn template_source(&self) -> &str {
        self.template.as_ref().map_or("", |(_, source)| source)
    }

    /// How the model writes calls.
    pub(crate) fn calls(&self) -> Family {
        Family::of_model(self.family, self.template_source())
    }
}
