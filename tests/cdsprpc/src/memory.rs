//! `rpcmem_*` and `fastrpc_mmap`: memory, and its mappings on the DSP.

use std::ffi::c_void;

use hexflash_fastrpc::aee;
use hexflash_fastrpc::frame::{Ask, Words};
use hexflash_fastrpc::memory::{Mapped, PAGE, nameless};

use crate::plan;
use crate::state::{Allocation, planned, state, violation};

const SYSTEM_HEAP: i32 = 25;
const CACHED: u32 = 1;
const MAP_FD: u32 = 2;
const MAP_FD_DELAYED: u32 = 3;
/// Most bytes of one mapping.
const MAPPING: u64 = 2 << 30;

fn allocate(heap: i32, flags: u32, bytes: usize) -> *mut c_void {
    if heap != SYSTEM_HEAP || flags != CACHED || bytes == 0 {
        violation(&format!("rpcmem_alloc({heap}, {flags}, {bytes}): not what hexflash should ask for"));
        return std::ptr::null_mut();
    }
    let bytes = bytes.next_multiple_of(PAGE);
    let block = nameless(bytes).and_then(|file| Ok(Allocation { mapped: Mapped::new(&file, bytes)?, file }));
    let Ok(block) = block else { return std::ptr::null_mut() };
    let base = block.mapped.base().as_ptr();
    state().blocks.insert(base.addr(), block);
    base.cast()
}

/// Allocates memory that can be shared.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_alloc(heap: i32, flags: u32, bytes: i32) -> *mut c_void {
    match (planned("rpcmem_alloc"), usize::try_from(bytes)) {
        (None, Ok(bytes)) => allocate(heap, flags, bytes),
        _ => std::ptr::null_mut(),
    }
}

/// The same, for more than 2 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_alloc2(heap: i32, flags: u32, bytes: usize) -> *mut c_void {
    if planned("rpcmem_alloc2").is_some() { std::ptr::null_mut() } else { allocate(heap, flags, bytes) }
}

/// Frees it.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_free(memory: *mut c_void) {
    let mut state = state();
    let Some(block) = state.blocks.remove(&memory.addr()) else {
        drop(state);
        return violation("rpcmem_free of memory that is not allocated");
    };
    let fd = block.fd();
    let mapped = state.sessions.values().any(|session| session.maps.contains_key(&fd));
    drop(state);
    if mapped {
        violation(&format!("rpcmem_free of memory that is still mapped (fd {fd})"));
    }
}

/// Its file descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn rpcmem_to_fd(memory: *mut c_void) -> i32 {
    plan!("rpcmem_to_fd");
    state().blocks.get(&memory.addr()).map_or(-1, Allocation::fd)
}

/// Maps memory on the DSP, or lets the DSP do so.
#[unsafe(no_mangle)]
pub extern "C" fn fastrpc_mmap(
    domain: i32,
    fd: i32,
    address: *mut c_void,
    offset: i32,
    length: usize,
    flags: u32,
) -> i32 {
    plan!("fastrpc_mmap");
    let mut state = state();
    let Some(block) = state.block_of(fd) else { return aee::BAD_PARAMETER };
    let fits = length > 0 && length <= block.mapped.len();
    let at_home = address.is_null() || address.addr() == block.mapped.base().addr().get();
    if offset != 0 || !fits || !at_home || ![MAP_FD, MAP_FD_DELAYED].contains(&flags) {
        return aee::BAD_PARAMETER;
    }
    let mapping = state.config.number("mapping").unwrap_or(MAPPING);
    let Some(session) = state.sessions.get_mut(&domain) else { return aee::BAD_PARAMETER };
    let Some(process) = session.process.clone() else { return aee::BAD_STATE };
    if session.maps.contains_key(&fd) {
        return aee::ALREADY;
    }
    if length as u64 > mapping {
        return aee::NO_MEMORY;
    }
    session.maps.insert(fd, length);
    drop(state);
    let asked = process.ask(Ask::Announce, Words::default().number(fd as u64).number(length as u64));
    match asked {
        Ok((0, _)) => 0,
        other => {
            if let Some(session) = crate::state::state().sessions.get_mut(&domain) {
                session.maps.remove(&fd);
            }
            other.map_or(aee::CONNECTION_RESET, |(code, _)| code)
        }
    }
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn fastrpc_munmap(domain: i32, fd: i32, _address: *mut c_void, length: usize) -> i32 {
    plan!("fastrpc_munmap");
    let mut state = state();
    let Some(session) = state.sessions.get_mut(&domain) else { return aee::BAD_PARAMETER };
    match session.maps.get(&fd) {
        Some(&mapped) if mapped == length => {}
        _ => return aee::NO_SUCH_MAP,
    }
    session.maps.remove(&fd);
    let process = session.process.clone();
    drop(state);
    // With the process, its mappings are gone.
    let Some(process) = process.filter(|process| !process.is_dead()) else { return 0 };
    match process.ask(Ask::Withdraw, Words::default().number(fd as u64)) {
        Ok((code, _)) => code,
        Err(_) => 0,
    }
}
