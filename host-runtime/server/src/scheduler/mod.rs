//! Requests to texts: who runs when, on which sequence, and with what of an earlier text.
//!
//! One thread, the [`Worker`], owns the engine. HTTP tasks leave [`Order`]s with the [`Scheduler`] and read
//! [`Update`]s from their [`Answers`].
//!
//! * **Fairness.** Every step carries a token (or a block of drafts) of each text under way, and pieces of
//!   the prompts that are being read. Requests get sequences in the order in which they came.
//! * **Back-pressure.** So many requests wait, and more are refused at once.
//! * **Slow readers.** Answers have a bounded buffer. A text whose buffer is full takes no part in steps
//!   until its client has read; the others go on.
//! * **Cancellation.** Dropping the `Answers` ends their texts with the step under way.
//! * **Reuse.** A request begins with what a sequence at rest has of its prompt already (`reuse`), or a text
//!   that had to give way (`ram_cache`).

mod queue;
mod ram_cache;
mod reuse;
mod slot;
mod task;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use hexflash::Blame;
use hexflash::cancel::Cancel;
use hexflash::generate::{Finish, Limits, Stats, TokenOrigin};
use hexflash::sampler::{Sampler, TokenLogprob};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::grammar::Grammar;
use crate::metrics::Metrics;
pub(crate) use queue::Refused;
use queue::{Job, Queue};
use task::{Asked, Asks};
pub(crate) use task::{Done, Task};
pub(crate) use worker::Worker;

/// Updates of each text that may wait for its client, beyond those of a step.
const BUFFER: usize = 32;
/// Most updates that a text gets in a step: its last piece, and its end or a failure.
const STEP_UPDATES: usize = 3;

/// What a request wants written.
pub(crate) struct Order {
    pub(crate) prompt: Vec<u32>,
    pub(crate) limits: Limits,
    pub(crate) sampler: Sampler,
    /// Alternatives of each token whose probabilities are wanted, if any are.
    pub(crate) logprobs: Option<usize>,
    /// The form that the text is to have.
    pub(crate) form: Option<Grammar>,
    /// Whether the client wants pieces as they come, and not all at the end.
    pub(crate) stream: bool,
    /// What such a client wants to be told beside pieces.
    pub(crate) telemetry: Telemetry,
    /// Whether what a sequence has of the prompt may be used.
    pub(crate) reuse: bool,
    /// The number of the sequence that is to run it; any will do if there is none.
    pub(crate) slot: Option<usize>,
}

/// What a stream tells beside its text.
#[derive(Clone, Copy, Default)]
pub(crate) struct Telemetry {
    /// How much of the prompt was read, from time to time.
    pub(crate) progress: bool,
    /// The times so far, with each piece.
    pub(crate) times: bool,
}

/// News of one of the texts of a request.
pub(crate) struct Update {
    /// Which of them.
    pub(crate) choice: usize,
    pub(crate) news: News,
    /// The times so far, where they are wanted.
    pub(crate) times: Option<Box<Times>>,
}

/// What a text took.
pub(crate) struct Times {
    pub(crate) stats: Stats,
    /// Tokens of the prompt that its sequence had already.
    pub(crate) cached: usize,
}

/// What has become of a text.
pub(crate) enum News {
    /// More of its prompt was read.
    Progress(Progress),
    /// It has grown.
    Piece(Piece),
    /// It is complete.
    Done(Box<Outcome>),
    /// It cannot go on.
    Failed(Failure),
}

/// How far a prompt was read.
pub(crate) struct Progress {
    /// Tokens of the prompt.
    pub(crate) total: usize,
    /// Tokens of it that the sequence had already.
    pub(crate) cached: usize,
    /// Tokens of it that are in the context, those included.
    pub(crate) processed: usize,
    /// Time since the first of the others.
    pub(crate) seconds: f64,
}

/// A part of a text.
#[derive(Default)]
pub(crate) struct Piece {
    pub(crate) text: String,
    /// The tokens that became known since the piece before.
    pub(crate) tokens: Vec<u32>,
    /// Where they came from.
    pub(crate) origins: Vec<TokenOrigin>,
    /// How probable they were, if that is wanted.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// How a text ended.
pub(crate) struct Outcome {
    pub(crate) finish: Finish,
    /// The stop text that ended it, if one did.
    pub(crate) stop: Option<String>,
    pub(crate) times: Times,
    /// The number of the sequence.
    pub(crate) slot: usize,
}

/// Why a text cannot go on.
pub(crate) struct Failure {
    pub(crate) blame: Blame,
    pub(crate) message: String,
}

/// What a sequence is doing, for `/slots`.
#[derive(Clone, Default, Serialize)]
pub(crate) struct SlotView {
    pub(crate) is_processing: bool,
    /// Number of the text, from 1; 0 if there was none.
    pub(crate) id_task: u64,
    pub(crate) n_prompt_tokens: usize,
    pub(crate) n_prompt_tokens_cache: usize,
    pub(crate) n_decoded: usize,
    /// Tokens in the context.
    pub(crate) n_past: u32,
}

/// What HTTP tasks and the worker share.
pub(crate) struct Scheduler {
    queue: Queue,
    asks: Asks,
    worker: OnceLock<Thread>,
    slots: Mutex<Vec<SlotView>>,
    tasks: AtomicU64,
    abort: Cancel,
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

    fn views(&self) -> MutexGuard<'_, Vec<SlotView>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the worker that there may be something to do. A worker that is about to rest will not.
    fn wake(&self) {
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
