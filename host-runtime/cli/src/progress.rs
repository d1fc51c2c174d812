//! Progress bars: on a terminal, on standard error, and only for work that takes a while.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that shows itself when the work has taken a moment.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for bytes.
    pub(super) fn bytes(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(what, "{msg} {wide_bar} {bytes}/{total_bytes} {eta}")
    }

    /// A bar for tokens.
    pub(super) fn tokens(what: &'static str, total: usize) -> Self {
        let progress = Self::new(what, "{msg} {wide_bar} {pos}/{len} {eta}");
        progress.bar.set_length(total as u64);
        progress
    }

    fn new(what: impl Into<Cow<'static, str>>, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar }
    }

    /// Says how far the work is.
    pub(super) fn set(&self, done: u64, total: u64) {
        // Short work shows no bar at all.
        if self.bar.elapsed() > Duration::from_millis(300) {
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }

    /// Says how far the work is, with the total given before.
    pub(super) fn at(&self, done: u64) {
        self.set(done, self.bar.length().unwrap_or(done));
    }

    /// Takes the bar off the screen.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
