//! A folder for files that a target writes again and again: in memory, where the system has such a place.

use std::path::{Path, PathBuf};

/// A folder of this process, made at first use. It stays: a fuzzer's process ends without notice.
pub fn folder(name: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    // One folder per target and process: runs beside each other do not meet, and runs after each other leave
    // few.
    let folder = place.join(format!("hexflash-fuzz-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a place for files");
    folder
}
