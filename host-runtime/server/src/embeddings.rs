//! Vectors and scores of texts: requests to the thread that owns the model, one after the other.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use hexflash::Error;
use tokio::sync::oneshot;

use crate::scheduler::news::Failure;
use crate::scheduler::queue::Refused;
use crate::scheduler::shared::Scheduler;

/// How often the thread looks whether the server ends.
const LOOK: Duration = Duration::from_millis(50);

/// Vectors of the texts of a request.
type Made = Result<Vec<Vec<f32>>, Failure>;

/// Texts of a request, and where their vectors go.
pub(crate) struct Job {
    texts: Vec<Vec<u32>>,
    answer: oneshot::Sender<Made>,
}

/// The end of the queue where requests are left.
pub(crate) struct Vectors {
    jobs: SyncSender<Job>,
    limit: usize,
}

/// A queue with so many places for requests that wait.
pub(crate) fn queue(limit: usize) -> (Vectors, Receiver<Job>) {
    let (jobs, texts) = sync_channel(limit);
    (Vectors { jobs, limit }, texts)
}

impl Vectors {
    /// Asks for the vectors of texts, each a list of tokens; a score is a vector with one value.
    ///
    /// # Errors
    /// There are too many requests waiting, or the server is about to end.
    pub(crate) fn ask(&self, texts: Vec<Vec<u32>>) -> Result<oneshot::Receiver<Made>, Refused> {
        let (answer, vectors) = oneshot::channel();
        match self.jobs.try_send(Job { texts, answer }) {
            Ok(()) => Ok(vectors),
            Err(TrySendError::Full(_)) => Err(Refused::Full(self.limit)),
            Err(TrySendError::Disconnected(_)) => Err(Refused::Closed),
        }
    }
}

/// Makes vectors until the server ends, as `make` does. Requests that wait then are still answered, unless it
/// is in a hurry.
pub(crate) fn run(
    mut make: impl FnMut(&[u32]) -> Result<Vec<f32>, Error>,
    jobs: &Receiver<Job>,
    scheduler: &Scheduler,
) {
    loop {
        match jobs.recv_timeout(LOOK) {
            Ok(Job { texts, answer }) => {
                let mut vectors = Vec::with_capacity(texts.len());
                // Work of a request ends with its client.
                let is_wanted = || !answer.is_closed() && !scheduler.is_aborted();
                let mut texts = texts.iter().take_while(|_| is_wanted());
                let made = texts.try_for_each(|text| make(text).map(|it| vectors.push(it)));
                let made =
                    made.map_err(|error: Error| Failure { blame: error.blame(), message: error.to_string() });
                if !scheduler.is_aborted() {
                    // Its client may have left.
                    let _ = answer.send(made.map(|()| vectors));
                }
            }
            Err(RecvTimeoutError::Timeout) if !scheduler.is_closed() => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}
