//! What all routes share: settings, scheduler, and the model once it is loaded.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use axum::extract::State;
use hexflash::engine::{Engine, MemoryPlan};
use hexflash::model::Encoder;
use hexflash::rerank::Pairs;
use hexflash::tokenizer::Tokenizer;
use tokio::sync::Semaphore;

use super::error::ApiError;
use crate::card::Card;
use crate::embeddings::Vectors;
use crate::grammar::{Grammar, Grammars};
use crate::options::Options;
use crate::scheduler::shared::Scheduler;
use crate::text::form::Form;

/// Requests that are prepared at once: parsed, rendered, split into tokens. More would take the processor
/// from the thread that steps the model; those that wait here cost nothing, and leave when their client does.
const WORKERS: usize = 4;

/// Longest text in bytes that is split into tokens to be told or counted: more than a context of a million
/// tokens holds. The slowest text is one word: see the test for the time it takes.
pub(super) const MAX_TEXT: usize = 4 << 20;

/// State that all routes share.
pub(crate) struct App {
    pub(super) options: Arc<Options>,
    pub(crate) scheduler: Arc<Scheduler>,
    model: OnceLock<Model>,
    pub(super) started: SystemTime,
    /// Texts whose vectors are wanted.
    pub(super) vectors: Vectors,
    /// Places for what takes the processor a while.
    workers: Arc<Semaphore>,
}

/// The model, once it is loaded.
pub(crate) struct Model {
    pub(super) card: Card,
    pub(super) n_ctx: usize,
    pub(super) n_ctx_train: u32,
    pub(super) n_vocab: u32,
    pub(super) n_embd: u32,
    pub(super) slots: usize,
    pub(super) speculates: bool,
    /// Kind of its answers.
    pub(super) makes: Makes,
    pub(super) memory: MemoryPlan,
    /// Encoder of pictures, if there is one.
    pub(super) encoder: Option<Encoder>,
    /// The device, in one line.
    pub(super) device: String,
    /// Bytes of the longest token.
    longest_token: usize,
    /// Made when first asked for.
    grammars: OnceLock<Result<Grammars, String>>,
}

/// Kind of what a model makes of texts.
pub(crate) enum Makes {
    /// It writes on.
    Texts,
    /// Their vectors.
    Vectors,
    /// Scores of queries and documents, which become texts in this way.
    Scores(Pairs),
}

impl App {
    pub(crate) fn new(options: Arc<Options>, scheduler: Arc<Scheduler>, vectors: Vectors) -> Self {
        let workers = Arc::new(Semaphore::new(WORKERS));
        Self { options, scheduler, model: OnceLock::new(), started: SystemTime::now(), vectors, workers }
    }

    /// The model is there.
    pub(crate) fn is_ready(&self, card: Card, engine: &Engine, makes: Makes) {
        let config = engine.config();
        let model = Model {
            n_ctx: engine.n_ctx() as usize,
            n_ctx_train: config.n_ctx_train,
            n_vocab: config.n_vocab,
            n_embd: config.n_embd,
            slots: engine.sequences().len(),
            speculates: engine.speculates(),
            makes,
            memory: engine.memory().clone(),
            encoder: engine.encoder().cloned(),
            device: engine.device().info().description.clone(),
            longest_token: longest_token(&card.text.tokenizer),
            grammars: OnceLock::new(),
            card,
        };
        // There is one model in the life of a server.
        let _ = self.model.set(model);
    }

    /// Facts that clients learn of the model, if it is loaded.
    pub(crate) fn card(&self) -> Option<&Card> {
        self.model.get().map(|model| &model.card)
    }

    /// Does what takes the processor a while, on a thread of its own, when it is its turn. What its client
    /// does not wait for is not begun. `what` is what it works at.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let failed = || ApiError::internal(what);
        let place = Arc::clone(&self.workers).acquire_owned().await.map_err(|_| failed())?;
        let done = tokio::task::spawn_blocking(move || {
            // The thread goes on when its client leaves, and keeps its place until it is done.
            let _place = place;
            work()
        });
        done.await.map_err(|_| failed())?
    }

    /// The model, if it is loaded and writes texts.
    pub(super) fn writer(&self) -> Result<&Model, ApiError> {
        let model = self.model()?;
        match model.makes {
            Makes::Texts => Ok(model),
            Makes::Vectors => Err(ApiError::not_supported(
                "this server makes vectors of texts; start it without --embeddings to have texts",
            )),
            Makes::Scores(_) => Err(ApiError::not_supported(
                "this server scores documents; start it without --reranking to have texts",
            )),
        }
    }

    /// The model, if it is loaded.
    pub(crate) fn model(&self) -> Result<&Model, ApiError> {
        self.model.get().ok_or_else(ApiError::loading)
    }
}

/// Bytes of the longest token.
fn longest_token(tokenizer: &Tokenizer) -> usize {
    let ids = 0..tokenizer.vocab_size() as u32;
    ids.filter_map(|id| tokenizer.token_bytes(id).ok()).map(<[u8]>::len).max().unwrap_or(0).max(1)
}

impl Model {
    /// That a prompt is not so long that its tokens need not be counted: that takes a second for a few
    /// million of them.
    ///
    /// # Errors
    /// It does not fit the context.
    pub(super) fn admit(&self, prompt: &str) -> Result<(), ApiError> {
        let least = prompt.len() / self.longest_token;
        if least < self.n_ctx { Ok(()) } else { Err(ApiError::too_long(least, self.n_ctx)) }
    }

    /// Compiles a form for the tokens of the model.
    pub(super) fn compile(&self, form: &Form) -> Result<Grammar, ApiError> {
        let grammars = || Grammars::new(Arc::clone(&self.card.text.tokenizer));
        Ok(form.compile(self.grammars.get_or_init(grammars))?)
    }
}

/// What handlers get beside the request.
pub(super) type Shared = State<Arc<App>>;
