//! Options that several commands share: the model, the device, the engine.

use std::path::{Path, PathBuf};

use clap::Args;

use super::CliError;
use super::progress::Progress;
use crate::device::{self, Device, DeviceOptions};
use crate::engine::{Engine, EngineOptions};
use crate::gguf::Gguf;
use crate::weights::{CachePolicy, ImageOptions};

/// Name of the model that ships in the repository.
const SHIPPED: &str = "tiny-hybrid-q8_0.gguf";

#[derive(Debug, Clone, Args)]
pub(super) struct ModelArgs {
    /// Model file (GGUF; the first one of a sharded model); without it the small model that ships with hexflash
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
}

impl ModelArgs {
    /// The model's path: as given, or the shipped model beside the executable or in the source tree.
    pub(super) fn path(&self) -> Result<PathBuf, CliError> {
        if let Some(path) = &self.model {
            return Ok(path.clone());
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(SHIPPED);
        let beside =
            std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("models").join(SHIPPED)));
        let found = beside.into_iter().chain([source.clone()]).find(|path| path.exists());
        found.map(|path| path.canonicalize().unwrap_or(path)).ok_or(CliError::NoModel { path: source })
    }

    pub(super) fn open(&self) -> Result<Gguf, CliError> {
        Ok(Gguf::open(&self.path()?)?)
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct DeviceArgs {
    /// Where to run: see `hexflash devices`
    #[arg(long, value_name = "NAME", default_value = "inproc")]
    pub(super) device: String,
    /// Threads that run kernels [default: the machine's cores, at most 8]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// Bytes of VTCM [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    vtcm: Option<usize>,
}

impl DeviceArgs {
    pub(super) fn open(&self) -> Result<Box<dyn Device>, CliError> {
        let options = DeviceOptions { threads: self.threads, vtcm_bytes: self.vtcm };
        Ok(device::open(&self.device, &options)?)
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct EngineArgs {
    /// Context length in tokens [default: the model's, at most 4096]
    #[arg(short = 'c', long = "ctx-size", value_name = "N")]
    n_ctx: Option<u32>,
    /// Tokens of a prefill step
    #[arg(short, long, value_name = "N", default_value_t = EngineOptions::default().batch)]
    batch_size: u32,
    /// Keep repacked weights in DIR instead of beside the model
    #[arg(long, value_name = "DIR", conflicts_with = "no_repack_cache")]
    cache_dir: Option<PathBuf>,
    /// Do not keep repacked weights on disk
    #[arg(long)]
    no_repack_cache: bool,
}

impl EngineArgs {
    pub(super) fn options(&self) -> EngineOptions {
        EngineOptions { n_ctx: self.n_ctx, batch: self.batch_size, ..EngineOptions::default() }
    }

    pub(super) fn load(&self, gguf: &Gguf, device: Box<dyn Device>) -> Result<Engine, CliError> {
        let progress = Progress::bytes("repacking weights");
        let report = |done, total| progress.set(done, total);
        let cache = match (&self.cache_dir, self.no_repack_cache) {
            (Some(dir), _) => CachePolicy::Dir(dir.clone()),
            (None, true) => CachePolicy::Off,
            (None, false) => CachePolicy::Beside,
        };
        let image = ImageOptions { cache, progress: &report };
        let engine = Engine::load(gguf, device, &self.options(), &image);
        progress.finish();
        let engine = engine?;
        for note in engine.notes() {
            tracing::warn!("{note}");
        }
        Ok(engine)
    }
}
