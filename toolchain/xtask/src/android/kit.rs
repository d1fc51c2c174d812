//! A linker for Android, and what it links into each program.

use std::path::PathBuf;

use super::check::Libraries;

/// Stand-in for the C compiler, and what is linked into each program.
#[derive(Debug, PartialEq, Eq)]
pub struct Kit {
    pub linker: PathBuf,
    /// Arguments for each link.
    pub always: Vec<String>,
    /// An argument for the link of a program.
    pub program: Option<String>,
    pub libraries: Libraries,
}

impl Kit {
    /// Flags of rustc, as cargo wants them in a variable.
    pub fn rustflags(&self) -> String {
        let linker = format!("-Clinker={}", self.linker.display());
        let flags = [linker, "-Clinker-flavor=gcc".to_owned()];
        flags.iter().chain(&self.always).map(String::as_str).collect::<Vec<_>>().join("\x1f")
    }
}
