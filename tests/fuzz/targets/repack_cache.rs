//! See the function that it calls.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| hexflash_fuzz::repack_cache::check(data));
