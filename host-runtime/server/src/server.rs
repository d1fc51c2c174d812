//! A server from its port to its end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hexflash::cancel::Cancel;
use hexflash::engine::Engine;
use tokio::sync::oneshot;

use crate::card::{Card, Served, Work};
use crate::connections::{Bounds, Connections};
use crate::embeddings;
use crate::http::app::App;
use crate::http::router::router;
use crate::options::Options;
use crate::scheduler::shared::Scheduler;
use crate::scheduler::worker::Worker;

/// Threads that speak HTTP. They only parse and format; what takes long has threads of its own. A second one
/// would be woken for every token with nothing to do: one stream was some 5 % slower with it, on two cores.
const HTTP_THREADS: usize = 1;
/// How often the wish to end is looked for: signal handlers can only set a flag.
const LOOK: Duration = Duration::from_millis(50);
/// How long connections have to end by themselves after the last text was ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server that listens, and has no model yet.
pub struct Server {
    options: Options,
    listener: TcpListener,
    address: SocketAddr,
    on_ready: Option<OnReady>,
}

type OnReady = Box<dyn FnOnce(&Card, &Engine) + Send>;

/// A server could not run, or has failed. `E` is why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The system.
    #[error("the server cannot run: {0}; check the limits of the process and the network")]
    Io(#[from] io::Error),
    /// There is no model.
    #[error(transparent)]
    Load(E),
    /// The thread of the engine has ended by a bug.
    #[error("the engine's thread has ended; this is a bug of hexflash, please report it")]
    Engine,
}

impl Server {
    /// Takes the address. Until [`run`](Self::run), connections wait.
    ///
    /// # Errors
    /// The address cannot be had: the port is taken, or needs privileges.
    pub fn bind(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind((options.host.as_str(), options.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { options, listener, address, on_ready: None })
    }

    /// Calls `tell` with the model when requests are answered.
    #[must_use]
    pub fn on_ready(self, tell: impl FnOnce(&Card, &Engine) + Send + 'static) -> Self {
        Self { on_ready: Some(Box::new(tell)), ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loads the model and answers requests. While it loads, `/health` says so. A cancellation ends the
    /// server: nothing more is accepted, and what is under way has [`Options::grace`] to end.
    ///
    /// # Errors
    /// There is no model, or the system failed.
    pub fn run<E: Send + 'static>(
        self,
        cancel: &Cancel,
        load: impl FnOnce(&Cancel) -> Result<Served, E> + Send + 'static,
    ) -> Result<(), RunError<E>> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(HTTP_THREADS).enable_all().build()?;
        let scheduler = Arc::new(Scheduler::new(self.options.queue));
        let (grace, timeout, cache_ram) = (self.options.grace, self.options.timeout, self.options.cache_ram);
        let bounds = Bounds {
            total: self.options.connections,
            of_client: self.options.client_connections,
            idle: self.options.idle,
        };
        let (vectors, texts) = embeddings::queue(self.options.queue);
        let app = Arc::new(App::new(self.options, Arc::clone(&scheduler), vectors));
        // Its end, in whatever way, is seen at the other end.
        let (alive, mut ended) = oneshot::channel::<()>();
        let engine = {
            let (app, cancel, scheduler) = (Arc::clone(&app), cancel.clone(), Arc::clone(&scheduler));
            let on_ready = self.on_ready;
            thread::Builder::new().name("engine".to_owned()).spawn(move || {
                let _alive = alive;
                let Served { card, work } = load(&cancel)?;
                let tokenizer = Arc::clone(&card.text.tokenizer);
                let ready = |card, engine: &Engine, makes_vectors| {
                    app.is_ready(card, engine, makes_vectors);
                    if let (Some(tell), Some(card)) = (on_ready, app.card()) {
                        tell(card, engine);
                    }
                };
                match work {
                    Work::Texts { engine, drafts } => {
                        let worker = Worker::new(scheduler, engine, tokenizer, drafts, timeout, cache_ram);
                        ready(card, worker.engine(), false);
                        worker.run();
                    }
                    Work::Vectors(embedder) => {
                        ready(card, embedder.engine(), true);
                        embeddings::run(embedder, &texts, &scheduler);
                    }
                }
                Ok(())
            })?
        };
        let (farewell, cancel) = (Arc::clone(&scheduler), cancel.clone());
        let served = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let (stopping, mut stopped) = oneshot::channel::<()>();
            let wish = async move {
                while !cancel.is_cancelled() {
                    tokio::select! {
                        _ = &mut ended => break,
                        () = tokio::time::sleep(LOOK) => {}
                    }
                }
                farewell.close();
                drop(stopping);
            };
            let serving = Connections::new(bounds.within_limits()).serve(listener, router(app), wish);
            tokio::pin!(serving);
            tokio::select! {
                () = &mut serving => return Ok(()),
                _ = &mut stopped => {}
            }
            if tokio::time::timeout(grace, &mut serving).await.is_err() {
                scheduler.abort();
                // What is still open then has a client that does not read.
                let _ = tokio::time::timeout(FAREWELL, &mut serving).await;
            }
            Ok::<_, io::Error>(())
        });
        runtime.shutdown_background();
        let outcome = engine.join().map_err(|_| RunError::Engine)?;
        outcome.map_err(RunError::Load)?;
        Ok(served?)
    }
}
