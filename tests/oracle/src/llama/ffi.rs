//! The unsafe half of `llama`: models, contexts and batches of llama.cpp.

use std::ffi::{CString, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_sys_2 as sys;

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Called by llama.cpp and ggml with each piece of a message.
unsafe extern "C" fn log(_level: sys::ggml_log_level, text: *const c_char, _user: *mut c_void) {
    // Relaxed: a flag of its own, no other memory depends on it.
    if VERBOSE.load(Ordering::Relaxed) && !text.is_null() {
        // SAFETY: llama.cpp passes a NUL-terminated string that lives for the call.
        eprint!("{}", unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy());
    }
}

pub(super) fn init() {
    static INIT: Once = Once::new();
    // SAFETY: global set-up, once, before any other call; `log` lives forever and takes no user data.
    INIT.call_once(|| unsafe {
        sys::llama_log_set(Some(log), std::ptr::null_mut());
        sys::ggml_log_set(Some(log), std::ptr::null_mut());
        sys::mtmd_log_set(Some(log), std::ptr::null_mut());
        sys::llama_backend_init();
    });
}

pub(super) fn set_verbose(on: bool) {
    VERBOSE.store(on, Ordering::Relaxed);
}

pub(super) fn system_info() -> String {
    init();
    // SAFETY: returns a NUL-terminated string in static storage, overwritten only by another call of the same
    // function with the same contents.
    unsafe { std::ffi::CStr::from_ptr(sys::llama_print_system_info()) }.to_string_lossy().into_owned()
}

/// `llama_model_quantize`; nothing if it fails. `pure` gives every matrix the same type.
pub(super) fn quantize(from: &Path, to: &Path, file_type: u32, pure: bool) -> Option<()> {
    init();
    let path = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).ok();
    let (from, to) = (path(from)?, path(to)?);
    // SAFETY: default parameters are valid, and llama.cpp refuses file types that it does not know; both
    // paths are NUL-terminated and live for the call, which keeps nothing.
    let code = unsafe {
        let mut params = sys::llama_model_quantize_default_params();
        params.ftype = file_type as sys::llama_ftype;
        params.pure_ = pure;
        params.allow_requantize = true;
        sys::llama_model_quantize(from.as_ptr(), to.as_ptr(), &params)
    };
    (code == 0).then_some(())
}

// Declared in llama.cpp's own src/llama-ext.h, as C++: hence the mangled names (Itanium ABI, so not for
// MSVC). The crate version is pinned, and with it these signatures.
unsafe extern "C" {
    #[link_name = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"]
    fn llama_set_embeddings_layer_inp(ctx: *mut sys::llama_context, layer: u32, value: bool);
    #[link_name = "_Z30llama_get_embeddings_layer_inpP13llama_contextj"]
    fn llama_get_embeddings_layer_inp(ctx: *mut sys::llama_context, layer: u32) -> *mut f32;
    #[link_name = "_Z28llama_model_target_layer_idsPK11llama_model"]
    fn llama_model_target_layer_ids(model: *const sys::llama_model) -> *const i32;
    #[link_name = "_Z30llama_model_target_layer_ids_nPK11llama_model"]
    fn llama_model_target_layer_ids_n(model: *const sys::llama_model) -> u32;
    #[link_name = "_Z26llama_set_embeddings_nextnP13llama_contextbb"]
    fn llama_set_embeddings_nextn(ctx: *mut sys::llama_context, value: bool, masked: bool);
    #[link_name = "_Z26llama_get_embeddings_nextnP13llama_context"]
    fn llama_get_embeddings_nextn(ctx: *mut sys::llama_context) -> *mut f32;
}

pub(super) struct RawModel(NonNull<sys::llama_model>);

// SAFETY: a loaded model is not written any more; llama.cpp lets several contexts on several threads share
// it.
unsafe impl Send for RawModel {}
// SAFETY: `&RawModel` calls only functions of llama.cpp that read the model, which is not written any more
// after it was loaded.
unsafe impl Sync for RawModel {}

impl Drop for RawModel {
    fn drop(&mut self) {
        // SAFETY: made by `llama_model_load_from_file`, freed once; contexts borrow the model.
        unsafe { sys::llama_model_free(self.0.as_ptr()) }
    }
}

impl RawModel {
    pub(super) fn load(path: &Path, repack: bool) -> Option<Self> {
        init();
        let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
        // SAFETY: default parameters are valid; `path` is NUL-terminated and lives for the call.
        let model = unsafe {
            let mut params = sys::llama_model_default_params();
            params.n_gpu_layers = 0;
            params.use_extra_bufts = repack;
            // Files without an MTP head have nothing that this would load.
            params.load_mtp = true;
            sys::llama_model_load_from_file(path.as_ptr(), params)
        };
        NonNull::new(model).map(Self)
    }

    /// The model, which lives as long as this does.
    pub(super) fn raw(&self) -> *const sys::llama_model {
        self.0.as_ptr()
    }

    fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: `self` keeps the model, which was loaded and is not freed.
        unsafe { sys::llama_model_get_vocab(self.0.as_ptr()) }
    }

    pub(super) fn n_vocab(&self) -> usize {
        // SAFETY: `self` keeps the model, which was loaded and is not freed, and its vocabulary lives with
        // it.
        unsafe { sys::llama_vocab_n_tokens(self.vocab()) as usize }
    }

    pub(super) fn n_embd(&self) -> usize {
        // SAFETY: `self` keeps the model, which was loaded and is not freed.
        unsafe { sys::llama_model_n_embd(self.0.as_ptr()) as usize }
    }

    pub(super) fn n_layer(&self) -> usize {
        // SAFETY: `self` keeps the model, which was loaded and is not freed.
        unsafe { sys::llama_model_n_layer(self.0.as_ptr()) as usize }
    }

    /// MTP heads in the file.
    pub(super) fn n_heads(&self) -> usize {
        // SAFETY: `self` keeps the model, which was loaded and is not freed.
        unsafe { sys::llama_model_n_layer_nextn(self.0.as_ptr()) as usize }
    }

    pub(super) fn add_bos(&self) -> Option<i32> {
        // SAFETY: `self` keeps the model, which was loaded and is not freed, and its vocabulary lives with
        // it.
        unsafe { sys::llama_vocab_get_add_bos(self.vocab()).then(|| sys::llama_vocab_bos(self.vocab())) }
    }

    /// Whether some layers keep a state that cannot be cut at any position.
    pub(super) fn is_recurrent(&self) -> bool {
        // SAFETY: `self` keeps the model, which was loaded and is not freed.
        unsafe {
            sys::llama_model_is_recurrent(self.0.as_ptr()) || sys::llama_model_is_hybrid(self.0.as_ptr())
        }
    }

    pub(super) fn mask_token(&self) -> i32 {
        // SAFETY: `self` keeps the model, which was loaded and is not freed, and its vocabulary lives with
        // it.
        unsafe { sys::llama_vocab_mask(self.vocab()) }
    }

    pub(super) fn is_eog(&self, token: i32) -> bool {
        // SAFETY: `self` keeps the model, and its vocabulary lives with it; llama.cpp answers false for ids
        // it does not know.
        unsafe { sys::llama_vocab_is_eog(self.vocab(), token) }
    }

    pub(super) fn tokenize(&self, text: &str, add: bool, parse: bool) -> Option<Vec<i32>> {
        let mut out = vec![0i32; text.len() + 8];
        let (len, room) = (i32::try_from(text.len()).ok()?, i32::try_from(out.len()).ok()?);
        // SAFETY: `self` keeps the model, and its vocabulary lives with it. Text and `out` are given with
        // their lengths and live through the call; the text needs no terminator.
        let n = unsafe {
            sys::llama_tokenize(self.vocab(), text.as_ptr().cast(), len, out.as_mut_ptr(), room, add, parse)
        };
        out.truncate(usize::try_from(n).ok()?);
        Some(out)
    }

    pub(super) fn piece(&self, token: i32) -> Vec<u8> {
        let mut out = vec![0u8; 256];
        // SAFETY: `self` keeps the model, and its vocabulary lives with it. `out` is given with its length
        // and lives through the call.
        let n = unsafe {
            sys::llama_token_to_piece(self.vocab(), token, out.as_mut_ptr().cast(), out.len() as i32, 0, true)
        };
        out.truncate(usize::try_from(n).unwrap_or(0));
        out
    }

    pub(super) fn meta(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        let mut out = vec![0u8; 256];
        // SAFETY: `self` keeps the model. The key ends with 0, and `out` is given with its length; both live
        // through the call.
        let n = unsafe {
            sys::llama_model_meta_val_str(self.0.as_ptr(), key.as_ptr(), out.as_mut_ptr().cast(), out.len())
        };
        out.truncate(usize::try_from(n).ok()?.min(255));
        String::from_utf8(out).ok()
    }

    /// Layers of the target whose inputs a DFlash draft reads.
    pub(super) fn target_layers(&self) -> Vec<u32> {
        // SAFETY: `self` keeps the model; the array has as many entries as the first function says and lives
        // with the model.
        unsafe {
            let n = llama_model_target_layer_ids_n(self.0.as_ptr()) as usize;
            let ids = llama_model_target_layer_ids(self.0.as_ptr());
            if n == 0 || ids.is_null() {
                return Vec::new();
            }
            std::slice::from_raw_parts(ids, n).iter().map(|&i| i as u32).collect()
        }
    }
}

/// What goes into a decode call.
pub(super) enum Rows<'a> {
    /// Token ids.
    Tokens(&'a [i32]),
    /// Embedding rows, one after the other, and their number.
    Embd(&'a [f32], usize),
    /// Token ids, and for each the row that an MTP head reads beside it.
    Paired(&'a [i32], &'a [f32]),
}

/// Which rows give logits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outputs {
    None,
    Last,
    All,
}

pub(super) struct RawContext<'m> {
    ctx: NonNull<sys::llama_context>,
    pool: NonNull<sys::ggml_threadpool>,
    n_vocab: usize,
    model: PhantomData<&'m RawModel>,
}

// SAFETY: a context is used through `&mut` only, by one thread at a time; llama.cpp ties it to no thread.
unsafe impl Send for RawContext<'_> {}

impl Drop for RawContext<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `llama_init_from_model` and `ggml_threadpool_new`, freed once; the pool's only user
        // is the context, which goes first.
        unsafe {
            sys::llama_free(self.ctx.as_ptr());
            sys::ggml_threadpool_free(self.pool.as_ptr());
        }
    }
}

impl<'m> RawContext<'m> {
    pub(super) fn new(model: &'m RawModel, o: &super::ContextOptions) -> Option<Self> {
        // SAFETY: null stands for no other context, which the contract of `with_other` allows.
        unsafe { Self::with_other(model, o, std::ptr::null_mut(), sys::LLAMA_CONTEXT_TYPE_DEFAULT) }
    }

    /// A context of the MTP head in the model's file.
    pub(super) fn head(model: &'m RawModel, o: &super::ContextOptions) -> Option<Self> {
        // SAFETY: null stands for no other context, which the contract of `with_other` allows.
        unsafe { Self::with_other(model, o, std::ptr::null_mut(), sys::LLAMA_CONTEXT_TYPE_MTP) }
    }

    /// A draft's context, which uses the embeddings and the head of `target`.
    ///
    /// # Safety
    /// `target` must outlive the result.
    pub(super) unsafe fn draft(
        model: &'m RawModel,
        o: &super::ContextOptions,
        target: &RawContext<'m>,
    ) -> Option<Self> {
        // SAFETY: `target` is live, and stays so as long as the result by this function's contract.
        unsafe { Self::with_other(model, o, target.ctx.as_ptr(), sys::LLAMA_CONTEXT_TYPE_DEFAULT) }
    }

    /// # Safety
    /// `other` must be null or a context that outlives the result.
    unsafe fn with_other(
        model: &'m RawModel,
        o: &super::ContextOptions,
        other: *mut sys::llama_context,
        kind: sys::llama_context_type,
    ) -> Option<Self> {
        // SAFETY: default parameters are valid; the model outlives the context (lifetime 'm), `other` by
        // contract.
        let ctx = unsafe {
            let mut p = sys::llama_context_default_params();
            (p.n_ctx, p.n_batch, p.n_ubatch) = (o.n_ctx, o.n_batch, o.n_batch.min(512));
            (p.n_threads, p.n_threads_batch) = (o.threads as i32, o.threads as i32);
            p.n_rs_seq = o.rollback;
            p.flash_attn_type = o.flash_attn as sys::llama_flash_attn_type;
            (p.type_k, p.type_v) = (o.kv as sys::ggml_type, o.kv as sys::ggml_type);
            p.no_perf = true;
            (p.ctx_other, p.ctx_type) = (other, kind);
            sys::llama_init_from_model(model.0.as_ptr(), p)
        };
        let ctx = NonNull::new(ctx)?;
        // Without a pool of its own a context starts its threads anew for every graph, which costs more than
        // a token of a small model. llama.cpp's tools attach one too.
        // SAFETY: default parameters are valid; the pool is freed after the context.
        let pool = unsafe {
            let mut p = sys::ggml_threadpool_params_default(o.threads as i32);
            let pool = NonNull::new(sys::ggml_threadpool_new(&mut p)).expect("no threads");
            sys::llama_attach_threadpool(ctx.as_ptr(), pool.as_ptr(), pool.as_ptr());
            pool
        };
        Some(Self { ctx, pool, n_vocab: model.n_vocab(), model: PhantomData })
    }

    /// One `llama_decode` of rows at positions from `pos`; llama.cpp's return code (0 is success).
    pub(super) fn decode(&mut self, rows: Rows<'_>, pos: usize, outputs: Outputs) -> i32 {
        // SAFETY: the arguments are those that `with_batch` gives: a live context, and a batch whose arrays
        // outlive the call.
        self.with_batch(rows, pos, outputs, |ctx, batch| unsafe { sys::llama_decode(ctx, batch) })
    }

    /// One `llama_encode` of rows at positions from `pos`, all of which are outputs; llama.cpp's return code
    /// (0 is success).
    pub(super) fn encode(&mut self, rows: Rows<'_>, pos: usize) -> i32 {
        // SAFETY: as in `decode`.
        self.with_batch(rows, pos, Outputs::All, |ctx, batch| unsafe { sys::llama_encode(ctx, batch) })
    }

    /// Hands `call` the context and a batch of rows at positions from `pos`.
    fn with_batch(
        &mut self,
        rows: Rows<'_>,
        pos: usize,
        outputs: Outputs,
        call: impl FnOnce(*mut sys::llama_context, sys::llama_batch) -> i32,
    ) -> i32 {
        let n = match rows {
            Rows::Tokens(t) => t.len(),
            Rows::Embd(e, n) => {
                assert!(n > 0 && e.len() % n == 0, "ragged rows");
                n
            }
            Rows::Paired(t, e) => {
                assert!(!t.is_empty() && e.len() % t.len() == 0, "ragged rows");
                t.len()
            }
        };
        // Token batches have one position row. Embedding batches of M-RoPE models have four (t, h, w, e), one
        // after the other; other models read the first row only.
        let mut positions: Vec<i32> = (0..3).flat_map(|_| (pos..pos + n).map(|p| p as i32)).collect();
        positions.resize(4 * n, 0);
        let mut seq = [0i32];
        let mut seqs = vec![seq.as_mut_ptr(); n];
        let mut counts = vec![1i32; n];
        let mut wanted = vec![i8::from(outputs == Outputs::All); n];
        if let (Outputs::Last, Some(last)) = (outputs, wanted.last_mut()) {
            *last = 1;
        }
        let (token, embd) = match rows {
            Rows::Tokens(t) => (t.as_ptr().cast_mut(), std::ptr::null_mut()),
            Rows::Embd(e, _) => (std::ptr::null_mut(), e.as_ptr().cast_mut()),
            Rows::Paired(t, e) => (t.as_ptr().cast_mut(), e.as_ptr().cast_mut()),
        };
        let batch = sys::llama_batch {
            n_tokens: n as i32,
            token,
            embd,
            pos: positions.as_mut_ptr(),
            n_seq_id: counts.as_mut_ptr(),
            seq_id: seqs.as_mut_ptr(),
            logits: wanted.as_mut_ptr(),
        };
        // Every array has `n` entries (positions 4 n) and outlives the call, which copies what it needs and
        // does not write through `token` or `embd`. Ids and row widths are checked by llama.cpp; the width of
        // a row is checked by `DFlash`, `Mtp`, `Eagle3` and `Assistant`, which know the draft.
        call(self.ctx.as_ptr(), batch)
    }

    /// Logits of row `i` of the last batch, if it was an output.
    pub(super) fn logits(&mut self, i: usize) -> Option<&[f32]> {
        // SAFETY: llama.cpp returns null or a row of `n_vocab` floats, valid until the next decode, which
        // needs `&mut self` again.
        unsafe {
            let p = sys::llama_get_logits_ith(self.ctx.as_ptr(), i as i32);
            (!p.is_null()).then(|| std::slice::from_raw_parts(p, self.n_vocab))
        }
    }

    /// Gives the vectors of tokens, too, from the next batch on.
    pub(super) fn give_vectors(&mut self) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed.
        unsafe { sys::llama_set_embeddings(self.ctx.as_ptr(), true) }
    }

    /// Vector of row `i` of the last batch, if it was an output: `n_embd` floats, behind the last norm.
    pub(super) fn vector(&mut self, i: usize, n_embd: usize) -> Option<&[f32]> {
        // SAFETY: without a pooling llama.cpp returns null or a row of the model's width, good until the next
        // decode, which needs `&mut self` again; the caller passes that width.
        unsafe {
            let p = sys::llama_get_embeddings_ith(self.ctx.as_ptr(), i as i32);
            (!p.is_null()).then(|| std::slice::from_raw_parts(p, n_embd))
        }
    }

    /// Scores of the text of sequence 0 in the last batch, one for each label; of a model with the pooling
    /// `rank`.
    pub(super) fn scores(&mut self, model: &RawModel) -> Option<&[f32]> {
        // SAFETY: the model is live. With the pooling `rank` llama.cpp returns null or a value for each label
        // of the context's model, which the caller passes, good until the next decode, which needs
        // `&mut self` again.
        unsafe {
            let labels = sys::llama_model_n_cls_out(model.0.as_ptr()) as usize;
            let ranks = sys::llama_pooling_type(self.ctx.as_ptr()) == sys::LLAMA_POOLING_TYPE_RANK;
            let p = sys::llama_get_embeddings_seq(self.ctx.as_ptr(), 0);
            (ranks && !p.is_null()).then(|| std::slice::from_raw_parts(p, labels))
        }
    }

    pub(super) fn synchronize(&mut self) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed.
        unsafe { sys::llama_synchronize(self.ctx.as_ptr()) }
    }

    pub(super) fn clear(&mut self) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed, and its memory
        // lives with it.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.ctx.as_ptr()), true) }
    }

    /// Forgets positions from `pos` on; false if the memory cannot.
    pub(super) fn forget_from(&mut self, pos: usize) -> bool {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed, and its memory
        // lives with it.
        unsafe { sys::llama_memory_seq_rm(sys::llama_get_memory(self.ctx.as_ptr()), 0, pos as i32, -1) }
    }

    /// Keep the inputs of a layer for `layer_input`.
    pub(super) fn tap_layer(&mut self, layer: u32) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed; llama.cpp checks
        // the layer's number.
        unsafe { llama_set_embeddings_layer_inp(self.ctx.as_ptr(), layer, true) }
    }

    /// Inputs of a tapped layer for the `rows` rows of the last batch, `n_embd` floats each.
    pub(super) fn layer_input(&mut self, layer: u32, rows: usize, n_embd: usize) -> Option<&[f32]> {
        // SAFETY: llama.cpp keeps one row of the target's width per token of the last batch, or returns null;
        // the caller passes that batch's size. Valid until the next decode, which needs `&mut self` again.
        unsafe {
            let p = llama_get_embeddings_layer_inp(self.ctx.as_ptr(), layer);
            (!p.is_null()).then(|| std::slice::from_raw_parts(p, rows * n_embd))
        }
    }

    /// Keep the rows that an MTP head reads: of all tokens, or of those whose logits are wanted.
    pub(super) fn keep_rows(&mut self, all: bool) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed; the call only
        // sets flags for the next graph.
        unsafe { llama_set_embeddings_nextn(self.ctx.as_ptr(), true, !all) }
    }

    /// The first `rows` of those that `keep_rows` asked for, `n_embd` floats each.
    pub(super) fn kept_rows(&mut self, rows: usize, n_embd: usize) -> Option<&[f32]> {
        // SAFETY: llama.cpp keeps one row of the model's width for each token of the last batch, or for each
        // output of it, or returns null; the caller passes at most that many. Valid until the next decode,
        // which needs `&mut self` again.
        unsafe {
            let p = llama_get_embeddings_nextn(self.ctx.as_ptr());
            (!p.is_null()).then(|| std::slice::from_raw_parts(p, rows * n_embd))
        }
    }

    /// Tokens of the next batches see those before them alone, or all of their batch.
    pub(super) fn set_causal(&mut self, is_causal: bool) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed; the call only
        // sets a flag for the next graph.
        unsafe { sys::llama_set_causal_attn(self.ctx.as_ptr(), is_causal) }
    }

    /// Attention inside a block sees both ways, and the context keeps what its heads read.
    pub(super) fn set_block_draft(&mut self, causal: bool) {
        // SAFETY: `self` keeps the context, which was made in `with_other` and is not freed; both calls only
        // set flags for the next graph.
        unsafe {
            llama_set_embeddings_nextn(self.ctx.as_ptr(), true, true);
            sys::llama_set_causal_attn(self.ctx.as_ptr(), causal);
        }
    }
}
