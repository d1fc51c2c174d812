//! hexflash for C, and for all languages that call C: `libhexflash_c.so` and `include/hexflash.h`.
//!
//! Handles are opaque: a [`HexflashModel`] writes texts, of which each is a [`HexflashGeneration`]; a
//! [`HexflashConversation`] keeps messages for it. Settings and results are JSON, so that new ones change no
//! function. Nothing is computed here: the functions hand on to the library `hexflash`.
//!
//! What C gives is checked in `boundary`: pointers that may be null are `Option`s of references, texts are
//! copied or borrowed for the length of a call, and no panic leaves a function. Bare pointers are read there
//! alone; the `unsafe` of other modules wraps texts of arguments for it.
//!
//! The header is made by cbindgen of these files; a test compares it. `docs/c-library.md` is for users.

// What can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod boundary;
mod conversation;
mod failure;
mod fields;
mod fits;
mod generation;
mod log;
mod messages;
mod model;
mod running;
mod settings;
mod shared;

pub use boundary::hexflash_free_text;
pub use conversation::{
    HexflashConversation, hexflash_conversation_add, hexflash_conversation_load,
    hexflash_conversation_messages, hexflash_conversation_new, hexflash_conversation_say,
    hexflash_conversation_undo, hexflash_free_conversation,
};
pub use failure::{
    HEXFLASH_END, HEXFLASH_ERROR_BUG, HEXFLASH_ERROR_CANCELLED, HEXFLASH_ERROR_INPUT, HEXFLASH_ERROR_SYSTEM,
    HEXFLASH_OK, Status, hexflash_last_error_code, hexflash_last_error_text,
};
pub use fits::hexflash_fits;
pub use generation::{
    HexflashGeneration, OnText, hexflash_cancel, hexflash_figures, hexflash_free_generation, hexflash_next,
    hexflash_run,
};
pub use log::{
    HEXFLASH_LOG_DEBUG, HEXFLASH_LOG_ERROR, HEXFLASH_LOG_INFO, HEXFLASH_LOG_OFF, HEXFLASH_LOG_WARN, OnLine,
    hexflash_set_log,
};
pub use model::{
    HEXFLASH_ABI_VERSION, HexflashModel, hexflash_abi_version, hexflash_chat, hexflash_close,
    hexflash_generate, hexflash_model_info, hexflash_open, hexflash_version,
};

/// Handles may be used on any thread, and by several threads at once.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<HexflashModel>();
    shared::<HexflashGeneration>();
    shared::<HexflashConversation>();
};
