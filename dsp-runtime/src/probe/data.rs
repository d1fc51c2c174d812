//! Memory of the host that a question is about.

/// The memory's address.
#[derive(Clone, Copy)]
pub(super) struct Data(pub *const u8);

// SAFETY: an address. What is read there is shared memory, which the host may write at any time, so that no
// thread has it for itself; each place that reads says why it may.
unsafe impl Sync for Data {}
