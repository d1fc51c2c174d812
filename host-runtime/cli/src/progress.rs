//! Progress bars: on a terminal, on standard error, and only for work that takes a while.

use std::borrow::Cow;
use std::sync::Once;
use std::time::Duration;

use super::plain::plain;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that shows itself when the work has taken a moment.
pub(super) struct Progress {
    bar: ProgressBar,
    shown: Once,
}

/// Work that is done sooner shows no bar at all.
const SOON: Duration = Duration::from_millis(300);
/// How often a bar is drawn in a second, at most.
const DRAWN: u8 = 10;

impl Progress {
    /// A bar for bytes.
    pub(super) fn bytes(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(what, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
    }

    /// A bar for things that are counted, such as tokens.
    pub(super) fn count(what: &'static str, total: usize) -> Self {
        let progress = Self::new(what, "{msg} {wide_bar} {pos}/{len} {eta}");
        progress.bar.set_length(total as u64);
        progress
    }

    fn new(what: impl Into<Cow<'static, str>>, template: &str) -> Self {
        // Whatever is set draws a bar, however little there is to show yet.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        // Names of files come from hubs.
        bar.set_message(plain(&what.into()));
        Self { bar, shown: Once::new() }
    }

    /// Says how far the work is.
    pub(super) fn set(&self, done: u64, total: u64) {
        // Of nothing there is nothing to show: weights that were found in the cache are not repacked.
        if total > 0 && self.bar.elapsed() > SOON {
            self.shown.call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWN)));
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }

    /// Says how far the work is, with the total given before.
    pub(super) fn at(&self, done: u64) {
        self.set(done, self.bar.length().unwrap_or(done));
    }

    /// Takes the bar off the screen.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
