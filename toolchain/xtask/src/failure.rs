//! What went wrong, and what to do about it, in one line.

use std::path::Path;
use std::process::ExitCode;
use std::{fmt, io};

/// Result of a verb or of a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

/// A cause with its remedy. Printed as one line, and never as a backtrace.
#[derive(Debug)]
pub struct Failure {
    cause: String,
    remedy: String,
    code: u8,
}

impl Failure {
    /// Something was checked or built and did not pass: exit code 1.
    pub fn failed(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause: cause.into(), remedy: remedy.into(), code: 1 }
    }

    /// The command cannot be carried out as given or on this machine: exit code 2.
    pub fn unusable(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause: cause.into(), remedy: remedy.into(), code: 2 }
    }

    /// A file or a folder cannot be read, written or whatever the verb says.
    pub fn on_disk(verb: &str, path: &Path, error: &io::Error) -> Self {
        Self::unusable(format!("cannot {verb} {} ({error})", path.display()), "look after the disk")
    }

    /// The exit code of the process that ends with this failure.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_cause_and_remedy_on_one_line() {
        let failure = Failure::failed("cmake is missing", "run `cargo xtask setup`");
        assert_eq!(failure.to_string(), "cmake is missing; run `cargo xtask setup`");
    }

    #[test]
    fn tells_failed_work_from_an_unusable_command() {
        assert_eq!(Failure::failed("", "").code, 1);
        assert_eq!(Failure::unusable("", "").code, 2);
    }
}
