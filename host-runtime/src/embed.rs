//! Embeddings: texts as vectors, whose cosines say how near their meanings are.
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
//! use hexflash::embed::{Embedder, Norm};
//!
//! let mut embedder = Embedder::open("models/tiny-hybrid-q8_0.gguf")?;
//! let mut vector = embedder.embed("impl Display for Point")?;
//! Norm::EUCLIDEAN.apply(&mut vector);
//! # assert_eq!(vector.len(), embedder.width());
//! # Ok::<(), hexflash::Error>(())
//! ```

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use crate::device::Device;
use crate::engine::{Engine, EngineError, EngineOptions};
use crate::error::Error;
use crate::facade::ModelOptions;
use crate::generate::retries::Retries;
use crate::gguf::Gguf;
use crate::model::{self, ModelError};
use crate::text::{TextError, TextModel};
use crate::weights::ImageOptions;

/// Vector of a text, as it follows from those of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Mean of all tokens.
    Mean,
    /// Vector of the first token.
    Cls,
    /// Vector of the last token, which alone has seen the whole text.
    Last,
}

impl Pooling {
    /// Pooling that a model's file names; [`Pooling::Last`] where it names none, as for models that write
    /// text, and [`Pooling::Mean`] for those that do not.
    ///
    /// # Errors
    /// The model is not one that hexflash runs. [`ModelError::Kind`]: it makes scores (`rank`), or its tokens
    /// see later ones, unless it is of an architecture of such models.
    pub fn of(gguf: &Gguf) -> Result<Self, ModelError> {
        let arch = gguf.meta().require_str("general.architecture")?;
        let refused = |key: &str, found: String, kind: &'static str| {
            Err(ModelError::Kind { path: gguf.path().to_owned(), key: key.to_owned(), found, kind })
        };
        let causal = format!("{arch}.attention.causal");
        let is_causal = model::read(gguf)?.is_causal();
        if is_causal && !gguf.meta().bool_or(&causal, true)? {
            return refused(&causal, "false".to_owned(), "models whose tokens see later ones");
        }
        let key = format!("{arch}.pooling_type");
        // The numbers of llama.cpp's enumeration.
        match gguf.meta().u32_opt(&key)? {
            None | Some(0) if !is_causal => Ok(Self::Mean),
            None | Some(0 | 3) => Ok(Self::Last),
            Some(1) => Ok(Self::Mean),
            Some(2) => Ok(Self::Cls),
            Some(4) => refused(&key, "rank".to_owned(), "vectors of models that score texts"),
            Some(other) => refused(&key, other.to_string(), "such models"),
        }
    }
}

impl FromStr for Pooling {
    type Err = String;

    /// llama.cpp's names.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mean" => Ok(Self::Mean),
            "cls" => Ok(Self::Cls),
            "last" => Ok(Self::Last),
            other => Err(format!("{other} is none of mean, cls, last")),
        }
    }
}

/// Length to which a vector is brought, by llama.cpp's numbers (`--embd-normalize`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm(i32);

impl Norm {
    /// Vectors as the model gives them.
    pub const NONE: Self = Self(-1);
    /// Length 1, so that the product of two vectors is their cosine.
    pub const EUCLIDEAN: Self = Self(2);

    /// Norm by its number: -1 none, 0 so that the largest value is 32760, 1 for the sum of absolute values,
    /// 2 for the length, and above for p-norms. `None` for other numbers.
    pub fn new(number: i32) -> Option<Self> {
        (number >= -1).then_some(Self(number))
    }

    /// Scales a vector. One of zeros stays as it is.
    pub fn apply(self, vector: &mut [f32]) {
        /// Largest value that llama.cpp makes for 16-bit integers.
        const LARGEST: f64 = 32760.0;
        let sizes = vector.iter().map(|&value| f64::from(value).abs());
        let size: f64 = match self.0 {
            ..=-1 => return,
            0 => sizes.fold(0.0, f64::max) / LARGEST,
            1 => sizes.sum(),
            2 => sizes.map(|size| size * size).sum::<f64>().sqrt(),
            p => sizes.map(|size| size.powi(p)).sum::<f64>().powf(1.0 / f64::from(p)),
        };
        if size > 0.0 {
            vector.iter_mut().for_each(|value| *value = (f64::from(*value) / size) as f32);
        }
    }
}

/// A model that gives vectors for texts.
pub struct Embedder {
    text: TextModel,
    engine: Engine,
    pooling: Pooling,
    /// Vector of a token: its memory is used again.
    row: Vec<f32>,
}

impl Embedder {
    /// Opens the model of a GGUF file on this machine's own processor.
    ///
    /// # Errors
    /// As [`ModelOptions::open`] and [`Pooling::of`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &ModelOptions::default())
    }

    /// Opens it as the options say, of which those about drafts and sampling have no effect.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Self, Error> {
        options.open_as(path.as_ref(), Self::engine_options, Self::load)
    }

    /// The settings of an engine with which [`load`](Self::load) runs a model: a device that is chosen by
    /// what a model needs is to be asked with these.
    ///
    /// # Errors
    /// The model is not one that hexflash runs; as [`Pooling::of`].
    pub fn engine_options(gguf: &Gguf, options: &EngineOptions) -> Result<EngineOptions, Error> {
        Pooling::of(gguf)?;
        Ok(Self::options_for(options))
    }

    /// Settings of an engine whose steps give vectors, otherwise as `options`.
    pub(crate) fn options_for(options: &EngineOptions) -> EngineOptions {
        EngineOptions { vectors: true, speculate: false, ..options.clone() }
    }

    /// Loads a model onto a device, with [settings](Self::engine_options) for it.
    ///
    /// # Errors
    /// As [`Engine::load`] and [`Pooling::of`]; its tokenizer cannot be used.
    pub fn load(
        gguf: &Gguf,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, Error> {
        Self::load_for(gguf, Pooling::of(gguf)?, device, &Self::options_for(options), image)
    }

    /// Loads a model with this pooling, whatever its file says.
    pub(crate) fn load_for(
        gguf: &Gguf,
        pooling: Pooling,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, Error> {
        let text = TextModel::read(gguf)?;
        let engine = Engine::load(gguf, device, options, image)?;
        let row = vec![0.0; engine.config().n_embd as usize];
        Ok(Self { text, engine, pooling, row })
    }

    /// Takes another pooling than the model's file names.
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        Self { pooling, ..self }
    }

    /// Values of a vector: the width of the model.
    pub fn width(&self) -> usize {
        self.row.len()
    }

    /// Tokenizer of the model.
    pub fn text(&self) -> &TextModel {
        &self.text
    }

    /// The model on its device.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The tokens of a text, with those that the model's file has at its ends.
    ///
    /// # Errors
    /// The text cannot be split.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(self.text.tokenizer.encode(text, true, true).map_err(TextError::from)?)
    }

    /// The vector of a text, as the model gives it: see [`Norm`].
    ///
    /// # Errors
    /// As [`tokens`](Self::tokens) and [`embed_tokens`](Self::embed_tokens).
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>, Error> {
        let tokens = self.tokens(text)?;
        self.embed_tokens(&tokens)
    }

    /// The vector of a text of tokens. Its bits do not depend on the texts before.
    ///
    /// # Errors
    /// There are none or more than the context has room for, one is not in the vocabulary, or the device
    /// failed.
    pub fn embed_tokens(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        let wanted = match self.pooling {
            Pooling::Mean => 0..tokens.len(),
            Pooling::Cls => 0..1,
            Pooling::Last => tokens.len().saturating_sub(1)..tokens.len(),
        };
        let (mut sum, n) = (vec![0.0f64; self.width()], wanted.len());
        self.each(tokens, wanted, |row| {
            sum.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
        })?;
        Ok(sum.into_iter().map(|sum| (sum / n as f64) as f32).collect())
    }

    /// The vector of each token of a text, `{n_embd}` each.
    ///
    /// # Errors
    /// As [`embed_tokens`](Self::embed_tokens).
    pub fn embed_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>, Error> {
        let mut rows = Vec::with_capacity(tokens.len());
        self.each(tokens, 0..tokens.len(), |row| rows.push(row.to_vec()))?;
        Ok(rows)
    }

    /// Reads a text, and hands over what the model has behind its last norm at each of the places that are
    /// `wanted`. Nothing is read from the device for the others.
    fn each(
        &mut self,
        tokens: &[u32],
        wanted: Range<usize>,
        mut take: impl FnMut(&[f32]),
    ) -> Result<(), Error> {
        self.engine.reset();
        let mut retries = Retries::default();
        // Before its first piece is read, so that the error tells of the whole text.
        if let Err(loss) = self.engine.first().admit(tokens) {
            self.recover(&mut retries, loss, 0)?;
            self.engine.first().admit(tokens)?;
        }
        let mut done = 0;
        while done < tokens.len() {
            let n = match self.engine.prefill_piece(&tokens[done..]) {
                Ok(n) => n,
                Err(loss) => {
                    self.recover(&mut retries, loss, done)?;
                    continue;
                }
            };
            for i in (0..n).filter(|i| wanted.contains(&(done + i))) {
                self.engine.read_vector(i, &mut self.row);
                if !self.row.iter().all(|value| value.is_finite()) {
                    let place = format!("the vector of token {}", done + i);
                    return Err(EngineError::NotFinite { place }.into());
                }
                take(&self.row);
            }
            done += n;
        }
        Ok(())
    }

    /// Starts a lost device again, with the `done` tokens of the text that it had.
    fn recover(&mut self, retries: &mut Retries, loss: EngineError, done: usize) -> Result<(), Error> {
        if !loss.is_loss() {
            return Err(loss.into());
        }
        // Nobody cancels a text, so that the device is there again.
        let _done = retries.recover(&mut self.engine.first(), loss, done, || false)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_are_those_of_llama_cpp() {
        let of = |number: i32| {
            let mut vector = [3.0, -4.0];
            Norm::new(number).unwrap().apply(&mut vector);
            vector
        };
        assert_eq!(of(-1), [3.0, -4.0]);
        assert_eq!(of(0), [24570.0, -32760.0]);
        assert_eq!(of(1), [3.0 / 7.0, -4.0 / 7.0]);
        assert_eq!(of(2), [0.6, -0.8]);
        assert!((of(3)[0] - 3.0 / 91f32.cbrt()).abs() < 1e-6);
        assert_eq!(Norm::new(-2), None);
        let mut zeros = [0.0; 3];
        Norm::EUCLIDEAN.apply(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }
}
