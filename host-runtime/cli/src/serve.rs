//! `hexflash serve`: a model over HTTP.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hexflash_abi::program::MAX_SLOTS;
use serde_json::{Map, Value};

use super::interrupt::cancel_on_signals;
use super::options::{DeviceArgs, EngineArgs, ModelArgs, SpecArgs};
use super::sampling::SamplingArgs;
use super::{CliError, input, say, template};
use hexflash::cancel::Cancel;
use hexflash::engine::EngineOptions;
use hexflash::model;
use hexflash::sampler::Sampler;
use hexflash_server::{Card, CorsOrigins, Options, RunError, Served, Server};

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
    /// File with such keys, one on each line
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
    /// Serve figures for Prometheus at /metrics
    #[arg(long)]
    metrics: bool,
    /// Do not tell at /slots what is being done
    #[arg(long)]
    no_slots: bool,
    /// Serve no page for browsers at /
    #[arg(long, alias = "no-ui")]
    no_webui: bool,
    /// The model's name in answers [default: that of its file]
    #[arg(short, long, value_name = "NAME")]
    alias: Option<String>,
    /// Chat template to use instead of the model's: a file, or chatml
    #[arg(long, alias = "chat-template-file", value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Arguments of the chat template, as JSON: {"enable_thinking": false}
    #[arg(long, value_name = "JSON", value_parser = arguments)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// MiB for snapshots of recurrent states, from which conversations go on after they were edited
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    snapshots: u32,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    device: DeviceArgs,
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
        [!self.model.is_given(), self.spec.drafter.lacks_model()]
    }

    fn options(&self) -> Result<Options, CliError> {
        Ok(Options {
            host: self.host.clone(),
            port: self.port,
            api_keys: self.keys()?,
            cors: self.cors_origins.clone(),
            queue: self.queue,
            timeout: Duration::from_secs(self.timeout),
            grace: Duration::from_secs(self.grace),
            metrics: self.metrics,
            slots: !self.no_slots,
            page: !self.no_webui,
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
            keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            if keys.len() == before {
                return Err(failed(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "there is no key in it",
                )));
            }
        }
        Ok(keys)
    }

    /// Loads the model.
    fn load(&self, cancel: &Cancel) -> Result<Served, CliError> {
        let gguf = self.model.open(cancel)?;
        // Before the tokenizer, which differs where the architecture does.
        model::read(&gguf)?;
        let mut card = Card::read(&gguf)?;
        card.text.sampling = card.text.sampling.clone().overridden_by(&self.sampling.overrides());
        // Refused now rather than with the first request.
        Sampler::new(card.text.sampling.clone())?;
        if let Some(alias) = &self.alias {
            card.alias.clone_from(alias);
        }
        if let Some(name) = &self.chat_template {
            card.set_template(template::read(name)?)?;
        }
        card.template_args = self.chat_template_kwargs.clone().unwrap_or_default();
        let drafter = self.spec.find(&gguf)?;
        let draft = &drafter.draft;
        let options = EngineOptions {
            sequences: self.parallel,
            snapshot_bytes: u64::from(self.snapshots) << 20,
            speculate: drafter.drafts(),
            ..self.engine.options()
        };
        let device = self.device.open_for(&gguf, draft.as_ref(), &options)?;
        let engine = self.engine.load(&gguf, draft.as_ref(), &options, device, cancel)?;
        if let Some(note) = self.spec.note(&engine) {
            tracing::warn!("{note}");
        }
        Ok(Served { card, engine, drafts: Box::new(self.spec.speculations(&drafter)) })
    }
}

pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let options = args.options()?;
    let (host, port) = (options.host.clone(), options.port);
    let server = Server::bind(options).map_err(|source| CliError::Bind { host, port, source })?;
    let cancel = cancel_on_signals();
    say(format_args!("[listening on http://{}]", server.address()));
    let server = server.on_ready(|card, engine| {
        let (n, n_ctx) = (engine.sequences().len(), engine.n_ctx());
        say(format_args!("[{} is ready: {n} requests at once, {n_ctx} tokens each]", card.alias));
    });
    match server.run(&cancel, move |cancel| args.load(cancel)) {
        Ok(()) => {
            // Being asked to end is how a server ends: all requests had their answers.
            say("[ended]");
            Ok(ExitCode::SUCCESS)
        }
        Err(RunError::Load(error)) => Err(error),
        Err(error @ (RunError::Io(_) | RunError::Engine)) => Err(CliError::Serve(error.to_string())),
    }
}
