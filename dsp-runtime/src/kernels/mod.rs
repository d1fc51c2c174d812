//! The kernels: one file or folder per op, written once against [`crate::hvx::Hvx`] or the matrix unit.
//!
//! Each has a `run` that takes the op's operands from an [`OpRun`](crate::op_run::OpRun) and hands one or
//! more kernels ([`crate::pool::Kernel`]) to the worker pool. Shapes, types and parameters were validated at
//! `Load`, and the registers before the step; kernels rely on both. Data-dependent indices are checked where
//! they are used. Which kernel runs an op is decided in [`crate::table`], which names all of them.
//!
//! Families use nothing of each other. What several of them need is in `shared`.
//!
//! Batch invariance: what a kernel computes for a row depends on that row alone, in an order that does not
//! depend on how many rows there are. Ops that go by slots work span by span ([`crate::step`]): what they
//! compute for a row depends on its own sequence alone.

pub mod attention;
pub mod products;
pub mod recurrent;
pub(crate) mod shared;
pub mod small;
