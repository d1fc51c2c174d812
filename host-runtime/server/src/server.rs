//! A server from its port to its end.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hexflash::cancel::Cancel;
use hexflash::engine::Engine;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::card::{Card, Served};
use crate::connections::{Bounds, Connections};
use crate::http::router::router;
use crate::instance::Instance;
use crate::options::Options;
use crate::several::stock::Stock;
use crate::several::{Models, routes};

/// Threads that speak HTTP. They only parse and format; what takes long has threads of its own. A second one
/// would be woken for every token with nothing to do: one stream was some 5 % slower with it, on two cores.
const HTTP_THREADS: usize = 1;
/// How often the wish to end is looked for: signal handlers can only set a flag.
const LOOK: Duration = Duration::from_millis(50);
/// How long connections have to end by themselves after the last text was ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server that listens, and has no model yet.
pub struct Server {
    options: Arc<Options>,
    listener: TcpListener,
    address: SocketAddr,
    on_ready: Option<OnReady>,
}

type OnReady = Box<dyn Fn(&Card, &Engine) + Send + Sync>;

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
        Ok(Self { options: Arc::new(options), listener, address, on_ready: None })
    }

    /// Calls `tell` with each model whose requests are answered from now on.
    #[must_use]
    pub fn on_ready(self, tell: impl Fn(&Card, &Engine) + Send + Sync + 'static) -> Self {
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
        let Self { options, listener, on_ready, .. } = self;
        let runtime = runtime()?;
        let stop = cancel.clone();
        let ready = move |card: &Card, engine: &Engine| on_ready.iter().for_each(|tell| tell(card, engine));
        let mut instance = Instance::start(&options, move || load(&stop), ready)?;
        let ended = instance.ended();
        let (closing, ending) = (Arc::clone(instance.app()), Arc::clone(instance.app()));
        let house = House {
            routes: router(Arc::clone(instance.app())),
            ended,
            close: move || closing.scheduler.close(),
            abort: move || ending.scheduler.abort(),
        };
        let served = runtime.block_on(house.serve(listener, &options, cancel));
        runtime.shutdown_background();
        instance.join().map_err(|_| RunError::Engine)?.map_err(RunError::Load)?;
        Ok(served?)
    }

    /// Answers requests for several models, of which it loads those that are asked for. A cancellation ends
    /// it as [`run`](Self::run).
    ///
    /// # Errors
    /// The system failed.
    pub fn run_several<E: Display + Send + 'static>(
        self,
        cancel: &Cancel,
        models: Models<E>,
    ) -> Result<(), RunError<E>> {
        let Self { options, listener, on_ready, .. } = self;
        let runtime = runtime()?;
        let (stock, keeper) = Stock::new(Arc::clone(&options), models, on_ready, cancel.clone());
        let keeper = runtime.spawn(keeper.run());
        let (closing, ending) = (Arc::clone(&stock), Arc::clone(&stock));
        let house = House {
            routes: routes::router(Arc::clone(&stock)),
            ended: std::future::pending(),
            close: move || closing.close(),
            abort: move || ending.abort(),
        };
        let served = runtime.block_on(house.serve(listener, &options, cancel));
        stock.abort();
        let kept = runtime.block_on(keeper);
        runtime.shutdown_background();
        kept.map_err(|_| RunError::Engine)?;
        Ok(served?)
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(HTTP_THREADS).enable_all().build()
}

/// Routes, and how what they lead to ends.
struct House<Ended, Close, Abort> {
    routes: Router,
    /// End of the routes by themselves.
    ended: Ended,
    /// Has nothing more accepted.
    close: Close,
    /// Ends what is under way.
    abort: Abort,
}

impl<Ended, Close, Abort> House<Ended, Close, Abort>
where
    Ended: Future<Output = ()>,
    Close: FnOnce(),
    Abort: FnOnce(),
{
    /// Serves the routes until it is cancelled or all has ended by itself.
    async fn serve(self, listener: TcpListener, options: &Options, cancel: &Cancel) -> io::Result<()> {
        let Self { routes, ended, close, abort } = self;
        let bounds =
            Bounds { total: options.connections, of_client: options.client_connections, idle: options.idle };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (stopping, mut stopped) = oneshot::channel::<()>();
        let wish = async move {
            tokio::pin!(ended);
            while !cancel.is_cancelled() {
                tokio::select! {
                    () = &mut ended => break,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
            close();
            drop(stopping);
        };
        let serving = Connections::new(bounds.within_limits()).serve(listener, routes, wish);
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => return Ok(()),
            _ = &mut stopped => {}
        }
        if tokio::time::timeout(options.grace, &mut serving).await.is_err() {
            abort();
            // What is still open then has a client that does not read.
            let _ = tokio::time::timeout(FAREWELL, &mut serving).await;
        }
        Ok(())
    }
}
