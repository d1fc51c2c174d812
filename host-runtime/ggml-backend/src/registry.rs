//! What the host sees: a registry with one device, and its backends.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

use hexflash::device::{self, DeviceInfo, session_limits};
use hexflash_abi::BufferId;

use crate::abi::{
    API_VERSION, Backend, BackendInterface, BufferType, Capabilities, DEVICE_TYPE_IGPU, Device,
    DeviceInterface, FLAG_COMPUTE, Graph, Properties, Registry, STATUS_FAILED, STATUS_SUCCESS, Tensor,
};
use crate::graph::HostGraph;
use crate::options::Options;
use crate::runtime::{Runtime, lock};
use crate::translate::{self, Place, Places};
use crate::{buffer, host, memory, runtime};

/// Everything that the host has pointers to, for as long as the process lives.
struct Tables {
    registry: Registry,
    device: Device,
    plain: BufferType,
    tiles: BufferType,
    /// Ends with null.
    extra: [*mut BufferType; 2],
    description: CString,
    options: Options,
    /// Most bytes of a buffer.
    largest: usize,
    /// Bytes that a session can map, where that is less than the machine has.
    limit: Option<u64>,
}

// SAFETY: the pointers in it lead to parts of the value itself, which is never moved or changed after
// `register` has made it.
unsafe impl Send for Tables {}
// SAFETY: nothing in it changes after `register` has made it.
unsafe impl Sync for Tables {}

static TABLES: OnceLock<&'static Tables> = OnceLock::new();

/// Runs what must not unwind into the host. A panic is a bug of ours: it is reported, and `otherwise` is the
/// answer.
pub fn guarded<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    // What is behind locks is whole whatever happened to their holders.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        host::report("a bug in hexflash's backend: the call was given up");
        otherwise
    })
}

/// The settings, once the backend is registered.
pub fn options() -> Option<&'static Options> {
    TABLES.get().map(|tables| &tables.options)
}

/// Most bytes of a buffer.
pub fn largest_buffer() -> usize {
    TABLES.get().map_or(usize::MAX, |tables| tables.largest)
}

/// The registry; made by the first call.
///
/// # Errors
/// In one line: the host is not one that this library fits, a variable is wrong, or the device cannot be
/// opened.
pub fn register() -> Result<*mut Registry, String> {
    if let Some(tables) = TABLES.get() {
        return Ok((&raw const tables.registry).cast_mut());
    }
    host::find()?;
    let options = Options::read(|name| std::env::var(name).ok())?;
    let limits = session_limits(&options.device, &options.settings).map_err(|error| error.to_string())?;
    // Opened to see that it can be, and to know what it is; and again when there is work.
    let device = device::open(&options.device, &options.settings).map_err(|error| error.to_string())?;
    let description = describe(device.info());
    drop(device);
    let largest = limits.map_or(usize::MAX, |limits| limits.mapping as usize);
    let limit = limits.map(|limits| limits.total);
    let tables = Box::leak(Box::new(Tables {
        registry: Registry {
            api_version: API_VERSION,
            get_name: registry_name,
            get_device_count: device_count,
            get_device: device_at,
            get_proc_address,
            context: std::ptr::null_mut(),
        },
        device: Device { iface: DEVICE, reg: std::ptr::null_mut(), context: std::ptr::null_mut() },
        plain: buffer_type(buffer::PLAIN),
        tiles: buffer_type(buffer::TILES),
        extra: [std::ptr::null_mut(); 2],
        description,
        options,
        largest,
        limit,
    }));
    let device = &raw mut tables.device;
    tables.device.reg = &raw mut tables.registry;
    (tables.plain.device, tables.tiles.device) = (device, device);
    tables.extra[0] = &raw mut tables.tiles;
    let tables = TABLES.get_or_init(|| tables);
    Ok((&raw const tables.registry).cast_mut())
}

const fn buffer_type(iface: crate::abi::BufferTypeInterface) -> BufferType {
    BufferType { iface, device: std::ptr::null_mut(), context: std::ptr::null_mut() }
}

fn describe(info: &DeviceInfo) -> CString {
    let text = format!("hexflash {}: {} ({} threads)", info.name, info.description, info.threads);
    CString::new(text).unwrap_or_default()
}

extern "C" fn registry_name(_: *const Registry) -> *const c_char {
    c"HEXFLASH".as_ptr()
}

extern "C" fn device_count(_: *const Registry) -> usize {
    1
}

extern "C" fn device_at(_: *const Registry, _: usize) -> *mut Device {
    TABLES.get().map_or(std::ptr::null_mut(), |tables| (&raw const tables.device).cast_mut())
}

/// # Safety
/// `name` is a string.
unsafe extern "C" fn get_proc_address(_: *const Registry, name: *const c_char) -> *mut c_void {
    // SAFETY: the contract is the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    if name == c"ggml_backend_dev_get_extra_bufts" {
        extra_buffer_types as extern "C" fn(*mut Device) -> *mut *mut BufferType as *mut c_void
    } else {
        std::ptr::null_mut()
    }
}

extern "C" fn extra_buffer_types(_: *mut Device) -> *mut *mut BufferType {
    TABLES.get().map_or(std::ptr::null_mut(), |tables| tables.extra.as_ptr().cast_mut())
}

const DEVICE: DeviceInterface = DeviceInterface {
    get_name: device_name,
    get_description,
    get_memory,
    get_type,
    get_props,
    init_backend,
    get_buffer_type,
    get_host_buffer_type: None,
    buffer_from_host_ptr: None,
    supports_op,
    supports_buft,
    offload_op: None,
    events: [None; 3],
};

extern "C" fn device_name(_: *const Device) -> *const c_char {
    c"HEXFLASH0".as_ptr()
}

extern "C" fn get_description(_: *const Device) -> *const c_char {
    TABLES.get().map_or(c"".as_ptr(), |tables| tables.description.as_ptr())
}

/// # Safety
/// Both pointers may be written.
unsafe extern "C" fn get_memory(_: *const Device, free: *mut usize, total: *mut usize) {
    let limit = TABLES.get().and_then(|tables| tables.limit).unwrap_or(u64::MAX);
    let [available, all] = guarded([0; 2], memory::of_machine).map(|bytes| bytes.min(limit) as usize);
    // SAFETY: the contract is the caller's.
    unsafe { (*free, *total) = (available, all) };
}

extern "C" fn get_type(_: *const Device) -> c_int {
    DEVICE_TYPE_IGPU
}

/// # Safety
/// `device` is ours, and `properties` may be written.
unsafe extern "C" fn get_props(device: *const Device, properties: *mut Properties) {
    let (mut memory_free, mut memory_total) = (0, 0);
    // SAFETY: both are local variables.
    unsafe { get_memory(device, &raw mut memory_free, &raw mut memory_total) };
    let (name, description) = (device_name(device), get_description(device));
    let (ty, device_id, caps) = (DEVICE_TYPE_IGPU, std::ptr::null(), Capabilities::default());
    let all = Properties { name, description, memory_free, memory_total, ty, device_id, caps };
    // SAFETY: the contract is the caller's.
    unsafe { properties.write(all) };
}

extern "C" fn get_buffer_type(_: *mut Device) -> *mut BufferType {
    TABLES.get().map_or(std::ptr::null_mut(), |tables| (&raw const tables.plain).cast_mut())
}

extern "C" fn supports_buft(_: *mut Device, ty: *mut BufferType) -> bool {
    TABLES
        .get()
        .is_some_and(|tables| [&raw const tables.plain, &raw const tables.tiles].contains(&ty.cast_const()))
}

/// # Safety
/// `node` is a tensor of the host's, which nobody changes meanwhile.
unsafe extern "C" fn supports_op(_: *mut Device, node: *const Tensor) -> bool {
    // SAFETY: the contract is the caller's.
    let Some(node) = (unsafe { node.as_ref() }) else { return false };
    guarded(false, || !writes_to_a_result(node) && translate::supports(node, &Pretended))
}

/// Whether a node that is to be computed writes into what another node computes, which may have its memory on
/// another device: the host copies what a node reads from there, and nothing back. (Graphs of llama.cpp have
/// such nodes besides, which are not computed; refused, they would be a part of the graph by themselves.)
fn writes_to_a_result(node: &Tensor) -> bool {
    node.flags & FLAG_COMPUTE != 0
        && !translate::is_view(node)
        && !node.view_src.is_null()
        && whole(node).op != 0
}

/// Places of tensors that may have no memory yet: a buffer of its own for each that is no view.
struct Pretended;

/// The tensor whose memory a tensor is in.
fn whole(tensor: &Tensor) -> &Tensor {
    // SAFETY: a view's tensor exists as long as the view, and is null for tensors that are no views.
    unsafe { tensor.view_src.as_ref() }.unwrap_or(tensor)
}

impl Places for Pretended {
    fn place(&self, tensor: &Tensor) -> Option<Place> {
        let tables = TABLES.get()?;
        let whole = whole(tensor);
        // SAFETY: buffers exist as long as their tensors, and are null where there is no memory yet.
        let ty = unsafe { whole.buffer.as_ref() }.map(|buffer| buffer.buft.cast_const());
        Some(Place {
            // A name, no more: no two tensors are closer than 16 bytes, or 64 GiB apart.
            buffer: BufferId((std::ptr::from_ref(whole) as usize / 16) as u32),
            offset: tensor.view_offs as u64,
            tiled: ty == Some(&raw const tables.tiles),
        })
    }

    /// What has memory already are weights of a model, which have buffers of tiles to be in, and caches. What
    /// has none is a test's, or will be an input.
    fn packs_each_time(&self, matrix: &Tensor) -> bool {
        whole(matrix).buffer.is_null()
    }
}

/// A stream of graphs.
struct Context {
    runtime: Arc<Mutex<Runtime>>,
}

/// Tells our backends from others.
static GUID: [u8; 16] = *b"hexflash backend";

const BACKEND: BackendInterface = BackendInterface {
    get_name: backend_name,
    free: free_backend,
    asynchronous: [None; 6],
    plans: [None; 4],
    graph_compute,
    events: [None; 3],
};

extern "C" fn backend_name(_: *const Backend) -> *const c_char {
    c"HEXFLASH0".as_ptr()
}

extern "C" fn init_backend(device: *mut Device, _: *const c_char) -> *mut Backend {
    let opened = guarded(None, || options().map(runtime::open));
    match opened {
        Some(Ok(runtime)) => {
            let context = Box::into_raw(Box::new(Context { runtime })).cast();
            Box::into_raw(Box::new(Backend { guid: &GUID, iface: BACKEND, device, context }))
        }
        Some(Err(error)) => {
            host::report(error);
            std::ptr::null_mut()
        }
        None => std::ptr::null_mut(),
    }
}

/// # Safety
/// `backend` is one of [`init_backend`], and this is the last call for it.
unsafe extern "C" fn free_backend(backend: *mut Backend) {
    guarded((), || {
        // SAFETY: `init_backend` has made both by `Box::into_raw`, and the host calls this once.
        let context = unsafe { Box::from_raw(Box::from_raw(backend).context.cast::<Context>()) };
        if options().is_some_and(|options| options.times) {
            host::tell(lock(&context.runtime).times());
        }
    });
}

/// # Safety
/// `backend` is one of [`init_backend`]; `graph` is a graph of the host's, which nobody changes meanwhile.
unsafe extern "C" fn graph_compute(backend: *mut Backend, graph: *mut Graph) -> c_int {
    // SAFETY: `init_backend` has put a `Context` there, which lives until `free_backend`.
    let context = unsafe { &*(*backend).context.cast::<Context>() };
    guarded(STATUS_FAILED, || {
        // SAFETY: the contract is the caller's.
        let graph = unsafe { HostGraph::new(&*graph) };
        match lock(&context.runtime).compute(graph) {
            Ok(()) => STATUS_SUCCESS,
            Err(failure) => {
                host::report(failure);
                STATUS_FAILED
            }
        }
    })
}
