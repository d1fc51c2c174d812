//! What a panic comes to. An archive has one panic handler, but each product ends in its own way, so the
//! linker binds the name that is called here to the product's function.

use core::panic::PanicInfo;

unsafe extern "Rust" {
    /// Ends the process.
    fn hexflash_panic(info: &PanicInfo<'_>) -> !;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // SAFETY: both functions that the linker binds the name to have this signature, and no contract.
    unsafe { hexflash_panic(info) }
}
