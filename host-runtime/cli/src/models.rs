//! `hexflash models`: the GGUF files in the cache that programs for the Hugging Face Hub share.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::CliError;
use super::hub::{Cache, HubError, RepoId, files, first_part};
use super::output::print_json;
use super::plain::plain;
use hexflash::Error;
use hexflash::engine::EngineError;
use hexflash::gguf::{Clean, Gguf};
use hexflash::model::{self, ModelError};
use hexflash::text::TextModel;
use hexflash::weights;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON array instead
    #[arg(long)]
    json: bool,
}

/// A model in the cache.
#[derive(Serialize)]
struct Entry {
    repo: String,
    /// Its name in the repository; of a split model, that of the first part.
    file: String,
    /// Bytes of all its parts.
    bytes: u64,
    /// `general.architecture`, where it can be read.
    architecture: Option<String>,
    /// What this version can do with it.
    runs: Use,
    /// Why it cannot be run.
    reason: Option<String>,
    path: PathBuf,
}

/// What a file is good for.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Use {
    Yes,
    /// Beside another model only.
    AsDraft,
    No,
}

impl Use {
    const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::AsDraft => "as -md",
            Self::No => "no",
        }
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let cache = Cache::from_environment().ok_or(HubError::NoHome)?;
    let repos = cache.repos().map_err(|source| HubError::Read { path: cache.root().to_owned(), source })?;
    let entries: Vec<Entry> = repos.iter().flat_map(|repo| entries(&cache, repo)).collect();
    if args.json {
        print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    if entries.is_empty() {
        let root = plain(&cache.root().to_string_lossy());
        writeln!(
            out,
            "there is no GGUF file in the cache {root}; hexflash run -hf OWNER/NAME downloads one"
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&mut out, &entries)?;
    Ok(ExitCode::SUCCESS)
}

/// The models of a repository, by name. A file that several revisions have under one name counts once.
fn entries(cache: &Cache, repo: &RepoId) -> Vec<Entry> {
    let mut found: Vec<(String, PathBuf, Vec<String>)> = Vec::new();
    for revision in cache.revisions(repo) {
        let names = files(&revision);
        for name in &names {
            let first = first_part(name);
            // A later part that has lost its first one is shown for itself.
            let is_later = first != *name && names.contains(&first);
            if !is_later && !found.iter().any(|(known, ..)| known == name) {
                let parts = names.iter().filter(|part| first_part(part) == first).cloned().collect();
                found.push((name.clone(), revision.clone(), parts));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(name, revision, parts)| entry(repo, &name, &revision, &parts)).collect()
}

fn entry(repo: &RepoId, name: &str, revision: &Path, parts: &[String]) -> Entry {
    let path = revision.join(name);
    let bytes = parts.iter().filter_map(|part| Some(revision.join(part).metadata().ok()?.len())).sum();
    let (mut architecture, mut runs, mut reason) = (None, Use::No, None);
    let looked = Gguf::open(&path).map_err(Error::from).and_then(|gguf| {
        architecture = gguf.meta().str_opt("general.architecture").ok().flatten().map(str::to_owned);
        check(&gguf)
    });
    match looked {
        Ok(found) => runs = found,
        Err(error) => {
            let text = error.to_string();
            // The path is in a column of its own.
            let shown = Clean(&path.to_string_lossy()).to_string();
            let short = text.strip_prefix(&shown).and_then(|rest| rest.strip_prefix(": "));
            reason = Some(short.map_or(text.clone(), str::to_owned));
        }
    }
    Entry { repo: repo.to_string(), file: name.to_owned(), bytes, architecture, runs, reason, path }
}

/// Whether this version can run a model, as far as that shows without reading its weights.
fn check(gguf: &Gguf) -> Result<Use, Error> {
    let model = match model::read(gguf) {
        Err(ModelError::DraftAsTarget { .. }) => return Ok(Use::AsDraft),
        model => model?,
    };
    weights::layout(gguf, &model.weights(gguf)?.specs).map_err(EngineError::from)?;
    TextModel::read(gguf)?;
    Ok(Use::Yes)
}

fn print(out: &mut impl Write, entries: &[Entry]) -> std::io::Result<()> {
    let width = |title: &str, of: &dyn Fn(&Entry) -> usize| {
        entries.iter().map(of).max().unwrap_or(0).max(title.len())
    };
    let file = |entry: &Entry| plain(&entry.file);
    let arch = |entry: &Entry| Clean(entry.architecture.as_deref().unwrap_or("-")).to_string();
    let repos = width("repository", &|entry| entry.repo.len());
    let files = width("file", &|entry| file(entry).chars().count());
    let archs = width("architecture", &|entry| arch(entry).chars().count());
    let title = ("repository", "file", "size", "architecture", "runs", "path");
    let (a, b, c, d, e, f) = title;
    writeln!(out, "{a:<repos$}  {b:<files$}  {c:>12}  {d:<archs$}  {e:<6}  {f}")?;
    for entry in entries {
        let (file, arch, word) = (file(entry), arch(entry), entry.runs.word());
        let size = format!("{:.1} MiB", entry.bytes as f64 / 1048576.0);
        let path = plain(&entry.path.to_string_lossy());
        writeln!(
            out,
            "{:<repos$}  {file:<files$}  {size:>12}  {arch:<archs$}  {word:<6}  {path}",
            entry.repo
        )?;
        if let Some(reason) = &entry.reason {
            writeln!(out, "  {}", plain(reason))?;
        }
    }
    Ok(())
}
