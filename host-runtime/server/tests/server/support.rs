//! Servers to ask, and what asks them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexflash::cancel::Cancel;
use hexflash::device::Device;
use hexflash::engine::{Engine, EngineOptions, ModelFiles};
use hexflash::gguf::Gguf;
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::text::CHATML;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::lossy::Lossy;
use hexflash_e2e::{Draft, Model, encoder, inproc, settings};
pub use hexflash_server::Options;
use hexflash_server::{Card, Models, RunError, Served, Server};
pub use serde_json::{Value, json};

/// Tokens of each context: those that the model was trained for.
pub const CONTEXT: u32 = 512;
/// Nothing of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drafter {
    Nobody,
    NGrams,
    /// N-grams, whoever makes them taking his time.
    Unhurried,
    Model,
}

/// N-grams that take a while, so that a test can do something in the middle of a text.
#[derive(Default)]
struct Unhurried(NGram);

impl hexflash::speculation::Drafter for Unhurried {
    fn draft(&mut self, text: &[u32], most: usize, out: &mut hexflash::speculation::Guess) {
        std::thread::sleep(Duration::from_millis(30));
        self.0.draft(text, most, out);
    }
}

/// How a server is started.
#[derive(Clone)]
pub struct Setup {
    pub options: Options,
    pub parallel: u32,
    pub snapshot_bytes: u64,
    pub drafter: Drafter,
    pub template: &'static str,
    /// Another model than the hybrid.
    pub model: Option<PathBuf>,
    /// An encoder of pictures beside the model.
    pub encoder: Option<encoder::Shape>,
    /// Whether the device is lost after every so many steps.
    pub losses: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        let options = Options { port: 0, metrics: true, cache_ram: Some(32 << 20), ..Options::default() };
        Self {
            options,
            parallel: 4,
            snapshot_bytes: 64 << 20,
            drafter: Drafter::Nobody,
            template: CHATML,
            model: None,
            encoder: None,
            losses: None,
        }
    }
}

/// The model as the tests serve it, with a name.
pub fn load_named(setup: &Setup, name: &str) -> Result<Served, hexflash::Error> {
    let mut served = load(setup)?;
    name.clone_into(&mut served.card.alias);
    Ok(served)
}

/// The model as the tests serve it.
fn load(setup: &Setup) -> Result<Served, hexflash::Error> {
    let gguf = Gguf::open(&setup.model.clone().unwrap_or_else(|| Model::Q8_0.path()))?;
    let mut card = Card::read(&gguf)?;
    card.set_template(setup.template.to_owned())?;
    let options = EngineOptions {
        n_ctx: Some(CONTEXT),
        batch: 64,
        sequences: setup.parallel,
        snapshot_bytes: setup.snapshot_bytes,
        speculate: setup.drafter != Drafter::Nobody,
        ..EngineOptions::default()
    };
    let device: Box<dyn Device> = match setup.losses {
        None => Box::new(inproc(settings())),
        Some(between) => Box::new(Lossy::new(inproc(settings()), between)),
    };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let draft = (setup.drafter == Drafter::Model).then(|| Draft::Q8_0.gguf());
    let dir = tempfile::tempdir().unwrap();
    let n_embd = hexflash::model::read(&gguf)?.n_embd as usize;
    let encoder =
        setup.encoder.map(|shape| encoder::write(n_embd, shape, &[], &dir.path().join("mmproj.gguf")));
    let files = ModelFiles::of(&gguf).with_draft(draft.as_ref()).with_encoder(encoder.as_ref());
    let engine = Engine::load_files(files, device, &options, &image)?;
    let drafter = setup.drafter;
    let drafts = move || {
        let source = match drafter {
            Drafter::Nobody => return Speculation::off(),
            Drafter::NGrams => DraftSource::Host(Box::new(NGram::default())),
            Drafter::Unhurried => DraftSource::Host(Box::new(Unhurried::default())),
            Drafter::Model => DraftSource::Model,
        };
        Speculation::new(source, DraftLength::Fixed(5))
    };
    Ok(Served::texts(card, engine, drafts))
}

/// A server that ends with the test.
pub struct TestServer {
    pub address: SocketAddr,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<(), RunError<hexflash::Error>>>>,
}

impl TestServer {
    /// A server whose model is loaded.
    pub fn start(setup: Setup) -> Self {
        let options = setup.options.clone();
        Self::start_with(options, move |_| load(&setup)).ready()
    }

    /// The server when its model is loaded.
    pub fn ready(self) -> Self {
        let start = Instant::now();
        while self.get("/health").status != 200 {
            assert!(start.elapsed() < PATIENCE, "the model is not loaded");
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }

    /// A server of somebody else at this address, to be asked like any other.
    pub fn elsewhere(address: SocketAddr) -> Self {
        Self { address, cancel: Cancel::default(), thread: None }
    }

    /// A server whose model is loaded when `go` says so.
    pub fn start_late(setup: Setup, go: mpsc::Receiver<()>) -> Self {
        let options = setup.options.clone();
        Self::start_with(options, move |_| {
            // A test that has ended does not mind.
            let _ = go.recv();
            load(&setup)
        })
    }

    pub fn start_with(
        options: Options,
        load: impl FnOnce(&Cancel) -> Result<Served, hexflash::Error> + Send + 'static,
    ) -> Self {
        Self::spawn(options, move |server, cancel| server.run(cancel, load))
    }

    /// A server with several models.
    pub fn start_several(options: Options, models: Models<hexflash::Error>) -> Self {
        Self::spawn(options, move |server, cancel| server.run_several(cancel, models))
    }

    fn spawn(
        options: Options,
        run: impl FnOnce(Server, &Cancel) -> Result<(), RunError<hexflash::Error>> + Send + 'static,
    ) -> Self {
        let server = Server::bind(options).unwrap();
        let (address, cancel) = (server.address(), Cancel::default());
        let thread = std::thread::spawn({
            let cancel = cancel.clone();
            move || run(server, &cancel)
        });
        Self { address, cancel, thread: Some(thread) }
    }

    /// The server that tests share who do not mind the others.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<TestServer> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(Setup::default()))
    }

    /// Asks it to end.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for its end.
    pub fn join(&mut self) -> Result<(), RunError<hexflash::Error>> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, &[], &body.to_string())
    }

    /// A request and its whole answer.
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let uri = format!("http://{}{path}", self.address);
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(PATIENCE))
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(uri);
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for &(name, value) in headers {
            request = request.header(name, value);
        }
        let mut response = match method {
            "POST" => agent.run(request.body(body.to_owned()).unwrap()),
            _ => agent.run(request.body(()).unwrap()),
        }
        .unwrap();
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
        Reply { status, headers, text }
    }

    /// The events of a stream, to its end.
    pub fn events(&self, path: &str, body: &Value) -> Vec<String> {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        // An event may have a name before its data.
        let events = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
        events.map(str::to_owned).collect()
    }

    /// A stream whose reader may take its time, or go away.
    pub fn open(&self, path: &str, body: &Value) -> Stream {
        self.try_open(path, body).unwrap()
    }

    /// The same of a server that may have no place for another connection.
    pub fn try_open(&self, path: &str, body: &Value) -> io::Result<Stream> {
        open_on(TcpStream::connect(self.address)?, path, body)
    }

    /// Opens a stream of which the system keeps little that its reader has not read.
    pub fn open_narrow(&self, path: &str, body: &Value) -> Stream {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.connect(&self.address.into()).unwrap();
        open_on(socket.into(), path, body).unwrap()
    }

    /// A figure of `/metrics`; 0 if it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("llamacpp:{name} ")));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until `/slots` has so many texts under way.
    pub fn wait_for_busy(&self, n: usize) {
        self.wait_for("busy", n, || {
            let slots = self.get("/slots").json();
            slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
        });
    }

    /// Waits until so many requests wait for a sequence.
    pub fn wait_for_deferred(&self, n: usize) {
        self.wait_for("deferred", n, || self.metric("requests_deferred") as usize);
    }

    fn wait_for(&self, what: &str, n: usize, found: impl Fn() -> usize) {
        let start = Instant::now();
        while found() != n {
            assert!(start.elapsed() < PATIENCE, "not {n} {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON of an answer that is no error.
    #[track_caller]
    pub fn fine(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Status and kind of an error in OpenAI's shape.
    #[track_caller]
    pub fn error(&self) -> (u16, String) {
        let error = &self.json()["error"];
        assert_eq!(error["code"], self.status, "{self:?}");
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{self:?}");
        (self.status, error["type"].as_str().unwrap().to_owned())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Sends a request whose answer is read as it comes.
fn open_on(mut socket: TcpStream, path: &str, body: &Value) -> io::Result<Stream> {
    let body = body.to_string();
    socket.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes())?;
    Ok(Stream { lines: BufReader::new(socket) })
}

/// An answer that is being read.
pub struct Stream {
    lines: BufReader<TcpStream>,
}

impl Stream {
    /// The next event; `None` at the end.
    pub fn next(&mut self) -> Option<String> {
        self.try_next().unwrap()
    }

    /// The same, of a connection that may be closed.
    pub fn try_next(&mut self) -> io::Result<Option<String>> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if let Some(data) = line.trim_end().strip_prefix("data: ") {
                return Ok(Some(data.to_owned()));
            }
            // The last chunk of a chunked body.
            if line == "0\r\n" {
                return Ok(None);
            }
        }
    }

    /// The rest of its events.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Reads whatever comes, to the end of the connection.
    pub fn all(mut self) -> String {
        let mut text = Vec::new();
        let _ = self.lines.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A completion of `n` tokens that nothing else ends, always of the best token.
pub fn greedy(prompt: &str, n: usize) -> Value {
    json!({ "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": true })
}

/// The text of events of `/v1/completions`.
pub fn joined(events: &[String]) -> String {
    let values = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    values.filter_map(|value| Some(value["choices"][0]["text"].as_str()?.to_owned())).collect()
}
