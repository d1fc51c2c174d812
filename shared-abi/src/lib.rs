//! Every byte that crosses between the hexflash host and the Hexagon DSP, with its validation.
//!
//! Both sides compile this crate, so a struct, a constant or a rule is written once:
//!
//! * [`message`]: the requests and responses that travel through the queue,
//! * [`program`]: an op batch in shared memory (buffers, tensors, ops),
//! * [`opcode`]: the numbers of ops,
//! * [`op`]: the op table, which says per op what it takes, gives and checks,
//! * [`dtype`]: element types and the tiled weight layouts,
//! * [`registers`]: what varies from step to step,
//! * [`accept`]: what a speculative round tells the host,
//! * [`status`]: how a message ended,
//! * [`validate`]: the pure function from bytes and buffer sizes to "safe to run" or a [`Fault`],
//! * [`forms`]: what a DSP is asked to execute before a session starts,
//! * [`probe`]: what a session is asked that no program tells,
//! * [`queue`]: the ring that carries messages where there is no `dspqueue`,
//! * [`guest`]: how the `qemu` device starts its image.
//!
//! Rules: `#[repr(C)]`, little-endian, fixed width; sizes and offsets asserted beside each struct; enums
//! cross as integers and are parsed, never transmuted; no pointer and no `usize` on the wire.
#![cfg_attr(not(loom), no_std)]

#[cfg(target_endian = "big")]
compile_error!("the ABI is little-endian, and so is every machine that hexflash runs on");

#[macro_use]
mod wire;

pub mod accept;
pub mod dtype;
pub mod forms;
pub mod guest;
pub mod ids;
pub mod message;
pub mod op;
pub mod opcode;
pub mod probe;
pub mod program;
pub mod queue;
pub mod registers;
pub mod status;
#[doc(hidden)] // For the DSP side, which shares more than a queue.
pub mod sync;
pub mod validate;

pub use dtype::DType;
pub use ids::{BufferId, Fd, OpIndex, ProgramId, Seq, TensorIndex};
pub use opcode::Op;
pub use status::{ErrorCode, Fault, Status};

use wire::Fingerprint;

/// First word of a program block and of a ping: "HXFL".
pub const MAGIC: u32 = u32::from_le_bytes(*b"HXFL");

/// Version of the ABI. Changes whenever the meaning of a byte changes.
pub const ABI_VERSION: u32 = 3;

/// Hash of every struct, enum and flag of the wire (names, sizes, offsets, values), of the operands and
/// parameters of every op, and of the tiled layouts: two builds of the same version that disagree about a
/// byte find out at `open()` rather than in the results. The macros in `wire.rs` make the parts.
pub const LAYOUT_HASH: u64 = Fingerprint::new("hexflash")
    .all(&[
        message::MessageKind::FINGERPRINT,
        message::MapFlags::FINGERPRINT,
        message::Request::FINGERPRINT,
        message::Range::FINGERPRINT,
        message::Ping::FINGERPRINT,
        message::Map::FINGERPRINT,
        message::Unmap::FINGERPRINT,
        message::Load::FINGERPRINT,
        message::Exec::FINGERPRINT,
        message::Run::FINGERPRINT,
        message::Unload::FINGERPRINT,
        message::Probe::FINGERPRINT,
        message::Response::FINGERPRINT,
        message::PingInfo::FINGERPRINT,
        message::MatrixUnit::FINGERPRINT,
        message::Answer::FINGERPRINT,
        probe::Question::FINGERPRINT,
        probe::Loop::FINGERPRINT,
        probe::Outcome::FINGERPRINT,
        probe::FINGERPRINT,
        status::Status::FINGERPRINT,
        status::ErrorCode::FINGERPRINT,
        program::Numerics::FINGERPRINT,
        program::TensorFlags::FINGERPRINT,
        program::ProgramHeader::FINGERPRINT,
        program::BufferRef::FINGERPRINT,
        program::TensorDesc::FINGERPRINT,
        program::OpDesc::FINGERPRINT,
        registers::Register::FINGERPRINT,
        registers::Halt::FINGERPRINT,
        registers::StepRegisters::FINGERPRINT,
        accept::FINGERPRINT,
        Op::FINGERPRINT,
        op::params::RopeMode::FINGERPRINT,
        op::params::Gating::FINGERPRINT,
        op::params::GluKind::FINGERPRINT,
        op::params::UnaryKind::FINGERPRINT,
        op::params::Visibility::FINGERPRINT,
        op::FINGERPRINT,
        DType::FINGERPRINT,
        dtype::FINGERPRINT,
        guest::GuestConfig::FINGERPRINT,
        forms::Form::FINGERPRINT,
        forms::Group::FINGERPRINT,
    ])
    .hash();

/// Alignment of tensors and of VTCM regions: one HVX vector, in bytes.
pub const VECTOR_BYTES: usize = 128;
