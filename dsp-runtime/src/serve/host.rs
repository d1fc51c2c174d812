//! A session on threads of the host process.

use hexflash_abi::queue::{QueueError, Reader, Writer};
use hexflash_abi::sync::AtomicU32;

use super::serve;
use crate::dma::DmaMode;
use crate::hvx::Isa;
use crate::platform::host::{HostPlatform, processors, worker_thread};
use crate::pool::Pool;
use crate::program::Arena;
use crate::session::Session;
use crate::vtcm::Vtcm;

/// How a session on the host runs its kernels.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// Workers, the session's own thread included. Those beyond the number of processors get no thread.
    pub threads: usize,
    /// Vector back end.
    pub isa: Isa,
    /// When the software DMA engine executes.
    pub dma: DmaMode,
}

/// A session that cannot start or go on.
#[derive(Debug)]
pub enum SessionError {
    /// A worker's thread could not be started.
    Thread(std::io::Error),
    /// The host wrote nonsense into the queue memory.
    Queue(QueueError),
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "cannot start a worker ({error}); lower the number of threads"),
            Self::Queue(error) => write!(f, "the request queue is corrupt ({error:?})"),
        }
    }
}

impl std::error::Error for SessionError {}

/// Runs a session on this thread, with its workers on threads of their own, until `stop` is set and the
/// request doorbell rung.
///
/// # Errors
/// [`SessionError`]; all threads have ended.
pub fn run_session(
    platform: &HostPlatform,
    vtcm: Vtcm,
    arena: Arena,
    workers: Workers,
    mut requests: Reader<'_>,
    mut responses: Writer<'_>,
    stop: &AtomicU32,
) -> Result<(), SessionError> {
    let pool = Pool::new(platform, workers.isa, vtcm, workers.threads, workers.dma);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&pool);
        // Workers beyond the number of processors get no thread: they would only take time from the others,
        // and jobs do not wait for workers that have not begun.
        for id in 1..pool.workers().min(processors()) {
            let pool = &pool;
            worker_thread(id).spawn_scoped(scope, move || pool.serve(id)).map_err(SessionError::Thread)?;
        }
        // The pool is new: nobody else dispatches.
        let Some(dispatcher) = pool.dispatcher() else { return Ok(()) };
        let mut session = Session::new(platform, dispatcher, arena, 0);
        serve(&mut session, platform, &mut requests, &mut responses, stop).map_err(SessionError::Queue)
    })
}

/// Ends the workers when the session ends, also by panic: the scope waits for them.
struct StopOnDrop<'a, 'p>(&'a Pool<'p, HostPlatform>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
