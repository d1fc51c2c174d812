//! What of a request cannot be had.

/// A field of a request that cannot be had as it is.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It has a value that it cannot have.
    Wrong { field: &'static str, reason: String },
    /// It asks for something that this server does not do.
    Unsupported { field: &'static str, hint: String },
}

impl Refusal {
    /// A wrong value of `field`.
    pub(crate) fn wrong(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Wrong { field, reason: reason.into() }
    }

    /// A value of `field` that asks for what is not done here, and what to do instead.
    pub(crate) fn unsupported(field: &'static str, hint: impl Into<String>) -> Self {
        Self::Unsupported { field, hint: hint.into() }
    }
}
