//! A ggml backend: programs of llama.cpp, and others that are built on ggml, run their graphs on hexflash.
//!
//! A program finds the library by the environment variable `GGML_BACKEND_PATH`, and sees a device
//! `HEXFLASH0`. [`abi`] has ggml's tables, without its headers; [`host`] compares them with the ggml that is
//! there. [`translate`] makes programs of graphs, [`runtime`] loads and runs them: the real queue, the real
//! validation, the real kernels. Nothing is computed here.

#![cfg(unix)]
// What can panic says why it cannot happen.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

pub mod abi;
pub mod buffer;
pub mod graph;
pub mod host;
mod loaded;
mod memory;
pub mod op;
mod options;
pub mod registry;
pub mod runtime;
mod tiles;
mod times;
pub mod translate;

/// Where ggml begins: the registry, or null with a line that says why.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_init() -> *mut abi::Registry {
    registry::guarded(std::ptr::null_mut(), || match registry::register() {
        Ok(registry) => registry,
        Err(why) => {
            host::report(format_args!("{why}; its device is left out"));
            std::ptr::null_mut()
        }
    })
}
