//! Why a sequence cannot be copied off a device, or back.

/// Bytes that cannot become a [`SequenceCopy`](crate::engine::SequenceCopy), or a copy that cannot go into a
/// sequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// They are of something else.
    #[error("this is no saved sequence of hexflash; name a file that was saved as one")]
    NotACopy,
    /// They are of another version of the format.
    #[error(
        "the sequence was saved in version {found} of the format, and this is version {known}; save it again"
    )]
    Version {
        /// The version that was found.
        found: u32,
        /// The only one that is known.
        known: u32,
    },
    /// Bytes are missing, too many or wrong.
    #[error("the saved sequence is damaged ({what}); save it again")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// It comes from elsewhere.
    #[error(
        "the sequence was saved with another model, another type of cache, on another kind of device or by \
         another version of hexflash; save it again with what runs now"
    )]
    Origin,
    /// The context is too short for it.
    #[error("the sequence has {tokens} tokens, and the context {n_ctx}; use a larger context")]
    TooLong {
        /// Its tokens.
        tokens: usize,
        /// Positions of the context.
        n_ctx: u32,
    },
    /// Rows of pictures are in it, whose ids mean nothing elsewhere.
    #[error("the sequence has pictures in it, and such sequences cannot be saved yet")]
    Pictures,
    /// The host cannot see what the device has.
    #[error(
        "a model that is split over sessions keeps states in caches of each, which cannot be copied; use one \
         session"
    )]
    Hidden,
}
