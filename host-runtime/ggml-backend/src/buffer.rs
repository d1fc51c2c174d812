//! Buffers: memory that host and device share.
//!
//! There are two types. Buffers of the first hold tensors as ggml has them, and the host uses them in place,
//! so that ops which do not run here run on the CPU without a copy. Those of the second hold weights of
//! products in tiles, and nothing else; llama.cpp finds them among the "extra" buffer types.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

use hexflash::device::SharedMemory;

use crate::abi::{Buffer, BufferInterface, BufferType, BufferTypeInterface, Tensor};
use crate::registry::{self, TypeOfBuffer, guarded};
use crate::runtime::{Runtime, lock};
use crate::tiles::Tiled;
use crate::translate::{operand_type, tile_bytes};
use crate::{host, runtime};

/// Alignment of tensors: a vector.
const ALIGNMENT: usize = hexflash_abi::VECTOR_BYTES;

/// What a buffer of ours is.
struct Context {
    runtime: Arc<Mutex<Runtime>>,
    memory: SharedMemory,
    tiled: bool,
}

impl Drop for Context {
    fn drop(&mut self) {
        lock(&self.runtime).free(&self.memory);
    }
}

/// The functions of the type that holds tensors as they are.
pub const PLAIN: BufferTypeInterface = BufferTypeInterface {
    get_name,
    alloc_buffer,
    alloc_buffer_n: None,
    get_alignment,
    get_max_size,
    get_alloc_size: plain_size,
    get_alloc_size_n: None,
    is_host: plain_is_host,
};

/// The functions of the type that holds weights in tiles.
pub const TILES: BufferTypeInterface =
    BufferTypeInterface { get_alloc_size: tiles_size, is_host: tiles_is_host, ..PLAIN };

const INTERFACE: BufferInterface = BufferInterface {
    free_buffer,
    get_base,
    init_tensor: None,
    memset_tensor,
    set_tensor,
    get_tensor,
    set_tensor_2d: None,
    get_tensor_2d: None,
    cpy_tensor: None,
    clear,
    reset: None,
};

extern "C" fn get_name(ty: *const BufferType) -> *const c_char {
    registry::buffer_name(ty)
}

extern "C" fn get_alignment(_: *const BufferType) -> usize {
    ALIGNMENT
}

extern "C" fn get_max_size(_: *const BufferType) -> usize {
    registry::largest_buffer()
}

extern "C" fn plain_is_host(_: *const BufferType) -> bool {
    true
}

extern "C" fn tiles_is_host(_: *const BufferType) -> bool {
    false
}

unsafe extern "C" fn plain_size(_: *const BufferType, tensor: *const Tensor) -> usize {
    // SAFETY: ggml hands over a tensor.
    unsafe { tensor.as_ref() }.map_or(0, bytes_of)
}

unsafe extern "C" fn tiles_size(_: *const BufferType, tensor: *const Tensor) -> usize {
    // SAFETY: ggml hands over a tensor.
    let Some(tensor) = (unsafe { tensor.as_ref() }) else { return 0 };
    tile_bytes(tensor).map_or_else(|_| bytes_of(tensor), |bytes| bytes as usize)
}

/// Bytes of a tensor as ggml has it: from the first to one past the last.
fn bytes_of(tensor: &Tensor) -> usize {
    if tensor.ne.iter().any(|&n| n <= 0) {
        return 0;
    }
    let reach = |axis: usize| (tensor.ne[axis] as usize - 1).saturating_mul(tensor.nb[axis]);
    // A type that is not known has no blocks here: its rows are as long as their stride.
    let row = match operand_type(tensor) {
        Some(ty) if ty.block_len() > 1 => tensor.ne[0] as usize / ty.block_len() as usize * tensor.nb[0],
        Some(ty) => reach(0) + ty.block_bytes() as usize,
        None => tensor.nb[1],
    };
    (1..4).map(reach).fold(row, usize::saturating_add)
}

/// # Safety
/// `ty` is one of our types.
unsafe extern "C" fn alloc_buffer(ty: *mut BufferType, bytes: usize) -> *mut Buffer {
    let Some(TypeOfBuffer { session, tiled }) = registry::type_of_buffer(ty) else {
        return std::ptr::null_mut();
    };
    let allocated = guarded(None, || {
        let options = registry::options()?;
        let allocate = || {
            let runtime = runtime::open(options, session)?;
            let buffer = lock(&runtime).allocate(bytes, tiled)?;
            Ok::<_, hexflash::device::DeviceError>((runtime, buffer))
        };
        match allocate() {
            Ok((runtime, buffer)) => Some(Box::new(Context { runtime, memory: buffer.memory, tiled })),
            Err(error) => {
                host::report(error);
                None
            }
        }
    });
    let Some(context) = allocated else { return std::ptr::null_mut() };
    let context = Box::into_raw(context);
    // SAFETY: the context is what the functions of `INTERFACE` expect; the rest is the caller's contract.
    let buffer = unsafe { host::new_buffer(ty, INTERFACE, context.cast(), bytes) };
    if buffer.is_null() {
        // SAFETY: it was made above, and nobody has it.
        drop(unsafe { Box::from_raw(context) });
    }
    buffer
}

/// The context of a buffer of ours.
///
/// # Safety
/// ggml hands over a buffer with [`INTERFACE`], which is not being freed.
unsafe fn context<'b>(buffer: *mut Buffer) -> &'b Context {
    // SAFETY: `alloc` has put a `Context` there, which lives until `free_buffer`.
    unsafe { &*(*buffer).context.cast::<Context>() }
}

/// # Safety
/// As for [`context`], and this is the last call for the buffer.
unsafe extern "C" fn free_buffer(buffer: *mut Buffer) {
    guarded((), || {
        // SAFETY: `alloc` has made the context by `Box::into_raw`, and the host calls this once.
        drop(unsafe { Box::from_raw((*buffer).context.cast::<Context>()) });
    });
}

/// # Safety
/// As for [`context`].
unsafe extern "C" fn get_base(buffer: *mut Buffer) -> *mut c_void {
    // SAFETY: the contract is the caller's.
    unsafe { context(buffer) }.memory.base().as_ptr().cast()
}

/// # Safety
/// As for [`context`].
unsafe extern "C" fn clear(buffer: *mut Buffer, value: u8) {
    // SAFETY: the contract is the caller's.
    let memory = &unsafe { context(buffer) }.memory;
    guarded((), || fill(memory, 0, memory.len(), value));
}

/// Writes the same byte many times.
fn fill(memory: &SharedMemory, offset: usize, bytes: usize, value: u8) {
    let part = vec![value; bytes.min(1 << 20)];
    let mut done = 0;
    while done < bytes {
        let next = part.len().min(bytes - done);
        memory.write(offset + done, &part[..next]);
        done += next;
    }
}

/// Where a tensor's bytes are.
enum Home {
    /// In memory as they are, from here on.
    Plain(usize),
    /// In tiles; the bytes of a view begin after so many of its tensor's.
    Tiles(Tiled, usize),
}

/// The home of a tensor of a buffer.
fn home(context: &Context, tensor: &Tensor) -> Option<Home> {
    let base = context.memory.base().as_ptr() as usize;
    if !context.tiled {
        return (tensor.data as usize).checked_sub(base).map(Home::Plain);
    }
    // SAFETY: a view's tensor exists as long as the view, and is null for tensors that are no views.
    let whole = unsafe { tensor.view_src.as_ref() }.unwrap_or(tensor);
    let offset = if tensor.view_src.is_null() { 0 } else { tensor.view_offs };
    let at = (whole.data as usize).checked_sub(base)?;
    let [k, n] = [whole.ne[0], whole.ne[1]].map(|n| n as usize);
    Some(Home::Tiles(Tiled { ty: operand_type(whole)?, k, n, at }, offset))
}

/// # Safety
/// As for [`context`]; the tensor is in the buffer, and has these bytes.
unsafe extern "C" fn memset_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    value: u8,
    offset: usize,
    bytes: usize,
) {
    // SAFETY: the contract is the caller's.
    let (context, tensor) = unsafe { (context(buffer), &*tensor) };
    guarded((), || match home(context, tensor) {
        Some(Home::Plain(at)) => fill(&context.memory, at + offset, bytes, value),
        Some(Home::Tiles(tiled, at)) => {
            tiled.write(&context.memory, at + offset, &vec![value; bytes]);
        }
        None => {}
    });
}

/// # Safety
/// As for [`context`]; the tensor is in the buffer and has these bytes, and so has `data`.
unsafe extern "C" fn set_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    data: *const c_void,
    offset: usize,
    bytes: usize,
) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the contract is the caller's.
    let (context, tensor) = unsafe { (context(buffer), &*tensor) };
    // A copy: hosts hand over tensors in buffers of ours, too, and parts of one and the same.
    let mut copy = vec![0; if is_in(context, data, bytes) { bytes } else { 0 }];
    let data = if copy.is_empty() {
        // SAFETY: `data` has so many bytes (the caller's contract), which are in no memory of this buffer.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) }
    } else {
        // SAFETY: `data` has so many bytes (the caller's contract), and so has `copy`, which is new.
        unsafe { std::ptr::copy_nonoverlapping(data.cast(), copy.as_mut_ptr(), bytes) };
        &copy
    };
    guarded((), || match home(context, tensor) {
        Some(Home::Plain(at)) => context.memory.write(at + offset, data),
        Some(Home::Tiles(tiled, at)) => tiled.write(&context.memory, at + offset, data),
        None => {}
    });
}

/// Whether any of these bytes are in a buffer's own memory.
fn is_in(context: &Context, data: *const c_void, bytes: usize) -> bool {
    let (data, base) = (data as usize, context.memory.base().as_ptr() as usize);
    data < base + context.memory.len() && base < data + bytes
}

/// # Safety
/// As for [`context`]; the tensor is in the buffer and has these bytes, and so has `data`, which nobody else
/// uses.
unsafe extern "C" fn get_tensor(
    buffer: *mut Buffer,
    tensor: *const Tensor,
    data: *mut c_void,
    offset: usize,
    bytes: usize,
) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the contract is the caller's.
    let (context, tensor) = unsafe { (context(buffer), &*tensor) };
    let read = |out: &mut [u8]| match home(context, tensor) {
        Some(Home::Plain(at)) => context.memory.read(at + offset, out),
        Some(Home::Tiles(tiled, at)) => tiled.read(&context.memory, at + offset, out),
        None => {}
    };
    guarded((), || {
        if is_in(context, data, bytes) {
            let mut copy = vec![0; bytes];
            read(&mut copy);
            // SAFETY: `data` has room for so many bytes (the caller's contract), and `copy` has as many and
            // is new.
            unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr(), data.cast(), bytes) };
        } else {
            // SAFETY: `data` has room for so many bytes, which nobody else uses (the caller's contract), and
            // which are in no memory of this buffer.
            read(unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes) });
        }
    });
}
