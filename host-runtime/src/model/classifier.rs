//! Files of models that score texts: what shows them, and the tensors that only scores need.

use super::error::ModelError;
use crate::gguf::Gguf;

/// Rows of the classifier, `{n_embd, labels}`.
pub(crate) const CLASSIFIER: &str = "cls.output.weight";
/// Bias of the classifier, `{labels}`.
pub(crate) const CLASSIFIER_BIAS: &str = "cls.output.bias";

/// Number of the pooling `rank` in llama.cpp's enumeration.
const RANK: u32 = 4;

/// Whether the file's pooling is `rank`: its model scores texts.
///
/// # Errors
/// The file has no architecture, or a pooling that is no number.
pub(crate) fn makes_scores(gguf: &Gguf) -> Result<bool, ModelError> {
    let arch = gguf.meta().require_str("general.architecture")?;
    Ok(gguf.meta().u32_opt(&format!("{arch}.pooling_type"))? == Some(RANK))
}

/// Whether a tensor of such a file belongs to its classifier.
pub(super) fn is_of_classifier(name: &str) -> bool {
    [CLASSIFIER, CLASSIFIER_BIAS].contains(&name)
}
