//! Models: versions, opening and closing, and the texts that begin with a prompt or with messages.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::sync::Arc;

use hexflash::Error;
use serde_json::json;

use crate::boundary::{Outcome, Text, call, give, given, handle, lock, owned};
use crate::failure::{Failure, HEXFLASH_OK, Status};
use crate::fields::Fields;
use crate::generation::HexflashGeneration;
use crate::messages::{self, Format};
use crate::running::Running;
use crate::settings::{self, TextRequest};
use crate::shared::Shared;

/// Version of the functions and of their arguments. It changes when a program has to be compiled again.
pub const HEXFLASH_ABI_VERSION: u32 = 1;

/// Version of the package, for C.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// A model on a device. What was made with it keeps it alive, so that it may be closed at any time.
pub struct HexflashModel(pub(crate) Arc<Shared>);

/// The version of the functions that the library has, to be compared with `HEXFLASH_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_abi_version() -> u32 {
    HEXFLASH_ABI_VERSION
}

/// The version of hexflash, such as "0.1.0". The text belongs to the library, and is good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Opens the model of a GGUF file; of a sharded one, the first. This may take minutes the first time that
/// weights are repacked. The caller closes the model with `hexflash_close`.
///
/// `abi` is `HEXFLASH_ABI_VERSION`: a library with another version refuses to work. `options` may be NULL; it
/// is a JSON object with any of these keys:
///
/// * `device` ("inproc", "qemu", "htp"), `threads`, `sessions`: where it runs;
/// * `context` (tokens; 0 for as many as the model was trained for), `batch`, `sequences` (texts that can be
///   under way at once), `snapshots_mib`, `cache_type_k` and `cache_type_v` ("f16", "q8_0", "q4_r"): what it
///   has room for;
/// * `weights_cache_dir`, `no_weights_cache`: where repacked weights are kept, if not beside the model;
/// * `draft` (a file), `drafts` ("none", "own", "ngrams", "best"), `draft_max`: who drafts, which never
///   changes a text;
/// * `temperature`, `top_k`, `top_p`, `min_p`, `repeat_penalty`, `repeat_last_n`, `presence_penalty`,
///   `frequency_penalty`, `seed`: what is sampled otherwise than the model recommends.
///
/// # Safety
/// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `model` is NULL or leads to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_open(
    abi: u32,
    path: *const c_char,
    options: *const c_char,
    model: Option<&mut MaybeUninit<*mut HexflashModel>>,
) -> Status {
    // SAFETY: both are as condition 1 says, and stay in this call.
    let (path, options) = unsafe { (Text::new(path), Text::new(options)) };
    give(model, "model", || {
        if abi != HEXFLASH_ABI_VERSION {
            return Err(Failure::input(format!(
                "the program was compiled for version {abi} of the functions, and this library has version \
                 {HEXFLASH_ABI_VERSION}; compile it with the hexflash.h of this library"
            )));
        }
        let options = settings::model(options.get("options")?)?;
        Ok(handle(HexflashModel(Shared::open(&options, path.require("path")?)?)))
    })
}

/// Closes a model, which no other call may use any more. Texts and conversations of it live on, and the
/// memory is free when the last of them is. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_close(model: Option<Box<HexflashModel>>) {
    call(|| {
        drop(model);
        Ok(HEXFLASH_OK)
    });
}

/// Gives what a model is, as JSON: `device`, `context` (tokens of a sequence), `sequences`, `memory` (bytes),
/// `has_chat_template`, and `warnings` of its opening. The caller frees `json` with `hexflash_free_text`.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_model_info(
    model: Option<&HexflashModel>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    give(json, "json", || {
        let mut model = lock(&given(model, "model")?.0.model)?;
        let has_chat_template = model.text().chat_template.is_some();
        let warnings = model.warnings().to_vec();
        let engine = model.engine();
        let info = json!({
            "device": engine.device().info(),
            "context": engine.n_ctx(),
            "sequences": engine.sequences().len(),
            "memory": engine.memory(),
            "has_chat_template": has_chat_template,
            "warnings": warnings,
        });
        owned(info.to_string())
    })
}

/// Begins a text after `prompt`, of which nothing is computed yet: `hexflash_next` gives its pieces. The
/// prompt's beginning that a context still has is not computed again. The caller frees the generation with
/// `hexflash_free_generation`; until its end it has a sequence of the model for itself.
///
/// `request` may be NULL; it is a JSON object with any of these keys: `max_tokens` (without it, until the
/// context is full), `stop` (a list of texts), `ignore_eos`, and the keys of sampling that `hexflash_open`
/// takes.
///
/// # Safety
/// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `model` is NULL or a model that is open; `generation` is NULL or leads to a pointer that may be
///    written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_generate(
    model: Option<&HexflashModel>,
    prompt: *const c_char,
    request: *const c_char,
    generation: Option<&mut MaybeUninit<*mut HexflashGeneration>>,
) -> Status {
    // SAFETY: both are as condition 1 says, and stay in this call.
    let (prompt, request) = unsafe { (Text::new(prompt), Text::new(request)) };
    give(generation, "generation", || {
        let shared = &given(model, "model")?.0;
        let request = TextRequest::parse(request.get("request")?)?;
        let prompt = prompt.require("prompt")?;
        let tokens = lock(&shared.model)?.text().encode(prompt).map_err(Error::from)?;
        begin(shared, &tokens, request)
    })
}

/// Begins the model's answer to messages, as `hexflash_generate` does, in the format of a chat template.
///
/// `messages` is a JSON list as in requests to OpenAI's interface, `role` and `content` each; further keys,
/// such as `tool_calls`, go to the template as they are. An object with such a list as `messages` is the
/// same. `request` may have, besides the keys of `hexflash_generate`: `chat_template` (the source of one, or
/// "chatml"; without it, the model's own), `tools` (a list of objects) and `chat_template_kwargs` (such as
/// `{"enable_thinking": false}`). What the model calls is not looked for: calls are part of the text, as the
/// model writes them.
///
/// # Safety
/// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
/// 2. `model` is NULL or a model that is open; `generation` is NULL or leads to a pointer that may be
///    written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_chat(
    model: Option<&HexflashModel>,
    messages: *const c_char,
    request: *const c_char,
    generation: Option<&mut MaybeUninit<*mut HexflashGeneration>>,
) -> Status {
    // SAFETY: both are as condition 1 says, and stay in this call.
    let (messages, request) = unsafe { (Text::new(messages), Text::new(request)) };
    give(generation, "generation", || {
        let shared = &given(model, "model")?.0;
        let mut fields = Fields::parse("request", request.get("request")?)?;
        let (request, format) = (TextRequest::take(&mut fields)?, Format::take(&mut fields)?);
        fields.end()?;
        let messages = messages::parse(messages.require("messages")?)?;
        let tokens = format.encode(&*lock(&shared.model)?, &messages)?;
        begin(shared, &tokens, request)
    })
}

fn begin(shared: &Arc<Shared>, tokens: &[u32], request: TextRequest) -> Outcome<*mut HexflashGeneration> {
    Ok(handle(HexflashGeneration::new(Running::begin(shared, tokens, request)?)))
}
