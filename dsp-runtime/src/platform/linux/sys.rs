//! System calls of Linux on Hexagon, without a C library.

use core::arch::{asm, global_asm};

/// A system call's number.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
#[allow(missing_docs, reason = "they are Linux's")]
pub enum Call {
    OpenAt = 56,
    Close = 57,
    Seek = 62,
    Read = 63,
    Write = 64,
    ExitGroup = 94,
    Futex = 98,
    ClockGettime = 113,
    SignalAction = 134,
    Socket = 198,
    Connect = 203,
    Unmap = 215,
    Map = 222,
    Protect = 226,
    /// The emulator's, not Linux's: the letters HMX.
    MatrixUnit = 0x48_4d58,
}

/// What the system says against a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

/// Permission denied: a file that may only be read.
pub(super) const EACCES: Errno = Errno(13);
/// Not permitted: a shared file sealed against writing.
pub(super) const EPERM: Errno = Errno(1);

/// Calls the system.
///
/// # Errors
/// The system's reason.
///
/// # Safety
/// As the system call defines for these arguments.
#[inline]
pub unsafe fn call(call: Call, a: [u32; 6]) -> Result<u32, Errno> {
    let result: i32;
    // SAFETY: the call and its arguments are as the system defines (the caller's contract). The system keeps
    // all registers but r0, which is named as the result.
    unsafe {
        asm!(
            "trap0(#1)",
            inlateout("r0") a[0] => result,
            in("r1") a[1],
            in("r2") a[2],
            in("r3") a[3],
            in("r4") a[4],
            in("r5") a[5],
            in("r6") call as u32,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) { Err(Errno(result.unsigned_abs())) } else { Ok(result as u32) }
}

// Starts a thread. r0 flags, r1 top of its stack (aligned to 8; the argument lies there), r2 and r3 where its
// id is put and cleared, r4 its thread word, r5 the function that it runs.
global_asm!(
    ".section .text.hexflash_clone,\"ax\",@progbits",
    ".globl hexflash_clone",
    ".p2align 4",
    ".type hexflash_clone,@function",
    "hexflash_clone:",
    "{{ r6 = #220",
    "   memw(r1+#4) = r5 }}",
    "trap0(#1)",
    "{{ p0 = cmp.eq(r0,#0)",
    "   if (!p0.new) jumpr:t r31 }}",
    "{{ r1 = memw(r29+#4)",
    "   r0 = memw(r29+#0)",
    "   r30 = #0",
    "   r31 = #0 }}",
    "callr r1",
    "{{ r6 = #93",
    "   r0 = #0 }}",
    "trap0(#1)",
    "1: jump 1b",
    ".size hexflash_clone, .-hexflash_clone",
    ".text",
);

unsafe extern "C" {
    /// Starts a thread; see the assembly above. Gives the thread's id or a negative error.
    pub fn hexflash_clone(
        flags: u32,
        stack: *mut u32,
        set_id: *const u32,
        clear_id: *const u32,
        word: u32,
        entry: extern "C" fn(*mut ()),
    ) -> i32;
}
