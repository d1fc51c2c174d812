//! What threads and the two sides of a queue share: atomics, cells, bytes of memory.
//!
//! They are the language's. In models (`cargo xtask loom`, which compiles with `--cfg loom`) they are loom's,
//! which runs a model in all orders that threads may take.

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod real;

#[cfg(loom)]
pub use model::{AtomicBool, AtomicU32, AtomicUsize, Ordering, UnsafeCell, copy_in, copy_out, fence, word};
#[cfg(not(loom))]
pub use real::{AtomicBool, AtomicU32, AtomicUsize, Ordering, UnsafeCell, copy_in, copy_out, fence, word};
