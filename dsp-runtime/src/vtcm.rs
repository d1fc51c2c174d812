//! VTCM: laid out per op at `Load`, so that no op runs out at run time.

use core::ptr::NonNull;

use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use crate::hvx::VectorPtr;

/// The scratchpad of a session.
#[derive(Clone, Copy, Debug)]
pub struct Vtcm {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a VTCM is an address range; regions of it are handed out disjointly (see `VtcmPlan`).
unsafe impl Send for Vtcm {}
// SAFETY: a shared `Vtcm` gives addresses only; see `VtcmPlan` for who may use which.
unsafe impl Sync for Vtcm {}

impl Vtcm {
    /// The scratchpad at `base`.
    ///
    /// # Safety
    /// As long as the session lives:
    /// 1. `base` is aligned to 128 bytes and valid for reads and writes of `bytes`, which are initialised;
    /// 2. nobody else uses these bytes.
    pub const unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// Bytes of the scratchpad.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The region at `offset`.
    ///
    /// # Panics
    /// If the region leaves the scratchpad or does not start at a whole vector, which a plan never makes it
    /// do.
    pub fn region(&self, offset: usize, bytes: usize) -> VectorPtr {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        let region = VectorPtr::new(self.base.as_ptr().wrapping_add(offset));
        // Plans are whole vectors, and so is the address of the scratchpad.
        region.unwrap_or_else(|| panic!("VTCM at {offset} is not a vector"))
    }
}

/// How an op uses VTCM: a region for all workers, then one of equal size per worker, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VtcmPlan {
    /// Bytes of the region for all workers: whole vectors.
    pub shared: usize,
    /// Bytes of each worker's own region: whole vectors.
    pub own: usize,
}

impl VtcmPlan {
    /// A plan of regions for each worker, rounded up to whole vectors.
    pub const fn new(own: usize) -> Self {
        Self { shared: 0, own: own.next_multiple_of(VECTOR_BYTES) }
    }

    /// The plan with up to `bytes` for all workers, as far as `vtcm_bytes` have room for it.
    #[must_use]
    pub fn with_shared(self, bytes: usize, workers: usize, vtcm_bytes: usize) -> Self {
        let room = vtcm_bytes.saturating_sub(self.total(workers).unwrap_or(usize::MAX));
        Self { shared: bytes.min(room) / VECTOR_BYTES * VECTOR_BYTES, ..self }
    }

    /// Bytes needed by `workers` workers; `None` on overflow.
    pub fn total(&self, workers: usize) -> Option<usize> {
        self.own.checked_mul(workers)?.checked_add(self.shared)
    }

    /// Checks that the plan fits.
    ///
    /// # Errors
    /// [`ErrorCode::VtcmTooSmall`] with the bytes needed.
    pub fn fit(self, workers: usize, vtcm_bytes: usize) -> Result<Self, Fault> {
        match self.total(workers) {
            Some(total) if total <= vtcm_bytes => Ok(self),
            total => Err(Fault::new(ErrorCode::VtcmTooSmall, total.map_or(u32::MAX, |t| t as u32))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_whole_vectors_and_must_fit() {
        assert_eq!(VtcmPlan::new(129), VtcmPlan { shared: 0, own: 256 });
        let plan = VtcmPlan::new(256);
        assert_eq!(plan.total(3), Some(768));
        assert_eq!(plan.fit(3, 768), Ok(plan));
        assert_eq!(plan.fit(3, 767), Err(Fault::new(ErrorCode::VtcmTooSmall, 768)));
        assert_eq!(VtcmPlan::default().fit(10, 0), Ok(VtcmPlan::default()));
    }

    #[test]
    fn what_is_shared_takes_the_room_that_is_left() {
        let plan = VtcmPlan::new(256);
        assert_eq!(plan.with_shared(384, 2, 1024), VtcmPlan { shared: 384, own: 256 });
        assert_eq!(plan.with_shared(1000, 2, 1023), VtcmPlan { shared: 384, own: 256 });
        assert_eq!(plan.with_shared(1000, 2, 512), plan);
        assert_eq!(plan.with_shared(1000, 2, 0), plan);
        assert_eq!(plan.with_shared(384, 2, 1024).total(2), Some(896));
        assert_eq!(plan.with_shared(384, 2, 1024).fit(2, 895), Err(Fault::new(ErrorCode::VtcmTooSmall, 896)));
    }

    #[test]
    fn a_plan_that_overflows_does_not_fit() {
        for own in [usize::MAX / 2, usize::MAX / 3 + 1] {
            let plan = VtcmPlan { shared: 0, own };
            assert_eq!(plan.fit(3, usize::MAX), Err(Fault::new(ErrorCode::VtcmTooSmall, u32::MAX)));
        }
    }

    #[test]
    fn regions_end_with_the_scratchpad() {
        #[repr(align(128))]
        struct Memory([u8; 256]);
        let mut memory = Memory([0; 256]);
        let base = NonNull::from(&mut memory.0).cast();
        // SAFETY: `memory` has 256 bytes, aligned to 128, and lives to the end of the test; nobody else uses
        // it.
        let vtcm = unsafe { Vtcm::new(base, 256) };
        assert_eq!(vtcm.region(256, 0).get(), base.as_ptr().wrapping_add(256));
        assert_eq!(vtcm.region(128, 128).get(), base.as_ptr().wrapping_add(128));
        for (offset, bytes) in [(0, 257), (129, 128), (257, 0), (1, usize::MAX), (64, 64)] {
            assert!(std::panic::catch_unwind(|| vtcm.region(offset, bytes)).is_err());
        }
    }
}
