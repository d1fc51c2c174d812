//! Every byte that crosses between the hexflash host and the Hexagon DSP, with its validation.
//!
//! Both sides compile this crate, so a struct, a constant or a rule is written once:
//!
//! * [`message`]: the requests and responses that travel through the queue,
//! * [`program`]: an op batch in shared memory (buffers, tensors, ops),
//! * [`op`]: the op table, which says per op what it takes, gives and checks,
//! * [`dtype`]: element types and the tiled weight layouts,
//! * [`registers`]: what varies from step to step,
//! * [`accept`]: what a speculative round tells the host,
//! * [`status`]: how a message ended,
//! * [`validate`]: the pure function from bytes and buffer sizes to "safe to run" or a [`Fault`],
//! * [`queue`]: the ring that carries messages where there is no `dspqueue`,
//! * [`guest`]: how the `qemu` device starts its image.
//!
//! Rules: `#[repr(C)]`, little-endian, fixed width; sizes and offsets asserted beside each struct; enums cross
//! as integers and are parsed, never transmuted; no pointer and no `usize` on the wire.
#![cfg_attr(not(loom), no_std)]

#[cfg(target_endian = "big")]
compile_error!("the ABI is little-endian, and so is every machine that hexflash runs on");

#[macro_use]
mod wire_enum;

pub mod accept;
pub mod dtype;
pub mod guest;
pub mod ids;
pub mod message;
pub mod op;
pub mod program;
pub mod queue;
pub mod registers;
pub mod status;
#[doc(hidden)] // For the DSP side, which shares more than a queue.
pub mod sync;
pub mod validate;

pub use dtype::DType;
pub use ids::{BufferId, Fd, OpIndex, ProgramId, Seq, TensorIndex};
pub use op::Op;
pub use status::{ErrorCode, Fault, Status};

/// First word of a program block and of a ping: "HXFL".
pub const MAGIC: u32 = u32::from_le_bytes(*b"HXFL");

/// Version of the ABI. Changes whenever the meaning of a byte changes.
pub const ABI_VERSION: u32 = 1;

/// Hash of the layout of every wire struct and every wire enum, so that two builds of the same version that
/// disagree about a byte find out at `open()` rather than in the results.
pub const LAYOUT_HASH: u64 = layout_hash();

/// Alignment of tensors and of VTCM regions: one HVX vector, in bytes.
pub const VECTOR_BYTES: usize = 128;

const fn layout_hash() -> u64 {
    use core::mem::{offset_of, size_of};
    // FNV-1a over sizes, telling offsets and the number of enum values.
    let words = [
        size_of::<message::Request>(),
        offset_of!(message::Request, body),
        size_of::<message::Response>(),
        offset_of!(message::Response, detail),
        offset_of!(message::Response, info),
        size_of::<program::ProgramHeader>(),
        size_of::<program::BufferRef>(),
        size_of::<program::TensorDesc>(),
        offset_of!(program::TensorDesc, ne),
        size_of::<program::OpDesc>(),
        offset_of!(program::OpDesc, params),
        size_of::<registers::StepRegisters>(),
        op::Op::ALL.len(),
        dtype::DType::ALL.len(),
        status::ErrorCode::ALL.len(),
        message::MessageKind::ALL.len(),
        registers::Register::ALL.len(),
        registers::Halt::ALL.len(),
        accept::HEAD,
        accept::SLOTS,
        dtype::TILE_LAYOUT_VERSION as usize,
        dtype::ActivationRow::new(256).bytes(),
    ];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < words.len() {
        hash = (hash ^ words[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}
