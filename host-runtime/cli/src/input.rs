//! Files that users name, read up to a limit: `/dev/zero` has no end.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use super::CliError;

/// Longest prompt, or file of prompts, in bytes. A context of a million tokens holds about a quarter of it.
pub(super) const MAX_PROMPT: usize = 16 << 20;

/// The bytes of a file, or of standard input for `-`.
///
/// # Errors
/// The system's, or [`ErrorKind::FileTooLarge`] if there are more than `limit`.
pub(super) fn read(path: &Path, limit: usize) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        bounded(std::io::stdin().lock(), limit)
    } else {
        bounded(File::open(path)?, limit)
    }
}

/// The prompt in a file, or in standard input for `-`.
///
/// # Errors
/// It cannot be read, is longer than [`MAX_PROMPT`], or is not UTF-8.
pub(super) fn text(path: &Path) -> std::result::Result<String, CliError> {
    let bytes =
        read(path, MAX_PROMPT).map_err(|source| CliError::Prompt { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::PromptEncoding { path: path.to_owned(), at }
    })
}

fn bounded(from: impl Read, limit: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let cause = match limit >> 20 {
            0 => format!("there are more than {} KiB", limit >> 10),
            mib => format!("there are more than {mib} MiB"),
        };
        return Err(Error::new(ErrorKind::FileTooLarge, cause));
    }
    Ok(bytes)
}
