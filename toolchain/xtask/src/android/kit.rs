//! A linker for Android, and what it links into each program and library.

use std::path::PathBuf;

use super::check::Libraries;
use super::form::Form;

/// Stand-in for the C compiler, and what is linked into each file.
#[derive(Debug, PartialEq, Eq)]
pub struct Kit {
    pub linker: PathBuf,
    /// Arguments for each link.
    pub always: Vec<String>,
    /// Objects that replace what the NDK's clang links in by itself.
    pub objects: Option<Objects>,
    pub libraries: Libraries,
}

/// Objects that are linked into each file, besides its own code.
#[derive(Debug, PartialEq, Eq)]
pub struct Objects {
    /// Start code, unwinder and note.
    pub for_programs: PathBuf,
    /// Unwinder and note.
    pub for_libraries: PathBuf,
}

impl Kit {
    /// Arguments of rustc for the link of a file of this form.
    pub fn arguments(&self, form: Form) -> Vec<String> {
        let object = self.objects.as_ref().map(|objects| match form {
            Form::Program { .. } => &objects.for_programs,
            Form::Library { .. } => &objects.for_libraries,
        });
        let object = object.map(|object| format!("-Clink-arg={}", object.display()));
        let name = match form {
            Form::Program { .. } => None,
            Form::Library { file, .. } => Some(format!("-Clink-arg=-Wl,-soname,{file}")),
        };
        object.into_iter().chain(name).collect()
    }

    /// Flags of rustc, as cargo wants them in a variable.
    pub fn rustflags(&self) -> String {
        let linker = format!("-Clinker={}", self.linker.display());
        let flags = [linker, "-Clinker-flavor=gcc".to_owned()];
        flags.iter().chain(&self.always).map(String::as_str).collect::<Vec<_>>().join("\x1f")
    }
}
