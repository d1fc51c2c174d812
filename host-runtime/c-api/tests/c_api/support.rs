//! Handles and texts of the library, for tests.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hexflash::{Limits, ModelOptions};
use hexflash_c::{
    HEXFLASH_ABI_VERSION, HEXFLASH_END, HEXFLASH_OK, HexflashConversation, HexflashGeneration, HexflashModel,
    Status, hexflash_conversation_messages, hexflash_conversation_new, hexflash_figures, hexflash_free_text,
    hexflash_generate, hexflash_last_error_code, hexflash_last_error_text, hexflash_next, hexflash_open,
};
use serde_json::Value as Json;

pub const PROMPT: &str = "#### pub fn push(&mut self";
pub const TOKENS: usize = 48;
/// Options of a small context, in which the best token is always taken.
pub const GREEDY: &str = r#"{"context": 512, "temperature": 0}"#;

/// Code and text of a failure.
pub type Failed = (Status, String);

/// Root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The model that ships.
pub fn model_path() -> String {
    root().join("models/tiny-hybrid-q8_0.gguf").to_str().unwrap().to_owned()
}

/// The library that cargo has built, beside this program or one folder above.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let file = format!("{}hexflash_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let mut files = program.ancestors().skip(1).take(2).map(|folder| folder.join(&file));
    files.find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{file} is not beside {}; `cargo test -p hexflash-c` builds it", program.display())
    })
}

/// The text that the library `hexflash` writes after the prompt.
pub static EXPECTED: LazyLock<String> = LazyLock::new(|| {
    let options = ModelOptions::default().temperature(0.0).context(512);
    let mut model = options.open(model_path()).unwrap();
    let text = model.complete(PROMPT, Limits::tokens(TOKENS)).unwrap().finish().unwrap().text;
    assert!(text.len() > TOKENS, "{text:?}");
    text
});

/// The last failure of this thread.
pub fn last() -> Failed {
    // SAFETY: the text is good until the next failure on this thread.
    let text = unsafe { CStr::from_ptr(hexflash_last_error_text()) };
    (hexflash_last_error_code(), text.to_str().unwrap().to_owned())
}

/// The handle that a function makes, or its failure.
pub fn made<T>(run: impl FnOnce(Option<&mut MaybeUninit<*mut T>>) -> Status) -> Result<Box<T>, Failed> {
    let mut place = MaybeUninit::new(std::ptr::dangling_mut());
    let status = run(Some(&mut place));
    // SAFETY: it was made with a value.
    let pointer = unsafe { place.assume_init() };
    if status == HEXFLASH_OK {
        // SAFETY: after a success it is the library's handle, which is ours, once.
        return Ok(unsafe { Box::from_raw(pointer) });
    }
    assert!(pointer.is_null());
    assert_eq!(last().0, status);
    Err(last())
}

/// The JSON that a function gives.
pub fn json(run: impl FnOnce(Option<&mut MaybeUninit<*mut c_char>>) -> Status) -> Result<Json, Failed> {
    let mut place = MaybeUninit::new(std::ptr::null_mut());
    if run(Some(&mut place)) != HEXFLASH_OK {
        return Err(last());
    }
    // SAFETY: after a success it is a text that is ours, and it is freed once.
    unsafe {
        let text = place.assume_init();
        let json = serde_json::from_slice(CStr::from_ptr(text).to_bytes()).unwrap();
        hexflash_free_text(text);
        Ok(json)
    }
}

/// A text for a call.
pub fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// The shipped model with these options.
pub fn open(options: &str) -> Result<Box<HexflashModel>, Failed> {
    open_file(&model_path(), options)
}

/// The model of a file with these options.
pub fn open_file(path: &str, options: &str) -> Result<Box<HexflashModel>, Failed> {
    let (path, options) = (c(path), c(options));
    // SAFETY: both are texts of this function.
    made(|place| unsafe { hexflash_open(HEXFLASH_ABI_VERSION, path.as_ptr(), options.as_ptr(), place) })
}

/// A text after a prompt.
pub fn generate(
    model: &HexflashModel,
    prompt: &str,
    request: &str,
) -> Result<Box<HexflashGeneration>, Failed> {
    let (prompt, request) = (c(prompt), c(request));
    // SAFETY: both are texts of this function.
    made(|place| unsafe { hexflash_generate(Some(model), prompt.as_ptr(), request.as_ptr(), place) })
}

/// A conversation.
pub fn conversation(model: &HexflashModel, options: &str) -> Result<Box<HexflashConversation>, Failed> {
    let options = c(options);
    // SAFETY: it is a text of this function.
    made(|place| unsafe { hexflash_conversation_new(Some(model), options.as_ptr(), place) })
}

/// The next piece of a text; `None` at its end.
pub fn next(generation: &HexflashGeneration) -> Result<Option<String>, Failed> {
    let (mut text, mut length) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let status = hexflash_next(Some(generation), Some(&mut text), Some(&mut length));
    // SAFETY: both were written, as by every call that has places for them.
    let (text, length) = unsafe { (text.assume_init(), length.assume_init()) };
    match status {
        HEXFLASH_OK => {
            // SAFETY: there are so many bytes and a zero byte, until the next call with the generation.
            let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length + 1) };
            assert_eq!(bytes[length], 0);
            Ok(Some(std::str::from_utf8(&bytes[..length]).unwrap().to_owned()))
        }
        HEXFLASH_END => {
            assert!(text.is_null() && length == 0);
            Ok(None)
        }
        _ => Err(last()),
    }
}

/// The rest of a text.
pub fn rest(generation: &HexflashGeneration) -> String {
    let mut text = String::new();
    while let Some(piece) = next(generation).unwrap() {
        assert!(!piece.is_empty());
        text += &piece;
    }
    text
}

/// The figures of a text.
pub fn figures(generation: &HexflashGeneration) -> Json {
    json(|place| hexflash_figures(Some(generation), place)).unwrap()
}

/// The messages of a conversation.
pub fn messages(conversation: &HexflashConversation) -> Json {
    json(|place| hexflash_conversation_messages(Some(conversation), place)).unwrap()
}
