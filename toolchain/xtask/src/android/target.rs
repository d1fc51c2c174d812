//! The target of programs for phones.

/// The target triple.
pub const TARGET: &str = "aarch64-linux-android";
/// The API level that programs are for at least: that of Android 9. `platform/android` has it, too, in a
/// note.
pub const API: u32 = 28;
