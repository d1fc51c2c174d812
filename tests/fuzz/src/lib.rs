//! What the fuzz targets check: each takes bytes from strangers, and panics where hexflash breaks a promise.
//!
//! * [`dsp`]: messages, programs and whole sessions, against the model that the hostile tests of
//!   `hexflash-dsp` have,
//! * [`gguf`], [`tokenizer`], [`chat_template`]: what a model file may hold,
//! * [`repack_cache`]: a weight cache that somebody damaged.
//!
//! `cargo xtask fuzz` builds and runs them, under the address sanitizer. The inputs in `corpus/` are what is
//! left of long runs after merging: together they reach all that was reached. A crash becomes a fix and a
//! test by name in the suite of the crate that crashed.

pub mod chat_template;
pub mod dsp;
pub mod gguf;
pub mod repack_cache;
pub mod tokenizer;

mod scratch;

// The hostile tests' generator of programs, and their model of a session. They name each other from the
// crate's root.
macro_rules! hostile {
    ($($module:ident: $path:literal),*) => {
        $(#[path = $path]
        #[allow(dead_code, reason = "the tests use all of it")]
        mod $module;)*
    };
}

hostile! {
    build: "../../../dsp-runtime/tests/hostile/build/mod.rs",
    counting: "../../../dsp-runtime/tests/hostile/counting.rs",
    course: "../../../dsp-runtime/tests/hostile/course.rs",
    memory: "../../../dsp-runtime/tests/hostile/memory.rs",
    model: "../../../dsp-runtime/tests/hostile/model.rs",
    mutate: "../../../dsp-runtime/tests/hostile/mutate.rs",
    random: "../../../dsp-runtime/tests/hostile/random.rs",
    setup: "../../../dsp-runtime/tests/hostile/setup.rs",
    world: "../../../dsp-runtime/tests/hostile/world.rs"
}
