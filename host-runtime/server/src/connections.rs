//! Connections to clients: how many there are, and how long those may take that ask for nothing.
//!
//! A connection *waits* until a request has come on it whole, and again when its answer was given. Where
//! there are too many, the one that has waited for the longest time is closed: whoever opens many and sends
//! nothing loses those, and keeps nobody out. A connection whose request is being answered is never closed
//! for another.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::guarded::guarded;

/// Descriptors that are left for what is no connection: the model's files, devices, files of sequences, and
/// connections that are being closed.
const SPARE_DESCRIPTORS: u64 = 64;
/// Fewest connections, however few descriptors there are.
const FEWEST: usize = 8;
/// Bytes of an answer that the system keeps for a client that does not read. By itself it keeps some
/// megabytes, in which a whole text is written before anybody notices. Over a network that takes 200 ms there
/// and back, 256 KiB are still more than 1 MB in each second.
const SEND_BUFFER: usize = 256 << 10;
/// Bytes of a request or an answer that are kept here before they go on: room for any head.
const BUFFER: usize = 128 << 10;
/// Pause before the next connection is accepted after the system had no place for one.
const PAUSE: Duration = Duration::from_millis(20);
/// Time between two messages about connections that were closed: strangers do not fill the log.
const BETWEEN_MESSAGES: Duration = Duration::from_secs(10);

/// Bounds of connections.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections at once.
    pub(crate) total: usize,
    /// Connections of one client's address at once.
    pub(crate) of_client: usize,
    /// How long the head of a request may take, counted from the end of the answer before it.
    pub(crate) idle: Duration,
}

impl Bounds {
    /// Lowers the bounds to what the descriptors of the process suffice for.
    pub(crate) fn within_limits(self) -> Self {
        #[cfg(unix)]
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        #[cfg(not(unix))]
        let descriptors = None;
        let room = descriptors.map_or(usize::MAX, |n: u64| {
            usize::try_from(n.saturating_sub(SPARE_DESCRIPTORS)).unwrap_or(usize::MAX)
        });
        let total = self.total.min(room).max(FEWEST);
        if total < self.total {
            tracing::info!("{total} connections at once, not {}: the process may open no more", self.total);
        }
        Self { total, ..self }
    }
}

/// All connections.
pub(crate) struct Connections {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Entry>,
    /// Connections and changes of them so far: the time at which one began to wait.
    clock: u64,
    /// Connections that were closed for others, or not taken, since that was last told.
    closed: usize,
    told: Option<Instant>,
}

struct Entry {
    client: IpAddr,
    /// Since when it waits; `None` while it has a request.
    waits: Option<u64>,
    /// Channel whose end closes the connection.
    _close: oneshot::Sender<Infallible>,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The connection, of those of `client` if there is one, that has waited for the longest time.
    fn oldest(&self, client: Option<IpAddr>) -> Option<u64> {
        let of_client = self.open.iter().filter(|(_, entry)| client.is_none_or(|one| entry.client == one));
        let waiting = of_client.filter_map(|(&number, entry)| Some((entry.waits?, number)));
        waiting.min().map(|(_, number)| number)
    }

    /// Closes the connection that has waited for the longest time, if one waits.
    fn close_oldest(&mut self, client: Option<IpAddr>) -> bool {
        let closed = self.oldest(client).is_some_and(|number| self.open.remove(&number).is_some());
        self.tell();
        closed
    }

    /// One more was closed or not taken.
    fn tell(&mut self) {
        self.closed += 1;
        if self.told.is_none_or(|told| told.elapsed() >= BETWEEN_MESSAGES) {
            tracing::warn!(
                "{} connections were closed because there were too many; --connections and \
                 --client-connections bound them",
                self.closed
            );
            (self.closed, self.told) = (0, Some(Instant::now()));
        }
    }
}

impl Connections {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection, and closes another one for it if there are too many. What it gets ends when it is
    /// to be closed itself. `None` if all others have requests.
    fn admit(
        self: &Arc<Self>,
        client: IpAddr,
        local: IpAddr,
    ) -> Option<(Connection, oneshot::Receiver<Infallible>)> {
        // An address of IPv4 is the same client in both families.
        let client = client.to_canonical();
        let mut state = self.state();
        let of_client = state.open.values().filter(|entry| entry.client == client).count();
        let has_room = if of_client >= self.bounds.of_client {
            state.close_oldest(Some(client))
        } else if state.open.len() >= self.bounds.total {
            state.close_oldest(None)
        } else {
            true
        };
        if !has_room {
            return None;
        }
        let (close, closed) = oneshot::channel();
        let number = state.tick();
        state.open.insert(number, Entry { client, waits: Some(number), _close: close });
        let all = Arc::clone(self);
        Some((Connection(Arc::new(Place { all, number, local: local.to_canonical() })), closed))
    }

    /// Accepts connections and serves them, until `ends`, and then waits for those that have requests.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        routes: Router,
        ends: impl Future<Output = ()>,
    ) {
        let graceful = GracefulShutdown::new();
        tokio::pin!(ends);
        loop {
            let accepted = tokio::select! {
                () = &mut ends => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => self.begin(stream, client, &routes, &graceful),
                // The client has gone already.
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    tracing::warn!("no connection can be accepted: {error}; raise the limit of open files");
                    self.state().close_oldest(None);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            // Those that are to be closed get to it before the next one comes.
            tokio::task::yield_now().await;
        }
        drop(listener);
        graceful.shutdown().await;
    }

    /// Begins to serve a connection.
    fn begin(
        self: &Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        routes: &Router,
        graceful: &GracefulShutdown,
    ) {
        // Without this, a piece of a stream waits until the client's system has confirmed the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("a connection may be slow: {error}");
        }
        if let Err(error) = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER) {
            tracing::debug!("a connection may keep more text than it should: {error}");
        }
        let Ok(local) = stream.local_addr() else { return };
        let Some((connection, closed)) = self.admit(client.ip(), local.ip()) else { return };
        let routes = TowerToHyperService::new(routes.clone());
        let place = connection.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(place.clone());
            routes.call(request)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.bounds.idle).max_buf_size(BUFFER);
        let serving = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            let _connection = connection;
            tokio::select! {
                done = serving => if let Err(error) = done {
                    tracing::debug!("the connection of {client} has ended: {error}");
                },
                _ = closed => tracing::debug!("the connection of {client} was closed for another one"),
            }
        });
    }
}

/// Whether a connection, and not the server, is why none could be accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The connection of a request.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Place>);

struct Place {
    all: Arc<Connections>,
    number: u64,
    local: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.state().open.remove(&self.number);
    }
}

impl Connection {
    /// The address of this machine that the client has connected to.
    pub(crate) fn local(&self) -> IpAddr {
        self.0.local
    }

    /// Says that the request has come whole: the connection waits no more.
    pub(crate) fn has_request(&self) {
        self.set_waits(false);
    }

    fn set_waits(&self, waits: bool) {
        let mut state = self.0.all.state();
        let now = state.tick();
        if let Some(entry) = state.open.get_mut(&self.0.number) {
            entry.waits = waits.then_some(now);
        }
    }
}

/// Lets the connection of a request wait again when its answer was given.
pub(crate) async fn follow(request: Request, next: Next) -> Response {
    let Some(connection) = request.extensions().get::<Connection>().cloned() else {
        return next.run(request).await;
    };
    if request.body().is_end_stream() {
        connection.has_request();
    }
    let request_of = RequestOf(connection);
    guarded(next.run(request).await, request_of)
}

/// A request of a connection; its end is that of the answer, or of the client.
struct RequestOf(Connection);

impl Drop for RequestOf {
    fn drop(&mut self) {
        self.0.set_waits(true);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    type Taken = (Connection, oneshot::Receiver<Infallible>);

    fn admit(all: &Arc<Connections>, client: u8) -> Option<Taken> {
        all.admit(address(client), address(100))
    }

    fn is_closed((_, closed): &mut Taken) -> bool {
        closed.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn whoever_has_waited_longest_makes_room() {
        let bounds = Bounds { total: 3, of_client: 2, idle: Duration::from_secs(1) };
        let all = Connections::new(bounds);
        let mut first = admit(&all, 1).unwrap();
        let mut second = admit(&all, 1).unwrap();
        // A third one of the same client costs one of its own.
        first.0.has_request();
        let mut third = admit(&all, 1).unwrap();
        assert!(is_closed(&mut second) && !is_closed(&mut first));
        let mut other = admit(&all, 2).unwrap();
        // Those of all clients together: the one that has a request stays.
        let mut another = admit(&all, 3).unwrap();
        assert!(is_closed(&mut third) && !is_closed(&mut first) && !is_closed(&mut other));
        // All have requests: nobody is closed, and nobody is taken.
        other.0.has_request();
        another.0.has_request();
        assert!(admit(&all, 4).is_none());
        // Whose answer was given waits again.
        drop(RequestOf(first.0.clone()));
        assert!(admit(&all, 4).is_some() && is_closed(&mut first));
        assert!(!is_closed(&mut other) && !is_closed(&mut another));
        drop((first, second, third, other, another));
        assert!(all.state().open.is_empty());
    }

    #[test]
    fn descriptors_bound_connections() {
        let wide = Bounds { total: usize::MAX, of_client: 1, idle: Duration::from_secs(1) };
        let narrow = Bounds { total: 10, ..wide };
        assert_eq!(narrow.within_limits().total, 10);
        assert!(wide.within_limits().total >= FEWEST);
    }
}
