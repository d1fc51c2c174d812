//! Pictures as llama.cpp's library for them (mtmd) reads them: tokens, and rows of tiles.

use std::ffi::CString;
use std::path::Path;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::ffi::init;
use super::{LlamaError, Model, Result};

/// An encoder of pictures beside a model.
pub struct Pictures<'m> {
    raw: NonNull<sys::mtmd_context>,
    model: &'m Model,
}

impl Drop for Pictures<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `mtmd_init_from_file`, freed once.
        unsafe { sys::mtmd_free(self.raw.as_ptr()) }
    }
}

/// A part of a text with a picture.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// Tokens.
    Tokens(Vec<i32>),
    /// Rows of a tile.
    Rows {
        /// Their values, `{n_embd, n}`.
        values: Vec<f32>,
        /// Whether each of them sees all others.
        is_seen_whole: bool,
    },
}

/// Object that is freed when it goes.
struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the function that this one belongs to, and is freed once.
        unsafe { (self.1)(self.0.as_ptr()) }
    }
}

impl<'m> Pictures<'m> {
    /// Loads an encoder for a model, which makes at most so many rows of a tile, where the number is not the
    /// encoder's own.
    pub fn load(path: &Path, model: &'m Model, most: Option<u32>, threads: usize) -> Result<Self> {
        init();
        let failed = || LlamaError::Load(path.to_owned());
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| failed())?;
        // SAFETY: default parameters are valid; the name is NUL-terminated and lives for the call; the model
        // outlives the result (lifetime 'm).
        let raw = unsafe {
            let mut params = sys::mtmd_context_params_default();
            (params.use_gpu, params.warmup, params.print_timings) = (false, false, false);
            params.n_threads = threads as i32;
            params.image_max_tokens = most.map_or(-1, |most| most as i32);
            sys::mtmd_init_from_file(name.as_ptr(), model.0.raw(), params)
        };
        NonNull::new(raw).map(|raw| Self { raw, model }).ok_or_else(failed)
    }

    /// The tokens and rows of a text that has llama.cpp's marker once, for a picture of `width` times
    /// `height` pixels of three bytes each.
    pub fn chunks(&self, text: &str, [width, height]: [u32; 2], rgb: &[u8]) -> Result<Vec<Chunk>> {
        let failed = |what: &str| LlamaError::Input(format!("{what}: a picture of {width} x {height}"));
        assert_eq!(rgb.len() as u64, 3 * u64::from(width) * u64::from(height));
        let text_c = CString::new(text).map_err(|_| failed("text"))?;
        // SAFETY: the bytes are as many as the size says, and are copied; both objects are freed by their
        // owners. The text outlives the call, which keeps nothing of it.
        let chunks = unsafe {
            let bitmap = sys::mtmd_bitmap_init(width, height, rgb.as_ptr());
            let bitmap = NonNull::new(bitmap).ok_or_else(|| failed("bitmap"))?;
            let bitmap = Owned(bitmap, sys::mtmd_bitmap_free);
            let chunks = NonNull::new(sys::mtmd_input_chunks_init()).ok_or_else(|| failed("chunks"))?;
            let chunks = Owned(chunks, sys::mtmd_input_chunks_free);
            let input = sys::mtmd_input_text {
                text: text_c.as_ptr(),
                text_len: text.len(),
                add_special: true,
                parse_special: true,
            };
            let bitmaps = [bitmap.0.as_ptr().cast_const()];
            let code = sys::mtmd_tokenize(
                self.raw.as_ptr(),
                chunks.0.as_ptr(),
                &input,
                bitmaps.as_ptr().cast_mut(),
                1,
            );
            if code != 0 {
                return Err(failed("mtmd_tokenize"));
            }
            chunks
        };
        // SAFETY: the list is live, and the chunks in it live with it.
        let n = unsafe { sys::mtmd_input_chunks_size(chunks.0.as_ptr()) };
        (0..n)
            .map(|i| {
                // SAFETY: the list is live, and `i` is below its size.
                let chunk = unsafe { sys::mtmd_input_chunks_get(chunks.0.as_ptr(), i) };
                self.chunk(chunk).ok_or_else(|| failed("mtmd_encode_chunk"))
            })
            .collect()
    }

    /// `chunk` is one of a list that lives.
    fn chunk(&self, chunk: *const sys::mtmd_input_chunk) -> Option<Chunk> {
        // SAFETY: the chunk lives; tokens belong to it and are copied. An encoded chunk has a row of the
        // model's width for each of its tokens, in memory of the context that lives until its next call.
        unsafe {
            if sys::mtmd_input_chunk_get_type(chunk) == sys::MTMD_INPUT_CHUNK_TYPE_TEXT {
                let mut n = 0;
                let tokens = sys::mtmd_input_chunk_get_tokens_text(chunk, &mut n);
                return Some(Chunk::Tokens(std::slice::from_raw_parts(tokens, n).to_vec()));
            }
            let n = sys::mtmd_input_chunk_get_n_tokens(chunk) as usize;
            if sys::mtmd_encode_chunk(self.raw.as_ptr(), chunk) != 0 {
                return None;
            }
            let rows = NonNull::new(sys::mtmd_get_output_embd(self.raw.as_ptr()))?;
            let values = std::slice::from_raw_parts(rows.as_ptr(), n * self.model.n_embd()).to_vec();
            let is_seen_whole = sys::mtmd_decode_use_non_causal(self.raw.as_ptr(), chunk);
            Some(Chunk::Rows { values, is_seen_whole })
        }
    }
}
