//! Breaches of the rules, a line each, in a file that both processes append to.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Appends a line. What cannot be reported ends the process: a breach must not go unnoticed.
pub fn violation(file: Option<&Path>, line: &str) {
    let Some(file) = file else {
        eprintln!("cdsprpc stand-in: {line}");
        return;
    };
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        // One write, so that lines of two processes do not mix.
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("cdsprpc stand-in: {line} (and {} cannot be written: {error})", file.display());
        std::process::abort();
    }
}
