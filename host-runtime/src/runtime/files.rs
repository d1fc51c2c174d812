//! The files that a model is loaded from.

use crate::gguf::Gguf;

/// The files that a model is loaded from.
#[derive(Clone, Copy)]
pub struct ModelFiles<'g> {
    /// The model that writes the text.
    pub target: &'g Gguf,
    /// A draft model for it. That may be the same file once more: then the drafts are those of the head that
    /// the file [has](crate::model::has_mtp_head).
    pub draft: Option<&'g Gguf>,
    /// An encoder of pictures for it (mmproj).
    pub encoder: Option<&'g Gguf>,
}

impl<'g> ModelFiles<'g> {
    /// A model alone.
    pub const fn of(target: &'g Gguf) -> Self {
        Self { target, draft: None, encoder: None }
    }

    /// Adds a draft model, if there is one.
    #[must_use]
    pub const fn with_draft(self, draft: Option<&'g Gguf>) -> Self {
        Self { draft, ..self }
    }

    /// Adds an encoder of pictures, if there is one.
    #[must_use]
    pub const fn with_encoder(self, encoder: Option<&'g Gguf>) -> Self {
        Self { encoder, ..self }
    }

    /// Files that there are, in the order of their weights' images.
    pub(super) fn iter(self) -> impl Iterator<Item = &'g Gguf> {
        [Some(self.target), self.draft, self.encoder].into_iter().flatten()
    }
}
