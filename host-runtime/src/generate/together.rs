//! Generations that share steps: the rows of all of them go through the model at once, so that weights are
//! read once for all. Each text is the one that its generation would have written alone.

use std::time::{Duration, Instant};

use hexflash_abi::program::MAX_SLOTS;

use super::checked::BlockCheck;
use super::retries::Recovery;
use super::{Event, Finish, GenerateError, Generation, Phase, Progress};
use crate::engine::{Engine, EngineError, Sequence, SequenceId, StepRows};
use crate::model::is_picture_row;
use crate::speculation::{By, DraftRoom};

/// Most sequences of an engine, and so of a step.
const MAX_SEQUENCES: usize = MAX_SLOTS as usize;

/// What a generation has in a step.
#[derive(Clone, Copy, Debug)]
enum Share {
    /// Nothing: its text has ended, it failed, or there is no room.
    Nothing,
    /// So many tokens of its prompt, after those that are done.
    Prompt { done: usize, n: usize },
    /// The last token of its text.
    Token,
    /// The last token of its text and drafts, who made them, and how long that took.
    Block { by: By, drafting: Duration },
}

/// What a generation is ready for.
enum Ready {
    /// A step with this share.
    For(Share),
    /// Nothing: its text has ended.
    Over(Progress),
}

/// Does the next step of several generations at once, each of which has a sequence of its own: what
/// [`Generation::step`] does for one of them.
///
/// In a step each text gets a token, or as many as were drafted and are right; what room is left goes to
/// prompts. A generation for which there is no room gives no event; it has its turn when it comes earlier in
/// the list. `on_event` gets the index of a generation and what has become of it. An error ends that
/// generation. One whose text has ended gives [`Event::Done`] each time.
///
/// Drafts of a draft model are checked by the host here, and not in rounds on the device.
///
/// A device that is lost is started again, and all texts go on. If that does not help, the first generation
/// of the step gets the error, and each of the others gets one of its own with its next step.
pub fn step_together(
    engine: &mut Engine,
    generations: &mut [&mut Generation],
    mut on_event: impl FnMut(usize, Result<Event<'_>, GenerateError>),
) {
    let mut shares = [Share::Nothing; MAX_SEQUENCES];
    let (mut room, texts) = (engine.shared_rows(), generations.len());
    for (i, (generation, share)) in generations.iter_mut().zip(&mut shares).enumerate() {
        let mut sequence = match engine.sequence(generation.id) {
            Ok(sequence) => sequence,
            Err(error) => {
                on_event(i, Err(error.into()));
                continue;
            }
        };
        generation.out.begin_step();
        generation.speculation.share(texts);
        match generation.prepare(&mut sequence, room) {
            Ok(Ready::For(wanted)) => {
                *share = wanted;
                room -= match wanted {
                    // Prompts get what is left.
                    Share::Nothing | Share::Prompt { .. } => 0,
                    Share::Token | Share::Block { .. } => generation.rows(wanted).len(),
                };
            }
            Ok(Ready::Over(progress)) => on_event(i, generation.report(&mut sequence, Ok(progress))),
            Err(error) => on_event(i, generation.report(&mut sequence, Err(error))),
        }
    }
    divide(&mut shares, room, engine.batch() as usize);

    let Some(first) = shares.iter().position(|share| !matches!(share, Share::Nothing)) else { return };
    let start = Instant::now();
    let outcome = run(engine, generations, &shares, first);
    if !matches!(outcome, Ok(Recovery::Done)) {
        let generation = &mut *generations[first];
        let Ok(mut sequence) = engine.sequence(generation.id) else { return };
        let progress = outcome.map(|_| generation.end(&mut sequence, Finish::Interrupted));
        return on_event(first, generation.report(&mut sequence, progress));
    }
    let (rows, time) = (engine.last_rows(), start.elapsed());
    for (i, (generation, &share)) in generations.iter_mut().zip(&shares).enumerate() {
        if matches!(share, Share::Nothing) {
            continue;
        }
        generation.speculation.shared_step(rows, time);
        let Ok(mut sequence) = engine.sequence(generation.id) else { continue };
        let progress = generation.conclude(&mut sequence, share, start);
        on_event(i, generation.report(&mut sequence, progress));
        if let Phase::First = generation.phase {
            generation.out.begin_step();
            if let Some(progress) = generation.next_token(&mut sequence).transpose() {
                on_event(i, generation.report(&mut sequence, progress));
            }
        }
    }
}

/// Divides the room that is left among prompts, in equal pieces. A prompt that has a step for itself gets a
/// whole batch.
fn divide(shares: &mut [Share], mut room: usize, batch: usize) {
    let is_prompt = |share: &&mut Share| matches!(share, Share::Prompt { .. });
    let mut prompts = shares.iter_mut().filter(is_prompt).count();
    let others = shares.iter().any(|share| matches!(share, Share::Token | Share::Block { .. }));
    if prompts == 1 && !others {
        room = batch;
    }
    for share in shares {
        let Share::Prompt { n, .. } = share else { continue };
        *n = (*n).min(room.div_ceil(prompts));
        (room, prompts) = (room - *n, prompts - 1);
        if *n == 0 {
            *share = Share::Nothing;
        }
    }
}

/// Runs the rows of all, over losses of the device.
fn run(
    engine: &mut Engine,
    generations: &mut [&mut Generation],
    shares: &[Share],
    first: usize,
) -> Result<Recovery, GenerateError> {
    loop {
        let Err(error) = run_once(engine, generations, shares) else { return Ok(Recovery::Done) };
        if !error.is_loss() {
            return Err(error.into());
        }
        let generation = &mut generations[first];
        let mut sequence = engine.sequence(generation.id)?;
        if let Recovery::Cancelled = generation.recover(&mut sequence, error)? {
            return Ok(Recovery::Cancelled);
        }
    }
}

fn run_once(
    engine: &mut Engine,
    generations: &[&mut Generation],
    shares: &[Share],
) -> Result<(), EngineError> {
    let mut rows = [StepRows::append(SequenceId::FIRST, &[]); MAX_SEQUENCES];
    let mut n = 0;
    for (generation, &share) in generations.iter().zip(shares) {
        let tokens = generation.rows(share);
        if !tokens.is_empty() {
            rows[n] = match share {
                Share::Block { .. } => StepRows::verify(generation.id, tokens),
                Share::Nothing | Share::Prompt { .. } | Share::Token => {
                    StepRows::append(generation.id, tokens)
                }
            };
            n += 1;
        }
    }
    engine.step(&rows[..n])
}

impl Generation {
    /// The tokens of its share.
    fn rows(&self, share: Share) -> &[u32] {
        match share {
            Share::Nothing => &[],
            Share::Prompt { done, n } => &self.prompt[done..done + n],
            Share::Token => std::slice::from_ref(&self.last),
            Share::Block { .. } => &self.block,
        }
    }

    /// Does what needs no shared step, and finds out what needs one, with `room` for so many rows. A device
    /// that is lost meanwhile is started again.
    fn prepare(&mut self, sequence: &mut Sequence<'_>, room: usize) -> Result<Ready, GenerateError> {
        loop {
            let loss = match self.get_ready(sequence, room) {
                Err(GenerateError::Engine(error)) if error.is_loss() => error,
                other => return other,
            };
            if self.recover(sequence, loss)? == Recovery::Cancelled {
                return Ok(Ready::Over(self.end(sequence, Finish::Interrupted)));
            }
        }
    }

    fn get_ready(&mut self, sequence: &mut Sequence<'_>, room: usize) -> Result<Ready, GenerateError> {
        if let Phase::Over(finish) = self.phase {
            return Ok(Ready::Over(Progress::Over(finish)));
        }
        self.begin(sequence)?;
        // Rounds on the device are for one text. What they have given is emitted first, if there are any.
        sequence.engine_mut().displace_rounds()?;
        while let Phase::First | Phase::Checking(_) | Phase::Rounds(_) = self.phase {
            let progress = self.next_token(sequence)?;
            if let (Some(progress), Phase::Over(_)) = (progress, &self.phase) {
                return Ok(Ready::Over(progress));
            }
        }
        let finish = if self.out.is_cancelled() {
            Some(Finish::Interrupted)
        } else if matches!(self.phase, Phase::Next) && sequence.n_past() == sequence.engine().n_ctx() {
            Some(Finish::Context)
        } else {
            None
        };
        if let Some(finish) = finish {
            return Ok(Ready::Over(self.end(sequence, finish)));
        }
        Ok(Ready::For(if room == 0 {
            Share::Nothing
        } else if let Phase::Prompt = self.phase {
            let mut piece = self.next_piece(sequence)?;
            // Rows of pictures have steps of their own. A prompt ends with tokens, so that some are left.
            while is_picture_row(self.prompt[piece.start]) {
                sequence.prefill_piece(&self.prompt[piece])?;
                piece = self.next_piece(sequence)?;
            }
            let tokens = self.prompt[piece.clone()].iter().position(|&id| is_picture_row(id));
            Share::Prompt { done: piece.start, n: tokens.unwrap_or(piece.len()) }
        } else {
            self.prepare_token(sequence, room)?
        }))
    }

    /// Drafts, where that is worth it.
    fn prepare_token(&mut self, sequence: &mut Sequence<'_>, room: usize) -> Result<Share, GenerateError> {
        let rows = u32::try_from(room - 1).unwrap_or(u32::MAX);
        let DraftRoom { model, hosts } = self.draft_room(sequence, 0);
        let start = Instant::now();
        let choice = self.speculation.choose(DraftRoom { model: model.min(rows), hosts: hosts.min(rows) });
        let by = self.draft_block(sequence, choice)?;
        // A guess that took the place of drafts may be longer than they would have been.
        self.block.truncate(room);
        Ok(by.map_or(Share::Token, |by| Share::Block { by, drafting: start.elapsed() }))
    }

    /// Takes up what a step, begun at `start`, has given.
    fn conclude(
        &mut self,
        sequence: &mut Sequence<'_>,
        share: Share,
        start: Instant,
    ) -> Result<Progress, GenerateError> {
        let (mut phase, mut finish) = match share {
            Share::Nothing => return Ok(Progress::Text),
            Share::Prompt { done, n } => {
                if done + n == self.prompt.len() {
                    self.first_token(sequence)?;
                }
                return Ok(Progress::Prompt(done + n));
            }
            Share::Token => self.plain_token(sequence, start)?,
            Share::Block { by, drafting } => {
                // The time of its own drafts counts, and not that of others that came between.
                let start = start.checked_sub(drafting).unwrap_or(start);
                self.compare_row(sequence, BlockCheck::new(by, &self.block, start))?
            }
        };
        while let Phase::Checking(check) = phase {
            (phase, finish) = self.check_row(sequence, check)?;
        }
        self.phase = phase;
        Ok(finish.map_or(Progress::Text, |finish| self.end(sequence, finish)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(lengths: &[usize]) -> Vec<Share> {
        lengths.iter().map(|&n| Share::Prompt { done: 0, n }).collect()
    }

    /// Tokens of each prompt.
    fn divided(mut shares: Vec<Share>, room: usize) -> Vec<usize> {
        divide(&mut shares, room, 256);
        let tokens = |share: &Share| if let Share::Prompt { n, .. } = *share { n } else { 0 };
        shares.iter().map(tokens).collect()
    }

    #[test]
    fn prompts_divide_the_room_and_leave_none_of_it_unused() {
        assert_eq!(divided(prompts(&[100, 100, 100]), 64), [22, 21, 21]);
        assert_eq!(divided(prompts(&[3, 100, 100]), 64), [3, 31, 30]);
        assert_eq!(divided(prompts(&[100, 100]), 1), [1, 0]);
        assert_eq!(divided(prompts(&[100, 100]), 0), [0, 0]);
    }

    #[test]
    fn a_prompt_for_itself_gets_a_batch() {
        assert_eq!(divided(prompts(&[1000]), 64), [256]);
        let beside = vec![Share::Token, Share::Prompt { done: 0, n: 1000 }];
        assert_eq!(divided(beside, 63), [0, 63]);
    }
}
