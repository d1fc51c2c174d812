//! Whether sharing jobs is worth it, where the processors are shared with other programs.
//!
//! A helper that loses its processor in the middle of a unit keeps the dispatcher waiting for milliseconds,
//! which is longer than most jobs take. A helper that gets no processor in time does nothing for the job, but
//! waking it costs a system call, and it may take the processor from the dispatcher. On a busy machine both
//! happen again and again, and two threads are slower than one. So the pool keeps an account: what helpers
//! saved, less what calling them and waiting for them cost. When it is overdrawn, the dispatcher works alone
//! for a while, during which the helpers fall asleep. Each pause that did not help doubles the next one, so
//! that trying again costs a few percent at most; helpers must save as much as a pause is long before pauses
//! are short again.

/// Nanoseconds that one vector operation takes, roughly. It only has to be right within a factor of a few:
/// what a lost processor costs is a thousand times what a job saves.
const OPERATION_NS: u64 = 1;
/// What it costs to call helpers that do not come, in nanoseconds: a system call and a change of threads.
const MISSED_NS: i64 = 10_000;
/// The most that helpers can have saved up, in nanoseconds: a token of a small model. More would let them
/// waste time for long after a machine has become busy.
const MOST_SAVED_NS: i64 = 1_000_000;
/// What helpers may cost, in nanoseconds, before they have saved anything: a few jobs are over before a
/// helper that slept is awake.
const TRIAL_NS: i64 = 100_000;
/// The first pause, in nanoseconds: some time slices of the scheduler, in fewer of which nothing is likely to
/// change.
const FIRST_PAUSE_NS: u64 = 16_000_000;
/// The longest pause, in nanoseconds. A try that fails costs two or three time slices, 4 % of this.
const LONGEST_PAUSE_NS: u64 = 250_000_000;

/// The account of a pool's helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Worth {
    /// Nanoseconds that helpers saved lately, less those that they cost; never more than [`MOST_SAVED_NS`].
    saved: i64,
    /// Nanoseconds that helpers saved since the last pause.
    earned: u64,
    /// When the dispatcher shares jobs again, in nanoseconds of the platform's clock; `None` while it does.
    pause_ends: Option<u64>,
    /// Nanoseconds that the next pause will take.
    next_pause: u64,
}

impl Worth {
    pub(super) const fn new() -> Self {
        Self { saved: TRIAL_NS, earned: 0, pause_ends: None, next_pause: FIRST_PAUSE_NS }
    }

    /// Whether to share a job. `now` gives nanoseconds, and is asked only during a pause.
    #[inline]
    pub(super) fn shares(&mut self, now: impl FnOnce() -> u64) -> bool {
        let Some(end) = self.pause_ends else { return true };
        if now() < end {
            return false;
        }
        *self = Self { saved: TRIAL_NS, earned: 0, pause_ends: None, ..*self };
        true
    }

    /// `helpers` of them took part in a job of `work` vector operations, and the dispatcher hardly waited.
    #[inline]
    pub(super) fn helped(&mut self, work: usize, helpers: u32) {
        let each = work as u64 / (u64::from(helpers) + 1);
        let gain = each.saturating_mul(u64::from(helpers)).saturating_mul(OPERATION_NS);
        self.saved = self.saved.saturating_add(gain.min(MOST_SAVED_NS as u64) as i64).min(MOST_SAVED_NS);
        self.earned = self.earned.saturating_add(gain);
        if self.earned >= self.next_pause {
            self.next_pause = FIRST_PAUSE_NS;
        }
    }

    /// A job was shared, and no helper came before it was done. `now` gives nanoseconds, and is asked only
    /// when a pause begins.
    #[inline]
    pub(super) fn missed(&mut self, now: impl FnOnce() -> u64) {
        self.saved = self.saved.saturating_sub(MISSED_NS);
        if self.saved < 0 {
            self.pause(now());
        }
    }

    /// The dispatcher waited for `lost` nanoseconds until `now` for helpers that had no processor.
    pub(super) fn waited(&mut self, lost: u64, now: u64) {
        self.saved = self.saved.saturating_sub(i64::try_from(lost).unwrap_or(i64::MAX));
        if self.saved < 0 {
            self.pause(now);
        }
    }

    fn pause(&mut self, now: u64) {
        self.pause_ends = Some(now.saturating_add(self.next_pause));
        self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 3_000_000;

    #[test]
    fn jobs_are_shared_until_waiting_has_cost_more_than_helpers_saved() {
        let mut worth = Worth::new();
        for _ in 0..100 {
            worth.helped(50_000, 1);
        }
        worth.waited(900_000, 0);
        assert!(worth.shares(|| unreachable!("there is no pause")));
        worth.waited(900_000, 0);
        assert!(!worth.shares(|| FIRST_PAUSE_NS - 1));
        assert!(worth.shares(|| FIRST_PAUSE_NS));
        assert!(worth.shares(|| unreachable!("the pause is over")));
    }

    /// On a busy machine each try ends in a lost time slice: all tries together take a few percent of the
    /// time.
    #[test]
    fn a_busy_machine_is_tried_ever_more_seldom() {
        let (mut worth, mut now, mut lost) = (Worth::new(), 0, 0);
        while now < 10_000_000_000 {
            if worth.shares(|| now) {
                (now, lost) = (now + SLICE, lost + SLICE);
                worth.waited(SLICE, now);
            }
            now += 10_000;
        }
        assert!(lost * 50 < now, "{lost} ns of {now} ns");
    }

    #[test]
    fn an_idle_machine_is_found_again_within_a_quarter_of_a_second() {
        let mut worth = Worth::new();
        let mut now = 0;
        for _ in 0..20 {
            worth.waited(SLICE, now);
            now += LONGEST_PAUSE_NS;
            assert!(worth.shares(|| now));
        }
        // A time slice in which helpers work proves little.
        for _ in 0..100 {
            worth.helped(50_000, 1);
        }
        worth.waited(SLICE, now);
        assert!(!worth.shares(|| now + FIRST_PAUSE_NS));
        now += LONGEST_PAUSE_NS;
        assert!(worth.shares(|| now));
        // A good while of it, and a single lost slice costs a short pause again.
        for _ in 0..10_000 {
            worth.helped(50_000, 1);
        }
        worth.waited(SLICE, now);
        assert!(worth.shares(|| now + FIRST_PAUSE_NS));
    }

    /// They did not save anything either, however short the dispatcher's work was.
    #[test]
    fn helpers_that_do_not_come_are_left_alone() {
        let mut worth = Worth::new();
        let mut jobs = 0;
        while worth.shares(|| 0) {
            worth.missed(|| 0);
            jobs += 1;
        }
        assert!(
            (2..50).contains(&jobs),
            "a helper that has to wake up first gets {jobs} jobs of time for it"
        );
        assert!(!worth.shares(|| FIRST_PAUSE_NS - 1) && worth.shares(|| FIRST_PAUSE_NS));
    }

    #[test]
    fn absurd_figures_do_not_overflow() {
        let mut worth = Worth::new();
        worth.helped(usize::MAX, 9);
        worth.waited(u64::MAX, u64::MAX);
        assert!(!worth.shares(|| 0));
    }
}
