//! Every byte that crosses between host and DSP.
#![no_std]
