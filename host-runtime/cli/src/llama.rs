//! Options that users bring from llama.cpp: short ones that clap would misread, and those that hexflash has
//! no use for.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::CliError;

/// llama.cpp's short options of several letters, which clap would take for a short option and its value.
const SHORT: [(&str, &str); 24] = [
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-hft", "--hf-token"),
    ("-hfd", "--hf-repo-draft"),
    ("-hfrd", "--hf-repo-draft"),
    ("-mu", "--model-url"),
    ("-md", "--model-draft"),
    ("-np", "--parallel"),
    ("-to", "--timeout"),
    ("-cram", "--cache-ram"),
    ("-Cr", "--cpu-range"),
    ("-cd", "--ctx-size-draft"),
    ("-td", "--threads-draft"),
    ("-devd", "--device-draft"),
    ("-ngl", "--gpu-layers"),
    ("-ngld", "--gpu-layers-draft"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-ctkd", "--cache-type-k-draft"),
    ("-ctvd", "--cache-type-v-draft"),
    ("-fa", "--flash-attn"),
    ("-ub", "--ubatch-size"),
    ("-cb", "--cont-batching"),
];

const SHORTEST: &str =
    "every draft is verified, so there is no shortest one; drop it, or bound drafts with --draft-max";
const LIKELY: &str =
    "drafts are not cut by their probability; drop it: --draft-max auto adapts to what is accepted";
const SAMPLING: &str = "the draft takes its best tokens, and the target's sampler decides; drop it";
const LAYERS: &str = "all layers of target and draft run on the device; drop it";
const FOLLOWS: &str = "the draft shares the target's context, cache type, device and threads; drop it";
const VECTORS: &str = "vectors of texts come from hexflash embed, or from hexflash serve --embeddings";
const WITHOUT_PICTURES: &str =
    "this hexflash was built without pictures; build it with them: --features pictures";
const FORM: &str = "a form belongs to a request; give it in the request's field grammar or json_schema";

/// llama.cpp's options for what hexflash does otherwise, without dashes.
const FOREIGN: [(&str, &str); 46] = [
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
    ("flash-attn", "attention is always computed tile by tile; drop it"),
    ("ubatch-size", "a batch is one step; bound it with -b"),
    ("cont-batching", "requests always share steps; drop it"),
    ("mmproj", WITHOUT_PICTURES),
    ("image", WITHOUT_PICTURES),
    ("mmproj-url", "give the encoder's file with --mmproj"),
    ("embedding", VECTORS),
    ("embeddings", VECTORS),
    ("pooling", VECTORS),
    ("reranking", "hexflash serve --reranking scores documents; start it with that"),
    ("rerank", "hexflash serve --reranking scores documents; start it with that"),
    ("lora", "adapters are not applied; merge the adapter into a model file"),
    ("grammar", FORM),
    ("grammar-file", FORM),
    ("json-schema", FORM),
    ("reasoning-budget", "thinking is on or off: --reasoning off; drop it"),
    ("ctx-checkpoints", "snapshots are bounded by their memory: --snapshots MIB"),
    ("models-preset", "all models of a folder have the same settings; name the folder with --models-dir"),
    ("sleep-idle-seconds", "a server that is idle keeps its model; drop it"),
];

/// llama-server's environment variables, by the option of `hexflash serve` that each stands for.
const VARIABLES: [(&str, &str); 35] = [
    ("model", "LLAMA_ARG_MODEL"),
    ("hf-repo", "LLAMA_ARG_HF_REPO"),
    ("hf-file", "LLAMA_ARG_HF_FILE"),
    ("model-draft", "LLAMA_ARG_MODEL_DRAFT"),
    ("spec-type", "LLAMA_ARG_SPEC_TYPE"),
    ("draft-max", "LLAMA_ARG_DRAFT_MAX"),
    ("ctx-size", "LLAMA_ARG_CTX_SIZE"),
    ("batch-size", "LLAMA_ARG_BATCH"),
    ("threads", "LLAMA_ARG_THREADS"),
    ("device", "LLAMA_ARG_DEVICE"),
    ("parallel", "LLAMA_ARG_N_PARALLEL"),
    ("alias", "LLAMA_ARG_ALIAS"),
    ("host", "LLAMA_ARG_HOST"),
    ("port", "LLAMA_ARG_PORT"),
    ("timeout", "LLAMA_ARG_TIMEOUT"),
    ("api-key", "LLAMA_API_KEY"),
    ("api-key-file", "LLAMA_ARG_API_KEY_FILE"),
    ("metrics", "LLAMA_ARG_ENDPOINT_METRICS"),
    ("no-slots", "LLAMA_ARG_NO_ENDPOINT_SLOTS"),
    ("slot-save-path", "LLAMA_ARG_SLOT_SAVE_PATH"),
    ("cache-ram", "LLAMA_ARG_CACHE_RAM"),
    ("no-webui", "LLAMA_ARG_NO_WEBUI"),
    ("models-dir", "LLAMA_ARG_MODELS_DIR"),
    ("models-max", "LLAMA_ARG_MODELS_MAX"),
    ("embeddings", "LLAMA_ARG_EMBEDDINGS"),
    ("pooling", "LLAMA_ARG_POOLING"),
    ("reranking", "LLAMA_ARG_RERANKING"),
    ("chat-template", "LLAMA_ARG_CHAT_TEMPLATE"),
    ("chat-template-kwargs", "LLAMA_CHAT_TEMPLATE_KWARGS"),
    ("temp", "LLAMA_ARG_TEMP"),
    ("top-k", "LLAMA_ARG_TOP_K"),
    ("top-p", "LLAMA_ARG_TOP_P"),
    ("min-p", "LLAMA_ARG_MIN_P"),
    ("repeat-penalty", "LLAMA_ARG_REPEAT_PENALTY"),
    ("seed", "LLAMA_ARG_SEED"),
];

/// An option of `hexflash serve`, with llama-server's variable if it has one.
pub(super) fn with_variable(arg: clap::Arg) -> clap::Arg {
    let variable = VARIABLES.iter().find(|(long, _)| arg.get_long() == Some(long));
    match variable {
        Some((_, variable)) => arg.env(variable).hide_env_values(true),
        None => arg,
    }
}

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
        let command = crate::command();
        let options: Vec<_> = ["run", "serve"]
            .iter()
            .flat_map(|name| command.find_subcommand(name).unwrap().get_arguments())
            .filter_map(clap::Arg::get_long)
            .collect();
        for (short, long) in SHORT {
            let name = long.strip_prefix("--").unwrap();
            let taken = options.contains(&name);
            assert!(taken || FOREIGN.iter().any(|(known, _)| *known == name), "{short}");
        }
    }

    #[test]
    fn every_variable_stands_for_an_option_of_serve_alone() {
        let command = crate::command();
        let variable = |command: &str, long: &str| {
            let all = crate::command();
            let arg =
                all.find_subcommand(command)?.get_arguments().find(|arg| arg.get_long() == Some(long))?;
            arg.get_env().map(|name| name.to_str().unwrap().to_owned())
        };
        assert!(command.find_subcommand("serve").is_some());
        for (long, name) in VARIABLES {
            assert_eq!(variable("serve", long).as_deref(), Some(name), "--{long}");
            assert_eq!(variable("run", long), None, "--{long}");
        }
    }
}
