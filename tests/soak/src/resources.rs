//! What this process holds: memory, files, threads, children. Read from `/proc`.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// Time that threads and processes may take to end, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time without a change after which nothing is about to end.
const REST: Duration = Duration::from_millis(20);

/// What must be the same after a session as before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    files: usize,
    threads: usize,
    children: usize,
    shared: usize,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, threads, children, shared } = self;
        write!(f, "{files} open files, {threads} threads, {children} children, {shared} shared files")
    }
}

fn entries(dir: &str, keep: impl Fn(&str) -> bool) -> usize {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_str().is_some_and(&keep)).count()
}

impl Held {
    /// As it is now.
    pub fn now() -> Self {
        Self {
            files: descriptors(),
            threads: entries("/proc/self/task", |_| true),
            children: children().len(),
            // Fuzzers that run at the same time have theirs there.
            shared: entries("/dev/shm", |name| name.contains("hexflash") && !name.contains("fuzz")),
        }
    }

    /// As it is when nothing has ended for a while: Linux takes a thread off its list a moment after its join
    /// has returned, and a thread that is counted once too often before a session would be missed after it.
    pub fn at_rest() -> Self {
        let (mut held, mut since) = (Self::now(), Instant::now());
        while since.elapsed() < REST {
            std::thread::sleep(Duration::from_millis(1));
            let now = Self::now();
            if now != held {
                (held, since) = (now, Instant::now());
            }
        }
        held
    }

    /// Waits until it is as before.
    ///
    /// # Errors
    /// What is left over.
    pub fn settle(&self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let now = Self::now();
            if now == *self {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("left over: {now}, and it was {self}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Processes that this one has started and that have not ended.
pub fn children() -> Vec<i32> {
    let own = std::process::id().to_string();
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in parentheses, may hold anything; state and parent come after it.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() != Some("Z") && fields.next() == Some(own.as_str())
    };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_child).collect()
}

/// Files and sockets that this process has open.
pub fn descriptors() -> usize {
    entries("/proc/self/fd", |_| true)
}

/// Bytes of memory in use.
///
/// # Panics
/// If the system does not say.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    let kib: u64 = line.trim_end_matches("kB").trim().parse().expect("a number");
    kib << 10
}

/// Bytes of memory after each session, and whether it is flat.
#[derive(Default)]
pub struct Memory(Vec<u64>);

/// Growth that counts as none: what allocators keep, and how much differs from session to session.
pub const FLAT: u64 = 24 << 20;
/// Sessions before which nothing is said of growth.
const ENOUGH: usize = 40;

impl Memory {
    /// After another session.
    pub fn push(&mut self, bytes: u64) {
        self.0.push(bytes);
    }

    /// Median of the second and of the last quarter of the sessions so far: the first is for warming up.
    /// `None` before there are enough.
    pub fn quarters(&self) -> Option<(u64, u64)> {
        let n = self.0.len();
        let median = |part: &[u64]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part[part.len() / 2]
        };
        (n >= ENOUGH).then(|| (median(&self.0[n / 4..n / 2]), median(&self.0[n - n / 4..])))
    }

    /// Whether memory has not grown.
    pub fn is_flat(&self) -> bool {
        self.quarters().is_none_or(|(before, now)| now <= before + FLAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn leaks_are_seen() {
        let before = Held::now();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(children().contains(&(child.id() as i32)));
        assert_ne!(Held::now(), before);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&(child.id() as i32)));
    }

    #[test]
    fn growth_is_seen() {
        let mut flat = Memory::default();
        let mut grows = Memory::default();
        for i in 0..100 {
            flat.push((50 << 20) + ((i % 7) << 20));
            grows.push((50 << 20) + (i << 20));
        }
        assert!(flat.is_flat() && !grows.is_flat());
        assert!(resident() > 1 << 20);
    }
}
