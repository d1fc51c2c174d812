//! Speculation changes nothing but the speed: texts and states are those of plain decoding, to the bit.

mod adversary;
mod assistant;
mod auto;
mod cancel;
mod common;
mod eagle3;
mod mtp;
mod placed;
mod reference;
mod rig;
mod rounds;
mod same;
mod stops;
mod written;
