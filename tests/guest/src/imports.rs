//! The entries of what a skel imports. All of them lead to one function, which asks hexflash-pd, but for
//! sleeping and waking.

use core::arch::global_asm;

use crate::act::{self, FutexOp};
use crate::link;
use crate::wire::{Ask, CALLBACK, ENTRY_BYTES, FUTEX_WAIT, FUTEX_WAKE, IMPORTS, act as acts, ask};

// An entry says its number, in the register that linkers use between two functions. Then the arguments in
// registers are put on the stack, above them lies what `allocframe` saves, and above that the arguments that
// are on the stack.
global_asm!(
    ".section .text.hexflash_imports,\"ax\",@progbits",
    ".globl hexflash_imports",
    ".p2align 4",
    "hexflash_imports:",
    ".set number, 0",
    ".rept {count}",
    ".p2align 4",
    "{{ r28 = #number",
    "   jump hexflash_import }}",
    ".set number, number + 1",
    ".endr",
    ".p2align 4",
    ".type hexflash_import,@function",
    "hexflash_import:",
    "allocframe(#{frame})",
    "memd(r29+#0) = r1:0",
    "memd(r29+#8) = r3:2",
    "memd(r29+#16) = r5:4",
    "{{ r0 = r28",
    "   r1 = r29 }}",
    "call {forward}",
    "dealloc_return",
    ".size hexflash_import, .-hexflash_import",
    ".text",
    count = const IMPORTS.len(),
    frame = const FRAME,
    forward = sym forward,
);

/// Bytes of what an entry puts on the stack: the arguments.
const FRAME: usize = 24;

unsafe extern "C" {
    /// The first entry; see the assembly above.
    safe static hexflash_imports: u8;
}

/// The address of the first entry; each is [`ENTRY_BYTES`] from the one before.
pub(crate) fn entries() -> u32 {
    const { assert!(ENTRY_BYTES == 16) };
    (&raw const hexflash_imports).addr() as u32
}

/// # Safety
/// `frame` points to the arguments in registers; behind it lie the caller's frame pointer and link register,
/// and then its stack.
unsafe extern "C" fn forward(number: u32, frame: *const u32) -> u32 {
    // SAFETY: the six registers, and the link register as the last of `FRAME` bytes and two words (the
    // caller's contract).
    let (registers, from) = unsafe { (frame.cast::<[u32; 6]>().read(), frame.byte_add(FRAME + 4).read()) };
    let stack = (frame.addr() + FRAME + 8) as u32;
    let mut question = Ask { what: number, from, stack, dma: link::engine(), registers };
    match number {
        FUTEX_WAIT => {
            if question.dma != 0 {
                question.what = ask::SLEEP;
                link::put(&question);
            }
            act::futex(FutexOp::Wait, registers[0], registers[1]);
            0
        }
        FUTEX_WAKE => {
            act::futex(FutexOp::Wake, registers[0], registers[1]);
            0
        }
        CALLBACK => loop {
            let answer = link::put(&question);
            if answer.act == acts::NONE {
                return 0;
            }
            act::carry_out(&answer);
        },
        _ => act::carry_out(&link::put(&question)),
    }
}
