//! The thread that owns the engine.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hexflash::Blame;
use hexflash::engine::{Engine, SequenceCopy};
use hexflash::generate::{Generation, Request, step_together};
use hexflash::model::is_picture_row;
use hexflash::sampler::Constraint;
use hexflash::speculation::Speculation;
use hexflash::tokenizer::{TokenKind, Tokenizer};

use super::news::{Failure, News, SlotView, Update};
use super::order::Order;
use super::queue::Job;
use super::ram_cache::RamCache;
use super::reuse::{Candidate, choose, places};
use super::shared::Scheduler;
use super::slot::{Happened, Running, Slot};
use super::task::Asked;
use crate::grammar::Masks;

/// Fewest tokens that are worth a copy of a sequence: computing fewer again costs less.
const WORTH: usize = 16;

/// How long a step waits for the masks of forms. The usual ones take less than a millisecond.
const MASK_GRACE: Duration = Duration::from_millis(2);
/// How long a client may not read while others wait for its sequence. Networks pause for a second or two.
const PATIENCE: Duration = Duration::from_secs(4);

/// Steps all texts, on the thread that runs it.
pub(crate) struct Worker {
    scheduler: Arc<Scheduler>,
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    drafts: Box<dyn Fn() -> Speculation + Send>,
    slots: Vec<Slot>,
    /// Texts that had to give way.
    cache: RamCache,
    /// How long a client may not read.
    timeout: Duration,
    /// The slot that is first in the next step.
    first: usize,
    /// A text whose pictures are being encoded, a tile at a time.
    preparing: Option<Job>,
    /// Texts so far: the time at which a sequence was used.
    clock: u64,
}

/// No worker, no texts: what waits is told so, and nothing more is taken, however the worker ends.
struct Closes(Arc<Scheduler>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.queue.close();
        self.0.queue.clear();
        self.0.asks.close();
    }
}

impl Worker {
    pub(crate) fn new(
        scheduler: Arc<Scheduler>,
        engine: Engine,
        tokenizer: Arc<Tokenizer>,
        drafts: Box<dyn Fn() -> Speculation + Send>,
        timeout: Duration,
        cache_bytes: Option<usize>,
    ) -> Self {
        scheduler.metrics.tell_matrix_unit(engine.device().info().matrix_unit);
        let slots: Vec<_> = engine.sequences().map(Slot::new).collect();
        let cache = RamCache::new(if engine.copies_sequences() { cache_bytes } else { Some(0) });
        Self {
            scheduler,
            engine,
            tokenizer,
            drafts,
            slots,
            cache,
            timeout,
            first: 0,
            preparing: None,
            clock: 0,
        }
    }

    /// Its engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs until the scheduler is closed and all is done.
    pub(crate) fn run(mut self) {
        let _closes = Closes(Arc::clone(&self.scheduler));
        // It is set once, by the only worker.
        let _ = self.scheduler.worker.set(thread::current());
        self.scheduler.queue.release(self.slots.len());
        *self.scheduler.views() = vec![SlotView::default(); self.slots.len()];
        loop {
            if self.scheduler.abort.is_cancelled() {
                self.scheduler.queue.clear();
                self.running().for_each(Running::interrupt);
            }
            self.give_up_abandoned();
            self.do_asked();
            self.begin_waiting();
            if self.step() || self.preparing.is_some() {
                continue;
            }
            if self.running().next().is_none()
                && self.scheduler.queue.is_over()
                && self.scheduler.asks.is_empty()
            {
                return;
            }
            // Whatever changes from here on wakes it again.
            match self.give_up_abandoned() {
                // Its text ends with its next step.
                _ if self.running().any(|running| running.updates.is_none()) => {}
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }

    /// Ends the texts whose clients went away, or do not read; how long those may still not read that are
    /// left.
    fn give_up_abandoned(&mut self) -> Option<Duration> {
        let mut least: Option<Duration> = None;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(running) = &mut slot.running else { continue };
            let is_needed = || self.scheduler.queue.wants(number) || self.scheduler.asks.wants(number);
            let is_blocked = running.blocked.is_some();
            let timeout = if is_blocked && is_needed() { self.timeout.min(PATIENCE) } else { self.timeout };
            running.give_up_if_abandoned(timeout);
            let left = running.patience(timeout);
            least = [least, left].into_iter().flatten().min();
        }
        least
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Running> {
        self.slots.iter_mut().filter_map(|slot| slot.running.as_mut())
    }

    /// Does what was asked of sequences at rest.
    fn do_asked(&mut self) {
        loop {
            let is_free = |slot: usize| self.slots.get(slot).is_some_and(|slot| slot.running.is_none());
            let Some(Asked { slot: number, task, answer }) = self.scheduler.asks.take(is_free) else {
                return;
            };
            let slot = &mut self.slots[number];
            let outcome = self.engine.sequence(slot.id).and_then(|mut sequence| {
                let done = task.run(&mut sequence)?;
                // What it has now is as good as a prompt.
                slot.prompt = sequence.history().len();
                Ok(done)
            });
            let outcome =
                outcome.map_err(|error| Failure { blame: error.blame(), message: error.to_string() });
            // Who went away does not mind.
            let _ = answer.send(outcome);
            self.show(number);
        }
    }

    /// Gives sequences to jobs as long as there are both.
    fn begin_waiting(&mut self) {
        while self.slots.iter().any(|slot| slot.running.is_none()) {
            let is_free = |slot: usize| self.slots.get(slot).is_some_and(|slot| slot.running.is_none());
            let job = self.preparing.take().or_else(|| self.scheduler.queue.take(is_free));
            let Some(mut job) = job else { return };
            match self.encode_next(&mut job) {
                Ok(false) => self.begin(job),
                Ok(true) => {
                    // Texts under way have a step before the next tile.
                    self.preparing = Some(job);
                    return;
                }
                Err(failure) => self.refuse(&job, failure),
            }
        }
    }

    /// Encodes the next tile that a job waits for; whether there was one.
    fn encode_next(&mut self, job: &mut Job) -> Result<bool, Failure> {
        let Some(pictures) = &mut job.order.pictures else { return Ok(false) };
        if job.updates.is_closed() || self.scheduler.abort.is_cancelled() {
            let message = "nobody waits for the answer any more".to_owned();
            return Err(Failure { blame: Blame::Cancelled, message });
        }
        let outcome = pictures.encode_next(&mut self.engine);
        outcome.map_err(|error| Failure { blame: error.blame(), message: error.to_string() })
    }

    /// Tells who waits for a job that it has failed before it began.
    fn refuse(&self, job: &Job, failure: Failure) {
        if failure.blame != Blame::Cancelled {
            tracing::error!("{}", failure.message);
        }
        // Who went away does not mind.
        let _ = job.updates.try_send(Update { choice: job.choice, news: News::Failed(failure), times: None });
        self.scheduler.queue.release(1);
    }

    /// Begins a text, on the sequence that has most of its prompt.
    fn begin(&mut self, job: Job) {
        let Job { order, choice, choices, task, updates } = job;
        let Order {
            mut prompt,
            pictures,
            limits,
            mut sampler,
            logprobs,
            form,
            stream,
            telemetry,
            reuse,
            slot: wanted,
        } = order;
        let mut rows = Vec::new();
        if let Some(pictures) = pictures {
            (prompt, rows) = pictures.into_parts();
        }
        let candidates =
            self.candidates(&prompt, reuse).filter(|one| wanted.is_none_or(|slot| one.slot == slot));
        let Some(found) = choose(prompt.len(), candidates) else { return };
        let found = self.consult_cache(&prompt, found, wanted, reuse);
        let cached = self.take_back(found.slot, found.reach);
        self.clock += 1;
        let slot = &mut self.slots[found.slot];
        (slot.prompt, slot.used) = (prompt.len(), self.clock);

        let mut speculation = (self.drafts)();
        speculation.remember(&prompt[..cached]);
        prompt[..cached].iter().for_each(|&token| sampler.accept(token));
        let mut saves = Vec::new();
        if self.engine.snapshot_room() > 0 {
            let is_control = |token| self.tokenizer.kind(token) == Some(TokenKind::Control);
            // No prompt takes the places of all others.
            let most = (self.engine.snapshot_room() / self.engine.sequences().len()).max(1);
            saves = places(&prompt, cached, most, is_control);
            saves.iter_mut().for_each(|place| *place -= cached);
        }
        let masks = form.map(|form| {
            let scheduler = Arc::clone(&self.scheduler);
            form.begin(move || scheduler.wake())
        });
        let masks = match masks.transpose() {
            Ok(masks) => masks,
            Err(error) => {
                let message = format!("there is no thread for the answer's form: {error}; ask again later");
                let news = News::Failed(Failure { blame: Blame::System, message });
                // Who went away does not mind.
                let _ = updates.try_send(Update { choice, news, times: None });
                self.scheduler.queue.release(1);
                return;
            }
        };
        let mask = masks.as_ref().map(Masks::state);
        let request = Request {
            sequence: slot.id,
            prompt: prompt[cached..].to_vec(),
            limits,
            sampler,
            speculation,
            logprobs,
            constraint: masks.map(|masks| Box::new(masks) as Box<dyn Constraint>),
            saves,
        };
        slot.running = Some(Running {
            generation: Generation::new(Arc::clone(&self.tokenizer), request),
            task,
            cached,
            _rows: rows,
            choice,
            choices,
            updates: Some(updates),
            stream,
            telemetry,
            unsent: String::new(),
            sent: 0,
            mask,
            is_late: false,
            blocked: None,
        });
        if let Some(running) = &mut slot.running {
            running.tell_progress(0, slot.prompt);
        }
        self.show(found.slot);
    }

    /// Looks whether a text that had to give way spares more than the sequence `found`, and has it take a
    /// sequence again; keeps what the sequence forgets.
    fn consult_cache(
        &mut self,
        prompt: &[u32],
        found: Candidate,
        wanted: Option<usize>,
        reuse: bool,
    ) -> Candidate {
        if !self.cache.is_on() {
            return found;
        }
        let engine = &self.engine;
        let reach = |copy: &SequenceCopy, n: usize| copy.reach(engine, n as u32) as usize;
        let least = if reuse { found.reach + WORTH } else { usize::MAX };
        let Some((copy, n)) = self.cache.best(prompt, least, reach) else {
            if found.forgets >= WORTH {
                self.keep(found.slot);
            }
            return found;
        };
        // Whatever the sequences have is of less use: the one that was not used for the longest time gives
        // way.
        let others = self.candidates(&[], false).filter(|one| wanted.is_none_or(|slot| one.slot == slot));
        let found = choose(prompt.len(), others).unwrap_or(found);
        self.keep(found.slot);
        let copied = self.engine.sequence(self.slots[found.slot].id).and_then(|mut one| one.copy_in(&copy));
        match copied {
            Ok(()) => {
                self.scheduler.metrics.cache_hit();
                Candidate { reach: n, ..found }
            }
            Err(error) => {
                tracing::warn!("{error}; the prompt is read from its beginning");
                found
            }
        }
    }

    /// Keeps a copy of what a sequence at rest has, if there is none and its prompt was not short.
    fn keep(&mut self, number: usize) {
        let slot = &self.slots[number];
        let Ok(mut sequence) = self.engine.sequence(slot.id) else { return };
        let history = sequence.history();
        // Rows of pictures cannot be copied.
        let has_pictures = history.iter().any(|&id| is_picture_row(id));
        if has_pictures || slot.prompt.min(history.len()) < WORTH || self.cache.has(history) {
            return;
        }
        match sequence.copy_out() {
            Ok(copy) => self.cache.add(copy),
            Err(error) => tracing::warn!("{error}; the text will be computed again when it goes on"),
        }
        self.scheduler.metrics.cache_has(self.cache.len(), self.cache.bytes());
    }

    /// The sequences at rest, and what they have of a prompt that may `reuse` it. The last token of the
    /// prompt has to be run in any case, for its logits.
    fn candidates(&mut self, prompt: &[u32], reuse: bool) -> impl Iterator<Item = Candidate> {
        let engine = &mut self.engine;
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.running.is_none());
        idle.filter_map(move |(number, slot)| {
            let sequence = engine.sequence(slot.id).ok()?;
            let common = sequence.common(prompt);
            // A prompt is shorter than the context.
            let reach = if reuse { sequence.reach(common as u32) as usize } else { 0 };
            // A prompt that was cut short is not all there.
            let forgets = slot.prompt.min(sequence.history().len()).saturating_sub(common);
            Some(Candidate { slot: number, reach, forgets, used: slot.used })
        })
    }

    /// Takes back all tokens of a sequence at rest but the first `n`; how many are left.
    fn take_back(&mut self, slot: usize, n: usize) -> usize {
        let Ok(mut sequence) = self.engine.sequence(self.slots[slot].id) else { return 0 };
        if n > 0 {
            match sequence.roll_back(n as u32) {
                Ok(()) => return n,
                // The text begins anew, and finds out itself what is wrong with the device.
                Err(error) => tracing::warn!("{error}; the prompt is read from its beginning"),
            }
        }
        sequence.reset();
        0
    }

    /// Waits a moment for masks that are not there yet: most take less than that, and their texts would miss
    /// a step. Nobody waits twice for a mask.
    fn await_masks(&mut self) {
        let deadline = Instant::now() + MASK_GRACE;
        let mut has_parked = false;
        for running in self.running() {
            while !running.has_mask() && !running.is_late {
                let left = deadline.saturating_duration_since(Instant::now());
                running.is_late = left.is_zero();
                thread::park_timeout(left);
                has_parked = true;
            }
            running.is_late &= !running.has_mask();
        }
        if has_parked {
            // What woke it may have been something else, which has to be looked at.
            thread::current().unpark();
        }
    }

    /// Steps all texts whose clients read, and whose forms know what may come; whether there are any.
    fn step(&mut self) -> bool {
        self.await_masks();
        let n = self.slots.len();
        let (late, early) = self.slots.split_at_mut(self.first % n.max(1));
        self.first = (self.first + 1) % n.max(1);
        let (mut numbers, mut texts) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let start = late.len();
        for (i, slot) in early.iter_mut().chain(late).enumerate() {
            if let Some(running) = &mut slot.running
                && running.has_room()
                && running.has_mask()
            {
                numbers.push((start + i) % n);
                texts.push(&mut running.generation);
            }
        }
        let before = self.engine.stats().steps;
        let mut happened = Vec::with_capacity(2 * n);
        match &mut texts[..] {
            [] => return false,
            // Alone, its rounds of drafts can stay on the device.
            [text] => happened.push((0, Happened::of(text.step(&mut self.engine)))),
            texts => step_together(&mut self.engine, texts, |i, event| {
                happened.push((i, Happened::of(event)));
            }),
        }
        let steps = self.engine.stats().steps - before;
        self.scheduler.metrics.stepped(steps, numbers.len());
        for (i, event) in happened {
            self.report(numbers[i], event);
        }
        numbers.into_iter().for_each(|slot| self.show(slot));
        true
    }

    /// Passes on what a step has given. Who reads the end of a text finds its slot idle and its tokens
    /// counted.
    fn report(&mut self, number: usize, event: Happened) {
        let slot = &mut self.slots[number];
        match event {
            Happened::Nothing => {}
            Happened::Prompt(done) => {
                if let Some(running) = &mut slot.running {
                    running.tell_progress(done, slot.prompt);
                }
            }
            Happened::Text(text) => {
                if let Some(running) = &mut slot.running {
                    running.add(&text);
                }
            }
            Happened::Done => {
                let Some(running) = slot.running.take() else { return };
                let ended = running.finish(number);
                self.scheduler.metrics.finished(&ended.outcome);
                self.free(number);
                ended.tell();
                self.save(number);
            }
            Happened::Failed(error) => {
                tracing::error!("{error}");
                let Some(running) = slot.running.take() else { return };
                self.take_back(number, 0);
                self.free(number);
                running.fail(&error);
            }
        }
    }

    /// Saves the state of a sequence at rest: the next turn of its conversation may begin here and be edited
    /// later.
    fn save(&mut self, number: usize) {
        if let Ok(mut sequence) = self.engine.sequence(self.slots[number].id)
            && let Err(error) = sequence.save()
        {
            tracing::warn!("{error}; the text will be computed again when it goes on");
            sequence.reset();
        }
    }

    /// A sequence may have another text.
    fn free(&mut self, number: usize) {
        self.show(number);
        self.scheduler.queue.release(1);
    }

    /// Shows what a sequence is doing.
    fn show(&mut self, number: usize) {
        let slot = &self.slots[number];
        let n_past = self.engine.sequence(slot.id).map_or(0, |sequence| sequence.n_past());
        if let Some(view) = self.scheduler.views().get_mut(number) {
            match &slot.running {
                Some(running) => *view = running.view(slot.prompt, n_past),
                None => (view.is_processing, view.n_past) = (false, n_past),
            }
        }
    }
}
