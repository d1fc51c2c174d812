//! What the host sees: a registry with a device for each session, and their backends.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

use hexflash::device::{DeviceInfo, MatrixUnit, session_limits};
use hexflash_abi::BufferId;
use hexflash_abi::program::Numerics;

use crate::abi::{
    ApiVersion, Backend, BackendInterface, BufferType, BufferType2, BufferTypeInterface, Capabilities,
    DEVICE_TYPE_IGPU, Device, DeviceInterface, FLAG_COMPUTE, Graph, Properties, Registry, STATUS_FAILED,
    STATUS_SUCCESS, Tensor,
};
use crate::graph::HostGraph;
use crate::options::Options;
use crate::runtime::{Runtime, lock};
use crate::translate::{self, Place, Places};
use crate::{buffer, host, memory, runtime};

/// Everything that the host has pointers to, for as long as the process lives.
struct Tables {
    registry: Registry,
    /// One for each session.
    devices: Vec<Entry>,
    description: CString,
    options: Options,
    /// Most bytes of a buffer.
    largest: usize,
    /// Bytes that a session can map, where that is less than the machine has.
    limit: Option<u64>,
}

/// A device, and its types of buffers. What the device has as context is the number of the session.
struct Entry {
    device: Device,
    plain: TypeTable,
    tiles: TypeTable,
    /// Ends with null.
    extra: [*mut BufferType; 2],
    name: CString,
    name_of_tiles: CString,
}

/// A type of buffers as each version of the interface has it.
struct TypeTable {
    version: ApiVersion,
    two: BufferType2,
    three: BufferType,
}

impl TypeTable {
    /// A type with these functions; its device comes later.
    const fn new(version: ApiVersion, iface: BufferTypeInterface) -> Self {
        let (device, context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let two = BufferType2 { iface: iface.version_2(), device, context };
        Self { version, two, three: BufferType { iface, device, context } }
    }

    /// What the host has of it.
    const fn handed_out(&self) -> *const BufferType {
        match self.version {
            ApiVersion::Two => (&raw const self.two).cast(),
            ApiVersion::Three => &raw const self.three,
        }
    }
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
    let version = host::find()?;
    let options = Options::read(|name| std::env::var(name).ok())?;
    let limits = session_limits(&options.device, &options.settings).map_err(|error| error.to_string())?;
    // Opened to see that they can be, and to know what they are; and again when there is work.
    let opened = (0..options.sessions).map(|session| runtime::open_session(&options, session));
    let opened = opened.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let description = opened.first().map_or_else(CString::default, |device| describe(device.info()));
    if options.numerics.wants_matrix_unit() {
        let unit = opened.first().map_or(MatrixUnit::None, |device| device.info().matrix_unit);
        check_matrix_unit(unit, options.numerics)?;
    }
    drop(opened);
    let largest = limits.map_or(usize::MAX, |limits| limits.mapping as usize);
    let limit = limits.map(|limits| limits.total);
    let tables = Box::leak(Box::new(Tables {
        registry: Registry {
            api_version: version as c_int,
            get_name: registry_name,
            get_device_count: device_count,
            get_device: device_at,
            get_proc_address,
            context: std::ptr::null_mut(),
        },
        devices: (0..options.sessions).map(|session| entry(version, session)).collect(),
        description,
        options,
        largest,
        limit,
    }));
    let registry = &raw mut tables.registry;
    for entry in &mut tables.devices {
        let device = &raw mut entry.device;
        entry.device.reg = registry;
        for table in [&mut entry.plain, &mut entry.tiles] {
            (table.two.device, table.three.device) = (device, device);
        }
        entry.extra[0] = entry.tiles.handed_out().cast_mut();
    }
    let tables = TABLES.get_or_init(|| tables);
    Ok((&raw const tables.registry).cast_mut())
}

/// Tells of a matrix unit that cannot be used.
///
/// # Errors
/// The device lends none.
fn check_matrix_unit(unit: MatrixUnit, numerics: Numerics) -> Result<(), String> {
    match unit {
        MatrixUnit::Works => Ok(()),
        MatrixUnit::Failed => {
            host::tell("the device's matrix unit (HMX) failed its test: HEXFLASH_NUMERICS is exact");
            Ok(())
        }
        MatrixUnit::None => {
            let name = numerics.name();
            Err(format!(
                "HEXFLASH_NUMERICS is {name}, but the device lends no matrix unit (HMX): it must be exact"
            ))
        }
    }
}

/// The device of a session; what leads to other parts of the tables is null yet.
fn entry(version: ApiVersion, session: usize) -> Entry {
    let context = std::ptr::without_provenance_mut(session);
    let name = |end: &str| CString::new(format!("HEXFLASH{session}{end}")).unwrap_or_default();
    Entry {
        device: Device { iface: DEVICE, reg: std::ptr::null_mut(), context },
        plain: TypeTable::new(version, buffer::PLAIN),
        tiles: TypeTable::new(version, buffer::TILES),
        extra: [std::ptr::null_mut(); 2],
        name: name(""),
        name_of_tiles: name("_TILES"),
    }
}

/// The entry of a session, which its device and types of buffers have as context.
fn entry_of(context: *mut c_void) -> Option<&'static Entry> {
    TABLES.get()?.devices.get(context as usize)
}

/// The entry of a device.
///
/// # Safety
/// It is one of ours.
unsafe fn entry_of_device(device: *const Device) -> Option<&'static Entry> {
    // SAFETY: one of ours (the caller's contract), which stay as long as the process lives.
    entry_of(unsafe { (*device).context })
}

/// A type of buffers: of which session, and whether they hold weights in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeOfBuffer {
    /// Number of the session.
    pub session: usize,
    /// Whether it holds weights in tiles.
    pub tiled: bool,
}

/// The type that the host knows by a pointer; `None` if it is none of ours.
pub fn type_of_buffer(ty: *const BufferType) -> Option<TypeOfBuffer> {
    let devices = TABLES.get()?.devices.iter().enumerate();
    let mut all = devices.flat_map(|(session, entry)| {
        [(&entry.plain, false), (&entry.tiles, true)].map(|(table, tiled)| (table, session, tiled))
    });
    let (_, session, tiled) = all.find(|(table, ..)| table.handed_out() == ty)?;
    Some(TypeOfBuffer { session, tiled })
}

/// The name of a type of buffers.
pub fn buffer_name(ty: *const BufferType) -> *const c_char {
    let entry = |ty: TypeOfBuffer| Some((TABLES.get()?.devices.get(ty.session)?, ty.tiled));
    match type_of_buffer(ty).and_then(entry) {
        Some((entry, false)) => entry.name.as_ptr(),
        Some((entry, true)) => entry.name_of_tiles.as_ptr(),
        None => c"".as_ptr(),
    }
}

fn describe(info: &DeviceInfo) -> CString {
    let text = format!("hexflash {}: {} ({} threads)", info.name, info.description, info.threads);
    CString::new(text).unwrap_or_default()
}

extern "C" fn registry_name(_: *const Registry) -> *const c_char {
    c"HEXFLASH".as_ptr()
}

extern "C" fn device_count(_: *const Registry) -> usize {
    TABLES.get().map_or(0, |tables| tables.devices.len())
}

extern "C" fn device_at(_: *const Registry, number: usize) -> *mut Device {
    let entry = TABLES.get().and_then(|tables| tables.devices.get(number));
    entry.map_or(std::ptr::null_mut(), |entry| (&raw const entry.device).cast_mut())
}

/// # Safety
/// `name` is a string.
unsafe extern "C" fn get_proc_address(_: *const Registry, name: *const c_char) -> *mut c_void {
    // SAFETY: the contract is the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    if name == c"ggml_backend_dev_get_extra_bufts" {
        extra_buffer_types as unsafe extern "C" fn(*mut Device) -> *mut *mut BufferType as *mut c_void
    } else {
        std::ptr::null_mut()
    }
}

/// # Safety
/// The device is ours.
unsafe extern "C" fn extra_buffer_types(device: *mut Device) -> *mut *mut BufferType {
    // SAFETY: the contract is the caller's.
    let entry = unsafe { entry_of_device(device) };
    entry.map_or(std::ptr::null_mut(), |entry| entry.extra.as_ptr().cast_mut())
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

/// # Safety
/// The device is ours.
unsafe extern "C" fn device_name(device: *const Device) -> *const c_char {
    // SAFETY: the contract is the caller's.
    unsafe { entry_of_device(device) }.map_or(c"".as_ptr(), |entry| entry.name.as_ptr())
}

extern "C" fn get_description(_: *const Device) -> *const c_char {
    TABLES.get().map_or(c"".as_ptr(), |tables| tables.description.as_ptr())
}

/// # Safety
/// Both pointers may be written.
unsafe extern "C" fn get_memory(_: *const Device, free: *mut usize, total: *mut usize) {
    let tables = TABLES.get();
    let limit = tables.and_then(|tables| tables.limit).unwrap_or(u64::MAX);
    // The machine's memory is that of all sessions together.
    let sessions = tables.map_or(1, |tables| tables.devices.len()) as u64;
    let [available, all] =
        guarded([0; 2], memory::of_machine).map(|bytes| (bytes / sessions).min(limit) as usize);
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
    // SAFETY: the contract is the caller's.
    let name = unsafe { device_name(device) };
    let description = get_description(device);
    let (ty, device_id, caps) = (DEVICE_TYPE_IGPU, std::ptr::null(), Capabilities::default());
    let all = Properties { name, description, memory_free, memory_total, ty, device_id, caps };
    // SAFETY: the contract is the caller's.
    unsafe { properties.write(all) };
}

/// # Safety
/// The device is ours.
unsafe extern "C" fn get_buffer_type(device: *mut Device) -> *mut BufferType {
    // SAFETY: the contract is the caller's.
    let entry = unsafe { entry_of_device(device) };
    entry.map_or(std::ptr::null_mut(), |entry| entry.plain.handed_out().cast_mut())
}

/// # Safety
/// The device is ours.
unsafe extern "C" fn supports_buft(device: *mut Device, ty: *mut BufferType) -> bool {
    // SAFETY: the contract is the caller's.
    let entry = unsafe { entry_of_device(device) };
    entry.is_some_and(|entry| [&entry.plain, &entry.tiles].iter().any(|table| table.handed_out() == ty))
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
        let whole = whole(tensor);
        // SAFETY: buffers exist as long as their tensors, and are null where there is no memory yet.
        let ty = unsafe { whole.buffer.as_ref() }.and_then(|buffer| type_of_buffer(buffer.buft));
        Some(Place {
            // A name, no more: no two tensors are closer than 16 bytes, or 64 GiB apart.
            buffer: BufferId((std::ptr::from_ref(whole) as usize / 16) as u32),
            offset: tensor.view_offs as u64,
            tiled: ty.is_some_and(|ty| ty.tiled),
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

/// # Safety
/// The backend is ours.
unsafe extern "C" fn backend_name(backend: *const Backend) -> *const c_char {
    // SAFETY: `init_backend` has made it, for one of our devices.
    unsafe { device_name((*backend).device) }
}

/// # Safety
/// The device is ours.
unsafe extern "C" fn init_backend(device: *mut Device, _: *const c_char) -> *mut Backend {
    // SAFETY: the contract is the caller's.
    let session = unsafe { (*device).context } as usize;
    let opened = guarded(None, || options().map(|options| runtime::open(options, session)));
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
