//! Generation: prompt in, text out, a step at a time, by plain steps or speculative rounds.
//!
//! A [`Generation`] is made of a [`Request`] and stepped until it is done:
//!
//! ```no_run
//! # use hexflash::engine::Engine;
//! # use hexflash::generate::{Event, Generation, GenerateError, Request};
//! # use hexflash::text::TextModel;
//! # fn show(engine: &mut Engine, text: &TextModel, request: Request) -> Result<(), GenerateError> {
//! let mut generation = Generation::new(text.tokenizer.clone(), request);
//! loop {
//!     match generation.step(engine)? {
//!         Event::Prompt { done, total } => eprintln!("{done} of {total} tokens read"),
//!         Event::Text(piece) => print!("{piece}"),
//!         Event::Done(generated) => return Ok(println!("\n{:?}", generated.finish_reason)),
//!     }
//! }
//! # }
//! ```
//!
//! It borrows nothing and is `Send`: a scheduler can keep many generations, and only a step needs the engine.
//! Each step waits for one piece of the prompt or for one token, and [`Limits::cancel`] ends the generation
//! after it.
//!
//! The text is that of plain decoding, with any source of drafts: a token is emitted only if the target chose
//! it, the sampler draws once per token in the same order, and when a generation ends the context holds
//! exactly the tokens that plain decoding would have left in it. The last token of a text is not in the
//! context: the next prompt begins with that token or replaces it.

mod checked;
mod emit;
mod error;
mod plain;
mod request;
pub(crate) mod retries;
mod rounds;
mod stats;
mod together;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::{Engine, EngineError, Sequence, SequenceId, StepStats};
use crate::model::{MAX_VERIFY, is_picture_row};
use crate::sampler::{Constraint, Sampler, TokenLogprob};
use crate::speculation::{Choice, DraftRoom, Speculation};
use crate::tokenizer::Tokenizer;
use checked::BlockCheck;
use emit::Emitter;
pub use error::{GenerateError, MAX_RETRIES};
pub use request::{Limits, Request};
use retries::{Recovery, Retries};
use rounds::RoundState;
pub use stats::{Finish, Generated, Stats, TokenOrigin};
pub use together::step_together;

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub enum Event<'g> {
    /// Another piece of the prompt is in the context.
    Prompt {
        /// Tokens of the prompt that were run so far.
        done: usize,
        /// Tokens of the whole prompt.
        total: usize,
    },
    /// A token was generated, and this text can be shown. The text is empty if the token ends within a
    /// character, is not shown, or may begin a stop text.
    Text(&'g str),
    /// The generation has ended. Further steps give this event again.
    Done(&'g Generated),
}

/// What remains of a generation after its end.
pub struct Ended {
    /// The tokens, the text, and what they took.
    pub generated: Generated,
    /// The sampler of its request, which has seen the text.
    pub sampler: Sampler,
    /// The speculation of its request, which has learned from it.
    pub speculation: Speculation,
    /// How probable its tokens were, if that was [asked for](Request::logprobs).
    pub logprobs: Vec<TokenLogprob>,
}

/// A generation: prompt, steps or rounds, and text.
///
/// Between two steps its sequence belongs to the generation. A step after the sequence did something else
/// fails with [`GenerateError::Displaced`]; other sequences of the engine may do what they want. Dropping a
/// generation before its end leaves a context that may have a few tokens more or fewer than were shown; to
/// avoid this, cancel it and step it until it is done.
pub struct Generation {
    id: SequenceId,
    prompt: Vec<u32>,
    sampler: Sampler,
    speculation: Speculation,
    /// Alternatives of each token whose probabilities are wanted.
    alternatives: Option<usize>,
    logprobs: Vec<TokenLogprob>,
    constraint: Option<Box<dyn Constraint>>,
    /// Logits without those of tokens that must not come.
    allowed: Vec<f32>,
    /// Places in the prompt at which the state is yet to be saved.
    saves: VecDeque<usize>,
    out: Emitter,
    retries: Retries,
    /// Room for a block: anchor and drafts.
    block: Vec<u32>,
    /// The last token of the text. It is emitted and not in the context.
    last: u32,
    /// Where the context began and where the last step left it.
    place: Option<ContextSpan>,
    /// When the prompt began, and then the text.
    start: Instant,
    /// The engine's statistics at that time.
    before: StepStats,
    stats: Stats,
    phase: Phase,
    /// The result, from when it was first asked for.
    result: Option<Generated>,
}

/// Tokens in the context.
#[derive(Clone, Copy, Debug)]
struct ContextSpan {
    begin: u32,
    now: u32,
}

/// What the next step does.
///
/// ```text
/// Prompt --last piece--> First --a token--> Next --a plain step: a token--+
///   ^  |                                    ^ ^ ^                         |
///   +--+ a piece                            | | +-------------------------+
///                                           | +--all compared-- Checking <--a block was drafted and verified
///                                           +--halted, or finished-- Rounds <--rounds were begun
///
/// Any of them --stop, budget, full context, cancelled, failure--> Over
/// ```
enum Phase {
    /// Runs a piece of the prompt.
    Prompt,
    /// Emits the token after the prompt.
    First,
    /// Runs a plain step, or begins a block or rounds.
    Next,
    /// Compares the next draft of a block.
    Checking(BlockCheck),
    /// Gives the next token of a round, or reads a round.
    Rounds(RoundState),
    /// Nothing: the text has ended.
    Over(Finish),
}

/// What a step was.
enum Progress {
    Prompt(usize),
    Text,
    Over(Finish),
}

/// What a way of decoding did in a step: the phase that follows and, with a token, whether the text ends with
/// it.
type Outcome = Result<(Phase, Option<Finish>), GenerateError>;

impl Generation {
    /// A generation of which no step has run.
    pub fn new(tokenizer: Arc<Tokenizer>, request: Request) -> Self {
        let Request { sequence, prompt, limits, sampler, speculation, logprobs, constraint, saves } = request;
        Self {
            id: sequence,
            prompt,
            sampler,
            speculation,
            alternatives: logprobs,
            logprobs: Vec::new(),
            constraint,
            allowed: Vec::new(),
            saves: saves.into(),
            out: Emitter::new(tokenizer, limits),
            retries: Retries::default(),
            block: Vec::with_capacity(MAX_VERIFY as usize + 1),
            last: 0,
            place: None,
            start: Instant::now(),
            before: StepStats::default(),
            stats: Stats::default(),
            phase: Phase::Prompt,
            result: None,
        }
    }

    /// Does the next step: a piece of the prompt, or a token. A device that is lost is started again, and the
    /// same text goes on.
    ///
    /// # Errors
    /// The prompt does not fit, or the device failed. This ends the generation: further steps give
    /// [`Event::Done`] with the text so far. After most failures the engine has to be [reset](Engine::reset).
    pub fn step(&mut self, engine: &mut Engine) -> Result<Event<'_>, GenerateError> {
        let mut sequence = engine.sequence(self.id)?;
        self.out.begin_step();
        let progress = match self.phase {
            Phase::Over(finish) => Ok(Progress::Over(finish)),
            _ => self.begin(&mut sequence).and_then(|()| self.advance(&mut sequence)),
        };
        self.report(&mut sequence, progress)
    }

    /// What a step has led to.
    fn report(
        &mut self,
        sequence: &mut Sequence<'_>,
        progress: Result<Progress, GenerateError>,
    ) -> Result<Event<'_>, GenerateError> {
        if let Some(place) = &mut self.place {
            place.now = sequence.n_past();
        }
        match progress {
            Ok(Progress::Prompt(done)) => Ok(Event::Prompt { done, total: self.prompt.len() }),
            Ok(Progress::Text) => Ok(Event::Text(self.out.new_text())),
            Ok(Progress::Over(finish)) => Ok(Event::Done(self.result(finish))),
            Err(error) => Err(self.fail(sequence, error)),
        }
    }

    /// Ends this generation with its next step, as [`Limits::cancel`] does.
    pub fn cancel(&mut self) {
        self.out.cancel();
    }

    /// Steps until the end; `on_event` gets the result of each step.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(
        mut self,
        engine: &mut Engine,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<Ended, GenerateError> {
        loop {
            let event = self.step(engine)?;
            on_event(event);
            if let Event::Done(_) = event {
                return Ok(self.into_ended());
            }
        }
    }

    /// The tokens generated so far.
    pub fn tokens(&self) -> &[u32] {
        self.result.as_ref().map_or(self.out.tokens(), |generated| &generated.tokens)
    }

    /// Where each of these tokens came from: from a draft, or from the target alone. The block that the last
    /// of them belongs to may be under way; its drafts count as rejected when it has ended.
    pub fn origins(&self) -> &[TokenOrigin] {
        self.out.origins()
    }

    /// Times and counts so far. What steps and drafts cost is known at the end only: until then
    /// [`Stats::steps`] has zeros, and [`Stats::speculation`] is absent.
    pub fn stats(&self) -> Stats {
        if let Some(generated) = &self.result {
            return generated.stats.clone();
        }
        let mut stats = self.stats.clone();
        match (&self.phase, self.place) {
            // It has not begun, or the figures of its end are there.
            (Phase::Prompt, None) | (Phase::Over(_), _) => {}
            (Phase::Prompt, Some(place)) => {
                stats.prompt((place.now - place.begin) as usize, self.start.elapsed());
            }
            _ => stats.text(self.out.tokens().len(), self.start.elapsed(), &StepStats::default()),
        }
        stats
    }

    /// The text generated so far, without what is held back.
    pub fn text(&self) -> &str {
        self.result.as_ref().map_or(self.out.text(), |generated| &generated.text)
    }

    /// How probable the tokens of the text were, if that was [asked for](Request::logprobs). There may be one
    /// more than tokens: the token that comes next was chosen already.
    pub fn logprobs(&self) -> &[TokenLogprob] {
        &self.logprobs
    }

    /// Takes the generation apart. If it has not ended, it counts as interrupted, with the tokens so far.
    pub fn into_ended(self) -> Ended {
        let finish = if let Phase::Over(finish) = self.phase { finish } else { Finish::Interrupted };
        let Self { mut out, stats, result, sampler, speculation, mut logprobs, .. } = self;
        let generated = result.unwrap_or_else(|| out.take(finish, stats));
        logprobs.truncate(generated.tokens.len());
        Ended { generated, sampler, speculation, logprobs }
    }

    /// The speculation of the request, of which nothing is left here.
    pub(crate) fn take_speculation(&mut self) -> Speculation {
        std::mem::replace(&mut self.speculation, Speculation::off())
    }

    /// The first step begins where the engine is; later ones where the step before has left it.
    fn begin(&mut self, sequence: &mut Sequence<'_>) -> Result<(), GenerateError> {
        let found = sequence.n_past();
        match self.place {
            Some(ContextSpan { now, .. }) if now == found => Ok(()),
            Some(_) => Err(GenerateError::Displaced),
            None => {
                self.start = Instant::now();
                // All of the prompt must fit, before its first piece is run. This also ends rounds that were
                // left behind.
                if self.prompt.last().is_some_and(|&last| is_picture_row(last)) {
                    return Err(EngineError::PictureLast.into());
                }
                match sequence.admit_prompt(&self.prompt) {
                    Err(loss) if loss.is_loss() => {
                        if self.recover(sequence, loss)? == Recovery::Done {
                            sequence.admit_prompt(&self.prompt)?;
                        }
                    }
                    other => other?,
                }
                self.place = Some(ContextSpan { begin: sequence.n_past(), now: sequence.n_past() });
                Ok(())
            }
        }
    }

    /// Does what comes next, over losses of the device: what was emitted stands, the rest comes again.
    fn advance(&mut self, sequence: &mut Sequence<'_>) -> Result<Progress, GenerateError> {
        loop {
            let loss = match self.phase {
                Phase::Prompt => match self.read_piece(sequence) {
                    Err(GenerateError::Engine(error)) if error.is_loss() => error,
                    other => return other,
                },
                _ => match self.next_token(sequence) {
                    Ok(None) => continue,
                    Ok(Some(progress)) => return Ok(progress),
                    Err(GenerateError::Engine(error)) if error.is_loss() => error,
                    Err(error) => return Err(error),
                },
            };
            if self.recover(sequence, loss)? == Recovery::Cancelled {
                return Ok(self.end(sequence, Finish::Interrupted));
            }
        }
    }

    /// Brings a lost device back.
    fn recover(&mut self, sequence: &mut Sequence<'_>, loss: EngineError) -> Result<Recovery, GenerateError> {
        let done = match self.phase {
            Phase::Prompt => self.prompt_done(sequence),
            _ => self.out.tokens().len(),
        };
        self.retries.recover(sequence, loss, done, || self.out.is_cancelled())
    }

    /// Tokens of the prompt that are in the context.
    fn prompt_done(&self, sequence: &Sequence<'_>) -> usize {
        let done = self.place.map_or(0, |place| sequence.n_past().saturating_sub(place.begin));
        (done as usize).min(self.prompt.len())
    }

    /// Runs a piece of the prompt, unless it is cancelled before.
    fn read_piece(&mut self, sequence: &mut Sequence<'_>) -> Result<Progress, GenerateError> {
        if self.out.is_cancelled() {
            return Ok(self.end(sequence, Finish::Interrupted));
        }
        let piece = self.next_piece(sequence)?;
        let done = piece.start + sequence.prefill_piece(&self.prompt[piece])?;
        if done == self.prompt.len() {
            self.first_token(sequence)?;
        }
        Ok(Progress::Prompt(done))
    }

    /// What is left of the prompt up to the next place at which the state is saved; where that place is now,
    /// saves it.
    fn next_piece(&mut self, sequence: &mut Sequence<'_>) -> Result<Range<usize>, GenerateError> {
        let done = self.prompt_done(sequence);
        while let Some(&place) = self.saves.front() {
            if place > done {
                return Ok(done..place.min(self.prompt.len()));
            }
            if place == done {
                sequence.save()?;
            }
            self.saves.pop_front();
        }
        Ok(done..self.prompt.len())
    }

    /// The prompt is in the context: chooses the token after it, which the next step emits. A step of another
    /// sequence may overwrite the logits before that.
    fn first_token(&mut self, sequence: &mut Sequence<'_>) -> Result<(), GenerateError> {
        self.end_prompt(sequence, self.prompt.len());
        self.phase = Phase::First;
        self.last = self.choose(sequence, 0)?;
        Ok(())
    }

    /// The first `n` tokens of the prompt are all that there is of it.
    fn end_prompt(&mut self, sequence: &mut Sequence<'_>, n: usize) {
        self.stats.prompt(n, self.start.elapsed());
        let fresh = self.place.is_some_and(|place| place.begin == 0);
        let chain = sequence.engine().draft_model().is_some_and(|draft| draft.is_chain());
        let most = self.out.reserve(sequence.engine().n_ctx());
        self.speculation.begin(&self.prompt[..n], fresh, chain, most);
        for &token in &self.prompt[..n] {
            self.sampler.accept(token);
        }
        self.before = sequence.engine().stats();
        self.start = Instant::now();
    }

    /// Emits the next token, or finds that there is none. `None` where another way of decoding has to be
    /// asked.
    fn next_token(&mut self, sequence: &mut Sequence<'_>) -> Result<Option<Progress>, GenerateError> {
        let before = self.out.tokens().len();
        let (phase, finish) = match std::mem::replace(&mut self.phase, Phase::Next) {
            // Whoever wants no token wants the prompt in the context.
            Phase::First if self.out.left() == Some(0) => (Phase::Next, Some(Finish::Length)),
            // The last piece of a prompt has led to this token, also if it was cancelled meanwhile.
            Phase::First => (Phase::Next, self.emit()?),
            Phase::Next => self.choose_way(sequence)?,
            Phase::Checking(check) => self.check_row(sequence, check)?,
            Phase::Rounds(state) => self.go_on_with_rounds(sequence, state)?,
            phase @ (Phase::Prompt | Phase::Over(_)) => (phase, None),
        };
        self.phase = phase;
        if let Some(finish) = finish {
            return Ok(Some(self.end(sequence, finish)));
        }
        // The logits of a block last until another sequence takes its turn.
        let hold = matches!(self.phase, Phase::Checking(_)) && sequence.engine().sequences().len() > 1;
        Ok((self.out.tokens().len() > before && !hold).then_some(Progress::Text))
    }

    /// Chooses among a plain step, a block that the host checks, and rounds on the device.
    fn choose_way(&mut self, sequence: &mut Sequence<'_>) -> Outcome {
        if self.out.is_cancelled() {
            return Ok((Phase::Next, Some(Finish::Interrupted)));
        }
        if sequence.n_past() == sequence.engine().n_ctx() {
            return Ok((Phase::Next, Some(Finish::Context)));
        }
        let on_device = self.takes_argmax() && sequence.engine().draft_device().is_none();
        self.speculation.share(1);
        match self.speculation.choose(self.draft_room(sequence, 0)) {
            Choice::Draft(length) if on_device => self.begin_rounds(sequence, length),
            choice => self.begin_block(sequence, choice),
        }
    }

    /// Drafts that can be of use now, where `unseen` tokens of the context are yet to be emitted.
    fn draft_room(&self, sequence: &Sequence<'_>, unseen: usize) -> DraftRoom {
        if !self.speculation.is_on() {
            return DraftRoom::default();
        }
        // A budget of n tokens has no use for more than n - 1 drafts, nor has the context.
        let left = self
            .out
            .left()
            .map_or(u32::MAX, |left| u32::try_from(left.saturating_sub(unseen)).unwrap_or(u32::MAX));
        let room = sequence.engine().n_ctx() - sequence.n_past();
        let hosts = left.saturating_sub(1).min(room.saturating_sub(1)).min(MAX_VERIFY - 1);
        let model = if self.speculation.is_model() { sequence.draft_room() } else { 0 };
        DraftRoom { model: hosts.min(model), hosts }
    }

    /// The token after row `row`: the device's argmax where the sampler would choose just that, else drawn
    /// from the logits.
    fn choose(&mut self, sequence: &mut Sequence<'_>, row: usize) -> Result<u32, GenerateError> {
        if self.takes_argmax() {
            return Ok(sequence.argmax(row));
        }
        let logits = sequence.logits(row);
        let token = match &mut self.constraint {
            None => self.sampler.sample(logits)?,
            Some(constraint) => {
                self.allowed.clear();
                self.allowed.extend_from_slice(logits);
                constraint.forbid(&mut self.allowed)?;
                self.sampler.sample(&self.allowed)?
            }
        };
        self.logprobs.extend(self.alternatives.map(|n| TokenLogprob::new(logits, token, n)));
        Ok(token)
    }

    /// Whether nothing but the best token is wanted of the logits.
    fn takes_argmax(&self) -> bool {
        self.sampler.is_argmax() && self.alternatives.is_none() && self.constraint.is_none()
    }

    /// The last token becomes text; whether the text ends with it.
    fn emit(&mut self) -> Result<Option<Finish>, GenerateError> {
        self.sampler.accept(self.last);
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(self.last)?;
        }
        self.speculation.push(self.last);
        self.out.push(self.last)
    }

    /// The text ends here. What was held back of it is shown first.
    fn end(&mut self, sequence: &mut Sequence<'_>, finish: Finish) -> Progress {
        if let Phase::Prompt = self.phase {
            let done = self.prompt_done(sequence);
            self.end_prompt(sequence, done);
        }
        self.speculation.end();
        self.out.end(finish);
        let n = self.out.tokens().len();
        let engine = sequence.engine();
        self.stats.text(n, self.start.elapsed(), &engine.stats().since(&self.before));
        self.stats.context_tokens = (sequence.n_past() + u32::from(n > 0)).min(engine.n_ctx());
        self.stats.restarts = self.retries.total();
        self.stats.speculation = self.speculation.is_on().then(|| self.speculation.stats().clone());
        self.phase = Phase::Over(finish);
        if self.out.new_text().is_empty() { Progress::Over(finish) } else { Progress::Text }
    }

    /// The result, made when it is first asked for.
    fn result(&mut self, finish: Finish) -> &Generated {
        let (out, stats) = (&mut self.out, &mut self.stats);
        self.result.get_or_insert_with(|| out.take(finish, std::mem::take(stats)))
    }

    /// It is over because of `error`. Text before it is kept; what was held back is text, too.
    fn fail(&mut self, sequence: &mut Sequence<'_>, error: GenerateError) -> GenerateError {
        let had_text = !self.out.tokens().is_empty();
        self.end(sequence, Finish::Interrupted);
        let source = match error {
            GenerateError::Engine(source) if had_text => Box::new(source),
            error => return error,
        };
        let (tokens, text) = (self.out.tokens().to_vec(), self.out.text().to_owned());
        if source.is_loss() {
            GenerateError::Lost { source, tokens, text }
        } else if matches!(*source, EngineError::NotFinite { .. }) {
            GenerateError::Damaged { source, tokens, text }
        } else {
            GenerateError::Engine(*source)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a scheduler keeps can go to its thread.
    #[test]
    fn a_generation_and_its_parties_are_send() {
        fn send<T: Send>() {}
        send::<Engine>();
        send::<Request>();
        send::<Generation>();
        send::<Ended>();
        send::<crate::Error>();
    }
}
