//! Child processes whose time is limited, and what they leave behind.

use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks at a child.
const PAUSE: Duration = Duration::from_millis(20);
/// Time for processes that are about to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Waits for `child` and returns its status; `None` where it did not end within `limit`, and was killed with
/// all that it had started.
///
/// It stays in the process group of the caller, so that Ctrl-C reaches everybody.
///
/// # Errors
/// Errors of the system's call that waits.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            kill_with_descendants(child.id());
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// Makes this process the parent of all processes below it whose own parent ends, on Linux.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        eprintln!("processes that are left behind will not be found ({error})");
    }
}

/// Kills the processes below this one, and returns their command lines. They hold the output of whoever has
/// started this process, which would wait for them.
pub fn end_orphans() -> Vec<String> {
    let me = std::process::id().to_string();
    let start = Instant::now();
    loop {
        let left: Vec<_> =
            descendants(&me).into_iter().filter_map(|id| Some((command_line(&id)?, id))).collect();
        if left.is_empty() {
            return Vec::new();
        }
        if start.elapsed() > FAREWELL {
            let (commands, ids): (Vec<_>, Vec<_>) = left.into_iter().unzip();
            kill(&ids);
            return commands;
        }
        thread::sleep(PAUSE);
    }
}

fn kill_with_descendants(root: u32) {
    let root = root.to_string();
    let below = descendants(&root);
    kill(&[vec![root], below].concat());
}

fn kill(processes: &[String]) {
    // Some may have ended by themselves.
    let _ = Command::new("kill").arg("-KILL").args(processes).status();
}

/// Processes below one, from above to below.
fn descendants(root: &str) -> Vec<String> {
    let mut found = children(root);
    let mut seen = 0;
    while seen < found.len() {
        let below = children(&found[seen]);
        found.extend(below);
        seen += 1;
    }
    found
}

/// The command line of a process; `None` where it has ended.
fn command_line(process: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).ok().filter(|bytes| !bytes.is_empty())?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned())
}

/// Processes that the threads of a process have started, as Linux lists them; none on other systems.
fn children(process: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_ends_has_its_status() {
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::from_secs(60)).unwrap().and_then(|s| s.code()), Some(3));
    }

    #[test]
    fn a_child_that_hangs_is_killed_with_what_it_started() {
        let mut child = Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let sleeper = loop {
            if let Some(sleeper) = children(&child.id().to_string()).pop() {
                break sleeper;
            }
            thread::sleep(PAUSE);
        };
        assert_eq!(wait(&mut child, Duration::from_millis(50)).unwrap(), None);
        while command_line(&sleeper).is_some() {
            thread::sleep(PAUSE);
        }
    }
}
