//! The library as programs load it: by a host that is no more than the functions which it looks for.
#![cfg(target_os = "linux")]

mod support;

use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ggml_hexflash::abi::{
    Backend, Buffer, BufferType, BufferType2, Device, Registry, STATUS_SUCCESS, Tensor,
};
use ggml_hexflash::op::{GluOp, Op, UnaryOp};
use hexflash::gguf::GgmlType;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use support::{Hosts, node, tensor};

const ADD: i32 = 2;
/// Elements of a row, rows.
const SHAPE: [usize; 4] = [64, 48, 1, 1];
const BYTES: usize = 4 * SHAPE[0] * SHAPE[1];

/// The variable that says which version the host says it has.
const VERSION: &str = "HOST_VERSION";

fn version() -> String {
    std::env::var(VERSION).unwrap_or_else(|_| "0.27.0".to_owned())
}

/// What the library asks of a host, in C: names by number, and an object for each buffer.
fn source() -> String {
    let types = (0..64).filter_map(|id| GgmlType::from_id(id).map(|ty| (id as c_int, ty.name())));
    let mut source = String::from("#include <stdlib.h>\n#include <string.h>\n");
    let names = |source: &mut String, function: &str, names: &[(c_int, &str)]| {
        let cases = names.iter().map(|(number, name)| format!("case {number}: return \"{name}\";"));
        let cases: Vec<_> = cases.collect();
        writeln!(
            source,
            "const char *{function}(int n) {{ switch (n) {{ {} }} return \"\"; }}",
            cases.join(" ")
        )
        .unwrap();
    };
    names(&mut source, "ggml_op_name", Op::NAMES);
    names(&mut source, "ggml_unary_op_name", UnaryOp::NAMES);
    names(&mut source, "ggml_glu_op_name", GluOp::NAMES);
    names(&mut source, "ggml_type_name", &types.collect::<Vec<_>>());
    writeln!(source, "const char *ggml_version(void) {{ return \"{}\"; }}", version()).unwrap();
    source.push_str(
        "struct functions { void *all[11]; };\n\
         struct buffer { struct functions functions; void *type, *context; size_t size; int usage; };\n\
         struct buffer *ggml_backend_buffer_init(\n\
             void *type, struct functions functions, void *context, size_t size) {\n\
             struct buffer *buffer = calloc(1, sizeof *buffer);\n\
             buffer->functions = functions; buffer->type = type;\n\
             buffer->context = context; buffer->size = size;\n\
             return buffer; }\n\
         void host_free(struct buffer *buffer) {\n\
             ((void (*)(struct buffer *))buffer->functions.all[0])(buffer); free(buffer); }\n",
    );
    source
}

/// The host, compiled and loaded where all of the process sees it.
struct Host {
    library: Library,
    _dir: tempfile::TempDir,
}

impl Host {
    fn load() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (code, library) = (dir.path().join("host.c"), dir.path().join("libhost.so"));
        std::fs::write(&code, source()).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&code);
        assert!(compiler.status().unwrap().success());
        // SAFETY: the library is that of `source`, which does nothing when it is loaded.
        let library = unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_GLOBAL) }.unwrap();
        Self { library, _dir: dir }
    }

    /// Frees a buffer as ggml does.
    fn free(&self, buffer: *mut Buffer) {
        type Free = unsafe extern "C" fn(*mut Buffer);
        // SAFETY: the type is that of the function; the buffer is one that it has made, and is not used any
        // more.
        unsafe { (self.library.get::<Free>(b"host_free\0").unwrap())(buffer) };
    }
}

/// The library that cargo has built, beside this program.
fn backend() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|dir| dir.join("libggml_hexflash.so"));
    files.find(|file| file.is_file()).expect("cargo builds libggml_hexflash.so")
}

/// Loads the library, and gives its registry.
fn load(path: &Path) -> (Library, *mut Registry) {
    type Init = unsafe extern "C" fn() -> *mut Registry;
    // SAFETY: the library is this package's, which does nothing when it is loaded.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.unwrap();
    // SAFETY: the type is that of the function.
    let registry = unsafe { (library.get::<Init>(b"ggml_backend_init\0").unwrap())() };
    assert!(!registry.is_null(), "the library does not register");
    (library, registry)
}

/// The first device of a registry, whose tables are of the host's version.
fn device(registry: *mut Registry) -> *mut Device {
    let expected = if version().starts_with("0.25") { 2 } else { 3 };
    let square = tensor(SHAPE, 0);
    // SAFETY: a registry of the library's, which stays, and so does what its functions give; a type of
    // buffers is what the version of the registry says.
    unsafe {
        assert_eq!((*registry).api_version, expected);
        assert_eq!(((*registry).get_device_count)(registry), 1);
        let device = ((*registry).get_device)(registry, 0);
        let ty: *mut BufferType = ((*device).iface.get_buffer_type)(device);
        let (bytes, is_host, owner) = if expected == 2 {
            let two = ty.cast::<BufferType2>();
            (((*two).iface.get_alloc_size)(ty, &raw const square), ((*two).iface.is_host)(ty), (*two).device)
        } else {
            (((*ty).iface.get_alloc_size)(ty, &raw const square), ((*ty).iface.is_host)(ty), (*ty).device)
        };
        assert_eq!((bytes, is_host, owner), (BYTES, true, device));
        device
    }
}

/// A model and a context: a buffer, and a backend that computes in it.
struct Context<'h> {
    host: &'h Host,
    buffer: *mut Buffer,
    backend: *mut Backend,
}

impl<'h> Context<'h> {
    fn open(host: &'h Host, device: *mut Device) -> Self {
        // SAFETY: a device of the library's, which stays; what its functions take is theirs.
        unsafe {
            let ty: *mut BufferType = ((*device).iface.get_buffer_type)(device);
            let buffer = ((*ty).iface.alloc_buffer)(ty, 3 * BYTES);
            let backend = ((*device).iface.init_backend)(device, std::ptr::null());
            assert!(!buffer.is_null() && !backend.is_null());
            Self { host, buffer, backend }
        }
    }

    /// Computes a sum, and compares it.
    fn compute(&self, factor: f32) {
        // SAFETY: the buffer is the library's, and lives.
        let base = unsafe { ((*self.buffer).iface.get_base)(self.buffer) } as usize;
        let [a, b, y] = [0, 1, 2].map(|i| tensor(SHAPE, base + i * BYTES));
        let values: Vec<f32> = (0..BYTES / 4).map(|i| i as f32 * factor).collect();
        for operand in [&a, &b] {
            let operand = std::ptr::from_ref(operand).cast_mut();
            // SAFETY: the tensor is in the buffer, and both it and the values have so many bytes.
            unsafe {
                let data = values.as_ptr().cast::<c_void>();
                ((*self.buffer).iface.set_tensor)(self.buffer, operand, data, 0, BYTES);
            }
        }
        let sum: Tensor = node(ADD, &[&a, &b], y);
        let hosts = Hosts::new(&[&sum], &[], 0);
        // SAFETY: the backend is the library's, and lives; the graph's nodes and lists live through the call.
        let status =
            unsafe { ((*self.backend).iface.graph_compute)(self.backend, hosts.as_ptr().cast_mut()) };
        assert_eq!(status, STATUS_SUCCESS);
        let mut found = vec![0.0f32; values.len()];
        // SAFETY: the tensor is in the buffer, and both it and `found` have so many bytes.
        unsafe {
            let data = found.as_mut_ptr().cast::<c_void>();
            ((*self.buffer).iface.get_tensor)(self.buffer, &raw const sum, data, 0, BYTES);
        }
        assert!(found.iter().zip(&values).all(|(found, value)| *found == 2.0 * value));
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: the backend is one of `init_backend`, and not used any more.
        unsafe { ((*self.backend).iface.free)(self.backend) };
        self.host.free(self.buffer);
    }
}

/// Threads and mappings of this process.
fn census() -> [usize; 2] {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    [threads, std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()]
}

/// Two models at once, each used by a thread of its own; and models that come and go. Nothing stays, and a
/// library that was closed can be loaded again. (One test, because it counts what the process has.)
#[test]
fn models_come_and_go_and_leave_nothing() {
    let host = Host::load();
    let (library, registry) = load(&backend());
    let round = |registry: *mut Registry| {
        let device = device(registry) as usize;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let host = &host;
                scope.spawn(move || {
                    let device = device as *mut Device;
                    let context = Context::open(host, device);
                    (0..8).for_each(|i| context.compute((i + thread) as f32));
                    // A second context of this thread, and the first one goes before it.
                    let other = Context::open(host, device);
                    other.compute(2.0);
                    drop(context);
                    other.compute(3.0);
                });
            }
        });
    };
    // What the allocator and the loader take once depends on how threads meet: one round may not show it all.
    (0..5).for_each(|_| round(registry));
    let before = census();
    for _ in 0..20 {
        round(registry);
    }
    // The allocator and the stacks of threads may have some more or less; threads that are over are there for
    // a moment more.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let after = census();
        if after[0] <= before[0] && after[1] <= before[1] + 8 {
            break;
        }
        assert!(Instant::now() < deadline, "threads and mappings: {before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    library.close().unwrap();
    let (library, again) = load(&backend());
    round(again);
    library.close().unwrap();
}

/// The same with a host whose tables are those of version 2; in a process of its own, because a library knows
/// one host.
#[test]
fn hosts_of_version_2_have_their_tables() {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program);
    child.env(VERSION, "0.25.1").args(["--exact", "models_come_and_go_and_leave_nothing"]);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
