//! Memory: what is opened and closed again and again leaves nothing behind.

use std::process::Command;
use std::{env, fs};

use hexflash_c::{hexflash_close, hexflash_free_conversation, hexflash_free_generation};

use super::support::{conversation, generate, messages, next, open, open_file};

/// Opens and closes when nobody says how many.
const OPENS: usize = 100;
/// Variable that says how many.
const VARIABLE: &str = "HEXFLASH_OPENS";
/// Bytes by which memory may grow, in all: what an allocator keeps, of a process that has a few MiB.
const SLACK: u64 = 4 << 20;
/// Variable that tells the program of this test that it is the one that is measured.
const MEASURED: &str = "HEXFLASH_MEASURED";

/// Bytes of memory that are this process's.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    // It is the size that Linux has on x86-64; a larger one makes the test less strict there, not wrong.
    pages * 4096
}

/// Opens a model, writes a little, and closes it; and fails to open one.
fn once(options: &str) {
    let model = open(options).unwrap();
    let talk = conversation(&model, r#"{"chat_template": "chatml"}"#).unwrap();
    let text = generate(&model, "fn", r#"{"max_tokens": 2}"#).unwrap();
    next(&text).unwrap();
    messages(&talk);
    hexflash_free_generation(Some(text));
    hexflash_free_conversation(Some(talk));
    hexflash_close(Some(model));
    open_file("none.gguf", options).map(drop).unwrap_err();
}

/// In a process of its own, in which no other test runs.
#[test]
#[cfg(target_os = "linux")]
fn opens_and_closes_leave_nothing_behind() {
    if env::var_os(MEASURED).is_none() {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "memory::opens_and_closes_leave_nothing_behind", "--nocapture"])
            .env(MEASURED, "1");
        let output = test.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        print!("{said}");
        assert!(output.status.success(), "{said}");
        return;
    }
    let n = env::var(VARIABLE).map_or(OPENS, |n| n.parse().unwrap());
    let cache = tempfile::tempdir().unwrap();
    let options = format!(r#"{{"context": 64, "threads": 1, "weights_cache_dir": {:?}}}"#, cache.path());
    // Caches of the allocator and of libraries fill up first.
    (0..n / 10).for_each(|_| once(&options));
    let before = resident();
    let start = std::time::Instant::now();
    (0..n).for_each(|_| once(&options));
    let after = resident();
    eprintln!("{n} opens in {:.1?}: {before} bytes before, {after} after", start.elapsed());
    assert!(after < before + SLACK, "{before} {after}");
}
