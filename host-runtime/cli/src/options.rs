//! Options that several commands share: the model, the device, the engine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::cores::Cores;
use super::hub::{EncoderWish, HubArgs};
use super::interrupt::{self, OWN_PATIENCE, Work};
use super::output::say;
use super::progress::Progress;
use super::{CliError, library_path};
use hexflash::cancel::Cancel;
use hexflash::device::{self, Arch, Device, DeviceOptions, Float};
use hexflash::embed::Embedder;
use hexflash::engine::{Engine, EngineError, EngineOptions, ModelFiles, Numerics, open_device};
use hexflash::gguf::Gguf;
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY, has_mtp_head};
#[cfg(feature = "server")]
use hexflash::rerank::Reranker;
use hexflash::speculation::{self, DraftLength, DraftSource, NGram, NGramPool, Speculation};
use hexflash::weights::{CachePolicy, ImageOptions};

/// Name of the model that ships in the repository.
const SHIPPED: &str = "tiny-hybrid-q8_0.gguf";

#[derive(Debug, Clone, Args)]
pub(super) struct ModelArgs {
    /// Model file (GGUF; the first one of a sharded model); without it the small model that ships with
    /// hexflash
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    #[command(flatten)]
    hub: HubArgs,
}

impl ModelArgs {
    /// Whether a model is named.
    pub(super) fn is_given(&self) -> bool {
        self.model.is_some() || self.hub.is_given()
    }

    /// Whether it may take a download to have it.
    pub(super) fn may_download(&self) -> bool {
        self.hub.is_given()
    }

    /// The model's path: as given, of the Hub's cache, or the shipped model beside the executable or in the
    /// source tree. `cancel` ends a download.
    fn path(&self, wish: EncoderWish, cancel: &Cancel) -> Result<PathBuf, CliError> {
        if let Some(path) = &self.model {
            return Ok(path.clone());
        }
        Work::Download.begins();
        let path = self.hub.path(wish, cancel);
        Work::Files.begins();
        if let Some(path) = path? {
            return Ok(path);
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(SHIPPED);
        let found = shipped_beside().or_else(|| Some(source.clone()).filter(|path| path.exists()));
        found.map(|path| path.canonicalize().unwrap_or(path)).ok_or(CliError::NoModel { path: source })
    }

    pub(super) fn open(&self, cancel: &Cancel) -> Result<Gguf, CliError> {
        self.open_with(EncoderWish::Never, cancel)
    }

    /// Opens the model, and brings the encoder of pictures along that its repository on the Hub has, if it is
    /// wanted.
    pub(super) fn open_with(&self, wish: EncoderWish, cancel: &Cancel) -> Result<Gguf, CliError> {
        Ok(Gguf::open(&self.path(wish, cancel)?)?)
    }

    /// The encoder of pictures that came with a model of the Hub.
    pub(super) fn encoder(&self) -> Option<PathBuf> {
        self.hub.encoder()
    }
}

/// The model that ships with hexflash, where it lies beside the program.
pub(super) fn shipped_beside() -> Option<PathBuf> {
    let path = library_path::own_folder()?.join("models").join(SHIPPED);
    path.exists().then_some(path)
}

/// Drafters, by llama.cpp's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SpecType {
    /// No speculation
    None,
    /// A DFlash draft model (-md)
    #[value(name = "draft-dflash", alias = "dflash")]
    DraftDflash,
    /// An EAGLE3 draft model (-md)
    #[value(name = "draft-eagle3", alias = "eagle3")]
    DraftEagle3,
    /// An MTP head: that of the model's own file, or another one (-md); a Gemma 4 assistant (-md)
    #[value(name = "draft-mtp", alias = "mtp")]
    DraftMtp,
    /// What followed earlier in the text
    #[value(name = "ngram-simple", alias = "ngram")]
    NgramSimple,
    /// What followed in this text or in earlier ones, which it learns in 4 MiB
    #[value(name = "ngram-mod")]
    NgramMod,
}

impl SpecType {
    /// What a draft model is.
    fn of(draft: &Gguf) -> Self {
        match draft.meta().require_str("general.architecture") {
            Ok("dflash") => Self::DraftDflash,
            Ok("eagle3") => Self::DraftEagle3,
            _ => Self::DraftMtp,
        }
    }

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::DraftDflash => "draft-dflash",
            Self::DraftEagle3 => "draft-eagle3",
            Self::DraftMtp => "draft-mtp",
            Self::NgramSimple => "ngram-simple",
            Self::NgramMod => "ngram-mod",
        }
    }

    /// Whether a draft model drafts.
    pub(super) const fn is_model(self) -> bool {
        match self {
            Self::DraftDflash | Self::DraftEagle3 | Self::DraftMtp => true,
            Self::None | Self::NgramSimple | Self::NgramMod => false,
        }
    }
}

/// Who drafts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SPECULATION)]
pub(super) struct DrafterArgs {
    /// Draft model (GGUF): DFlash or DSpark, EAGLE3, a Gemma 4 assistant, or an MTP head in a file of its
    /// own; -md for short
    #[arg(long, aliases = ["spec-draft-model", "md"], value_name = "FILE")]
    pub(super) model_draft: Option<PathBuf>,
    /// Who drafts; of several, for each block the one whose drafts are worth most [default: the draft model,
    /// or else the MTP head of the model's file, if it has one]
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',')]
    pub(super) spec_type: Vec<SpecType>,
}

const SPECULATION: &str = "Speculation (never changes the text)";

impl DrafterArgs {
    pub(super) fn is_given(&self) -> bool {
        self.model_draft.is_some() || self.spec_type.iter().any(|&kind| kind != SpecType::None)
    }

    /// Whether a draft model would draft, and none is named.
    pub(super) fn lacks_model(&self) -> bool {
        let by_model = self.spec_type.is_empty() || self.spec_type.iter().any(|kind| kind.is_model());
        self.model_draft.is_none() && by_model
    }

    /// Whether anybody is to draft by name, or nobody.
    pub(super) fn is_chosen(&self) -> bool {
        self.model_draft.is_some() || !self.spec_type.is_empty()
    }

    /// Who drafts for `target`.
    pub(super) fn find(&self, target: &Gguf) -> Result<Drafter, CliError> {
        let mut kinds = self.spec_type.clone();
        let is_first = |i: usize| !kinds[..i].contains(&kinds[i]);
        if let Some(twice) = (0..kinds.len()).find(|&i| !is_first(i)) {
            return Err(CliError::DrafterTwice { name: kinds[twice].name() });
        }
        if kinds.contains(&SpecType::None) && kinds.len() > 1 {
            return Err(CliError::NoneAndOthers);
        }
        let models: Vec<SpecType> = kinds.iter().copied().filter(|kind| kind.is_model()).collect();
        let wanted = match models[..] {
            [] => None,
            [kind] => Some(kind),
            _ => return Err(CliError::TwoModels),
        };
        let draft = match (&self.model_draft, wanted) {
            (Some(_), None) if kinds == [SpecType::None] => None,
            (Some(_), None) if !kinds.is_empty() => return Err(CliError::TwoDrafters),
            (Some(path), wanted) => {
                let draft = Gguf::open(path)?;
                let kind = SpecType::of(&draft);
                if let Some(wanted) = wanted.filter(|&wanted| wanted != kind) {
                    return Err(CliError::OtherDraft { path: path.clone(), wanted: wanted.name() });
                }
                if wanted.is_none() {
                    kinds.push(kind);
                }
                Some(draft)
            }
            (None, Some(SpecType::DraftMtp)) if has_mtp_head(target) => Some(Gguf::open(target.path())?),
            (None, Some(SpecType::DraftMtp)) => return Err(CliError::NoHead),
            (None, Some(_)) => return Err(CliError::NoDraft),
            (None, None) if kinds.is_empty() && has_mtp_head(target) => {
                kinds.push(SpecType::DraftMtp);
                Some(Gguf::open(target.path())?)
            }
            (None, None) => None,
        };
        kinds.retain(|&kind| kind != SpecType::None);
        Ok(Drafter { kinds, draft })
    }
}

/// Who drafts, for a certain model.
#[derive(Debug)]
pub(super) struct Drafter {
    /// All who draft: at most one draft model, and each kind once.
    pub(super) kinds: Vec<SpecType>,
    /// The draft model; the target's own file once more, where that has the head.
    pub(super) draft: Option<Gguf>,
}

impl Drafter {
    /// Nobody.
    pub(super) fn nobody() -> Self {
        Self { kinds: Vec::new(), draft: None }
    }

    /// Whether anything is drafted.
    pub(super) fn drafts(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// The names of all who draft.
    pub(super) fn name(&self) -> String {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        names.join(",")
    }

    /// One of those who draft.
    pub(super) fn alone(&self, kind: SpecType) -> Self {
        Self { kinds: vec![kind], draft: None }
    }

    /// Speculation from its beginning, with drafts of `length`.
    pub(super) fn speculation(&self, length: DraftLength) -> Speculation {
        self.speculations(length)()
    }

    /// The same for any number of texts, which share what n-grams learn.
    pub(super) fn speculations(&self, length: DraftLength) -> impl Fn() -> Speculation + Send + use<> {
        let (kinds, pool) = (self.kinds.clone(), NGramPool::new());
        move || Speculation::new(source(&kinds, &pool), length)
    }

    /// Who drafts, with n-grams that know nothing.
    pub(super) fn source(&self) -> DraftSource {
        source(&self.kinds, &NGramPool::new())
    }
}

/// Drafters of these kinds; n-grams learn in `pool`.
fn source(kinds: &[SpecType], pool: &NGramPool) -> DraftSource {
    let hosts = kinds.iter().filter_map(|kind| -> Option<Box<dyn speculation::Drafter>> {
        match kind {
            SpecType::None | SpecType::DraftDflash | SpecType::DraftEagle3 | SpecType::DraftMtp => None,
            SpecType::NgramSimple => Some(Box::new(NGram::default())),
            SpecType::NgramMod => Some(Box::new(pool.drafter())),
        }
    });
    DraftSource::Several { model: kinds.iter().any(|kind| kind.is_model()), hosts: hosts.collect() }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SPECULATION)]
pub(super) struct SpecArgs {
    #[command(flatten)]
    pub(super) drafter: DrafterArgs,
    /// Tokens to draft per round, or auto: as many as pay; with several drafters, the most that any of them
    /// drafts [default: auto]
    #[arg(
        long = "draft-max",
        aliases = ["draft", "draft-n", "spec-draft-n-max"],
        value_name = "N",
        value_parser = draft_length
    )]
    length: Option<DraftLength>,
}

/// Parses `--draft-max`.
fn draft_length(text: &str) -> Result<DraftLength, String> {
    match text.parse() {
        _ if text == "auto" => Ok(DraftLength::Auto),
        Ok(n) if (1..MAX_VERIFY).contains(&n) => Ok(DraftLength::Fixed(n)),
        _ => Err(format!("give 1 to {} tokens, or auto; --spec-type none drafts nothing", MAX_VERIFY - 1)),
    }
}

impl SpecArgs {
    /// Who drafts for `target`.
    pub(super) fn find(&self, target: &Gguf) -> Result<Drafter, CliError> {
        let drafter = self.drafter.find(target)?;
        if !drafter.drafts() && self.drafter.spec_type.is_empty() && self.length.is_some() {
            return Err(CliError::NoDrafter { what: "--draft-max" });
        }
        Ok(drafter)
    }

    /// Speculation as asked for.
    pub(super) fn speculation(&self, drafter: &Drafter) -> Speculation {
        self.speculations(drafter)()
    }

    /// The same for any number of texts.
    pub(super) fn speculations(&self, drafter: &Drafter) -> impl Fn() -> Speculation + Send + use<> {
        drafter.speculations(self.length.unwrap_or(DraftLength::Auto))
    }

    /// What users should know who asked for more drafts than a block has.
    pub(super) fn note(&self, engine: &Engine) -> Option<String> {
        let (DraftLength::Fixed(n), most) = (self.length?, engine.draft_model()?.block() - 1) else {
            return None;
        };
        (n > most).then(|| {
            let block = most + 1;
            format!(
                "--draft-max {n} counts as {most}: a block of this draft has {block} tokens, and the first \
                 one is known"
            )
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct DeviceArgs {
    /// Where to run: see `hexflash devices`
    #[arg(long, value_name = "NAME", default_value = "inproc")]
    pub(super) device: String,
    /// Threads that run kernels [default: -1, the machine's cores, at most 8]
    #[arg(short, long, value_name = "N", value_parser = threads)]
    threads: Option<Threads>,
    /// Processors for the host's threads: a mask in hexadecimal, as f0 for 4 to 7 [default: all]
    #[arg(short = 'C', long, value_name = "MASK")]
    cpu_mask: Option<Cores>,
    /// The same as the first processor and the last, as 4-7; -Cr for short
    #[arg(long, value_name = "LO-HI", value_parser = Cores::range, conflicts_with = "cpu_mask")]
    cpu_range: Option<Cores>,
    /// Bytes of VTCM [default: 8388608, or what a DSP that has less says]
    #[arg(long, value_name = "BYTES")]
    vtcm: Option<usize>,
    /// Sessions to split the model over [default: as few as it fits]
    #[arg(long, value_name = "N")]
    sessions: Option<usize>,
    /// Bytes that a session can map [default: as is known of the DSP; no limit elsewhere]
    #[arg(long, value_name = "BYTES")]
    session_memory: Option<u64>,
    /// Device qemu: the version of the Hexagon whose code runs, v67, v68, v69, v73, v75, v79 or v81
    /// [default: v67, which gives the bits of inproc]
    #[arg(long, value_name = "VERSION")]
    arch: Option<Arch>,
    /// Device inproc: float arithmetic, own, or qf32 for that of v68 to v75 in software, if the program was
    /// built with the feature qf32
    #[arg(long, value_name = "ARITHMETIC", default_value_t)]
    float: Float,
    /// Device qemu: print each op that begins, and each transfer of a DMA engine
    #[arg(long)]
    trace: bool,
    /// Device htp: the vendor's library [default: where systems have it]
    #[cfg(unix)]
    #[arg(long, value_name = "FILE")]
    htp_library: Option<PathBuf>,
    /// Device htp: clocks while there is work
    #[cfg(unix)]
    #[arg(long, value_name = "PROFILE", default_value = "burst")]
    power: Power,
    /// Device htp: who moves data between memory and VTCM
    #[cfg(unix)]
    #[arg(long, value_name = "WHO", default_value = "engine")]
    dma: Dma,
    /// Device htp: how messages reach the DSP
    #[cfg(unix)]
    #[arg(long, value_name = "WAY", default_value = "auto")]
    transport: Transport,
    /// Device htp: how long to look for an answer without sleep, from 0 to 100, which is a millisecond; that
    /// keeps the processor awake, and takes power
    #[cfg(unix)]
    #[arg(long, value_name = "LEVEL", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=100))]
    poll: u32,
    /// Device htp: seconds that a step may take before the DSP counts as hung [default: 30]
    #[cfg(unix)]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    step_timeout: Option<u32>,
}

/// Threads; `None` for the machine's cores.
type Threads = Option<usize>;

/// Parses `--threads`: -1 is llama.cpp's default.
fn threads(text: &str) -> Result<Threads, String> {
    match text.parse() {
        Err(_) if text == "-1" => Ok(None),
        Ok(n) => Ok(Some(n)),
        Err(_) => Err("give a number of threads, or -1 for the machine's cores".to_owned()),
    }
}

/// Power profiles.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Power {
    /// The highest clocks, and no sleep between messages
    Burst,
    /// High clocks that adapt
    Balanced,
    /// Low clocks that adapt
    Efficient,
}

/// How messages reach the DSP.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Transport {
    /// By a queue in shared memory; by calls where that cannot be made, or the DSP is silent on it
    Auto,
    /// By the queue
    Queue,
    /// By a call for each message, which takes longer and works where the DSP sees no packets
    Invoke,
}

/// Who does DMA.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Dma {
    /// The DSP's own engines
    Engine,
    /// The same, which also fetch weights ahead of the ops that read them; not tried on a phone
    EngineAhead,
    /// The kernel threads, should the engines make trouble
    Threads,
}

/// Tells what waits for signals that a device is opened. Of the devices only `htp` calls code that may never
/// return.
fn opens(device: &str) {
    Work::Device.begins();
    if device != "htp" {
        interrupt::allow(OWN_PATIENCE);
    }
}

impl DeviceArgs {
    /// Opens the device for a model, with as many sessions as it needs; says so where that is more than one.
    pub(super) fn open_for(
        &self,
        files: ModelFiles<'_>,
        engine: &EngineOptions,
    ) -> Result<Box<dyn Device>, CliError> {
        self.take_cores()?;
        opens(&self.device);
        let device = open_device(&self.device, &self.options(), files, engine)?;
        let sessions = device.info().sessions;
        if self.sessions.is_none() && sessions > 1 {
            say(format_args!(
                "[the model does not fit one session of the device: it is split over {sessions}]"
            ));
        }
        Ok(device)
    }

    /// Opens a device with one session, for a draft model alone.
    pub(super) fn open_one(&self, name: &str, engine: &EngineOptions) -> Result<Box<dyn Device>, CliError> {
        let matrix_unit = engine.numerics.wants_matrix_unit();
        let mut options = DeviceOptions { sessions: Some(1), matrix_unit, ..self.options() };
        // The target may have the process's own session of the DSP.
        #[cfg(unix)]
        if let Some(htp) = &mut options.htp {
            htp.reserve = true;
        }
        self.take_cores()?;
        opens(name);
        Ok(device::open(name, &options).map_err(EngineError::from)?)
    }

    /// Keeps this thread, and those that it starts, to the processors that were named.
    fn take_cores(&self) -> Result<(), CliError> {
        self.cpu_mask.or(self.cpu_range).map_or(Ok(()), Cores::take)
    }

    /// These arguments for another device.
    pub(super) fn on(&self, device: &str) -> Self {
        Self { device: device.to_owned(), ..self.clone() }
    }

    /// The vendor's library, if one is named.
    #[cfg(unix)]
    pub(super) fn htp_library(&self) -> Option<&Path> {
        self.htp_library.as_deref()
    }

    /// The settings as the library takes them.
    pub(super) fn options(&self) -> DeviceOptions {
        DeviceOptions {
            threads: self.threads.flatten(),
            vtcm_bytes: self.vtcm,
            sessions: self.sessions,
            session_bytes: self.session_memory,
            arch: self.arch,
            float: self.float,
            matrix_unit: false,
            trace: self.trace.then_some(|line: &str| say(line)),
            #[cfg(unix)]
            htp: Some(Box::new(self.htp())),
        }
    }

    #[cfg(unix)]
    fn htp(&self) -> device::htp::HtpOptions {
        use device::htp::{DmaBy, HtpOptions, PowerProfile, TransportChoice};
        let power = match self.power {
            Power::Burst => PowerProfile::Burst,
            Power::Balanced => PowerProfile::Balanced,
            Power::Efficient => PowerProfile::Efficient,
        };
        let dma = match self.dma {
            Dma::Engine => DmaBy::Engine,
            Dma::Threads => DmaBy::Threads,
            Dma::EngineAhead => DmaBy::EngineAhead,
        };
        let transport = match self.transport {
            Transport::Auto => TransportChoice::Auto,
            Transport::Queue => TransportChoice::Queue,
            Transport::Invoke => TransportChoice::Calls,
        };
        let patience = self.step_timeout.map(|seconds| Duration::from_secs(seconds.into()));
        let vendor_library = self.htp_library.clone();
        let poll = Duration::from_micros(10 * u64::from(self.poll));
        HtpOptions { vendor_library, power, dma, patience, transport, poll, reserve: false }
    }
}

/// Where the draft model runs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = SPECULATION)]
pub(super) struct PlacementArgs {
    /// Device of the draft model, if it is another than the target's: a round is then a message to each;
    /// -devd for short
    #[arg(long, aliases = ["spec-draft-device", "devd"], value_name = "NAME")]
    pub(super) device_draft: Option<String>,
}

impl PlacementArgs {
    /// Loads a model with its draft model, if there is one, each onto its device.
    pub(super) fn load(
        &self,
        (devices, engine): (&DeviceArgs, &EngineArgs),
        files: ModelFiles<'_>,
        options: &EngineOptions,
        cancel: &Cancel,
    ) -> Result<Engine, CliError> {
        let Some(name) = &self.device_draft else {
            let device = devices.open_for(files, options)?;
            return engine.load(files, options, device, cancel);
        };
        let draft = files.draft.ok_or(CliError::NoDrafter { what: "--device-draft" })?;
        let device = devices.open_for(ModelFiles::of(files.target), options)?;
        let draft_device = devices.open_one(name, options)?;
        engine.load_placed(files.target, draft, options, [device, draft_device], cancel)
    }
}

/// What the matrix unit (HMX) multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Class {
    /// Nothing, which is the default
    Exact,
    /// The matrices of prompts, as --hmx says
    Fast,
    /// The matrices of every step: drafts are verified at hardly more than the price of
    /// one, and their text is still that of plain decoding with this setting
    Hmx,
}

impl From<Class> for Numerics {
    fn from(class: Class) -> Self {
        match class {
            Class::Exact => Self::Exact,
            Class::Fast => Self::Fast,
            Class::Hmx => Self::Hmx,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct EngineArgs {
    /// Context length in tokens; 0 or -1 for the model's [default: the model's, at most 4096]
    #[arg(short = 'c', long = "ctx-size", value_name = "N", value_parser = context)]
    n_ctx: Option<u32>,
    /// Tokens of a prefill step
    #[arg(short, long, value_name = "N", default_value_t = EngineOptions::default().batch)]
    batch_size: u32,
    /// Keep the whole context also in layers that see a window of it, so that texts can be cut back far
    /// without computing them again
    #[arg(long)]
    swa_full: bool,
    /// Multiply the matrices of prompts by the matrix unit (HMX), which the device must have: htp, if the
    /// DSP lends it, and qemu with --arch v73 and later; on inproc it is simulated, slowly. Texts may differ
    /// a little
    #[arg(long, overrides_with = "no_hmx")]
    hmx: bool,
    /// Do not use the matrix unit, which is the default
    #[arg(long, overrides_with_all = ["hmx", "numerics"])]
    no_hmx: bool,
    /// What the matrix unit multiplies
    #[arg(long, value_enum, value_name = "CLASS", overrides_with = "no_hmx")]
    numerics: Option<Class>,
    /// Number format of cached keys: f16, q8_0 or q4_r (rotated, 4 bits); -ctk for short
    #[arg(long, value_name = "TYPE", default_value_t = CacheType::F16)]
    cache_type_k: CacheType,
    /// Number format of cached values: f16, q8_0 or q4_r; -ctv for short
    #[arg(long, value_name = "TYPE", default_value_t = CacheType::F16)]
    cache_type_v: CacheType,
    /// Keep repacked weights in DIR instead of beside the model
    #[arg(long, value_name = "DIR", conflicts_with = "no_repack_cache")]
    cache_dir: Option<PathBuf>,
    /// Do not keep repacked weights on disk
    #[arg(long)]
    no_repack_cache: bool,
}

/// Parses `-c`; 0 stands for the model's own.
fn context(text: &str) -> Result<u32, String> {
    match text.parse() {
        Err(_) if text == "-1" => Ok(0),
        Ok(n) => Ok(n),
        Err(_) => Err("give a number of tokens, or 0 for as many as the model was trained for".to_owned()),
    }
}

impl EngineArgs {
    pub(super) fn options(&self) -> EngineOptions {
        let caches = CacheTypes { keys: self.cache_type_k, values: self.cache_type_v };
        EngineOptions {
            n_ctx: self.n_ctx,
            batch: self.batch_size,
            whole_windows: self.swa_full,
            numerics: match (self.numerics, self.hmx) {
                (Some(class), _) => class.into(),
                (None, true) => Numerics::Fast,
                (None, false) => Numerics::Exact,
            },
            caches,
            ..EngineOptions::default()
        }
    }

    pub(super) fn load(
        &self,
        files: ModelFiles<'_>,
        options: &EngineOptions,
        device: Box<dyn Device>,
        cancel: &Cancel,
    ) -> Result<Engine, CliError> {
        self.load_image(cancel, |it| it, |image| Engine::load_files(files, device, options, image))
    }

    /// As [`load`](Self::load), for vectors of texts.
    pub(super) fn load_embedder(
        &self,
        gguf: &Gguf,
        options: &EngineOptions,
        device: Box<dyn Device>,
        cancel: &Cancel,
    ) -> Result<Embedder, CliError> {
        self.load_image(cancel, Embedder::engine, |image| Embedder::load(gguf, device, options, image))
    }

    /// Loads a reranker, as [`load`](Self::load) does other models.
    #[cfg(feature = "server")]
    pub(super) fn load_reranker(
        &self,
        gguf: &Gguf,
        options: &EngineOptions,
        device: Box<dyn Device>,
        cancel: &Cancel,
    ) -> Result<Reranker, CliError> {
        self.load_image(cancel, Reranker::engine, |image| Reranker::load(gguf, device, options, image))
    }

    /// As [`load`](Self::load), with a device for the draft model.
    fn load_placed(
        &self,
        gguf: &Gguf,
        draft: &Gguf,
        options: &EngineOptions,
        devices: [Box<dyn Device>; 2],
        cancel: &Cancel,
    ) -> Result<Engine, CliError> {
        self.load_image(cancel, |it| it, |image| Engine::load_placed(gguf, draft, devices, options, image))
    }

    /// Loads what has an engine, with a bar for its weights, and tells its warnings.
    fn load_image<T, E: Into<CliError>>(
        &self,
        cancel: &Cancel,
        engine_of: impl Fn(&T) -> &Engine,
        load: impl FnOnce(&ImageOptions<'_>) -> Result<T, E>,
    ) -> Result<T, CliError> {
        let progress = Progress::bytes("repacking weights");
        let report = |done, total| progress.set(done, total);
        let cache = match (&self.cache_dir, self.no_repack_cache) {
            (Some(dir), _) => CachePolicy::Dir(dir.clone()),
            (None, true) => CachePolicy::Off,
            (None, false) => CachePolicy::Beside,
        };
        let image = ImageOptions { cache, progress: &report, part: None, cancel: cancel.clone() };
        Work::Model.begins();
        let loaded = load(&image);
        Work::Steps.begins();
        progress.finish();
        let loaded = loaded.map_err(Into::into)?;
        for warning in engine_of(&loaded).warnings() {
            tracing::warn!("{warning}");
        }
        Ok(loaded)
    }
}
