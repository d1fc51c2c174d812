//! The programs that an engine may have, by kind.

use hexflash_abi::ProgramId;

/// A program of an engine; its number is its id on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// One token, its logits.
    Decode = 0,
    /// Up to [`MAX_VERIFY`] tokens, the logits of each; with speculation they may be taken back.
    Verify = 1,
    /// Up to a batch of tokens, the logits of the last.
    Prefill = 2,
    /// A speculative round.
    Round = 3,
    /// A block of drafts.
    DraftBlock = 4,
    /// Features of plain steps, into the draft's caches.
    Inject = 5,
    /// Rows of several sequences: up to [`MAX_SHARED`] tokens, the logits of some.
    Shared = 6,
    /// A sequence's recurrent states into a snapshot.
    Save = 7,
    /// A sequence's recurrent states out of a snapshot.
    Restore = 8,
    /// The layers of an encoder, on the patches of a tile of a picture.
    Encode = 9,
    /// The projector of an encoder: rows of a picture.
    Project = 10,
    /// Up to a batch of rows of a picture, the logits of the last.
    Picture = 11,
}

impl ProgramKind {
    const ALL: [Self; 12] = [
        Self::Decode,
        Self::Verify,
        Self::Prefill,
        Self::Round,
        Self::DraftBlock,
        Self::Inject,
        Self::Shared,
        Self::Save,
        Self::Restore,
        Self::Encode,
        Self::Project,
        Self::Picture,
    ];

    /// Id of the kind on the device.
    pub(crate) const fn id(self) -> ProgramId {
        ProgramId(self as u32)
    }

    /// The name under which people ask for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Verify => "verify",
            Self::Prefill => "prefill",
            Self::Round => "round",
            Self::DraftBlock => "draft",
            Self::Inject => "inject",
            Self::Shared => "shared",
            Self::Save => "save",
            Self::Restore => "restore",
            Self::Encode => "encode",
            Self::Project => "project",
            Self::Picture => "picture",
        }
    }
}

/// The names of the programs that an engine may have. Which of them it has depends on the draft model and on
/// the settings.
pub fn program_names() -> impl Iterator<Item = &'static str> {
    ProgramKind::ALL.into_iter().map(ProgramKind::name)
}
