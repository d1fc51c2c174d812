//! ggml's backend interface, version 3, as C lays it out on 64-bit systems; and what differs in version 2.
//!
//! Nothing of ggml is needed to build this. The sizes and offsets below were compared with a C program that
//! was compiled from ggml's headers, those of version 3; version 2 was tried with ggml 0.25.1.
//! [`crate::host`] compares the numbers of ops and types with those of the ggml that loads the library.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// The versions of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    /// Of ggml 0.25.
    Two = 2,
    /// Of ggml 0.26 and 0.27.
    Three = 3,
}

/// Axes of a tensor.
pub const DIMS: usize = 4;
/// Words of an op's parameters.
pub const PARAMS: usize = 16;
/// Most sources of an op.
pub const SOURCES: usize = 10;

/// `GGML_TENSOR_FLAG_OUTPUT`: somebody reads it when the graph is computed.
pub const FLAG_OUTPUT: i32 = 2;
/// `GGML_TENSOR_FLAG_COMPUTE`: a node that is to be computed.
pub const FLAG_COMPUTE: i32 = 16;

/// A place in a table for a function that this backend does not have.
pub type Absent = Option<unsafe extern "C" fn()>;

/// `ggml_tensor`.
#[repr(C)]
pub struct Tensor {
    /// `ggml_type`.
    pub ty: c_int,
    /// `ggml_backend_buffer`, or null before there is memory.
    pub buffer: *mut Buffer,
    /// Elements per axis.
    pub ne: [i64; DIMS],
    /// Bytes per step along an axis; of a block type, `nb[0]` is that of a block.
    pub nb: [usize; DIMS],
    /// `ggml_op`.
    pub op: c_int,
    /// Parameters of the op.
    pub op_params: [i32; PARAMS],
    /// Flags, such as "is an output".
    pub flags: i32,
    /// What the op reads.
    pub src: [*mut Tensor; SOURCES],
    /// The tensor whose memory this one shares, or null.
    pub view_src: *mut Tensor,
    /// Bytes from there.
    pub view_offs: usize,
    /// Its memory, or null.
    pub data: *mut c_void,
    /// Its name, for people.
    pub name: [c_char; 64],
    /// Unused here.
    pub extra: *mut c_void,
    /// Unused.
    pub padding: [u8; 8],
}
const _: () = assert!(size_of::<Tensor>() == 336 && offset_of!(Tensor, op) == 80);
const _: () = assert!(offset_of!(Tensor, op_params) == 84 && offset_of!(Tensor, flags) == 148);
const _: () = assert!(offset_of!(Tensor, src) == 152 && offset_of!(Tensor, view_src) == 232);
const _: () = assert!(offset_of!(Tensor, view_offs) == 240 && offset_of!(Tensor, data) == 248);
const _: () = assert!(offset_of!(Tensor, name) == 256 && offset_of!(Tensor, extra) == 320);

/// `ggml_hash_set`: tensors, by hash.
#[repr(C)]
pub struct TensorSet {
    /// Number of slots.
    pub size: usize,
    /// A bit per slot: whether it has a tensor.
    pub used: *const u32,
    /// The tensors, of slots that have one.
    pub keys: *const *const Tensor,
}

/// `ggml_cgraph`.
#[repr(C)]
pub struct Graph {
    /// Room for nodes.
    pub size: c_int,
    /// Number of nodes.
    pub n_nodes: c_int,
    /// Number of leafs.
    pub n_leafs: c_int,
    /// The nodes, in the order in which they are computed.
    pub nodes: *mut *mut Tensor,
    /// Unused here: gradients, their sums, and leafs.
    pub others: [*mut c_void; 3],
    /// How often each tensor is a source, by its slot in the set. A graph that is part of another has the
    /// other's counts.
    pub use_counts: *const i32,
    /// The tensors of the graph, or of the one that it is part of.
    pub visited: TensorSet,
    /// Order in which the host has walked it.
    pub order: c_int,
    /// Not 0: equal for graphs that are equal in all but their data.
    pub uid: u64,
}
const _: () = assert!(offset_of!(Graph, n_nodes) == 4 && offset_of!(Graph, nodes) == 16);
const _: () = assert!(offset_of!(Graph, use_counts) == 48 && offset_of!(Graph, visited) == 56);
const _: () = assert!(offset_of!(Graph, uid) == 88 && size_of::<Graph>() == 96);

/// `ggml_backend_buffer_type_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferTypeInterface {
    /// Its name.
    pub get_name: unsafe extern "C" fn(*const BufferType) -> *const c_char,
    /// Memory of so many bytes; null if there is none.
    pub alloc_buffer: unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer,
    /// Absent.
    pub alloc_buffer_n: Absent,
    /// Alignment of tensors.
    pub get_alignment: unsafe extern "C" fn(*const BufferType) -> usize,
    /// Most bytes of a buffer.
    pub get_max_size: unsafe extern "C" fn(*const BufferType) -> usize,
    /// Bytes that a tensor takes.
    pub get_alloc_size: unsafe extern "C" fn(*const BufferType, *const Tensor) -> usize,
    /// Absent.
    pub get_alloc_size_n: Absent,
    /// Whether the host may use tensors in place.
    pub is_host: unsafe extern "C" fn(*const BufferType) -> bool,
}
const _: () = assert!(size_of::<BufferTypeInterface>() == 64);

/// `ggml_backend_buffer_type_i` in version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferTypeInterface2 {
    /// As in version 3.
    pub get_name: unsafe extern "C" fn(*const BufferType) -> *const c_char,
    /// As in version 3.
    pub alloc_buffer: unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer,
    /// As in version 3.
    pub get_alignment: unsafe extern "C" fn(*const BufferType) -> usize,
    /// As in version 3.
    pub get_max_size: unsafe extern "C" fn(*const BufferType) -> usize,
    /// As in version 3.
    pub get_alloc_size: unsafe extern "C" fn(*const BufferType, *const Tensor) -> usize,
    /// As in version 3.
    pub is_host: unsafe extern "C" fn(*const BufferType) -> bool,
}
const _: () = assert!(size_of::<BufferTypeInterface2>() == 48);

impl BufferTypeInterface {
    /// The same for version 2.
    pub const fn version_2(&self) -> BufferTypeInterface2 {
        let Self { get_name, alloc_buffer, get_alignment, get_max_size, get_alloc_size, is_host, .. } = *self;
        BufferTypeInterface2 { get_name, alloc_buffer, get_alignment, get_max_size, get_alloc_size, is_host }
    }
}

/// `ggml_backend_buffer_type`; in version 2 it is a [`BufferType2`]. Pointers to it are names here: what a
/// function is asked for is found by the address, never by what lies there.
#[repr(C)]
pub struct BufferType {
    /// Its functions.
    pub iface: BufferTypeInterface,
    /// Whose it is.
    pub device: *mut Device,
    /// Unused here.
    pub context: *mut c_void,
}
const _: () = assert!(size_of::<BufferType>() == 80);

/// `ggml_backend_buffer_type` in version 2.
#[repr(C)]
pub struct BufferType2 {
    /// Its functions.
    pub iface: BufferTypeInterface2,
    /// Whose it is.
    pub device: *mut Device,
    /// Unused here.
    pub context: *mut c_void,
}
const _: () = assert!(size_of::<BufferType2>() == 64);

/// `ggml_backend_buffer_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferInterface {
    /// Frees it.
    pub free_buffer: unsafe extern "C" fn(*mut Buffer),
    /// Its first byte.
    pub get_base: unsafe extern "C" fn(*mut Buffer) -> *mut c_void,
    /// Absent.
    pub init_tensor: Absent,
    /// Fills part of a tensor.
    pub memset_tensor: unsafe extern "C" fn(*mut Buffer, *mut Tensor, u8, usize, usize),
    /// Writes part of a tensor.
    pub set_tensor: unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize),
    /// Reads part of a tensor.
    pub get_tensor: unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut c_void, usize, usize),
    /// Absent.
    pub set_tensor_2d: Absent,
    /// Absent.
    pub get_tensor_2d: Absent,
    /// Absent.
    pub cpy_tensor: Absent,
    /// Fills all of it.
    pub clear: unsafe extern "C" fn(*mut Buffer, u8),
    /// Absent.
    pub reset: Absent,
}
const _: () = assert!(size_of::<BufferInterface>() == 88);

/// `ggml_backend_buffer`.
#[repr(C)]
pub struct Buffer {
    /// Its functions.
    pub iface: BufferInterface,
    /// Its type.
    pub buft: *mut BufferType,
    /// Ours: see [`crate::buffer`].
    pub context: *mut c_void,
    /// Bytes.
    pub size: usize,
    /// What it is used for.
    pub usage: c_int,
}
const _: () = assert!(size_of::<Buffer>() == 120 && offset_of!(Buffer, buft) == 88);

/// `ggml_backend_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BackendInterface {
    /// Its name.
    pub get_name: unsafe extern "C" fn(*const Backend) -> *const c_char,
    /// Frees it.
    pub free: unsafe extern "C" fn(*mut Backend),
    /// Absent: copies, and waiting for them. Everything here is done when a call returns.
    pub asynchronous: [Absent; 6],
    /// Absent: plans.
    pub plans: [Absent; 4],
    /// Computes a graph.
    pub graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
    /// Absent: events, and another order of a graph's nodes.
    pub events: [Absent; 3],
}
const _: () = assert!(size_of::<BackendInterface>() == 128);

/// `ggml_backend`.
#[repr(C)]
pub struct Backend {
    /// Tells backends apart.
    pub guid: *const [u8; 16],
    /// Its functions.
    pub iface: BackendInterface,
    /// Where it computes.
    pub device: *mut Device,
    /// Ours.
    pub context: *mut c_void,
}
const _: () = assert!(size_of::<Backend>() == 152);

/// `ggml_backend_dev_caps`: what a device can do beyond the least.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Capabilities {
    /// Computes while the host goes on.
    pub is_asynchronous: bool,
    /// Has memory of the host's that is faster.
    pub host_buffer: bool,
    /// Uses memory that the host has.
    pub buffer_from_host_ptr: bool,
    /// Has events.
    pub events: bool,
    /// Loads from mapped files.
    pub mmap_support: bool,
}

/// `ggml_backend_dev_props`.
#[repr(C)]
pub struct Properties {
    /// Name.
    pub name: *const c_char,
    /// Description.
    pub description: *const c_char,
    /// Bytes that are free.
    pub memory_free: usize,
    /// Bytes.
    pub memory_total: usize,
    /// `ggml_backend_dev_type`.
    pub ty: c_int,
    /// Its place on a bus; null.
    pub device_id: *const c_char,
    /// What it can do.
    pub caps: Capabilities,
}

/// `GGML_BACKEND_DEVICE_TYPE_IGPU`: a device that uses the host's memory.
pub const DEVICE_TYPE_IGPU: c_int = 2;

/// `ggml_backend_device_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceInterface {
    /// Name.
    pub get_name: unsafe extern "C" fn(*const Device) -> *const c_char,
    /// Description.
    pub get_description: unsafe extern "C" fn(*const Device) -> *const c_char,
    /// Bytes that are free, and all of them.
    pub get_memory: unsafe extern "C" fn(*const Device, *mut usize, *mut usize),
    /// Kind of device.
    pub get_type: unsafe extern "C" fn(*const Device) -> c_int,
    /// All of the above.
    pub get_props: unsafe extern "C" fn(*const Device, *mut Properties),
    /// A stream of graphs; null if the device cannot be opened.
    pub init_backend: unsafe extern "C" fn(*mut Device, *const c_char) -> *mut Backend,
    /// The type of buffers for all kinds of tensors.
    pub get_buffer_type: unsafe extern "C" fn(*mut Device) -> *mut BufferType,
    /// Absent.
    pub get_host_buffer_type: Absent,
    /// Absent.
    pub buffer_from_host_ptr: Absent,
    /// Whether an op runs here.
    pub supports_op: unsafe extern "C" fn(*mut Device, *const Tensor) -> bool,
    /// Whether tensors in such buffers can be used.
    pub supports_buft: unsafe extern "C" fn(*mut Device, *mut BufferType) -> bool,
    /// Absent.
    pub offload_op: Absent,
    /// Absent.
    pub events: [Absent; 3],
}
const _: () = assert!(size_of::<DeviceInterface>() == 120);

/// `ggml_backend_device`.
#[repr(C)]
pub struct Device {
    /// Its functions.
    pub iface: DeviceInterface,
    /// Where it is registered.
    pub reg: *mut Registry,
    /// Unused here.
    pub context: *mut c_void,
}
const _: () = assert!(size_of::<Device>() == 136);

/// `ggml_backend_reg`.
#[repr(C)]
pub struct Registry {
    /// An [`ApiVersion`].
    pub api_version: c_int,
    /// Name.
    pub get_name: unsafe extern "C" fn(*const Registry) -> *const c_char,
    /// Number of devices.
    pub get_device_count: unsafe extern "C" fn(*const Registry) -> usize,
    /// A device.
    pub get_device: unsafe extern "C" fn(*const Registry, usize) -> *mut Device,
    /// A function beyond the interface, by name.
    pub get_proc_address: unsafe extern "C" fn(*const Registry, *const c_char) -> *mut c_void,
    /// Unused here.
    pub context: *mut c_void,
}
const _: () = assert!(size_of::<Registry>() == 48);

/// `GGML_STATUS_SUCCESS`.
pub const STATUS_SUCCESS: c_int = 0;
/// `GGML_STATUS_FAILED`.
pub const STATUS_FAILED: c_int = -1;
