//! Lines for people on standard error, and values for programs on standard output.

use std::fmt::Display;
use std::io::{Result, Write, stderr, stdout};

use serde::Serialize;

use super::plain::plain_lines;

/// Writes a line to standard error, if it can be written: what else there is to do does not depend on that.
pub(super) fn say(line: impl Display) {
    let _ = writeln!(stderr(), "{}", plain_lines(&line.to_string()));
}

/// Prints a value for programs to read.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print_json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Words of clap about a mistake, on one line and without its advice.
pub(super) fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let is_advice = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut message = String::new();
    for line in text.lines().map(str::trim).take_while(is_advice).filter(|line| !line.is_empty()) {
        let separator = match message.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        message.push_str(separator);
        message.push_str(line);
    }
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}
