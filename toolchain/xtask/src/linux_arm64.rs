//! The target of host programs for Linux on arm64, and what links them.

/// The target triple.
pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's compiler for it.
pub const LINKER: &str = "aarch64-linux-gnu-gcc";
