//! The processor's own unit, by instructions that are words here: no public assembler has them.
//!
//! What belongs to a packet is in one `asm!` block, so that nothing comes between. The compiler knows nothing
//! of accumulators and tables, so no block may be left out, moved over another one or over an access to
//! memory: they are volatile, and none says that it leaves memory alone.

use core::arch::asm;

use super::words::{Activation, Instruction, Place, Register, Span, Stored, Taps, Weight};
use super::{TILE_BYTES, TilePtr, Unit};

/// Operands of the words: where they are, and how far they go.
const A: Register = Register::new(0);
const RANGE: Register = Register::new(1);
const W: Register = Register::new(2);

const CLEAR: u32 = Instruction::Clear.word(Place::Last);
const LOAD_TABLE: u32 = Instruction::LoadTable(A).word(Place::Last);
const MULTIPLY: [u32; 2] = [
    Instruction::Activation(Activation::Hf, Span::Deep, [A, RANGE]).word(Place::Inside),
    Instruction::Weight(Weight::Hf, Taps::First, [W, RANGE]).word(Place::Last),
];
const STORE: u32 = Instruction::Store(Stored::Hf, false, [A, RANGE]).word(Place::Last);

/// The unit.
#[derive(Debug)]
pub struct Processor(());

impl Unit for Processor {
    fn take() -> Self {
        Self(())
    }

    #[inline(always)]
    fn clear(&mut self) {
        // SAFETY: the packet empties accumulators, of which the compiler keeps nothing, and touches neither
        // memory nor registers. A thread that does not hold the unit ends here, by an exception.
        unsafe { asm!(".word {word}", word = const CLEAR, options(nostack)) }
    }

    #[inline(always)]
    unsafe fn load_table(&mut self, table: TilePtr) {
        // SAFETY: the packet reads 256 bytes at r0, which is `table`: they are in VTCM and readable (the
        // caller's contract, point 1), at a multiple of 2048. This thread holds the unit (point 2).
        unsafe {
            asm!(
                ".word {word}",
                word = const LOAD_TABLE,
                in("r0") table.vectors().get(),
                options(nostack),
            );
        }
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, a: TilePtr, w: TilePtr, tiles: usize) {
        // SAFETY: the packet reads as many tiles at r0 and r2 as r1 names by its last byte, 1 to 32 (the
        // caller's contract, point 1). They are in VTCM and readable (point 2), and multiples of 2048, so
        // that none of the address's low bits, which mean other operations, is set. This thread holds the
        // unit (point 3).
        unsafe {
            asm!(
                ".word {a}",
                ".word {w}",
                a = const MULTIPLY[0],
                w = const MULTIPLY[1],
                in("r0") a.vectors().get(),
                in("r1") tiles * TILE_BYTES - 1,
                in("r2") w.vectors().get(),
                options(nostack),
            );
        }
    }

    #[inline(always)]
    unsafe fn store(&mut self, c: TilePtr) {
        // SAFETY: the packet writes 2048 bytes at r0, which is `c`: they are in VTCM and writable (the
        // caller's contract, point 1), at a multiple of 2048. r1 is 0, which means a plain tile. This
        // thread holds the unit (point 2).
        unsafe {
            asm!(
                ".word {word}",
                word = const STORE,
                in("r0") c.vectors().get(),
                in("r1") 0,
                options(nostack),
            );
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        // SAFETY: `syncht` waits for this thread's accesses to memory, and changes nothing.
        unsafe { asm!("syncht", options(nostack)) }
    }
}
