//! Options that users bring from llama.cpp: short ones that clap would misread, and those that hexflash has
//! no use for.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::CliError;

/// llama.cpp's short options of several letters, which clap would take for a short option and its value.
const SHORT: [(&str, &str); 17] = [
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-hft", "--hf-token"),
    ("-hfd", "--hf-repo-draft"),
    ("-hfrd", "--hf-repo-draft"),
    ("-mu", "--model-url"),
    ("-md", "--model-draft"),
    ("-cd", "--ctx-size-draft"),
    ("-td", "--threads-draft"),
    ("-devd", "--device-draft"),
    ("-ngl", "--gpu-layers"),
    ("-ngld", "--gpu-layers-draft"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-ctkd", "--cache-type-k-draft"),
    ("-ctvd", "--cache-type-v-draft"),
];

const SHORTEST: &str =
    "every draft is verified, so there is no shortest one; drop it, or bound drafts with --draft-max";
const LIKELY: &str =
    "drafts are not cut by their probability; drop it: --draft-max auto adapts to what is accepted";
const SAMPLING: &str = "the draft takes its best tokens, and the target's sampler decides; drop it";
const LAYERS: &str = "all layers of target and draft run on the device; drop it";
const FOLLOWS: &str = "the draft shares the target's context, cache type, device and threads; drop it";

/// llama.cpp's options for what hexflash does otherwise, without dashes.
const FOREIGN: [(&str, &str); 27] = [
    ("draft-min", SHORTEST),
    ("draft-n-min", SHORTEST),
    ("spec-draft-n-min", SHORTEST),
    ("draft-p-min", LIKELY),
    ("spec-draft-p-min", LIKELY),
    ("draft-p-split", LIKELY),
    ("spec-draft-p-split", LIKELY),
    ("spec-draft-sampling", SAMPLING),
    ("spec-draft-backend-sampling", SAMPLING),
    ("gpu-layers", LAYERS),
    ("n-gpu-layers", LAYERS),
    ("gpu-layers-draft", LAYERS),
    ("n-gpu-layers-draft", LAYERS),
    ("spec-draft-ngl", LAYERS),
    ("ctx-size-draft", FOLLOWS),
    ("threads-draft", FOLLOWS),
    ("device-draft", FOLLOWS),
    ("cache-type-k-draft", FOLLOWS),
    ("cache-type-v-draft", FOLLOWS),
    ("spec-ngram-simple-size-n", "n-grams of 2 to 8 tokens are looked up, the longest first; drop it"),
    ("spec-ngram-simple-size-m", "bound the drafts of n-grams with --draft-max"),
    ("spec-ngram-simple-min-hits", "one earlier occurrence is enough; drop it"),
    ("spec-default", "choose a drafter with -md FILE or --spec-type ngram-simple"),
    ("hf-repo-draft", "draft models are not downloaded; give one with -md FILE"),
    ("spec-draft-hf", "draft models are not downloaded; give one with -md FILE"),
    (
        "model-url",
        "models come from the Hugging Face Hub with -hf OWNER/NAME; or download the file and give it with -m",
    ),
    ("dflash", "draft models are not downloaded; give one with -md FILE"),
];

/// The arguments, with llama.cpp's short options in long form. What comes after `--` is left alone.
pub(super) fn long_form(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut options = true;
    args.map(move |arg| {
        options &= arg != "--";
        let long = SHORT.iter().find(|(short, _)| options && arg == OsStr::new(short));
        long.map_or(arg, |(_, long)| long.into())
    })
}

/// What to say of an option that only llama.cpp has.
pub(super) fn foreign(error: &clap::Error) -> Option<CliError> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.strip_prefix("--")?;
    let &(_, instead) = FOREIGN.iter().find(|(known, _)| *known == name)?;
    let short = SHORT.iter().find(|(_, long)| long == flag);
    let flag = short.map_or_else(|| flag.clone(), |(short, long)| format!("{short} ({long})"));
    Some(CliError::Foreign { flag, instead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_options_become_long_ones_up_to_the_end_of_options() {
        let long = |args: &[&str]| -> Vec<OsString> { long_form(args.iter().map(OsString::from)).collect() };
        assert_eq!(long(&["hexflash", "-md", "x", "-n", "3"]), ["hexflash", "--model-draft", "x", "-n", "3"]);
        assert_eq!(long(&["-ngld", "-ngl", "-m"]), ["--gpu-layers-draft", "--gpu-layers", "-m"]);
        assert_eq!(long(&["--", "-md"]), ["--", "-md"]);
    }

    #[test]
    fn every_short_option_leads_somewhere() {
        let run = crate::command();
        let run = run.find_subcommand("run").unwrap();
        for (short, long) in SHORT {
            let name = long.strip_prefix("--").unwrap();
            let taken = run.get_arguments().any(|arg| arg.get_long() == Some(name));
            assert!(taken || FOREIGN.iter().any(|(known, _)| *known == name), "{short}");
        }
    }
}
