//! Models of the Hugging Face Hub: out of the cache that programs for the Hub share, or downloaded into it.
//!
//! What is in the cache is used as it is, without a request. A download goes into `blobs/ETAG.incomplete`, is
//! continued where it was when it is repeated, and gets its place only when its size and hash are right.

mod cache;
mod choice;
#[cfg_attr(not(feature = "hub"), path = "download_elsewhere.rs")]
mod download;
mod error;
#[cfg(feature = "hub")]
mod http;
mod repo;
#[cfg(feature = "hub")]
mod tls;

use std::path::{Path, PathBuf};

use clap::Args;

use hexflash::cancel::Cancel;
use hexflash::gguf::Gguf;
use hexflash::model::Encoder;

use crate::plain::read_text;
pub(super) use cache::{Cache, files};
use cache::{hf_home, variable};
pub(super) use choice::first_part;
#[cfg(feature = "server")]
pub(super) use choice::is_model;
use choice::{Choice, NoChoice, Wanted, choose, encoder};
pub use error::HubError;
use repo::HubModel;
pub(super) use repo::RepoId;

/// Which model of the Hub, and how it may be had.
#[derive(Debug, Clone, Args)]
pub(super) struct HubArgs {
    /// Model of the Hugging Face Hub, downloaded unless it is in the cache; -hf for short [QUANT: Q4_K_M, or
    /// else the first file]
    #[arg(
        long = "hf-repo",
        aliases = ["hf", "hfr"],
        value_name = "OWNER/NAME[:QUANT]",
        conflicts_with = "model",
        value_parser = repo::model
    )]
    hf_repo: Option<HubModel>,
    /// File of that repository, by its name; -hff for short
    #[arg(long, alias = "hff", value_name = "FILE", requires = "hf_repo")]
    hf_file: Option<String>,
    /// Token for the Hub [default: HF_TOKEN, or that of `hf auth login`]
    #[arg(long, alias = "hft", value_name = "TOKEN")]
    hf_token: Option<String>,
    /// Use what is in the cache, and ask nobody
    #[arg(long)]
    offline: bool,
}

impl HubArgs {
    /// Whether a model is named.
    pub(super) fn is_given(&self) -> bool {
        self.hf_repo.is_some()
    }

    /// The file of the model; of a split one, the first. `None` if none is named. The encoder of pictures
    /// that its repository has is brought along if it is wanted.
    ///
    /// # Errors
    /// The model or its encoder cannot be had, or `cancel` ended the download.
    pub(super) fn path(&self, wish: EncoderWish, cancel: &Cancel) -> Result<Option<PathBuf>, HubError> {
        let Some(request) = self.request() else { return Ok(None) };
        let cache = Cache::from_environment().ok_or(HubError::NoHome)?;
        let (path, is_coming) = match request.cached(&cache) {
            // A download that was cut off may have been the encoder's.
            Ok(path) => (path, cache.has_partial(&request.model.repo)),
            Err(known) if request.offline => {
                return Err(HubError::Offline {
                    wanted: request.wanted(),
                    cache: cache.root().to_owned(),
                    known,
                });
            }
            Err(_) => (download::fetch(&cache, &request, self.token()?, cancel)?, true),
        };
        let brings = wish.brings(&path, is_coming) && !request.offline;
        if brings && request.cached_encoder(&cache).is_none() {
            download::fetch_encoder(&cache, &request, self.token()?, cancel)?;
        }
        Ok(Some(path))
    }

    /// The encoder of pictures that the cache has of the repository, if a model of it is named.
    pub(super) fn encoder(&self) -> Option<PathBuf> {
        self.request()?.cached_encoder(&Cache::from_environment()?)
    }

    fn request(&self) -> Option<Request<'_>> {
        let model = self.hf_repo.as_ref()?;
        Some(Request { model, file: self.hf_file.as_deref(), offline: self.is_offline() })
    }

    fn is_offline(&self) -> bool {
        let asked = variable("HF_HUB_OFFLINE").and_then(|value| value.into_string().ok());
        let is_yes =
            |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "on" | "yes" | "true");
        self.offline || asked.is_some_and(is_yes)
    }

    fn token(&self) -> Result<Option<Token>, HubError> {
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        let path = || variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(hf_home()?.join("token")));
        // Whoever never logged in has no such file.
        let file = || path().and_then(|path| read_text(&path).ok());
        let found = (self.hf_token.clone().map(|token| (token, "--hf-token")))
            .or_else(|| text("HF_TOKEN").map(|token| (token, "HF_TOKEN")))
            .or_else(|| file().map(|token| (token, "the file of hf auth login")));
        let Some((token, source_name)) = found else { return Ok(None) };
        let text = token.trim().to_owned();
        match text.chars().all(|c| c.is_ascii_graphic()) {
            true => Ok(Some(Token { text, source_name }).filter(|token| !token.text.is_empty())),
            false => Err(HubError::Token { source_name }),
        }
    }
}

/// The occasion on which an encoder of pictures is brought along with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderWish {
    Never,
    /// With a model that is downloaded, if encoders are for its architecture. So a model that is there is
    /// used without a request.
    WithDownload,
    /// For a picture that is shown.
    Needed,
}

impl EncoderWish {
    fn brings(self, model: &Path, is_coming: bool) -> bool {
        match self {
            Self::Never => false,
            Self::WithDownload => is_coming && may_have_encoder(model),
            Self::Needed => true,
        }
    }
}

/// Whether the model of a file is of an architecture that encoders are for.
fn may_have_encoder(model: &Path) -> bool {
    let gguf = Gguf::open(model).ok();
    let arch = gguf.as_ref().and_then(|gguf| gguf.meta().str_opt("general.architecture").ok().flatten());
    arch.is_some_and(Encoder::may_be_for)
}

/// What shows the Hub who asks.
struct Token {
    text: String,
    source_name: &'static str,
}

/// What is asked for.
struct Request<'a> {
    model: &'a HubModel,
    /// A file, whatever its quantization.
    file: Option<&'a str>,
    offline: bool,
}

impl Request<'_> {
    /// What is wanted; nothing special is the default alone, if `default_only`.
    fn kind(&self, default_only: bool) -> Wanted<'_> {
        match (self.file, &self.model.quant) {
            (Some(file), _) => Wanted::File(file),
            (None, Some(quant)) => Wanted::Quant(quant),
            (None, None) if default_only => Wanted::Default,
            (None, None) => Wanted::Any,
        }
    }

    /// The request in words.
    fn wanted(&self) -> String {
        let repo = &self.model.repo;
        match (self.file, &self.model.quant) {
            (Some(file), _) => format!("{file} of {repo}"),
            (None, Some(quant)) => format!("a file with {quant} of {repo}"),
            (None, None) => repo.to_string(),
        }
    }

    /// Chooses among the names of a repository's files.
    fn choose<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<Choice, HubError> {
        let file = || match (self.file, &self.model.quant) {
            (Some(file), _) => format!("file {file}"),
            (None, Some(quant)) => format!("file with {quant}"),
            (None, None) => "model".to_owned(),
        };
        choose(names, self.kind(false))
            .map_err(|why| HubError::no_choice(self.model.repo.to_string(), file(), why))
    }

    /// The model's first file in the cache; or the models that are there of its repository. Who may ask the
    /// Hub learns from it what stands in for a default that is not there.
    fn cached(&self, cache: &Cache) -> Result<PathBuf, Vec<String>> {
        let mut there = Vec::new();
        for (revision, names) in self.revisions(cache) {
            match choose(names.iter().map(String::as_str), self.kind(!self.offline)) {
                Ok(Choice { parts }) => return Ok(revision.join(&parts[0])),
                Err(NoChoice::NotThere { known }) => there.extend(known),
                Err(NoChoice::NoGguf | NoChoice::MissingParts { .. }) => {}
            }
        }
        there.sort();
        there.dedup();
        Err(there)
    }

    /// The encoder of pictures in the cache.
    fn cached_encoder(&self, cache: &Cache) -> Option<PathBuf> {
        self.revisions(cache)
            .find_map(|(revision, names)| Some(revision.join(encoder(names.iter().map(String::as_str))?)))
    }

    /// The revisions in the cache, with the names of the files that are there.
    fn revisions(&self, cache: &Cache) -> impl Iterator<Item = (PathBuf, Vec<String>)> {
        cache.revisions(&self.model.repo).into_iter().map(|revision| {
            let mut names = files(&revision);
            // Links whose file is gone.
            names.retain(|name| revision.join(name).is_file());
            (revision, names)
        })
    }
}
