//! The DSP side of hexflash: it validates op batches, keeps them as programs, and runs them with HVX kernels.
//!
//! * [`session`]: the message loop, and what a session keeps (buffers, programs),
//! * [`buffers`]: shared memory under ids, mapped while there is room,
//! * [`program`]: the arena of loaded programs,
//! * [`plan`]: what is decided about an op when its program is loaded,
//! * [`step`]: the register blocks of a step, and which rows belong to which sequence,
//! * [`stream`]: the weights of a program, fetched ahead of the ops that read them,
//! * [`table`]: which kernel runs an op, and the call of it ([`op_run`], [`variant`]),
//! * [`kernels`]: one file or folder per op, against the vector layer [`hvx`],
//! * [`hmx`]: the matrix unit,
//! * [`pool`], [`dma`], [`vtcm`], [`memory`], [`row`], [`row_blocks`]: what kernels stand on,
//! * [`probe`]: answers to what only a processor knows,
//! * [`platform`]: what differs between operating systems.
//!
//! The crate never allocates. With the feature `host` it uses std for the `host` platform, and for nothing
//! else.
#![cfg_attr(not(feature = "host"), no_std)]
// The compiler of the Hexagon builds (`cargo xtask hexagon`) is told to allow these.
#![cfg_attr(target_arch = "hexagon", feature(asm_experimental_arch, portable_simd, stdarch_hexagon))]

pub mod buffers;
pub mod dma;
pub mod hmx;
pub mod hvx;
pub mod kernels;
pub mod memory;
pub mod op_run;
pub mod plan;
pub mod platform;
pub mod pool;
pub mod probe;
pub mod program;
pub mod row;
pub mod row_blocks;
pub mod serve;
pub mod session;
pub mod step;
pub mod stream;
pub mod table;
#[cfg(any(test, feature = "host"))]
#[doc(hidden)] // For tests here and in other crates.
pub mod testing;
pub mod variant;
pub mod vtcm;
