//! Error codes of FastRPC, as far as they are used here (public names, without offset).

/// Success.
pub const OK: i32 = 0;
/// Failed, and nothing more is known.
pub const FAILED: i32 = 1;
/// No memory.
pub const NO_MEMORY: i32 = 2;
/// A library cannot be loaded.
pub const UNABLE_TO_LOAD: i32 = 6;
/// Not in time.
pub const EXPIRED: i32 = 0xc;
/// Not in this state.
pub const BAD_STATE: i32 = 0xd;
/// An argument is wrong.
pub const BAD_PARAMETER: i32 = 0xe;
/// A packet is corrupt, or larger than the room for it.
pub const BAD_ITEM: i32 = 0x10;
/// Not supported.
pub const UNSUPPORTED: i32 = 0x14;
/// Done already.
pub const ALREADY: i32 = 0x1a;
/// A buffer is in use.
pub const ITEM_BUSY: i32 = 0x20;
/// The memory is not mapped.
pub const NO_SUCH_MAP: i32 = 0x48;
/// Nobody there to talk to.
pub const CONNECTION_REFUSED: i32 = 0x72;
/// All are in use.
pub const BUSY: i32 = 0x183;
/// The queue was closed.
pub const INTERRUPTED: i32 = 46;
/// The other side is gone.
pub const CONNECTION_RESET: i32 = 104;
/// There is no packet, or no room.
pub const WOULD_BLOCK: i32 = 516;
/// What a DSP adds to its codes (not to those above 0x400 or of the system).
pub const DSP_OFFSET: u32 = 0x8000_0400;

/// The code as a DSP gives it.
pub const fn on_dsp(code: i32) -> i32 {
    match code {
        OK | INTERRUPTED | CONNECTION_RESET | WOULD_BLOCK => code,
        _ => (DSP_OFFSET + code as u32) as i32,
    }
}
