//! What can be set about a server.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use axum::http::HeaderValue;

/// Settings of a server. The defaults are llama-server's where it has the same.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address or name to listen on.
    pub host: String,
    /// Port to listen on; 0 for any that is free.
    pub port: u16,
    /// Keys of which a request has to name one. None are needed if there are none.
    pub api_keys: Vec<String>,
    /// Pages of which other servers may ask from within a browser.
    pub cors: CorsOrigins,
    /// Names by which clients on this machine may call the server, beside localhost, addresses, names without
    /// a dot, [`host`](Self::host), and those of the pages in [`cors`](Self::cors). A page of a stranger
    /// whose name stands for this machine for a moment calls it by another name, and is refused.
    pub names: Vec<String>,
    /// Connections at once. Where there are more, those give way that have no request.
    pub connections: usize,
    /// Connections of one address at once.
    pub client_connections: usize,
    /// How long a connection may take for the head of its next request, and between two parts of a body.
    pub idle: Duration,
    /// Requests that may wait for a sequence, beyond those that have one. More are refused.
    pub queue: usize,
    /// Longest body of a request, in bytes.
    pub body_bytes: usize,
    /// How long a client may take to send its request, or not read its answer, before it is given up.
    pub timeout: Duration,
    /// How long requests may go on after the server was asked to end.
    pub grace: Duration,
    /// How often a stream says that it is alive while there is nothing else to say.
    pub ping: Duration,
    /// Whether there is `/metrics`.
    pub metrics: bool,
    /// Whether there is `/slots`.
    pub slots: bool,
    /// The folder into which sequences are saved. Without one, none are.
    pub slot_save_path: Option<PathBuf>,
    /// Bytes of this machine's memory for texts whose sequences were needed by others; `None` for any number.
    pub cache_ram: Option<usize>,
    /// Whether there is a page for browsers at `/`.
    pub page: bool,
    /// Tokens of an answer at most, if its request does not say.
    pub max_tokens: Option<usize>,
    /// Where thoughts go, if a request does not say.
    pub reasoning: ReasoningFormat,
}

/// Where the thoughts of a model go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Into a field of their own.
    #[default]
    Apart,
    /// Into the answer, as the model wrote them.
    None,
}

impl FromStr for ReasoningFormat {
    type Err = String;

    /// llama-server's names.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" | "deepseek" => Ok(Self::Apart),
            "none" => Ok(Self::None),
            other => Err(format!("{other} is none of auto, deepseek, none")),
        }
    }
}

/// Pages of which other servers may ask from within a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CorsOrigins {
    /// Those of all.
    #[default]
    Any,
    /// Those of this machine, whatever their port.
    Local,
    /// Those of these, such as `https://example.org`.
    Only(Vec<HeaderValue>),
}

impl FromStr for CorsOrigins {
    type Err = String;

    /// `*`, `localhost`, or origins separated by commas.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "*" => return Ok(Self::Any),
            "localhost" => return Ok(Self::Local),
            _ => {}
        }
        let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
        let parsed = origins.map(|origin| match origin.split_once("://") {
            Some(_) => HeaderValue::from_str(origin).map_err(|_| format!("\"{origin}\" is no origin")),
            None => Err(format!("\"{origin}\" is no origin; give one such as https://example.org")),
        });
        parsed.collect::<Result<_, _>>().map(Self::Only)
    }
}

/// Room for the longest prompt that a context of a million tokens can hold, with the escapes of JSON.
const BODY_BYTES: usize = 32 << 20;

/// Connections at once: some eight for each request that runs or waits, and fewer than the 1024 descriptors
/// that most systems give a process.
const CONNECTIONS: usize = 512;

/// How long a connection may ask for nothing, as with many servers. Programs that keep connections open for
/// their next request open another one after that.
const IDLE: Duration = Duration::from_secs(30);

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            api_keys: Vec::new(),
            cors: CorsOrigins::Any,
            names: Vec::new(),
            connections: CONNECTIONS,
            client_connections: CONNECTIONS / 2,
            idle: IDLE,
            queue: 64,
            body_bytes: BODY_BYTES,
            timeout: Duration::from_secs(600),
            grace: Duration::from_secs(30),
            ping: Duration::from_secs(15),
            metrics: false,
            slots: true,
            slot_save_path: None,
            cache_ram: Some(0),
            page: true,
            max_tokens: None,
            reasoning: ReasoningFormat::default(),
        }
    }
}
