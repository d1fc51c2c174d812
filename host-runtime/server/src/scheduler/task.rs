//! What can be asked of a sequence beside texts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hexflash::engine::{EngineError, Sequence, SequenceCopy};
use tokio::sync::oneshot;

use super::news::Failure;

/// What is to be done with a sequence at rest.
pub(crate) enum Task {
    /// Copies it.
    CopyOut,
    /// Puts a copy in its place.
    CopyIn(Arc<SequenceCopy>),
    /// Forgets its tokens.
    Erase,
}

/// What was done.
pub(crate) enum Done {
    Copied(Box<SequenceCopy>),
    CopiedIn,
    /// So many tokens were forgotten.
    Erased(usize),
}

/// A task, and who waits for it.
pub(super) struct Asked {
    pub(super) slot: usize,
    pub(super) task: Task,
    pub(super) answer: oneshot::Sender<Result<Done, Failure>>,
}

/// Tasks in the order in which they came.
#[derive(Default)]
pub(super) struct Asks(Mutex<State>);

#[derive(Default)]
struct State {
    list: VecDeque<Asked>,
    /// Nobody will do them.
    closed: bool,
}

impl Asks {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task, unless nobody will do it: then whoever waits for it learns that.
    pub(super) fn add(&self, asked: Asked) {
        let mut state = self.state();
        if !state.closed {
            state.list.push_back(asked);
        }
    }

    /// Takes the first task of a sequence that is free, if somebody still waits for it.
    pub(super) fn take(&self, is_free: impl Fn(usize) -> bool) -> Option<Asked> {
        let list = &mut self.state().list;
        list.retain(|asked| !asked.answer.is_closed());
        let first = list.iter().position(|asked| is_free(asked.slot))?;
        list.remove(first)
    }

    /// Whether somebody waits for this sequence.
    pub(super) fn wants(&self, slot: usize) -> bool {
        self.state().list.iter().any(|asked| asked.slot == slot && !asked.answer.is_closed())
    }

    /// Forgets all tasks, and takes no more.
    pub(super) fn close(&self) {
        *self.state() = State { list: VecDeque::new(), closed: true };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().list.is_empty()
    }
}

impl Task {
    /// Does it.
    pub(super) fn run(self, sequence: &mut Sequence<'_>) -> Result<Done, EngineError> {
        match self {
            Self::CopyOut => Ok(Done::Copied(Box::new(sequence.copy_out()?))),
            Self::CopyIn(copy) => sequence.copy_in(&copy).map(|()| Done::CopiedIn),
            Self::Erase => {
                let n = sequence.history().len();
                sequence.reset();
                Ok(Done::Erased(n))
            }
        }
    }
}
