//! The shape that a skel library must have for the DSP's loader.
//!
//! What the loader of phones takes is not public. The libraries that are known to load there (ggml-hexagon's,
//! as the npm package `llama.rn` ships them for v69 to v81) all have the same shape, and this is it.

mod check;
mod edit;
mod imports;
mod planted;
mod reshape;

pub use self::check::check;
pub use self::imports::{FROM_LIBC, LIBC, absent};
pub use self::planted::planted_are_found;
pub use self::reshape::reshape;
