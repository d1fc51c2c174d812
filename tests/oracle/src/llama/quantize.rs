//! Model files in other weight types, as `llama-quantize` makes them.

use std::path::Path;

use super::{LlamaError, Result, ffi};

macro_rules! file_types {
    ($($name:ident = $id:literal, $label:literal, $pure:literal;)*) => {
        /// What `llama-quantize` can be asked for, with llama.cpp's numbers (`llama_ftype`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(non_camel_case_types, missing_docs, reason = "llama.cpp's own names")]
        pub enum FileType { $($name,)* }

        impl FileType {
            /// All types known here.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// llama.cpp's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// llama.cpp's number.
            pub(super) const fn id(self) -> u32 {
                match self { $(Self::$name => $id,)* }
            }

            /// Whether all matrices have to be asked for by name: otherwise llama.cpp gives the type to
            /// experts only.
            pub(super) const fn pure(self) -> bool {
                match self { $(Self::$name => $pure,)* }
            }
        }
    };
}

file_types! {
    BF16 = 32, "BF16", false;
    Q8_0 = 7, "Q8_0", false;
    Q4_0 = 2, "Q4_0", false;
    Q4_1 = 3, "Q4_1", false;
    Q5_0 = 8, "Q5_0", false;
    Q5_1 = 9, "Q5_1", false;
    Q2_K = 10, "Q2_K", false;
    Q3_K_M = 12, "Q3_K_M", false;
    Q4_K_M = 15, "Q4_K_M", false;
    Q5_K_M = 17, "Q5_K_M", false;
    Q6_K = 18, "Q6_K", false;
    IQ4_NL = 25, "IQ4_NL", false;
    IQ4_XS = 30, "IQ4_XS", false;
    MXFP4 = 38, "MXFP4", true;
    Q1_0 = 40, "Q1_0", false;
    Q2_0 = 41, "Q2_0", false;
}

/// Writes the model of `from`, whose matrices had better be floats, to `to` in another type. As always,
/// llama.cpp keeps some tensors in a finer one.
pub fn quantize(from: &Path, to: &Path, file_type: FileType) -> Result<()> {
    ffi::quantize(from, to, file_type.id(), file_type.pure()).ok_or_else(|| {
        LlamaError::Input(format!("cannot quantize {} to {}", from.display(), file_type.name()))
    })
}
