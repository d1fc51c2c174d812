//! Text of strangers on a terminal: names in files and on hubs, and what servers say.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use hexflash::gguf::acts;

/// A text on one line, in which what would act on a terminal is spelled out.
pub(super) fn plain(text: &str) -> String {
    spelled(text, acts)
}

/// Makes a text plain that may have several lines.
pub(super) fn plain_lines(text: &str) -> String {
    spelled(text, |c| acts(c) && c != '\n' && c != '\t')
}

fn spelled(text: &str, is_spelled: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_spelled(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Checks that a path which was found, rather than named by the user, is a file or nothing. To open a pipe
/// would wait for somebody else.
///
/// # Errors
/// It is something else.
pub(super) fn is_file_or_nothing(path: &Path) -> io::Result<()> {
    match path.metadata().as_ref().map(Metadata::is_file) {
        Ok(false) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file; remove it")),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// The text of such a file.
///
/// # Errors
/// There is none, or it cannot be read.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    is_file_or_nothing(path)?;
    std::fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_spelled_out() {
        let name = "a\u{1b}]0;x\u{7}\u{9b}2J\u{202e}fugg\u{2066}.\u{200f}\nb é 🦀";
        let seen = r"a\u{1b}]0;x\u{7}\u{9b}2J\u{202e}fugg\u{2066}.\u{200f}\nb é 🦀";
        assert_eq!(plain(name), seen);
        assert_eq!(plain_lines("a\n\tb\r\u{1b}[2J"), "a\n\tb\\r\\u{1b}[2J");
    }
}
