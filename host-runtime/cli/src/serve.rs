//! `hexflash serve`: a model over HTTP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hexflash_abi::program::MAX_SLOTS;
use serde_json::{Map, Value};

use super::embed::one_of;
use super::hub::EncoderWish;
use super::interrupt::{self, cancel_on_signals};
use super::models_dir;
use super::options::Drafter;
use super::output::say;
use super::writing::WritingArgs;
use super::{CliError, input, template};
use hexflash::cancel::Cancel;
use hexflash::embed::{Embedder, Pooling};
use hexflash::engine::{EngineError, EngineOptions, ModelFiles};
use hexflash::gguf::{Clean, Gguf};
use hexflash::model;
use hexflash::rerank::Reranker;
use hexflash::sampler::Sampler;
use hexflash_server::{
    Card, CorsOrigins, Listed, Models, Options, ReasoningFormat, RunError, Served, Server, Work,
};

/// MiB for conversations whose sequences were needed by others.
const CACHE_RAM: i64 = 256;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address to listen on; 0.0.0.0 for all of this machine
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Requests that run at once, each with a context of its own; -np for short
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    parallel: u32,
    /// Requests that may wait; more are answered with 503
    #[arg(long, value_name = "N", default_value_t = 64)]
    queue: usize,
    /// Key that requests must name (several: repeat it, or separate them by commas)
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = key)]
    api_key: Vec<String>,
    /// File with such keys, one on each line; lines that begin with # are comments
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Seconds in which a client must send its request, or read of its answer; -to for short
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Seconds that requests may go on after SIGINT or SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Pages that may ask from within a browser: * for all, or their origins, separated by commas
    #[arg(long, value_name = "ORIGINS", default_value = "*")]
    cors_origins: CorsOrigins,
    /// Names of this server for programs on this machine, beside localhost, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = word)]
    host_names: Vec<String>,
    /// Connections at once; where there are more, those that wait for a request are closed
    #[arg(long, value_name = "N", default_value_t = Options::default().connections,
        value_parser = connections)]
    connections: usize,
    /// Connections of one address at once [default: half of --connections]
    #[arg(long, value_name = "N", value_parser = connections)]
    client_connections: Option<usize>,
    /// Seconds in which a connection must send the head of its next request, or more of a body
    #[arg(long, value_name = "SECONDS", default_value_t = Options::default().idle.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: u64,
    /// Serve figures for Prometheus at /metrics
    #[arg(long)]
    metrics: bool,
    /// Tell at /slots what is being done, which is the default
    #[arg(long, hide = true, overrides_with = "no_slots")]
    slots: bool,
    /// Do not tell at /slots what is being done
    #[arg(long)]
    no_slots: bool,
    /// MiB of this machine's memory for conversations whose sequences were needed by others; -1 for no limit
    /// [default: 256, or 0 on device htp]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..))]
    cache_ram: Option<i64>,
    /// Folder into which sequences are saved, and from which they are restored
    #[arg(long, value_name = "DIR", value_parser = folder)]
    slot_save_path: Option<PathBuf>,
    /// Serve no page for browsers at /
    #[arg(long, alias = "no-ui")]
    no_webui: bool,
    /// The model's name in answers; several, separated by commas, are listed [default: that of its file]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', value_parser = word)]
    alias: Vec<String>,
    /// Words about the model for the list of models, separated by commas
    #[arg(long, value_name = "WORDS", value_delimiter = ',', value_parser = word)]
    tags: Vec<String>,
    /// Tokens of an answer at most, if its request does not say; -1 for no limit
    #[arg(short = 'n', long, visible_alias = "predict", value_name = "N", default_value_t = -1,
        allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-2..))]
    n_predict: i64,
    /// Chat templates are Jinja templates here in any case
    #[arg(long, hide = true)]
    jinja: bool,
    /// Chat template to use instead of the model's: a file, or chatml
    #[arg(long, alias = "chat-template-file", value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Arguments of the chat template, as JSON: {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = arguments)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Whether models that can do either are to think: what the template's enable_thinking is
    #[arg(long, value_name = "WHETHER", default_value = "auto")]
    reasoning: Reasoning,
    /// Where thoughts go if a request does not say: apart from the answer (auto, deepseek), or into it (none)
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    reasoning_format: ReasoningFormat,
    /// MiB for snapshots of recurrent states, from which conversations go on after they were edited
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    snapshots: u32,
    /// Folder of models: requests say which, and those that are asked for are loaded
    #[arg(long, value_name = "DIR", value_parser = folder)]
    models_dir: Option<PathBuf>,
    /// Models of --models-dir that are loaded at once; 0 for all. Others wait until one can give way
    #[arg(long, value_name = "N", default_value_t = 1, requires = "models_dir")]
    models_max: usize,
    /// Load models of --models-dir by POST /models/load alone
    #[arg(long, requires = "models_dir")]
    no_models_autoload: bool,
    /// Load models of --models-dir as they are asked for, which is the default
    #[arg(long, hide = true, overrides_with = "no_models_autoload")]
    models_autoload: bool,
    /// Make vectors of texts at /v1/embeddings, and write none
    #[arg(long, alias = "embedding")]
    embeddings: bool,
    /// Vector of a text, of those of its tokens (cls is the first one's) [default: as the model's file says,
    /// or last]
    #[arg(long, value_name = "POOLING", requires = "embeddings")]
    #[arg(value_parser = one_of::<Pooling>(&["mean", "cls", "last"]))]
    pooling: Option<Pooling>,
    /// Score documents for queries at /v1/rerank, with a reranker, and write no texts
    #[arg(long, alias = "rerank", conflicts_with = "embeddings")]
    reranking: bool,
    #[command(flatten)]
    writing: WritingArgs,
}

/// Whether models think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Reasoning {
    /// They do
    On,
    /// They do not
    Off,
    /// As the chat template has it
    Auto,
}

/// Parses one of several words: an empty one says nothing.
fn word(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a name cannot be empty".to_owned()),
        word => Ok(word.to_owned()),
    }
}

/// Parses a number of connections: with fewer than one nobody could ask.
fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("give at least 1".to_owned()),
        Ok(n) => Ok(n),
        Err(error) => Err(format!("{error}; give a whole number")),
    }
}

/// Parses the path of a folder that is there.
fn folder(text: &str) -> Result<PathBuf, String> {
    match PathBuf::from(text) {
        path if path.is_dir() => Ok(path),
        _ => Err("this is no folder; make it first".to_owned()),
    }
}

/// Parses a key: an empty one would let everybody in.
fn key(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a key cannot be empty".to_owned()),
        key => Ok(key.to_owned()),
    }
}

/// Parses `--chat-template-kwargs`.
fn arguments(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}; give a JSON object"))
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        self.writing.lacks()
    }

    fn options(&self) -> Result<Options, CliError> {
        Ok(Options {
            host: self.host.clone(),
            port: self.port,
            api_keys: self.keys()?,
            cors: self.cors_origins.clone(),
            names: self.host_names.clone(),
            connections: self.connections,
            client_connections: self.client_connections.unwrap_or(self.connections.div_ceil(2)),
            idle: Duration::from_secs(self.idle_timeout),
            queue: self.queue,
            timeout: Duration::from_secs(self.timeout),
            grace: Duration::from_secs(self.grace),
            metrics: self.metrics,
            slots: !self.no_slots,
            slot_save_path: self.slot_save_path.clone(),
            cache_ram: usize::try_from(self.cache_ram.unwrap_or(CACHE_RAM))
                .ok()
                .map(|mib| mib.saturating_mul(1 << 20)),
            page: !self.no_webui,
            max_tokens: usize::try_from(self.n_predict).ok(),
            reasoning: self.reasoning_format,
            ..Options::default()
        })
    }

    /// The keys of the command line, and those of the file.
    fn keys(&self) -> Result<Vec<String>, CliError> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let failed = |source| CliError::Keys { path: path.clone(), source };
            let bytes = input::read(path, input::MAX_PROMPT).map_err(failed)?;
            let text = String::from_utf8_lossy(&bytes);
            let before = keys.len();
            let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
            keys.extend(text.lines().map(str::trim).filter(is_key).map(str::to_owned));
            if keys.len() == before {
                return Err(failed(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "there is no key in it",
                )));
            }
        }
        Ok(keys)
    }

    /// The encoder of pictures that is wanted, which vectors and scores do not need.
    fn encoder_wish(&self) -> EncoderWish {
        if self.embeddings || self.reranking { EncoderWish::Never } else { EncoderWish::WithDownload }
    }

    /// Loads the model.
    fn load(&self, cancel: &Cancel) -> Result<Served, CliError> {
        self.load_file(&self.writing.open(self.encoder_wish(), cancel)?, &self.alias, cancel)
    }

    /// Loads the model of a file, with these names if there are any.
    fn load_file(&self, gguf: &Gguf, aliases: &[String], cancel: &Cancel) -> Result<Served, CliError> {
        let writing = &self.writing;
        let card = self.card(gguf, aliases)?;
        if self.embeddings {
            let options = Embedder::engine_options(gguf, &writing.engine.options())?;
            let device = writing.device.open_for(ModelFiles::of(gguf), &options)?;
            let embedder = writing.engine.load_embedder(gguf, &options, device, cancel)?;
            let embedder = match self.pooling {
                Some(pooling) => embedder.pooling(pooling),
                None => embedder,
            };
            return Ok(Served { card, work: Work::Vectors(embedder) });
        }
        if self.reranking {
            let options = Reranker::engine_options(gguf, &writing.engine.options())?;
            let device = writing.device.open_for(ModelFiles::of(gguf), &options)?;
            let reranker = writing.engine.load_reranker(gguf, &options, device, cancel)?;
            return Ok(Served { card, work: Work::Scores(reranker) });
        }
        let drafter = writing.drafter(gguf)?;
        let engine =
            writing.load((gguf, self.encoder_wish()), &drafter, &self.engine_options(&drafter), cancel)?;
        if self.cache_ram.is_some_and(|mib| mib != 0) && !engine.copies_sequences() {
            tracing::warn!("--cache-ram has no effect: the states of this device cannot be copied");
        }
        Ok(Served::texts(card, engine, writing.spec.speculations(&drafter)))
    }

    /// Options of an engine that writes texts.
    fn engine_options(&self, drafter: &Drafter) -> EngineOptions {
        EngineOptions {
            sequences: self.parallel,
            snapshot_bytes: u64::from(self.snapshots) << 20,
            speculate: drafter.drafts(),
            ..self.writing.engine.options()
        }
    }

    /// Facts that clients learn of the model of a file.
    fn card(&self, gguf: &Gguf, aliases: &[String]) -> Result<Card, CliError> {
        let writing = &self.writing;
        let mut card = Card::read(gguf)?;
        card.text.sampling = card.text.sampling.clone().overridden_by(&writing.sampling.overrides());
        // Refused now rather than with the first request.
        Sampler::new(card.text.sampling.clone())?;
        if let Some(alias) = aliases.first() {
            card.alias.clone_from(alias);
            card.aliases = aliases.to_vec();
        }
        card.tags.clone_from(&self.tags);
        if let Some(name) = &self.chat_template {
            card.set_template(template::read(name)?)?;
        }
        if self.reasoning != Reasoning::Auto {
            let thinks = self.reasoning == Reasoning::On;
            card.template_args.insert("enable_thinking".to_owned(), thinks.into());
        }
        card.template_args.extend(self.chat_template_kwargs.clone().unwrap_or_default());
        Ok(card)
    }

    /// The models of a folder.
    fn models(self, folder: &Path) -> Result<Models<CliError>, CliError> {
        if self.writing.model.is_given()
            || self.writing.spec.drafter.model_draft.is_some()
            || self.writing.encoder.is_given()
            || !self.alias.is_empty()
        {
            return Err(CliError::ModelsAndModel);
        }
        let listed = models_dir::list(folder)?;
        let most = if self.models_max == 0 { listed.len() } else { self.models_max };
        let autoload = !self.no_models_autoload;
        let args = Arc::new(self);
        let check = {
            let args = Arc::clone(&args);
            move |one: &Listed| args.could_load(one)
        };
        let load = move |one: &Listed, cancel: &Cancel| {
            let gguf = Gguf::open(&one.path)?;
            model::read(&gguf)?;
            args.load_file(&gguf, std::slice::from_ref(&one.name), cancel)
        };
        Ok(Models { listed, most, autoload, check: Box::new(check), load: Box::new(load) })
    }

    /// Whether a model of a folder could be loaded, as far as its file's head and the settings tell.
    fn could_load(&self, one: &Listed) -> Result<(), CliError> {
        let gguf = Gguf::open(&one.path)?;
        model::read(&gguf)?;
        let options = if self.embeddings {
            Embedder::engine_options(&gguf, &self.writing.engine.options())?
        } else if self.reranking {
            Reranker::engine_options(&gguf, &self.writing.engine.options())?
        } else {
            writes_text(&gguf)?;
            self.engine_options(&self.writing.drafter(&gguf)?)
        };
        models_dir::has_room(&gguf, &options, &self.writing.device.device)?;
        self.card(&gguf, &[]).map(drop)
    }
}

/// That the model of a file writes text.
///
/// # Errors
/// It makes vectors alone.
fn writes_text(gguf: &Gguf) -> Result<(), EngineError> {
    let model = model::read(gguf)?;
    if model.is_causal() { Ok(()) } else { Err(EngineError::WritesNoText { arch: model.arch }) }
}

/// Models of a server.
enum Stock {
    One(Box<Args>),
    Several(Models<CliError>),
}

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let options = args.options()?;
    let stock = match args.models_dir.clone() {
        None => Stock::One(Box::new(args)),
        Some(folder) => Stock::Several(args.models(&folder)?),
    };
    let (host, port, grace) = (options.host.clone(), options.port, options.grace);
    let server = Server::bind(options).map_err(|source| CliError::Bind { host, port, source })?;
    let cancel = cancel_on_signals();
    // Requests under way come first.
    interrupt::allow(grace.saturating_add(interrupt::PATIENCE));
    say(format_args!("[listening on http://{}]", server.address()));
    let server = server.on_ready(|card, engine| {
        let (n, n_ctx) = (engine.sequences().len(), engine.n_ctx());
        let alias = Clean(&card.alias);
        say(format_args!("[{alias} is ready: {n} requests at once, {n_ctx} tokens each]"));
    });
    let ended = match stock {
        Stock::One(args) => server.run(&cancel, move |cancel| args.load(cancel)),
        Stock::Several(models) => {
            let names: Vec<_> = models.listed.iter().map(|one| Clean(&one.name).to_string()).collect();
            say(format_args!("[models: {}; {} loaded at once]", names.join(", "), models.most));
            server.run_several(&cancel, models)
        }
    };
    match ended {
        Ok(()) => {
            // Being asked to end is how a server ends: all requests had their answers.
            say("[ended]");
            Ok(ExitCode::SUCCESS)
        }
        Err(RunError::Load(error)) => Err(error),
        Err(error @ (RunError::Io(_) | RunError::Engine)) => Err(CliError::Serve(error.to_string())),
    }
}
