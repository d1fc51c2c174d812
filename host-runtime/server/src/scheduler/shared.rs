//! What HTTP tasks and the worker share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use hexflash::cancel::Cancel;
use tokio::sync::{mpsc, oneshot};

use super::news::{Failure, STEP_UPDATES, SlotView, Update};
use super::order::Order;
use super::queue::{Job, Queue, Refused};
use super::task::{Asked, Asks, Done, Task};
use crate::metrics::Metrics;

/// Updates of each text that may wait for its client, beyond those of a step.
const BUFFER: usize = 32;
/// What HTTP tasks and the worker share.
pub(crate) struct Scheduler {
    pub(super) queue: Queue,
    pub(super) asks: Asks,
    pub(super) worker: OnceLock<Thread>,
    slots: Mutex<Vec<SlotView>>,
    tasks: AtomicU64,
    pub(super) abort: Cancel,
    pub(crate) metrics: Metrics,
}

impl Scheduler {
    /// A scheduler with so many places for requests that wait.
    pub(crate) fn new(waiting: usize) -> Self {
        Self {
            queue: Queue::new(waiting),
            asks: Asks::default(),
            worker: OnceLock::new(),
            slots: Mutex::default(),
            tasks: AtomicU64::new(1),
            abort: Cancel::default(),
            metrics: Metrics::new(),
        }
    }

    /// Asks for texts, all of one request. They begin as soon as sequences are free.
    ///
    /// # Errors
    /// There are too many waiting, or the server is about to end.
    pub(crate) fn submit(self: &Arc<Self>, orders: Vec<Order>) -> Result<Answers, Refused> {
        let choices = orders.len();
        let (sender, updates) = mpsc::channel((BUFFER + STEP_UPDATES) * choices.max(1));
        let jobs = orders.into_iter().enumerate().map(|(choice, order)| Job {
            order,
            choice,
            choices,
            // Relaxed: the number publishes nothing.
            task: self.tasks.fetch_add(1, Ordering::Relaxed),
            updates: sender.clone(),
        });
        self.queue.add(jobs.collect())?;
        self.wake();
        Ok(Answers { updates, scheduler: Arc::clone(self), choices })
    }

    /// Asks for something to be done with a sequence; the answer comes when that is at rest.
    ///
    /// # Errors
    /// The server is about to end.
    pub(crate) fn ask(
        &self,
        slot: usize,
        task: Task,
    ) -> Result<oneshot::Receiver<Result<Done, Failure>>, Refused> {
        if self.queue.is_closed() {
            return Err(Refused::Closed);
        }
        let (answer, done) = oneshot::channel();
        self.asks.add(Asked { slot, task, answer });
        self.wake();
        Ok(done)
    }

    /// Accepts no more requests. Those that wait are still run.
    pub(crate) fn close(&self) {
        self.queue.close();
        self.wake();
    }

    /// Ends all texts with the step under way, and forgets the requests that wait.
    pub(crate) fn abort(&self) {
        self.queue.close();
        self.abort.cancel();
        self.wake();
    }

    /// Whether texts under way are to end at once.
    pub(crate) fn is_aborted(&self) -> bool {
        self.abort.is_cancelled()
    }

    /// Whether it accepts no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// What the sequences are doing.
    pub(crate) fn slots(&self) -> Vec<SlotView> {
        self.views().clone()
    }

    /// Requests that wait for a sequence.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What the sequences are doing, for the worker to write.
    pub(super) fn views(&self) -> MutexGuard<'_, Vec<SlotView>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the worker that there may be something to do. A worker that is about to rest will not.
    pub(super) fn wake(&self) {
        if let Some(worker) = self.worker.get() {
            worker.unpark();
        }
    }
}

/// The texts of a request as they come. Dropping it ends them.
pub(crate) struct Answers {
    updates: mpsc::Receiver<Update>,
    scheduler: Arc<Scheduler>,
    choices: usize,
}

impl Answers {
    /// The next update of any of the texts; `None` if there are no more, or the worker has given the client
    /// up.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        let update = self.updates.recv().await;
        // It may have waited for this place in the buffer.
        self.scheduler.wake();
        update
    }

    /// Whether there are no more because the client has not read, rather than because the server ends.
    pub(crate) fn were_given_up(&self) -> bool {
        !self.scheduler.is_closed()
    }

    /// How many texts there are.
    pub(crate) fn choices(&self) -> usize {
        self.choices
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.updates.close();
        self.scheduler.wake();
    }
}
