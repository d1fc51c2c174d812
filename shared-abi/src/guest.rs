//! The first shared file of the `qemu` device: what the image is to do, then the queue.
//!
//! The host starts `qemu-hexagon IMAGE serve FD-DIR FD`: every shared file is opened as `FD-DIR/FD`, where
//! `FD-DIR` is the host's directory of open files (`/proc/PID/fd`). So files need no name, and none is left
//! behind.

use core::mem::{offset_of, size_of};

use crate::queue::QueueLayout;

/// First word of the configuration: "HXFG".
pub const GUEST_MAGIC: u32 = u32::from_le_bytes(*b"HXFG");
/// Version of the configuration and of the image's arguments.
pub const GUEST_VERSION: u32 = 2;
/// The beginning of a line on stderr that says which op begins: the program and the op follow.
pub const TRACED_OP: &str = "op: ";
/// The emulator maps files in units of this size, and fails where one ends before its last unit: the length
/// of every shared file is a multiple.
pub const FILE_ALIGN: u64 = 64 << 10;
/// Where the queue starts in the file.
pub const QUEUE_OFFSET: usize = 4096;

wire_struct! {
    /// The configuration that the image reads once, at the start of the file. Only `stop` and `place` change
    /// later.
    pub struct GuestConfig [44 bytes] {
        /// [`GUEST_MAGIC`].
        pub magic: u32,
        /// [`GUEST_VERSION`].
        pub version: u32,
        /// Bytes of the request ring, as given to [`QueueLayout::new`].
        pub request_bytes: u32,
        /// Bytes of the response ring.
        pub response_bytes: u32,
        /// Kernel threads.
        pub threads: u32,
        /// Bytes of VTCM.
        pub vtcm_bytes: u32,
        /// Bytes for loaded programs.
        pub arena_bytes: u32,
        /// When the software DMA engine executes: 0 at once, 1 at the wait, 2 out of order. 4: the engines
        /// of the processor do instead, where it has them.
        pub dma: u32,
        /// Set to 1 (and the request doorbell rung) to end the image.
        pub stop: u32,
        /// 1: the image writes a line to stderr for each op that begins.
        pub trace: u32,
        /// Written by the image: the op that runs, as [`GuestConfig::place_of`] has it; 0 before the first.
        pub place: u32,
    }
}

const _: () = assert!(size_of::<GuestConfig>() <= QUEUE_OFFSET);

impl GuestConfig {
    /// Where the stop word is in the file.
    pub const STOP: usize = offset_of!(Self, stop);

    /// Where the word is in the file that says which op runs.
    pub const PLACE: usize = offset_of!(Self, place);
    /// The program of ops that come with their message.
    pub const NO_PROGRAM: u32 = 0xffff;

    /// An op of a program as a word that is not 0.
    pub const fn place_of(program: u32, op: u32) -> u32 {
        program << 16 | (op + 1) & 0xffff
    }

    /// The program and the op behind such a word.
    pub const fn program_and_op(place: u32) -> Option<(u32, u32)> {
        match (place & 0xffff).checked_sub(1) {
            Some(op) => Some((place >> 16, op)),
            None => None,
        }
    }

    /// The queue's geometry.
    pub const fn queue(&self) -> QueueLayout {
        QueueLayout::new(self.request_bytes as usize, self.response_bytes as usize)
    }

    /// Bytes of the file.
    pub const fn file_bytes(&self) -> u64 {
        (QUEUE_OFFSET as u64 + self.queue().bytes() as u64).next_multiple_of(FILE_ALIGN)
    }
}
