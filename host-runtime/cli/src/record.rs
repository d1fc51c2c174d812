//! A record of the log, for a report: what the library tells of a failure goes further than its error.

use std::io;
use std::sync::{Mutex, PoisonError};

/// Most bytes that are kept, the first ones: whatever fails, fails soon.
const MOST: usize = 64 << 10;

static RECORD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writer of the log.
pub(super) struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST - record.len();
        record.extend(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines so far.
pub(super) fn lines() -> Vec<String> {
    let record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&record).lines().map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_beginning_is_kept() {
        Writer.write_all(b" WARN first\n").unwrap();
        for _ in 0..MOST / 8 {
            Writer.write_all(b"more of it\n").unwrap();
        }
        assert_eq!(lines()[..2], ["WARN first", "more of it"]);
        assert_eq!(RECORD.lock().unwrap().len(), MOST);
    }
}
