//! The DSP runtime.
#![cfg_attr(not(feature = "host"), no_std)]
