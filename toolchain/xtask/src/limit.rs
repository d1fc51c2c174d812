//! Child processes whose time is limited.

use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks at a child.
const PAUSE: Duration = Duration::from_millis(20);

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

fn kill_with_descendants(root: u32) {
    let mut processes = vec![root.to_string()];
    let mut seen = 0;
    while seen < processes.len() {
        let children = children(&processes[seen]);
        processes.extend(children);
        seen += 1;
    }
    // Some may have ended by themselves.
    let _ = Command::new("kill").arg("-KILL").args(&processes).status();
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
    use std::path::Path;

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
        // Whoever inherits it may take a moment to reap it: a zombie has no command line.
        let runs =
            || fs::read(Path::new("/proc").join(&sleeper).join("cmdline")).is_ok_and(|c| !c.is_empty());
        while runs() {
            thread::sleep(PAUSE);
        }
    }
}
