//! Requests that wait for a sequence.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::Sender;

use super::news::Update;
use super::order::Order;

/// A text that is to be written.
pub(super) struct Job {
    pub(super) order: Order,
    /// Its number among the texts of its request, and how many those are.
    pub(super) choice: usize,
    pub(super) choices: usize,
    /// Its number among all texts.
    pub(super) task: u64,
    /// Where its client reads.
    pub(super) updates: Sender<Update>,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// So many wait already.
    Full(usize),
    /// The server is about to end.
    Closed,
}

/// Jobs in the order in which they came.
pub(super) struct Queue {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Sequences that no job has. So many jobs do not wait: they were not fetched yet.
    free: usize,
    closed: bool,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds all of `jobs` or none.
    pub(super) fn add(&self, jobs: Vec<Job>) -> Result<(), Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        state.jobs.retain(|job| !job.updates.is_closed());
        if state.jobs.len() + jobs.len() > self.limit + state.free {
            return Err(Refused::Full(state.jobs.len()));
        }
        state.jobs.extend(jobs);
        Ok(())
    }

    /// Takes the first job whose client is still there, for a sequence that is free. A job that wants a
    /// certain sequence waits for that one, and lets others pass.
    pub(super) fn take(&self, is_free: impl Fn(usize) -> bool) -> Option<Job> {
        let mut state = self.state();
        state.jobs.retain(|job| !job.updates.is_closed());
        let can_run = |job: &Job| job.order.slot.is_none_or(&is_free);
        let first = state.jobs.iter().position(can_run)?;
        state.free = state.free.saturating_sub(1);
        state.jobs.remove(first)
    }

    /// Whether a job waits for this sequence, as all do that may have any.
    pub(super) fn wants(&self, slot: usize) -> bool {
        let mut state = self.state();
        state.jobs.retain(|job| !job.updates.is_closed());
        state.jobs.iter().any(|job| job.order.slot.is_none_or(|wanted| wanted == slot))
    }

    /// So many sequences have become free.
    pub(super) fn release(&self, n: usize) {
        self.state().free += n;
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Forgets the jobs that wait.
    pub(super) fn clear(&self) {
        self.state().jobs.clear();
    }

    pub(super) fn len(&self) -> usize {
        let mut state = self.state();
        state.jobs.retain(|job| !job.updates.is_closed());
        state.jobs.len()
    }

    /// Whether there will be no more jobs.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state();
        state.closed && state.jobs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use hexflash::generate::Limits;
    use hexflash::sampler::{Sampler, SamplerParams};
    use tokio::sync::mpsc;

    use super::super::order::Telemetry;
    use super::*;

    fn job(task: u64, updates: &Sender<Update>) -> Job {
        let sampler = Sampler::new(SamplerParams::default()).unwrap();
        let order = Order {
            prompt: vec![1],
            pictures: None,
            limits: Limits::default(),
            sampler,
            logprobs: None,
            form: None,
            stream: false,
            telemetry: Telemetry::default(),
            reuse: true,
            slot: None,
        };
        Job { order, choice: 0, choices: 1, task, updates: updates.clone() }
    }

    #[test]
    fn jobs_beyond_the_free_sequences_wait_up_to_the_limit() {
        let (there, _client) = mpsc::channel(1);
        let queue = Queue::new(1);
        queue.release(1);
        assert_eq!(queue.add(vec![job(1, &there)]), Ok(()));
        assert_eq!(queue.add(vec![job(2, &there)]), Ok(()));
        assert_eq!(queue.add(vec![job(3, &there)]), Err(Refused::Full(2)));
        assert_eq!(queue.take(|_| true).unwrap().task, 1);
        assert_eq!(queue.add(vec![job(3, &there)]), Err(Refused::Full(1)), "no sequence is free now");
        queue.release(1);
        assert_eq!(queue.add(vec![job(3, &there), job(4, &there)]), Err(Refused::Full(1)), "all or none");
        assert_eq!(queue.add(vec![job(3, &there)]), Ok(()));
        queue.close();
        assert_eq!(queue.add(vec![job(5, &there)]), Err(Refused::Closed));
        assert!(!queue.is_over());
        assert_eq!([2, 3].map(|_| queue.take(|_| true).unwrap().task), [2, 3]);
        assert!(queue.take(|_| true).is_none() && queue.is_over());
    }

    #[test]
    fn a_job_waits_for_the_sequence_that_it_wants_and_others_pass_it() {
        let (there, _client) = mpsc::channel(1);
        let queue = Queue::new(2);
        let mut wants = job(1, &there);
        wants.order.slot = Some(0);
        queue.add(vec![wants, job(2, &there)]).unwrap();
        assert!(queue.wants(0) && queue.wants(1));
        assert_eq!(queue.take(|slot| slot == 1).unwrap().task, 2);
        assert!(queue.take(|slot| slot == 1).is_none());
        assert!(queue.wants(0) && !queue.wants(1));
        assert_eq!(queue.take(|slot| slot == 0).unwrap().task, 1);
    }

    #[test]
    fn whoever_went_away_does_not_take_a_place() {
        let (there, _client) = mpsc::channel(1);
        let (gone, client) = mpsc::channel(1);
        let queue = Queue::new(2);
        queue.add(vec![job(1, &gone), job(2, &there)]).unwrap();
        drop(client);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.add(vec![job(3, &there)]), Ok(()));
        assert_eq!(queue.take(|_| true).unwrap().task, 2);
    }
}
