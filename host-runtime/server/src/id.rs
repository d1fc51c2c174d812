//! Names and numbers that nobody else has.

use std::hash::{BuildHasher, RandomState};

/// A new id that begins with `prefix`.
pub(crate) fn id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", random(), random())
}

/// A number that nobody else has.
pub(crate) fn random() -> u64 {
    // The standard library's hash keys are drawn from the operating system.
    RandomState::new().hash_one(0)
}
