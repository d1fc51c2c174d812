//! A stand-in for the vendor's `libcdsprpc.so`: the functions that hexflash uses, with their rules, and a
//! process that plays the one on the DSP (`hexflash-pd`: the skel library compiled for this machine, or
//! Hexagon code under emulation).
//!
//! What it is true to: calls and structs, the order in which they must come, the queue's memory, limits,
//! codes, file descriptors that must be mapped and unmapped, a DSP whose caches hold old bytes until they are
//! told to drop them. The CPU's caches are coherent, as they are to the public sources of the vendor's
//! library, which does nothing for a packet's flags on that side. What it cannot show: that a phone's
//! firmware behaves like the public sources say.
//!
//! [`hexflash_fastrpc::config`] says what can be made to fail. A test sets it in the environment
//! (`HEXFLASH_STANDIN`) or through [`hexflash_standin_configure`](control::hexflash_standin_configure); each
//! copy of the file is a library of its own.
#![cfg(target_os = "linux")]

pub mod control;
pub mod handle;
pub mod memory;
mod process;
pub mod queue;
pub mod standin;
mod state;

/// Tells the file that `HEXFLASH_STANDIN_LOADS` names, if it does, that the library was loaded, as the
/// vendor's has threads and keys to set up then.
extern "C" fn loaded() {
    use std::io::Write;
    let Some(path) = std::env::var_os("HEXFLASH_STANDIN_LOADS") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // Without the line the test that asked for it fails.
    let _ = file.and_then(|mut file| file.write_all(b"loaded\n"));
}

// SAFETY: the loader calls what stands in this section, when the rest of the library is ready; the function
// takes no notice of arguments, and is there as long as the library.
#[unsafe(link_section = ".init_array")]
#[used]
static LOADED: extern "C" fn() = loaded;
