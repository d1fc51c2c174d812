//! What users can set, by name. Errors speak of settings in plain words; a program with flags names them in
//! addition.
//!
//! The library knows no flags. A program that has some calls [`name_flags`] once, before anything can fail:
//! from then on, messages name them, so that "raise the context" reads "raise the context with -c".

use std::fmt;
use std::sync::OnceLock;

/// Something that users set, and that a message may ask them to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// The name given to [`device::open`](crate::device::open).
    Device,
    /// [`DeviceOptions::threads`](crate::device::DeviceOptions::threads).
    Threads,
    /// [`DeviceOptions::vtcm_bytes`](crate::device::DeviceOptions::vtcm_bytes).
    Vtcm,
    /// [`DeviceOptions::sessions`](crate::device::DeviceOptions::sessions).
    Sessions,
    /// [`DeviceOptions::session_bytes`](crate::device::DeviceOptions::session_bytes).
    SessionBytes,
    /// [`DeviceOptions::arch`](crate::device::DeviceOptions::arch).
    Arch,
    /// [`DeviceOptions::float`](crate::device::DeviceOptions::float).
    Float,
    /// [`DeviceOptions::trace`](crate::device::DeviceOptions::trace).
    Trace,
    /// `HtpOptions::vendor_library`.
    VendorLibrary,
    /// `HtpOptions::dma`: who moves data on the DSP.
    Dma,
    /// [`EngineOptions::n_ctx`](crate::engine::EngineOptions::n_ctx).
    Context,
    /// [`EngineOptions::batch`](crate::engine::EngineOptions::batch).
    Batch,
    /// [`EngineOptions::numerics`](crate::engine::EngineOptions::numerics), taken back.
    MatrixUnit,
    /// [`EngineOptions::sequences`](crate::engine::EngineOptions::sequences).
    Sequences,
    /// [`CacheTypes::keys`](crate::model::CacheTypes::keys).
    KeyCache,
    /// [`CacheTypes::values`](crate::model::CacheTypes::values).
    ValueCache,
    /// The target model.
    Model,
    /// The draft model.
    DraftModel,
    /// The encoder of pictures.
    Encoder,
    /// Patches of a tile of a picture.
    Patches,
    /// Tokens that are drafted at once.
    DraftLength,
    /// [`Limits::max_tokens`](crate::generate::Limits::max_tokens).
    MaxTokens,
    /// Ids that end a text on the device.
    StopTokens,
    /// Tokens of one step whose logits are all kept.
    StepWidth,
}

/// What gives a setting its flag.
type Flags = fn(Setting) -> Option<&'static str>;

static FLAGS: OnceLock<Flags> = OnceLock::new();

/// Names the flags that messages of this process should speak of, such as `--threads`. For programs, not for
/// libraries; the first call counts.
pub fn name_flags(flags: fn(Setting) -> Option<&'static str>) {
    let _ = FLAGS.set(flags);
}

impl Setting {
    /// The setting in words, with an article.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Device => "the device",
            Self::Threads => "the number of threads",
            Self::Vtcm => "the size of VTCM",
            Self::Sessions => "the number of sessions",
            Self::SessionBytes => "the memory of a session",
            Self::Arch => "the architecture",
            Self::Float => "the float arithmetic",
            Self::Trace => "the trace",
            Self::VendorLibrary => "the vendor's library",
            Self::Dma => "who does DMA",
            Self::Context => "the context length",
            Self::Batch => "the batch size",
            Self::Sequences => "the number of sequences",
            Self::MatrixUnit => "doing without the matrix unit",
            Self::KeyCache => "the number format of cached keys",
            Self::ValueCache => "the number format of cached values",
            Self::Model => "the model",
            Self::DraftModel => "the draft model",
            Self::Encoder => "the encoder of pictures",
            Self::Patches => "the number of patches of a tile",
            Self::DraftLength => "the draft length",
            Self::MaxTokens => "the number of tokens",
            Self::StopTokens => "the number of stop tokens",
            Self::StepWidth => "the width of a step",
        }
    }

    fn flag(self) -> Option<&'static str> {
        FLAGS.get().and_then(|flags| flags(self))
    }

    /// ` with FLAG`, or nothing where there is no flag.
    pub(crate) fn with(self) -> impl fmt::Display {
        Around { before: " with ", flag: self.flag(), after: "" }
    }

    /// ` (FLAG)`, or nothing where there is no flag.
    pub(crate) fn in_parentheses(self) -> impl fmt::Display {
        Around { before: " (", flag: self.flag(), after: ")" }
    }
}

/// The flag where there is one, else the words.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag().unwrap_or(self.words()))
    }
}

/// A flag and what stands around it.
struct Around {
    before: &'static str,
    flag: Option<&'static str>,
    after: &'static str,
}

impl fmt::Display for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flag {
            None => Ok(()),
            Some(flag) => write!(f, "{}{flag}{}", self.before, self.after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_program_that_names_flags_there_are_words_alone() {
        let context = Setting::Context;
        let line = format!("{context}:{}{}", context.with(), context.in_parentheses());
        assert_eq!(line, "the context length:");
    }

    #[test]
    fn a_flag_stands_where_the_message_wants_it() {
        let around = |before, after| Around { before, flag: Some("-c"), after };
        assert_eq!(format!("{}{}", around(" with ", ""), around(" (", ")")), " with -c (-c)");
    }
}
