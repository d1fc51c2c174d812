//! What can go wrong between a name on the Hub and a file.

use std::path::PathBuf;

use hexflash::Blame;

use super::choice::NoChoice;

/// Names that a message lists at most.
const LISTED: usize = 12;

/// A model of the Hugging Face Hub cannot be had. Every message is one line with a cause and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Nothing says where the cache is.
    #[error("there is no home folder to keep models in; set HF_HOME to a folder for them")]
    NoHome,
    /// `HF_ENDPOINT` is no address.
    #[error("HF_ENDPOINT is \"{found}\"; give an address that begins with https:// or http://")]
    Endpoint {
        /// Its value.
        found: String,
    },
    /// The token cannot be sent.
    #[error(
        "the token from {source_name} has characters that no token has; give it as hf.co shows it: hf_..."
    )]
    Token {
        /// Where it is from.
        source_name: &'static str,
    },
    /// Not in the cache, and nothing may be asked.
    #[error("{wanted} is not in the cache {}{}; drop --offline to download it", cache.display(), has(known))]
    Offline {
        /// What was asked for.
        wanted: String,
        /// The cache.
        cache: PathBuf,
        /// What is there of this repository.
        known: Vec<String>,
    },
    /// Not in the cache, and this program was built without downloads.
    #[error(
        "{wanted} is not in the cache {}, and this program was built without downloads; build it without \
         --no-default-features, or give a file with -m",
        cache.display()
    )]
    NotBuilt {
        /// Model that was asked for.
        wanted: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The repository is not there.
    #[error(
        "there is no repository {repo} at {endpoint}, or it is private; check the name, or give a token with \
         --hf-token or HF_TOKEN"
    )]
    NoRepo {
        /// Its name.
        repo: String,
        /// Where.
        endpoint: String,
    },
    /// The repository wants its conditions accepted, or another token.
    #[error(
        "{repo} gives its files only to who has accepted its conditions; accept them at {endpoint}/{repo} and \
         give your token with --hf-token or HF_TOKEN"
    )]
    Gated {
        /// Its name.
        repo: String,
        /// Where.
        endpoint: String,
    },
    /// The token is not known there.
    #[error(
        "{endpoint} does not accept the token from {source_name}; make a new one at {endpoint}/settings/tokens"
    )]
    BadToken {
        /// Where.
        endpoint: String,
        /// Where the token is from.
        source_name: &'static str,
    },
    /// No file of the repository is a model.
    #[error("{repo} has no GGUF file; look for a repository with GGUF in its name, or convert the model")]
    NoGguf {
        /// Its name.
        repo: String,
    },
    /// No file has what was asked for.
    #[error("{repo} has no {wanted}; choose one of: {}", list(known))]
    NoFile {
        /// The repository.
        repo: String,
        /// The quantization or the file.
        wanted: String,
        /// The models that it has.
        known: Vec<String>,
    },
    /// A split model lacks parts.
    #[error("{repo} lacks parts of this model: {}; choose another file with -hff", list(missing))]
    MissingParts {
        /// The repository.
        repo: String,
        /// The parts.
        missing: Vec<String>,
    },
    /// The server cannot be reached, or the connection was lost for good.
    #[error("cannot download from {endpoint}: {reason}; check the network, then repeat the command{}", keeps(*kept))]
    Network {
        /// Where.
        endpoint: String,
        /// Why, on one line.
        reason: String,
        /// Bytes that are kept.
        kept: u64,
    },
    /// The server refuses for a reason of its own.
    #[error("{endpoint} answers {status} to {what}; try again later{}", keeps(*kept))]
    Status {
        /// Where.
        endpoint: String,
        /// HTTP's status.
        status: u16,
        /// What was asked for.
        what: String,
        /// Bytes that are kept.
        kept: u64,
    },
    /// The server's answer makes no sense.
    #[error("{endpoint} does not answer like the Hugging Face Hub: {reason}; check HF_ENDPOINT")]
    Malformed {
        /// Where.
        endpoint: String,
        /// What is wrong.
        reason: String,
    },
    /// The bytes are not those of the file.
    #[error(
        "what came of {file} is not what {endpoint} describes ({reason}), and was removed; repeat the command"
    )]
    Mismatch {
        /// The file.
        file: String,
        /// Where.
        endpoint: String,
        /// What differs.
        reason: String,
    },
    /// The cache cannot be read.
    #[error("cannot read the cache {}: {source}; get the rights there, or set HF_HOME to another folder", path.display())]
    Read {
        /// Its folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The cache cannot be written.
    #[error(
        "cannot write {}: {source}; make room or get the rights there, or set HF_HOME to another folder",
        path.display()
    )]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A signal ended the download.
    #[error("[interrupted; {kept} bytes are kept, and the same command goes on from there]")]
    Interrupted {
        /// Bytes that are kept.
        kept: u64,
    },
    /// TLS does not work here.
    #[error(
        "{endpoint} needs TLS, which this processor has no instructions for; put the model into the cache with \
         another program (hf download), or give a file with -m"
    )]
    NoTls {
        /// Where.
        endpoint: String,
    },
}

/// Names in a row, not too many.
fn list(names: &[String]) -> String {
    let shown = names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// ` (it has NAMES)`, or nothing.
fn has(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(" (it has {})", list(known)) }
}

/// That a repeated command goes on.
fn keeps(kept: u64) -> &'static str {
    if kept > 0 { ", which goes on where it was" } else { "" }
}

impl HubError {
    /// Why nothing of a repository was chosen.
    pub(super) fn no_choice(repo: String, wanted: String, why: NoChoice) -> Self {
        match why {
            NoChoice::NoGguf => Self::NoGguf { repo },
            NoChoice::NotThere { known } => Self::NoFile { repo, wanted, known },
            NoChoice::MissingParts { missing } => Self::MissingParts { repo, missing },
        }
    }

    /// What the error is charged to.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::NoHome
            | Self::Endpoint { .. }
            | Self::Token { .. }
            | Self::Offline { .. }
            | Self::NotBuilt { .. }
            | Self::NoRepo { .. }
            | Self::Gated { .. }
            | Self::BadToken { .. }
            | Self::NoGguf { .. }
            | Self::NoFile { .. }
            | Self::MissingParts { .. } => Blame::Input,
            Self::Network { .. }
            | Self::Status { .. }
            | Self::Malformed { .. }
            | Self::Mismatch { .. }
            | Self::NoTls { .. } => Blame::System,
            Self::Read { source, .. } | Self::Write { source, .. } => Blame::of_io(source),
            Self::Interrupted { .. } => Blame::Cancelled,
        }
    }
}
