//! The library as programs of C and Python use it, and its functions by themselves.
#![cfg(unix)]

mod calls;
mod header;
mod memory;
mod mistakes;
mod programs;
mod support;
mod talk;
