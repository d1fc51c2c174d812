//! The short way: a model with its text side on a device, completions and conversations.

use std::path::{Path, PathBuf};

use crate::chat::{Message, RenderOptions};
use crate::device::{Device, DeviceOptions};
use crate::engine::{self, Engine, EngineOptions, ModelFiles, ModelFit, open_device};
use crate::error::Error;
use crate::generate::{Event, Generated, Generation, Limits, Request};
use crate::gguf::Gguf;
use crate::model;
#[cfg(feature = "pictures")]
use crate::picture::{self, EncodedPicture, Layout, Picture};
use crate::sampler::{Sampler, SamplerOverrides, SamplerParams};
use crate::speculation::{DraftLength, DraftSource, Drafter, NGram, NGramPool, Speculation};
use crate::text::{TextError, TextModel};
use crate::weights::{CachePolicy, ImageOptions};

/// How a [`Model`] is opened. By default: on this machine's own processor, with drafts if the model's file
/// has a head for them, with the model's own sampling.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Name of the device: see [`DEVICES`](crate::device::DEVICES).
    pub device: String,
    /// Its settings.
    pub device_options: DeviceOptions,
    /// Context length and batch size.
    pub engine: EngineOptions,
    /// Where repacked weights are kept.
    pub cache: CachePolicy,
    /// Who drafts.
    pub drafts: Drafts,
    /// An encoder of pictures for the model (mmproj), if there is one. There are no drafts of a model then.
    pub encoder: Option<PathBuf>,
    /// How many tokens are drafted at once.
    pub draft_length: DraftLength,
    /// What is sampled otherwise than the model recommends.
    pub sampling: SamplerOverrides,
}

/// Who drafts. The text is the same in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Drafts {
    /// There are no drafts: plain decoding.
    None,
    /// The head for multi-token prediction (MTP) in the model's own file, if there is one.
    #[default]
    Own,
    /// A draft model in a file of its own: DFlash, DSpark, a Gemma 4 assistant, or an MTP head.
    Model(PathBuf),
    /// The text itself: what followed the same tokens before.
    NGrams,
    /// The draft model of a file of its own or, without one, the head in the model's own file if it has one;
    /// and n-grams that learn from all texts. For each block the one drafts whose drafts are worth most.
    Best(Option<PathBuf>),
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            device: "inproc".to_owned(),
            device_options: DeviceOptions::default(),
            engine: EngineOptions::default(),
            cache: CachePolicy::default(),
            drafts: Drafts::default(),
            encoder: None,
            draft_length: DraftLength::Auto,
            sampling: SamplerOverrides::default(),
        }
    }
}

impl ModelOptions {
    /// On another device: see [`DEVICES`](crate::device::DEVICES).
    #[must_use]
    pub fn device(self, name: impl Into<String>) -> Self {
        Self { device: name.into(), ..self }
    }

    /// With so many threads of the device for kernels; without it, as many as the device has.
    #[must_use]
    pub fn threads(mut self, n: usize) -> Self {
        self.device_options.threads = Some(n);
        self
    }

    /// With a draft model.
    #[must_use]
    pub fn draft(self, path: impl Into<PathBuf>) -> Self {
        Self { drafts: Drafts::Model(path.into()), ..self }
    }

    /// With an encoder of pictures (mmproj).
    #[must_use]
    pub fn encoder(self, path: impl Into<PathBuf>) -> Self {
        Self { encoder: Some(path.into()), ..self }
    }

    /// With room for `n` tokens; 0 for as many as the model was trained for.
    #[must_use]
    pub fn context(self, n: u32) -> Self {
        let engine = EngineOptions { n_ctx: Some(n), ..self.engine };
        Self { engine, ..self }
    }

    /// With room for `n` texts at once, each with a context of its own; the facade uses the first.
    #[must_use]
    pub fn sequences(self, n: u32) -> Self {
        let engine = EngineOptions { sequences: n, ..self.engine };
        Self { engine, ..self }
    }

    /// Sampled at this temperature; 0 always takes the best token.
    #[must_use]
    pub fn temperature(self, temperature: f32) -> Self {
        let sampling = SamplerOverrides { temperature: Some(temperature), ..self.sampling };
        Self { sampling, ..self }
    }

    /// Sampled from this seed; without one, each text draws its own.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let sampling = SamplerOverrides { seed: Some(seed), ..self.sampling };
        Self { sampling, ..self }
    }

    /// Opens the model of a GGUF file; of a sharded one, the first.
    ///
    /// # Errors
    /// The file, the draft or a setting cannot be used, or the device has no room.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        let gguf = Gguf::open(path.as_ref())?;
        // Before the tokenizer, which differs where the architecture does: the cause is named, not its
        // consequence.
        model::read(&gguf)?;
        let text = TextModel::read(&gguf)?;
        let sampling = text.sampling.clone().overridden_by(&self.sampling);
        // Refused now rather than with the first text.
        Sampler::new(sampling.clone())?;
        let (draft, drafters) = self.find_drafters(&gguf)?;
        let options = self.engine_options(&drafters);
        let image = ImageOptions { cache: self.cache.clone(), ..ImageOptions::default() };
        let encoder = self.encoder.as_deref().map(Gguf::open).transpose()?;
        let files = ModelFiles::of(&gguf).with_draft(draft.as_ref()).with_encoder(encoder.as_ref());
        let device = open_device(&self.device, &self.device_options, files, &options)?;
        let engine = Engine::load_files(files, device, &options, &image)?;
        let speculation = drafters.speculation();
        Ok(Model { text, engine, sampling, drafters, speculation })
    }

    /// Opens a file for something else than texts: asks for a device with the `settings` for its model, and
    /// loads the model onto that.
    ///
    /// # Errors
    /// The file or a setting cannot be used; those of `settings` and of `load`.
    pub(crate) fn open_as<T>(
        &self,
        path: &Path,
        settings: impl FnOnce(&Gguf, &EngineOptions) -> Result<EngineOptions, Error>,
        load: impl FnOnce(&Gguf, Box<dyn Device>, &EngineOptions, &ImageOptions<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let gguf = Gguf::open(path)?;
        let engine = settings(&gguf, &self.engine)?;
        let image = ImageOptions { cache: self.cache.clone(), ..ImageOptions::default() };
        let device = open_device(&self.device, &self.device_options, ModelFiles::of(&gguf), &engine)?;
        load(&gguf, device, &engine, &image)
    }

    /// How the model of a file would fit each version of the Hexagon NPU, opened with these options. No
    /// weight is read, and no device is asked.
    ///
    /// # Errors
    /// The file, the draft or a setting cannot be used.
    pub fn fit(&self, path: impl AsRef<Path>) -> Result<ModelFit, Error> {
        let gguf = Gguf::open(path.as_ref())?;
        let (draft, drafters) = self.find_drafters(&gguf)?;
        let encoder = self.encoder.as_deref().map(Gguf::open).transpose()?;
        let files = ModelFiles::of(&gguf).with_draft(draft.as_ref()).with_encoder(encoder.as_ref());
        Ok(engine::fit(files, &self.engine_options(&drafters))?)
    }

    /// The draft model for a target, if one drafts, and all drafters.
    fn find_drafters(&self, gguf: &Gguf) -> Result<(Option<Gguf>, Drafters), Error> {
        let head = || (self.encoder.is_none() && model::has_mtp_head(gguf)).then(|| gguf.path());
        let (draft, hosts) = match &self.drafts {
            Drafts::None => (None, Hosts::None),
            Drafts::Own => (head(), Hosts::None),
            Drafts::Model(path) => (Some(path.as_path()), Hosts::None),
            Drafts::NGrams => (None, Hosts::NGrams),
            Drafts::Best(path) => (path.as_deref().or_else(head), Hosts::Pool(NGramPool::new())),
        };
        let drafters = Drafters { model: draft.is_some(), hosts, length: self.draft_length };
        Ok((draft.map(Gguf::open).transpose()?, drafters))
    }

    /// Settings of the engine, with room for what is drafted.
    fn engine_options(&self, drafters: &Drafters) -> EngineOptions {
        let speculate = self.engine.speculate || drafters.speculation().is_on();
        EngineOptions { speculate, ..self.engine.clone() }
    }
}

/// Drafters of a model that is open.
struct Drafters {
    /// Whether the engine's draft model drafts.
    model: bool,
    hosts: Hosts,
    length: DraftLength,
}

/// Drafters that need no device.
enum Hosts {
    None,
    NGrams,
    /// N-grams that learn from all texts.
    Pool(NGramPool),
}

impl Drafters {
    /// Speculation by them, from its beginning.
    fn speculation(&self) -> Speculation {
        let hosts: Vec<Box<dyn Drafter>> = match &self.hosts {
            Hosts::None => Vec::new(),
            Hosts::NGrams => vec![Box::new(NGram::default())],
            Hosts::Pool(pool) => vec![Box::new(pool.drafter())],
        };
        Speculation::new(DraftSource::Several { model: self.model, hosts }, self.length)
    }
}

/// A model on a device, ready to write.
pub struct Model {
    text: TextModel,
    engine: Engine,
    sampling: SamplerParams,
    drafters: Drafters,
    speculation: Speculation,
}

impl Model {
    /// Opens a model as [`ModelOptions::default`] says.
    ///
    /// # Errors
    /// As [`ModelOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        ModelOptions::default().open(path)
    }

    /// What happened while loading that users should know.
    pub fn warnings(&self) -> &[String] {
        self.engine.warnings()
    }

    /// Tokenizer, chat template and recommended sampling.
    pub fn text(&self) -> &TextModel {
        &self.text
    }

    /// The engine, for what is not here. A completion forgets what it has in its context.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Sampling of the texts: the model's own, with what the [options](ModelOptions::sampling) change.
    pub fn sampling(&self) -> &SamplerParams {
        &self.sampling
    }

    /// Speculation as the [options](ModelOptions::drafts) say, from its beginning: for a
    /// [request](Request::speculation) to the [engine](Self::engine). Texts of a sequence hand it on, each to
    /// the next.
    pub fn speculation(&self) -> Speculation {
        self.drafters.speculation()
    }

    /// Goes on with a text, from an empty context.
    ///
    /// # Errors
    /// The prompt cannot be split into tokens.
    pub fn complete(&mut self, prompt: &str, limits: Limits) -> Result<Answer<'_>, Error> {
        let prompt = self.text.encode(prompt)?;
        self.engine.reset();
        self.answer(prompt, limits, None)
    }

    /// Encodes a picture: the bytes of a [file](crate::picture::Picture::decode).
    ///
    /// # Errors
    /// The picture cannot be used, the model was opened without an [encoder](ModelOptions::encoder), or the
    /// device failed.
    #[cfg(feature = "pictures")]
    pub fn picture(&mut self, bytes: &[u8]) -> Result<EncodedPicture, Error> {
        let encoder = self.engine.require_encoder()?;
        let layout = Layout::new(&Picture::decode(bytes)?, encoder)?;
        EncodedPicture::new(&mut self.engine, &self.text.tokenizer, &layout, |_, _| ())
    }

    /// Goes on with a text in which pictures are, from an empty context. They are where the text has a
    /// [marker](crate::picture::MARKER), or before it if it has none.
    ///
    /// # Errors
    /// The prompt cannot be split into tokens, or has another number of markers than there are pictures.
    #[cfg(feature = "pictures")]
    pub fn complete_with(
        &mut self,
        pictures: &[EncodedPicture],
        prompt: &str,
        limits: Limits,
    ) -> Result<Answer<'_>, Error> {
        let prompt = picture::placed(prompt, pictures.len())?;
        let prompt = picture::text(&self.text.tokenizer, &prompt, pictures)?;
        self.engine.reset();
        self.answer(prompt, limits, None)
    }

    /// A conversation in the format of the model's own chat template.
    ///
    /// # Errors
    /// [`TextError::NoChatTemplate`]: it has none.
    pub fn chat(&mut self) -> Result<Chat<'_>, Error> {
        let template = self.text.chat_template.clone().ok_or(TextError::NoChatTemplate)?;
        Ok(self.chat_with(template))
    }

    /// A conversation in the format of a chat template (Jinja), such as [`CHATML`](crate::text::CHATML).
    pub fn chat_with(&mut self, template: impl Into<String>) -> Chat<'_> {
        Chat {
            model: self,
            template: template.into(),
            messages: Vec::new(),
            options: RenderOptions::for_answer(),
            #[cfg(feature = "pictures")]
            pictures: Vec::new(),
        }
    }

    /// A text after `prompt`, which follows what the context holds.
    fn answer<'m>(
        &'m mut self,
        prompt: Vec<u32>,
        limits: Limits,
        messages: Option<&'m mut Vec<Message>>,
    ) -> Result<Answer<'m>, Error> {
        let mut sampler = Sampler::new(self.sampling.clone())?;
        for &token in self.engine.history() {
            sampler.accept(token);
        }
        let speculation = std::mem::replace(&mut self.speculation, Speculation::off());
        let request = Request::new(prompt, sampler).limits(limits).speculation(speculation);
        let generation = Generation::new(self.text.tokenizer.clone(), request);
        Ok(Answer { model: self, messages, generation, failed: false })
    }
}

/// A text as it comes: an iterator over pieces. Nothing is computed before the first piece is asked for;
/// dropping it ends the text after the step under way.
///
/// A [`Generation`] has more to say: progress and tokens, and it allocates nothing for each piece.
pub struct Answer<'m> {
    model: &'m mut Model,
    /// Where the answer goes when it ends.
    messages: Option<&'m mut Vec<Message>>,
    generation: Generation,
    /// The engine has lost its context.
    failed: bool,
}

impl Answer<'_> {
    /// Reads the rest and gives all of it, with what it took.
    ///
    /// # Errors
    /// As [`Generation::step`].
    pub fn finish(mut self) -> Result<Generated, Error> {
        loop {
            if let Event::Done(generated) = self.step()? {
                return Ok(generated.clone());
            }
        }
    }

    fn step(&mut self) -> Result<Event<'_>, Error> {
        let event = self.generation.step(&mut self.model.engine);
        self.failed |= event.is_err();
        Ok(event?)
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(Event::Prompt { .. } | Event::Text("")) => {}
                Ok(Event::Text(piece)) => return Some(Ok(piece.to_owned())),
                Ok(Event::Done(_)) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        // To its end, which is near: the context is to be that of the text.
        self.generation.cancel();
        while let Ok(Event::Prompt { .. } | Event::Text(_)) = self.step() {}
        if self.failed {
            self.model.engine.reset();
        }
        self.model.speculation = self.generation.take_speculation();
        if let Some(messages) = self.messages.take() {
            messages.push(Message::new("assistant", self.generation.text()));
        }
    }
}

/// A conversation. The context keeps its earlier turns: only what a turn adds is computed, unless the
/// template renders the earlier turns otherwise than they were written.
pub struct Chat<'m> {
    model: &'m mut Model,
    template: String,
    messages: Vec<Message>,
    options: RenderOptions,
    /// Pictures of all messages, in order.
    #[cfg(feature = "pictures")]
    pictures: Vec<EncodedPicture>,
}

impl Chat<'_> {
    /// Adds a message without asking for an answer, such as one of the role `system`.
    pub fn add(&mut self, role: impl Into<String>, content: impl Into<String>) {
        self.messages.push(Message::new(role, content));
    }

    /// What templates are given besides the messages: see [`RenderOptions::with`].
    pub fn options(&mut self) -> &mut RenderOptions {
        &mut self.options
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Says something as the user; the answer becomes part of the conversation when it ends.
    ///
    /// # Errors
    /// The template refuses the messages; then they are as they were.
    pub fn say(&mut self, content: impl Into<String>, limits: Limits) -> Result<Answer<'_>, Error> {
        self.messages.push(Message::new("user", content));
        match self.tokens() {
            Ok(tokens) => self.answer(&tokens, limits),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    /// Says something about pictures, otherwise as [`say`](Self::say). They are where the text has a
    /// [marker](crate::picture::MARKER), or before it if it has none.
    ///
    /// # Errors
    /// The template refuses the messages, or the text has another number of markers than there are pictures;
    /// then the conversation is as it was.
    #[cfg(feature = "pictures")]
    pub fn show(
        &mut self,
        pictures: &[EncodedPicture],
        content: &str,
        limits: Limits,
    ) -> Result<Answer<'_>, Error> {
        let content = picture::placed(content, pictures.len())?;
        let before = self.pictures.len();
        self.messages.push(Message::new("user", content));
        self.pictures.extend_from_slice(pictures);
        match self.tokens() {
            Ok(tokens) => self.answer(&tokens, limits),
            Err(error) => {
                self.messages.pop();
                self.pictures.truncate(before);
                Err(error)
            }
        }
    }

    /// The tokens of the conversation, rows of pictures among them.
    fn tokens(&self) -> Result<Vec<u32>, Error> {
        let text = &self.model.text;
        #[cfg(feature = "pictures")]
        if !self.pictures.is_empty() {
            let rendered = text.render_chat(&self.template, &self.messages, &self.options)?;
            return picture::prompt(&text.tokenizer, &rendered, &self.pictures);
        }
        Ok(text.encode_chat(&self.template, &self.messages, &self.options)?)
    }

    /// The answer to a conversation of these tokens.
    fn answer(&mut self, tokens: &[u32], limits: Limits) -> Result<Answer<'_>, Error> {
        // Hybrid models cannot forget the end of a text, so that the context must be the beginning of this
        // one.
        let known = self.model.engine.history();
        let known = if tokens.len() > known.len() && tokens.starts_with(known) { known.len() } else { 0 };
        if known == 0 {
            self.model.engine.reset();
        }
        self.model.answer(tokens[known..].to_vec(), limits, Some(&mut self.messages))
    }
}
