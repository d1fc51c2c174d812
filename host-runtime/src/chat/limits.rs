//! What a template may use, in one place.
//!
//! A real template is 3 to 25 KB long, nests ten levels deep and makes lists of a few hundred items; the
//! limits leave room for about ten times that, and more where it costs nothing.

use std::time::Duration;

/// Longest accepted template, in bytes: ten times the longest known.
pub const MAX_SOURCE: usize = 256 << 10;
/// Fuel of one rendering: an instruction takes one unit, so do 64 bytes of text that is made or read. Known
/// templates take a few hundred for each message. All strings and lists that a rendering makes are paid for
/// from it, so 2 million units are also at most 128 MB of them.
/// (A fuzzer needs no more to come across everything, and its inputs must not take long.)
pub(super) const FUEL: u64 = if cfg!(fuzzing) { 20_000 } else { 2_000_000 };
/// Longest prompt, and the most text in one value, in bytes; no context holds as many tokens.
pub(super) const MAX_TEXT: usize = if cfg!(fuzzing) { 1 << 20 } else { 16 << 20 };
/// Most items of one value: those of lists and dictionaries in it count each time that they appear.
pub(super) const MAX_ITEMS: usize = if cfg!(fuzzing) { 10_000 } else { 50_000 };
/// How deep values nest. Messages and arguments may have [`MAX_INPUT_DEPTH`]; templates wrap them a few
/// times.
pub(super) const MAX_DEPTH: usize = 160;
/// How deep messages and arguments nest: what readers of JSON accept.
pub(super) const MAX_INPUT_DEPTH: usize = 128;
/// Operators that follow one another in an expression, and `elif` in one `if`: each is a level of recursion
/// in the engine's parser and compiler.
pub(super) const MAX_CHAIN: usize = 400;
/// Frames of loops, and a fourth of the macros that call one another. The engine's own limit is 500, but it
/// looks for names in all of the frames.
pub(super) const MAX_FRAMES: usize = 250;
/// Characters of an attribute path, of a set of characters to strip, and of a format for the time: the engine
/// takes time that is proportional to their length for each item or character.
pub(super) const MAX_SHORT: usize = 256;
/// Stack of the thread that renders: eight times what the tests fill in a build without optimisation.
/// Only pages that are touched take memory.
pub(super) const STACK: usize = 64 << 20;
/// When a rendering gives up.
pub(super) const TIME: Duration = Duration::from_millis(1200);
/// When its caller gives up waiting: later, because one step of the engine may take a moment.
pub(super) const PATIENCE: Duration = Duration::from_millis(1700);
