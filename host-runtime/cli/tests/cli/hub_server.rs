//! A Hugging Face Hub for tests: what it has, how it misbehaves, and what it was asked.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::hub_cache::COMMIT;

/// How the server treats requests for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Each answer ends after so many bytes.
    Cuts(usize),
    /// It cuts, and answers nothing after so many requests for files.
    CutsThenFails(usize, usize),
    /// It knows no ranges.
    NoRanges,
    /// It sends other bytes than it has described.
    Damages,
    /// It sends more bytes than it has described.
    Adds,
    /// It sends the first so many bytes of the file, and then nothing, with the connection open.
    Stops(usize),
    /// It sends bytes from another place than it was asked for.
    Shifts,
    /// It sends a byte now and then.
    Crawls,
    /// It answers with this status, and the Hub's name for it.
    Refuses(u16, &'static str),
    /// It sends clients elsewhere for the bytes, as the Hub does for large files.
    Redirects,
    /// It waits until it is in another mood before it sends bytes.
    Waits,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub headers: HashMap<String, String>,
}

struct State {
    repo: String,
    files: Vec<(String, Vec<u8>)>,
    mood: Mood,
    /// The status for the question what the repository has.
    listing: (u16, &'static str),
    asked: Vec<Asked>,
    /// Where bytes are, for [`Mood::Redirects`].
    elsewhere: String,
}

/// A server until the process ends.
pub struct Hub {
    pub address: String,
    state: Arc<Mutex<State>>,
}

impl Hub {
    pub fn new(repo: &str, files: &[(&str, Vec<u8>)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
        // Another name of this machine, so that it is another host to clients.
        let elsewhere = address.replace("127.0.0.1", "localhost");
        let listing = (200, "");
        let state =
            State { repo: repo.to_owned(), files, mood: Mood::Well, listing, asked: Vec::new(), elsewhere };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || while serve(&mut stream, &state).is_some() {});
            }
        });
        Self { address, state }
    }

    pub fn mood(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// Sends clients to another address for the bytes.
    pub fn redirect_to(&self, address: &str) {
        let mut state = self.state.lock().unwrap();
        (state.mood, state.elsewhere) = (Mood::Redirects, address.to_owned());
    }

    pub fn listing(&self, status: u16, code: &'static str) {
        self.state.lock().unwrap().listing = (status, code);
    }

    /// The same Hub behind TLS; gives its address.
    pub fn secure(&self) -> String {
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("localhost.key.pem")).unwrap();
        let certificate = CertificateDer::from_pem_slice(include_bytes!("localhost.cert.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let shared = Arc::clone(&self.state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, config) = (Arc::clone(&shared), Arc::clone(&config));
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(connection, stream);
                thread::spawn(move || while serve(&mut stream, &state).is_some() {});
            }
        });
        address
    }

    /// Replaces the bytes of a file.
    pub fn replace(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        state.files.iter_mut().find(|(known, _)| known == name).unwrap().1 = bytes;
    }

    /// The requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

/// A hash as the Hub writes it.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Answers a request; `None` when the connection is to be closed.
fn serve(stream: &mut (impl Read + Write), state: &Mutex<State>) -> Option<()> {
    let asked = read(stream)?;
    let (answer, body, pace) = {
        let mut state = state.lock().unwrap();
        state.asked.push(asked.clone());
        answer(&state, &asked)?
    };
    stream.write_all(answer.as_bytes()).ok()?;
    match pace {
        Pace::Full => stream.write_all(&body).ok(),
        Pace::Cut(at) => {
            stream.write_all(&body[..at.min(body.len())]).ok()?;
            None
        }
        Pace::Crawl => {
            for byte in body {
                stream.write_all(&[byte]).ok()?;
                thread::sleep(Duration::from_millis(20));
            }
            None
        }
        Pace::Stop(at) => {
            stream.write_all(&body[..at.min(body.len())]).ok()?;
            // Longer than any test waits for it.
            thread::sleep(Duration::from_secs(60));
            None
        }
        Pace::Later => {
            while state.lock().unwrap().mood == Mood::Waits {
                thread::sleep(Duration::from_millis(5));
            }
            stream.write_all(&body).ok()
        }
    }
}

enum Pace {
    Full,
    Cut(usize),
    Crawl,
    Stop(usize),
    Later,
}

fn read(stream: &mut impl Read) -> Option<Asked> {
    let mut lines = BufReader::new(stream.take(64 << 10)).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Asked { path, headers })
}

fn answer(state: &State, asked: &Asked) -> Option<(String, Vec<u8>, Pace)> {
    let head = |status: u16, more: &str, length: usize| {
        format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n{more}\r\n")
    };
    let refuse = |status: u16, code: &str| {
        let more = if code.is_empty() { String::new() } else { format!("X-Error-Code: {code}\r\n") };
        Some((head(status, &more, 0), Vec::new(), Pace::Full))
    };
    let repo = &state.repo;
    if asked.path == format!("/api/models/{repo}/revision/main?blobs=true") {
        let (status, code) = state.listing;
        if status != 200 {
            return refuse(status, code);
        }
        let sibling = |(name, bytes): &(String, Vec<u8>)| {
            let lfs = json!({ "sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 134 });
            json!({ "rfilename": name, "size": bytes.len(), "blobId": "0".repeat(40), "lfs": lfs })
        };
        let siblings: Vec<_> = state.files.iter().map(sibling).collect();
        let body = json!({ "id": repo, "sha": COMMIT, "siblings": siblings }).to_string().into_bytes();
        return Some((head(200, "", body.len()), body, Pace::Full));
    }
    let name = asked.path.strip_prefix(&format!("/{repo}/resolve/{COMMIT}/"));
    let name = name.or_else(|| asked.path.strip_prefix("/elsewhere/"));
    let file = name.and_then(|name| state.files.iter().find(|(known, _)| known == name));
    let Some((name, bytes)) = file else { return refuse(404, "RepoNotFound") };
    let mut bytes = bytes.clone();
    let mut pace = Pace::Full;
    let earlier = state.asked.iter().filter(|asked| asked.path.contains("/resolve/")).count();
    match state.mood {
        Mood::Well | Mood::NoRanges | Mood::Stops(_) | Mood::Shifts => {}
        Mood::Cuts(at) => pace = Pace::Cut(at),
        Mood::CutsThenFails(_, times) if earlier > times => return None,
        Mood::CutsThenFails(at, _) => pace = Pace::Cut(at),
        Mood::Damages => bytes[0] ^= 1,
        Mood::Adds => bytes.push(0),
        Mood::Crawls => pace = Pace::Crawl,
        Mood::Refuses(status, code) => return refuse(status, code),
        Mood::Redirects if asked.path.starts_with("/elsewhere/") => {}
        Mood::Redirects => {
            let location = format!("Location: {}/elsewhere/{name}\r\n", state.elsewhere);
            return Some((head(302, &location, 0), Vec::new(), Pace::Full));
        }
        Mood::Waits => pace = Pace::Later,
    }
    let range = asked.headers.get("range").filter(|_| state.mood != Mood::NoRanges);
    let Some(start) = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
    else {
        if let Mood::Stops(at) = state.mood {
            pace = Pace::Stop(at);
        }
        return Some((head(200, "", bytes.len()), bytes, pace));
    };
    let start: usize = start;
    if start >= bytes.len() {
        return refuse(416, "");
    }
    if let Mood::Stops(at) = state.mood {
        pace = Pace::Stop(at.saturating_sub(start));
    }
    let said = if state.mood == Mood::Shifts { start - 1 } else { start };
    let range = format!("Content-Range: bytes {said}-{}/{}\r\n", bytes.len() - 1, bytes.len());
    let rest = bytes.split_off(start);
    Some((head(206, &range, rest.len()), rest, pace))
}
