//! One call of adb, which may hang, talk without end, or leave its pipes to a server that it starts.
//!
//! Threads of their own serve its input and its two outputs, so that it can complain at any length while it
//! is fed. What it says is kept up to a bound. When it makes no progress for too long it is ended, and the
//! threads are left behind: whoever else holds its pipes could keep them waiting for ever.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// Most bytes of standard output. The longest that is asked for has 68 bytes for each 16 MiB of a model: this
/// is enough for 4 TiB.
const MOST: usize = 16 << 20;
/// Bytes of complaints that are kept, the last ones: a message shows one line.
const COMPLAINT: usize = 4 << 10;
/// How long pipes may stay open after adb has ended, and nothing comes out of them.
const LINGER: Duration = Duration::from_secs(1);
/// How often it is looked whether adb has ended.
const LOOK: Duration = Duration::from_millis(20);
/// The same when its pipes are closed, as its end is due then.
const LOOK_CLOSED: Duration = Duration::from_millis(1);
/// Bytes that are read or written at once.
const BUFFER: usize = 256 << 10;
/// Buffers under way from the threads: with more, endless output would pile up.
const QUEUE: usize = 4;

/// What adb is given to read: bytes of a file from where it stands.
pub(super) struct Feed {
    /// The file.
    pub(super) file: File,
    /// How many bytes.
    pub(super) bytes: u64,
}

/// A sign of progress.
pub(super) enum Progress {
    /// So many bytes were taken by adb.
    Fed(u64),
    /// So many bytes were printed.
    Said(usize),
}

/// What became of the call.
pub(super) struct Heard {
    /// How adb ended.
    pub(super) status: ExitStatus,
    /// Its standard output.
    pub(super) stdout: Vec<u8>,
    /// The end of its standard error.
    pub(super) stderr: Vec<u8>,
    /// SHA-256 of what it was fed.
    pub(super) fed: io::Result<String>,
}

/// Why nothing became of it.
pub(super) enum Failed {
    /// The program or a thread cannot be started.
    Start(io::Error),
    /// No progress.
    Hung,
    /// More output than anything that it is asked for has.
    Endless,
}

/// What the threads tell.
enum Event {
    Said(Vec<u8>),
    Complained(Vec<u8>),
    Fed(u64),
    FedAll(io::Result<String>),
    /// One of the outputs is closed.
    End,
}

/// A child that does not outlive this.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Fails if it has ended, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// SHA-256 in hexadecimal digits, as `sha256sum` prints it.
pub(super) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs the command. It has `patience` from each sign of progress on; complaints are no progress.
pub(super) fn call(
    command: &mut Command,
    feed: Option<Feed>,
    patience: Duration,
    mut progress: impl FnMut(Progress),
) -> Result<Heard, Failed> {
    command.stdin(if feed.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(command.spawn().map_err(Failed::Start)?);
    let (events, open) = serve(&mut child.0, feed).map_err(Failed::Start)?;
    let (mut stdout, mut stderr, mut open) = (Vec::new(), Vec::new(), open);
    // Stands if adb ends while somebody else holds its input.
    let mut fed = Err(io::ErrorKind::BrokenPipe.into());
    let mut deadline = Instant::now() + patience;
    let mut ended = None;
    let mut quiet_since = Instant::now();
    loop {
        if ended.is_none() {
            ended = child.0.try_wait().map_err(Failed::Start)?;
            quiet_since = Instant::now();
        }
        if let Some(status) = ended.filter(|_| open == 0 || quiet_since.elapsed() > LINGER) {
            return Ok(Heard { status, stdout, stderr, fed });
        }
        if Instant::now() >= deadline {
            return Err(Failed::Hung);
        }
        let event = match events.recv_timeout(LOOK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(LOOK_CLOSED);
                continue;
            }
        };
        quiet_since = Instant::now();
        match event {
            Event::Said(bytes) => {
                stdout.extend(bytes);
                if stdout.len() > MOST {
                    return Err(Failed::Endless);
                }
                progress(Progress::Said(stdout.len()));
                deadline = Instant::now() + patience;
            }
            Event::Fed(bytes) => {
                progress(Progress::Fed(bytes));
                deadline = Instant::now() + patience;
            }
            Event::Complained(bytes) => {
                stderr.extend(bytes);
                stderr.drain(..stderr.len().saturating_sub(COMPLAINT));
            }
            Event::FedAll(outcome) => (fed, open) = (outcome, open - 1),
            Event::End => open -= 1,
        }
    }
}

/// Starts the threads; gives what they tell, and how many there are.
fn serve(child: &mut Child, feed: Option<Feed>) -> io::Result<(std::sync::mpsc::Receiver<Event>, usize)> {
    let (tell, events) = sync_channel(QUEUE);
    let mut open = 0;
    if let Some(stdout) = child.stdout.take() {
        let tell = tell.clone();
        thread::Builder::new().spawn(move || hear(stdout, &tell, Event::Said))?;
        open += 1;
    }
    if let Some(stderr) = child.stderr.take() {
        let tell = tell.clone();
        thread::Builder::new().spawn(move || hear(stderr, &tell, Event::Complained))?;
        open += 1;
    }
    if let (Some(mut stdin), Some(feed)) = (child.stdin.take(), feed) {
        thread::Builder::new().spawn(move || {
            let outcome = write(feed, &mut stdin, &tell);
            // adb waits for the end of its input.
            drop(stdin);
            let _ = tell.send(Event::FedAll(outcome));
        })?;
        open += 1;
    }
    Ok((events, open))
}

/// Tells what is read, until the end or until nobody listens.
fn hear(mut from: impl Read, tell: &SyncSender<Event>, kind: fn(Vec<u8>) -> Event) {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(n @ 1..) => {
                if tell.send(kind(buffer[..n].to_vec())).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
    let _ = tell.send(Event::End);
}

/// Writes a file's bytes, telling how far it is; gives their SHA-256.
fn write(feed: Feed, to: &mut impl Write, tell: &SyncSender<Event>) -> io::Result<String> {
    let Feed { mut file, bytes } = feed;
    let (mut buffer, mut hash, mut done) = (vec![0; BUFFER], Sha256::new(), 0);
    while done < bytes {
        let piece = (BUFFER as u64).min(bytes - done) as usize;
        file.read_exact(&mut buffer[..piece])?;
        to.write_all(&buffer[..piece])?;
        hash.update(&buffer[..piece]);
        done += piece as u64;
        if tell.send(Event::Fed(done)).is_err() {
            break;
        }
    }
    Ok(hex(hash))
}
