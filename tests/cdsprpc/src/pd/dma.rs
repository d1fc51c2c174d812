//! User-DMA: an engine per thread, which does a descriptor each time it is polled, and not before: who does
//! not wait for a transfer finds old bytes.
//!
//! `dsp.dma=CODE@N` in the settings is what becomes of the Nth descriptor of the process: 2 an error, 1 it
//! never ends, 0 the engine stops before it.

use std::cell::Cell;
use std::sync::OnceLock;

use rustix::mm::ProtFlags;

use crate::state::{planned_number, violation};
use crate::{views, vtcm};

/// What an engine is at: the descriptor that it does next, and the state in the status word.
#[derive(Clone, Copy)]
struct Engine {
    next: u32,
    state: u32,
    /// It was told never to end.
    hangs: bool,
}

const IDLE: u32 = 0;
const RUNNING: u32 = 1;
const FAILED: u32 = 2;
const DONE: u32 = 1 << 31;
const TWO_AXES: u32 = 1 << 24;

thread_local! {
    static ENGINE: Cell<Engine> = const { Cell::new(Engine { next: 0, state: IDLE, hangs: false }) };
}

fn pointer(address: u32) -> *mut u32 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// A word of a descriptor.
///
/// # Safety
/// The address is a descriptor's that was linked.
unsafe fn word(descriptor: u32, i: usize) -> u32 {
    // SAFETY: the address is that of a descriptor that was linked (the caller's contract), which has eight
    // words and was found aligned then; it lives for ever.
    unsafe { pointer(descriptor).add(i).read_volatile() }
}

/// Appends to a chain; starts an engine that is idle.
///
/// # Safety
/// Both are addresses of descriptors that live on.
#[unsafe(no_mangle)]
unsafe extern "C" fn hexflash_standin_dmlink(tail: u32, new: u32) {
    if !tail.is_multiple_of(64) || !new.is_multiple_of(64) || tail == new {
        return violation("dmlink of descriptors that are not aligned, or of one to itself");
    }
    // SAFETY: both are addresses of descriptors that live on (the caller's contract), which were found
    // aligned above.
    unsafe {
        if word(new, 0) != 0 || word(new, 1) & DONE != 0 {
            violation("dmlink of a descriptor that is done, or not the last");
        }
        pointer(tail).write_volatile(new);
    }
    let engine = ENGINE.get();
    match engine.state {
        IDLE => ENGINE.set(Engine { next: new, state: RUNNING, hangs: false }),
        RUNNING => {}
        _ => violation("dmlink on an engine that has failed"),
    }
}

/// Does the next descriptor; gives the status word.
#[unsafe(no_mangle)]
extern "C" fn hexflash_standin_dmpoll() -> u32 {
    let mut engine = ENGINE.get();
    if engine.state == RUNNING && !engine.hangs {
        let at = engine.next;
        match planned_number("dsp.dma") {
            Some(FAILED) => engine.state = FAILED,
            Some(RUNNING) => engine.hangs = true,
            Some(_) => engine.state = IDLE,
            // SAFETY: `at` is the address of a descriptor that was linked: the first of a chain that `dmlink`
            // has started, or the one that the last one names. Who linked it has promised that its transfer
            // may happen.
            None => unsafe {
                if execute(at) {
                    pointer(at).add(1).write_volatile(word(at, 1) | DONE);
                    engine.next = word(at, 0);
                    engine.state = if engine.next == 0 { IDLE } else { RUNNING };
                } else {
                    engine.state = FAILED;
                }
            },
        }
        ENGINE.set(engine);
    }
    engine.next & !3 | engine.state
}

/// Stops the engine.
#[unsafe(no_mangle)]
extern "C" fn hexflash_standin_dmpause() -> u32 {
    let engine = ENGINE.replace(Engine { next: 0, state: IDLE, hangs: false });
    engine.next & !3 | engine.state
}

/// Does what a descriptor says; `false` if it is none, or names memory that the process does not have.
///
/// # Safety
/// The address is a descriptor's that was linked; nobody else touches what it names.
unsafe fn execute(at: u32) -> bool {
    // SAFETY: the address is that of a descriptor that was linked (the caller's contract), which has eight
    // words.
    let [w1, src, dst, w4, shape, strides, w7] = [1, 2, 3, 4, 5, 6, 7].map(|i| unsafe { word(at, i) });
    let (rows, bytes, src_stride, dst_stride) = match w1 & 0xff00_0000 {
        0 => (1, w1 & 0x00ff_ffff, 0, 0),
        TWO_AXES if w1 & 0x00ff_ffff == 0 && w4 == 0 && w7 == 0 => {
            (shape >> 16, shape & 0xffff, strides & 0xffff, strides >> 16)
        }
        // Bypassing caches, compression: nothing that hexflash asks for.
        _ => {
            violation(&format!("a DMA descriptor with {w1:#x} and {w4:#x}, which hexflash should not make"));
            return false;
        }
    };
    if rows == 0 || bytes == 0 {
        violation("a DMA descriptor for nothing");
        return false;
    }
    for row in 0..rows {
        let (from, to) = (src.wrapping_add(row * src_stride), dst.wrapping_add(row * dst_stride));
        let there =
            |at: u32| views::has(at as usize, bytes as usize) || vtcm::has(at as usize, bytes as usize);
        if !there(from) || !there(to) {
            violation(&format!("DMA of {bytes} bytes from {from:#x} to {to:#x}: not all of that is mapped"));
            return false;
        }
        // SAFETY: both ranges are mapped, as was just seen, and nobody else touches what a descriptor names
        // (the caller's contract). `copy` allows them to overlap.
        unsafe { std::ptr::copy(pointer(from).cast::<u8>(), pointer(to).cast::<u8>(), bytes as usize) };
    }
    true
}

/// Memory that a library for a DSP would have in its image.
#[unsafe(no_mangle)]
extern "C" fn hexflash_standin_static(bytes: usize) -> *const u8 {
    static MEMORY: OnceLock<(usize, usize)> = OnceLock::new();
    let &(at, has) = MEMORY.get_or_init(|| {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        (views::low(bytes, access).unwrap_or(0), bytes)
    });
    if has == bytes { std::ptr::with_exposed_provenance(at) } else { std::ptr::null() }
}

/// A thread ends: its engine must have come to its end.
pub(crate) fn check_thread() {
    if ENGINE.get().state == RUNNING {
        violation("a thread ended with DMA under way");
    }
}
