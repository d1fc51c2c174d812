//! A sequence of the engine, and the text that it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hexflash::engine::{PictureRows, SequenceId};
use hexflash::generate::{Event, GenerateError, Generation};
use tokio::sync::mpsc::Sender;

use crate::grammar::MaskState;

use super::news::{Failure, News, Outcome, Piece, Progress, STEP_UPDATES, SlotView, Times, Update};
use super::order::Telemetry;

/// A sequence.
pub(super) struct Slot {
    pub(super) id: SequenceId,
    pub(super) running: Option<Running>,
    /// Tokens of the last prompt, with what was reused of it.
    pub(super) prompt: usize,
    /// When it was last used; 0 if never.
    pub(super) used: u64,
}

impl Slot {
    pub(super) fn new(id: SequenceId) -> Self {
        Self { id, running: None, prompt: 0, used: 0 }
    }
}

/// A text under way.
pub(super) struct Running {
    pub(super) generation: Generation,
    pub(super) task: u64,
    /// Tokens of the prompt that the sequence had already.
    pub(super) cached: usize,
    /// Rows of pictures that are in its prompt: they live until the sequence has them.
    pub(super) _rows: Vec<PictureRows>,
    pub(super) choice: usize,
    pub(super) choices: usize,
    /// Where its client reads; `None` if the client was given up.
    pub(super) updates: Option<Sender<Update>>,
    /// Whether the client wants pieces as they come.
    pub(super) stream: bool,
    /// What it wants to be told beside them.
    pub(super) telemetry: Telemetry,
    /// Text that was not sent.
    pub(super) unsent: String,
    /// Tokens that were sent.
    pub(super) sent: usize,
    /// Whether the mask of its next token is there, if the text has a form.
    pub(super) mask: Option<Arc<MaskState>>,
    /// Whether other texts have waited for that mask already, and go on without this one.
    pub(super) is_late: bool,
    /// Since when the client has read too little.
    pub(super) blocked: Option<Blocked>,
}

/// Updates that a client has to take before it counts as one that reads again. One that takes a single update
/// now and then would hold its sequence for ever.
const READS: usize = 8;

/// A client that has read too little.
pub(super) struct Blocked {
    since: Instant,
    /// Updates that it has taken since then.
    taken: usize,
}

/// The result of a step, without the text's generation.
pub(super) enum Happened {
    /// Nothing that the client would see.
    Nothing,
    /// So many tokens of the prompt were run.
    Prompt(usize),
    Text(String),
    Done,
    Failed(GenerateError),
}

impl Happened {
    pub(super) fn of(event: Result<Event<'_>, GenerateError>) -> Self {
        match event {
            Ok(Event::Prompt { done, .. }) => Self::Prompt(done),
            Ok(Event::Text("")) => Self::Nothing,
            Ok(Event::Text(text)) => Self::Text(text.to_owned()),
            Ok(Event::Done(_)) => Self::Done,
            Err(error) => Self::Failed(error),
        }
    }
}

/// A text that has ended, of which its client does not know yet.
pub(super) struct Ended {
    updates: Option<Sender<Update>>,
    choice: usize,
    pub(super) outcome: Outcome,
}

impl Ended {
    /// Tells the client.
    pub(super) fn tell(self) {
        if let Some(updates) = self.updates {
            let news = News::Done(Box::new(self.outcome));
            // As in `Running::send`.
            let _ = updates.try_send(Update { choice: self.choice, news, times: None });
        }
    }
}

impl Running {
    /// Whether its form, if it has one, knows what may come next.
    pub(super) fn has_mask(&self) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.is_ready())
    }

    /// Whether all that a step may bring has room in the buffer. The worker is the only one who fills it.
    pub(super) fn has_room(&mut self) -> bool {
        let room = |updates: &Sender<Update>| updates.capacity() >= STEP_UPDATES * self.choices;
        let has_room = self.updates.as_ref().is_none_or(room);
        let has_read = |updates: &Sender<Update>| 2 * updates.capacity() >= updates.max_capacity();
        if self.updates.as_ref().is_none_or(has_read) {
            self.blocked = None;
        } else if !has_room {
            self.blocked.get_or_insert_with(|| Blocked { since: Instant::now(), taken: 0 });
        }
        has_room
    }

    /// How long the worker may still wait for the client to read, if it does.
    pub(super) fn patience(&self, timeout: Duration) -> Option<Duration> {
        Some(timeout.saturating_sub(self.blocked.as_ref()?.since.elapsed()))
    }

    /// Ends the text with its next step if its client went away, or has not read for `timeout`.
    pub(super) fn give_up_if_abandoned(&mut self, timeout: Duration) {
        let gone = self.updates.as_ref().is_some_and(Sender::is_closed);
        if gone || self.patience(timeout).is_some_and(|left| left.is_zero()) {
            self.give_up();
        }
    }

    /// Ends the text with its next step. A client that does not read does not learn of it.
    pub(super) fn interrupt(&mut self) {
        if self.has_room() {
            self.mask = None;
            self.generation.cancel();
        } else {
            self.give_up();
        }
    }

    /// Ends the text with its next step; nobody learns of it.
    fn give_up(&mut self) {
        self.updates = None;
        self.blocked = None;
        // That step needs none.
        self.mask = None;
        self.generation.cancel();
    }

    /// The text has grown. Who wants it as a whole is not woken for each piece.
    pub(super) fn add(&mut self, text: &str) {
        self.unsent.push_str(text);
        if self.stream {
            self.send_piece();
        }
    }

    /// `done` tokens of the prompt were run, which has `total` with those that the sequence had already.
    pub(super) fn tell_progress(&mut self, done: usize, total: usize) {
        if self.stream && self.telemetry.progress {
            self.send(News::Progress(Progress {
                total,
                cached: self.cached,
                processed: self.cached + done,
                seconds: self.generation.stats().prompt_seconds,
            }));
        }
    }

    /// Sends what is new.
    fn send_piece(&mut self) {
        let tokens = self.generation.tokens();
        let new = self.sent.min(tokens.len())..tokens.len();
        let piece = Piece {
            text: std::mem::take(&mut self.unsent),
            logprobs: self.generation.logprobs().get(new.clone()).unwrap_or_default().to_vec(),
            tokens: tokens[new.clone()].to_vec(),
            origins: self.generation.origins().get(new.clone()).unwrap_or_default().to_vec(),
        };
        self.sent = new.end;
        self.send(News::Piece(piece));
    }

    fn send(&mut self, news: News) {
        // What is sent now has the place of something that was read.
        if let Some(blocked) = &mut self.blocked {
            blocked.taken += 1;
            if blocked.taken >= READS {
                self.blocked = None;
            }
        }
        if let Some(updates) = &self.updates {
            // There is room (`has_room`), and whoever went away does not mind.
            let wanted = self.stream && self.telemetry.times;
            let times = || Times { stats: self.generation.stats(), cached: self.cached };
            let times = wanted.then(|| Box::new(times()));
            let _ = updates.try_send(Update { choice: self.choice, news, times });
        }
    }

    /// Sends what is left of the text, and the tokens that have none. That it has ended is sent by
    /// [`Ended::tell`].
    pub(super) fn finish(mut self, slot: usize) -> Ended {
        if !self.unsent.is_empty() || self.sent < self.generation.tokens().len() {
            self.send_piece();
        }
        let (updates, choice, cached) = (self.updates.take(), self.choice, self.cached);
        let generated = self.generation.into_ended().generated;
        let outcome = Outcome {
            finish: generated.finish_reason,
            stop: generated.stop,
            times: Times { stats: generated.stats, cached },
            slot,
        };
        Ended { updates, choice, outcome }
    }

    /// Sends why the text cannot go on.
    pub(super) fn fail(mut self, error: &GenerateError) {
        self.send(News::Failed(Failure { blame: error.blame(), message: error.to_string() }));
    }

    /// What `/slots` tells of it, with `n_past` tokens in its context.
    pub(super) fn view(&self, prompt: usize, n_past: u32) -> SlotView {
        SlotView {
            is_processing: true,
            id_task: self.task,
            n_prompt_tokens: prompt,
            n_prompt_tokens_cache: self.cached,
            n_decoded: self.generation.tokens().len(),
            n_past,
        }
    }
}
