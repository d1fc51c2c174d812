//! A model that handles share: one step at a time, and which of its sequences no text has.

use std::sync::{Arc, Mutex};

use hexflash::cancel::Cancel;
use hexflash::engine::SequenceId;
use hexflash::generate::{Generation, Request};
use hexflash::sampler::Sampler;
use hexflash::speculation::Speculation;
use hexflash::{Error, Model, ModelOptions};

use crate::boundary::{Outcome, lock};
use crate::failure::Failure;
use crate::settings::TextRequest;

/// Model of a handle, and of all that was made with it. It lives as long as any of them.
pub(crate) struct Shared {
    /// Locked for a step, and for whatever else needs the model.
    pub(crate) model: Mutex<Model>,
    /// Speculation of each sequence, by its number; `None` while a text has it. Whoever locks both locks this
    /// after the model.
    idle: Mutex<Vec<Option<Speculation>>>,
}

/// Text that has begun.
pub(crate) struct Begun {
    pub(crate) generation: Generation,
    /// Number of its sequence.
    pub(crate) sequence: usize,
    /// Ends it.
    pub(crate) cancel: Cancel,
}

impl Shared {
    /// Opens a model.
    ///
    /// # Errors
    /// As [`ModelOptions::open`].
    pub(crate) fn open(options: &ModelOptions, path: &str) -> Outcome<Arc<Self>> {
        let mut model = options.open(path)?;
        for warning in model.warnings() {
            tracing::warn!("{warning}");
        }
        let sequences = model.engine().sequences();
        let idle = sequences.map(|_| Some(model.speculation())).collect();
        Ok(Arc::new(Self { model: Mutex::new(model), idle: Mutex::new(idle) }))
    }

    /// Begins a text after `prompt` in the idle sequence whose context has most of that already.
    ///
    /// # Errors
    /// Texts that have not ended have all sequences; the sampling cannot be used; the device failed.
    pub(crate) fn begin(&self, prompt: &[u32], request: TextRequest) -> Outcome<Begun> {
        let mut model = lock(&self.model)?;
        let mut sampler = Sampler::new(model.sampling().clone().overridden_by(&request.sampling))?;
        let mut idle = lock(&self.idle)?;
        let mut best: Option<(usize, (usize, bool))> = None;
        for (number, _) in idle.iter().enumerate().filter(|(_, speculation)| speculation.is_some()) {
            let sequence = model.engine().sequence(SequenceId::new(number as u32)).map_err(Error::from)?;
            // Where none has anything of it, the one that is empty is taken before one that is not.
            let worth = (sequence.common(prompt), sequence.n_past() == 0);
            if best.is_none_or(|(_, most)| worth > most) {
                best = Some((number, worth));
            }
        }
        let busy = || {
            let n = idle.len();
            let text = format!("texts that have not ended have all {n} sequences of the model");
            Failure::input(format!("{text}; end one, or open the model with more \"sequences\""))
        };
        let (number, _) = best.ok_or_else(busy)?;
        let id = SequenceId::new(number as u32);
        let mut sequence = model.engine().sequence(id).map_err(Error::from)?;
        let known = sequence.keep_common(prompt).inspect_err(|_| sequence.reset()).map_err(Error::from)?;
        prompt[..known].iter().for_each(|&token| sampler.accept(token));
        let rest = &prompt[known..];
        let speculation = idle.get_mut(number).and_then(Option::take).unwrap_or_else(Speculation::off);
        let cancel = request.limits.cancel.clone();
        let request = Request::new(rest, sampler)
            .sequence(id)
            .limits(request.limits)
            .speculation(speculation)
            .saves(if rest.len() > 1 { vec![rest.len() - 1] } else { Vec::new() });
        let generation = Generation::new(model.text().tokenizer.clone(), request);
        Ok(Begun { generation, sequence: number, cancel })
    }

    /// Gives a sequence back after its text.
    ///
    /// # Errors
    /// A bug has left the model half done.
    pub(crate) fn give_back(&self, number: usize, speculation: Speculation) -> Outcome {
        if let Some(place) = lock(&self.idle)?.get_mut(number) {
            *place = Some(speculation);
        }
        Ok(())
    }
}
