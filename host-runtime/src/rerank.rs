//! Reranking: how well documents answer a query, a number for each pair.
//!
//! A reranker such as Qwen3-Reranker reads query and document as one text, and a classifier of a few rows
//! makes scores of what the model has at the last token.
//!
//! ```no_run
//! let mut reranker = hexflash::rerank::Reranker::open("Qwen3-Reranker-0.6B-Q8_0.gguf")?;
//! let score = reranker.score("What is a panda?", "The giant panda is a bear of China.")?;
//! # Ok::<(), hexflash::Error>(())
//! ```

use std::path::Path;

use crate::device::Device;
use crate::embed::{Embedder, Pooling};
use crate::engine::{Engine, EngineError, EngineOptions};
use crate::error::Error;
use crate::facade::ModelOptions;
use crate::gguf::{GgmlType, Gguf};
use crate::model::{self, CLASSIFIER, CLASSIFIER_BIAS, ModelError, makes_scores};
use crate::text::{TextError, TextModel};
use crate::tokenizer::Tokenizer;
use crate::weights::tiles::{PLAIN, to_f32};
use crate::weights::{ImageOptions, WeightError};

/// Template of a file for query and document. It is plain text with two places, and no program.
const TEMPLATE: &str = "tokenizer.chat_template.rerank";
const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";

/// Architectures whose scores are shares of all labels (softmax), as with llama.cpp.
const WITH_SHARES: [&str; 2] = ["qwen3", "qwen3vl"];

/// Most labels of a classifier. Known files have one or two.
const MAX_LABELS: u64 = 1024;

/// Bytes of a block of Q8_0: an f16 scale, and an i8 for each of 32 values.
const Q8_0_BLOCK: usize = 34;

/// A model that scores how well a document answers a query.
pub struct Reranker {
    embedder: Embedder,
    pairs: Pairs,
    classifier: Classifier,
}

impl Reranker {
    /// Opens the model of a GGUF file on this machine's own processor.
    ///
    /// # Errors
    /// As [`ModelOptions::open`] and [`load`](Self::load).
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
    /// The model is not one that hexflash runs, or makes no scores.
    pub fn engine_options(gguf: &Gguf, options: &EngineOptions) -> Result<EngineOptions, Error> {
        if !makes_scores(gguf)? {
            return Err(ModelError::NoScores { path: gguf.path().to_owned() }.into());
        }
        model::read(gguf)?;
        Ok(Embedder::options_for(options))
    }

    /// Loads a model onto a device, with [settings](Self::engine_options) for it.
    ///
    /// # Errors
    /// As [`Engine::load`]; the model makes no scores, or its classifier or tokenizer cannot be used.
    pub fn load(
        gguf: &Gguf,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, Error> {
        let options = Self::engine_options(gguf, options)?;
        let (pairs, arch) = (Pairs::of(gguf)?, gguf.meta().require_str("general.architecture")?);
        // Causal models have seen all of the text at its last token.
        let embedder = Embedder::load_for(gguf, Pooling::Last, device, &options, image)?;
        let classifier = Classifier::read(gguf, embedder.width(), WITH_SHARES.contains(&arch))?;
        Ok(Self { embedder, pairs, classifier })
    }

    /// How query and document become one text.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Tokenizer of the model.
    pub fn text(&self) -> &TextModel {
        self.embedder.text()
    }

    /// The model on its device.
    pub fn engine(&self) -> &Engine {
        self.embedder.engine()
    }

    /// How well `document` answers `query`: higher is better; of models with shares between 0 and 1.
    ///
    /// # Errors
    /// The pair does not fit the context, or the device failed.
    pub fn score(&mut self, query: &str, document: &str) -> Result<f32, Error> {
        let tokens = self.pairs.tokens(&self.embedder.text().tokenizer, query, document)?;
        self.score_tokens(&tokens)
    }

    /// The score of a pair that is tokens already. Its bits do not depend on the pairs before.
    ///
    /// # Errors
    /// As [`Embedder::embed_tokens`].
    pub fn score_tokens(&mut self, tokens: &[u32]) -> Result<f32, Error> {
        Ok(self.classifier.score(&self.embedder.embed_tokens(tokens)?))
    }
}

/// How the query and the document of a pair become one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// The template of the model's file.
    template: Option<String>,
}

impl Pairs {
    /// As the model's file says.
    fn of(gguf: &Gguf) -> Result<Self, Error> {
        Ok(Self { template: gguf.meta().str_opt(TEMPLATE)?.map(str::to_owned) })
    }

    /// The tokens of a pair: those of the template with both in their places, as llama-server has it, where
    /// control tokens are recognised; without a template `BOS query EOS document EOS`, as far as the model
    /// has these.
    ///
    /// # Errors
    /// A text cannot be split.
    pub fn tokens(&self, tokenizer: &Tokenizer, query: &str, document: &str) -> Result<Vec<u32>, Error> {
        let split = |text: &str, parse| tokenizer.encode(text, false, parse).map_err(TextError::from);
        if let Some(template) = &self.template {
            return Ok(split(&filled(template, query, document), true)?);
        }
        let ids = tokenizer.special_ids();
        let bos = ids.bos.filter(|_| tokenizer.adds_bos());
        let eos = ids.eos.filter(|_| tokenizer.adds_eos());
        let mut tokens: Vec<u32> = bos.into_iter().collect();
        for text in [query, document] {
            tokens.extend(split(text, false)?);
            tokens.extend(eos);
        }
        Ok(tokens)
    }
}

/// The template with both texts in their places. What they contain is not looked at again.
fn filled(template: &str, query: &str, document: &str) -> String {
    let mut out = String::with_capacity(template.len() + query.len() + document.len());
    let mut rest = template;
    loop {
        let places = [(QUERY, query), (DOCUMENT, document)];
        let next = places.iter().filter_map(|(place, text)| Some((rest.find(place)?, place, text))).min();
        let Some((at, place, text)) = next else { break };
        out.push_str(&rest[..at]);
        out.push_str(text);
        rest = &rest[at + place.len()..];
    }
    out.push_str(rest);
    out
}

/// What makes scores of a vector: one for each label, of which the first says that the document answers.
struct Classifier {
    /// A row of weights for each label.
    rows: Vec<Vec<f32>>,
    bias: Vec<f32>,
    with_shares: bool,
}

impl Classifier {
    fn read(gguf: &Gguf, width: usize, with_shares: bool) -> Result<Self, Error> {
        let weight = gguf.require_tensor(CLASSIFIER)?;
        let labels = weight.ne[1];
        let path = || gguf.path().to_owned();
        let expected = [width as u64, labels.clamp(1, MAX_LABELS)];
        if weight.n_dims > 2 || weight.ne[..2] != expected {
            let (name, found) = (CLASSIFIER.to_owned(), weight.shape().to_vec());
            return Err(ModelError::Shape { path: path(), name, found, expected: expected.to_vec() }.into());
        }
        let values = floats(gguf, CLASSIFIER)?;
        let bias = match gguf.tensor(CLASSIFIER_BIAS) {
            None => vec![0.0; labels as usize],
            Some(bias) if bias.elements() == labels => floats(gguf, CLASSIFIER_BIAS)?,
            Some(bias) => {
                let (name, found) = (CLASSIFIER_BIAS.to_owned(), bias.shape().to_vec());
                return Err(ModelError::Shape { path: path(), name, found, expected: vec![labels] }.into());
            }
        };
        Ok(Self { rows: values.chunks(width).map(<[f32]>::to_vec).collect(), bias, with_shares })
    }

    fn score(&self, vector: &[f32]) -> f32 {
        let dot =
            |row: &[f32]| -> f64 { row.iter().zip(vector).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
        let logits: Vec<f64> =
            self.rows.iter().zip(&self.bias).map(|(row, &bias)| dot(row) + f64::from(bias)).collect();
        if !self.with_shares {
            return logits[0] as f32;
        }
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        (shares[0] / shares.iter().sum::<f64>()) as f32
    }
}

/// The values of a small tensor in a type of plain numbers, or in Q8_0.
fn floats(gguf: &Gguf, name: &str) -> Result<Vec<f32>, Error> {
    let tensor = gguf.require_tensor(name)?;
    let data = gguf.data(tensor)?;
    let values: Vec<f32> = if tensor.ggml_type == GgmlType::Q8_0 {
        let block = |block: &[u8]| {
            let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
            block[2..].iter().map(move |&q| scale * f32::from(q as i8)).collect::<Vec<_>>()
        };
        data.chunks_exact(Q8_0_BLOCK).flat_map(block).collect()
    } else if PLAIN.contains(&tensor.ggml_type) {
        let mut bytes = vec![[0; 4]; tensor.elements() as usize];
        to_f32(tensor.ggml_type, &data, &mut bytes);
        bytes.into_iter().map(f32::from_le_bytes).collect()
    } else {
        let (path, found) = (gguf.path().to_owned(), tensor.ggml_type);
        return Err(ModelError::Type { path, name: name.to_owned(), found }.into());
    };
    // Scores of a damaged file would be numbers that nobody doubts.
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(at) => {
            let damage = WeightError::NotFinite { tensor: name.to_owned(), what: "value", at };
            Err(EngineError::from(damage).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_where_the_template_has_them_and_are_not_looked_at_again() {
        let template = "<q>{query}</q> {document}, {query} {other}";
        assert_eq!(
            filled(template, "a {document}", "{query}"),
            "<q>a {document}</q> {query}, a {document} {other}"
        );
        assert_eq!(filled("{document}{query}", "q", "d"), "dq");
        assert_eq!(filled("nothing", "q", "d"), "nothing");
    }

    #[test]
    fn shares_are_those_of_all_labels() {
        let rows = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
        let of = |with_shares| Classifier { rows: rows.clone(), bias: vec![0.0, 0.5], with_shares };
        assert_eq!(of(false).score(&[3.0, 9.0]), 3.0);
        let share = 1.0 / (1.0 + (1.5_f64).exp());
        assert!((f64::from(of(true).score(&[2.0, 3.0])) - share).abs() < 1e-7);
        // Large logits do not overflow.
        assert_eq!(of(true).score(&[1e6, 0.0]), 1.0);
    }
}
