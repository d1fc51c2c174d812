//! What can be wrong with sampling parameters or logits.

/// Reasons no token can be sampled; every message is one line with the cause and what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// A parameter outside its range; NaN is outside every range.
    #[error("{name} is {value}, outside {min} to {max}; choose a value in that range")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Value given.
        value: f32,
        /// Smallest accepted value.
        min: f32,
        /// Largest accepted value.
        max: f32,
    },
    /// The model file recommends a value that cannot be used.
    #[error(
        "the model file sets {key} to {value}, outside {min} to {max}; set the option yourself to override it"
    )]
    Metadata {
        /// Metadata key.
        key: &'static str,
        /// Value found.
        value: f32,
        /// Smallest accepted value.
        min: f32,
        /// Largest accepted value.
        max: f32,
    },
    /// A model without outputs, or with more than ids can count.
    #[error("{count} logits were given; pass one for each token of the vocabulary")]
    LogitCount {
        /// Number of logits.
        count: usize,
    },
    /// NaN or positive infinity: the computation before went wrong, and any token would be made up.
    #[error(
        "the logit of token {id} is {value}; the model's computation failed, check weights and activations"
    )]
    InvalidLogit {
        /// First token concerned.
        id: usize,
        /// NaN or infinity.
        value: f32,
    },
    /// What decides about the next token cannot.
    #[error("the grammar of the text cannot go on: {cause}; simplify it")]
    Constraint {
        /// Why not.
        cause: String,
    },
    /// Every token is excluded.
    #[error("all {count} logits are -inf, so no token is allowed; loosen the grammar or the logit bias")]
    NothingAllowed {
        /// Number of logits.
        count: usize,
    },
}
