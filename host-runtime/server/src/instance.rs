//! A model with the thread that runs it, from before it is loaded to its end.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hexflash::embed::Norm;
use hexflash::engine::Engine;
use tokio::sync::oneshot;

use crate::card::{Card, Served, Work};
use crate::embeddings;
use crate::http::app::{App, Makes};
use crate::options::Options;
use crate::scheduler::shared::Scheduler;
use crate::scheduler::worker::Worker;

/// A model and its thread. `E` is why there is no model.
pub(crate) struct Instance<E> {
    app: Arc<App>,
    thread: JoinHandle<Result<(), E>>,
    /// Channel whose end, in whatever way, is that of the thread.
    ended: Option<oneshot::Receiver<()>>,
}

/// The thread of an instance has ended by a bug.
#[derive(Debug)]
pub(crate) struct Panicked;

impl<E: Send + 'static> Instance<E> {
    /// Starts the thread: it loads the model, tells `ready` of it, and answers requests until the scheduler
    /// is closed and all is done.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start(
        options: &Arc<Options>,
        load: impl FnOnce() -> Result<Served, E> + Send + 'static,
        ready: impl FnOnce(&Card, &Engine) + Send + 'static,
    ) -> io::Result<Self> {
        let scheduler = Arc::new(Scheduler::new(options.queue));
        let (vectors, texts) = embeddings::queue(options.queue);
        let app = Arc::new(App::new(Arc::clone(options), Arc::clone(&scheduler), vectors));
        let (alive, ended) = oneshot::channel::<()>();
        let (known, timeout, cache_ram) = (Arc::clone(&app), options.timeout, options.cache_ram);
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(move || {
            let _alive = alive;
            let Served { card, work } = load()?;
            let tokenizer = Arc::clone(&card.text.tokenizer);
            let tell = |card, engine: &Engine, makes| {
                known.is_ready(card, engine, makes);
                if let Some(card) = known.card() {
                    ready(card, engine);
                }
            };
            match work {
                Work::Texts { engine, drafts } => {
                    let worker = Worker::new(scheduler, engine, tokenizer, drafts, timeout, cache_ram);
                    tell(card, worker.engine(), Makes::Texts);
                    worker.run();
                }
                Work::Vectors(mut embedder) => {
                    tell(card, embedder.engine(), Makes::Vectors);
                    let vector = |text: &[u32]| {
                        let mut vector = embedder.embed_tokens(text)?;
                        Norm::EUCLIDEAN.apply(&mut vector);
                        Ok(vector)
                    };
                    embeddings::run(vector, &texts, &scheduler);
                }
                Work::Scores(mut reranker) => {
                    tell(card, reranker.engine(), Makes::Scores(reranker.pairs().clone()));
                    let score = |pair: &[u32]| Ok(vec![reranker.score_tokens(pair)?]);
                    embeddings::run(score, &texts, &scheduler);
                }
            }
            Ok(())
        })?;
        Ok(Self { app, thread, ended: Some(ended) })
    }

    /// State that its routes share.
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// End of the thread, to be waited for. It can be had once.
    pub(crate) fn ended(&mut self) -> impl Future<Output = ()> + Send + use<E> {
        let ended = self.ended.take();
        async move {
            if let Some(ended) = ended {
                // Nothing is ever sent.
                let _ = ended.await;
            }
        }
    }

    /// Waits for the end of the thread, and of the model with it.
    pub(crate) fn join(self) -> Result<Result<(), E>, Panicked> {
        self.thread.join().map_err(|_| Panicked)
    }
}
