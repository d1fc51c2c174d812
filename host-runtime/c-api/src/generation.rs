//! Texts as they come: pieces, the way to stop them, and their figures.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Mutex;

use hexflash::cancel::Cancel;

use crate::boundary::{call, give, given, lock_alone, owned};
use crate::failure::{HEXFLASH_END, HEXFLASH_OK, Status};
use crate::running::Running;

/// A text under way, or one that has ended.
pub struct HexflashGeneration {
    cancel: Cancel,
    running: Mutex<Running>,
}

impl HexflashGeneration {
    pub(crate) fn new(running: Running) -> Self {
        Self { cancel: running.cancel().clone(), running: Mutex::new(running) }
    }
}

/// Function that gets each piece of a text: `length` bytes and a zero byte, good until it returns. It ends
/// the text with any other result than 0. It may call `hexflash_cancel`, and nothing else with the same
/// generation. It must return: no exception, and no `longjmp`.
pub type OnText = Option<extern "C" fn(text: *const c_char, length: usize, user_data: *mut c_void) -> c_int>;

/// Waits for the next piece of a text: `HEXFLASH_OK` with a piece, `HEXFLASH_END` without one at the end.
///
/// `text` then leads to `length` bytes and a zero byte, which belong to the generation and are good until the
/// next call with it. A piece may have zero bytes in itself, and is never empty; together they are the text.
/// `length` may be NULL. A text that fails has ended: further calls give `HEXFLASH_END`. Any thread may call,
/// one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_next(
    generation: Option<&HexflashGeneration>,
    text: Option<&mut MaybeUninit<*const c_char>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    call(|| {
        let text = given(text, "text")?.write(std::ptr::null());
        let length = length.map(|length| length.write(0));
        let mut running = lock_alone(&given(generation, "generation")?.running, "generation")?;
        let Some(piece) = running.next()? else { return Ok(HEXFLASH_END) };
        *text = piece.as_ptr().cast();
        if let Some(length) = length {
            *length = piece.len() - 1;
        }
        Ok(HEXFLASH_OK)
    })
}

/// Writes a text to its end, and hands each piece to `on_text` on this thread, with `user_data`, which may be
/// NULL. `HEXFLASH_END` when the text has ended by itself, by `hexflash_cancel` or by the function's result;
/// the figures say which.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_run(
    generation: Option<&HexflashGeneration>,
    on_text: OnText,
    user_data: *mut c_void,
) -> Status {
    call(|| {
        let on_text = given(on_text, "on_text")?;
        let mut running = lock_alone(&given(generation, "generation")?.running, "generation")?;
        while let Some(piece) = running.next()? {
            if on_text(piece.as_ptr().cast(), piece.len() - 1, user_data) != 0 {
                running.end()?;
            }
        }
        Ok(HEXFLASH_END)
    })
}

/// Ends a text after the step under way. It may be called on any thread, also while another one waits for a
/// piece, and in a handler of signals, but not once the generation is being freed. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_cancel(generation: Option<&HexflashGeneration>) {
    if let Some(generation) = generation {
        generation.cancel.cancel();
    }
}

/// Gives the text so far with its figures, as JSON: `tokens` (their ids), `text`, `finish_reason` (null until
/// the end, then "eog", "length", "stop", "context" or "interrupted"), `stop` (the stop text that ended it)
/// and `stats` (counts, seconds, and what drafts were worth). The caller frees `json` with
/// `hexflash_free_text`.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_figures(
    generation: Option<&HexflashGeneration>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    give(json, "json", || {
        let running = lock_alone(&given(generation, "generation")?.running, "generation")?;
        owned(running.figures().to_string())
    })
}

/// Frees a text. One that has not ended is ended first, after the step under way. No other thread may use the
/// generation any more. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_free_generation(generation: Option<Box<HexflashGeneration>>) {
    call(|| {
        if let Some(generation) = generation {
            // Its sequence is lost with it where a bug was in the way.
            lock_alone(&generation.running, "generation")?.end()?;
        }
        Ok(HEXFLASH_OK)
    });
}
