//! Requests whose answers come piece by piece, and that can be given up at any moment.
//!
//! Each runs on a thread of its own. Who gives up leaves the thread behind: it ends with its connection, or
//! when it finds that nobody takes its next piece.

use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use hexflash::cancel::Cancel;
use ureq::Agent;
use ureq::http::Uri;
use ureq::http::uri::Parts;

use super::cache::variable;
use super::tls;

/// How long it may take to find the server, and to connect to it.
const CONNECT: Duration = Duration::from_secs(20);
/// How long the server may say nothing, unless `HF_HUB_DOWNLOAD_TIMEOUT` has other seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest such time that is taken from there.
const LONGEST_SILENCE: u64 = 24 * 3600;
/// How often those who wait look whether to give up.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// Pieces under way.
const QUEUE: usize = 4;
/// Servers that a request is sent on to at most.
const MAX_REDIRECTS: usize = 10;
/// Longest answer that is kept as a whole, in bytes: the list of a repository has some hundred for each file.
const MAX_TEXT: usize = 16 << 20;

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(super) enum HttpError {
    /// A signal has come.
    Cancelled,
    /// The connection; in words, on one line.
    Lost(String),
}

/// What an answer begins with.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    /// What the Hub calls the error, such as `GatedRepo`.
    pub(super) error_code: Option<String>,
    /// First byte of the part of the file that follows.
    pub(super) range_start: Option<u64>,
}

enum Event {
    Head(Head),
    Bytes(Vec<u8>),
    End,
    Lost(String),
}

/// An answer under way.
pub(super) struct Answer {
    pub(super) head: Head,
    events: Receiver<Event>,
    silence: Duration,
}

/// Who asks.
pub(super) struct Client {
    agent: Agent,
    token: Option<String>,
    silence: Duration,
}

impl Client {
    /// A client that shows this token, to the host that it asks and to no other. `secure` says whether TLS is
    /// needed.
    pub(super) fn new(token: Option<String>, secure: bool) -> Self {
        let silence = silence();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("hexflash/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(silence))
            // They are followed here, by whom the token may be seen.
            .max_redirects(0)
            .max_redirects_will_error(false);
        if secure {
            config = config.tls_config(tls::config());
        }
        Self { agent: config.build().into(), token, silence }
    }

    /// Asks for a file from byte `from` on.
    pub(super) fn get(&self, url: &str, from: u64, cancel: &Cancel) -> Result<Answer, HttpError> {
        let (agent, token, url) = (self.agent.clone(), self.token.clone(), url.to_owned());
        let (tell, events) = sync_channel(QUEUE);
        let ask = move || {
            let outcome = follow(&agent, &url, token.as_deref(), from);
            let outcome = outcome.and_then(|answer| hear(answer, &tell));
            let _ = tell.send(outcome.map_or_else(Event::Lost, |()| Event::End));
        };
        thread::Builder::new().spawn(ask).map_err(|error| HttpError::Lost(error.to_string()))?;
        // Longer than all that the request itself waits for, which says better what it was.
        match next(&events, 3 * CONNECT + 2 * self.silence, cancel)? {
            Event::Head(head) => Ok(Answer { head, events, silence: self.silence }),
            Event::Bytes(_) | Event::End => Err(HttpError::Lost("no answer came".to_owned())),
            Event::Lost(reason) => Err(HttpError::Lost(one_line(&reason))),
        }
    }
}

/// The answer to a request, wherever servers send it. Only the server that is asked first sees the token:
/// another port of the same machine may be somebody else's. Who was sent elsewhere and back does not show it
/// again.
fn follow(
    agent: &Agent,
    url: &str,
    mut token: Option<&str>,
    from: u64,
) -> Result<ureq::http::Response<ureq::Body>, String> {
    let mut at: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    for _ in 0..=MAX_REDIRECTS {
        let mut request = agent.get(at.clone());
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        let answer = request.call().map_err(|error| error.to_string())?;
        let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
        let (true, Some(to)) = (matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308), to) else {
            return Ok(answer);
        };
        let next =
            resolved(&at, to).ok_or_else(|| format!("it redirects to \"{to}\", which is no address"))?;
        if at.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
            return Err(format!("it redirects to {next}, without TLS"));
        }
        if server(&next) != server(&at) {
            token = None;
        }
        at = next;
    }
    Err(format!("it redirects more than {MAX_REDIRECTS} times"))
}

/// The address that a server redirects to from `at`: a whole one, or a path of the same server.
fn resolved(at: &Uri, to: &str) -> Option<Uri> {
    let is_path = to.starts_with('/') && !to.starts_with("//");
    let to = to.split('#').next().unwrap_or_default();
    if !is_path {
        return to.parse().ok().filter(|to: &Uri| matches!(to.scheme_str(), Some("http" | "https")));
    }
    let mut parts: Parts = at.clone().into_parts();
    parts.path_and_query = Some(to.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Who answers at an address.
fn server(address: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let scheme = address.scheme_str();
    let usual = if scheme == Some("https") { 443 } else { 80 };
    let host = address.host().map(str::to_ascii_lowercase);
    (scheme, host, address.port_u16().or(Some(usual)))
}

/// How long the server may say nothing.
fn silence() -> Duration {
    let seconds = variable("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|text| text.to_str()?.parse::<u64>().ok());
    seconds.map_or(SILENCE, |seconds| Duration::from_secs(seconds.clamp(1, LONGEST_SILENCE)))
}

/// Passes an answer on, until its end or until nobody listens.
fn hear(answer: ureq::http::Response<ureq::Body>, tell: &SyncSender<Event>) -> Result<(), String> {
    let header = |name: &str| answer.headers().get(name)?.to_str().ok().map(str::to_owned);
    let range_start = header("content-range").and_then(|range| start_of(&range));
    let head = Head { status: answer.status().as_u16(), error_code: header("x-error-code"), range_start };
    if tell.send(Event::Head(head)).is_err() {
        return Ok(());
    }
    let mut body = answer.into_body().into_reader();
    loop {
        let mut piece = vec![0; PIECE];
        let n = body.read(&mut piece).map_err(|error| error.to_string())?;
        piece.truncate(n);
        if n == 0 || tell.send(Event::Bytes(piece)).is_err() {
            return Ok(());
        }
    }
}

/// The start of `bytes START-END/ALL`.
fn start_of(range: &str) -> Option<u64> {
    range.trim().strip_prefix("bytes")?.trim().split('-').next()?.parse().ok()
}

/// Texts of servers and of the system, on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect()
}

fn next(events: &Receiver<Event>, patience: Duration, cancel: &Cancel) -> Result<Event, HttpError> {
    let deadline = Instant::now() + patience;
    loop {
        if cancel.is_cancelled() {
            return Err(HttpError::Cancelled);
        }
        match events.recv_timeout(LOOK) {
            Ok(event) => return Ok(event),
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Event::Lost("the connection is gone".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                return Ok(Event::Lost(format!("nothing came for {} s", patience.as_secs())));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Answer {
    /// The next bytes; `None` at the end.
    pub(super) fn next(&mut self, cancel: &Cancel) -> Result<Option<Vec<u8>>, HttpError> {
        match next(&self.events, self.silence, cancel)? {
            Event::Bytes(bytes) => Ok(Some(bytes)),
            Event::End => Ok(None),
            Event::Head(_) => Err(HttpError::Lost("a second answer came".to_owned())),
            Event::Lost(reason) => Err(HttpError::Lost(one_line(&reason))),
        }
    }

    /// All that is left.
    pub(super) fn text(mut self, cancel: &Cancel) -> Result<Vec<u8>, HttpError> {
        let mut text = Vec::new();
        while let Some(bytes) = self.next(cancel)? {
            text.extend(bytes);
            if text.len() > MAX_TEXT {
                return Err(HttpError::Lost(format!("the answer has more than {} MiB", MAX_TEXT >> 20)));
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_ranges_start() {
        assert_eq!(start_of("bytes 42-99/100"), Some(42));
        assert_eq!(start_of("bytes 0-0/*"), Some(0));
        for bad in ["", "bytes */100", "bytes", "items 1-2/3", "42-99/100"] {
            assert_eq!(start_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_token_is_for_one_server() {
        let at: Uri = "https://hub.example/a?b".parse().unwrap();
        let to = |to: &str| resolved(&at, to).map(|to| (server(&to) == server(&at), to.to_string()));
        let found = |is_same: bool, to: &str| Some((is_same, to.to_owned()));
        assert_eq!(to("/c?d#e"), found(true, "https://hub.example/c?d"));
        assert!(to("https://HUB.example:443/c").unwrap().0);
        for other in ["https://hub.example:8443/c", "http://hub.example/c", "https://cdn.hub.example/c"] {
            assert_eq!(to(other), found(false, other));
        }
        for wrong in ["//evil.example/c", "c", "ftp://hub.example/c", "", "https://"] {
            assert_eq!(to(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn messages_have_one_line() {
        assert_eq!(one_line("io:\r\n refused\u{1b}[0m  now"), "io: refused[0m now");
    }
}
